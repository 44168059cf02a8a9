"""Tasks that models wrote in another self-play project: which does our validation accept, and why not the others?

The three files are seeds of Absolute Zero (github.com/LeapLabTHU/Absolute-Zero-Reasoner, data/): programs with
arguments and the outputs that its executor recorded. A row passes here if the task is valid and every recorded output,
read as a literal, equals the value that we found.

    python -m benchmarks.selfplay_tasks --data FOLDER
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from populora.verifier import RequestRefusedError, VerifierClient
from populora.verifier.v1 import verifier_pb2 as pb

from benchmarks import harness

_FILES = ("azr_3b_coder_code_f_seed_io", "azr_3b_coder_seed_io", "azr_llama_64_seed_io")


@dataclass(frozen=True)
class Examined:
    """What came out for one row."""

    file: str
    number: int
    reason: str
    detail: str


def examine(client: VerifierClient, file: str, number: int, row: dict[str, Any]) -> Examined:
    """Validate a row and compare its recorded outputs."""
    arguments = row["inputs"] if "inputs" in row else [row["input"]]
    outputs = row["outputs"] if "outputs" in row else [row["output"]]
    response = client.validate_task(_make_program(row), arguments)
    if not response.valid:
        reason = ", ".join(pb.Reason.Name(r).removeprefix("REASON_").lower() for r in response.reasons)
        return Examined(file, number, reason, response.detail)
    for result, output in zip(response.results, outputs, strict=True):
        found = f"recorded {output[:60]!r}, found {result.value.literal[:60]!r}"
        verdict = _compare(client, result.value, output)
        if verdict == pb.VERDICT_MALFORMED:
            return Examined(file, number, "recorded output is not a literal", found)
        if verdict != pb.VERDICT_CORRECT:
            return Examined(file, number, "recorded output is another value", found)
    return Examined(file, number, "", "")


def _make_program(row: dict[str, Any]) -> str:
    """Some rows keep their imports apart from the program."""
    missing = [line for line in row.get("imports") or [] if line not in row["snippet"]]
    return "\n".join([*missing, row["snippet"]])


def _compare(client: VerifierClient, value: pb.Value, output: str) -> int:
    try:
        return client.judge_deduction(value, output).verdict
    except RequestRefusedError:
        return pb.VERDICT_MALFORMED


def main() -> None:
    """Run the benchmark."""
    options = harness.make_parser(__doc__).parse_args()
    rows = [
        (file, number, row)
        for file in _FILES
        for number, row in enumerate(
            harness.read_rows(harness.find_data(options, f"model_programs/{file}.jsonl.gz"), options.limit)
        )
    ]
    with (
        harness.open_verifier(options.address) as verifier,
        VerifierClient(verifier.address, timeout_s=600, patience_s=600) as client,
    ):
        slots = client.server_info().slots
        found = harness.map_parallel(lambda item: examine(client, *item), rows, workers=slots, title="rows")
    rejected = [e for e in found if e.reason]
    harness.print_table(
        "rows that are not accepted",
        ("file", "row", "reason", "detail"),
        [(e.file, e.number, e.reason, e.detail) for e in rejected],
    )
    counts = Counter((e.file, e.reason) for e in rejected)
    harness.print_table(
        "by reason", ("file", "reason", "rows"), [(file, reason, n) for (file, reason), n in sorted(counts.items())]
    )
    harness.print_result(
        benchmark="selfplay_tasks",
        rows=len(found),
        accepted=len(found) - len(rejected),
        rejected=dict(Counter(e.reason for e in rejected)),
    )


if __name__ == "__main__":
    main()
