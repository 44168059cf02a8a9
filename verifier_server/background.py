"""Work that would hold up the event loop goes to a thread; small work stays, because a thread costs more than it."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

_SMALL = 8 << 10

Result = TypeVar("Result")


async def off_loop(size: int, function: Callable[..., Result], *arguments: object) -> Result:
    """Call a pure function; `size` is the number of bytes or characters that it works on."""
    if size < _SMALL:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)
