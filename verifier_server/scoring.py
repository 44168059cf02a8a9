"""Scores a program on benchmark cases (RunCases): which runs that needs, and what they are compared with.

The candidate, the reference and the checker each have jails of their own; expected values never enter the candidate's.
Cases go in chunks that end when the outputs held in memory become many, whatever the limits allow.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from verifier_server.background import off_loop
from verifier_server.domain import (
    CaseInput,
    CaseQuestion,
    CaseRun,
    CasesQuestion,
    CasesReport,
    Mode,
    Outcome,
    Preset,
    Run,
    ScoredCase,
    Verdict,
)
from verifier_server.judging import cases as judge
from verifier_server.sandbox.base import Sandbox

_MAX_HELD_EVENTS = 4000
_MAX_HELD_BYTES = 128 << 20
_CHUNK_WHEN_STOPPING = 50
_CASES_WORTH_PRELOADING = 10
_CHECKER_SEEDS = (1, 2)


async def score(sandbox: Sandbox, question: CasesQuestion, *, slot: int) -> CasesReport:
    """Run and judge every case, or up to the first failure if asked."""
    scored: list[ScoredCase] = []
    size = len(question.cases)
    if question.stop_at_first_failure and (question.reference or question.comparator.checker):
        size = _CHUNK_WHEN_STOPPING  # what runs before the candidate's first failure is known may be wasted
    while len(scored) < len(question.cases):
        chunk = question.cases[len(scored) : len(scored) + size]
        scored += await _Chunk(sandbox, question, chunk, slot).score()
        if question.stop_at_first_failure and _failed(scored[-1]):
            break
    return CasesReport(cases=tuple(scored), asked=len(question.cases))


def _failed(case: ScoredCase) -> bool:
    return case.verdict not in (Verdict.CORRECT, Verdict.UNJUDGED)


class _Hold:
    """Counts what is held of runs; `is_full` ends a run of the sandbox."""

    def __init__(self) -> None:
        self._held_bytes = 0

    async def is_full(self, run: CaseRun) -> bool:
        self._held_bytes += len(run.value or b"") + len(run.stdout) + len(run.stderr)
        return self._held_bytes > _MAX_HELD_BYTES


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Some cases that are run together. May score fewer than it has, but at least one."""

    sandbox: Sandbox
    question: CasesQuestion
    cases: tuple[CaseQuestion, ...]
    slot: int

    async def score(self) -> list[ScoredCase]:
        expected: list[bytes | None] = [case.expected for case in self.cases]
        outcomes: list[Outcome | None] = [None] * len(self.cases)
        if self.question.reference:
            expected, outcomes = await self._run_reference()
        if self.question.comparator.checker:
            return await self._score_with_checker(expected, outcomes)
        scored: list[ScoredCase] = []
        hold = _Hold()

        async def judge_next(run: CaseRun) -> bool:
            number = len(scored)
            size = len(expected[number] or b"") + len(judge.read_output(run, self.question.mode) or b"")
            arguments = (self.question.comparator, expected[number], run, self.question.mode)
            verdict = await off_loop(size, judge.judge_case, *arguments)
            scored.append(self._keep(verdict, run, outcomes[number]))
            full = await hold.is_full(run)
            return full or (self.question.stop_at_first_failure and _failed(scored[-1]))

        candidate = self._make_run(self.question.program, len(expected))
        await self.sandbox.run(candidate, slot=self.slot, until=judge_next)
        return scored

    async def _run_reference(self) -> tuple[list[bytes | None], list[Outcome | None]]:
        """Return outputs and, where there is nothing to compare with, the reference's outcome."""
        run = self._make_run(self.question.reference, len(self.cases))
        runs = await self.sandbox.run(run, slot=self.slot, until=_Hold().is_full)
        outputs = [
            await off_loop(
                len(run.value or b""), judge.read_expected, self.question.comparator, run, self.question.mode
            )
            for run in runs
        ]
        is_usable = [output is not None for output in outputs]
        if self.question.comparator.checker:  # which may do without an expected value
            is_usable = [run.outcome is Outcome.COMPLETED for run in runs]
        return outputs, [None if usable else run.outcome for usable, run in zip(is_usable, runs, strict=True)]

    async def _score_with_checker(
        self, expected: Sequence[bytes | None], outcomes: Sequence[Outcome | None]
    ) -> list[ScoredCase]:
        candidate = self._make_run(self.question.program, len(expected))
        runs = await self.sandbox.run(candidate, slot=self.slot, until=_Hold().is_full)
        answers = await self._ask_checker(runs, expected, outcomes)
        scored: list[ScoredCase] = []
        for number, run in enumerate(runs):
            verdict = Verdict.UNJUDGED
            if outcomes[number] is None:
                verdict = judge.judge_by_checker(run, answers.get(number, []), self.question.mode)
            scored.append(self._keep(verdict, run, outcomes[number]))
            if self.question.stop_at_first_failure and _failed(scored[-1]):
                break
        return scored

    async def _ask_checker(
        self, runs: Sequence[CaseRun], expected: Sequence[bytes | None], outcomes: Sequence[Outcome | None]
    ) -> dict[int, list[CaseRun]]:
        """Return what the checker said of each case that has an output, once per hash seed."""
        inputs = {
            number: self._make_checker_case(number, output, expected[number])
            for number, run in enumerate(runs)
            if (output := judge.read_output(run, self.question.mode)) is not None and outcomes[number] is None
        }
        answers: dict[int, list[CaseRun]] = {number: [] for number in inputs}
        for seed in _CHECKER_SEEDS if inputs else ():
            run = Run(
                mode=Mode.CALL,
                program=self.question.comparator.checker,
                entry_point="check",
                cases=tuple(inputs.values()),
                limits=self.question.limits,
                hash_seed=seed,
            )
            for number, answer in zip(inputs, await self.sandbox.run(run, slot=self.slot), strict=True):
                answers[number].append(answer)
        return answers

    def _make_checker_case(self, number: int, output: bytes, expected: bytes | None) -> CaseInput:
        inputs = self.cases[number].inputs
        positional = judge.make_checker_input(inputs.positional, inputs.stdin, output, expected, self.question.mode)
        return CaseInput(positional=positional)

    def _make_run(self, program: bytes, count: int) -> Run:
        comparator = self.question.comparator
        return Run(
            mode=self.question.mode,
            program=program,
            entry_point=self.question.entry_point,
            cases=tuple(case.inputs for case in self.cases[:count]),
            limits=self.question.limits,
            hash_seed=0,
            preload=count >= _CASES_WORTH_PRELOADING,
            lenient=bool(comparator.checker) or comparator.preset is not Preset.EXACT,
        )

    def _keep(self, verdict: Verdict, run: CaseRun, reference_outcome: Outcome | None) -> ScoredCase:
        """Drop what the response does not need or has no room for: outputs and events of many cases would add up."""
        most = max(2, _MAX_HELD_EVENTS // len(self.question.cases))
        run = replace(run, hook_events=run.hook_events[:most], stderr=b"")
        if not self.question.return_outputs:
            run = replace(run, value=None, stdout=b"")
        elif self.question.mode is Mode.CALL:
            run = replace(run, stdout=b"")
        return ScoredCase(verdict=verdict, run=run, reference_outcome=reference_outcome)
