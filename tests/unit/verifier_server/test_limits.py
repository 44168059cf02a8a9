"""The limits table."""

import pytest

from verifier_server.errors import InvalidRequestError
from verifier_server.sandbox import limits


def test_defaults_are_as_documented() -> None:
    found = limits.resolve({})
    assert (found.cpu_time_s, found.wall_time_s) == (5.0, 15.0)  # max(2, 3 x 5)
    assert (found.memory_bytes, found.tmp_bytes) == (512 << 20, 32 << 20)
    assert (found.processes, found.output_bytes, found.value_bytes) == (32, 64 << 10, 16 << 10)


def test_the_wall_limit_follows_the_cpu_limit() -> None:
    assert limits.resolve({"cpu_time_s": 0.1}).wall_time_s == 2.0  # max(2, 0.3)
    assert limits.resolve({"cpu_time_s": 60}).wall_time_s == 180.0  # min(180, 180)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpu_time_s", 61),
        ("cpu_time_s", -1),
        ("cpu_time_s", float("nan")),
        ("wall_time_s", 181),
        ("memory_bytes", 1 << 20),
        ("memory_bytes", 64 << 30),
        ("memory_bytes", 2**63 - 1),
        ("processes", 129),
        ("processes", -5),
        ("tmp_bytes", 257 << 20),
        ("output_bytes", 17 << 20),
        ("value_bytes", 33 << 20),
    ],
)
def test_out_of_range_names_field_and_value(name: str, value: float) -> None:
    with pytest.raises(InvalidRequestError, match=name):
        limits.resolve({name: value})


def test_tmp_must_stay_below_memory() -> None:
    with pytest.raises(InvalidRequestError, match="tmp_bytes"):
        limits.resolve({"memory_bytes": 64 << 20, "tmp_bytes": 64 << 20})
