"""Read shards inside a task, several at once, with a note for each."""

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
from penstock.sources.formats.payloads import Decoder, without_rows
from penstock.sources.kinesis.access import unsealed_access
from penstock.sources.kinesis.client import GIVE_UP_AFTER, Patience, StreamClient
from penstock.sources.kinesis.kind import KinesisOptions
from penstock.sources.kinesis.reading import ShardPages, ShardReading, list_shards
from penstock.sources.kinesis.records import Fate, Item, chunks_of, metadata_of
from penstock.sources.kinesis.shards import ShardWork
from penstock.sources.registry import source_options
from penstock.sources.source import BadRow, ReadTask, RowBlock
from penstock.sources.threads import interleaved

_THREADS_MAX = 16


class KinesisReader:
    """Reads the shards of one task."""

    def __init__(self, task: ReadTask) -> None:
        if task.payload is None:
            raise InvariantError("a task that reads shards needs the format of the records")
        self._task = task
        self._options: KinesisOptions = source_options(task.source)
        self._payload = task.payload
        self._access = unsealed_access(task.access)
        self._client = StreamClient(self._access)
        self._stop = threading.Event()
        self._clock = SystemClock()
        self._patience = Patience(
            clock=self._clock, give_up_after=GIVE_UP_AFTER, stop=self._stop
        )
        self._noted = 0
        self.notes: list[Note] = []

    @property
    def requests(self) -> int:
        """How many requests were sent to the stream."""
        return self._client.requests

    def close(self) -> None:
        """End the threads."""
        self._stop.set()

    def blocks(self) -> Iterator[RowBlock]:
        """Yield the rows of all shards; those of one shard come in their order."""
        streams = [partial(self._shard, read) for read in self._task.reads]
        for found in interleaved(streams, threads=_THREADS_MAX, stop=self._stop):
            if isinstance(found, Note):
                self.notes.append(self._with_requests(found))
            else:
                yield found

    def _with_requests(self, note: Note) -> Note:
        """Add the requests that no earlier note has."""
        before, self._noted = self._noted, self._client.requests
        counts = replace(note.counts, requests=self._noted - before)
        return replace(note, counts=counts)

    def _shard(self, read: SplitRead) -> Iterator[RowBlock | Note]:
        reading = self._reading(read)
        task = self._task
        decoder = Decoder(self._payload, columns=task.columns, needed=task.needed)
        counts = ReadCounts()
        for items in chunks_of(reading.items()):
            counts = _counted(counts, items)
            loaded = [item for item in items if item.fate is Fate.LOADED]
            beside = metadata_of(loaded, shard=read.split, needed=task.needed)
            for decoded in decoder.decode([item.data for item in loaded], beside):
                counts = _with_decoded(counts, decoded)
                yield _row_block(read.split, loaded, decoded)
            if unloaded := _unloaded(items):
                yield _row_block(read.split, items, unloaded)
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
            self._client,
            self._access,
            read.split,
            read.begin,
            patience=self._patience,
            is_closed=partial(self._is_closed, work),
            iterator=work.iterator,
        )
        return ShardReading(
            pages,
            begun=read.begin,
            limits=limits_of_each(read.limits, shards=len(self._task.reads)),
            clock=self._clock,
            hash_keys=work.shard.hash_keys,
            foreign=self._options.foreign_records,
            page_records_max=self._options.page_records_max,
            stop=self._stop,
        )

    def _is_closed(self, work: ShardWork) -> bool:
        """Return whether the shard takes no new records; listed if it is not known."""
        if work.shard.closed:
            return True
        listed = list_shards(
            self._client, self._access, self._patience, page=self._options.page_shards_max
        )
        return any(shard.id == work.shard.id and shard.closed for shard in listed)


def _row_block(shard: str, items: Sequence[Item], decoded: RecordBlock) -> RowBlock:
    bad = tuple(
        BadRow(place=(shard, items[one.record].sequence), error=one.error, raw=one.raw)
        for one in decoded.bad
    )
    return RowBlock(
        batch=decoded.batch,
        place=lambda row: (shard, items[decoded.record_of_row[row]].sequence),
        bad=bad,
    )


def limits_of_each(limits: ReadLimits, *, shards: int) -> ReadLimits:
    """Share the time of an epoch out: with more shards than threads some wait for others."""
    rounds = -(-shards // _THREADS_MAX)
    return replace(limits, duration=limits.duration / rounds)


def _counted(counts: ReadCounts, items: Sequence[Item]) -> ReadCounts:
    """Count records, and those that no row is made of."""
    fates = [item.fate for item in items]
    skipped = fates.count(Fate.SKIPPED)
    foreign = fates.count(Fate.FOREIGN)
    rejected = fates.count(Fate.REJECTED) + foreign
    return replace(
        counts,
        records=counts.records + len(items),
        size_bytes=counts.size_bytes + sum(len(item.data) for item in items),
        rows_read=counts.rows_read + skipped + rejected,
        rows_skipped=counts.rows_skipped + skipped,
        rows_rejected=counts.rows_rejected + rejected,
        rows_foreign=counts.rows_foreign + foreign,
    )


def _with_decoded(counts: ReadCounts, decoded: RecordBlock) -> ReadCounts:
    return replace(
        counts,
        rows_read=counts.rows_read + decoded.lines,
        rows_parsed=counts.rows_parsed + decoded.batch.num_rows,
        rows_skipped=counts.rows_skipped + decoded.blank,
        rows_rejected=counts.rows_rejected + len(decoded.bad),
    )


def _unloaded(items: Sequence[Item]) -> RecordBlock | None:
    """Answer the records that are rejected as a whole, if there are any."""
    bad = tuple(
        BadRecord(record=number, error=item.error, raw=item.data)
        for number, item in enumerate(items)
        if item.fate in (Fate.REJECTED, Fate.FOREIGN)
    )
    return without_rows(pa.schema([]), bad=bad) if bad else None
