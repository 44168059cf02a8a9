"""kill -9 at random moments, and a run that ends as if nothing had happened: to the last bit, with real jails."""

import json
import random
import shutil
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.e2e.tiny_run import SETTINGS, save_model, start_run
from trainer.store import read_records

pytestmark = [pytest.mark.nsjail, pytest.mark.timeout(600)]
KILLS = 20


def find_last(run: Path) -> Path:
    return max((run / "checkpoints").glob("step-*"))


def count_steps(run: Path) -> int:
    return int(find_last(run).name.split("-")[1])


def wait_for_checkpoint(process, run: Path, log: Path) -> None:
    while not any((run / "checkpoints").glob("step-*")):
        assert process.is_alive(), log.read_text()
        time.sleep(0.02)


def finish(process, log: Path) -> None:
    process.join(240)
    assert process.exitcode == 0, log.read_text()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, server) -> dict:
    folder = tmp_path_factory.mktemp("kill")
    model, log = save_model(folder / "model"), folder / "log"
    common = [*SETTINGS, f"model.name={model}", f"verifier.address={server.address}"]
    run, generator = folder / "killed/tiny-001", random.Random(4)
    process = start_run(log, [*common, f"run.folder={run.parent}", "run.steps=999"])
    wait_for_checkpoint(process, run, log)
    kills = []
    for _ in range(KILLS):
        time.sleep(generator.uniform(0.05, 3.0))
        process.kill()
        process.join()
        rows = [row["step"] for row in read_records(run / "metrics.jsonl")]
        kills.append({"checkpoint": count_steps(run), "rows": rows, "files": len(list(run.rglob("*")))})
        process = start_run(log, ["--resume", str(run), "run.steps=999"])
    process.kill()
    process.join()
    steps = max(8, count_steps(run) + 2)
    finish(start_run(log, ["--resume", str(run), f"run.steps={steps}"]), log)
    straight = folder / "straight/tiny-001"
    finish(start_run(log, [*common, f"run.folder={straight.parent}", f"run.steps={steps}"]), log)
    yield {"killed": run, "straight": straight, "kills": kills, "steps": steps, "log": log.read_text()}
    shutil.rmtree(folder)


def test_a_kill_loses_at_most_the_step_in_flight(scene: dict) -> None:
    kills = scene["kills"]
    assert len(kills) == KILLS
    for kill in kills:
        # Rows of a step may be written before its checkpoint; they are cut off by the resume.
        assert kill["rows"][: kill["checkpoint"]] == list(range(1, kill["checkpoint"] + 1))
        assert len(kill["rows"]) <= kill["checkpoint"] + 1
    done = [kill["checkpoint"] for kill in kills]
    assert done == sorted(done)
    assert len(set(done)) >= 3, "the kills left no time for steps"
    assert [row["step"] for row in read_records(scene["killed"] / "metrics.jsonl")] == list(
        range(1, scene["steps"] + 1)
    )


@pytest.mark.parametrize("name", ["attempts", "problems", "matches", "lineage", "events"])
def test_the_records_are_those_of_a_run_that_was_never_killed(scene: dict, name: str) -> None:
    killed, straight = (read_records(scene[which] / f"{name}.jsonl") for which in ("killed", "straight"))
    assert killed == straight
    assert killed or name in ("events", "problems")


def test_the_weights_and_moments_are_those_of_a_run_that_was_never_killed_bit_by_bit(scene: dict) -> None:
    killed, straight = find_last(scene["killed"]), find_last(scene["straight"])
    files = sorted(path.name for path in straight.glob("*.safetensors"))
    assert len(files) == 8
    assert files == sorted(path.name for path in killed.glob("*.safetensors"))
    for name in files:
        theirs = load_file(straight / name)
        for key, tensor in load_file(killed / name).items():
            assert tensor.numpy().tobytes() == theirs[key].numpy().tobytes(), (name, key)


def test_the_state_and_the_numbers_are_those_of_a_run_that_was_never_killed(scene: dict) -> None:
    killed, straight = (json.loads((find_last(scene[w]) / "state.json").read_text()) for w in ("killed", "straight"))
    # Not compared: the number of the next adapter, because every start publishes everybody anew.
    for name in ("step", "members", "problems", "random_state", "next_uid", "known"):
        assert killed[name] == straight[name], name
    rows = [
        [
            {k: v for k, v in row.items() if not k.startswith(("time/", "perf/", "mem/", "verifier/"))}
            for row in read_records(scene[which] / "metrics.jsonl")
        ]
        for which in ("killed", "straight")
    ]
    assert rows[0] == rows[1]
    assert sum(name.endswith("/loss") for row in rows[0] for name in row) >= 2 * scene["steps"], (
        "nothing was learned, so nothing was shown"
    )


def test_members_were_replaced_on_the_way(scene: dict) -> None:
    assert len(read_records(scene["killed"] / "lineage.jsonl")) >= 2


def test_the_disk_does_not_fill(scene: dict) -> None:
    """2 checkpoints; 3 versions of each of 4 members and the last one of at most 8 culled ones."""
    run = scene["killed"]
    assert len(list((run / "checkpoints").iterdir())) == 2
    folders = [path for path in (run / "adapters").glob("*/*") if not path.name.startswith(".draft")]
    assert len(folders) <= 3 * 4 + 8
    assert not list(run.rglob(".draft-*"))
