"""Generate rows in batches inside a task.

Invariant: a value depends only on the seed, the field and the row number.
"""

import hashlib
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrow.types import AnyArray, arrow_type
from penstock.errors import InvariantError, UserError
from penstock.model.schema import Column, Decimal, Primitive
from penstock.model.split import At, Note, ReadCounts, SplitRead
from penstock.sources.datagen.kind import (
    DatagenOptions,
    FieldKind,
    FieldOptions,
    bounds,
    fields_of,
    sequence_range,
)
from penstock.sources.registry import source_options
from penstock.sources.source import Place, ReadTask, RowBlock, TaskReader

_BATCH_ROWS = 10_000
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", dtype=np.uint8)
_MICROSECONDS = 1_000_000
_SECONDS_A_DAY = 86_400
# Decimals with up to this number of digits fit into 64 bits.
_DIGITS_OF_A_WORD = 18

Numbers = Any  # A numpy array; its exact type varies.


class DatagenReader(TaskReader):
    """Generates the rows of one task."""

    def __init__(self, task: ReadTask) -> None:
        self._task = task
        self._options: DatagenOptions = source_options(task.source)
        self._fields = fields_of(self._options, task.columns)
        self.notes: list[Note] = []

    def blocks(self) -> Iterator[RowBlock]:
        for read in self._task.reads:
            yield from self._rows(read)

    def _rows(self, read: SplitRead) -> Iterator[RowBlock]:
        if not isinstance(read.begin, At) or not isinstance(read.end, At):
            raise InvariantError(
                f"a read of DATAGEN must have row numbers, not {read.begin} and {read.end}"
            )
        first_row, end = int(read.begin.value), int(read.end.value)
        start = datetime.fromisoformat(read.work)
        for first in range(first_row, end, _BATCH_ROWS):
            own = np.arange(first, min(first + _BATCH_ROWS, end), dtype=np.int64)
            rows = own * self._options.splits + int(read.split)
            yield RowBlock(
                batch=self.batch(rows, start=start), place=partial(_place, read.split, rows)
            )
        counts = ReadCounts(
            rows_read=end - first_row, rows_parsed=end - first_row, records=end - first_row
        )
        self.notes.append(
            Note(read=read.id, end=read.end, counts=counts, result=f"{first_row}-{end}")
        )

    def batch(self, rows: Numbers, *, start: datetime) -> pa.RecordBatch:
        """Return the needed columns of the rows with these numbers."""
        by_name = {column.name: column for column in self._task.columns}
        arrays = [self._column(by_name[name], rows, start=start) for name in self._task.needed]
        return pa.RecordBatch.from_arrays(arrays, names=list(self._task.needed))

    def _column(self, column: Column, rows: Numbers, *, start: datetime) -> Any:  # noqa: ANN401
        given = self._fields[column.name]
        target = arrow_type(column.type)
        match given.kind:
            case FieldKind.SEQUENCE:
                return _sequence(column, given.start, rows)
            case FieldKind.NOW:
                return _cast_times(self._times(rows, start), target)
            case FieldKind.RANDOM:
                return self._random(column, given, rows)

    def _times(self, rows: Numbers, start: datetime) -> Numbers:
        """Return the times at which rows are due, in microseconds since 1970."""
        first = round(start.timestamp() * _MICROSECONDS)
        rate = self._options.rows_per_second
        if rate is None:
            return rows * 0 + first
        # The product rows * _MICROSECONDS may overflow 64 bits, so it is computed in two parts.
        seconds, rest = rows // rate, rows % rate
        return first + seconds * _MICROSECONDS + rest * _MICROSECONDS // rate

    def _random(self, column: Column, given: FieldOptions, rows: Numbers) -> Any:  # noqa: ANN401
        target, kind = arrow_type(column.type), column.type
        noise = _noise(self._options.seed, column.name, rows)
        if kind is Primitive.BOOLEAN:
            return pa.array((noise & np.uint64(1)).astype(bool))
        if kind in (Primitive.STRING, Primitive.BINARY):
            return _texts(self._options.seed, column.name, rows, given.length).cast(target)
        low, high = bounds(column, given)
        # A double has 53 significant bits.
        part = (noise >> np.uint64(11)).astype(np.float64) / 2.0**53
        if kind is Primitive.DATE:
            first, last = int(low // _SECONDS_A_DAY), int(high // _SECONDS_A_DAY)
            return _whole(noise, first, last).cast(pa.int32()).cast(target)
        if kind in (Primitive.TIMESTAMP, Primitive.TIMESTAMP_NTZ):
            seconds = low + part * (high - low)
            return _cast_times((seconds * _MICROSECONDS).astype(np.int64), target)
        if kind in (Primitive.FLOAT, Primitive.DOUBLE):
            return pa.array(low + part * (high - low)).cast(target)
        if isinstance(kind, Decimal):
            unscaled = np.floor((low + part * (high - low)) * 10.0**kind.scale)
            return _decimals(unscaled, kind)
        return _whole(noise, int(low), int(high)).cast(target)


def _sequence(column: Column, start: int, rows: Numbers) -> Any:  # noqa: ANN401
    """Return the row numbers plus a start value."""
    target, largest = arrow_type(column.type), sequence_range(column.type)[1]
    if int(rows[-1]) + start > largest:
        raise UserError(
            f'sequence of field "{column.name}" exceeds the largest value of '
            f"{column.type.sql}, {largest}",
            hint="Stop the load, and create another one with a wider column type.",
        )
    values = pa.array(rows + start)
    if isinstance(column.type, Decimal):
        return values.cast(pa.decimal128(19)).cast(target)
    # Large numbers are rounded if the column has a floating-point type.
    return values.cast(target, safe=False)


def _decimals(unscaled: Numbers, kind: Decimal) -> Any:  # noqa: ANN401
    """Return a decimal array; Arrow stores each value as a 128-bit integer."""
    largest = 10**kind.precision - 1
    if kind.precision <= _DIGITS_OF_A_WORD:
        # The lower 64 bits are the value, the upper 64 bits repeat its sign.
        values = np.minimum(unscaled.astype(np.int64), largest)
        data = np.stack([values, values >> 63], axis=1).tobytes()
    else:
        whole = (min(int(value), largest) for value in unscaled)
        data = b"".join(value.to_bytes(16, "little", signed=True) for value in whole)
    return pa.Array.from_buffers(arrow_type(kind), len(unscaled), [None, pa.py_buffer(data)])


def _whole(noise: Numbers, low: int, high: int) -> Any:  # noqa: ANN401
    """Return integers between ``low`` and ``high``, both included."""
    return pa.array((noise % np.uint64(high - low + 1)).astype(np.int64) + low)


def _place(split: str, rows: Numbers, row: int) -> Place:
    return (split, int(rows[row]))


def _noise(seed: int, name: str, rows: Numbers, *, salt: int = 0) -> Numbers:
    """Return 64 random bits for each row, from the finalizer of SplitMix64."""
    digest = hashlib.sha256(f"{seed}/{name.lower()}/{salt}".encode()).digest()
    key = np.uint64(int.from_bytes(digest[:8], "big"))
    with np.errstate(over="ignore"):
        z = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + key
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _texts(seed: int, name: str, rows: Numbers, length: int) -> AnyArray:
    """Return strings of random letters; 64 random bits are enough for twelve letters."""
    letters_per_word = 12
    words = -(-length // letters_per_word)
    letters = np.empty((len(rows), words * letters_per_word), dtype=np.uint8)
    for word in range(words):
        noise = _noise(seed, name, rows, salt=word + 1)
        for letter in range(letters_per_word):
            letters[:, word * letters_per_word + letter] = _LETTERS[noise % np.uint64(26)]
            noise = noise // np.uint64(26)
    data = np.ascontiguousarray(letters[:, :length])
    offsets = np.arange(0, (len(rows) + 1) * length, length, dtype=np.int32)
    return pa.StringArray.from_buffers(
        len(rows), pa.py_buffer(offsets.tobytes()), pa.py_buffer(data.tobytes())
    )


def _cast_times(microseconds: Numbers, target: pa.DataType) -> Any:  # noqa: ANN401
    if pa.types.is_date(target):
        days = microseconds // (_SECONDS_A_DAY * _MICROSECONDS)
        return pa.array(days.astype(np.int32)).cast(pa.date32())
    return pa.array(microseconds).cast(target)
