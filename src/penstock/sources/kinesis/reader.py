"""Read the shards of a task in parallel, and write a note for each shard."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from penstock.clock import SystemClock
from penstock.errors import InvariantError
from penstock.model.codec import from_text, to_text
from penstock.model.split import Note, ReadCounts, ReadLimits, SplitRead
from penstock.sources.formats.blocks import BadRecord, RecordBlock
from penstock.sources.formats.payloads import Decoder, empty_block
from penstock.sources.kinesis.client import Retries, StreamClient, unsealed_access
from penstock.sources.kinesis.kind import KinesisOptions
from penstock.sources.kinesis.reading import ShardPages, ShardReading, list_shards
from penstock.sources.kinesis.records import Item, RecordState, chunks_of, metadata_of
from penstock.sources.kinesis.shards import ShardWork
from penstock.sources.registry import source_options
from penstock.sources.source import BadRow, ReadTask, RowBlock
from penstock.sources.threads import interleave

_THREADS_MAX = 16


class KinesisReader:
    """Reader of the shards of one task."""

    def __init__(self, task: ReadTask) -> None:
        if task.payload is None:
            raise InvariantError("a task that reads shards needs a record format")
        self._task = task
        self._options: KinesisOptions = source_options(task.source)
        self._payload = task.payload
        self._stop = threading.Event()
        retries = Retries(clock=SystemClock(), stop=self._stop)
        self._client = StreamClient(unsealed_access(task.access), retries)
        self._requests_noted = 0
        self.notes: list[Note] = []

    @property
    def requests(self) -> int:
        return self._client.requests

    def close(self) -> None:
        self._stop.set()

    def blocks(self) -> Iterator[RowBlock]:
        # The rows of one shard keep their order.
        streams = [partial(self._shard, read) for read in self._task.reads]
        for found in interleave(streams, threads=_THREADS_MAX, stop=self._stop):
            if not isinstance(found, Note):
                yield found
                continue
            # Count the requests that were sent since the previous note.
            before, self._requests_noted = self._requests_noted, self._client.requests
            counts = replace(found.counts, requests=self._requests_noted - before)
            self.notes.append(replace(found, counts=counts))

    def _shard(self, read: SplitRead) -> Iterator[RowBlock | Note]:
        reading = self._reading(read)
        task = self._task
        decoder = Decoder(self._payload, columns=task.columns, needed=task.needed)
        counts = ReadCounts()
        for items in chunks_of(reading.items()):
            loaded = [item for item in items if item.state is RecordState.LOADED]
            metadata = metadata_of(loaded, shard=read.split, needed=task.needed)
            for decoded in decoder.decode([item.record.data for item in loaded], metadata):
                counts = _with_decoded(counts, decoded)
                yield _row_block(read.split, loaded, decoded)
            unloaded = _unloaded(items)
            counts = _with_decoded(counts, unloaded)
            if unloaded.bad:
                yield _row_block(read.split, items, unloaded)
            counts = replace(
                counts,
                records=counts.records + len(items),
                size_bytes=counts.size_bytes + sum(len(item.record.data) for item in items),
                rows_foreign=counts.rows_foreign
                + sum(item.state is RecordState.FOREIGN for item in items),
            )
        yield Note(
            read=read.id,
            end=reading.outcome.position,
            counts=counts,
            result=to_text(reading.outcome),
        )

    def _reading(self, read: SplitRead) -> ShardReading:
        work = from_text(ShardWork, read.work)
        if read.limits is None:
            raise InvariantError("the read of a shard needs limits")
        pages = ShardPages(
            client=self._client,
            shard=read.split,
            position=read.begin,
            is_closed=partial(self._is_closed, work),
            iterator=work.iterator,
        )
        return ShardReading(
            pages,
            limits=limits_per_shard(read.limits, shards=len(self._task.reads)),
            options=self._options,
            hash_keys=work.shard.hash_keys,
        )

    def _is_closed(self, work: ShardWork) -> bool:
        if work.shard.closed:
            return True
        listed = list_shards(self._client)
        return any(shard.id == work.shard.id and shard.closed for shard in listed)


def _row_block(shard: str, items: Sequence[Item], decoded: RecordBlock) -> RowBlock:
    bad = tuple(
        BadRow(place=(shard, items[one.record].record.sequence), error=one.error, raw=one.raw)
        for one in decoded.bad
    )
    return RowBlock(
        batch=decoded.batch,
        place=lambda row: (shard, items[decoded.record_of_row[row]].record.sequence),
        bad=bad,
    )


def limits_per_shard(limits: ReadLimits, *, shards: int) -> ReadLimits:
    """Divide the duration of an epoch, because shards beyond the threads wait."""
    rounds = -(-shards // _THREADS_MAX)
    return replace(limits, duration=limits.duration / rounds)


def _with_decoded(counts: ReadCounts, decoded: RecordBlock) -> ReadCounts:
    return replace(
        counts,
        rows_read=counts.rows_read + decoded.lines,
        rows_parsed=counts.rows_parsed + decoded.batch.num_rows,
        rows_skipped=counts.rows_skipped + decoded.blank,
        rows_rejected=counts.rows_rejected + len(decoded.bad),
    )


def _unloaded(items: Sequence[Item]) -> RecordBlock:
    """Return the skipped and rejected records as a block without rows."""
    bad = tuple(
        BadRecord(record=number, error=item.error, raw=item.record.data)
        for number, item in enumerate(items)
        if item.state in (RecordState.REJECTED, RecordState.FOREIGN)
    )
    skipped = sum(item.state is RecordState.SKIPPED for item in items)
    return empty_block(pa.schema([]), blank=skipped, bad=bad)
