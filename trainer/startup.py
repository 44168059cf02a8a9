"""Brings a run to its first step: verifier, base model, engine, population; new or from a checkpoint.

The engine needs half a minute to start, mostly on one core; seeds, base model and warm-up go on meanwhile.
"""

import os
import platform
import random
import secrets
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch

from trainer import budget, checkpoint
from trainer.checkpoint import Checkpoint, RunState
from trainer.config import ConfigError, TrainerConfig
from trainer.domain import Grade, Member, Problem, Proposal, Rating, Role, TaskKind
from trainer.evolving import make_uid
from trainer.learning.learner import Learner
from trainer.loop import Parts, raise_alarms
from trainer.machine import measure_available_memory
from trainer.metrics import MetricsWriter, check_installed, open_trackers
from trainer.model import choose_dtype, load_base, load_config, load_tokenizer, resolve_model
from trainer.proposing import ProposalGrader, plan_proposals
from trainer.publication import Publisher
from trainer.rollout.engine import Engine, EngineSettings, VllmEngine
from trainer.rollout.prompts import ChatFormat, ask_for_proposal
from trainer.rollout.restarting import RestartingEngine
from trainer.rollout.transformers_engine import TransformersEngine
from trainer.sampling import Sampler, Speaker
from trainer.store import RunStore, StoreError
from trainer.tasks.buffer import ProblemBuffer
from trainer.tasks.seeds import load_seeds, make_problems
from trainer.verification import Asker, Verification
from trainer.warmup import make_examples, warm_up

_PACKAGES = ("torch", "transformers", "peft", "trueskill", "grpcio", "protobuf")


@dataclass(frozen=True, slots=True)
class Watcher:
    """How the start is shown to a person."""

    notice: Callable[[str], None]
    """One line."""
    progress: Callable[[str, int, int], None]
    """(what, done, total)"""


@dataclass(frozen=True, slots=True)
class Preflight:
    """What must be there before a run folder is made: a base model and a verifier that answers."""

    model_path: str
    verification: Verification
    server: dict[str, str]


def check_surroundings(config: TrainerConfig, watcher: Watcher) -> Preflight:
    """Check that the run fits, find the base model, wait for the verifier.

    Raises: ConfigError, ModelError, VerifierError.
    """
    check_installed(config.run.trackers)
    check_memory(config, watcher)
    model_path = resolve_model(config.model.name)
    verification = Verification(config.verifier, on_trouble=watcher.notice)
    try:
        return Preflight(model_path, verification, verification.get_server_info())
    except BaseException:
        verification.close()
        raise


def check_memory(config: TrainerConfig, watcher: Watcher) -> None:
    """Print what the run will need, and refuse one that cannot fit. Raises: ConfigError, ModelError."""
    cuda = torch.cuda.is_available()
    if config.rollout.sleep and not cuda:
        raise ConfigError("rollout.sleep needs a GPU: set it to false")
    shape = budget.Shape.of(load_config(config.model.name))
    available = torch.cuda.mem_get_info()[0] if cuda else measure_available_memory()
    where = "the GPU" if cuda else "this machine"
    needs = budget.estimate(
        shape,
        config,
        learner_bytes=2 if choose_dtype(config.model.learner_dtype) == "bfloat16" else 4,
        # On a GPU vLLM takes its share whatever it needs.
        sampler_bytes=int(config.rollout.gpu_memory_utilization * torch.cuda.mem_get_info()[1]) if cuda else None,
    )
    for line in budget.describe(needs, available, where):
        watcher.notice(line)
    if config.run.check_memory:
        budget.check_fits(needs, available, where)


def start_run(
    config: TrainerConfig, store: RunStore, watcher: Watcher, preflight: Preflight, found: Checkpoint | None
) -> Parts:
    """Return everything a loop needs; on an error what was started is ended again.

    Args:
        found: the checkpoint to go on with; None for a new run.
    """
    threads = config.run.threads or os.cpu_count() or 1
    torch.set_num_threads(threads)
    verification = preflight.verification
    verification.run = store.folder.name
    step = found.state.step if found else 0
    with ThreadPoolExecutor(1) as background:
        engine = background.submit(make_engine, config, preflight.model_path, threads, step, store.log_path("vllm"))
        try:
            if config.rollout.engine == "transformers" or torch.cuda.is_available():
                # In this process it would draw from the random numbers that adapters begin with; on a GPU it measures
                # how much memory it takes, and what the learner takes meanwhile would be counted as its own.
                engine.result()
            if found is None:
                store.write_environment(describe_environment(preflight.server))
            _pin_image(config, store, preflight)
            parts = _make_parts(config, store, watcher, preflight, found, engine)
            _publish_all(parts)
            if found is None:
                measure_warmup(parts)
                checkpoint.save(store, parts.state, parts.learner.adapters, config)
        except BaseException:
            verification.close()
            if engine.exception() is None:
                engine.result().close()
            raise
    return parts


def _make_parts(
    config: TrainerConfig,
    store: RunStore,
    watcher: Watcher,
    preflight: Preflight,
    found: Checkpoint | None,
    engine: "Future[Engine]",
) -> Parts:
    """Make the learner and the state while the engine starts, then everything that needs both."""
    chat = ChatFormat(load_tokenizer(preflight.model_path))
    base = load_base(preflight.model_path, config.model.learner_dtype)
    learner = Learner(base, lora=config.lora, learning=config.learning, max_new_tokens=config.rollout.max_new_tokens)
    if found is None:
        state = make_state(config, preflight.verification, learner, chat, watcher)
    else:
        state = checkpoint.restore(found, store, learner.adapters)
    watcher.notice("waiting for the engine")
    sampler = RestartingEngine(engine.result(), watcher.notice)
    trackers = open_trackers(config, store, watcher.notice)
    return Parts(
        config=config,
        store=store,
        state=state,
        learner=learner,
        engine=sampler,
        publisher=Publisher(store, learner, sampler, probe_ids=chat.encode(_PROBE_QUESTION)),
        verification=preflight.verification,
        chat=chat,
        metrics=MetricsWriter(store, first_step=state.step + 1, trackers=trackers, notice=watcher.notice),
        notice=watcher.notice,
        logprob_tolerance=choose_tolerance(config),
    )


def choose_tolerance(config: TrainerConfig) -> float:
    """Return `learning.logprob_tolerance`, with null resolved for the data types that will be used."""
    if config.learning.logprob_tolerance is not None:
        return config.learning.logprob_tolerance
    exact = choose_dtype(config.model.learner_dtype) == config.model.sampler_dtype == "float32"
    return 0.005 if exact else 0.25


def _pin_image(config: TrainerConfig, store: RunStore, preflight: Preflight) -> None:
    """Hold the verifier to the image that the run began with."""
    if config.verifier.pin_image:
        preflight.verification.pinned_digest = store.read_environment()["verifier"]["image_digest"]


_PROBE_QUESTION = ask_for_proposal(TaskKind.DEDUCTION, [], num_cases=1)


def make_engine(config: TrainerConfig, model_path: str, threads: int, step: int, log_path: Path) -> Engine:
    """Start the engine that the config names."""
    if config.rollout.engine == "transformers":
        return TransformersEngine(load_base(model_path, config.model.sampler_dtype))
    return VllmEngine(make_engine_settings(config, model_path, threads, step), log_path=log_path)


def make_engine_settings(config: TrainerConfig, model_path: str, threads: int, step: int) -> EngineSettings:
    """Return what vLLM is started with; a resumed run must not repeat its sampling stream."""
    rollout = config.rollout
    return EngineSettings(
        model=model_path,
        max_loras=config.max_loras,
        max_lora_rank=config.served_rank,
        target_modules=config.lora.target_modules,
        max_model_len=rollout.max_prompt_tokens + rollout.max_new_tokens,
        max_num_seqs=rollout.max_num_seqs,
        max_num_batched_tokens=max(rollout.max_num_batched_tokens, rollout.max_num_seqs),
        kv_cache_bytes=rollout.kv_cache_bytes,
        dtype=config.model.sampler_dtype,
        gpu_memory_utilization=rollout.gpu_memory_utilization,
        seed=config.run.seed + step,
        threads=threads,
        enable_sleep_mode=rollout.sleep,
    )


def make_state(
    config: TrainerConfig, verification: Verification, learner: Learner, chat: ChatFormat, watcher: Watcher
) -> RunState:
    """Return the state before the first step: seed problems, members, warmed-up adapters."""
    generator = random.Random(config.run.seed)
    problems = validate_seeds(verification, config, watcher)
    state = RunState(step=0, members=[], problems=problems, generator=generator)
    rating = Rating(config.rating.mu, config.rating.sigma)
    for role, count in ((Role.TEACHER, config.population.teachers), (Role.STUDENT, config.population.students)):
        for _ in range(count):
            member = Member(uid=make_uid(state, role), role=role, rating=rating)
            learner.adapters.add(member.uid, seed=generator.randrange(2**31))
            state.members.append(member)
    if config.warmup.enabled:
        for role in Role:
            if not state.of_role(role):
                continue
            examples = make_examples(role, problems, chat, config, generator)
            warm_up(
                role,
                state.of_role(role),
                examples,
                learner,
                config,
                generator=generator,
                notice=lambda r, step, loss: watcher.progress(
                    f"warm-up of {r}s (loss {loss:.2f})", step, config.warmup.steps
                ),
            )
    return state


def validate_seeds(verification: Verification, config: TrainerConfig, watcher: Watcher) -> list[Problem]:
    """Let the verifier run every seed task; return their problems.

    Raises:
        StoreError: the verifier does not accept the seeds, so it must not judge anything else.
    """
    kinds = [TaskKind(kind) for kind in config.tasks.types]
    seeds = load_seeds()
    proposals = [Proposal(kind=kinds[0], program=seed.program, arguments=seed.inputs) for seed in seeds]
    watcher.notice(f"validating {len(seeds)} seed tasks at the verifier")
    asker = Asker("seed", "seed", 0)
    results = verification.collect([verification.submit_proposal(proposal, asker, runs=1) for proposal in proposals])
    for number, result in enumerate(results):
        if result is None:  # once more, for a single lost answer must not end a start
            results[number] = verification.submit_proposal(proposals[number], asker, runs=1).result()
    problems: list[Problem] = []
    for number, (seed, result) in enumerate(zip(seeds, results, strict=True)):
        if result is None or not result.valid:
            detail = result.detail if result else "no answer"
            raise StoreError(f"seed task {number} is not valid at this verifier ({detail}); is it the right version?")
        problems += make_problems(number, seed, result.values, result.ast_hash, kinds)
    return problems


def _publish_all(parts: Parts) -> None:
    members = parts.state.members
    for member in members:
        parts.publisher.publish(member, parts.state)
    for uid, probe in parts.publisher.probe(members).items():
        raise_alarms(parts, parts.state.step, uid, probe)


def measure_warmup(parts: Parts) -> None:
    """Sample proposals from the untouched base and from a teacher; record the share of valid ones of each."""
    count = parts.config.warmup.measure_proposals // parts.config.tasks.proposals_per_prompt
    teachers = parts.state.of_role(Role.TEACHER)
    if not parts.config.warmup.enabled or count < 1 or not teachers:
        return
    teacher = teachers[0]
    speakers = [
        Speaker("base", 0, None),
        Speaker(teacher.uid, teacher.version, parts.publisher.served(teacher.uid)),
    ]
    generator = random.Random(parts.config.run.seed)
    buffer = ProblemBuffer(parts.state.problems, capacity=parts.config.tasks.buffer_size)
    questions = plan_proposals(
        speakers, parts.chat, buffer, parts.config, step=0, prompts_per_speaker=count, generator=generator
    )
    grader = ProposalGrader(parts.verification, parts.chat, buffer, parts.config, step=0)
    sampler = Sampler(parts.engine, parts.chat, parts.config.rollout)
    samples = [sample for _, sample in sampler.sample(questions, generator, grader.submit)]
    grader.finish(samples)
    shares = {}
    for speaker in speakers:
        own = [sample.grade for sample in samples if sample.member == speaker.uid]
        # A copy of a known program is valid at the verifier, so it counts here.
        shares[speaker.uid] = sum(grade in (Grade.VALID, Grade.DUPLICATE) for grade in own) / len(own)
    before, after = shares["base"], shares[teacher.uid]
    parts.store.append(
        "events", [{"step": 0, "event": "warmup_measured", "valid_before": before, "valid_after": after}]
    )
    parts.notice(f"valid proposals: {before:.0%} before the warm-up, {after:.0%} after")


def describe_environment(server: dict[str, str]) -> dict[str, object]:
    """Return versions and machine, for environment.json."""
    return {
        "run_id": secrets.token_hex(8),
        "verifier": server,
        "packages": {name: version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "cuda": torch.cuda.is_available(),
    }
