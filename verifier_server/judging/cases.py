"""Verdicts of benchmark cases: pure conclusions from runs, expected outputs and what a checker said."""

from verifier_server.domain import CaseRun, Comparator, Mode, Outcome, Preset, ScriptReport, ScriptStatus, Verdict
from verifier_server.judging import codec
from verifier_server.judging.compare import compare_outputs, compare_values, is_comparable

VALUE_PRESETS = (Preset.EXACT, Preset.PYTHON_EQ, Preset.EVALPLUS)
OUTPUT_PRESETS = (Preset.EXACT, Preset.STDIN_TOKENS, Preset.STDIN_LINES)
_TRUE = b"T"


def read_output(run: CaseRun, mode: Mode) -> bytes | None:
    """Return what a run gave: its value, or its standard output; None if it did not complete."""
    if run.outcome is not Outcome.COMPLETED:
        return None
    return run.value if mode is Mode.CALL else run.stdout


def read_expected(comparator: Comparator, run: CaseRun, mode: Mode) -> bytes | None:
    """Return what a run of the reference gave, or None if nothing can be compared with it."""
    output = read_output(run, mode)
    if output is not None and mode is Mode.CALL and not is_comparable(comparator, output):
        return None
    return output


def judge_case(comparator: Comparator, expected: bytes | None, run: CaseRun, mode: Mode) -> Verdict:
    """Compare a run of the candidate with what was expected; None means there is nothing to compare with."""
    if expected is None:
        return Verdict.UNJUDGED
    output = read_output(run, mode)
    if output is None:
        return Verdict.FAILED
    compare = compare_values if mode is Mode.CALL else compare_outputs
    return Verdict.CORRECT if compare(comparator, expected, output) else Verdict.WRONG


def judge_by_checker(run: CaseRun, answers: list[CaseRun], mode: Mode) -> Verdict:
    """A checker must return True in every one of its runs; all else, its own failures included, is not a pass.

    A failing checker counts against the candidate: its output is what the checker failed on.
    """
    if read_output(run, mode) is None:
        return Verdict.FAILED
    accepted = bool(answers) and all(a.outcome is Outcome.COMPLETED and a.value == _TRUE for a in answers)
    return Verdict.CORRECT if accepted else Verdict.WRONG


def make_checker_input(positional: bytes, stdin: bytes, output: bytes, expected: bytes | None, mode: Mode) -> bytes:
    """Return the positional arguments of `check(arguments, output, expected)` as a canonical tuple."""
    if mode is Mode.CALL:
        items = [positional, output, b"N" if expected is None else expected]
    else:
        items = [codec.encode_bytes(data) for data in (stdin, output)]
        items.append(b"N" if expected is None else codec.encode_bytes(expected))
    return codec.encode_sequence(b"U", items)


def report_script(run: CaseRun) -> ScriptReport:
    """Say how far an assert-style script came."""
    status = {Outcome.COMPLETED: ScriptStatus.FINISHED, Outcome.NO_RESULT: ScriptStatus.NO_RESULT}
    return ScriptReport(status=status.get(run.outcome, ScriptStatus.FAILED), run=run)
