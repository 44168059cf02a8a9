"""The main job end to end: real verifier, real jails, real vLLM, the embedded model, real gradients.

One scenario, because starting vLLM is the expensive part: a run, a verifier killed and restarted in mid-run, the
trainer killed in mid-step, a resume, and what the run folder says about all of it.
"""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT, ServerProcess

pytestmark = [pytest.mark.vllm, pytest.mark.nsjail, pytest.mark.timeout(900)]
SETTINGS = [
    "run.steps=3", "warmup.steps=6", "warmup.batch_size=4", "warmup.measure_proposals=4", "evolution.every=2",
    "tasks.prompts_per_teacher=1", "tasks.proposals_per_prompt=4", "tasks.problems_per_student=2",
    "tasks.attempts_per_problem=4", "rollout.max_new_tokens=48", "learning.learning_rate=0.001",
]  # fmt: skip


class Trainer:
    """A training run in its own process, with its output in a file."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.log = folder / "trainer.log"
        with self.log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trainer.run", *arguments], stdout=file, stderr=file, cwd=ROOT
            )

    def wait_for(self, condition: Callable[[], object], timeout_s: float = 240) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def read(folder: Path, name: str) -> list[dict]:
    path = folder / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def find_vllm() -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline", "name", "status"]):
        words = " ".join(process.info["cmdline"] or [])
        if ("vllm_worker" in words or "VLLM::" in words) and process.info["status"] != "zombie":
            found.append(process.pid)
    return found


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory, state_dir: Path) -> dict:
    folder = tmp_path_factory.mktemp("run")
    server = ServerProcess(f"unix:{folder}/verifier.sock", state_dir)
    server.start()
    audit = state_dir / "audit/records.jsonl"
    before = len(audit.read_text().splitlines()) if audit.exists() else 0
    arguments = [
        "--config",
        "configs/demo.yaml",
        *SETTINGS,
        f"run.folder={folder}/runs",
        f"verifier.address={server.address}",
    ]
    run = folder / "runs/demo-001"
    trainer = Trainer(folder, *arguments)
    try:
        # The verifier dies while step 1 is on its way, and stays away for a while.
        trainer.wait_for(lambda: len(list((run / "checkpoints").glob("step-*"))) == 1)
        server.kill()
        trainer.wait_for(lambda: "waiting for the verifier" in trainer.log.read_text())
        time.sleep(2)
        server.start()
        trainer.wait_for(lambda: len(read(run, "metrics")) == 1)
        # The trainer dies in the middle of step 2.
        audited = len(audit.read_text().splitlines())
        trainer.wait_for(lambda: len(audit.read_text().splitlines()) > audited)
        trainer.kill()
        killed_at = [row["step"] for row in read(run, "metrics")]
        time.sleep(3)
        orphans = find_vllm()
        resumed = Trainer(folder, "--resume", str(run), f"verifier.address={server.address}")
        assert resumed.process.wait(timeout=400) == 0, resumed.log.read_text()
    finally:
        if trainer.process.poll() is None:
            trainer.kill()
        info = None
        if server.process.poll() is None:
            from populora.verifier import VerifierClient

            with VerifierClient(server.address) as client:
                info = client.server_info()
            server.stop()
    return {
        "run": run, "log": trainer.log.read_text(), "killed_at": killed_at, "orphans": orphans, "info": info,
        "audit": [json.loads(line) for line in audit.read_text().splitlines()[before:]],
    }  # fmt: skip


def test_the_run_waits_for_a_dead_verifier_and_says_how_to_start_one(scenario: dict) -> None:
    assert "make serve-verifier" in scenario["log"]


def test_no_sample_got_a_made_up_reward(scenario: dict) -> None:
    """Every reward of a judged sample has its audit record; trouble is masked, never scored."""
    samples = read(scenario["run"], "attempts")
    assert samples
    table = {"correct": 1.0, "wrong": -0.5, "malformed": -1.0}
    for sample in samples:
        if sample["grade"] == "unjudged":
            assert sample["reward"] is None
        elif sample["role"] == "student":
            assert sample["reward"] == table[sample["grade"]]
    judged = [
        s for s in samples if s["role"] == "student" and not re.fullmatch("truncated|no_.*|repeated_block", s["detail"])
    ]
    answered = [r for r in scenario["audit"] if r["method"] == "JudgeAnswer" and r["role"] == "student"]
    assert len(answered) >= len([s for s in judged if s["grade"] != "unjudged"])
    assert {r["run"] for r in answered} == {"demo-001"}


def test_every_step_is_recorded_once_after_the_resume(scenario: dict) -> None:
    assert scenario["killed_at"] == [1]
    assert [row["step"] for row in read(scenario["run"], "metrics")] == [1, 2, 3]
    assert "resumed after step 1; going on with step 2" in scenario["log"]
    groups = [(s["step"], s["group"], tuple(s["completion_ids"])) for s in read(scenario["run"], "attempts")]
    assert {step for step, *_ in groups} == {1, 2, 3}
    # 2 teachers x 1 prompt x 4 proposals per step.
    proposals = [s for s in read(scenario["run"], "attempts") if s["role"] == "teacher"]
    assert len(proposals) == 3 * 8


def test_a_killed_trainer_leaves_no_vllm_behind(scenario: dict) -> None:
    assert scenario["orphans"] == []


def test_no_jail_and_no_cgroup_is_left(scenario: dict) -> None:
    info = scenario["info"]
    assert (info.live_jails, info.live_run_cgroups, info.zombies) == (0, 0, 0)


def test_adapters_have_learned(scenario: dict) -> None:
    """Updates were made, and members answered with other weights in a later step than before."""
    updates = [name for row in read(scenario["run"], "metrics") for name in row if name.endswith("/loss")]
    assert len(updates) >= 2
    hashes: dict[str, set[str]] = {}
    for sample in read(scenario["run"], "attempts"):
        hashes.setdefault(sample["member"], set()).add(sample["content_hash"])
    assert any(len(several) > 1 for several in hashes.values())


def test_ratings_moved_and_somebody_was_replaced(scenario: dict) -> None:
    metrics = read(scenario["run"], "metrics")
    assert any(abs(v - 25.0) > 0.1 for k, v in metrics[-1].items() if k.startswith("skill/") and k.endswith("/mu"))
    assert len(read(scenario["run"], "lineage")) >= 2


def test_engine_and_learner_agree_on_every_published_adapter(scenario: dict) -> None:
    """bfloat16 on one side: 0.25 is the alarm, a wrong adapter differs by more."""
    probes = [v for row in read(scenario["run"], "metrics") for k, v in row.items() if k.startswith("probe/")]
    assert probes
    assert max(probes) < 0.25
    assert "ALARM" not in scenario["log"]


def test_the_run_folder_is_complete(scenario: dict) -> None:
    run = scenario["run"]
    for name in (
        "config.yaml",
        "environment.json",
        "metrics.jsonl",
        "attempts.jsonl",
        "matches.jsonl",
        "lineage.jsonl",
    ):
        assert (run / name).stat().st_size > 0
    assert list((run / "tensorboard").glob("events.*"))
    environment = json.loads((run / "environment.json").read_text())
    assert len(environment["verifier"]["image_digest"]) == 64
    assert any(event.get("event") == "warmup_measured" for event in read(run, "events"))


def test_the_last_adapter_loads_in_stock_peft(scenario: dict) -> None:
    from peft import PeftModel

    from trainer.model import load_base, resolve_model

    folder = sorted(next((scenario["run"] / "adapters").glob("s*")).glob("v*"))[-1]
    model = PeftModel.from_pretrained(load_base(resolve_model("embedded"), "float32"), str(folder))
    assert model.active_adapters == ["default"]
