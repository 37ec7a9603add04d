"""Infer columns from samples of CSV, JSON and Parquet files.

A text becomes a STRING, even if it has the format of a date or a number. Otherwise a later
file with another format could stop a running job. So all columns of CSV files are STRING.
"""

import io
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from io import BufferedIOBase
from typing import Any, TypeAlias, assert_never

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.arrow.types import AnyField, data_type
from penstock.errors import Code, UserError
from penstock.model.schema import Array, Column, DataType, Decimal, Map, Primitive, Struct
from penstock.sources.formats.blocks import UnreadableFileError
from penstock.sources.formats.csv_records import RecordSplitter, generated_name, read_preamble
from penstock.sources.formats.csv_text import BrokenRecordError, CsvLayout, field_splitter
from penstock.sources.formats.json_values import (
    AmbiguousObject,
    BadRecordError,
    FloatingText,
    ForeignConstant,
    IntegerText,
    decode_record,
)
from penstock.sources.formats.lines import BYTE_ORDER_MARK, LineLayout, read_at_most, read_lines
from penstock.sources.formats.parquet_reader import instant_columns, open_parquet, stored_type

_SCHEMA_HINT = 'Declare the columns with the option "schema", such as "id BIGINT, note STRING".'


def infer_csv_columns(
    streams: Iterable[BufferedIOBase],
    layout: CsvLayout,
    *,
    lines_max: int = 1000,
    bytes_max: int = 4 << 20,
) -> tuple[Column, ...]:
    """Return the columns of CSV files, inferred from the first records of each file."""
    name_by_folded: dict[str, str] = {}
    fields_max = 0
    for stream in streams:
        head = read_at_most(stream, bytes_max)
        if len(head) == bytes_max:
            # Remove the last line, which may be truncated.
            head = head[: head.rfind(layout.ending) + len(layout.ending)]
        if layout.header_lines:
            for name in _header_names(head, layout):
                name_by_folded.setdefault(name.lower(), name)
        else:
            fields_max = max(fields_max, _most_fields(head, layout, lines_max=lines_max))
    names = [*name_by_folded.values(), *(generated_name(at) for at in range(fields_max))]
    if not names:
        searched = "header" if layout.header_lines else "record"
        raise UserError(
            f"columns cannot be inferred: the files have no {searched}",
            code=Code.TYPE_ERR,
            detail=f"The first {lines_max} records of each file were read.",
            hint=_SCHEMA_HINT,
        )
    return tuple(Column(name=name, type=Primitive.STRING) for name in names)


def _header_names(head: bytes, layout: CsvLayout) -> tuple[str, ...]:
    preamble = read_preamble(io.BytesIO(head), layout=layout, line_bytes_max=len(head))
    names = preamble.names or () if preamble else ()
    first_by_folded: dict[str, int] = {}
    for field, name in enumerate(names):
        first = first_by_folded.setdefault(name.lower(), field)
        if first != field:
            raise UnreadableFileError(
                f"fields {first + 1} and {field + 1} of the header have the same name,"
                f' "{name}"',
                code=Code.TYPE_ERR,
                detail="Names of columns are not case-sensitive.",
                hint="Write the file with a unique name per column. Or skip the header with "
                'the options "format" and "skip_lines", and declare columns with "schema".',
            )
    return names


def _most_fields(head: bytes, layout: CsvLayout, *, lines_max: int) -> int:
    """Return the largest number of fields in the first good records."""
    lines = LineLayout(ending=layout.ending, line_bytes_max=len(head))
    stream = io.BytesIO(head)
    preamble = read_preamble(stream, layout=layout, line_bytes_max=lines.line_bytes_max)
    if preamble is None:
        return 0
    splitter = RecordSplitter(layout, line_bytes_max=lines.line_bytes_max)
    texts: list[bytes] = []
    for block in read_lines(stream, start=preamble.size_bytes, end=None, layout=lines):
        texts += splitter.split_block(block).texts
    split_fields = field_splitter(layout)
    most = 0
    for text in filter(None, texts[:lines_max]):
        # Bad records are reported when they are loaded.
        with suppress(BrokenRecordError):
            most = max(most, len(split_fields(text)))
    return most


_BIGINT_DIGITS_MAX = 20
_BIGINTS = range(-(2**63), 2**63)
_NUMBERS = frozenset({Primitive.BIGINT, Primitive.DOUBLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class _List:
    """An array, with the guessed type of its elements."""

    element: "_Guess"


# A guessed type: a scalar, the fields of an object, or an array; None if all values are null.
_Guess: TypeAlias = "Primitive | dict[str, _Guess] | _List | None"
_NOUN_BY_GUESS: dict[type, str] = {
    Primitive: "a scalar",
    dict: "an object",
    _List: "an array",
}


def infer_columns(
    samples: Iterable[bytes | BufferedIOBase],
    *,
    lines_max: int = 1000,
    bytes_max: int = 4 << 20,
) -> tuple[Column, ...]:
    """Return the columns of JSON lines, inferred from the first records of each sample."""
    whole: _Guess = None
    for sample in samples:
        stream = io.BytesIO(sample) if isinstance(sample, bytes) else sample
        for line in _first_lines(stream, lines_max=lines_max, bytes_max=bytes_max):
            try:
                guess = _guess(decode_record(line), path=())
            except (BadRecordError, RecursionError):
                # Bad lines are reported when they are loaded.
                continue
            whole = _merged(whole, guess, path=())
    columns = _settled(whole)
    if not isinstance(columns, Struct):
        raise UserError(
            "columns cannot be inferred: the files have no record",
            code=Code.TYPE_ERR,
            detail=f"The first {lines_max} lines of each file were read.",
            hint=f'{_SCHEMA_HINT} If a file is one array, set "strip_outer_array" to "true".',
        )
    return columns.fields


def numbers_as_texts(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns with STRING in place of numeric types."""
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
    data = read_at_most(stream, bytes_max)
    lines = data.removeprefix(BYTE_ORDER_MARK).split(b"\n", lines_max)
    # The last part is either the rest of the data, or a line that may be truncated.
    if len(lines) > lines_max or len(data) == bytes_max:
        lines.pop()
    yield from lines


def _guess(value: Any, *, path: tuple[str, ...]) -> _Guess:  # noqa: ANN401
    match value:
        case None:
            return None
        case bool():
            return Primitive.BOOLEAN
        # A longer integer becomes a STRING.
        case IntegerText() if len(value) <= _BIGINT_DIGITS_MAX and int(value) in _BIGINTS:
            return Primitive.BIGINT
        case FloatingText():
            return Primitive.DOUBLE
        case AmbiguousObject() | ForeignConstant():
            raise BadRecordError("a key occurs twice, or a constant is not JSON")
        case dict():
            return {name: _guess(item, path=(*path, name)) for name, item in value.items()}
        case list():
            guesses = (_guess(item, path=path) for item in value)
            return _List(element=reduce(partial(_merged, path=path), guesses, None))
        case _:
            return Primitive.STRING


def _merged(left: _Guess, right: _Guess, *, path: tuple[str, ...]) -> _Guess:
    if left is None or right is None or left == right:
        return left if right is None else right
    match left, right:
        case Primitive(), Primitive():
            return Primitive.DOUBLE if {left, right} == _NUMBERS else Primitive.STRING
        case _List(), _List():
            return _List(element=_merged(left.element, right.element, path=path))
        case dict(), dict():
            merged = dict(left)
            for name, guess in right.items():
                merged[name] = _merged(merged.get(name), guess, path=(*path, name))
            return merged
        case _:
            raise UserError(
                f'column "{".".join(path)}" is {_NOUN_BY_GUESS[type(left)]} in one record'
                f" and {_NOUN_BY_GUESS[type(right)]} in another",
                code=Code.TYPE_ERR,
                hint='Declare the other columns with the option "schema".',
            )


def _settled(guess: _Guess) -> DataType | None:
    """Return the type of a guess; None for an object without fields."""
    match guess:
        case None:
            return Primitive.STRING
        case Primitive():
            return guess
        case _List():
            element = _settled(guess.element)
            return None if element is None else Array(element=element)
        case dict():
            settled = {name: _settled(field) for name, field in guess.items()}
            fields = tuple(
                Column(name=name, type=kind) for name, kind in settled.items() if kind
            )
            return Struct(fields=fields) if fields else None
        case _:
            assert_never(guess)


_PRECISION_MAX = 38
_FLOATINGS = (Primitive.FLOAT, Primitive.DOUBLE)
_DECIMAL_BY_INTEGER: dict[DataType, Decimal] = {
    Primitive.TINYINT: Decimal(precision=3, scale=0),
    Primitive.SMALLINT: Decimal(precision=5, scale=0),
    Primitive.INT: Decimal(precision=10, scale=0),
    Primitive.BIGINT: Decimal(precision=19, scale=0),
}
_INTEGERS = tuple(_DECIMAL_BY_INTEGER)


def infer_parquet_columns(streams: Iterable[BufferedIOBase]) -> tuple[Column, ...]:
    """Return the columns of all Parquet files, in order of appearance."""
    name_by_folded: dict[str, str] = {}
    # None means that no file has a type for the column.
    type_by_name: dict[str, DataType | None] = {}
    for stream in streams:
        for name, kind in _file_types(open_parquet(stream)).items():
            known = name_by_folded.setdefault(name.casefold(), name)
            type_by_name[known] = _merged_types(type_by_name.get(known), kind, name=known)
    if not type_by_name:
        raise UserError(
            "columns cannot be inferred: the Parquet files have no column",
            code=Code.TYPE_ERR,
            hint=_SCHEMA_HINT,
        )
    return tuple(
        Column(name=name, type=kind or Primitive.STRING) for name, kind in type_by_name.items()
    )


def _file_types(file: pq.ParquetFile) -> dict[str, DataType | None]:
    instants = instant_columns(file)
    name_by_folded: dict[str, str] = {}
    type_by_name: dict[str, DataType | None] = {}
    for field in file.schema_arrow:
        folded = field.name.casefold()
        if folded in name_by_folded:
            raise UserError(
                f'columns "{name_by_folded[folded]}" and "{field.name}" of one file differ only'
                " in case",
                code=Code.TYPE_ERR,
                hint=_SCHEMA_HINT,
            )
        name_by_folded[folded] = field.name
        type_by_name[field.name] = _type(field, instant=field.name in instants)
    return type_by_name


def _type(field: AnyField, *, instant: bool) -> DataType | None:
    if pa.types.is_null(field.type):
        return None
    try:
        kind = data_type(stored_type(field.type))
    except UserError as error:
        raise UserError(
            f'column "{field.name}" of the file has the type {field.type}, which is not'
            " supported",
            code=Code.TYPE_ERR,
            hint='Declare the other columns with the option "schema".',
        ) from error
    return Primitive.TIMESTAMP if instant and kind is Primitive.TIMESTAMP_NTZ else kind


def _merged_types(
    left: DataType | None, right: DataType | None, *, name: str
) -> DataType | None:
    if left is None or right is None:
        return left or right
    widened = _widened(left, right)
    if widened is None:
        raise UserError(
            f'column "{name}" is {left.sql} in one file and {right.sql} in another',
            code=Code.TYPE_ERR,
            hint='Declare the columns with the option "schema"; choose a type that fits both.',
        )
    return widened


def _widened(left: DataType, right: DataType) -> DataType | None:
    """Return a type for the values of both types; None if there is none."""
    if left == right:
        return left
    match left, right:
        case Primitive(), Primitive():
            return _widened_number(left, right)
        case (Decimal(), Decimal() | Primitive()) | (Primitive(), Decimal()):
            return _widened_decimal(left, right)
        case Array(), Array():
            element = _widened(left.element, right.element)
            return element and Array(element=element)
        case Map(), Map():
            key, value = _widened(left.key, right.key), _widened(left.value, right.value)
            return Map(key=key, value=value) if key and value else None
        case Struct(), Struct():
            return _widened_struct(left, right)
        case _:
            return None


def _widened_number(left: Primitive, right: Primitive) -> Primitive | None:
    for family in (_INTEGERS, _FLOATINGS):
        if left in family and right in family:
            return max(left, right, key=family.index)
    numbers = (*_INTEGERS, *_FLOATINGS)
    return Primitive.DOUBLE if left in numbers and right in numbers else None


def _widened_decimal(left: DataType, right: DataType) -> Decimal | None:
    first, second = (
        kind if isinstance(kind, Decimal) else _DECIMAL_BY_INTEGER.get(kind)
        for kind in (left, right)
    )
    if first is None or second is None:
        return None
    whole = max(first.precision - first.scale, second.precision - second.scale)
    scale = max(first.scale, second.scale)
    if whole + scale > _PRECISION_MAX:
        return None
    return Decimal(precision=whole + scale, scale=scale)


def _widened_struct(left: Struct, right: Struct) -> Struct | None:
    field_by_name = {field.name: field for field in left.fields}
    lacking = field_by_name.keys() ^ {field.name for field in right.fields}
    for field in right.fields:
        known = field_by_name.get(field.name, field)
        kind = _widened(known.type, field.type)
        if kind is None:
            return None
        field_by_name[field.name] = Column(
            name=field.name, type=kind, nullable=known.nullable or field.nullable
        )
    return Struct(
        fields=tuple(
            Column(name=name, type=field.type, nullable=field.nullable or name in lacking)
            for name, field in field_by_name.items()
        )
    )
