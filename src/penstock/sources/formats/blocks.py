"""Inputs and outputs of all format readers: wanted columns, blocks of rows, bad records."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.arrow.bisect import bad_rows
from penstock.arrow.casts import CastError
from penstock.arrow.types import AnyArray, AnyField
from penstock.errors import Code, UserError
from penstock.sources.files.kind import RESCUED, MissingColumns

Numbers: TypeAlias = npt.NDArray[np.int64]
# The record number of each row.
RowNumbers: TypeAlias = range | Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The columns of the records, and the names of the columns to read."""

    columns: pa.Schema
    names: tuple[str, ...]
    missing: MissingColumns = MissingColumns.NULL
    # Whether to read the fields that have no column, as JSON in one extra column.
    rescue: bool = False

    @property
    def fields(self) -> list[AnyField]:
        """The columns to read."""
        return [self.columns.field(name) for name in self.names]

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        rescued = [pa.field(RESCUED, pa.string())] if self.rescue else []
        return pa.schema([*self.fields, *rescued])


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """A record that could not be loaded: its number, the reason, and its bytes."""

    record: int
    error: str
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBlock:
    """Rows of some records, the record number of each row, and the bad records.

    In a file, the number of a record is its first line; the first line of the range is 0. In a
    stream, the number is the index of the payload. ``lines`` counts good, blank and bad rows:
    ``lines == batch.num_rows + blank + len(bad)``.
    """

    batch: pa.RecordBatch
    record_of_row: RowNumbers
    lines: int
    blank: int = 0
    bad: tuple[BadRecord, ...] = ()


def misfit_reasons(
    array: AnyArray, field: AnyField, convert: Callable[[AnyArray, AnyField], object]
) -> dict[int, str]:
    """Return the reason by row, for each value that does not fit the column's type."""

    def check(first: int, count: int) -> None:
        convert(array.slice(first, count), field)

    return {
        row: column_message((field.name, *error.path), error.reason)
        for row, error in bad_rows(len(array), check, CastError)
    }


def column_message(path: tuple[str, ...], reason: str) -> str:
    """Return a message that names the column and the reason."""
    return f'column "{".".join(path)}": {reason}'


class UnreadableFileError(UserError):
    """A file that violates its format; none of its rows are loaded."""

    code_default = Code.FILE_ERR
