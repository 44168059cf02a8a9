"""From a model's text to a proposal or an answer, strictly. Programs are cut out as text and never parsed here."""

import re

from trainer.domain import FormatError, Problem, Proposal, TaskKind

_BLOCK = re.compile(r"^```(\w+)[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


def find_blocks(text: str) -> dict[str, list[str]]:
    """Return the contents of all closed fenced blocks by label."""
    blocks: dict[str, list[str]] = {}
    for label, content in _BLOCK.findall(text):
        blocks.setdefault(label, []).append(content.rstrip("\n"))
    return blocks


def parse_proposal(text: str, kind: TaskKind, *, finish_reason: str, num_cases: int) -> Proposal | FormatError:
    """Return the proposal in a teacher's completion: exactly one ```python and one ```input block."""
    if finish_reason == "length":
        return FormatError.TRUNCATED
    blocks = find_blocks(text)
    programs, inputs = blocks.get("python", []), blocks.get("input", [])
    if len(programs) > 1 or len(inputs) > 1:
        return FormatError.REPEATED_BLOCK
    if not programs or not programs[0].strip():
        return FormatError.NO_PROGRAM
    if not inputs:
        return FormatError.NO_INPUT
    arguments: tuple[str, ...] = (inputs[0].strip(),)
    if kind is TaskKind.INDUCTION:
        arguments = tuple(dict.fromkeys(line.strip() for line in inputs[0].splitlines() if line.strip()))
        if len(arguments) < num_cases:
            return FormatError.TOO_FEW_INPUTS
    return Proposal(kind=kind, program=programs[0], arguments=arguments[:16])


def parse_answer(text: str, problem: Problem, *, finish_reason: str) -> str | FormatError:
    """Return the answer text in a student's completion: exactly one block of the label the task asks for."""
    if finish_reason == "length":
        return FormatError.TRUNCATED
    label, missing = {
        TaskKind.DEDUCTION: ("output", FormatError.NO_OUTPUT),
        TaskKind.ABDUCTION: ("input", FormatError.NO_INPUT),
        TaskKind.INDUCTION: ("python", FormatError.NO_PROGRAM),
    }[problem.kind]
    answers = find_blocks(text).get(label, [])
    if len(answers) > 1:
        return FormatError.REPEATED_BLOCK
    if not answers or (label == "python" and not answers[0].strip()):
        return missing
    return answers[0]
