"""Model text to proposals and answers: strict."""

import pytest

from trainer.domain import FormatError, Problem, Proposal, TaskKind, Value
from trainer.rollout import prompts
from trainer.rollout.parsing import parse_answer, parse_proposal

D, A, IND = TaskKind.DEDUCTION, TaskKind.ABDUCTION, TaskKind.INDUCTION
PROGRAM = "def f(x):\n    return x"
GOOD = f"```python\n{PROGRAM}\n```\n```input\n3\n```"


def problem(kind: TaskKind, count: int = 4) -> Problem:
    values = tuple(Value("", str(i)) for i in range(count))
    return Problem(uid="p", kind=kind, program=PROGRAM, arguments=tuple(map(str, range(count))), values=values)


def propose(text: str, kind: TaskKind = D, finish: str = "stop") -> Proposal | FormatError:
    return parse_proposal(text, kind, finish_reason=finish, num_cases=2)


def test_a_proposal_is_cut_out_of_its_blocks() -> None:
    found = propose(GOOD)
    assert (found.program, found.arguments) == (PROGRAM, ("3",))


def test_words_around_the_blocks_do_not_matter() -> None:
    assert propose(f"Here it is:\n{GOOD}\nGood luck!") == propose(GOOD)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", FormatError.NO_PROGRAM),
        ("def f(x): return x", FormatError.NO_PROGRAM),
        ("```python\n\n```\n```input\n3\n```", FormatError.NO_PROGRAM),
        ("```\ndef f(x): return x\n```", FormatError.NO_PROGRAM),
        (f"```python\n{PROGRAM}\n```", FormatError.NO_INPUT),
        (f"```python\n{PROGRAM}\n```\n```input\n3", FormatError.NO_INPUT),
        (GOOD + "\n" + GOOD, FormatError.REPEATED_BLOCK),
        (GOOD + "\n```input\n4\n```", FormatError.REPEATED_BLOCK),
    ],
)
def test_anything_else_is_a_format_error(text: str, error: FormatError) -> None:
    assert propose(text) is error


def test_a_truncated_completion_is_an_error_whatever_it_says() -> None:
    assert propose(GOOD, finish="length") is FormatError.TRUNCATED
    assert parse_answer("```output\n0\n```", problem(D), finish_reason="length") is FormatError.TRUNCATED


def test_an_induction_proposal_needs_enough_distinct_inputs() -> None:
    text = f"```python\n{PROGRAM}\n```\n```input\n{{}}\n```"
    assert propose(text.format("1\n\n2"), IND).arguments == ("1", "2")
    assert propose(text.format("1\n1"), IND) is FormatError.TOO_FEW_INPUTS


def test_an_empty_input_block_means_no_arguments() -> None:
    assert propose("```python\ndef f(): return 1\n```\n```input\n```").arguments == ("",)


@pytest.mark.parametrize(
    ("kind", "text", "answer"),
    [
        (D, "```output\n[1,\n 2]\n```", "[1,\n 2]"),
        (A, "```input\n3, k=1\n```", "3, k=1"),
        (IND, f"```python\n{PROGRAM}\n```", PROGRAM),
    ],
)
def test_answers_are_cut_out_by_the_label_of_their_task(kind: TaskKind, text: str, answer: str) -> None:
    assert parse_answer(text, problem(kind), finish_reason="stop") == answer


@pytest.mark.parametrize(
    ("kind", "text", "error"),
    [
        (D, "3", FormatError.NO_OUTPUT),
        (D, "```input\n3\n```", FormatError.NO_OUTPUT),
        (A, "```output\n3\n```", FormatError.NO_INPUT),
        (IND, "```output\n3\n```", FormatError.NO_PROGRAM),
        (D, "```output\n1\n```\n```output\n2\n```", FormatError.REPEATED_BLOCK),
    ],
)
def test_answers_under_a_wrong_label_are_errors(kind: TaskKind, text: str, error: FormatError) -> None:
    assert parse_answer(text, problem(kind), finish_reason="stop") is error


@pytest.mark.parametrize("kind", list(TaskKind))
def test_what_the_warm_up_teaches_is_what_the_parser_accepts(kind: TaskKind) -> None:
    own = problem(kind)
    answer = parse_answer(prompts.write_answer(own), own, finish_reason="stop")
    assert answer == {D: "0", A: "0", IND: PROGRAM}[kind]
    proposal = Proposal(kind=kind, program=PROGRAM, arguments=own.arguments if kind is IND else own.arguments[:1])
    assert propose(prompts.write_proposal(proposal), kind) == proposal


def test_an_induction_question_hides_half_of_the_cases_and_the_program() -> None:
    question = prompts.ask_for_answer(problem(IND, 5))
    assert "f(0) == 0" in question
    assert "f(1) == 1" in question
    assert "f(2)" not in question
    assert "return x" not in question


def test_deduction_hides_the_output_and_abduction_the_input() -> None:
    secret = Problem(uid="p", kind=D, program=PROGRAM, arguments=("'IN'",), values=(Value("", "'OUT'"),))
    assert "OUT" not in prompts.ask_for_answer(secret)
    hidden = Problem(uid="p", kind=A, program=PROGRAM, arguments=("'IN'",), values=(Value("", "'OUT'"),))
    assert "IN" not in prompts.ask_for_answer(hidden).replace("Find", "")
