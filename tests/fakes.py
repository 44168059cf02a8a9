"""Stand-ins for the engine and the verifier, for tests of the loop only. Deterministic in what they are asked."""

import hashlib
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from trainer.domain import Grade, Problem, Proposal, TaskKind, Value
from trainer.rollout.engine import AdapterVersion, Completion, EngineError, GenerationRequest
from trainer.verification import Asker, Judgement, Validation

END = 2


class LetterChat:
    """A chat format over a tiny vocabulary: every character is one token."""

    def encode(self, question: str) -> tuple[int, ...]:
        return tuple(3 + ord(c) % 90 for c in question[-40:])

    def encode_answer(self, text: str) -> tuple[int, ...]:
        return (*self.encode(text), END)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Turn the sum of the tokens into a well-formed or malformed text, so that every grade occurs."""
        number = sum(token_ids)
        if number % 7 == 0:
            return "no block at all"
        program = f"```python\ndef f(x):\n    return x + {number % 50}\n```"
        inputs = "\n".join(str(number % 9 + i) for i in range(4))
        return f"{program}\n```input\n{inputs}\n```\n```output\n{number % 5}\n```"


class ScriptedEngine:
    """Samples tokens from a generator seeded by the requests and the served adapter."""

    def __init__(self) -> None:
        self.published: dict[int, AdapterVersion] = {}
        self.log: list[str] = []

    def publish(self, adapter: AdapterVersion) -> None:
        assert adapter.number not in self.published, "a number is never reused"
        self.published[adapter.number] = adapter
        self.log.append(f"+{adapter.name}")

    def retire(self, adapter: AdapterVersion) -> None:
        del self.published[adapter.number]
        self.log.append(f"-{adapter.name}")

    def generate(self, requests: Sequence[GenerationRequest]) -> Iterator[tuple[int, list[Completion]]]:
        results = []
        for index, request in enumerate(requests):
            if request.adapter is not None and request.adapter.number not in self.published:
                raise EngineError(f"{request.adapter.name} is not published")
            name = request.adapter.name if request.adapter else "base"
            seed = hashlib.sha256(f"{index} {name} {request.prompt_ids}".encode()).digest()
            generator = random.Random(seed)
            results.append((index, [self._sample(generator, request) for _ in range(request.num_samples)]))
        return iter(results[::-1])  # requests finish in any order

    def _sample(self, generator: random.Random, request: GenerationRequest) -> Completion:
        length = generator.randrange(2, min(12, request.max_tokens))
        tokens = (*(generator.randrange(3, 90) for _ in range(length)), END)
        return Completion(tokens, tuple(-4.5 for _ in tokens), "stop")

    def restart(self) -> None:
        self.log.append("restart")

    def sleep(self) -> None:
        self.log.append("sleep")

    def wake(self) -> None:
        self.log.append("wake")

    def close(self) -> None:
        self.published.clear()


class ScriptedVerification:
    """Judges by arithmetic on the text; questions whose number is in `lost` are not answered."""

    def __init__(self, *, lose_every: int = 0) -> None:
        self.retries = 0
        self.asked = 0
        self._lose_every = lose_every

    def _is_lost(self) -> bool:
        self.asked += 1
        return self._lose_every > 0 and self.asked % self._lose_every == 0

    def submit_proposal(self, proposal: Proposal, asker: Asker, *, runs: int = 0) -> Future:
        return self._answer(None if self._is_lost() else self._validate(proposal))

    def submit_answer(self, problem: Problem, answer: str, asker: Asker) -> Future:
        grades = (Grade.CORRECT, Grade.WRONG, Grade.MALFORMED)
        return self._answer(None if self._is_lost() else Judgement(grades[sum(map(ord, answer)) % 3], "made up"))

    def collect(self, futures: Sequence[Future]) -> list:
        return [future.result() for future in futures]

    def _answer(self, result: object) -> Future:
        future: Future = Future()
        future.set_result(result)
        return future

    def _validate(self, proposal: Proposal) -> Validation:
        number = sum(map(ord, proposal.program))
        if number % 5 == 0:
            return Validation(False, (), "", "run_failed: made up")
        values = tuple(Value(f"49000{1}0{number % 10}", str(number % 5)) for _ in proposal.arguments)
        return Validation(True, values, f"hash-{number}", "")


def make_seed_problems() -> list[Problem]:
    return [
        Problem(
            uid=f"seed-{kind}-{n}",
            kind=kind,
            program=f"def f(x):\n    return x * {n}",
            arguments=("1", "2", "3", "4"),
            values=tuple(Value("4900010" + str(i), str(i)) for i in range(4)),
            ast_hash=f"seed-{n}",
        )
        for kind in TaskKind
        for n in range(3)
    ]
