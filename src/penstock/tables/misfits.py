"""Sort the rows that do not fit a table out of a batch, and keep the others."""

from dataclasses import dataclass

import pyarrow as pa

from penstock.model.job import TargetColumn
from penstock.model.schema import Column
from penstock.tables.fitting import RowError, fit


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedOut:
    """Rows that fit, in batches of the table's schema, and what is wrong with the others."""

    fitting: tuple[pa.RecordBatch, ...]
    misfits: tuple[RowError, ...]


def sort_out(
    batch: pa.RecordBatch,
    *,
    targets: tuple[TargetColumn, ...],
    columns: tuple[Column, ...],
    partition_by: tuple[str, ...],
) -> SortedOut:
    """Fit what fits; the rows of the errors are counted from the batch's first."""
    fitting: list[pa.RecordBatch] = []
    misfits: list[RowError] = []
    # Nearly all rows fit, so a batch that does not is halved until the bad row is alone.
    waiting = [(0, batch)]
    while waiting:
        first, part = waiting.pop()
        try:
            fitting.append(
                fit(part, targets=targets, columns=columns, partition_by=partition_by)
            )
        except RowError as error:
            if part.num_rows == 1:
                misfits.append(RowError(first, error.column, error.reason))
                continue
            half = part.num_rows // 2
            waiting.append((first + half, part.slice(half)))
            waiting.append((first, part.slice(0, half)))
    return SortedOut(fitting=tuple(fitting), misfits=tuple(misfits))
