"""CRUXEval: are its 800 facts confirmed, and do we reach its published verdicts on a model's answers?

Part 1. Every row is a program, arguments and the value it returns. Rows whose arguments are literals run with these as
data; the rest, with lambdas or expressions in their arguments, through a generated function without parameters inside
of the program text. Values are compared by Python's ==, as CRUXEval does. A spoilt expected value must be WRONG.

Part 2. 4,225 distinct answers of CodeLlama-7B with the verdicts that CRUXEval published. CRUXEval runs
`assert output == answer` after the program, so answers are expressions: they run in a jail as the body of a generated
function, and the value is compared by Python's ==. The same answers as data (JudgeAnswer, exact types) are compared,
too: that is what training uses.

    python -m benchmarks.cruxeval --data FOLDER
"""

import ast
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from populora.verifier import RequestRefusedError, VerifierClient
from populora.verifier.v1 import verifier_pb2 as pb

from benchmarks import harness

_PYTHON_EQ = pb.Comparator(preset=pb.Comparator.PRESET_PYTHON_EQ)
_LIMITS = pb.Limits(cpu_time_s=3)
C, W, M = pb.VERDICT_CORRECT, pb.VERDICT_WRONG, pb.VERDICT_MALFORMED


@dataclass(frozen=True)
class Fact:
    """What came out for one row of the data set."""

    name: str
    as_data: bool
    verdict: int
    spoilt_verdict: int
    detail: str


def confirm(client: VerifierClient, row: dict[str, Any]) -> Fact:
    """Judge a row and a spoilt copy of it."""
    expected = pb.Value(literal=row["output"])
    spoilt = pb.Value(literal=repr(spoil(ast.literal_eval(row["output"]))))
    try:
        verdicts = [run(client, row["code"], value, "f", row["input"]) for value in (expected, spoilt)]
        as_data = True
    except RequestRefusedError:  # the arguments are no literals
        program = make_expression_program(row["code"], f"f({row['input']})")
        verdicts = [run(client, program, value) for value in (expected, spoilt)]
        as_data = False
    return Fact(row["id"], as_data, verdicts[0][0], verdicts[1][0], f"{row['input']}: {verdicts[0][1]}")


def spoil(value: Any) -> Any:
    """Return a wrong value of the same kind: flipped, one more, one longer."""
    if isinstance(value, bool):
        return not value
    if value is None:
        return 0
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, bytes):
        return value + b"x"
    if isinstance(value, dict):
        return {**value, "spoilt": 0}
    return value | {"spoilt"} if isinstance(value, set) else type(value)([*value, 0])


def make_expression_program(code: str, expression: str) -> str:
    """Return a program whose function `answer` evaluates the expression after `code`."""
    return f"{code}\n\ndef answer():\n    return (\n{expression}\n    )\n"


def run(
    client: VerifierClient, program: str, expected: pb.Value, entry_point: str = "answer", arguments: str = ""
) -> tuple[int, str]:
    """Compare what the entry point returns by Python's ==; returns verdict and outcome."""
    response = client.run_cases(
        pb.RunCasesRequest(
            program=program.encode("utf-8", "surrogatepass"),
            entry_point=entry_point,
            cases=[pb.TestCase(arguments=arguments, expected=expected)],
            comparator=_PYTHON_EQ,
            limits=_LIMITS,
        )
    )
    result = response.cases[0].result
    return response.verdict, f"{pb.Outcome.Name(result.outcome)} {result.exception}"


@dataclass(frozen=True)
class Judgement:
    """Our verdicts on a model's answer beside the published one."""

    row: dict[str, Any]
    ours: bool
    as_data: int
    detail: str


def judge(client: VerifierClient, row: dict[str, Any], fact: dict[str, Any]) -> Judgement:
    """Judge a model's answer as CRUXEval does, and as data."""
    answer, expected = row["generation"], pb.Value(literal=fact["output"])
    as_data = _judge_as_data(client, row, fact, expected)
    if row["mode"] == "input" and "f(" not in answer:
        return Judgement(row, False, as_data, "no call of f")
    if row["mode"] == "output" and f"f({fact['input']})" in answer:
        return Judgement(row, False, as_data, "repeats the call")
    verdict, detail = run(client, make_expression_program(fact["code"], answer), expected)
    return Judgement(row, verdict == C, as_data, detail)


def _judge_as_data(client: VerifierClient, row: dict[str, Any], fact: dict[str, Any], expected: pb.Value) -> int:
    answer = row["generation"].strip()
    if row["mode"] == "output":
        return client.judge_deduction(expected, answer).verdict
    arguments = answer.removeprefix("f(").removesuffix(")") if answer.startswith("f(") else answer
    return client.judge_abduction(fact["code"], expected, arguments, limits=_LIMITS).verdict


def _explain(found: Judgement) -> str:
    """Say why the answer as data differs from the published verdict."""
    if found.as_data == M:
        return "an expression, not a literal"
    if found.row["mode"] == "output" and found.as_data == W:
        return "equal by ==, of another type"
    if found.as_data == W:
        return "returns an equal value of another type"
    if found.as_data == C and "f(" not in found.row["generation"]:
        return "right arguments without the call, which CRUXEval does not accept"
    return f"other: {pb.Verdict.Name(found.as_data)}"


def report_facts(facts: list[Fact]) -> dict[str, object]:
    """Print what is not as it should be and return the figures of part 1."""
    bad = [f for f in facts if f.verdict != C or f.spoilt_verdict != W]
    harness.print_table(
        "CRUXEval: rows that are not confirmed, or whose spoilt value passes",
        ("row", "verdict", "spoilt", "detail"),
        [(f.name, pb.Verdict.Name(f.verdict), pb.Verdict.Name(f.spoilt_verdict), f.detail) for f in bad],
    )
    harness.print_table(
        "CRUXEval: rows through a generated function",
        ("row", "arguments"),
        [(f.name, f.detail) for f in facts if not f.as_data],
    )
    return {
        "rows": len(facts),
        "confirmed": sum(f.verdict == C for f in facts),
        "as_data": sum(f.as_data and f.verdict == C for f in facts),
        "spoilt_correct": sum(f.spoilt_verdict == C for f in facts),
    }


def report_judgements(judgements: Iterable[Judgement]) -> dict[str, object]:
    """Print the differences and return the figures of part 2."""
    judgements = list(judgements)
    different = [j for j in judgements if j.ours != j.row["correct"]]
    harness.print_table(
        "CRUXEval: verdicts that differ from the published ones",
        ("row", "mode", "answer", "published", "ours", "detail"),
        [(j.row["id"], j.row["mode"], j.row["generation"][:80], j.row["correct"], j.ours, j.detail) for j in different],
    )
    as_data = [j for j in judgements if (j.as_data == C) != j.row["correct"]]
    harness.print_table(
        "CRUXEval: why exact judgement as data differs from the published verdicts",
        ("mode", "published", "as data", "reason", "rows"),
        [
            (*key, n)
            for key, n in Counter(
                (j.row["mode"], j.row["correct"], pb.Verdict.Name(j.as_data), _explain(j)) for j in as_data
            ).most_common()
        ],
    )
    return {
        "answers": len(judgements),
        "equal_to_published": len(judgements) - len(different),
        "different": len(different),
        "as_data_equal": len(judgements) - len(as_data),
        "as_data_accepted_although_published_wrong": sum(not j.row["correct"] for j in as_data),
    }


def main() -> None:
    """Run the benchmark."""
    options = harness.make_parser(__doc__).parse_args()
    rows = harness.read_rows(harness.find_data(options, "cruxeval/cruxeval.jsonl"), options.limit)
    path = harness.find_data(options, "model_programs/cruxeval_codellama7b_scored.jsonl.gz")
    by_name = {row["id"]: row for row in rows}
    answers = [row for row in harness.read_rows(path) if row["id"] in by_name][: options.limit]
    with (
        harness.open_verifier(options.address) as verifier,
        VerifierClient(verifier.address, timeout_s=600, patience_s=600) as client,
    ):
        workers = 2 * client.server_info().slots
        facts = harness.map_parallel(lambda row: confirm(client, row), rows, workers=workers, title="rows")
        judgements = harness.map_parallel(
            lambda row: judge(client, row, by_name[row["id"]]), answers, workers=workers, title="answers"
        )
    figures = {**report_facts(facts), **report_judgements(judgements)}
    harness.print_result(benchmark="cruxeval", **figures)


if __name__ == "__main__":
    main()
