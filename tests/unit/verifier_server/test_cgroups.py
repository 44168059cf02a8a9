"""Controllers are found one by one, on v1, v2 and hybrid hosts (shown on texts; the host under test has one kind)."""

import json
from pathlib import Path

import pytest

from verifier_server.domain import Limits
from verifier_server.errors import SetupError
from verifier_server.sandbox import cgroups
from verifier_server.sandbox.cgroups import RunCgroup, find_hierarchies, remove_leftovers

V1 = "".join(f"cgroup {{root}}/{name} cgroup rw,{name} 0 0\n" for name in ("memory", "pids", "cpu", "cpuacct"))
V2 = "cgroup2 {root}/unified cgroup2 rw 0 0\n"


def find(tmp_path: Path, mounts: str, membership: str, controllers: str = "") -> dict[str, tuple[str, int]]:
    available = {f"{tmp_path}/unified": controllers}
    found = find_hierarchies(mounts.format(root=tmp_path), membership, available)
    return {name: (str(h.path.relative_to(tmp_path)), h.version) for name, h in found.items()}


def test_v1_controllers_have_a_mount_each(tmp_path: Path) -> None:
    found = find(tmp_path, V1, "4:memory:/\n3:pids:/\n2:cpu,cpuacct:/\n")
    assert found == {name: (name, 1) for name in ("memory", "pids", "cpu", "cpuacct")}


def test_v2_serves_all_from_one_mount(tmp_path: Path) -> None:
    found = find(tmp_path, V2, "0::/\n", "cpuset cpu io memory pids")
    assert found == {name: ("unified", 2) for name in ("memory", "pids", "cpu", "cpuacct")}


def test_a_hybrid_host_mixes_versions_per_controller(tmp_path: Path) -> None:
    mounts = "cgroup {root}/memory cgroup rw,memory 0 0\n" + V2
    found = find(tmp_path, mounts, "1:memory:/\n0::/\n", "cpu pids hugetlb")
    assert found == {"memory": ("memory", 1), "cpu": ("unified", 2), "pids": ("unified", 2), "cpuacct": ("unified", 2)}


def test_v1_wins_where_v2_has_only_other_controllers(tmp_path: Path) -> None:
    found = find(tmp_path, V1 + V2, "4:memory:/\n3:pids:/\n2:cpu:/\n1:cpuacct:/\n0::/\n", "hugetlb")
    assert {version for _, version in found.values()} == {1}


def test_groups_go_below_the_own_cgroup(tmp_path: Path) -> None:
    (tmp_path / "memory/service").mkdir(parents=True)
    assert find(tmp_path, V1, "4:memory:/service\n")["memory"] == ("memory/service", 1)


def test_v2_limits_and_counters_use_the_v2_files(tmp_path: Path) -> None:
    names = ("memory", "pids", "cpu", "cpuacct")
    run = RunCgroup(dict.fromkeys(names, tmp_path), dict.fromkeys(names, 2))
    run.set_limits(Limits(memory_bytes=100 << 20, processes=8))
    assert (tmp_path / "memory.max").read_text() == str(100 << 20)
    assert (tmp_path / "memory.swap.max").read_text() == "0"
    assert (tmp_path / "pids.max").read_text() == "10"  # 8 + nsjail + supervisor
    assert (tmp_path / "cpu.max").read_text() == "100000 100000"
    (tmp_path / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    (tmp_path / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    (tmp_path / "pids.events").write_text("max 7\n")
    (tmp_path / "memory.peak").write_text("12345\n")
    assert (run.read_cpu_s(), run.read_oom_kills(), run.read_process_refusals()) == (1.5, 2, 7)
    assert run.read_peak_memory_bytes() == 12345
    assert len(run.procs_files) == 1


def test_only_subtrees_with_a_free_lock_are_removed(tmp_path: Path) -> None:
    import fcntl

    locks, trees = tmp_path / "locks", tmp_path / "cgroups"
    locks.mkdir()
    for name in ("dead", "alive"):
        (trees / f"populora-{name}/run-1").mkdir(parents=True)
        (locks / f"populora-{name}.lock").write_text(json.dumps([str(trees / f"populora-{name}")]))
    with (locks / "populora-alive.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert remove_leftovers(locks) == [str(trees / "populora-dead")]
    assert [p.name for p in trees.iterdir()] == ["populora-alive"]
    assert [p.name for p in locks.iterdir()] == ["populora-alive.lock"]


def test_a_lock_file_cannot_name_a_foreign_folder(tmp_path: Path) -> None:
    locks, victim = tmp_path / "locks", tmp_path / "precious"
    locks.mkdir()
    victim.mkdir()
    (locks / "populora-x.lock").write_text(json.dumps([str(victim)]))
    remove_leftovers(locks)
    assert victim.is_dir()


@pytest.mark.parametrize("text", ["", "not json"])
def test_a_torn_lock_file_does_no_harm(tmp_path: Path, text: str) -> None:
    (tmp_path / "populora-x.lock").write_text(text)
    assert remove_leftovers(tmp_path) == []


def test_a_host_without_controllers_is_explained(tmp_path: Path, monkeypatch) -> None:
    for name in ("_MOUNTS", "_MEMBERSHIP"):
        (tmp_path / name).write_text("")
        monkeypatch.setattr(cgroups, name, tmp_path / name)
    with pytest.raises(SetupError, match=r"no cgroup controller for memory, pids, cpu, cpuacct.*Delegate"):
        cgroups.CgroupTree(tmp_path).start()


def test_no_right_to_make_cgroups_is_explained_and_leaves_nothing(tmp_path: Path, monkeypatch) -> None:
    """A controller's folder in which nothing can be made (here: it is a file)."""
    (tmp_path / "mounts").write_text(V1.format(root=tmp_path))
    (tmp_path / "membership").write_text("4:memory:/\n3:pids:/\n2:cpu:/\n1:cpuacct:/\n")
    for name in ("memory", "pids", "cpu", "cpuacct"):
        (tmp_path / name).write_text("no folder")
    monkeypatch.setattr(cgroups, "_MOUNTS", tmp_path / "mounts")
    monkeypatch.setattr(cgroups, "_MEMBERSHIP", tmp_path / "membership")
    with pytest.raises(SetupError, match="no right to make cgroups"):
        cgroups.CgroupTree(tmp_path).start()
    assert not list((tmp_path / "instances").iterdir())
