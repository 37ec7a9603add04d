"""Columns whose values stand in the path of a file: ``…/day=2026-01-31/orders.json``."""

from urllib.parse import unquote

import pyarrow as pa

from penstock.model.files import FilesOptions, MissingColumns
from penstock.model.schema import Column
from penstock.sources.formats.blocks import UnreadableFileError
from penstock.storage.arrow_types import AnyArray, arrow_type
from penstock.storage.casts import CastError, cast_array

_NULL = "__HIVE_DEFAULT_PARTITION__"


def path_values(
    key: str, *, source: FilesOptions, columns: tuple[Column, ...]
) -> dict[str, AnyArray]:
    """Answer the value of every such column, as an array of one."""
    text_by_name = dict(part.split("=", 1) for part in key.split("/")[:-1] if "=" in part)
    return {
        column.name: _value(column, text_by_name, missing=source.missing_columns)
        for column in columns
        if column.name in source.path_keys
    }


def _value(
    column: Column, text_by_name: dict[str, str], *, missing: MissingColumns
) -> AnyArray:
    text = text_by_name.get(column.name)
    if text is None and missing is MissingColumns.FAIL:
        raise UnreadableFileError(
            f'its path has no folder "{column.name}=…"',
            hint='Set "missing_columns" to "null", or put the file into such a folder.',
        )
    value = None if text in (None, _NULL) else unquote(str(text))
    try:
        return cast_array(pa.array([value], pa.string()), arrow_type(column.type))
    except CastError as error:
        raise UnreadableFileError(
            f'column "{column.name}" of its path: {error.reason}',
            hint='Declare the column as STRING in "schema".',
        ) from error
