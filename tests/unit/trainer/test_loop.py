"""The loop, its records and its checkpoints, with a scripted engine and verifier and a tiny random model."""

import copy
import json
import random
import shutil
from pathlib import Path

import pytest
import torch

from tests.fakes import LetterChat, ScriptedEngine, ScriptedVerification, make_seed_problems
from trainer import checkpoint
from trainer import store as store_module
from trainer.checkpoint import RunState
from trainer.config import ConfigError, TrainerConfig, load_config
from trainer.domain import Member, Rating, Role, TaskKind
from trainer.evolving import make_uid
from trainer.learning.adapters import hash_weights
from trainer.learning.learner import Learner
from trainer.loop import Loop, Parts
from trainer.metrics import MetricsWriter
from trainer.publication import Publisher
from trainer.rollout.engine import AdapterVersion, EngineDiedError
from trainer.rollout.restarting import RestartingEngine
from trainer.sampling import Question, Sampler, Speaker
from trainer.store import DiskError, RunStore, StoreError

SETTINGS = [
    "run.steps=4", "tasks.prompts_per_teacher=2", "tasks.proposals_per_prompt=3", "tasks.problems_per_student=3",
    "tasks.attempts_per_problem=3", "tasks.induction_cases=2", "evolution.every=2", "evolution.fraction=0.5",
    "evolution.parents=population", "lora.rank=4", "lora.alpha=8", "learning.learning_rate=0.01",
    "learning.logprob_tolerance=1000", "run.keep_checkpoints=2",
]  # fmt: skip


@pytest.fixture(scope="module")
def tiny():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, attn_implementation="eager",
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def make_parts(
    tiny, folder: Path, *, resume: bool = False, lose_every: int = 0, overrides: list[str] | None = None
) -> Parts:
    config = load_config([], [*SETTINGS, *(overrides or [])])
    learner = Learner(
        copy.deepcopy(tiny), lora=config.lora, learning=config.learning, max_new_tokens=config.rollout.max_new_tokens
    )
    if resume:
        store = RunStore.open(folder)
        try:
            found = checkpoint.read(store, config)
        except BaseException:
            store.close()
            raise
        state = checkpoint.restore(found, store, learner.adapters)
    else:
        store = RunStore.create(folder.parent, folder.name)
        store.close()
        store.folder.rename(folder)
        store = RunStore(folder)
        store.write_environment({})
        state = RunState(step=0, members=[], problems=make_seed_problems(), generator=random.Random(1))
        for role in Role:
            for _ in range(2):
                uid = make_uid(state, role)
                learner.adapters.add(uid, seed=len(state.members))
                state.members.append(Member(uid=uid, role=role, rating=Rating(25.0, 25 / 3)))
    engine = ScriptedEngine()
    publisher = Publisher(store, learner, engine, probe_ids=(5, 6, 7))
    for member in state.members:
        publisher.publish(member, state)
    if not resume:
        checkpoint.save(store, state, learner.adapters, config)
    return Parts(
        config=config, store=store, state=state, learner=learner, engine=engine, publisher=publisher,
        verification=ScriptedVerification(lose_every=lose_every), chat=LetterChat(),
        metrics=MetricsWriter(store, first_step=state.step + 1), notice=lambda text: None,
        logprob_tolerance=1000.0,
    )  # fmt: skip


def run(parts: Parts, steps: int) -> None:
    loop = Loop(parts)
    for _ in range(steps):
        loop.run_step(lambda phase: None)


def stop(parts: Parts) -> None:
    """Give the folder back, as the end of a process does."""
    parts.store.close()


def fingerprint(parts: Parts) -> dict[str, object]:
    state = parts.state
    return {
        "weights": {m.uid: hash_weights(parts.learner.adapters.get_weights(m.uid)) for m in state.members},
        "members": [(m.uid, m.version, m.rating, m.parents, m.games) for m in state.members],
        "problems": [p.uid for p in state.problems],
        "random": state.generator.getstate(),
        "attempts": parts.store.read("attempts"),
        "matches": parts.store.read("matches"),
        "lineage": parts.store.read("lineage"),
    }


@pytest.mark.parametrize("killed_after", [1, 2, 3])
def test_a_resumed_run_equals_an_uninterrupted_one(tiny, tmp_path: Path, killed_after: int) -> None:
    straight = make_parts(tiny, tmp_path / "straight")
    run(straight, 4)
    killed = make_parts(tiny, tmp_path / "killed")
    run(killed, killed_after)
    stop(killed)
    resumed = make_parts(tiny, tmp_path / "killed", resume=True)
    # What a killed step left behind must not count.
    resumed.store.append("events", [{"torn": True}])
    assert resumed.state.step == killed_after
    run(resumed, 4 - killed_after)
    assert fingerprint(resumed) == fingerprint(straight)


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


@pytest.mark.parametrize("phase", ["propose", "judge", "learn", "publish", "evolve", "record"])
def test_a_step_killed_in_any_phase_is_done_again(tiny, tmp_path: Path, phase: str) -> None:
    straight = make_parts(tiny, tmp_path / "straight")
    run(straight, 4)
    killed = make_parts(tiny, tmp_path / "killed")
    run(killed, 1)

    def die(name: str) -> None:
        if name == phase:
            raise Killed

    with pytest.raises(Killed):
        Loop(killed).run_step(die)
    stop(killed)
    resumed = make_parts(tiny, tmp_path / "killed", resume=True)
    assert resumed.state.step == 1
    run(resumed, 3)
    assert fingerprint(resumed) == fingerprint(straight)
    assert [row["step"] for row in resumed.store.read("metrics")] == [1, 2, 3, 4]


def test_a_kill_between_records_and_checkpoint_loses_only_that_step(tiny, tmp_path: Path, monkeypatch) -> None:
    killed = make_parts(tiny, tmp_path / "killed")
    run(killed, 1)
    monkeypatch.setattr(checkpoint, "commit_folder", lambda *a: (_ for _ in ()).throw(Killed()))
    with pytest.raises(Killed):
        run(killed, 1)
    monkeypatch.undo()
    assert [row["step"] for row in killed.store.read("metrics")] == [1, 2]
    stop(killed)
    resumed = make_parts(tiny, tmp_path / "killed", resume=True)
    assert [row["step"] for row in resumed.store.read("metrics")] == [1]
    run(resumed, 1)
    assert [row["step"] for row in resumed.store.read("metrics")] == [1, 2]


def test_trouble_of_the_verifier_is_masked_and_never_scored(tiny, tmp_path: Path) -> None:
    parts = make_parts(tiny, tmp_path / "run", lose_every=3)
    run(parts, 2)
    samples = parts.store.read("attempts")
    unjudged = [s for s in samples if s["grade"] == "unjudged"]
    assert unjudged
    assert all(s["reward"] is None for s in unjudged)
    assert parts.store.read("metrics")[0]["student/unjudged"] > 0


@pytest.mark.parametrize("policy", ["drop", "keep", "resample"])
def test_a_group_with_a_masked_attempt_is_treated_as_configured(tiny, tmp_path: Path, policy: str) -> None:
    parts = make_parts(tiny, tmp_path / "run", overrides=[f"tasks.masked_groups={policy}"], lose_every=7)
    run(parts, 2)
    samples = [s for s in parts.store.read("attempts") if s["role"] == "student"]
    metrics = parts.store.read("metrics")
    masked = {s["group"] for s in samples if s["grade"] == "unjudged"}
    beside = [s for s in samples if s["group"] in masked and s["grade"] != "unjudged"]
    whole = [s for s in samples if s["group"] not in masked]
    assert whole
    assert all(s["reward"] is not None for s in whole)
    assert all((s["reward"] is None) == (policy != "keep") for s in beside)
    if policy == "resample":
        assert sum(row["student/resampled_groups"] for row in metrics) > len(masked)
    else:
        assert beside
    if policy != "keep":
        assert sum(row["student/masked_groups"] for row in metrics) == len(masked)


def test_every_member_learns_from_its_own_samples_only(tiny, tmp_path: Path) -> None:
    parts = make_parts(tiny, tmp_path / "run")
    seen: dict[str, set[str]] = {}
    original = parts.learner.update

    def watch(uid, samples, advantages, **options):
        seen.setdefault(uid, set()).update(s.member for s in samples)
        return original(uid, samples, advantages, **options)

    parts.learner.update = watch
    run(parts, 2)
    assert seen
    assert all(members == {uid} for uid, members in seen.items())


def test_updates_score_under_the_temperature_that_sampled(tiny, tmp_path: Path) -> None:
    parts = make_parts(tiny, tmp_path / "run", overrides=["rollout.temperature=0.7"])
    found: list[float] = []
    update = parts.learner.update

    def watch(*arguments, temperature: float):
        found.append(temperature)
        return update(*arguments, temperature=temperature)

    parts.learner.update = watch
    run(parts, 1)
    assert set(found) == {0.7}


def test_a_gradient_that_is_no_number_is_an_event_and_the_run_goes_on(tiny, tmp_path: Path) -> None:
    parts = make_parts(tiny, tmp_path / "run", overrides=["evolution.every=0"])
    parts.learner.update = lambda *arguments, **options: {"skipped": 1.0, "nonfinite_grad": 1.0}
    run(parts, 2)
    events = parts.store.read("events")
    assert {(event["event"], event["step"]) for event in events} == {("nonfinite_grad", 1), ("nonfinite_grad", 2)}
    assert all(member.version == 0 for member in parts.state.members)


def test_old_versions_are_retired_and_the_first_is_kept_on_disk(tiny, tmp_path: Path) -> None:
    parts = make_parts(tiny, tmp_path / "run")
    run(parts, 4)
    assert len(parts.engine.published) == 4
    for member in parts.state.members:
        versions = parts.store.list_adapter_versions(member.uid)
        assert versions[0] == 0
        assert versions[-1] == member.version
        assert len(versions) <= 3


@pytest.mark.parametrize("keep", [0, 1, 8])
def test_of_culled_members_the_newest_keep_their_last_adapter(tiny, tmp_path: Path, keep: int) -> None:
    overrides = ["evolution.every=1", f"run.keep_culled={keep}"]
    parts = make_parts(tiny, tmp_path / "run", overrides=overrides)
    run(parts, 4)
    living = [m.uid for m in parts.state.members]
    culled = [event["culled"] for event in parts.store.read("lineage")]
    assert len(culled) == 8
    on_disk = {p.name for p in (parts.store.folder / "adapters").iterdir()} - set(living)
    assert len(on_disk) == keep
    if keep == 1:
        assert on_disk <= set(culled[-2:])
    assert all(len(parts.store.list_adapter_versions(uid)) == 1 for uid in on_disk)


def test_a_resting_engine_sleeps_while_members_learn_and_all_are_probed_when_it_wakes(tiny, tmp_path: Path) -> None:
    parts = make_parts(tiny, tmp_path / "run", overrides=["rollout.sleep=true", "evolution.every=0"])
    learned_at: list[int] = []
    update = parts.learner.update

    def watch(*arguments, **options):
        learned_at.append(len(parts.engine.log))
        return update(*arguments, **options)

    parts.learner.update = watch
    run(parts, 1)
    log = parts.engine.log
    assert learned_at
    assert set(learned_at) == {log.index("sleep") + 1}
    assert log.index("wake") == log.index("sleep") + 1
    assert sum(name.startswith("probe/") for name in parts.store.read("metrics")[0]) == 4


class DyingEngine(ScriptedEngine):
    """Dies after some answers, a number of times."""

    def __init__(self, deaths: int) -> None:
        super().__init__()
        self.deaths, self.asked = deaths, []

    def generate(self, requests):
        self.asked.append(len(requests))
        for number, answer in enumerate(super().generate(requests)):
            if number == 2 and self.deaths:
                self.deaths -= 1
                raise EngineDiedError("killed")
            yield answer


def ask(engine: ScriptedEngine, count: int) -> tuple[list[str], list[str]]:
    """Ask questions; returns the groups of the answers and the notices."""
    notices: list[str] = []
    sampler = Sampler(RestartingEngine(engine, notices.append), LetterChat(), load_config([]).rollout)
    questions = [
        Question(
            speaker=Speaker("s00", 0, None), role=Role.STUDENT, kind=TaskKind.DEDUCTION, group=f"g{i}",
            prompt_ids=(i, 7), num_samples=2,
        )
        for i in range(count)
    ]  # fmt: skip
    told: list[str] = []
    found = sampler.sample(questions, random.Random(0), lambda question, _: told.append(question.group))
    assert sorted(told) == sorted(question.group for question, _ in found)
    return [question.group for question, _ in found], notices


def test_a_dead_engine_is_started_again_and_asked_only_what_it_owes() -> None:
    engine = DyingEngine(deaths=2)
    groups, notices = ask(engine, 7)
    assert groups == [f"g{i}" for i in range(7) for _ in range(2)]
    assert engine.asked == [7, 5, 3]
    assert engine.log == ["restart", "restart"]
    assert len(notices) == 2


@pytest.mark.parametrize("operation", ["publish", "retire", "sleep", "wake"])
def test_an_engine_that_dies_in_another_operation_is_asked_once_more(operation: str) -> None:
    engine, notices = ScriptedEngine(), []
    method, deaths = getattr(engine, operation), [EngineDiedError("killed"), EngineDiedError("killed")]

    def die_first(*arguments) -> None:
        if deaths:
            raise deaths.pop()
        method(*arguments)

    wrapped = RestartingEngine(engine, notices.append)
    adapter = AdapterVersion("t00@0", 1, "folder")
    if operation == "retire":
        wrapped.publish(adapter)
    setattr(engine, operation, die_first)
    getattr(wrapped, operation)(*([adapter] if operation in ("publish", "retire") else []))
    assert engine.log.count("restart") == len(notices) == 2
    assert list(engine.published) == ([1] if operation == "publish" else [])


def test_a_full_disk_leaves_the_last_checkpoint_and_says_the_way_on(tiny, tmp_path: Path, monkeypatch) -> None:
    """The library that writes tensors has an error of its own for it."""
    from safetensors import SafetensorError

    parts = make_parts(tiny, tmp_path / "run")
    run(parts, 1)

    def refuse(*_: object) -> None:
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", refuse)
    with pytest.raises(DiskError, match="Free some space and use --resume"):
        run(parts, 1)
    monkeypatch.undo()
    assert checkpoint.list_checkpoints(parts.store)[-1].name == "step-000001"
    stop(parts)
    assert make_parts(tiny, tmp_path / "run", resume=True).state.step == 1


def test_a_checkpoint_that_is_there_is_not_written_again(tiny, tmp_path: Path) -> None:
    parts = make_parts(tiny, tmp_path / "run")
    loop = Loop(parts)
    loop.run_step(lambda phase: None)
    state = checkpoint.list_checkpoints(parts.store)[-1] / "state.json"
    before = state.stat().st_ino
    loop.ensure_checkpoint()
    assert state.stat().st_ino == before
    shutil.rmtree(state.parent)
    loop.ensure_checkpoint()
    assert state.exists()


def test_a_kill_while_a_folder_gives_way_leaves_nothing_in_part(tmp_path: Path, monkeypatch) -> None:
    for name in ("step-1", ".draft-1"):
        (tmp_path / name).mkdir()
        for part in "ab":
            (tmp_path / name / part).write_text(name)

    def die(path: Path, **_: object) -> None:
        if path.exists():
            (path / "a").unlink()
            raise Killed

    monkeypatch.setattr(store_module.shutil, "rmtree", die)
    with pytest.raises(Killed):
        store_module.commit_folder(tmp_path / ".draft-1", tmp_path / "step-1")
    for folder in tmp_path.glob("step-*"):
        assert {p.name for p in folder.iterdir()} == {"a", "b"}


def test_an_engine_that_dies_again_and_again_ends_the_run() -> None:
    with pytest.raises(EngineDiedError):
        ask(DyingEngine(deaths=3), 9)


def test_evolution_replaces_one_of_each_role_and_says_how_old_it_was(tiny, tmp_path: Path) -> None:
    parts = make_parts(tiny, tmp_path / "run")
    run(parts, 2)
    lineage = parts.store.read("lineage")
    assert {event["role"] for event in lineage} == {"teacher", "student"}
    assert all(event["age_steps"] == 2 for event in lineage)
    uids = [m.uid for m in parts.state.members]
    assert len(set(uids)) == 4
    for event in lineage:
        child = next(m for m in parts.state.members if m.uid == event["child"])
        assert event["culled"] not in uids
        assert (child.rating, child.born_step) == (Rating(25.0, 25 / 3), 2)


def test_buffer_problems_are_not_credited_to_a_teacher(tiny, tmp_path: Path) -> None:
    parts = make_parts(tiny, tmp_path / "run", overrides=["tasks.problems_per_student=9"])
    run(parts, 1)
    fresh = {p["uid"] for p in parts.store.read("problems")}
    attempts = [s for s in parts.store.read("attempts") if s["role"] == "student"]
    assert any(s["problem"] not in fresh for s in attempts)
    games = sum(len(match["winners"]) for match in parts.store.read("matches"))
    assert games <= max(len(fresh), 2)


def test_checkpoints_are_limited_and_old_ones_removed(tiny, tmp_path: Path) -> None:
    parts = make_parts(tiny, tmp_path / "run")
    run(parts, 4)
    assert [p.name for p in checkpoint.list_checkpoints(parts.store)] == ["step-000003", "step-000004"]


def test_a_checkpoint_of_other_settings_is_refused_by_name(tiny, tmp_path: Path) -> None:
    parts = make_parts(tiny, tmp_path / "run")
    run(parts, 1)
    stop(parts)
    with pytest.raises(ConfigError, match=r"learning\.learning_rate: 0\.01 -> 0\.5"):
        make_parts(tiny, tmp_path / "run", resume=True, overrides=["learning.learning_rate=0.5"])
    with pytest.raises(ConfigError, match=r"lora\.rank: 4 -> 8"):
        make_parts(tiny, tmp_path / "run", resume=True, overrides=["lora.rank=8"])


@pytest.mark.parametrize("damage", ["state.json", "t00.adapter.safetensors", "s01.optimizer.safetensors"])
def test_a_damaged_checkpoint_is_refused_and_nothing_is_cut(tiny, tmp_path: Path, damage: str) -> None:
    parts = make_parts(tiny, tmp_path / "run")
    run(parts, 1)
    path = checkpoint.list_checkpoints(parts.store)[-1] / damage
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    before = parts.store.read("attempts")
    stop(parts)
    with pytest.raises(StoreError, match="damaged"):
        make_parts(tiny, tmp_path / "run", resume=True)
    assert parts.store.read("attempts") == before


def test_no_checkpoint_and_no_run_are_explained(tiny, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a run folder"):
        RunStore.open(tmp_path)
    store = RunStore.create(tmp_path, "empty")
    store.write_environment({})
    with pytest.raises(StoreError, match="no checkpoint"):
        checkpoint.read(store, TrainerConfig())
    store.close()


def test_a_run_folder_has_one_trainer(tiny, tmp_path: Path) -> None:
    make_parts(tiny, tmp_path / "run")
    with pytest.raises(StoreError, match="in use by another trainer"):
        RunStore.open(tmp_path / "run")


def test_a_kill_inside_publish_can_be_resumed(tiny, tmp_path: Path, monkeypatch) -> None:
    """Between writing an adapter and giving it its name."""
    from trainer import publication

    straight = make_parts(tiny, tmp_path / "straight")
    run(straight, 2)
    killed = make_parts(tiny, tmp_path / "killed")
    run(killed, 1)
    monkeypatch.setattr(publication, "commit_folder", lambda *a: (_ for _ in ()).throw(Killed()))
    with pytest.raises(Killed):
        run(killed, 1)
    monkeypatch.undo()
    killed.store.close()
    resumed = make_parts(tiny, tmp_path / "killed", resume=True)
    run(resumed, 1)
    assert fingerprint(resumed) == fingerprint(straight)


def test_versions_of_undone_steps_do_not_push_out_the_served_one(tiny, tmp_path: Path) -> None:
    killed = make_parts(tiny, tmp_path / "run", overrides=["run.checkpoint_every=4", "evolution.every=0"])
    run(killed, 3)
    killed.store.close()
    resumed = make_parts(tiny, tmp_path / "run", resume=True, overrides=["run.checkpoint_every=4", "evolution.every=0"])
    for member in resumed.state.members:
        assert resumed.store.list_adapter_versions(member.uid) == [0]
        assert Path(resumed.publisher.served(member.uid).folder).is_dir()


def test_adapters_that_still_equal_the_base_do_not_evolve(tiny, tmp_path: Path) -> None:
    """Without warm-up and without a judged sample nothing is learned: the event is skipped, the run goes on."""
    parts = make_parts(tiny, tmp_path / "run", lose_every=1)
    run(parts, 2)
    assert parts.store.read("lineage") == []
    assert [m.uid for m in parts.state.members] == ["t00", "t01", "s00", "s01"]


def test_what_a_buffer_has_forgotten_is_still_known_after_a_resume(tiny, tmp_path: Path) -> None:
    parts = make_parts(tiny, tmp_path / "run", overrides=["tasks.buffer_size=4"])
    run(parts, 2)
    assert len(parts.state.problems) == 4
    known = parts.state.known
    assert len(known) > 4
    parts.store.close()
    resumed = make_parts(tiny, tmp_path / "run", resume=True, overrides=["tasks.buffer_size=4"])
    assert resumed.state.known == known
    run(resumed, 1)
    assert set(known) <= set(resumed.state.known)


def test_nothing_in_a_run_folder_is_pickled(tiny, tmp_path: Path) -> None:
    parts = make_parts(tiny, tmp_path / "run")
    run(parts, 1)
    suffixes = {p.suffix for p in parts.store.folder.rglob("*") if p.is_file() and "tensorboard" not in p.parts}
    assert suffixes - {""} <= {".json", ".jsonl", ".safetensors", ".yaml", ".log"}
    for path in parts.store.folder.rglob("*.json"):
        json.loads(path.read_text())
