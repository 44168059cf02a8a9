"""Whether an answer is right: values are compared here, as bytes, and nowhere else."""

from collections.abc import Sequence

from verifier_server.domain import AnswerReport, CaseRun, Evidence, Outcome, Verdict
from verifier_server.judging import literals


def malformed(detail: str) -> AnswerReport:
    """Report an answer text that the service does not accept."""
    return AnswerReport(
        verdict=Verdict.MALFORMED, outcome=Outcome.NOT_RUN, evidence=Evidence.SERVER, detail=detail[:500]
    )


def judge_deduction(expected: bytes, answer: str) -> AnswerReport:
    """Compare the literal in `answer` with the expected value."""
    try:
        value = literals.parse_answer(answer)
    except literals.MalformedLiteralError as error:
        return malformed(str(error))
    verdict = Verdict.CORRECT if value == expected else Verdict.WRONG
    return AnswerReport(verdict=verdict, outcome=Outcome.NOT_RUN, evidence=Evidence.SERVER)


def judge_runs(expected: Sequence[bytes], runs: Sequence[CaseRun]) -> AnswerReport:
    """Compare what each run returned with what was expected; no cases and missing results are never right."""
    verdicts = [judge_run(value, run) for value, run in zip(expected, runs, strict=True)]
    failures = [i for i, verdict in enumerate(verdicts) if verdict is not Verdict.CORRECT]
    decisive = failures[0] if failures else len(runs) - 1
    return AnswerReport(
        verdict=verdicts[decisive],
        outcome=runs[decisive].outcome,
        evidence=runs[decisive].evidence,
        cases=tuple(zip(verdicts, runs, strict=True)),
    )


def judge_run(expected: bytes, run: CaseRun) -> Verdict:
    """CORRECT needs a completed run and equal bytes."""
    if run.outcome is not Outcome.COMPLETED or run.value is None:
        return Verdict.FAILED
    return Verdict.CORRECT if run.value == expected else Verdict.WRONG
