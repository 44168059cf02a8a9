"""The canonical encoding of Python values: typed, unique, bounded, no pickle.

Two values are equal exactly when their encodings are equal bytes. The same file is used on both sides: inside
a jail `encode` and `decode` work on live objects; in the service only `check` touches bytes that came out of a
jail, and it never builds or hashes the value (a set of crafted ints would cost quadratic time).

Layout (`varint` is unsigned LEB128 in its shortest form):

    None, True, False   N T F
    int                 I sign(0|1) varint(n) n magnitude bytes, big endian, no leading zero; zero is I 0 0
    float               D 8 bytes IEEE 754 big endian; every NaN is 7ff8000000000000
    complex             C two floats without tags
    str                 S varint(n) n bytes UTF-8, lone surrogates passed through
    bytes               B varint(n) n bytes
    list, tuple         L varint(count) items | U varint(count) items
    set, frozenset      E | Z varint(count) items in strictly ascending byte order
    dict                M varint(count) key value pairs in strictly ascending byte order of the keys
    range               R three ints with their tags
    opaque              O varint(n) n bytes UTF-8, the name of a type

An opaque value stands for an object without a canonical form and exists only where the caller asks for leniency
(comparators of RunCases); it cannot be decoded and equals nothing.

Only the standard library is used, because the file is copied into the jail.
"""

import math
import struct

MAX_DEPTH = 64
CANONICAL_NAN = bytes.fromhex("7ff8000000000000")
_CONTAINERS: "dict[type, bytes]" = {list: b"L", tuple: b"U", set: b"E", frozenset: b"Z"}
# How to copy what an instance of a subclass holds, without calling methods of the subclass.
_COPIES: "dict[type, object]" = {
    dict: lambda value: dict(dict.items(value)),
    list: lambda value: [*list.__iter__(value)],
    tuple: lambda value: (*tuple.__iter__(value),),
    set: lambda value: {*set.__iter__(value)},
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    str: str.__str__,
    bytes: lambda value: b"".join((value, b"")),
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
}


class EncodingError(ValueError):
    """A value has no canonical form, or bytes are not a canonical encoding."""


class TooLargeError(EncodingError):
    """The encoding would exceed the size limit."""


# --- building blocks, also used by `literals` ------------------------------------------------------------


def varint(number: int) -> bytes:
    """Return unsigned LEB128 of `number` >= 0."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode_int(number: int) -> bytes:
    """Encode an int, sign and magnitude, without going through decimal text (no 4,300-digit limit)."""
    magnitude = abs(number)
    size = (magnitude.bit_length() + 7) // 8
    return b"I" + bytes([number < 0]) + varint(size) + magnitude.to_bytes(size, "big")


def _float_bytes(number: float) -> bytes:
    return CANONICAL_NAN if math.isnan(number) else struct.pack(">d", number)


def encode_float(number: float) -> bytes:
    """Encode a float by its bits; NaNs are unified."""
    return b"D" + _float_bytes(number)


def encode_complex(number: complex) -> bytes:
    """Encode a complex number as two floats."""
    return b"C" + _float_bytes(number.real) + _float_bytes(number.imag)


def encode_str(text: str) -> bytes:
    """Encode text; lone surrogates survive."""
    data = text.encode("utf-8", "surrogatepass")
    return b"S" + varint(len(data)) + data


def encode_bytes(data: bytes) -> bytes:
    """Encode bytes."""
    return b"B" + varint(len(data)) + data


def encode_sequence(tag: bytes, items: "list[bytes]") -> bytes:
    """Join encoded items under tag L (list) or U (tuple)."""
    return tag + varint(len(items)) + b"".join(items)


def encode_set(tag: bytes, items: "list[bytes]") -> bytes:
    """Join encoded items under tag E (set) or Z (frozenset); equal encodings count once."""
    return encode_sequence(tag, sorted(set(items)))


def encode_dict(pairs: "list[tuple[bytes, bytes]]") -> bytes:
    """Join encoded pairs; of equal keys the last wins, as in Python."""
    entries = sorted(dict(pairs).items())
    return b"M" + varint(len(entries)) + b"".join(key + value for key, value in entries)


# --- in the jail -----------------------------------------------------------------------------------------


class _Encoder:
    """Encodes a live value within a size budget."""

    def __init__(self, max_bytes: int, *, lenient: bool) -> None:
        self.budget = max_bytes
        self.lenient = lenient

    def spend(self, count: int) -> None:
        self.budget -= count
        if self.budget < 0:
            raise TooLargeError("value exceeds the size limit")

    def encode(self, value: object, depth: int) -> bytes:
        if depth > MAX_DEPTH:
            raise EncodingError(f"value is nested more than {MAX_DEPTH} deep")
        kind = type(value)
        if self.lenient and kind not in _EXACT:
            value = _to_builtin(value)
            kind = type(value)
        if kind in _CONTAINERS:
            return self.encode_items(value, kind, depth)  # type: ignore[arg-type]
        if kind is dict:
            return self.encode_mapping(value, depth)  # type: ignore[arg-type]
        data = self.encode_scalar(value, kind)
        self.spend(len(data))
        return data

    def encode_scalar(self, value: object, kind: type) -> bytes:
        if value is None:
            return b"N"
        if value is True or value is False:
            return b"T" if value else b"F"
        if kind is int:
            self.check_room(value.bit_length() // 8)  # type: ignore[attr-defined]
            return encode_int(value)  # type: ignore[arg-type]
        if kind is float:
            return encode_float(value)  # type: ignore[arg-type]
        if kind is str:
            self.check_room(len(value))  # type: ignore[arg-type]
            return encode_str(value)  # type: ignore[arg-type]
        if kind is bytes:
            self.check_room(len(value))  # type: ignore[arg-type]
            return encode_bytes(value)  # type: ignore[arg-type]
        if kind is complex:
            return encode_complex(value)  # type: ignore[arg-type]
        if kind is range:
            ends = (value.start, value.stop, value.step)  # type: ignore[attr-defined]
            return b"R" + b"".join(encode_int(end) for end in ends)
        if self.lenient:
            name = str(kind.__name__).encode("utf-8", "backslashreplace")[:100]
            return b"O" + varint(len(name)) + name
        raise EncodingError(f"a {kind.__name__} has no canonical form")

    def check_room(self, size: int) -> None:
        if size > self.budget:
            raise TooLargeError("value exceeds the size limit")

    def encode_items(self, value: "list[object]", kind: type, depth: int) -> bytes:
        self.check_room(len(value))
        self.spend(1 + len(varint(len(value))))
        items = [self.encode(item, depth + 1) for item in value]
        tag = _CONTAINERS[kind]
        return encode_set(tag, items) if tag in b"EZ" else encode_sequence(tag, items)

    def encode_mapping(self, value: "dict[object, object]", depth: int) -> bytes:
        self.check_room(len(value))
        self.spend(1 + len(varint(len(value))))
        pairs = [(self.encode(k, depth + 1), self.encode(v, depth + 1)) for k, v in value.items()]
        if len(dict(pairs)) != len(pairs):
            raise EncodingError("a dict with several NaN keys has no canonical form")
        return encode_dict(pairs)


def _to_builtin(value: object) -> object:
    """Return what an instance of a subclass, or a numpy value, holds as a built-in type; else the value itself."""
    for base, copy in _COPIES.items():
        if isinstance(value, base):
            return copy(value)  # type: ignore[operator]
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    return value


_EXACT = {*_COPIES, bool, range, type(None)}


def encode(value: object, max_bytes: int, *, lenient: bool = False) -> bytes:
    """Return the canonical encoding of a live value.

    Args:
        lenient: instances of subclasses count as their built-in base, everything else without a form is opaque.

    Raises:
        TooLargeError: the encoding would exceed `max_bytes`.
        EncodingError: a type without a canonical form (exact types only), or nesting beyond `MAX_DEPTH`.
    """
    return _Encoder(max_bytes, lenient=lenient).encode(value, 0)


def decode(data: bytes) -> object:
    """Build the live value of a canonical encoding. Hashes its parts, so only for a jail or trusted bytes."""
    reader = Reader(data)
    value = _build(reader)
    reader.expect_end()
    return value


def _build(reader: "Reader") -> object:
    tag = reader.take(1)
    if tag in (b"L", b"U", b"E", b"Z"):
        make = {b"L": list, b"U": tuple, b"E": set, b"Z": frozenset}[tag]
        return make(_build(reader) for _ in range(reader.varint()))
    if tag == b"M":
        return {_build(reader): _build(reader) for _ in range(reader.varint())}
    if tag == b"R":
        return range(*(_build(reader) for _ in range(3)))  # type: ignore[call-overload, no-any-return]
    return reader.scalar(tag)


# --- reading bytes ---------------------------------------------------------------------------------------


class Reader:
    """Reads an encoding front to back; every short, long or non-canonical piece raises EncodingError."""

    def __init__(self, data: bytes, *, lenient: bool = False, any_order: bool = False) -> None:
        self.data = data
        self.position = 0
        self.lenient = lenient
        self.any_order = any_order
        """Whether sets and dicts may be in any order, as in encoded arguments."""

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        end = self.position + count
        if end > len(self.data):
            raise EncodingError("encoding ends too early")
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def varint(self) -> int:
        """Read a shortest-form varint; counts beyond the bytes left are refused at once."""
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 35:
                raise EncodingError("varint is too long")
        if byte == 0 and shift:
            raise EncodingError("varint is not in shortest form")
        if number > len(self.data) - self.position:
            raise EncodingError("count exceeds the bytes left")
        return number

    def integer(self) -> int:
        """Read the part of an int after its tag."""
        sign = self.take(1)
        magnitude = self.take(self.varint())
        if sign not in (b"\0", b"\1") or magnitude[:1] == b"\0" or (sign == b"\1" and not magnitude):
            raise EncodingError("int is not canonical")
        number = int.from_bytes(magnitude, "big")
        return -number if sign == b"\1" else number

    def real(self) -> float:
        """Read eight bytes as a float."""
        data = self.take(8)
        number: float = struct.unpack(">d", data)[0]
        if math.isnan(number) and data != CANONICAL_NAN:
            raise EncodingError("NaN is not canonical")
        return number

    def scalar(self, tag: bytes) -> object:
        """Read the rest of a value that holds no other values."""
        if tag in (b"N", b"T", b"F"):
            return {b"N": None, b"T": True, b"F": False}[tag]
        if tag == b"I":
            return self.integer()
        if tag == b"D":
            return self.real()
        if tag == b"C":
            real = self.real()
            return complex(real, self.real())
        if tag == b"B":
            return self.take(self.varint())
        if tag == b"S":
            return self.text()
        raise EncodingError(f"unknown tag {tag!r}")

    def text(self) -> str:
        """Read UTF-8 with surrogates; pairs that should be one character are refused as not canonical."""
        data = self.take(self.varint())
        try:
            text = data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise EncodingError("text is not UTF-8") from error
        if text.encode("utf-8", "surrogatepass") != data:
            raise EncodingError("text is not canonical")
        return text

    def expect_end(self) -> None:
        """Refuse bytes after the value."""
        if self.position != len(self.data):
            raise EncodingError("bytes after the value")


def check(data: bytes, *, max_bytes: int, lenient: bool = False) -> None:
    """Accept exactly the canonical encodings of at most `max_bytes`, without building the value.

    Args:
        lenient: opaque values are accepted, too.

    Raises:
        TooLargeError: longer than `max_bytes`.
        EncodingError: anything else that `encode` would not have produced.
    """
    if len(data) > max_bytes:
        raise TooLargeError(f"value of {len(data)} bytes exceeds the limit of {max_bytes}")
    reader = Reader(data, lenient=lenient)
    _check(reader, 0)
    reader.expect_end()


def skip(reader: Reader) -> None:
    """Move past one well-formed value."""
    _check(reader, 0)


def contains_unhashable(data: bytes) -> bool:
    """Whether a well-formed encoding is unhashable: a list, set or dict, or a tuple that holds one."""
    return not _check(Reader(data, any_order=True), 0)


def _check(reader: Reader, depth: int) -> bool:
    """Check one value and return whether it is hashable; linear in its size."""
    if depth > MAX_DEPTH:
        raise EncodingError(f"value is nested more than {MAX_DEPTH} deep")
    tag = reader.take(1)
    if tag in (b"L", b"U"):
        hashable = tag == b"U"
        for _ in range(reader.varint()):
            hashable &= _check(reader, depth + 1)
        return hashable
    if tag in (b"E", b"Z", b"M"):
        _check_ordered(reader, depth, has_values=tag == b"M")
        return tag == b"Z"
    if tag == b"R":
        _check_range(reader)
    elif tag == b"O" and reader.lenient:
        reader.text()
    else:
        reader.scalar(tag)
    return True


def _check_ordered(reader: Reader, depth: int, *, has_values: bool) -> None:
    previous = b""
    for _ in range(reader.varint()):
        start = reader.position
        if not _check(reader, depth + 1):
            raise EncodingError("an unhashable value cannot be an element or a key")
        key = reader.data[start : reader.position]
        if key <= previous and not reader.any_order:
            raise EncodingError("items are not in ascending order")
        previous = key
        if has_values:
            _check(reader, depth + 1)


def _check_range(reader: Reader) -> None:
    ends = []
    for _ in range(3):
        if reader.take(1) != b"I":
            raise EncodingError("range needs three ints")
        ends.append(reader.integer())
    if ends[2] == 0:
        raise EncodingError("range step is zero")
