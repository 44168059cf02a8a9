"""What a run could leave on the host: counted before and after, must be equal."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.conftest import EngineThread
from tests.contract.helpers import find_jailed
from verifier_server.status import count_zombies


@dataclass(frozen=True)
class Residue:
    jails: int
    run_cgroups: int
    processes: int
    mounts: int
    files: int
    descriptors: int
    zombies: int

    @classmethod
    def take(cls, engine: EngineThread) -> Self:
        live = engine.engine.count_live()
        state = engine.engine._state_dir
        return cls(
            jails=live.jails,
            run_cgroups=live.run_cgroups,
            processes=len(find_jailed()),
            mounts=Path("/proc/self/mounts").read_text().count("\n"),
            # One configuration file per size of /tmp stays on purpose.
            files=sum(not path.name.startswith("tmp-") for path in (state / "instances").rglob("*")),
            descriptors=len(os.listdir("/proc/self/fd")),
            zombies=count_zombies(),
        )
