"""Runs what a question needs in the sandbox and hands the results to the pure judges.

Every run draws its hash seed at random, except candidate programs of induction, which run with seed 0 so that set
order cannot fail a right answer, and the analysis, which runs nothing. Repeated runs of a task all differ in hash
seed, and every second one sees a shifted clock.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from verifier_server.domain import (
    AbductionQuestion,
    AnswerQuestion,
    AnswerReport,
    CaseInput,
    CaseRun,
    DeductionQuestion,
    InductionQuestion,
    Limits,
    Mode,
    Outcome,
    Reason,
    Run,
    TaskQuestion,
    TaskReport,
)
from verifier_server.judging import answers, features, literals, tasks
from verifier_server.sandbox.base import Sandbox

_ANALYSIS_LIMITS = Limits(cpu_time_s=5.0, wall_time_s=15.0, memory_bytes=512 << 20, processes=4)
_LARGE_CHARACTERS = 8 << 10
_DAY_S = 86_400
_MAX_SHIFT_DAYS = 400


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Answers questions with a sandbox. Raises SandboxError only for trouble of the service."""

    sandbox: Sandbox

    async def validate(self, question: TaskQuestion, *, slot: int) -> TaskReport:
        """Check a task: analysis, first runs, repeated runs; stops at the first reason."""
        try:
            inputs = await _off_loop(sum(map(len, question.arguments)), _parse_inputs, question.arguments)
        except literals.MalformedLiteralError as error:
            return TaskReport(reasons=(Reason.MALFORMED_ARGUMENTS,), detail=str(error))
        analysis = await self._analyze(question, slot)
        if analysis.reason is not None:
            return TaskReport(reasons=(analysis.reason,), detail=analysis.detail)
        seeds = _draw_distinct_seeds(question.runs)
        first = await self.sandbox.run(_call(question, inputs, question.limits, seeds[0]), slot=slot)
        failure = await _off_loop(sum(len(run.value or b"") for run in first), tasks.find_failure, first)
        if failure is not None:
            return TaskReport(
                reasons=(failure[0],),
                results=tuple(first),
                features=analysis.features,
                findings=analysis.findings,
                detail=failure[1],
            )
        difference = await self._find_difference(question, inputs, first, seeds[1:], slot)
        return tasks.report_task([item.positional for item in inputs], first, analysis, difference)

    async def judge(self, question: AnswerQuestion, *, slot: int) -> AnswerReport:
        """Judge an answer."""
        if isinstance(question, DeductionQuestion):
            return await _off_loop(len(question.answer), answers.judge_deduction, question.expected, question.answer)
        if isinstance(question, AbductionQuestion):
            return await self._judge_abduction(question, slot)
        return await self._judge_induction(question, slot)

    async def execute(self, program: bytes, stdin: bytes, limits: Limits, *, slot: int) -> CaseRun:
        """Run a program as a script."""
        run = Run(
            mode=Mode.SCRIPT,
            program=program,
            entry_point="",
            cases=(CaseInput(stdin=stdin),),
            limits=limits,
            hash_seed=_draw_distinct_seeds(1)[0],
        )
        return (await self.sandbox.run(run, slot=slot))[0]

    async def _analyze(self, question: TaskQuestion, slot: int) -> features.Analysis:
        run = Run(
            mode=Mode.ANALYZE,
            program=question.program,
            entry_point=question.entry_point,
            cases=(CaseInput(),),
            limits=_ANALYSIS_LIMITS,
        )
        result = (await self.sandbox.run(run, slot=slot))[0]
        if result.outcome is Outcome.COMPLETED and result.analysis is not None:
            return features.read_analysis(result.analysis)
        return features.Analysis(Reason.ANALYSIS_FAILED, f"analysis ended with {result.outcome}")

    async def _find_difference(
        self,
        question: TaskQuestion,
        inputs: tuple[CaseInput, ...],
        first: list[CaseRun],
        seeds: list[int],
        slot: int,
    ) -> str | None:
        for number, seed in enumerate(seeds):
            shift = 0 if number % 2 else _DAY_S * (1 + secrets.randbelow(_MAX_SHIFT_DAYS))
            again = await self.sandbox.run(_call(question, inputs, question.limits, seed, shift), slot=slot)
            difference = tasks.find_difference(first, again)
            if difference is not None:
                return difference
        return None

    async def _judge_abduction(self, question: AbductionQuestion, slot: int) -> AnswerReport:
        try:
            (case,) = await _off_loop(len(question.answer), _parse_inputs, (question.answer,))
        except literals.MalformedLiteralError as error:
            return answers.malformed(str(error))
        run = _call(question, (case,), question.limits, _draw_distinct_seeds(1)[0])
        return answers.judge_runs([question.expected], await self.sandbox.run(run, slot=slot))

    async def _judge_induction(self, question: InductionQuestion, slot: int) -> AnswerReport:
        run = _call(question, tuple(case for case, _ in question.cases), question.limits, 0)
        expected = [value for _, value in question.cases]
        return answers.judge_runs(expected, await self.sandbox.run(run, slot=slot))


def _parse_inputs(texts: Sequence[str]) -> tuple[CaseInput, ...]:
    parsed = [literals.parse_arguments(text) for text in texts]
    return tuple(CaseInput(positional=one.positional, keywords=one.keywords) for one in parsed)


async def _off_loop(size: int, function: Callable[..., Result], *arguments: object) -> Result:
    """Call a pure function, in a thread if it works on much text: it would hold up every other request."""
    if size < _LARGE_CHARACTERS:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)


def _call(
    question: TaskQuestion | AbductionQuestion | InductionQuestion,
    cases: tuple[CaseInput, ...],
    limits: Limits,
    hash_seed: int,
    clock_shift_s: int = 0,
) -> Run:
    return Run(
        mode=Mode.CALL,
        program=question.program,
        entry_point=question.entry_point,
        cases=cases,
        limits=limits,
        hash_seed=hash_seed,
        clock_shift_s=clock_shift_s,
    )


def _draw_distinct_seeds(count: int) -> list[int]:
    seeds: set[int] = set()
    while len(seeds) < count:
        seeds.add(secrets.randbelow(2**32))
    return list(seeds)
