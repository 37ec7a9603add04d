"""Write the values of Arrow arrays as JSON texts, a whole array at a time.

Values without a JSON form, such as dates and NaN, become strings; times are in UTC. There are
two forms. The compact form omits members that are NULL. It writes DECIMAL as a number with all
digits, and BINARY in base 64. The printed form writes NULL as null, and DECIMAL as a string. It
writes BINARY as text, or in hexadecimal if the value is not UTF-8.
"""

import base64
import json
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrow.casts import CastError, can_cast, cast_array
from penstock.arrow.types import AnyArray, NestedArray, list_like

NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})
_WHOLE_SECOND = ".000000"


def json_objects(batch: pa.RecordBatch, *, printed: bool = False) -> list[str | None]:
    """Write each row as an object; None for a row without members in the compact form."""
    names = [_quoted(name) for name in batch.schema.names]
    columns = [json_texts(column, printed=printed) for column in batch.columns]
    rows = zip(*columns, strict=True) if columns else [()] * batch.num_rows
    return [_object(zip(names, row, strict=True), printed=printed) for row in rows]


def _object(members: Iterable[tuple[str, str | None]], *, printed: bool) -> str | None:
    written = [f"{name}: {text or 'null'}" for name, text in members if printed or text]
    return f"{{{', '.join(written)}}}" if written or printed else None


def json_texts(array: NestedArray, *, printed: bool = False) -> list[str | None]:
    """Write each value as JSON; None for NULL."""
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if pa.types.is_struct(array.type):
        fields = pa.RecordBatch.from_arrays(array.flatten(), names=[f.name for f in array.type])
        objects = [text or "{}" for text in json_objects(fields, printed=printed)]
        return _where_valid(array, objects)
    if pa.types.is_map(array.type):
        return _map_texts(array, printed=printed)
    if list_like(array.type):
        elements = [text or "null" for text in json_texts(array.flatten(), printed=printed)]
        return _where_valid(array, [f"[{text}]" for text in _joined(array, elements)])
    texts = plain_texts(array, printed=printed)
    types, arrow = pa.types, array.type
    if (
        types.is_boolean(arrow)
        or types.is_integer(arrow)
        or types.is_floating(arrow)
        or (types.is_decimal(arrow) and not printed)
    ):
        return [_quoted(text) if text in NOT_FINITE else text for text in texts]
    return [None if text is None else _quoted(text) for text in texts]


def _map_texts(array: NestedArray, *, printed: bool) -> list[str | None]:
    entry = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
    entries = array.cast(pa.list_(entry))
    keys, values = (json_texts(part, printed=printed) for part in entries.flatten().flatten())
    # A key must be a string in JSON.
    texts = [key if key and key.startswith('"') else _quoted(key or "") for key in keys]
    members = [f"{key}: {value or 'null'}" for key, value in zip(texts, values, strict=True)]
    return _where_valid(array, [f"{{{text}}}" for text in _joined(entries, members)])


def _joined(array: NestedArray, elements: list[str]) -> list[str]:
    """Join the elements of each list."""
    lengths = pc.list_value_length(array).fill_null(0)
    ends = [0, *pc.cumulative_sum(lengths).to_pylist()]
    return [", ".join(elements[start:end]) for start, end in pairwise(ends)]


def _where_valid(array: AnyArray, texts: list[str]) -> list[str | None]:
    return [
        text if valid else None
        for text, valid in zip(texts, array.is_valid().to_pylist(), strict=True)
    ]


def plain_texts(array: NestedArray, *, printed: bool = False) -> list[str | None]:
    """Write each scalar as text without quotes; None for NULL."""
    types, arrow = pa.types, array.type
    if types.is_string(arrow) or types.is_large_string(arrow):
        # Texts in files may be invalid UTF-8; invalid bytes are replaced.
        octets = array.cast(pa.large_binary()).to_pylist()
        return [None if text is None else text.decode(errors="replace") for text in octets]
    if types.is_binary(arrow) or types.is_large_binary(arrow):
        octets = array.to_pylist()
        return [None if value is None else _binary(value, printed=printed) for value in octets]
    if types.is_timestamp(arrow) and printed:
        texts = array.cast(pa.timestamp("us")).cast(pa.string()).to_pylist()
        return [text and text.removesuffix(_WHOLE_SECOND) for text in texts]
    try:
        # The cast fails for nanoseconds, which no column type has. Arrow then formats the
        # values.
        with suppress(CastError):
            if can_cast(arrow, pa.string()):
                return list(cast_array(array, pa.string()).to_pylist())
        return list(array.cast(pa.string()).to_pylist())
    except pa.ArrowNotImplementedError:
        return [None if value is None else str(value) for value in array.to_pylist()]


def _binary(value: bytes, *, printed: bool) -> str:
    if not printed:
        return base64.b64encode(value).decode()
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
