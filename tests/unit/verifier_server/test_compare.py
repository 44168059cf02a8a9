"""When two outputs are equal, preset by preset."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import codable
from verifier_server.domain import Comparator, Preset
from verifier_server.judging import codec
from verifier_server.judging.compare import compare_outputs, compare_values, normalise

OPAQUE = b"O\1A"


def encode(value: object) -> bytes:
    return codec.encode(value, 1 << 20)


def equal(preset: Preset, expected: object, output: object, **rest: object) -> bool:
    return compare_values(Comparator(preset=preset, **rest), encode(expected), encode(output))


def has_no_nan(value: object) -> bool:
    return "nan" not in repr(value)


# --- python_eq -------------------------------------------------------------------------------------------


@given(codable, codable)
def test_python_eq_is_python_equality(one: object, other: object) -> None:
    if has_no_nan(one) and has_no_nan(other):
        assert equal(Preset.PYTHON_EQ, one, other) == (one == other)


@given(codable)
def test_every_preset_is_reflexive(value: object) -> None:
    for preset in (Preset.EXACT, Preset.PYTHON_EQ, Preset.EVALPLUS):
        assert equal(preset, value, value)


@given(codable, codable)
def test_presets_only_widen(one: object, other: object) -> None:
    if equal(Preset.EXACT, one, other):
        assert equal(Preset.PYTHON_EQ, one, other)
    if equal(Preset.PYTHON_EQ, one, other):
        assert equal(Preset.EVALPLUS, one, other)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (True, 1, True),
        (1, 1.0, True),
        (1.0, 1 + 0j, True),
        (0.0, -0.0, True),
        (-0.0 + 0j, 0, True),
        (complex(0.5, -0.0), 0.5, True),
        (2**53 + 1, float(2**53), False),  # Python compares ints and floats exactly
        (10**400, 1e308, False),
        ({1, 2}, frozenset([2, 1]), True),
        ({1: "a"}, {True: "a"}, True),
        ({1.0, 2}, {1, 2}, True),
        ([1], (1,), False),
        ("a", b"a", False),
        (1, "1", False),
        (None, False, False),
        (range(0), range(5, 5), True),
        (range(0, 3, 2), range(0, 4, 2), True),
        (range(3), [0, 1, 2], False),
        ([{1: {2.0}}], [{1.0: {2}}], True),
        (math.inf, math.inf, True),
        (math.inf, -math.inf, False),
    ],
)
def test_python_eq_by_example(one: object, other: object, same: bool) -> None:
    assert equal(Preset.PYTHON_EQ, one, other) is same


def test_nan_equals_nan_everywhere() -> None:
    for preset in (Preset.EXACT, Preset.PYTHON_EQ, Preset.EVALPLUS):
        assert equal(preset, [math.nan], [math.nan])


@pytest.mark.parametrize("preset", [Preset.PYTHON_EQ, Preset.EVALPLUS])
@pytest.mark.parametrize("output", [OPAQUE, b"L\1" + OPAQUE, b"M\1I\0\1\1" + OPAQUE])
def test_an_opaque_value_equals_nothing_not_even_itself(preset: Preset, output: bytes) -> None:
    for rest in ({}, {"as_sets": True}, {"absolute_tolerance": 1e9}):
        assert not compare_values(Comparator(preset=preset, **rest), output, output)


@given(codable)
def test_normalising_twice_changes_nothing(value: object) -> None:
    once = normalise(encode(value))
    if b"R" not in once:  # a normalised range is no range any more
        assert normalise(once) == once


# --- evalplus --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "output", "rest", "same"),
    [
        # expected is a float: |0.5 + 1e-6 - 0.5| = 1e-6 <= 1e-6 + 1e-7 x 0.5
        (0.5, 0.5 + 1e-6, {}, True),
        (0.5, 0.5 + 2e-6, {}, False),
        ([0.5, 1.5], [0.5, 1.5000001], {}, True),
        ((0.5, 1.5), [0.5, 1.5], {}, False),
        ([0.5, 1], [0.5, 1.0000001], {}, False),  # not all floats: no tolerance of its own
        ([0.5], [0.5, 0.5], {}, False),
        (1, 1.0000001, {}, False),
        # the task's own tolerance reaches into nested lists
        ([[1, 2.0], [3]], [[1.00005, 2.0], [3]], {"absolute_tolerance": 1e-4}, True),
        ([[1, 2.0], [3]], [[1.0002, 2.0], [3]], {"absolute_tolerance": 1e-4}, False),
        ([1, 2], [1, [2]], {"absolute_tolerance": 1e-4}, False),
        ("a", "b", {"absolute_tolerance": 1e9}, False),
        (1 + 1j, 1.00001 + 1j, {"absolute_tolerance": 1e-4}, True),
        (math.inf, math.inf, {"absolute_tolerance": 1e-4}, True),
        (math.inf, 1e308, {"absolute_tolerance": 1e-4}, False),
        (1.0, math.nan, {}, False),
        (10**400, 10**400 + 1, {"absolute_tolerance": 2.0}, True),
        (10**400, 10**400 + 3, {"absolute_tolerance": 2.0, "relative_tolerance": 1e-300}, True),
        (10**400, 2 * 10**400, {"absolute_tolerance": 2.0}, False),
        # not finite against beyond floats: once an exception, and a status in place of WRONG
        (10**400, math.inf, {"absolute_tolerance": 1e-6}, False),
        (10**400, math.nan, {"absolute_tolerance": 1e-6}, False),
        (10**400, complex(math.inf, math.nan), {"absolute_tolerance": 1e-6}, False),
        # EvalPlus wants equal types before it tolerates anything
        (2.0000001, 2, {}, False),
        (2.0, 2, {}, True),
        ([1, 2, 2], [2, 1], {"as_sets": True}, True),
        ([1, 2], (2, 1, 1.0), {"as_sets": True}, True),
        ([1, 2], [1, 2, 3], {"as_sets": True}, False),
        ([1], 1, {"as_sets": True}, False),
        ("x", 5, {"not_none": True}, True),
        (None, None, {"not_none": True}, True),
        (None, "x", {"not_none": True}, False),
        ("x", None, {"not_none": True}, False),
        ("x", False, {"not_none": True}, False),
        (None, False, {"not_none": True}, True),
    ],
)
def test_evalplus_by_example(expected: object, output: object, rest: dict, same: bool) -> None:
    assert equal(Preset.EVALPLUS, expected, output, **rest) is same


def test_an_object_counts_as_something() -> None:
    assert compare_values(Comparator(preset=Preset.EVALPLUS, not_none=True), OPAQUE, b"T")
    assert not compare_values(Comparator(preset=Preset.EVALPLUS, not_none=True), OPAQUE, b"N")


@given(
    codable | st.sampled_from([10**400, -(10**400), math.inf, math.nan]),
    codable | st.sampled_from([10**400, -(10**400), math.inf, math.nan]),
    st.sampled_from([Preset.PYTHON_EQ, Preset.EVALPLUS]),
    st.sampled_from([{}, {"absolute_tolerance": 1e-6}, {"absolute_tolerance": 1e300, "relative_tolerance": 1.0}]),
)
def test_comparing_never_raises(one: object, other: object, preset: Preset, rest: dict) -> None:
    for expected, output in ((one, other), ([one, OPAQUE], [other, 1.5])):
        assert equal(preset, expected, output, **rest) in (True, False)


# --- standard output -------------------------------------------------------------------------------------


def outputs(preset: Preset, expected: bytes, output: bytes, **rest: float) -> bool:
    return compare_outputs(Comparator(preset=preset, **rest), expected, output)


@pytest.mark.parametrize(
    ("expected", "output", "rest", "same"),
    [
        (b"1 2", b" 1\n2 \n", {}, True),
        (b"1", b"1.0", {}, False),
        (b"1", b"1.0", {"absolute_tolerance": 1e-9}, True),
        (b"0.5", b"0.5000001", {"absolute_tolerance": 1e-6}, True),
        (b"1e9", b"1000000100", {"relative_tolerance": 1e-6}, True),
        (b"1e9", b"1000010000", {"relative_tolerance": 1e-6}, False),
        (b"nan", b"NaN", {"absolute_tolerance": 1.0}, False),  # words, not numbers
        (b"yes", b"no", {"absolute_tolerance": 1e9}, False),
        (b"1_0", b"10", {"absolute_tolerance": 1.0}, False),
        (b"", b"  \n", {}, True),
        (b"", b"x", {}, False),
        (b"\xff", b"\xff", {}, True),
    ],
)
def test_tokens(expected: bytes, output: bytes, rest: dict, same: bool) -> None:
    assert outputs(Preset.STDIN_TOKENS, expected, output, **rest) is same


@given(st.lists(st.sampled_from([b"1", b"2", b"x"])), st.lists(st.sampled_from([b" ", b"\n", b"\t "]), min_size=1))
def test_white_space_never_matters_between_tokens(words: list[bytes], gaps: list[bytes]) -> None:
    spread = b"".join(word + gaps[i % len(gaps)] for i, word in enumerate(words))
    assert outputs(Preset.STDIN_TOKENS, b" ".join(words), spread)


@pytest.mark.parametrize(
    ("expected", "output", "same"),
    [(b"a\nb", b"a  \r\nb\n\n", True), (b"a\nb", b"a b", False), (b"a", b" a", False), (b"a\n\nb", b"a\nb", False)],
)
def test_lines(expected: bytes, output: bytes, same: bool) -> None:
    assert outputs(Preset.STDIN_LINES, expected, output) is same


# --- leniency of the codec ---------------------------------------------------------------------------------


def test_lenient_encoding_never_calls_what_a_class_overrides() -> None:
    class Int(int):
        def __int__(self) -> int:
            raise AssertionError

        __index__ = __eq__ = __hash__ = bit_length = __int__

    class Text(str):
        def __str__(self) -> str:
            return "other"

    class List(list):
        def __iter__(self) -> object:
            raise AssertionError

        __len__ = __iter__

    class Dict(dict):
        def items(self) -> object:
            raise AssertionError

        __iter__ = keys = __len__ = items

    for value, plain in ((Int(5), 5), (Text("x"), "x"), (List([Int(1)]), [1]), (Dict(a=Text("b")), {"a": "b"})):
        assert codec.encode(value, 999, lenient=True) == encode(plain)


def test_lenient_bytes_are_refused_where_leniency_is_not_asked_for() -> None:
    codec.check(OPAQUE, max_bytes=99, lenient=True)
    for data in (OPAQUE, b"L\1" + OPAQUE):
        with pytest.raises(codec.EncodingError):
            codec.check(data, max_bytes=99)
        with pytest.raises(codec.EncodingError):
            codec.decode(data)
