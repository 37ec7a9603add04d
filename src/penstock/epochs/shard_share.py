"""Read shards of a stream, several at once, with a note for each."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from penstock.clock import SystemClock
from penstock.epochs.output import Rejects, RowPlace, Stage
from penstock.epochs.task_plan import TaskPlan
from penstock.errors import InvariantError
from penstock.model.epoch import Note
from penstock.model.split import ReadLimits, ShardPart, ShardRead
from penstock.sources.formats.payloads import BadPayload, Decoded, Decoder, without_rows
from penstock.sources.kinesis.access import unsealed_access
from penstock.sources.kinesis.client import GIVE_UP_AFTER, Patience, StreamClient
from penstock.sources.kinesis.options import KinesisOptions
from penstock.sources.kinesis.pages import ShardPages, list_shards
from penstock.sources.kinesis.reading import ShardReading
from penstock.sources.kinesis.records import Fate, Item, chunks_of, metadata_of
from penstock.sources.threads import interleaved

_THREADS_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """Rows of some records of a shard, and what gave none."""

    shard: str
    items: Sequence[Item]
    decoded: Decoded

    @property
    def batch(self) -> pa.RecordBatch:
        """The rows."""
        return self.decoded.batch

    def place_of(self, row: int) -> RowPlace:
        """Answer shard and sequence number of a row."""
        return self.place_of_record(self.decoded.record_of_row[row])

    def place_of_record(self, record: int) -> RowPlace:
        """Answer shard and sequence number of a record."""
        return RowPlace(shard=self.shard, sequence=self.items[record].sequence)


class ShardShare:
    """Reads the shards of one task."""

    def __init__(self, plan: TaskPlan, source: KinesisOptions, rejects: Rejects) -> None:
        if plan.payload is None:
            raise InvariantError("a task that reads shards must be told what records hold")
        self._plan = plan
        self._source = source
        self._payload = plan.payload
        self._rejects = rejects
        self._access = unsealed_access(plan.source_access)
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
        """How often the stream was asked so far."""
        return self._client.requests

    def blocks(self) -> Iterator[Arrived]:
        """Yield the rows of all shards; those of one shard come in their order."""
        streams = [partial(self._shard, read) for read in self._plan.shards]
        for found in interleaved(streams, threads=_THREADS_MAX, stop=self._stop):
            if isinstance(found, Note):
                self.notes.append(self._with_requests(found))
                continue
            for bad in found.decoded.bad:
                self._rejects.add(
                    stage=Stage.READER,
                    place=found.place_of_record(bad.record),
                    error=bad.error,
                    raw=bad.raw,
                )
            if found.batch.num_rows:
                yield found

    def _with_requests(self, note: Note) -> Note:
        """Give a note the requests that no earlier one has."""
        before, self._noted = self._noted, self._client.requests
        return replace(note, requests=self._noted - before)

    def _shard(self, read: ShardRead) -> Iterator[Arrived | Note]:
        reading = self._reading(read)
        plan = self._plan
        decoder = Decoder(self._payload, columns=plan.source_columns, needed=plan.needed)
        note = Note(part=_part(read, reading), rows_read=0, rows_parsed=0)
        for items in chunks_of(reading.items()):
            note = _counted(note, items)
            loaded = [item for item in items if item.fate is Fate.LOADED]
            beside = metadata_of(loaded, shard=read.shard.id, needed=plan.needed)
            for decoded in decoder.decode([item.data for item in loaded], beside):
                note = _with_decoded(note, decoded)
                yield Arrived(shard=read.shard.id, items=loaded, decoded=decoded)
            if unloaded := _unloaded(items):
                yield Arrived(shard=read.shard.id, items=items, decoded=unloaded)
        yield replace(note, part=_part(read, reading))

    def _reading(self, read: ShardRead) -> ShardReading:
        pages = ShardPages(
            self._client,
            self._access,
            read.shard.id,
            read.begin,
            patience=self._patience,
            is_closed=partial(self._is_closed, read),
            iterator=read.iterator,
        )
        return ShardReading(
            pages,
            begun=read.begin,
            limits=limits_of_each(read.limits, shards=len(self._plan.shards)),
            clock=self._clock,
            hash_keys=read.shard.hash_keys,
            foreign=self._source.foreign_records,
            page_records_max=self._source.page_records_max,
            stop=self._stop,
        )

    def _is_closed(self, read: ShardRead) -> bool:
        """Tell whether the shard takes no new records; asked where nobody has told."""
        if read.shard.closed:
            return True
        listed = list_shards(
            self._client, self._access, self._patience, page=self._source.page_shards_max
        )
        return any(shard.id == read.shard.id and shard.closed for shard in listed)


def limits_of_each(limits: ReadLimits, *, shards: int) -> ReadLimits:
    """Share the time of an epoch out: with more shards than threads some wait for others."""
    rounds = -(-shards // _THREADS_MAX)
    return replace(limits, duration=limits.duration / rounds)


def _part(read: ShardRead, reading: ShardReading) -> ShardPart:
    return ShardPart(shard=read.shard.id, begin=read.begin, outcome=reading.outcome)


def _counted(note: Note, items: Sequence[Item]) -> Note:
    """Count records, and those that no row is made of."""
    fates = [item.fate for item in items]
    skipped = fates.count(Fate.SKIPPED)
    foreign = fates.count(Fate.FOREIGN)
    rejected = fates.count(Fate.REJECTED) + foreign
    return replace(
        note,
        records=note.records + len(items),
        size_bytes=note.size_bytes + sum(len(item.data) for item in items),
        rows_read=note.rows_read + skipped + rejected,
        rows_skipped=note.rows_skipped + skipped,
        rows_rejected=note.rows_rejected + rejected,
        rows_foreign=note.rows_foreign + foreign,
    )


def _with_decoded(note: Note, decoded: Decoded) -> Note:
    return replace(
        note,
        rows_read=note.rows_read + decoded.lines,
        rows_parsed=note.rows_parsed + decoded.batch.num_rows,
        rows_skipped=note.rows_skipped + decoded.blank,
        rows_rejected=note.rows_rejected + len(decoded.bad),
    )


def _unloaded(items: Sequence[Item]) -> Decoded | None:
    """Answer the records that are rejected as a whole, if there are any."""
    bad = tuple(
        BadPayload(record=number, error=item.error, raw=item.data)
        for number, item in enumerate(items)
        if item.fate in (Fate.REJECTED, Fate.FOREIGN)
    )
    return without_rows(pa.schema([]), bad=bad) if bad else None
