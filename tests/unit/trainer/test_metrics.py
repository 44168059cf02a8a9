"""Numbers of a step have TRL's names and hand-computed values; trackers get them and can fail without harm."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from trainer.config import ConfigError, load_config
from trainer.console import describe_step, print_summary
from trainer.domain import Grade, Role, Sample, TaskKind
from trainer.metrics import MetricsWriter, check_installed, open_trackers, summarize_samples
from trainer.store import RunStore


def make_sample(group: str, reward: float | None, length: int, *, ended: bool = True, grade=Grade.CORRECT) -> Sample:
    return Sample(
        member="s00", version=0, role=Role.STUDENT, kind=TaskKind.DEDUCTION, group=group, prompt_ids=(1,),
        completion_ids=(5,) * length, logprobs=(0.0,) * length, finish_reason="stop" if ended else "length", text="",
        grade=grade, reward=reward,
    )  # fmt: skip


def test_a_step_is_summed_up_by_role() -> None:
    """Rewards 1, -0.5, 1, 1 of two groups: mean 0.625, deviations .375, -1.125, .375, .375, so std sqrt(1.6875/3)."""
    samples = [
        make_sample("a", 1.0, 4),
        make_sample("a", -0.5, 8, ended=False, grade=Grade.WRONG),
        make_sample("b", 1.0, 2),
        make_sample("b", 1.0, 6),
        make_sample("b", None, 10, grade=Grade.UNJUDGED),
    ]
    found = summarize_samples(samples)
    assert found == pytest.approx(
        {
            "student/samples": 5, "student/without_reward": 1, "student/reward": 0.625, "student/reward_std": 0.75,
            "student/frac_reward_zero_std": 0.5, "student/completions/mean_length": 6,
            "student/completions/min_length": 2, "student/completions/max_length": 10,
            "student/completions/mean_terminated_length": 5.5, "student/completions/clipped_ratio": 0.2,
            **{f"student/{grade}": 0.0 for grade in Grade}, "student/correct": 0.6, "student/wrong": 0.2,
            "student/unjudged": 0.2,
        }
    )  # fmt: skip


@pytest.fixture
def store(tmp_path: Path):
    store = RunStore.create(tmp_path, "run")
    store.write_environment({"run_id": "abc123"})
    yield store
    store.close()


class Tracker(ModuleType):
    """A package with the interface that wandb and trackio share."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.__spec__ = object()
        self.calls: list = []
        self.broken = False

    def init(self, **options: object) -> "Tracker":
        self.calls.append(("init", options))
        return self

    def log(self, values: dict, *, step: int) -> None:
        if self.broken:
            raise ConnectionError("no network")
        self.calls.append(("log", step, values))

    def finish(self) -> None:
        self.calls.append(("finish",))


@pytest.fixture
def tracker(monkeypatch) -> Tracker:
    tracker = Tracker()
    monkeypatch.setitem(sys.modules, "wandb", tracker)
    return tracker


def test_a_tracker_gets_every_step_and_one_id_over_all_resumes(store, tracker) -> None:
    config = load_config([], ["run.trackers=[wandb]"])
    check_installed(config.run.trackers)
    for first in (1, 2):
        writer = MetricsWriter(store, first_step=first, trackers=open_trackers(config, store, print))
        writer.write(first, {"student/reward": 0.5})
        writer.close()
    kinds = [call[0] for call in tracker.calls]
    assert kinds == ["init", "log", "finish", "init", "log", "finish"]
    started = [call[1] for call in tracker.calls if call[0] == "init"]
    assert started[0] == started[1]
    assert (started[0]["id"], started[0]["resume"], started[0]["name"]) == ("abc123", "allow", "run-001")
    assert started[0]["config"]["run"]["trackers"] == ["wandb"]
    assert tracker.calls[1][1:] == (1, {"student/reward": 0.5})


def test_a_tracker_that_fails_ends_nothing_and_loses_nothing(store, tracker) -> None:
    notices: list[str] = []
    config = load_config([], ["run.trackers=[wandb]"])
    writer = MetricsWriter(store, first_step=1, trackers=open_trackers(config, store, print), notice=notices.append)
    tracker.broken = True
    for step in (1, 2):
        writer.write(step, {"x": 1.0})
    writer.close()
    assert notices == ["wandb failed and gets no more metrics of this run: no network"]
    assert [row["step"] for row in store.read("metrics")] == [1, 2]


def test_a_tracker_that_does_not_start_is_left_out(store, tracker, monkeypatch) -> None:
    notices: list[str] = []
    monkeypatch.setattr(tracker, "init", lambda **_: (_ for _ in ()).throw(ConnectionError("no login")))
    assert open_trackers(load_config([], ["run.trackers=[wandb]"]), store, notices.append) == {}
    assert notices == ["wandb did not start and gets no metrics of this run: no login"]


def test_a_tracker_that_is_not_installed_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"run\.trackers names trackio, which is not installed: pip install trackio"):
        check_installed(("trackio",))


def test_tensorboard_has_every_number(store) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    writer = MetricsWriter(store, first_step=1)
    writer.write(1, {"student/reward": 0.25})
    writer.close()
    events = EventAccumulator(str(store.folder / "tensorboard")).Reload()
    assert [event.value for event in events.Scalars("student/reward")] == [0.25]


def test_the_line_and_the_table_of_a_run_without_teachers_have_no_numbers_of_teachers(capsys) -> None:
    row = {"step": 1, "student/correct": 0.25, "student/reward": -0.1, "time/step_s": 3.0, "skill/s00/mu": 25.0}
    assert "valid" not in describe_step(row)
    print_summary([row], [])
    shown = capsys.readouterr().out
    assert "valid" not in shown
    assert "nan" not in shown
    assert "25%" in shown
