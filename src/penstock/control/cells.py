"""Rows of Arrow as cells that can be printed.

Booleans, integers and finite floating numbers stay what they are. Nested values are JSON, all
others are texts.
"""

import pyarrow as pa

from penstock.arrow.json_text import NOT_FINITE, json_texts, plain_texts
from penstock.arrow.types import AnyType, NestedArray, data_type
from penstock.control.result import Cell, Result, ResultColumn
from penstock.errors import UserError


def result_of(rows: "pa.Table") -> Result:
    """Return the rows as a result."""
    columns = [
        [cell for chunk in column.chunks for cell in _cells(chunk)] for column in rows.columns
    ]
    cells = zip(*columns, strict=True) if columns else ()
    return Result(
        columns=tuple(
            ResultColumn(name=field.name, type=_type_name(field.type)) for field in rows.schema
        ),
        rows=tuple(cells),
        batches=rows.to_batches(),
    )


def _type_name(kind: AnyType) -> str:
    """Return the SQL name of an Arrow type; STRING for what no column can have."""
    try:
        return data_type(kind).sql
    except UserError:
        return "STRING"


def _cells(array: NestedArray) -> list[Cell]:
    if pa.types.is_nested(array.type):
        return list(json_texts(array, printed=True))
    if pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
        return list(array.to_pylist())
    texts = plain_texts(array, printed=True)
    if pa.types.is_floating(array.type):
        # The text of a FLOAT has no more digits than the value.
        return [t if t is None or t in NOT_FINITE else float(t) for t in texts]
    return list(texts)
