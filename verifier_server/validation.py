"""Whether a program is a task: which runs that needs, with which hash seeds and clocks.

Noise is a teacher's cheat: a program that answers differently now and then gives 0 < rho < 1 for nothing. So a
program runs many times before it is called valid. Fresh interpreters differ in hash seed, and every second one has a
shifted clock; within an interpreter every run is a fresh process. Noise with probability p per run stays unseen in n
runs with probability (1-p)^n. Noise that comes from the interpreter (hash order, addresses of objects) has one draw
per interpreter, so programs whose text shows it run in many. That is by text and can be evaded; who wants certainty
asks for `runs` = 44, at the cost that benchmarks/noise.py measures.
"""

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from verifier_server.background import off_loop
from verifier_server.domain import CaseInput, CaseRun, Limits, Mode, Outcome, Reason, Run, TaskQuestion, TaskReport
from verifier_server.judging import features, literals, tasks
from verifier_server.sandbox.base import Sandbox

RUNS, RUNS_IF_INTERPRETER_SHOWS = 3, 44
"""Interpreters: by default, and for programs that can see their interpreter: 0.9 ** 44 < 1 %."""
_ANALYSIS_LIMITS = Limits(cpu_time_s=5.0, wall_time_s=15.0, memory_bytes=512 << 20, processes=4)
_DAY_S = 86_400
_MAX_SHIFT_DAYS = 400
_BUDGET_FACTOR = 4


async def analyze(sandbox: Sandbox, question: TaskQuestion, *, slot: int) -> features.Analysis:
    """Measure the program's text in a jail of its own, which never runs it."""
    run = Run(
        mode=Mode.ANALYZE,
        program=question.program,
        entry_point=question.entry_point,
        cases=(CaseInput(),),
        limits=_ANALYSIS_LIMITS,
        allowed_modules=question.allowed_modules,
    )
    result = (await sandbox.run(run, slot=slot))[0]
    if result.outcome is Outcome.COMPLETED and result.analysis is not None:
        return features.read_analysis(result.analysis)
    return features.Analysis(Reason.ANALYSIS_FAILED, f"analysis ended with {result.outcome}")


async def validate(sandbox: Sandbox, question: TaskQuestion, *, slot: int) -> TaskReport:
    """Check a task: arguments, analysis, first runs, repeated runs; stops at the first reason."""
    try:
        inputs = await off_loop(sum(map(len, question.arguments)), parse_inputs, question.arguments)
    except literals.MalformedLiteralError as error:
        return TaskReport(reasons=(Reason.MALFORMED_ARGUMENTS,), detail=str(error))
    analysis = await analyze(sandbox, question, slot=slot)
    if analysis.reason is not None:
        return TaskReport(reasons=(analysis.reason,), detail=analysis.detail)
    seeds = draw_seeds(question.runs or _choose_runs(analysis))
    first = await sandbox.run(make_call(question, inputs, seeds[0]), slot=slot)
    failure = await off_loop(sum(len(run.value or b"") for run in first), tasks.find_failure, first)
    if failure is not None:
        return TaskReport(
            reasons=(failure[0],),
            results=tuple(first),
            features=analysis.features,
            findings=analysis.findings,
            detail=failure[1],
            runs=1,
            draws=1,
        )
    repetition = _Repetition(sandbox, question, inputs, first, slot)
    await repetition.run(seeds[1:])
    return tasks.report_task(
        [item.positional for item in inputs],
        first,
        analysis,
        repetition.difference,
        runs=1 + repetition.interpreters,
        draws=1 + repetition.draws // len(inputs),
        stopped_early=repetition.stopped_early,
    )


def _choose_runs(analysis: features.Analysis) -> int:
    sees_interpreter = any(code == "sees_interpreter" for code, _ in analysis.findings)
    return RUNS_IF_INTERPRETER_SHOWS if sees_interpreter else RUNS


@dataclass(slots=True)
class _Repetition:
    """Runs the inputs again and again until something differs, the draws are done, or the time for it is used up."""

    sandbox: Sandbox
    question: TaskQuestion
    inputs: tuple[CaseInput, ...]
    first: Sequence[CaseRun]
    slot: int
    difference: str | None = None
    interpreters: int = 0
    draws: int = 0
    stopped_early: bool = False
    _used_cpu_s: float = 0.0

    async def run(self, seeds: Sequence[int]) -> None:
        """Use one interpreter per seed."""
        for number, seed in enumerate(seeds):
            missing = self.question.draws - 1 - self.draws // len(self.inputs)
            repeats = max(1, math.ceil(missing / (len(seeds) - number)))
            if self._is_over_budget() and number >= RUNS - 1:
                self.stopped_early = True
                return
            shift = 0 if number % 2 else _DAY_S * (1 + secrets.randbelow(_MAX_SHIFT_DAYS))
            self.interpreters += 1
            await self._run_interpreter(make_call(self.question, self.inputs * repeats, seed, shift))
            if self.difference is not None:
                return

    async def _run_interpreter(self, run: Run) -> None:
        count = 0

        async def is_enough(result: CaseRun) -> bool:
            nonlocal count
            self._used_cpu_s += result.usage.cpu_s
            self.difference = tasks.find_difference(self.first, count % len(self.inputs), result)
            count += 1
            self.draws += 1
            over = self._is_over_budget() and count >= len(self.inputs)
            self.stopped_early |= over and count < len(run.cases)
            return self.difference is not None or over

        await self.sandbox.run(run, slot=self.slot, until=is_enough)

    def _is_over_budget(self) -> bool:
        return self._used_cpu_s > _BUDGET_FACTOR * self.question.limits.cpu_time_s


def parse_inputs(texts: Sequence[str]) -> tuple[CaseInput, ...]:
    """Read argument texts.

    Raises:
        MalformedLiteralError: one is not a list of arguments.
    """
    parsed = [literals.parse_arguments(text) for text in texts]
    return tuple(CaseInput(positional=one.positional, keywords=one.keywords) for one in parsed)


def make_call(question: TaskQuestion, cases: tuple[CaseInput, ...], hash_seed: int, clock_shift_s: int = 0) -> Run:
    """Return the run of a task's entry point on `cases`."""
    return Run(
        mode=Mode.CALL,
        program=question.program,
        entry_point=question.entry_point,
        cases=cases,
        limits=question.limits,
        hash_seed=hash_seed,
        clock_shift_s=clock_shift_s,
    )


def draw_seeds(count: int) -> list[int]:
    """Draw distinct hash seeds."""
    seeds: set[int] = set()
    while len(seeds) < count:
        seeds.add(secrets.randbelow(2**32))
    return list(seeds)
