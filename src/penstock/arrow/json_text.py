"""Write the values of Arrow arrays as JSON texts, a whole array at a time.

Numbers are written with all of their digits, binary values in base 64, and what JSON has no
value for, such as a date or NaN, as a text.
"""

import base64
import json
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrow.casts import CastError, can_cast, cast_array
from penstock.arrow.types import AnyArray, NestedArray, list_like

_NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})


def json_objects(batch: pa.RecordBatch) -> list[str | None]:
    """Write every row as an object of its values that are not NULL; None if there is none."""
    names = [json.dumps(name, ensure_ascii=False) for name in batch.schema.names]
    columns = [json_texts(column) for column in batch.columns]
    return [
        _object((name, column[row]) for name, column in zip(names, columns, strict=True))
        for row in range(batch.num_rows)
    ]


def _object(members: Iterator[tuple[str, str | None]]) -> str | None:
    written = [f"{name}: {text}" for name, text in members if text is not None]
    return f"{{{', '.join(written)}}}" if written else None


def json_texts(array: NestedArray) -> list[str | None]:
    """Write every value as JSON; None for NULL."""
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if pa.types.is_struct(array.type):
        return _struct_texts(array)
    if pa.types.is_map(array.type):
        return _map_texts(array)
    if list_like(array.type):
        return _list_texts(array)
    return _scalar_texts(array)


def _struct_texts(array: NestedArray) -> list[str | None]:
    fields = pa.RecordBatch.from_arrays(array.flatten(), names=[f.name for f in array.type])
    texts = [text or "{}" for text in json_objects(fields)]
    return _where_valid(array, texts)


def _map_texts(array: NestedArray) -> list[str | None]:
    entry = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
    entries = array.cast(pa.list_(entry))
    keys, values = (json_texts(part) for part in entries.flatten().flatten())
    members = [
        f"{_key(key)}: {value or 'null'}" for key, value in zip(keys, values, strict=True)
    ]
    return _where_valid(array, [f"{{{text}}}" for text in _joined(entries, members)])


def _key(text: str | None) -> str:
    """Write a key, which must be a text whatever it was."""
    return text if text and text.startswith('"') else json.dumps(text, ensure_ascii=False)


def _list_texts(array: NestedArray) -> list[str | None]:
    elements = [text or "null" for text in json_texts(array.flatten())]
    return _where_valid(array, [f"[{text}]" for text in _joined(array, elements)])


def _joined(array: NestedArray, elements: list[str]) -> list[str]:
    """Join the elements of each list."""
    lengths = pc.list_value_length(array).fill_null(0)
    ends = [0, *pc.cumulative_sum(lengths).to_pylist()]
    return [", ".join(elements[begin:end]) for begin, end in pairwise(ends)]


def _where_valid(array: AnyArray, texts: list[str]) -> list[str | None]:
    return [
        text if valid else None
        for text, valid in zip(texts, array.is_valid().to_pylist(), strict=True)
    ]


def _scalar_texts(array: NestedArray) -> list[str | None]:
    types = pa.types
    if types.is_boolean(array.type):
        return _plain_texts(array)
    if types.is_integer(array.type) or types.is_decimal(array.type):
        return _plain_texts(array)
    if types.is_floating(array.type):
        return [_quoted(text) if text in _NOT_FINITE else text for text in _plain_texts(array)]
    return [_quoted(text) for text in _quotable_texts(array)]


def _quotable_texts(array: NestedArray) -> list[str | None]:
    types = pa.types
    if types.is_string(array.type) or types.is_large_string(array.type):
        # A file may hold texts that are not UTF-8; they are shown all the same.
        octets = array.cast(pa.large_binary()).to_pylist()
        return [None if text is None else text.decode(errors="replace") for text in octets]
    if types.is_binary(array.type) or types.is_large_binary(array.type):
        return [
            None if value is None else base64.b64encode(value).decode()
            for value in array.to_pylist()
        ]
    return _plain_texts(array)


def _plain_texts(array: NestedArray) -> list[str | None]:
    texts: list[str | None]
    try:
        texts = _cast_to_text(array).to_pylist()
    except pa.ArrowNotImplementedError:
        texts = [None if value is None else str(value) for value in array.to_pylist()]
    return texts


def _cast_to_text(array: NestedArray) -> NestedArray:
    text = pa.string()
    try:
        return cast_array(array, text) if can_cast(array.type, text) else array.cast(text)
    except CastError:
        # Nanoseconds are more than our own timestamps hold; they are shown all the same.
        return array.cast(text)


def _quoted(text: str | None) -> str | None:
    return None if text is None else json.dumps(text, ensure_ascii=False)
