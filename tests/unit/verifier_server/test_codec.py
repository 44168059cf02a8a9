"""The canonical encoding: round trip, uniqueness, and hostile bytes."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import values
from verifier_server.judging import codec, literals

BIG = 1 << 20


def encode_or_reject(value: object) -> bytes:
    """A dict with two NaN keys is the one value of accepted types without a canonical form."""
    try:
        return codec.encode(value, BIG)
    except codec.EncodingError:
        from hypothesis import reject

        return reject()


@given(values)
@settings(deadline=None)
def test_every_value_survives_the_round_trip(value: object) -> None:
    data = encode_or_reject(value)
    codec.check(data, max_bytes=BIG)
    assert codec.encode(codec.decode(data), BIG) == data


@given(values)
@settings(deadline=None)
def test_the_rendered_literal_parses_back_to_the_same_bytes(value: object) -> None:
    data = encode_or_reject(value)
    assert literals.parse_value(literals.render(data)) == data


@given(st.binary(max_size=60))
def test_hostile_bytes_are_accepted_only_if_encoding_them_again_gives_the_same(data: bytes) -> None:
    try:
        codec.check(data, max_bytes=BIG)
    except codec.EncodingError:
        return
    try:
        value = codec.decode(data)
    except (OverflowError, TypeError):  # a range that Python cannot build
        return
    assert codec.encode(value, BIG) == data


@given(values, st.integers(0, 200), st.integers(0, 255))
@settings(deadline=None)
def test_a_changed_byte_is_refused_or_another_value(value: object, position: int, byte: int) -> None:
    data = encode_or_reject(value)
    changed = bytearray(data)
    changed[position % len(data)] = byte
    try:
        codec.check(bytes(changed), max_bytes=BIG)
    except codec.EncodingError:
        return
    assert bytes(changed) == data or literals.render(bytes(changed)) != literals.render(data)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (1, 1.0), (0.0, -0.0), ([1], (1,)), ("1", b"1"), ({1}, frozenset({1})), (0, False), (None, 0)],
)
def test_values_that_python_confuses_have_different_encodings(one: object, other: object) -> None:
    assert codec.encode(one, BIG) != codec.encode(other, BIG)


def test_equal_values_have_equal_encodings() -> None:
    assert codec.encode({"b": 1, "a": 2}, BIG) == codec.encode({"a": 2, "b": 1}, BIG)
    assert codec.encode({3, 1, 2}, BIG) == codec.encode({2, 3, 1}, BIG)
    assert codec.encode(math.nan, BIG) == codec.encode(-math.nan, BIG)


class Sneaky(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class AlwaysEqual:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None


@pytest.mark.parametrize("value", [Sneaky(1), AlwaysEqual(), object(), len, iter([]), bytearray(b"x"), [Sneaky(2)]])
def test_only_exact_types_have_an_encoding(value: object) -> None:
    with pytest.raises(codec.EncodingError):
        codec.encode(value, BIG)


def test_depth_is_limited_on_both_sides() -> None:
    deep: object = 1
    for _ in range(codec.MAX_DEPTH):
        deep = [deep]
    data = codec.encode(deep, BIG)
    codec.check(data, max_bytes=BIG)
    with pytest.raises(codec.EncodingError):
        codec.encode([deep], BIG)
    with pytest.raises(codec.EncodingError):
        codec.check(b"L\1" + data, max_bytes=BIG)


def test_a_self_referential_list_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(codec.EncodingError):
        codec.encode(loop, BIG)


def test_a_value_over_the_limit_is_refused_before_it_is_built() -> None:
    with pytest.raises(codec.TooLargeError):
        codec.encode("x" * 10**7, 1000)
    with pytest.raises(codec.TooLargeError):
        codec.encode([0] * 10**6, 1000)
    with pytest.raises(codec.TooLargeError):
        codec.encode(1 << 10**6, 1000)


def test_integers_beyond_the_decimal_limit_work() -> None:
    data = codec.encode(10**5000, BIG)
    assert literals.render(data).startswith("0x")
    assert literals.parse_value(literals.render(data)) == data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"I",
        b"I\0\1\0",
        b"I\1\0",
        b"I\2\1\1",
        b"L\2N",
        b"NN",
        b"S\1\xff",
        b"D1234567",
        b"L\xff\xff\xff\xff\x0f",
        b"L\x80\0",
        b"E\2I\0\1\2I\0\1\1",
        b"E\2NN",
        b"E\1L\0",
        b"M\1L\0N",
        b"M\2NNNN",
        b"Q",
        b"RI\0\0I\0\1\1I\0\0",
        b"D\x7f\xf8\0\0\0\0\0\1",
        b"RNNN",
        b"E\1U\1L\0",
    ],
)
def test_bytes_that_are_not_canonical_are_refused(data: bytes) -> None:
    with pytest.raises(codec.EncodingError):
        codec.check(data, max_bytes=BIG)


def test_checking_is_linear_in_depth_times_size() -> None:
    """A wide tuple inside 60 frozensets: each level once, counted in reads instead of seconds."""
    data = codec.encode(tuple(range(2000)), BIG)
    for _ in range(60):
        data = codec.encode_set(b"Z", [data])
    reads = 0
    original = codec.Reader.take

    def count(self: codec.Reader, size: int) -> bytes:
        nonlocal reads
        reads += 1
        return original(self, size)

    codec.Reader.take = count
    try:
        codec.check(data, max_bytes=BIG)
    finally:
        codec.Reader.take = original
    assert reads < 5 * 2000 + 1000  # tag, sign, length, magnitude of each int, and some per level
