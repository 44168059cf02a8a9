"""What members are asked, in our own words, and the texts the warm-up teaches them to write.

Answers are fenced blocks with a label: ```python, ```input, ```output. Prompts are short on purpose: with a small
model on a CPU, reading an adapter's prompt costs more than writing the answer.
"""

from collections.abc import Sequence
from typing import Any

from trainer.domain import Problem, Proposal, TaskKind

SYSTEM = "You write and solve Python puzzles."

_PROPOSE = {
    TaskKind.DEDUCTION: "Invent a puzzle: a short deterministic function `f` in a ```python block, arguments for it in "
    "an ```input block. Someone must predict what f returns.",
    TaskKind.ABDUCTION: "Invent a puzzle: a short deterministic function `f` in a ```python block, arguments for it in "
    "an ```input block. Someone sees what f returns and must find arguments.",
    TaskKind.INDUCTION: "Invent a puzzle: a short deterministic function `f` in a ```python block, {count} lists of "
    "arguments for it, one per line, in an ```input block. Someone must write f from examples.",
}
_REFERENCE = " It must differ from:\n"
_ASK = {
    TaskKind.DEDUCTION: "What does f({arguments}) return?\n{program}\nAnswer with a Python literal in an ```output "
    "block.",
    TaskKind.ABDUCTION: "Find arguments for which f returns {value}.\n{program}\nAnswer with the arguments in an "
    "```input block.",
    TaskKind.INDUCTION: "Write a Python function f with\n{examples}\n{message}Answer with a ```python block.",
}


def make_block(label: str, text: str) -> str:
    """Return a fenced block."""
    return f"```{label}\n{text.strip(chr(10))}\n```"


def ask_for_proposal(kind: TaskKind, references: Sequence[str], *, num_cases: int) -> str:
    """Return what a teacher is asked; `references` are programs to differ from."""
    text = _PROPOSE[kind].format(count=num_cases)
    if references:
        text += _REFERENCE + "\n".join(make_block("python", program) for program in references)
    return text


def ask_for_answer(problem: Problem) -> str:
    """Return what a student is asked."""
    if problem.kind is TaskKind.INDUCTION:
        shown = range(count_shown(len(problem.arguments)))
        examples = "\n".join(f"f({problem.arguments[i]}) == {problem.values[i].literal}" for i in shown)
        message = f"{problem.message}\n" if problem.message else ""
        return _ASK[problem.kind].format(examples=examples, message=message)
    program = make_block("python", problem.program)
    if problem.kind is TaskKind.DEDUCTION:
        return _ASK[problem.kind].format(arguments=problem.arguments[0], program=program)
    return _ASK[problem.kind].format(value=problem.values[0].literal, program=program)


def count_shown(num_cases: int) -> int:
    """How many cases of an induction problem a student sees; the rest is hidden, at least one."""
    return max(1, num_cases // 2)


def write_proposal(proposal: Proposal) -> str:
    """Return the completion that states a proposal."""
    return make_block("python", proposal.program) + "\n" + make_block("input", "\n".join(proposal.arguments))


def write_answer(problem: Problem) -> str:
    """Return a completion that solves a problem."""
    if problem.kind is TaskKind.DEDUCTION:
        return make_block("output", problem.values[0].literal)
    if problem.kind is TaskKind.ABDUCTION:
        return make_block("input", problem.arguments[0])
    return make_block("python", problem.program)


_MARK = "QUESTION-GOES-HERE"


class ChatFormat:
    """Wraps a question in the model's own chat template and turns it into tokens."""

    def __init__(self, tokenizer: object) -> None:
        self._tokenizer = tokenizer

    def encode(self, question: str) -> tuple[int, ...]:
        """Return the token ids of a prompt that ends where the answer begins.

        The question holds other models' words, so it is encoded apart from the template: a program that spells
        control tokens in a comment must not end the turn.
        """
        tokenizer: Any = self._tokenizer
        if getattr(tokenizer, "chat_template", None):
            messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": _MARK}]
            frame = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            before, _, after = frame.partition(_MARK)
        else:
            before, after = f"{SYSTEM}\n\n", "\n\n"
        head, tail = (tokenizer.encode(text, add_special_tokens=False) for text in (before, after))
        body = tokenizer.encode(question, add_special_tokens=False, split_special_tokens=True)
        return (*head, *body, *tail)

    def encode_answer(self, text: str) -> tuple[int, ...]:
        """Return the token ids of an answer with its end token."""
        ids = self._tokenizer.encode(text, add_special_tokens=False)  # type: ignore[attr-defined]
        return (*ids, self._tokenizer.eos_token_id)  # type: ignore[attr-defined]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of a completion without special tokens."""
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=True)  # type: ignore[attr-defined]
        return text
