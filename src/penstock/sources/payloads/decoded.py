"""What becomes of records: rows, and what could not be loaded."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.sources.formats.blocks import RecordBlock

Numbers: TypeAlias = npt.NDArray[np.int64]
# Indexes of records, one for every row.
RecordNumbers: TypeAlias = range | Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class BadPayload:
    """A row, or a whole record, that could not be loaded: whose, why, and its bytes."""

    record: int
    error: str
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Rows of some records, each with its record, and what gave no row.

    ``lines`` counts everything that could have been a row: ``lines == batch.num_rows + blank
    + len(bad)``.
    """

    batch: pa.RecordBatch
    record_of_row: RecordNumbers
    lines: int
    blank: int = 0
    bad: tuple[BadPayload, ...] = ()


# Reads texts; the records of what it gives are indexes of the texts.
ReadTexts: TypeAlias = Callable[[Sequence[bytes]], Iterator[Decoded]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which columns records have, and which of them are wanted."""

    columns: pa.Schema
    names: tuple[str, ...]
    rescue: bool


def without_rows(
    schema: pa.Schema, *, blank: int = 0, bad: tuple[BadPayload, ...] = ()
) -> Decoded:
    """Give what became of records that are all blank or bad."""
    return Decoded(
        batch=pa.RecordBatch.from_pylist([], schema=schema),
        record_of_row=range(0),
        lines=blank + len(bad),
        blank=blank,
        bad=bad,
    )


def decoded_blocks(
    blocks: Iterable[RecordBlock], *, records_of: Callable[[Numbers], Numbers] | None
) -> Iterator[Decoded]:
    """Give the rows of blocks; ``records_of`` tells the records of lines, None: the same."""
    for block in blocks:
        lines = _lines_of_rows(block)
        faulty = np.array([bad.line for bad in block.bad], np.int64)
        owners = faulty if records_of is None else records_of(faulty)
        yield Decoded(
            batch=block.batch,
            record_of_row=lines if records_of is None else records_of(np.asarray(lines)),
            lines=block.lines,
            blank=block.blank,
            bad=tuple(
                BadPayload(record=owner, error=bad.error, raw=bad.raw)
                for owner, bad in zip(owners.tolist(), block.bad, strict=True)
            ),
        )


def _lines_of_rows(block: RecordBlock) -> RecordNumbers:
    if block.row_lines is None:
        return range(block.first_line, block.first_line + block.rows)
    return np.array(block.row_lines, np.int64) + block.first_line
