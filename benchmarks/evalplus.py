"""HumanEval+ and MBPP+: do reference solutions pass, and do wrong variants of them fail?

Every reference solution is scored on all cases of its task against itself as the reference (two jails, compared
outside), then variants of it that spoil the returned value: bool flipped, number + 1, string + 'x', container one
element longer or shorter, None to 0. A variant that passes is compared again exactly: if it never differs from the
reference it is listed and not counted (say, 1e300 + 1).

    python -m benchmarks.evalplus --data FOLDER

Rules of comparison are those of EvalPlus (evalplus/eval, v0.3): the task's tolerance, set equality for eight tasks, "is
it None" for three, a checker for HumanEval/32. Its allowances for Mbpp/164 and /295 (always True, always 0) are not
taken over.
"""

import argparse
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from populora.verifier import VerifierClient
from populora.verifier.v1 import verifier_pb2 as pb

from benchmarks import harness

# Evaluation limits: a reference may need more than a training task.
LIMITS = pb.Limits(cpu_time_s=30, wall_time_s=60, memory_bytes=2 << 30, value_bytes=32 << 20, output_bytes=1 << 20)
_FILES = {
    "HumanEval+": "humaneval_plus/HumanEvalPlus.jsonl.gz",
    "MBPP+": "mbpp_plus/MbppPlus.jsonl.gz",
}
_AS_SETS = {2, 7, 111, 140, 232, 249, 579, 769}
_NOT_NONE = {"check_str", "text_match_three", "text_starta_endb"}
_ROOT_CHECKER = b"""
import math
def check(arguments, output, expected):
    (coefficients,) = arguments
    return abs(sum(c * math.pow(output, i) for i, c in enumerate(coefficients))) <= 1e-4
"""
_LIMIT_OUTCOMES = {
    pb.OUTCOME_CPU_TIMEOUT,
    pb.OUTCOME_WALL_TIMEOUT,
    pb.OUTCOME_MEMORY_LIMIT,
    pb.OUTCOME_VALUE_LIMIT,
    pb.OUTCOME_OUTPUT_LIMIT,
}
_SPOILER = """

def spoilt(*args, **kwargs):
    value = {entry}(*args, **kwargs)
    longer = {longer}
    if isinstance(value, bool):
        return not value
    if value is None:
        return 0
    if isinstance(value, (int, float, complex)):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, (list, tuple)):
        return value + type(value)([0]) if longer or not value else value[:-1]
    if isinstance(value, (set, frozenset)):
        return value | {{"spoilt"}} if longer or not value else value - {{next(iter(value))}}
    if isinstance(value, dict):
        return {{**value, "spoilt": 0}} if longer or not value else dict(list(value.items())[:-1])
    return None
"""


@dataclass(frozen=True)
class Task:
    """A reference solution with its inputs."""

    name: str
    program: str
    entry_point: str
    arguments: list[str]
    comparator: pb.Comparator


@dataclass(frozen=True)
class Finding:
    """What came out for one task."""

    task: Task
    verdict: int
    unjudged: tuple[tuple[int, int], ...]
    cases: int
    accepted_variants: tuple[str, ...]
    equal_variants: tuple[str, ...]
    failure: str

    @property
    def is_good(self) -> bool:
        """Whether the reference is right wherever it keeps the limits, and somewhere it does."""
        return not self.failure and self.cases > len(self.unjudged)


# --- MBPP+ stores tuples, sets and complex numbers as JSON; where they belong is known per task (evalplus/data/mbpp.py)


def _tuples(depth: int) -> Callable[[Any], Any]:
    """Turn the lists at `depth` below a value into tuples."""
    if depth == 0:
        return lambda value: tuple(value) if isinstance(value, list) else value
    inner = _tuples(depth - 1)
    return lambda value: [inner(item) for item in value]


def _all_tuples(value: Any) -> Any:
    return tuple(map(_all_tuples, value)) if isinstance(value, list) else value


def _first(change: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    return lambda arguments: [change(arguments[0]), *arguments[1:]]


def _every(change: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    return lambda arguments: [change(argument) for argument in arguments]


_Change = Callable[[list[Any]], list[Any]]
_CHANGES: dict[tuple[int, ...], _Change] = {
    (
        2,
        116,
        132,
        143,
        222,
        261,
        273,
        394,
        399,
        421,
        424,
        429,
        470,
        560,
        579,
        596,
        616,
        630,
        726,
        740,
        744,
        809,
    ): _every(_tuples(0)),
    (63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780): _every(_tuples(1)),
    (75, 413, 444, 753): _first(_tuples(1)),
    (106, 750): lambda arguments: [arguments[0], tuple(arguments[1])],
    (115,): lambda arguments: [[set(item) if isinstance(item, list) and item else {} for item in arguments[0]]],
    (124,): lambda arguments: [float(arguments[0]), complex(arguments[1])],
    (250, 405, 446, 617, 720, 763, 808): _first(_tuples(0)),
    (259, 401, 445): lambda arguments: [tuple(_tuples(1)(argument)) for argument in arguments],
    (278,): lambda arguments: [tuple(_tuples(1)(arguments[0]))],
    (307,): _first(_tuples(0)),
    (722,): _first(lambda table: {key: tuple(value) for key, value in table.items()}),
    (252,): lambda arguments: [complex(arguments[0])],
    (580, 615, 791): _every(_all_tuples),
}
_CHANGE_OF_TASK = {number: change for numbers, change in _CHANGES.items() for number in numbers}


def read_tasks(options: argparse.Namespace, name: str) -> list[Task]:
    """Read a data set; HumanEval+ programs are prompt and solution together."""
    rows = harness.read_rows(harness.find_data(options, _FILES[name]), options.limit)
    return [_read_task(row) for row in rows]


def _read_task(row: dict[str, Any]) -> Task:
    kind, number = row["task_id"].split("/")
    change = _CHANGE_OF_TASK.get(int(number), list) if kind == "Mbpp" else list
    inputs = [change(arguments) for arguments in itertools.chain(row["base_input"] or [], row["plus_input"] or [])]
    program = row["canonical_solution"] if kind == "Mbpp" else row["prompt"] + row["canonical_solution"]
    return Task(
        name=row["task_id"],
        program=program,
        entry_point=row["entry_point"],
        arguments=[", ".join(map(repr, arguments)) for arguments in inputs],
        comparator=_make_comparator(row, kind, int(number)),
    )


def _make_comparator(row: dict[str, Any], kind: str, number: int) -> pb.Comparator:
    if (kind, number) == ("HumanEval", 32):
        return pb.Comparator(checker=_ROOT_CHECKER)
    return pb.Comparator(
        preset=pb.Comparator.PRESET_EVALPLUS,
        absolute_tolerance=row["atol"],
        as_sets=kind == "Mbpp" and number in _AS_SETS,
        not_none=kind == "Mbpp" and row["entry_point"] in _NOT_NONE,
    )


# --- scoring ---------------------------------------------------------------------------------------------


def examine(client: VerifierClient, task: Task) -> Finding:
    """Score the reference solution and its spoilt variants."""
    response = client.run_cases(_make_request(task, task.program, task.entry_point, task.comparator))
    unjudged = [(i, c.reference_outcome) for i, c in enumerate(response.cases) if c.verdict == pb.VERDICT_UNJUDGED]
    failures = [c for c in response.cases if c.verdict in (pb.VERDICT_WRONG, pb.VERDICT_FAILED)]
    accepted: list[str] = []
    equal: list[str] = []
    for longer in (True, False):
        program = task.program + _SPOILER.format(entry=task.entry_point, longer=longer)
        if _passes(client, task, program, task.comparator):
            exact = pb.Comparator(preset=pb.Comparator.PRESET_PYTHON_EQ)
            (equal if _passes(client, task, program, exact) else accepted).append("longer" if longer else "shorter")
    broken = [c for c in response.cases if c.reference_outcome and c.reference_outcome not in _LIMIT_OUTCOMES]
    first = failures[0].result if failures else broken[0].result if broken else None
    return Finding(
        task=task,
        verdict=response.verdict,
        unjudged=tuple(unjudged),
        cases=len(response.cases),
        accepted_variants=tuple(accepted),
        equal_variants=tuple(equal),
        failure=f"{pb.Outcome.Name(first.outcome)} {first.exception}" if first else "",
    )


def _passes(client: VerifierClient, task: Task, program: str, comparator: pb.Comparator) -> bool:
    request = _make_request(task, program, "spoilt", comparator)
    # The reference must be called by the same name.
    request.reference = f"{task.program}\n\nspoilt = {task.entry_point}\n".encode()
    request.stop_at_first_failure = True
    verdicts = {case.verdict for case in client.run_cases(request).cases}
    # Cases on which the reference exceeds the limits decide nothing.
    return pb.VERDICT_CORRECT in verdicts and not verdicts & {pb.VERDICT_WRONG, pb.VERDICT_FAILED}


def _make_request(task: Task, program: str, entry_point: str, comparator: pb.Comparator) -> pb.RunCasesRequest:
    return pb.RunCasesRequest(
        context=pb.RequestContext(run="benchmarks.evalplus", task_type=task.name),
        program=program.encode(),
        entry_point=entry_point,
        cases=[pb.TestCase(arguments=text) for text in task.arguments],
        reference=task.program.encode(),
        comparator=comparator,
        limits=LIMITS,
    )


def report(name: str, findings: list[Finding]) -> dict[str, object]:
    """Print the tables of a data set and return its figures."""
    unjudged = {f.task.name: f.unjudged for f in findings if f.unjudged}
    good = [f for f in findings if f.is_good]
    harness.print_table(
        f"{name}: cases that cannot be judged, because the reference itself exceeds the limits",
        ("task", "cases", "outcomes of the reference"),
        [
            (task, " ".join(str(i) for i, _ in cases), dict(Counter(pb.Outcome.Name(o) for _, o in cases)))
            for task, cases in unjudged.items()
        ],
    )
    harness.print_table(
        f"{name}: reference solutions that fail, and wrong variants that pass",
        ("task", "what"),
        [(f.task.name, f.failure) for f in findings if f.failure]
        + [(f.task.name, f"variant accepted: {v}") for f in findings for v in f.accepted_variants],
    )
    harness.print_table(
        f"{name}: variants that equal the reference on every case",
        ("task", "variant"),
        [(f.task.name, v) for f in findings for v in f.equal_variants],
    )
    return {
        "tasks": len(findings),
        "references_correct": len(good),
        "cases": sum(f.cases for f in findings),
        "unjudged_cases": sum(map(len, unjudged.values())),
        "wrong_variants_correct": sum(len(f.accepted_variants) for f in findings),
        "equal_variants": sum(len(f.equal_variants) for f in findings),
    }


def main() -> None:
    """Run the benchmark."""
    parser = harness.make_parser(__doc__)
    parser.add_argument("--only", help="one task, such as Mbpp/255")
    options = parser.parse_args()
    data = {name: read_tasks(options, name) for name in _FILES}
    figures: dict[str, object] = {}
    with (
        harness.open_verifier(options.address) as verifier,
        VerifierClient(verifier.address, timeout_s=1800, patience_s=600) as client,
    ):
        slots = client.server_info().slots
        for name, tasks in data.items():
            chosen = [task for task in tasks if options.only in (None, task.name)]
            # Long tasks first, so that no slot idles at the end.
            chosen.sort(key=lambda task: -len(task.arguments))
            found = harness.map_parallel(lambda task: examine(client, task), chosen, workers=slots, title=name)
            figures[name] = report(name, found)
    harness.print_result(benchmark="evalplus", **figures)


if __name__ == "__main__":
    main()
