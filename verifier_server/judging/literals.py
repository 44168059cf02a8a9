"""Text to canonical values and back. Inputs are data, never source: nothing is evaluated.

Answers and argument lists are text of Python literals. Size and bracket depth are checked on the text before
`ast.parse`; whatever the parser raises means the text is malformed. The accepted constructors are `set()`,
`frozenset()`, `dict(k=v)`, `bytes()`, `complex()`, `range()`, and the names `inf` and `nan`, with or without
`float("...")`.
"""

import ast
import re
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

from verifier_server.judging import codec

MAX_TEXT_BYTES = 64 * 1024
MAX_NESTING = codec.MAX_DEPTH
# `frozenset({...})` opens two brackets for one level.
_MAX_BRACKETS = 2 * MAX_NESTING + 2
# Strings and comments. Linear on every text: what is not closed is taken to its end (the parser refuses it anyway), and
# nothing is tried twice. A pattern that gave up on open quotes once needed eight seconds for 64 KiB of them.
_QUIET = re.compile(
    r"'''(?:\\.|\\\Z|[^\\])*?(?:'''|\Z)"
    r'|"""(?:\\.|\\\Z|[^\\])*?(?:"""|\Z)'
    r"|'(?:\\.|\\\Z|[^'\\\n])*+'?+"
    r'|"(?:\\.|\\\Z|[^"\\\n])*+"?+'
    r"|#[^\n]*+",
    re.DOTALL,
)


# CPython 3.11 keeps the depth of the tree that it builds per interpreter, not per thread: if the garbage collector lets
# another thread parse meanwhile, parsing fails with SystemError. One at a time costs nothing, since it holds the GIL.
_PARSER_LOCK = threading.Lock()


class MalformedLiteralError(ValueError):
    """The text is not a literal (or argument list) that the service accepts."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of one call: encodings of the positional tuple and of the keyword dict.

    Like canonical ones, but dicts, sets and keywords are in the order of the text: a program can see that order. They
    are for `codec.decode` in a jail only, not for comparison.
    """

    positional: bytes
    keywords: bytes


Result = TypeVar("Result")


Parameters = ParamSpec("Parameters")


def _guard(parse: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Turn what deep or huge numbers raise on their way through the tree into MalformedLiteralError."""

    @wraps(parse)
    def guarded(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return parse(*args, **kwargs)
        except (OverflowError, RecursionError, codec.EncodingError) as error:
            raise MalformedLiteralError(f"not a value: {type(error).__name__}") from error

    return guarded


@_guard
def parse_value(text: str) -> bytes:
    """Return the canonical encoding of the literal in `text`.

    Raises:
        MalformedLiteralError: not one literal, too long, or nested too deeply.
    """
    call = _parse_call(text)
    if len(call.args) != 1 or call.keywords:
        raise MalformedLiteralError("expected exactly one value")
    if _has_trailing_comma(text):
        # `1,` is the tuple (1,), as in Python.
        return codec.encode_sequence(b"U", [_encode(call.args[0])])
    return _encode(call.args[0])


@_guard
def parse_answer(text: str) -> bytes:
    """Like `parse_value`, but a bare `1, 2` is the tuple (1, 2), as after a Python `return`."""
    call = _parse_call(text)
    if len(call.args) > 1 and not call.keywords:
        return codec.encode_sequence(b"U", [_encode(node) for node in call.args])
    return parse_value(text)


@_guard
def parse_arguments(text: str, max_bytes: int = MAX_TEXT_BYTES) -> Arguments:
    """Return the arguments written in `text` as between the parentheses of a call; empty text is no arguments.

    Raises:
        MalformedLiteralError: anything else than positional literals, then `name=literal`, or more than `max_bytes`.
    """
    call = _parse_call(text, max_bytes)
    names = [keyword.arg for keyword in call.keywords]
    if None in names:
        raise MalformedLiteralError("** is not allowed in arguments")
    if len(set(names)) != len(names):
        raise MalformedLiteralError("an argument is named twice")
    place = _Place(keeps_order=True)
    pairs = [(codec.encode_str(str(k.arg)), _encode(k.value, place)) for k in call.keywords]
    positional = codec.encode_sequence(b"U", [_encode(node, place) for node in call.args])
    return Arguments(positional=positional, keywords=place.encode_dict(pairs))


def _has_trailing_comma(text: str) -> bool:
    """Whether a further argument after `text` would be a syntax error, for `text` that is one argument."""
    try:
        _parse_expression(f"_(\n{text}\n, 0)")
    except SyntaxError:
        return True
    return False


def _parse_call(text: str, max_bytes: int = MAX_TEXT_BYTES) -> ast.Call:
    """Parse `text` between the parentheses of a call; the shape of the tree proves it stayed inside them."""
    _check_bounds(text, max_bytes)
    try:
        tree = _parse_expression(f"_(\n{text}\n)")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise MalformedLiteralError(f"not a Python literal: {type(error).__name__}") from error
    call = tree.body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise MalformedLiteralError("the text leaves the argument list")
    return call


def _parse_expression(source: str) -> ast.Expression:
    # catch_warnings changes state of the whole process, another reason for one at a time.
    with _PARSER_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source, mode="eval")


def _check_bounds(text: str, max_bytes: int) -> None:
    """Refuse long and deep texts before parsing. Brackets and signs inside strings and comments do not count.

    A text that confuses the pattern still meets the parser's own limits (200 brackets, 6,000 levels).
    """
    if len(text.encode("utf-8", "surrogatepass")) > max_bytes:
        raise MalformedLiteralError(f"text is longer than {max_bytes} bytes")
    depth = deepest = signs = most_signs = 0
    for character in _QUIET.sub("0", text):
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
        # A chain of unary signs nests the tree without brackets.
        signs = signs + 1 if character in "+-~" else signs * (character.isspace() or character == "\\")
        most_signs = max(most_signs, signs)
    if deepest > _MAX_BRACKETS or most_signs > MAX_NESTING:
        raise MalformedLiteralError(f"text is nested more than {MAX_NESTING} deep")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in a literal an expression stands, and whether the order of sets and dicts is kept.

    Equality ignores that order, so values are encoded without it. Arguments keep it: a program sees it.
    """

    depth: int = 0
    keeps_order: bool = False

    def deeper(self) -> "_Place":
        return _Place(self.depth + 1, self.keeps_order)

    def encode_set(self, tag: bytes, items: list[bytes]) -> bytes:
        return codec.encode_sequence(tag, items) if self.keeps_order else codec.encode_set(tag, items)

    def encode_dict(self, pairs: list[tuple[bytes, bytes]]) -> bytes:
        if not self.keeps_order:
            return codec.encode_dict(pairs)
        return b"M" + codec.varint(len(pairs)) + b"".join(key + value for key, value in pairs)


def _encode(node: ast.expr, place: _Place = _Place()) -> bytes:
    if place.depth > MAX_NESTING:
        raise MalformedLiteralError(f"value is nested more than {MAX_NESTING} deep")
    if isinstance(node, ast.Constant):
        return _encode_constant(node.value)
    if isinstance(node, ast.List | ast.Tuple):
        tag = b"L" if isinstance(node, ast.List) else b"U"
        return codec.encode_sequence(tag, _encode_all(node.elts, place))
    if isinstance(node, ast.Set):
        return place.encode_set(b"E", _hashable(_encode_all(node.elts, place)))
    if isinstance(node, ast.Dict):
        if None in node.keys:
            raise MalformedLiteralError("** is not allowed in a dict")
        keys = _hashable(_encode_all([key for key in node.keys if key], place))
        return place.encode_dict(list(zip(keys, _encode_all(node.values, place), strict=True)))
    if isinstance(node, ast.Call):
        return _encode_constructor(node, place)
    return _encode_number(node)


def _encode_all(nodes: list[ast.expr], place: _Place) -> list[bytes]:
    return [_encode(node, place.deeper()) for node in nodes]


def _hashable(items: list[bytes]) -> list[bytes]:
    if any(codec.contains_unhashable(item) for item in items):
        raise MalformedLiteralError("an unhashable value cannot be an element or a key")
    return items


def _encode_constant(value: object) -> bytes:
    if value is Ellipsis:
        raise MalformedLiteralError("... is not a value")
    return codec.encode(value, 4 << 20)


def _encode_number(node: ast.expr) -> bytes:
    number = _number(node)
    if isinstance(number, int):
        return codec.encode_int(number)
    if isinstance(number, float):
        return codec.encode_float(number)
    return codec.encode_complex(number)


def _number(node: ast.expr) -> int | float | complex:
    """Evaluate the few numeric forms that are literals: signs, inf, nan, and real plus imaginary."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        left, right = _signed(node.left), _signed(node.right)
        if not isinstance(left, complex) and isinstance(right, complex):
            return left + right if isinstance(node.op, ast.Add) else left - right
    return _signed(node)


def _signed(node: ast.expr) -> int | float | complex:
    sign = 1
    while isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        sign = -sign if isinstance(node.op, ast.USub) else sign
        node = node.operand
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, complex):
        number: int | float | complex = node.value  # type: ignore[assignment]
    elif isinstance(node, ast.Name) and node.id in ("inf", "nan"):
        number = float(node.id)
    else:
        raise MalformedLiteralError(f"{type(node).__name__} is not a literal")
    return -number if sign < 0 else number


def _encode_constructor(node: ast.Call, place: _Place) -> bytes:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name == "dict" and not node.args and all(k.arg for k in node.keywords):
        values = _encode_all([k.value for k in node.keywords], place)
        names = [codec.encode_str(str(k.arg)) for k in node.keywords]
        return place.encode_dict(list(zip(names, values, strict=True)))
    make = _CONSTRUCTORS.get(name)
    if make is None or node.keywords:
        raise MalformedLiteralError("only set, frozenset, dict, bytes, complex, range and float may be called")
    return make(node.args, place)


def _make_set(tag: bytes) -> Callable[[list[ast.expr], _Place], bytes]:
    def make(args: list[ast.expr], place: _Place) -> bytes:
        if not args:
            return place.encode_set(tag, [])
        if len(args) != 1 or not isinstance(args[0], ast.List | ast.Tuple | ast.Set):
            raise MalformedLiteralError("set() and frozenset() take one list, tuple or set")
        return place.encode_set(tag, _hashable(_encode_all(args[0].elts, place)))

    return make


def _make_bytes(args: list[ast.expr], place: _Place) -> bytes:
    if not args:
        return codec.encode_bytes(b"")
    if len(args) == 1 and isinstance(args[0], ast.List | ast.Tuple):
        numbers = [_number(node) for node in args[0].elts]
        if all(isinstance(n, int) and 0 <= n < 256 for n in numbers):
            return codec.encode_bytes(bytes(numbers))  # type: ignore[arg-type]
    raise MalformedLiteralError("bytes() takes one list of ints from 0 to 255")


def _make_complex(args: list[ast.expr], place: _Place) -> bytes:
    numbers = [_number(node) for node in args]
    if len(numbers) != 2 or any(isinstance(n, complex) for n in numbers):
        raise MalformedLiteralError("complex() takes two real numbers")
    try:
        return codec.encode_complex(complex(*numbers))
    except OverflowError as error:
        raise MalformedLiteralError("complex() number is too large") from error


def _make_range(args: list[ast.expr], place: _Place) -> bytes:
    numbers = [_number(node) for node in args]
    if not 1 <= len(numbers) <= 3 or not all(type(n) is int for n in numbers) or numbers[2:] == [0]:
        raise MalformedLiteralError("range() takes one to three ints and a step that is not zero")
    span = range(*numbers)  # type: ignore[arg-type]
    return b"R" + b"".join(codec.encode_int(n) for n in (span.start, span.stop, span.step))


def _make_float(args: list[ast.expr], place: _Place) -> bytes:
    if len(args) == 1 and isinstance(args[0], ast.Constant):
        text = args[0].value
        if isinstance(text, str) and text.strip().lower().lstrip("+-") in ("inf", "infinity", "nan"):
            return codec.encode_float(float(text))
    raise MalformedLiteralError('float() takes "inf" or "nan"; write other numbers as they are')


_CONSTRUCTORS: dict[str, Callable[[list[ast.expr], _Place], bytes]] = {
    "set": _make_set(b"E"),
    "frozenset": _make_set(b"Z"),
    "bytes": _make_bytes,
    "complex": _make_complex,
    "range": _make_range,
    "float": _make_float,
}


# --- canonical to text -----------------------------------------------------------------------------------


def render(canonical: bytes) -> str:
    """Return a literal that parses back to the same canonical bytes.

    Raises:
        codec.EncodingError: the bytes are not canonical.
    """
    reader = codec.Reader(canonical)
    text = _render(reader)
    reader.expect_end()
    return text


def fits_an_answer(literal: str) -> bool:
    """Whether a literal is short enough to be parsed again."""
    return len(literal.encode()) <= MAX_TEXT_BYTES


def _render(reader: codec.Reader) -> str:
    tag = reader.take(1)
    if tag == b"O":
        raise codec.EncodingError("an opaque value has no literal")
    if tag in b"LUEZ":
        return _render_items(tag, [_render(reader) for _ in range(reader.varint())])
    if tag == b"M":
        entries = [f"{_render(reader)}: {_render(reader)}" for _ in range(reader.varint())]
        return "{" + ", ".join(entries) + "}"
    if tag == b"R":
        start, stop, step = (_render(reader) for _ in range(3))
        return f"range({start}, {stop})" if step == "1" else f"range({start}, {stop}, {step})"
    value = reader.scalar(tag)
    if isinstance(value, complex):
        return f"complex({value.real!r}, {value.imag!r})"
    if isinstance(value, int) and value.bit_length() > 10_000:
        return hex(value)  # decimal text of more than 4,300 digits is refused by Python's parser
    return repr(value)


def _render_items(tag: bytes, items: list[str]) -> str:
    inner = ", ".join(items)
    if tag == b"L":
        return f"[{inner}]"
    if tag == b"U":
        return f"({inner},)" if len(items) == 1 else f"({inner})"
    if tag == b"E":
        return "{" + inner + "}" if items else "set()"
    return "frozenset({" + inner + "})" if items else "frozenset()"
