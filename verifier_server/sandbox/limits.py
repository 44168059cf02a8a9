"""The limits table: defaults, maxima, and the check that turns a request's numbers into `Limits`."""

import math
from collections.abc import Mapping

from verifier_server.domain import Limits
from verifier_server.errors import InvalidRequestError

MIB = 1 << 20

# name: (default, minimum, maximum). A default of None is computed from the others.
TABLE: dict[str, tuple[float | None, float, float]] = {
    "cpu_time_s": (5.0, 0.01, 60.0),
    "wall_time_s": (None, 0.01, 180.0),
    "memory_bytes": (512 * MIB, 32 * MIB, 4096 * MIB),
    "processes": (32, 1, 128),
    "tmp_bytes": (32 * MIB, 4096, 256 * MIB),
    "output_bytes": (64 << 10, 1, 16 * MIB),
    "value_bytes": (16 << 10, 1, 32 * MIB),
}

MAX_PROGRAM_BYTES = 1 * MIB
MAX_STDIN_BYTES = 16 * MIB
MAX_ARGUMENT_BYTES = 1 * MIB
MAX_CASES = 100
MAX_TEST_CASES = 2000
MAX_RUNS = 64
DEFAULT_DRAWS, MAX_DRAWS = 48, 1000
MAX_MESSAGE_BYTES = 64 * MIB
MAX_RESPONSE_VALUES_BYTES = 32 * MIB


def resolve(values: Mapping[str, float]) -> Limits:
    """Fill in defaults (for zero or missing) and check ranges.

    Raises:
        InvalidRequestError: a value out of range, not finite, or a /tmp not below the memory limit.
    """
    resolved = {name: _resolve_one(name, values.get(name, 0)) for name in TABLE}
    if not values.get("wall_time_s"):
        resolved["wall_time_s"] = min(180.0, max(2.0, 3 * resolved["cpu_time_s"]))
    if not values.get("tmp_bytes"):
        resolved["tmp_bytes"] = min(resolved["tmp_bytes"], resolved["memory_bytes"] / 2)
    if resolved["tmp_bytes"] >= resolved["memory_bytes"]:
        raise InvalidRequestError(
            f"limits.tmp_bytes = {resolved['tmp_bytes']:.0f} must be below memory_bytes "
            f"= {resolved['memory_bytes']:.0f}"
        )
    return Limits(
        cpu_time_s=resolved["cpu_time_s"],
        wall_time_s=resolved["wall_time_s"],
        memory_bytes=int(resolved["memory_bytes"]),
        processes=int(resolved["processes"]),
        tmp_bytes=int(resolved["tmp_bytes"]),
        output_bytes=int(resolved["output_bytes"]),
        value_bytes=int(resolved["value_bytes"]),
    )


def _resolve_one(name: str, value: float) -> float:
    default, low, high = TABLE[name]
    if value == 0:
        return default or 0.0
    if not math.isfinite(value) or not low <= value <= high:
        raise InvalidRequestError(f"limits.{name} = {value:g} is outside {low:g} to {high:g}")
    return value
