"""Infer columns from samples of JSON lines.

A text stays a text, whatever it looks like: a date that a later file writes otherwise must
not turn a job that loaded yesterday into one that fails today.
"""

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from io import BufferedIOBase
from typing import Any, assert_never

from penstock.errors import Code, UserError
from penstock.model.schema import Array, Column, DataType, Primitive, Struct
from penstock.sources.formats.json_decode import (
    AmbiguousObject,
    BadRecordError,
    FloatingText,
    ForeignConstant,
    IntegerText,
    decode_record,
)
from penstock.sources.formats.lines import BYTE_ORDER_MARK, read_head

_BIGINT_DIGITS_MAX = 20
_BIGINT_MAX = 2**63 - 1
_NUMBERS = frozenset({Primitive.BIGINT, Primitive.DOUBLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Object:
    """An object seen in samples: what each of its fields held."""

    guess_by_name: "dict[str, _Guess | None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _List:
    """An array seen in samples: what its elements held."""

    element: "_Guess | None"


# None stands for what was never seen to hold a value.
_Guess = Primitive | _Object | _List


def infer_columns(
    samples: Iterable[bytes | BufferedIOBase],
    *,
    lines_max: int = 1000,
    bytes_max: int = 4 << 20,
) -> tuple[Column, ...]:
    """Give the columns that hold the records at the beginning of every sample."""
    whole: _Guess | None = None
    for sample in samples:
        stream = io.BytesIO(sample) if isinstance(sample, bytes) else sample
        for line in _first_lines(stream, lines_max=lines_max, bytes_max=bytes_max):
            whole = _merged(whole, _guess_of_record(line), path=())
    columns = _settled(whole)
    if not isinstance(columns, Struct):
        raise UserError(
            "no record was found to infer the columns from",
            code=Code.TYPE_ERR,
            detail=f"The first {lines_max} lines of each file were tried.",
            hint=(
                'Name the columns with the option "schema", such as "id BIGINT, note STRING"; '
                'a file that is one array needs "strip_outer_array" = "true" too.'
            ),
        )
    return columns.fields


def numbers_as_texts(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Give the columns of records whose numbers are kept as they are written."""
    return tuple(replace(column, type=_number_as_text(column.type)) for column in columns)


def _number_as_text(kind: DataType) -> DataType:
    match kind:
        case Struct():
            return Struct(fields=numbers_as_texts(kind.fields))
        case Array():
            return Array(element=_number_as_text(kind.element))
        case _:
            return Primitive.STRING if kind in _NUMBERS else kind


def _first_lines(stream: BufferedIOBase, *, lines_max: int, bytes_max: int) -> Iterator[bytes]:
    data = read_head(stream, bytes_max)
    lines = data.removeprefix(BYTE_ORDER_MARK).split(b"\n", lines_max)
    # The last part is all that follows the lines wanted, or a line that may be cut.
    if len(lines) > lines_max or len(data) == bytes_max:
        lines.pop()
    yield from lines


def _guess_of_record(line: bytes) -> _Guess | None:
    try:
        return _guess(decode_record(line), path=())
    except (BadRecordError, RecursionError):
        # A bad line is reported when it is loaded; here it only teaches nothing.
        return None


def _guess(value: Any, *, path: tuple[str, ...]) -> _Guess | None:  # noqa: ANN401
    match value:
        case None:
            return None
        case bool():
            return Primitive.BOOLEAN
        case IntegerText():
            return _guess_of_integer(value)
        case FloatingText():
            return Primitive.DOUBLE
        case AmbiguousObject() | ForeignConstant():
            raise BadRecordError("a key occurs twice, or a constant is not JSON")
        case dict():
            return _Object(
                guess_by_name={
                    name: _guess(item, path=(*path, name)) for name, item in value.items()
                }
            )
        case list():
            guesses = (_guess(item, path=path) for item in value)
            return _List(element=reduce(partial(_merged, path=path), guesses, None))
        case _:
            return Primitive.STRING


def _guess_of_integer(text: str) -> Primitive:
    fits = len(text) <= _BIGINT_DIGITS_MAX and -_BIGINT_MAX - 1 <= int(text) <= _BIGINT_MAX
    return Primitive.BIGINT if fits else Primitive.STRING


def _merged(
    left: _Guess | None, right: _Guess | None, *, path: tuple[str, ...]
) -> _Guess | None:
    if left is None or right is None or left == right:
        return left if right is None else right
    match left, right:
        case Primitive(), Primitive():
            return Primitive.DOUBLE if {left, right} == _NUMBERS else Primitive.STRING
        case _List(), _List():
            return _List(element=_merged(left.element, right.element, path=path))
        case _Object(), _Object():
            return _merged_objects(left, right, path=path)
        case _:
            raise UserError(
                f'column "{".".join(path)}" holds {_noun(left)} in one record and'
                f" {_noun(right)} in another",
                code=Code.TYPE_ERR,
                hint='Name the columns with the option "schema", without this one.',
            )


def _merged_objects(left: _Object, right: _Object, *, path: tuple[str, ...]) -> _Object:
    merged = dict(left.guess_by_name)
    for name, guess in right.guess_by_name.items():
        merged[name] = _merged(merged.get(name), guess, path=(*path, name))
    return _Object(guess_by_name=merged)


def _noun(guess: _Guess) -> str:
    match guess:
        case Primitive():
            return "a scalar"
        case _List():
            return "an array"
        case _Object():
            return "an object"
        case _:
            assert_never(guess)


def _settled(guess: _Guess | None) -> DataType | None:
    """Give the type for what was seen; None if it is an object without any field."""
    match guess:
        case None:
            return Primitive.STRING
        case Primitive():
            return guess
        case _List():
            element = _settled(guess.element)
            return None if element is None else Array(element=element)
        case _Object():
            settled = {name: _settled(field) for name, field in guess.guess_by_name.items()}
            fields = tuple(
                Column(name=name, type=kind) for name, kind in settled.items() if kind
            )
            return Struct(fields=fields) if fields else None
        case _:
            assert_never(guess)
