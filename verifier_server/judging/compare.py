"""When two outputs are equal: the presets of RunCases, on canonical bytes. Pure; nothing is hashed, built or called.

`PYTHON_EQ` normalises both encodings until Python's `==` is equality of bytes: True, 1, 1.0 and 1+0j become one
number, -0.0 becomes 0, frozenset becomes set, then sets and dicts are sorted anew. Departures from `==`, on purpose:
NaN equals NaN (two processes share no identity), and opaque values equal nothing, not even themselves.

`EVALPLUS` adds the tolerances of EvalPlus (evalplus/eval/__init__.py, v0.3): absolute 1e-6 and relative 1e-7 where
the expected value is a float or a list or tuple of floats, or the task's own absolute tolerance on numbers at the same
places of nested lists and tuples. Departure: containers must have the same type and shape at every level, not only at
the top.
"""

import cmath
import re
from dataclasses import dataclass
from fractions import Fraction

from verifier_server.domain import Comparator, Preset
from verifier_server.judging import codec

_EVALPLUS_ABSOLUTE, _EVALPLUS_RELATIVE = 1e-6, 1e-7
_NUMBER = re.compile(rb"[+-]?(\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][+-]?\d{1,5})?")
_NOTHING = (b"N", b"F")
_NUMBER_TAGS = b"TFIDC"


class _OpaqueError(Exception):
    """A value without a canonical form took part in a comparison."""


def compare_values(comparator: Comparator, expected: bytes, output: bytes) -> bool:
    """Whether the canonical value `output` is right where `expected` was expected. For the presets of calls."""
    if comparator.preset is Preset.EXACT:
        return expected == output
    if comparator.not_none:
        return (expected in _NOTHING) == (output in _NOTHING)
    try:
        if comparator.as_sets:
            return _elements(expected) == _elements(output)
        if normalise(expected) == normalise(output):
            return True
    except _OpaqueError:
        return False
    tolerance = _choose_tolerance(comparator, expected)
    if tolerance is None or (comparator.preset is Preset.EVALPLUS and expected[:1] != output[:1]):
        return False  # EvalPlus asks for equal types before it looks at tolerances
    return tolerance.are_close(_parse(expected), _parse(output))


def is_comparable(comparator: Comparator, expected: bytes) -> bool:
    """Whether an expected value can equal anything: an opaque one cannot, unless only its presence counts.

    Exact comparison has no opaque values; with a checker they must not reach it, because they cannot be decoded.
    """
    if comparator.not_none or (comparator.preset is Preset.EXACT and not comparator.checker):
        return True
    try:
        normalise(expected)
    except _OpaqueError:
        return False
    return True


def compare_outputs(comparator: Comparator, expected: bytes, output: bytes) -> bool:
    """Whether the standard output `output` is right where `expected` was expected."""
    if comparator.preset is Preset.EXACT:
        return expected == output
    if comparator.preset is Preset.STDIN_LINES:
        return _lines(expected) == _lines(output)
    wanted, found = expected.split(), output.split()
    if len(wanted) != len(found):
        return False
    tolerance = _Tolerance(comparator.absolute_tolerance, comparator.relative_tolerance)
    return all(tolerance.are_close_tokens(w, f) for w, f in zip(wanted, found, strict=True))


def _lines(text: bytes) -> list[bytes]:
    return [line.rstrip() for line in text.rstrip().split(b"\n")]


# --- Python's == as equality of bytes --------------------------------------------------------------------


def normalise(canonical: bytes) -> bytes:
    """Return an encoding that is equal for values that Python's `==` calls equal."""
    return _normalise(codec.Reader(canonical, lenient=True))


def _normalise(reader: codec.Reader) -> bytes:
    tag = reader.take(1)
    if tag == b"O":
        raise _OpaqueError
    if tag in (b"L", b"U"):
        return codec.encode_sequence(tag, [_normalise(reader) for _ in range(reader.varint())])
    if tag in (b"E", b"Z"):
        return codec.encode_set(b"E", [_normalise(reader) for _ in range(reader.varint())])
    if tag == b"M":
        return codec.encode_dict([(_normalise(reader), _normalise(reader)) for _ in range(reader.varint())])
    if tag == b"R":
        ends = [reader.scalar(reader.take(1)) for _ in range(3)]
        return _normalise_range(range(*ends))  # type: ignore[call-overload]
    value = reader.scalar(tag)
    return _normalise_number(value) if tag in _NUMBER_TAGS else codec.encode(value, len(reader.data))


def _normalise_number(value: object) -> bytes:
    if isinstance(value, complex) and value.imag == 0:
        value = value.real
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, complex):
        # Adding 0.0 makes -0.0 positive, part by part.
        return codec.encode_complex(complex(value.real + 0.0, value.imag + 0.0))
    if isinstance(value, float):
        return codec.encode_float(value)
    return codec.encode_int(int(value))  # type: ignore[call-overload]


def _normalise_range(span: range) -> bytes:
    """Ranges are equal if they hold the same numbers in the same order."""
    parts = [len(span), *([span[0]] if span else []), *([span.step] if len(span) > 1 else [])]
    return b"R" + b"".join(codec.encode_int(part) for part in parts)


def _elements(canonical: bytes) -> list[bytes] | None:
    """Return the distinct elements of a list, tuple or set, normalised and sorted; raise for anything else."""
    reader = codec.Reader(canonical, lenient=True)
    if reader.take(1) not in (b"L", b"U", b"E", b"Z"):
        raise _OpaqueError
    return sorted({_normalise(reader) for _ in range(reader.varint())})


# --- tolerance -------------------------------------------------------------------------------------------


def _is_finite(number: complex) -> bool:
    return isinstance(number, int) or cmath.isfinite(number)


def _choose_tolerance(comparator: Comparator, expected: bytes) -> "_Tolerance | None":
    if comparator.absolute_tolerance or comparator.relative_tolerance:
        relative = comparator.relative_tolerance
        if comparator.preset is Preset.EVALPLUS:
            relative = relative or _EVALPLUS_RELATIVE
        return _Tolerance(comparator.absolute_tolerance, relative)
    if comparator.preset is Preset.EVALPLUS and _is_floats(_parse(expected)):
        return _Tolerance(_EVALPLUS_ABSOLUTE, _EVALPLUS_RELATIVE)
    return None


def _is_floats(value: object) -> bool:
    if isinstance(value, tuple):
        return value[0] in (b"L", b"U") and all(isinstance(item, float) for item in value[1])
    return isinstance(value, float)


def _parse(canonical: bytes) -> object:
    """Return numbers as they are, lists and tuples as (tag, items), everything else as normalised bytes."""
    return _parse_next(codec.Reader(canonical, lenient=True))


def _parse_next(reader: codec.Reader) -> object:
    start = reader.position
    tag = reader.take(1)
    if tag in (b"L", b"U"):
        return tag, [_parse_next(reader) for _ in range(reader.varint())]
    if tag in _NUMBER_TAGS:
        return reader.scalar(tag)
    reader.position = start
    codec.skip(reader)
    try:
        return normalise(reader.data[start : reader.position])
    except _OpaqueError:
        return object()  # equal to nothing else


@dataclass(frozen=True, slots=True)
class _Tolerance:
    """|output - expected| <= absolute + relative * |expected|."""

    absolute: float
    relative: float

    def are_close(self, expected: object, output: object) -> bool:
        if isinstance(expected, tuple) and isinstance(output, tuple):
            (tag, wanted), (other, found) = expected, output
            return tag == other and len(wanted) == len(found) and all(map(self.are_close, wanted, found))
        if isinstance(expected, int | float | complex) and isinstance(output, int | float | complex):
            return self.are_close_numbers(expected, output)
        return expected == output

    def are_close_numbers(self, expected: complex, output: complex) -> bool:
        if expected == output or (expected != expected and output != output):
            return True
        if not (_is_finite(expected) and _is_finite(output)):
            return False
        try:
            bound = self.absolute + self.relative * abs(expected)
            return abs(output - expected) <= bound
        except OverflowError:  # ints beyond floats
            if isinstance(expected, complex) or isinstance(output, complex):
                return False
            wanted, found = Fraction(expected), Fraction(output)
            return abs(found - wanted) <= Fraction(self.absolute) + Fraction(self.relative) * abs(wanted)

    def are_close_tokens(self, expected: bytes, output: bytes) -> bool:
        if expected == output:
            return True
        if not (self.absolute or self.relative) or not (_NUMBER.fullmatch(expected) and _NUMBER.fullmatch(output)):
            return False
        return self.are_close_numbers(float(expected), float(output))
