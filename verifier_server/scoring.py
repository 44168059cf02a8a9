"""Scores a program on benchmark cases (RunCases): which runs that needs, and what they are compared with.

The candidate, the reference and the checker each have jails of their own; expected values never enter the candidate's.
Cases go in chunks, so that the outputs held in memory stay bounded whatever the limits allow.
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

_MAX_HELD_BYTES = 256 << 20
_CHUNK_WHEN_STOPPING = 50
_CHECKER_SEEDS = (1, 2)


async def score(sandbox: Sandbox, question: CasesQuestion, *, slot: int) -> CasesReport:
    """Run and judge every case, or up to the first failure if asked."""
    scored: list[ScoredCase] = []
    for chunk in _split(question):
        scored += await _Chunk(sandbox, question, chunk, slot).score()
        if question.stop_at_first_failure and _failed(scored[-1]):
            break
    return CasesReport(cases=tuple(scored), asked=len(question.cases))


def _split(question: CasesQuestion) -> list[tuple[CaseQuestion, ...]]:
    limits = question.limits
    held = limits.value_bytes if question.mode is Mode.CALL else 2 * limits.output_bytes
    size = max(1, _MAX_HELD_BYTES // (2 * held))
    if question.stop_at_first_failure and (question.reference or question.comparator.checker):
        size = min(size, _CHUNK_WHEN_STOPPING)
    return [question.cases[start : start + size] for start in range(0, len(question.cases), size)]


def _failed(case: ScoredCase) -> bool:
    return case.verdict not in (Verdict.CORRECT, Verdict.UNJUDGED)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Some cases that are run together."""

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

        async def judge_next(run: CaseRun) -> bool:
            number = len(scored)
            size = len(expected[number] or b"") + len(judge.read_output(run, self.question.mode) or b"")
            arguments = (self.question.comparator, expected[number], run, self.question.mode)
            verdict = await off_loop(size, judge.judge_case, *arguments)
            scored.append(self._keep(verdict, run, outcomes[number]))
            return self.question.stop_at_first_failure and _failed(scored[-1])

        await self.sandbox.run(self._make_run(self.question.program), slot=self.slot, until=judge_next)
        return scored

    async def _run_reference(self) -> tuple[list[bytes | None], list[Outcome | None]]:
        runs = await self.sandbox.run(self._make_run(self.question.reference), slot=self.slot)
        outputs = [judge.read_output(run, self.question.mode) for run in runs]
        return outputs, [None if run.outcome is Outcome.COMPLETED else run.outcome for run in runs]

    async def _score_with_checker(
        self, expected: Sequence[bytes | None], outcomes: Sequence[Outcome | None]
    ) -> list[ScoredCase]:
        runs = await self.sandbox.run(self._make_run(self.question.program), slot=self.slot)
        answers = await self._ask_checker(runs, expected, outcomes)
        scored = []
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

    def _make_run(self, program: bytes) -> Run:
        comparator = self.question.comparator
        return Run(
            mode=self.question.mode,
            program=program,
            entry_point=self.question.entry_point,
            cases=tuple(case.inputs for case in self.cases),
            limits=self.question.limits,
            hash_seed=0,
            lenient=bool(comparator.checker) or comparator.preset is not Preset.EXACT,
        )

    def _keep(self, verdict: Verdict, run: CaseRun, reference_outcome: Outcome | None) -> ScoredCase:
        """Drop what the response does not need: outputs of many cases would add up."""
        if not self.question.return_outputs:
            run = replace(run, value=None, stdout=b"", stderr=b"")
        return ScoredCase(verdict=verdict, run=run, reference_outcome=reference_outcome)
