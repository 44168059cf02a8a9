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


def find_difference(first: Sequence[CaseRun], again: Sequence[CaseRun]) -> str | None:
    """Return where a repeated run differs from the first, if it does."""
    for number, (one, other) in enumerate(zip(first, again, strict=True)):
        if one.value != other.value:
            return f"input {number}: a second run gave another result ({other.outcome})"
    return None


def report_task(
    arguments: Sequence[bytes], first: Sequence[CaseRun], analysis: Analysis, difference: str | None
) -> TaskReport:
    """Put everything together for a task whose first runs all completed.

    Args:
        arguments: canonical positional tuple of each input.
        first: the first run of each input.
        difference: result of comparing repeated runs.
    """
    values = [run.value or b"" for run in first]
    findings = list(analysis.findings)
    if len(set(arguments)) > 1 and len(set(values)) == 1:
        findings.append(("constant_output", "the same value for every input"))
    return TaskReport(
        reasons=(Reason.NONDETERMINISTIC,) if difference else (),
        results=tuple(first),
        features=analysis.features,
        type_signature=describe_types(arguments[0], values[0]),
        findings=tuple(findings),
        detail=difference or "",
    )


def describe_types(positional: bytes, value: bytes) -> str:
    """Return the outermost types of the arguments and the value, such as `(int, list) -> int`."""
    reader = codec.Reader(positional)
    reader.take(1)
    names = []
    for _ in range(reader.varint()):
        names.append(_TYPE_NAMES[reader.data[reader.position : reader.position + 1]])
        codec.skip(reader)
    return f"({', '.join(names)}) -> {_TYPE_NAMES[value[:1]]}"
