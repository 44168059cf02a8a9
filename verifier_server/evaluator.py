"""Runs what a question needs in the sandbox and hands the results to the pure judges.

Every run draws its hash seed at random, except candidate programs of induction and of benchmarks, which run with seed 0
so that set order cannot fail a right answer, and the analysis, which runs nothing.
"""

from dataclasses import dataclass

from verifier_server import scoring, validation
from verifier_server.background import off_loop
from verifier_server.domain import (
    AbductionQuestion,
    AnswerQuestion,
    AnswerReport,
    CaseInput,
    CaseRun,
    CasesQuestion,
    CasesReport,
    DeductionQuestion,
    InductionQuestion,
    Limits,
    Mode,
    Run,
    ScriptReport,
    TaskQuestion,
    TaskReport,
    Verdict,
)
from verifier_server.judging import answers, cases, literals
from verifier_server.sandbox.base import Sandbox


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Answers questions with a sandbox. Raises SandboxError only for trouble of the service."""

    sandbox: Sandbox

    async def validate(self, question: TaskQuestion, *, slot: int) -> TaskReport:
        """Check a task, see `validation`."""
        return await validation.validate(self.sandbox, question, slot=slot)

    async def judge(self, question: AnswerQuestion, *, slot: int) -> AnswerReport:
        """Judge an answer."""
        if isinstance(question, DeductionQuestion):
            return await off_loop(len(question.answer), answers.judge_deduction, question.expected, question.answer)
        if isinstance(question, AbductionQuestion):
            return await self._judge_abduction(question, slot)
        return await self._judge_induction(question, slot)

    async def score(self, question: CasesQuestion, *, slot: int) -> CasesReport:
        """Score a program on benchmark cases, see `scoring`."""
        return await scoring.score(self.sandbox, question, slot=slot)

    async def execute(self, program: bytes, stdin: bytes, limits: Limits, *, slot: int) -> CaseRun:
        """Run a program as a script."""
        return await self._run_script(Mode.SCRIPT, program, CaseInput(stdin=stdin), limits, slot)

    async def run_script(
        self, program: bytes, script: bytes, stdin: bytes, limits: Limits, *, slot: int
    ) -> ScriptReport:
        """Run a program and then an assert-style script in the same process."""
        case = CaseInput(stdin=stdin, script=script)
        return cases.report_script(await self._run_script(Mode.ASSERT, program, case, limits, slot))

    async def _run_script(self, mode: Mode, program: bytes, case: CaseInput, limits: Limits, slot: int) -> CaseRun:
        seed = validation.draw_seeds(1)[0]
        run = Run(mode=mode, program=program, entry_point="", cases=(case,), limits=limits, hash_seed=seed)
        return (await self.sandbox.run(run, slot=slot))[0]

    async def _judge_abduction(self, question: AbductionQuestion, slot: int) -> AnswerReport:
        try:
            inputs = await off_loop(len(question.answer), validation.parse_inputs, (question.answer,))
        except literals.MalformedLiteralError as error:
            return answers.malformed(str(error))
        run = _call(question, inputs, validation.draw_seeds(1)[0])
        return answers.judge_runs([question.expected], await self.sandbox.run(run, slot=slot))

    async def _judge_induction(self, question: InductionQuestion, slot: int) -> AnswerReport:
        run = _call(question, tuple(case for case, _ in question.cases), 0)
        expected = [value for _, value in question.cases]
        count = 0

        async def is_decided(result: CaseRun) -> bool:
            nonlocal count
            count += 1
            return answers.judge_run(expected[count - 1], result) is not Verdict.CORRECT

        runs = await self.sandbox.run(run, slot=slot, until=is_decided)
        return answers.judge_runs(expected[: len(runs)], runs)


def _call(question: AbductionQuestion | InductionQuestion, inputs: tuple[CaseInput, ...], hash_seed: int) -> Run:
    return Run(
        mode=Mode.CALL,
        program=question.program,
        entry_point=question.entry_point,
        cases=inputs,
        limits=question.limits,
        hash_seed=hash_seed,
    )
