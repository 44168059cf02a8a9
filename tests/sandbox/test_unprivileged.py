"""The service as an ordinary user, where user namespaces allow it: same protections, one honest degradation."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from populora.verifier import VerifierClient

from tests.conftest import ROOT
from tests.contract.helpers import wait_until
from verifier_server.sandbox.cgroups import find_hierarchies
from verifier_server.selftest.runner import run_attack
from verifier_server.selftest.suite import CLASSES

USER = 54_321
# The checkout and the interpreter may lie below a private folder, so they are shown to the user at other places, in a
# mount namespace of its own.
ENTER = """
set -e
mount --bind "$1" "$3/checkout"
mount --bind "$2" "$3/python"
mount --bind "$4" "$3/packages"
for group in $5; do echo 0 > "$group/cgroup.procs"; done
export PYTHONPATH="$3/checkout:$3/checkout/protos/python:$3/packages" HOME="$3/home"
cd "$3/checkout"
user=$6
python="$3/python/bin/$7"
shift 7
exec setpriv --reuid=$user --regid=$user --clear-groups --inh-caps=-all --bounding-set=-all "$python" -m verifier_server "$@"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = Path(f"/var/tmp/populora-user-{os.getpid()}")
    for name in ("checkout", "python", "packages", "home"):
        (folder / name).mkdir(parents=True)
    os.chown(folder / "home", USER, USER)
    yield folder
    subprocess.run(["rm", "-rf", folder], check=True)


@pytest.fixture
def groups() -> Iterator[list[Path]]:
    """A group in every hierarchy that belongs to the user, as an administrator would delegate it."""
    found = find_hierarchies(Path("/proc/self/mounts").read_text(), Path("/proc/self/cgroup").read_text())
    groups = list(dict.fromkeys(place.path / f"user-{os.getpid()}" for place in found.values()))
    for group in groups:
        group.mkdir()
        for name in ("memory.limit_in_bytes", "memory.max"):  # hostile programs only under a limit
            if (group / name).exists():
                (group / name).write_text(str(2 << 30))
        for path in [group, *group.iterdir()]:
            os.chown(path, USER, USER)
    yield groups
    for group in groups:
        wait_until(lambda group=group: not (group / "cgroup.procs").read_text().strip())
        group.rmdir()


def start(folder: Path, groups: list[Path], *arguments: str, log: object) -> "subprocess.Popen[str]":
    interpreter = f"python{sys.version_info.major}.{sys.version_info.minor}"
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh", str(ROOT), sys.base_prefix]
    command += [str(folder), sysconfig.get_path("purelib"), " ".join(map(str, groups)), str(USER), interpreter]
    return subprocess.Popen([*command, *arguments], stdout=log, stderr=subprocess.STDOUT, text=True)


def test_an_ordinary_user_with_delegated_cgroups_has_every_protection(folder: Path, groups: list[Path]) -> None:
    address = f"unix:{folder}/home/v.sock"
    with (folder / "log").open("w+") as log:
        process = start(folder, groups, "serve", "--address", address, "--slots", "2", log=log)
    try:
        wait_until(lambda: "server_ready" in (folder / "log").read_text() or process.poll() is not None, 30)
        assert process.poll() is None, (folder / "log").read_text()
        with VerifierClient(address, patience_s=10) as client:
            info = client.server_info()
            assert all(protection.active for protection in info.protections)
            assert list(info.degraded) == ["one_host_user_for_all_slots"]
            attacks = [*CLASSES["memory"][:6], *CLASSES["signals"], *CLASSES["processes"], *CLASSES["surroundings"]]
            results = [run_attack(client, attack) for attack in attacks]
            problems = [(r.attack.name, r.breach or r.deviation) for r in results if r.breach or r.deviation]
            assert problems == []
            denied = run_attack(client, CLASSES["system calls"][0])
            assert (denied.breach, denied.deviation) == ("", ""), "denied all the same, only without a name"
    finally:
        process.terminate()
        assert process.wait(timeout=20) == 0


def test_an_ordinary_user_without_cgroups_is_told_what_to_type(folder: Path) -> None:
    with (folder / "log").open("w+") as log:
        assert start(folder, [], "serve", "--address", f"unix:{folder}/home/v.sock", log=log).wait(timeout=30) == 2
    text = (folder / "log").read_text()
    assert "systemd-run --user --scope -p Delegate=yes" in text
    assert "Traceback" not in text


def test_doctor_tells_what_it_found_and_how_to_mend_it(folder: Path) -> None:
    with (folder / "log").open("w+") as log:
        assert start(folder, [], "doctor", log=log).wait(timeout=30) == 2
    text = (folder / "log").read_text()
    for word in (
        "kernel",
        "cgroup memory",
        "user namespaces",
        "AppArmor",
        "nsjail",
        f"uid {USER}",
        "not readable",
        "->",
    ):
        assert word in text, text
