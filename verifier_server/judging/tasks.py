"""Whether a program is a task: pure conclusions from its analysis and its runs."""

from collections.abc import Sequence

from verifier_server.domain import CaseRun, Outcome, Reason, TaskReport
from verifier_server.judging import codec, literals
from verifier_server.judging.features import Analysis

_TYPE_NAMES = {
    b"N": "None",
    b"T": "bool",
    b"F": "bool",
    b"I": "int",
    b"D": "float",
    b"C": "complex",
    b"S": "str",
    b"B": "bytes",
    b"L": "list",
    b"U": "tuple",
    b"E": "set",
    b"Z": "frozenset",
    b"M": "dict",
    b"R": "range",
}
_PROGRAM_REASONS = {
    Outcome.SYNTAX_ERROR: Reason.SYNTAX_ERROR,
    Outcome.NO_ENTRY_POINT: Reason.NO_ENTRY_POINT,
}


def find_failure(runs: Sequence[CaseRun]) -> tuple[Reason, str] | None:
    """Return why the first run of the inputs makes the task invalid, if it does."""
    for number, run in enumerate(runs):
        if run.outcome is not Outcome.COMPLETED:
            reason = _PROGRAM_REASONS.get(run.outcome, Reason.RUN_FAILED)
            return reason, f"input {number}: {run.outcome} {run.claim}".strip()[:500]
        if not literals.fits_an_answer(literals.render(run.value or b"N")):
            # Nobody could write it down as an answer.
            return Reason.RUN_FAILED, f"input {number}: the value's literal is longer than an answer may be"
    return None


def find_difference(first: Sequence[CaseRun], number: int, again: CaseRun) -> str | None:
    """Return how a repeated run of input `number` differs from the first, if it does."""
    if again.value == first[number].value:
        return None
    return f"input {number}: a further run gave another result ({again.outcome})"


def report_task(
    arguments: Sequence[bytes],
    first: Sequence[CaseRun],
    analysis: Analysis,
    difference: str | None,
    *,
    runs: int,
    draws: int,
    stopped_early: bool,
) -> TaskReport:
    """Put everything together for a task whose first runs all completed.

    Args:
        arguments: encoded positional tuple of each input.
        first: the first run of each input.
        difference: how a repeated run differed.
        runs: interpreters used.
        draws: least number of runs that an input had.
        stopped_early: whether repetition ran out of time.
    """
    values = [run.value or b"" for run in first]
    findings = list(analysis.findings)
    if len(set(arguments)) > 1 and len(set(values)) == 1:
        findings.append(("constant_output", "the same value for every input"))
    if stopped_early and not difference:
        findings.append(
            ("few_draws", f"{draws} runs of an input in {runs} interpreters, then the time for repetition was used up")
        )
    return TaskReport(
        reasons=(Reason.NONDETERMINISTIC,) if difference else (),
        results=tuple(first),
        features=analysis.features,
        type_signature=describe_types(arguments[0], values[0]),
        findings=tuple(findings),
        detail=difference or "",
        runs=runs,
        draws=draws,
    )


def describe_types(positional: bytes, value: bytes) -> str:
    """Return the outermost types of the arguments and the value, such as `(int, list) -> int`."""
    reader = codec.Reader(positional, any_order=True)
    reader.take(1)
    names = []
    for _ in range(reader.varint()):
        names.append(_TYPE_NAMES[reader.data[reader.position : reader.position + 1]])
        codec.skip(reader)
    return f"({', '.join(names)}) -> {_TYPE_NAMES[value[:1]]}"
