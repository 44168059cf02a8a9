"""An engine that is started again when it dies, and then goes on with what it was asked."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from trainer.rollout.engine import AdapterVersion, Completion, Engine, EngineDiedError, GenerationRequest

_MAX_RESTARTS = 2  # per operation
Result = TypeVar("Result")


class RestartingEngine:
    """Implements `Engine` around another one.

    Args:
        engine: dies with EngineDiedError and knows after `restart` every adapter that was published.
        notice: told about every restart.
    """

    def __init__(self, engine: Engine, notice: Callable[[str], None]) -> None:
        self._engine = engine
        self._notice = notice

    def publish(self, adapter: AdapterVersion) -> None:
        """See `Engine.publish`."""
        self._repeat(lambda: self._engine.publish(adapter))

    def retire(self, adapter: AdapterVersion) -> None:
        """See `Engine.retire`."""
        self._repeat(lambda: self._engine.retire(adapter))

    def generate(self, requests: Sequence[GenerationRequest]) -> Iterator[tuple[int, list[Completion]]]:
        """See `Engine.generate`; after a restart only what was not answered is asked again."""
        owed = list(range(len(requests)))
        for restarts_left in range(_MAX_RESTARTS, -1, -1):
            indices = list(owed)
            try:
                for position, completions in self._engine.generate([requests[i] for i in indices]):
                    owed.remove(indices[position])
                    yield indices[position], completions
                return
            except EngineDiedError as error:
                self._restart(error, restarts_left)

    def sleep(self) -> None:
        """See `Engine.sleep`."""
        self._repeat(self._engine.sleep)

    def wake(self) -> None:
        """See `Engine.wake`."""
        self._repeat(self._engine.wake)

    def restart(self) -> None:
        """See `Engine.restart`."""
        self._engine.restart()

    def close(self) -> None:
        """See `Engine.close`."""
        self._engine.close()

    def _repeat(self, operation: Callable[[], None]) -> None:
        for restarts_left in range(_MAX_RESTARTS, -1, -1):
            try:
                return operation()
            except EngineDiedError as error:
                self._restart(error, restarts_left)
        return None

    def _restart(self, error: EngineDiedError, restarts_left: int) -> None:
        if not restarts_left:
            raise error
        self._notice(f"the engine died and is started again: {error}")
        self._engine.restart()
