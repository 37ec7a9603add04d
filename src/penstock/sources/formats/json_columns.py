"""Convert JSON lines to Arrow columns, with Arrow's parser.

Records that Arrow would read wrongly are first rendered as new JSON. The new JSON has only the
values that the columns need. A scalar for a STRING column becomes its JSON text. A DECIMAL is
rounded to its scale. A MAP becomes a list of entries.

Arrow's parser crashes on a block that starts with ``null``. It reads two objects on one line as
two rows, and does not check UTF-8. So each block is checked first. The check handles the block
as a whole, because a check of every line in Python is slower than parsing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from typing import IO, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from penstock.arrow.casts import CastError, cast_array, decimal_from_text, shown
from penstock.arrow.types import AnyType, NestedArray, data_type, list_like
from penstock.sources.formats.blocks import column_message
from penstock.sources.formats.json_values import (
    AmbiguousObject,
    BadRecordError,
    FloatingText,
    ForeignConstant,
    IntegerText,
    shown_value,
)

Render = Callable[[Any], str]

_INTEGER_DIGITS_MAX = 20
# The smallest numbers that round to infinity in FLOAT and in DOUBLE.
_FLOATING_BOUND = {32: (2.0 - 2.0**-24) * 2.0**127, 64: float("inf")}


class _MisfitError(ValueError):
    """A value that does not fit its column, with the path of the value."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.path: tuple[str, ...] = ()


def record_renderer(schema: pa.Schema) -> Render:
    """Return the function that renders a decoded record for the columns of the schema."""
    render = _struct(pa.struct(list(schema)))

    def render_record(record: dict[str, Any]) -> str:
        try:
            return render(record)
        except _MisfitError as error:
            raise BadRecordError(column_message(error.path, str(error))) from error

    return render_record


def _renderer(arrow: AnyType) -> Render:
    for fits, create in _RENDERERS:
        if fits(arrow):
            return create(arrow)
    raise TypeError(f"JSON values cannot be read as {arrow}")


def _misfit(arrow: AnyType, value: object) -> _MisfitError:
    return _MisfitError(f"expected {data_type(arrow).sql}, found {shown_value(value)}")


def _boolean(arrow: AnyType) -> Render:
    def render(value: object) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        raise _misfit(arrow, value)

    return render


def _integer(arrow: AnyType) -> Render:
    low, high = -(2 ** (arrow.bit_width - 1)), 2 ** (arrow.bit_width - 1) - 1

    def render(value: object) -> str:
        if (
            isinstance(value, IntegerText)
            and len(value) <= _INTEGER_DIGITS_MAX
            and low <= int(value) <= high
        ):
            return value
        raise _misfit(arrow, value)

    return render


def _floating(arrow: AnyType) -> Render:
    bound = _FLOATING_BOUND[arrow.bit_width]

    def render(value: object) -> str:
        if isinstance(value, (IntegerText, FloatingText)) and abs(float(value)) < bound:
            return value
        raise _misfit(arrow, value)

    return render


def _decimal(arrow: AnyType) -> Render:
    def render(value: object) -> str:
        if isinstance(value, str) and not isinstance(value, ForeignConstant):
            try:
                return f'"{decimal_from_text(value.strip(), arrow):f}"'
            except pa.ArrowInvalid as error:
                raise _misfit(arrow, value) from error
        raise _misfit(arrow, value)

    return render


def _text(arrow: AnyType) -> Render:
    scalars = pa.types.is_string(arrow)

    def render(value: object) -> str:
        if type(value) is str:
            return _quoted(value)
        if scalars and isinstance(value, (IntegerText, FloatingText)):
            return f'"{value}"'
        if scalars and isinstance(value, bool):
            return '"true"' if value else '"false"'
        raise _misfit(arrow, value)

    return render


def _quoted(value: str) -> str:
    quoted: str = encode_basestring_ascii(value)
    if "\\ud" in quoted:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _MisfitError("the text contains half of a surrogate pair") from error
    return quoted


def _list(arrow: AnyType) -> Render:
    element = _nullable(arrow.value_type, nullable=arrow.value_field.nullable)

    def render(value: object) -> str:
        if isinstance(value, list):
            return f"[{','.join([element(item) for item in value])}]"
        raise _misfit(arrow, value)

    return render


def _map(arrow: AnyType) -> Render:
    item = _nullable(arrow.item_type, nullable=arrow.item_field.nullable)

    def render(value: object) -> str:
        if not isinstance(value, dict):
            raise _misfit(arrow, value)
        if isinstance(value, AmbiguousObject):
            raise _repeated(min(value.repeated))
        entries = [f'{{"key":{_quoted(key)},"value":{item(at)}}}' for key, at in value.items()]
        return f"[{','.join(entries)}]"

    return render


def _nullable(arrow: AnyType, *, nullable: bool) -> Render:
    render = _renderer(arrow)
    if not nullable:
        return render
    return lambda value: "null" if value is None else render(value)


def _struct(arrow: AnyType) -> Render:
    fields = [
        (field.name, f"{_quoted(field.name)}:", _renderer(field.type), field.nullable)
        for field in arrow
    ]

    def render(value: object) -> str:
        if not isinstance(value, dict):
            raise _misfit(arrow, value)
        parts = []
        name = ""
        try:
            for name, prefix, render_field, nullable in fields:
                item = value.get(name)
                if item is not None or not nullable:
                    parts.append(prefix + render_field(item))
                if isinstance(value, AmbiguousObject) and name in value.repeated:
                    raise _repeated(name)
        except _MisfitError as error:
            error.path = (name, *error.path)
            raise
        return f"{{{','.join(parts)}}}"

    return render


def _repeated(key: str) -> _MisfitError:
    return _MisfitError(f"key {shown(key)} occurs more than once in its object")


_RENDERERS: tuple[tuple[Callable[[Any], bool], Callable[[Any], Render]], ...] = (
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _floating),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_string, _text),
    (pa.types.is_binary, _text),
    (pa.types.is_date, _text),
    (pa.types.is_timestamp, _text),
    (list_like, _list),
    (pa.types.is_map, _map),
    (pa.types.is_struct, _struct),
)


_Octets: TypeAlias = npt.NDArray[np.uint8]
_Indexes: TypeAlias = npt.NDArray[np.intp]

# Arrow cannot read dates from texts, and reads timestamps differently. It silently wraps
# decimals with too many digits. So these types are read as texts and cast afterwards.
_READ_AS_TEXT = (pa.types.is_date, pa.types.is_timestamp, pa.types.is_decimal)
_WORD_SHIFT = 3
_WORD_BYTES = 1 << _WORD_SHIFT
_ASCII_MAX = 127
# Arrow is fastest with pieces of this size. One call parses several pieces.
_PIECE_BYTES = 1 << 20
_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonShape:
    """How to read the columns of a schema from JSON."""

    schema: pa.Schema
    wire_schema: pa.Schema
    render: Render
    # Whether Arrow can parse unchanged records.
    direct: bool
    # The columns that need no cast after Arrow parsed them.
    plain: frozenset[int]


def json_shape(schema: pa.Schema) -> JsonShape:
    """Return how to read the columns of a schema from JSON."""
    wire = pa.schema([_wire_field(field) for field in schema])
    return JsonShape(
        schema=schema,
        wire_schema=wire,
        render=record_renderer(schema),
        direct=not any(_holds_map(field.type) for field in schema),
        plain=frozenset(
            at
            for at, field in enumerate(schema)
            if field.type == wire.field(at).type
            and not pa.types.is_nested(field.type)
            and not pa.types.is_floating(field.type)
        ),
    )


def read_directly(data: bytes | memoryview, shape: JsonShape) -> list[pa.RecordBatch] | None:
    """Parse a block in which each line is one plain record; return None for other blocks."""
    if not shape.direct:
        return None
    lines = _checked_lines(data)
    if lines is None:
        return None
    count, record_bytes_max = lines
    try:
        batches = parse_records(data, shape, record_bytes_max=record_bytes_max)
    except ValueError:
        return None
    # ``_checked_lines`` does not exclude several records on one line. Inside a value, an object
    # follows an object only after a comma, and no string contains a newline. So a record ends
    # where a line ends with "}" and the next line starts with "{".
    # Hence each line has at least one whole record. If rows and lines are equal in number,
    # each line has exactly one record.
    return batches if sum(batch.num_rows for batch in batches) == count else None


def _checked_lines(data: bytes | memoryview) -> tuple[int, int] | None:
    """Return the number of lines and the length of the longest line.

    Return None unless every line is in braces and the text is UTF-8.
    """
    octets = np.frombuffer(data, np.uint8)
    if not len(octets) or octets[0] != _OPEN:
        return None
    if octets.max() > _ASCII_MAX and not _utf8(data):
        return None
    ends = _newlines(octets)
    if octets[-1] != _NEWLINE:
        ends = np.append(ends, len(octets))
    if not (octets[ends[:-1] + 1] == _OPEN).all():
        return None
    # Each line starts with a brace. So the byte before its line end is in the same line.
    last = octets[ends - 1]
    if _RETURN in last:
        last = octets[ends - 1 - (last == _RETURN)]
    if not (last == _CLOSE).all():
        return None
    return len(ends), max(int(ends[0]), int(np.diff(ends).max(initial=0)))


def _newlines(octets: _Octets) -> _Indexes:
    """Return the indexes of all newlines."""
    # Lines are long. So first select the words of eight bytes that contain a newline.
    found = octets == _NEWLINE
    whole = len(found) // _WORD_BYTES * _WORD_BYTES
    words = found[:whole].view(np.uint64)
    picked = np.flatnonzero(words != 0)
    within = np.flatnonzero(words[picked].view(np.bool_))
    # numpy shifts integers faster than it divides them.
    ends = (picked[within >> _WORD_SHIFT] << _WORD_SHIFT) + (within & _WORD_BYTES - 1)
    return np.append(ends, np.flatnonzero(found[whole:]) + whole)


def parse_records(
    data: bytes | memoryview, shape: JsonShape, *, record_bytes_max: int | None = None
) -> list[pa.RecordBatch]:
    """Parse checked or rendered records; raise ``ValueError`` if a record does not fit.

    Returns several batches only if ``record_bytes_max``, the longest record, is known.
    """
    if not data:
        return [pa.RecordBatch.from_pylist([], schema=shape.schema)]
    piece_bytes = len(data) + 1
    if record_bytes_max is not None and record_bytes_max < _PIECE_BYTES:
        piece_bytes = _PIECE_BYTES
    table = pj.read_json(
        cast("IO[bytes]", pa.BufferReader(data)),
        read_options=pj.ReadOptions(use_threads=False, block_size=piece_bytes),
        parse_options=pj.ParseOptions(
            explicit_schema=shape.wire_schema,
            newlines_in_values=False,
            unexpected_field_behavior="ignore",
        ),
    )
    # Arrow returns one batch per piece. A batch without columns has a number of rows too.
    batches = table.to_batches()
    return [_shaped(batch, shape) for batch in batches] if shape.schema.names else batches


def _shaped(batch: pa.RecordBatch, shape: JsonShape) -> pa.RecordBatch:
    columns = [
        column if at in shape.plain else _fitted(column, shape.schema.field(at))
        for at, column in enumerate(batch.columns)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=shape.schema)


def _fitted(array: NestedArray, field: AnyType) -> NestedArray:
    _require_finite(array)
    try:
        return cast_array(array, field.type)
    except CastError as error:
        raise BadRecordError(column_message((field.name, *error.path), error.reason)) from error


def _require_finite(array: NestedArray) -> None:
    """Raise ``BadRecordError`` for NaN and Infinity.

    Arrow accepts both in JSON, and reads numbers that are too large as Infinity.
    """
    if pa.types.is_floating(array.type):
        if pc.all(pc.is_finite(array)).as_py() is False:
            raise BadRecordError("a number must be finite")
    elif pa.types.is_struct(array.type):
        for child in array.flatten():
            _require_finite(child)
    elif list_like(array.type):
        _require_finite(array.flatten())


def _utf8(data: bytes | memoryview) -> bool:
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _wire_field(field: AnyType) -> AnyType:
    return pa.field(field.name, _wire_type(field.type), nullable=field.nullable)


def _wire_type(arrow: AnyType) -> AnyType:
    """Return the type that Arrow parses, before the cast to the column's type."""
    if any(fits(arrow) for fits in _READ_AS_TEXT):
        return pa.string()
    if list_like(arrow):
        return pa.list_(_wire_field(arrow.value_field))
    if pa.types.is_map(arrow):
        item = _wire_field(arrow.item_field).with_name("value")
        return pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), item]))
    if pa.types.is_struct(arrow):
        return pa.struct([_wire_field(field) for field in arrow])
    return arrow


def _holds_map(arrow: AnyType) -> bool:
    if pa.types.is_map(arrow):
        return True
    if pa.types.is_struct(arrow):
        return any(_holds_map(field.type) for field in arrow)
    return list_like(arrow) and _holds_map(arrow.value_type)
