"""All valid problems of a run: references for proposals, filling for batches, memory of what is known."""

import random
from collections.abc import Iterable, Sequence

from trainer.domain import Problem, TaskKind


class ProblemBuffer:
    """Keeps the newest `capacity` problems; seeds are problems like others and leave first."""

    def __init__(
        self, problems: Iterable[Problem], *, capacity: int, known: Iterable[tuple[TaskKind, str]] = ()
    ) -> None:
        self._capacity = capacity
        self._problems: list[Problem] = []
        self._known = set(known)
        self.extend(problems)

    def __len__(self) -> int:
        return len(self._problems)

    @property
    def problems(self) -> Sequence[Problem]:
        """All problems, oldest first."""
        return self._problems

    @property
    def known(self) -> list[tuple[TaskKind, str]]:
        """Kind and syntax-tree hash of every problem that ever was in the buffer, sorted."""
        return sorted(self._known)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Add problems; beyond the capacity the oldest leave (what is known stays known)."""
        for problem in problems:
            self._problems.append(problem)
            self._known.add((problem.kind, problem.ast_hash))
        del self._problems[: max(0, len(self._problems) - self._capacity)]

    def knows(self, kind: TaskKind, ast_hash: str) -> bool:
        """Whether a program with this syntax tree was a problem of this kind before."""
        return (kind, ast_hash) in self._known

    def draw(self, kind: TaskKind, count: int, generator: random.Random) -> list[Problem]:
        """Draw up to `count` distinct problems of a kind."""
        candidates = [problem for problem in self._problems if problem.kind is kind]
        return generator.sample(candidates, min(count, len(candidates)))

    def draw_references(self, count: int, generator: random.Random) -> list[str]:
        """Draw up to `count` distinct programs."""
        programs = list(dict.fromkeys(problem.program for problem in self._problems))
        return generator.sample(programs, min(count, len(programs)))
