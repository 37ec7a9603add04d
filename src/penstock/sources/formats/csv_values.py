"""Turn the texts of one CSV column into its values, or say which of them do not fit."""

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sources.formats.csv_layout import CsvLayout
from penstock.storage.arrow_types import AnyArray, AnyField, NestedArray, data_type
from penstock.storage.casts import CastError, cast_array


def column_values(texts: NestedArray, field: AnyField, layout: CsvLayout) -> AnyArray:
    """Give the values of a column; raise ``CastError`` for the first text that does not fit."""
    if layout.empty_field_as_null or not pa.types.is_string(field.type):
        texts = _empty_as_null(texts)
    values = cast_array(texts, field.type)
    if not field.nullable and values.null_count:
        row = pc.index(values.is_null(), value=True).as_py()
        raise CastError(row, f"expected {data_type(field.type).sql}, found null")
    return values


def misfits(texts: NestedArray, field: AnyField, layout: CsvLayout) -> dict[int, str]:
    """Give the reason for every text that does not fit, by its row."""
    reason_by_row: dict[int, str] = {}
    waiting = [(0, texts)]
    while waiting:
        first, part = waiting.pop()
        try:
            column_values(part, field, layout)
        except CastError as error:
            reason_by_row[first + error.row] = error.reason
            # By halves, because nearly all texts fit.
            rest = part.slice(error.row + 1)
            half = len(rest) // 2
            begin = first + error.row + 1
            waiting += [(begin, rest.slice(0, half)), (begin + half, rest.slice(half))]
    return reason_by_row


def _empty_as_null(texts: NestedArray) -> NestedArray:
    empty = pc.equal(texts, pa.scalar(""))
    if not pc.any(empty).as_py():
        return texts
    return pc.if_else(empty, pa.scalar(None, pa.string()), texts)
