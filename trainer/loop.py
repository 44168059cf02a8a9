"""One training step, top to bottom.

    match --> propose --> validate --> solve --> judge --> reward --> rate --> learn --> publish --> evolve --> record
              engine      verifier     engine    verifier                     learner   engine

The engine serves all members in one batch; the learner updates one adapter at a time; nothing is judged here.
Until `record` a step leaves nothing in the run folder but adapter folders and alarms, so a killed step is simply
redone.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil
import torch

from trainer import checkpoint
from trainer.checkpoint import RunState
from trainer.config import TrainerConfig
from trainer.domain import Grade, Match, Member, Problem, Role, Sample
from trainer.evolving import Birth, evolve
from trainer.learning.learner import Learner
from trainer.learning.losses import DIFFERENCE
from trainer.learning.selection import select_samples
from trainer.metrics import MetricsWriter, summarize_samples
from trainer.population.matchmaking import draw_matches
from trainer.population.ratings import Winner, decide, rate
from trainer.proposing import ProposalGrader, plan_proposals
from trainer.publication import Probe, Publisher
from trainer.rewards import measure_solve_rate, punish_length, reward_student, reward_teacher
from trainer.rollout.engine import Engine
from trainer.rollout.prompts import ChatFormat
from trainer.sampling import Question, Sampler, Speaker
from trainer.solving import AttemptGrader, assign_problems, plan_attempts
from trainer.store import RunStore
from trainer.tasks.buffer import ProblemBuffer
from trainer.verification import Verification


@dataclass(slots=True)
class Parts:
    """What a loop works with."""

    config: TrainerConfig
    store: RunStore
    state: RunState
    learner: Learner
    engine: Engine
    publisher: Publisher
    verification: Verification
    chat: ChatFormat
    metrics: MetricsWriter
    notice: Callable[[str], None]
    """Shows one line to the person who watches."""
    logprob_tolerance: float
    """`learning.logprob_tolerance` with null resolved."""


@dataclass(slots=True)
class Step:
    """What a step finds out on its way."""

    number: int
    matches: list[Match] = field(default_factory=list)
    proposals: list[tuple[Question, Sample]] = field(default_factory=list)
    proposal_grader: ProposalGrader | None = None
    attempts: list[tuple[Question, Sample]] = field(default_factory=list)
    attempt_grader: AttemptGrader | None = None
    fresh: list[Problem] = field(default_factory=list)
    solve_rates: dict[str, float | None] = field(default_factory=dict)
    games: list[dict[str, Any]] = field(default_factory=list)
    births: list[Birth] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def samples(self) -> list[Sample]:
        """All proposals, then all attempts."""
        return [sample for _, sample in (*self.proposals, *self.attempts)]


class Loop:
    """Runs steps on the state of a run."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._config = parts.config
        self._state = parts.state
        state, capacity = parts.state, parts.config.tasks.buffer_size
        self._buffer = ProblemBuffer(state.problems, capacity=capacity, known=state.known)
        self._sampler = Sampler(parts.engine, parts.chat, parts.config.rollout)

    def run_step(self, on_phase: Callable[[str], None]) -> Step:
        """Run one step and record it; `on_phase` is told the name of each phase as it begins."""
        step = Step(self._state.step + 1)
        start = time.monotonic()
        phases = (self._match, self._propose, self._validate, self._solve, self._judge, self._reward, self._rate)
        for phase in (*phases, self._learn, self._publish, self._evolve):
            name = phase.__name__.strip("_")
            on_phase(name)
            with _timed(step.metrics, f"time/{name}_s"):
                phase(step)
        step.metrics["time/step_s"] = time.monotonic() - start
        on_phase("record")
        self._record(step)
        return step

    def _match(self, step: Step) -> None:
        teachers, students = self._state.of_role(Role.TEACHER), self._state.of_role(Role.STUDENT)
        step.matches = draw_matches(teachers, students, beta=self._config.rating.beta, generator=self._state.generator)

    def _propose(self, step: Step) -> None:
        questions = plan_proposals(
            [self._speaker(member) for member in self._state.of_role(Role.TEACHER)],
            self._parts.chat,
            self._buffer,
            self._config,
            step=step.number,
            prompts_per_speaker=self._config.tasks.prompts_per_teacher,
            generator=self._state.generator,
        )
        step.proposal_grader = ProposalGrader(
            self._parts.verification, self._parts.chat, self._buffer, self._config, step=step.number
        )
        step.proposals = self._sample(questions, step.proposal_grader.submit)

    def _validate(self, step: Step) -> None:
        grader = step.proposal_grader
        assert grader is not None
        step.fresh = grader.finish([sample for _, sample in step.proposals])

    def _solve(self, step: Step) -> None:
        students = self._state.of_role(Role.STUDENT)
        assigned = assign_problems(
            step.matches, students, step.fresh, self._buffer, self._config, self._state.generator
        )
        speakers = [(self._speaker(self._member(uid)), problems) for uid, problems in assigned.items()]
        questions = plan_attempts(speakers, self._parts.chat, self._config, step=step.number)
        step.attempt_grader = AttemptGrader(self._parts.verification, step=step.number)
        step.attempts = self._sample(questions, step.attempt_grader.submit)

    def _judge(self, step: Step) -> None:
        grader = step.attempt_grader
        assert grader is not None
        grader.finish([sample for _, sample in step.attempts])
        if self._config.tasks.masked_groups == "resample":
            self._resample_masked(step, grader)

    def _resample_masked(self, step: Step, grader: AttemptGrader) -> None:
        """Sample groups with attempts that could not be judged once more, and put the new ones in their place."""
        masked = {sample.group for _, sample in step.attempts if sample.grade is Grade.UNJUDGED}
        questions = {question.group: question for question, _ in step.attempts if question.group in masked}
        again = self._sample(list(questions.values()), grader.submit)
        grader.finish([sample for _, sample in again])
        step.attempts = [entry for entry in step.attempts if entry[0].group not in masked] + again
        step.metrics["student/resampled_groups"] = float(len(masked))

    def _reward(self, step: Step) -> None:
        rewards, tasks = self._config.rewards, self._config.tasks
        grades: dict[str, list[Grade]] = {}
        for _, sample in step.attempts:
            grades.setdefault(sample.problem, []).append(sample.grade)
        for problem in step.fresh:
            step.solve_rates[problem.uid] = measure_solve_rate(
                grades.get(problem.uid, []), judged_fraction=tasks.judged_fraction
            )
        for _, sample in step.proposals:
            sample.reward = reward_teacher(sample.grade, step.solve_rates.get(sample.problem), rewards.teacher)
        for _, sample in step.attempts:
            sample.reward = reward_student(sample.grade, rewards.student)
        for sample in step.samples:
            sample.reward = punish_length(sample, rewards, max_tokens=self._config.rollout.max_new_tokens)
        if tasks.masked_groups != "keep":
            _drop_masked_groups(step)

    def _rate(self, step: Step) -> None:
        for match in step.matches:
            winners = self._decide_games(step, match)
            teacher, student = self._member(match.teacher), self._member(match.student)
            teacher.rating, student.rating = rate(teacher.rating, student.rating, winners, self._config.rating)
            teacher.games += len(winners)
            student.games += len(winners)
            step.games.append({"step": step.number, **asdict(match), "winners": [str(w) for w in winners]})

    def _decide_games(self, step: Step, match: Match) -> list[Winner]:
        """Return the games of a match; a teacher without a valid problem loses one, unless nothing was judged."""
        own = [problem for problem in step.fresh if problem.teacher == match.teacher]
        if not own:
            judged = any(s.grade is not Grade.UNJUDGED for _, s in step.proposals if s.member == match.teacher)
            return [Winner.STUDENT] if judged else []
        rates: dict[str, list[float]] = {}
        for problem in own:
            solve_rate = step.solve_rates[problem.uid]
            if solve_rate is not None:
                unit = {"problem": problem.uid, "task_type": str(problem.kind), "match": ""}[self._config.rating.unit]
                rates.setdefault(unit, []).append(solve_rate)
        return [decide(sum(several) / len(several), match.expected) for several in rates.values()]

    def _learn(self, step: Step) -> None:
        with self._resting_engine():
            self._learn_all(step)

    def _learn_all(self, step: Step) -> None:
        for member in self._state.members:
            own = [s for s in step.samples if s.member == member.uid and s.reward is not None and s.completion_ids]
            found = self._update(member, own)
            step.metrics.update({f"learn/{member.uid}/{name}": value for name, value in found.items()})
            if "loss" in found:
                member.version += 1
                # What was sampled is compared too, not only the probe: many more tokens, for nothing.
                raise_alarms(self._parts, step.number, member.uid, Probe(found[DIFFERENCE]))
            if "nonfinite_grad" in found:
                self._parts.notice(f"ALARM: the gradient of {member.uid} is not finite; that step is left out")
                event = {"step": step.number, "event": "nonfinite_grad", "member": member.uid}
                self._parts.store.append("events", [event])

    @contextmanager
    def _resting_engine(self) -> Iterator[None]:
        """Let the engine give its memory to the learner for the block, if configured."""
        if not self._config.rollout.sleep:
            yield
            return
        self._parts.engine.sleep()
        yield
        torch.cuda.empty_cache()  # what the learner no longer needs is not given back by itself
        self._parts.engine.wake()

    def _update(self, member: Member, samples: Sequence[Sample]) -> dict[str, float]:
        """Update a member on its rewarded samples; returns metrics, `skipped` if nothing can be learned from them."""
        chosen, advantages_S = select_samples(samples, self._config.learning, self._config.rewards)
        if not chosen:
            return {"skipped": 1.0}
        return self._parts.learner.update(
            member.uid, chosen, advantages_S, temperature=self._config.rollout.temperature
        )

    def _publish(self, step: Step) -> None:
        changed = [m for m in self._state.members if f"learn/{m.uid}/loss" in step.metrics]
        self._serve(step, changed)

    def _evolve(self, step: Step) -> None:
        every = self._config.evolution.every
        if not every or step.number % every:
            return
        before = {member.uid for member in self._state.members}
        step.births = evolve(self._state, self._parts.learner.adapters, self._config, step=step.number)
        for uid in before - {member.uid for member in self._state.members}:
            self._parts.publisher.retire(uid)
        self._serve(step, [birth.member for birth in step.births])
        for birth in step.births:
            record = birth.record
            self._parts.notice(
                f"step {step.number}: {record.culled} (age {record.age_steps}) is replaced by {record.child} = "
                f"{record.operator}({', '.join(record.parents)})"
            )

    def _serve(self, step: Step, members: Sequence[Member]) -> None:
        """Publish members and check that the engine answers with exactly these weights."""
        for member in members:
            self._parts.publisher.publish(member, self._state)
        if self._config.rollout.sleep:
            members = self._state.members  # an engine that woke up has lost adapters before (vllm 53888)
        for uid, probe in self._parts.publisher.probe(members).items():
            step.metrics[f"probe/{uid}/logp_difference"] = probe.difference
            raise_alarms(self._parts, step.number, uid, probe)

    def _record(self, step: Step) -> None:
        """Write everything of the step, then the checkpoint that makes it count."""
        self._buffer.extend(step.fresh)
        self._state.step = step.number
        self._state.problems = list(self._buffer.problems)
        self._state.known = self._buffer.known
        step.metrics.update(summarize_samples(step.samples))
        step.metrics.update(_measure_speed(step))
        step.metrics["verifier/retries_total"] = float(self._parts.verification.retries)
        step.metrics["mem/rss_gb"] = psutil.Process().memory_info().rss / 2**30
        for member in self._state.members:
            step.metrics[f"skill/{member.uid}/mu"] = member.rating.mu
            step.metrics[f"skill/{member.uid}/sigma"] = member.rating.sigma
        rates = [r for r in step.solve_rates.values() if r is not None]
        if rates:
            step.metrics["problems/solve_rate"] = sum(rates) / len(rates)
        store = self._parts.store
        store.append("problems", [{**asdict(p), "solve_rate": step.solve_rates[p.uid]} for p in step.fresh])
        store.append("attempts", [{"step": step.number, **asdict(sample)} for sample in step.samples])
        store.append("matches", step.games)
        store.append("lineage", [{"step": step.number, **asdict(birth.record)} for birth in step.births])
        self._parts.metrics.write(step.number, step.metrics)
        if step.number % self._config.run.checkpoint_every == 0 or step.number == self._config.run.steps:
            self.save_checkpoint()
        if step.births:
            living = {member.uid for member in self._state.members}
            store.drop_culled_adapters(living, keep=self._config.run.keep_culled)

    def ensure_checkpoint(self) -> None:
        """Write a checkpoint of the last completed step, unless it has one."""
        found = checkpoint.list_checkpoints(self._parts.store)
        if not found or found[-1] != checkpoint.name_folder(self._parts.store, self._state.step):
            self.save_checkpoint()

    def save_checkpoint(self) -> None:
        """Write a checkpoint of the last completed step."""
        checkpoint.save(self._parts.store, self._state, self._parts.learner.adapters, self._config)

    def _member(self, uid: str) -> Member:
        return next(member for member in self._state.members if member.uid == uid)

    def _speaker(self, member: Member) -> Speaker:
        adapter = self._parts.publisher.served(member.uid)
        return Speaker(member.uid, member.version, adapter, member.content_hash)

    def _sample(
        self, questions: Sequence[Question], submit: Callable[[Question, Sample], None]
    ) -> list[tuple[Question, Sample]]:
        return self._sampler.sample(questions, self._state.generator, submit)


def _measure_speed(step: Step) -> dict[str, float]:
    """Return tokens per second of sampling and learning."""
    sampled = sum(len(sample.completion_ids) for sample in step.samples)
    learned = sum(v for n, v in step.metrics.items() if n.startswith("learn/") and n.endswith("/num_tokens"))
    return {
        "perf/gen_tok_s": sampled / (step.metrics["time/propose_s"] + step.metrics["time/solve_s"]),
        "perf/train_tok_s": learned / step.metrics["time/learn_s"],
    }


def raise_alarms(parts: Parts, step: int, uid: str, probe: Probe) -> None:
    """Say and record it if the engine does not answer with the member's weights."""
    tolerance = parts.logprob_tolerance
    if not probe.difference <= tolerance:  # also if it is not a number
        parts.notice(
            f"ALARM: engine and learner differ by {probe.difference:.3f} on {uid} (tolerance {tolerance:g}): "
            "wrong adapter?"
        )
        event = {"step": step, "event": "logprob_alarm", "member": uid, "value": probe.difference}
        parts.store.append("events", [event])
    if probe.twins:
        twins = ", ".join(probe.twins)
        parts.notice(
            f"ALARM: the engine answers for {uid} exactly as for {twins}, whose weights differ: wrong adapter?"
        )
        parts.store.append("events", [{"step": step, "event": "twin_alarm", "member": uid, "twins": list(probe.twins)}])
    if probe.is_stale:
        parts.notice(f"ALARM: {uid} has new weights, but the engine answers as before: stale adapter?")
        parts.store.append("events", [{"step": step, "event": "stale_alarm", "member": uid}])


def _drop_masked_groups(step: Step) -> None:
    """Take the rewards of all samples of a group in which one has none: its baseline would not be the group's."""
    masked = {sample.group for sample in step.samples if sample.reward is None}
    for role in Role:
        own = {sample.group for sample in step.samples if sample.role is role}
        step.metrics[f"{role}/masked_groups"] = float(len(own & masked))
    for sample in step.samples:
        if sample.group in masked:
            sample.reward = None


@contextmanager
def _timed(metrics: dict[str, float], name: str) -> Iterator[None]:
    start = time.monotonic()
    try:
        yield
    finally:
        metrics[name] = time.monotonic() - start
