"""The guest image: a read-only root with one interpreter, its libraries, the guest code, and nothing else.

It is copied (so that an interpreter below a private home directory works, and an upgrade of the host does not
change a running service) and cached by what went into it.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from verifier_server.errors import SetupError

GUEST_DIR = "guest"
PACKAGES_DIR = "packages"
_PACKAGE = Path(__file__).parent.parent
_GUEST_FILES = [*sorted((_PACKAGE / "sandbox/guest").glob("[!_]*.py")), _PACKAGE / "judging/codec.py"]
_LEFT_OUT = ("test", "ensurepip", "idlelib", "turtledemo", "site-packages", "dist-packages", "config-*")
_DEVICES = ("null", "zero", "urandom")
_PROBE = """
import json, sys, sysconfig
print(json.dumps({"version": sys.version.split()[0], "executable": sys.executable, "prefix": sys.prefix,
                  "stdlib": sysconfig.get_path("stdlib"), "platstdlib": sysconfig.get_path("platstdlib")}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A built guest image."""

    root: Path
    digest: str
    """SHA-256 over every file and the policy."""
    python: str
    """Path of the interpreter inside the root."""
    python_version: str
    packages: tuple[str, ...]
    """Top-level modules besides the standard library."""


def build_image(images_dir: Path, python: str, policy: str, packages: Path | None = None) -> Image:
    """Return the image for interpreter `python`, building it if it is not cached.

    Args:
        packages: a folder made by `pip install --target` for that interpreter, copied into the image.

    Raises:
        SetupError: the interpreter does not run, or the image cannot be written.
    """
    facts = _probe(python)
    radon = find_spec("radon")
    if radon is None or not radon.submodule_search_locations:
        raise SetupError("the Python package `radon` is missing: run `make setup`")
    if packages is not None and not packages.is_dir():
        raise SetupError(f"packages folder {packages} does not exist: make it with `make guest-packages`")
    libraries = _find_libraries(facts, packages)
    sources = [*_GUEST_FILES, *sorted(Path(radon.submodule_search_locations[0]).glob("*.py"))]
    key = _make_key(facts, libraries, sources, policy, packages)
    final = images_dir / key
    if not (final / "image.json").exists():
        _build(final, facts, libraries, sources, policy, packages)
    written = json.loads((final / "image.json").read_text())
    return Image(
        root=final / "root",
        digest=written["digest"],
        python=facts["executable"],
        python_version=facts["version"],
        packages=_list_modules(packages),
    )


def _list_modules(packages: Path | None) -> tuple[str, ...]:
    if packages is None:
        return ()
    found = {path.name for path in packages.iterdir() if (path / "__init__.py").exists()}
    found |= {path.name.split(".")[0] for path in packages.iterdir() if path.suffix in (".py", ".so")}
    return tuple(sorted(found))


def _probe(python: str) -> dict[str, str]:
    path = shutil.which(python)
    if path is None:
        raise SetupError(f"interpreter {python!r} not found: give one with --python")
    try:
        result = subprocess.run(
            [os.path.realpath(path), "-I", "-S", "-c", _PROBE], capture_output=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SetupError(f"interpreter {path} does not run: {error}") from error
    facts: dict[str, str] = json.loads(result.stdout)
    if tuple(int(part) for part in facts["version"].split(".")[:2]) < (3, 11):
        raise SetupError(f"interpreter {path} is Python {facts['version']}, at least 3.11 is needed")
    return facts


def _find_libraries(facts: dict[str, str], packages: Path | None) -> list[str]:
    """Shared libraries of the interpreter and of every extension module, by the dynamic linker itself."""
    modules = sorted(str(path) for path in (Path(facts["platstdlib"]) / "lib-dynload").glob("*.so"))
    if packages is not None:
        modules += sorted(str(path) for path in packages.rglob("*.so*"))
    result = subprocess.run(["ldd", facts["executable"], *modules], capture_output=True, text=True, check=False)
    found = set()
    for line in result.stdout.splitlines():
        words = line.split()
        path = words[2] if len(words) > 2 and words[1] == "=>" else words[0] if words else ""
        inside = packages is not None and path.startswith(str(packages))
        if path.startswith("/") and not path.endswith(":") and os.path.exists(path) and not inside:
            found.add(path)
    return sorted(found)


def _make_key(
    facts: dict[str, str], libraries: list[str], sources: list[Path], policy: str, packages: Path | None
) -> str:
    """A cheap name for what goes into the image: contents of our files, times of the host's."""
    state = hashlib.sha256(json.dumps([facts, policy]).encode())
    for source in sources:
        state.update(source.read_bytes())
    extra = sorted(str(path) for path in packages.rglob("*.*") if path.is_file()) if packages else []
    for path in [facts["executable"], facts["stdlib"], *libraries, *extra]:
        stat = os.stat(path)
        state.update(f"{path} {stat.st_mtime_ns} {stat.st_size}".encode())
    return state.hexdigest()[:16]


def _build(
    final: Path,
    facts: dict[str, str],
    libraries: list[str],
    sources: list[Path],
    policy: str,
    packages: Path | None,
) -> None:
    final.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=final.parent))
    try:
        root = draft / "root"
        _fill(root, facts, libraries, sources)
        if packages is not None:
            shutil.copytree(packages, root / PACKAGES_DIR, ignore=shutil.ignore_patterns("__pycache__", "tests"))
        _precompile(root, facts)
        digest = _digest(root, policy)
        (draft / "image.json").write_text(json.dumps({"digest": digest, **facts}))
        for path in [draft, *draft.rglob("*")]:
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & 0o755 | (0o555 if path.is_dir() else 0o444))
        draft.rename(final)
    except OSError as error:
        if not (final / "image.json").exists():  # else another instance was faster
            raise SetupError(f"cannot build the guest image in {final.parent}: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _fill(root: Path, facts: dict[str, str], libraries: list[str], sources: list[Path]) -> None:
    for library in [*libraries, facts["executable"]]:
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library, target)
    for directory in {facts["stdlib"], facts["platstdlib"]}:
        ignore = shutil.ignore_patterns(*_LEFT_OUT)
        shutil.copytree(directory, root / directory.lstrip("/"), ignore=ignore, dirs_exist_ok=True)
    guest = root / GUEST_DIR
    for source in sources:
        target = guest / ("radon" if source.parent.name == "radon" else "") / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    for name in ("tmp", "dev"):
        (root / name).mkdir()
    for name in _DEVICES:
        (root / "dev" / name).touch()


def _precompile(root: Path, facts: dict[str, str]) -> None:
    """Compile what the host has not compiled; jails cannot write, so every run would do it again."""
    command = [facts["executable"], "-I", "-S", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    for name in (GUEST_DIR, PACKAGES_DIR):
        if (root / name).exists():  # packages may hold files that are no programs, so the exit status says little
            subprocess.run([*command, str(root / name)], check=False, capture_output=True, timeout=600)


def _digest(root: Path, policy: str) -> str:
    state = hashlib.sha256(policy.encode())
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            state.update(str(path.relative_to(root)).encode() + b"\0")
            state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()
