"""Where the reading of a stream begins: what a person wrote, checked against the stream.

Every symbol is resolved here, once, before anything is read: LATEST is the service's time now.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from penstock.clock import Clock
from penstock.errors import Code, UserError
from penstock.model.kinesis import KinesisOptions
from penstock.model.position import (
    After,
    At,
    AtTime,
    End,
    Horizon,
    Lineage,
    Position,
    SplitProgress,
)
from penstock.model.shards import ListedShard
from penstock.sources.kinesis.access import stream_access
from penstock.sources.kinesis.client import StreamClient
from penstock.sources.kinesis.failures import Kind, StreamError
from penstock.sources.kinesis.lineage import Progress, begin, follow
from penstock.sources.kinesis.listing import StreamSummary, describe, list_shards
from penstock.sources.kinesis.pages import knows_shard, open_shard
from penstock.sources.kinesis.patience import Patience
from penstock.sources.kinesis.start import (
    DEFAULT_POSITION,
    POSITIONS,
    Latest,
    Start,
    Wanted,
    refused,
)

_PINS = "kinesis_shards"
_STREAM = "kinesis_stream"
_STREAM_ARN = "property.aws.kinesis.stream_arn"
_GIVE_UP_AFTER = timedelta(seconds=10)
_DELETING = "DELETING"
_NAMED_MAX = 3


class Beginning:
    """Finds out where the reading of a stream begins, by asking it."""

    def __init__(self, values: KinesisOptions, *, clock: Clock) -> None:
        self._values = values
        access = stream_access(values)
        self._client = StreamClient(access)
        self._access = access
        self._patience = Patience(clock=clock, give_up_after=_GIVE_UP_AFTER)

    def progress(self, start: Start | None) -> Progress:
        """Answer the shards to read, each with where its reading begins."""
        summary = self._summary()
        listed = list_shards(
            self._client, self._access, self._patience, page=self._values.page_shards_max
        )
        start = start or Start(key=DEFAULT_POSITION, default=Latest())
        if start.stored is not None:
            return self._from_stored(listed, start, at=summary.at)
        shards = self._chosen(listed)
        found: list[SplitProgress] = []
        for split in begin(shards, Horizon()):
            wanted = start.by_shard.get(split.split, start.default) or Latest()
            shard = next(one for one in shards if one.id == split.split)
            position = self._resolved(wanted, key=start.key, shard=shard, summary=summary)
            found.append(replace(split, floor=position, position=position))
        return tuple(found)

    def _summary(self) -> StreamSummary:
        key = _STREAM_ARN if self._values.stream_arn else _STREAM
        named = f'option "{key}" names {self._access.told}, which'
        try:
            summary = describe(self._client, self._access, self._patience)
        except StreamError as error:
            if error.kind is not Kind.NOT_FOUND:
                raise
            raise UserError(
                f"{named} does not exist in {self._access.told_region}",
                code=Code.META_NOT_FOUND_ERR,
                hint=f'Check "{key}", "aws.region" and "aws.endpoint".',
            ) from error
        if summary.status == _DELETING:
            raise UserError(
                f"{named} is being deleted",
                code=Code.STATE_ERR,
                hint="Name a stream that stays, or wait until it was made again.",
            )
        return summary

    def _chosen(self, listed: tuple[ListedShard, ...]) -> tuple[ListedShard, ...]:
        by_id = {shard.id: shard for shard in listed}
        for name in self._values.pinned:
            if name not in by_id:
                raise self._no_shard(name, key=_PINS, listed=listed)
        pinned = tuple(by_id[name] for name in self._values.pinned)
        return pinned or listed

    def _from_stored(
        self, listed: tuple[ListedShard, ...], start: Start, *, at: datetime
    ) -> Progress:
        """Go on where the load, or another one, stood; their descendants are new."""
        stored = start.stored or {}
        by_id = {shard.id: shard for shard in listed}
        known = {split.split: split for split in start.kept}
        for name, position in stored.items():
            shard = by_id.get(name)
            if shard is None and not isinstance(position, End):
                raise self._no_shard(name, key=POSITIONS, listed=listed)
            if shard is not None:
                self._require_own(position, shard, key=POSITIONS)
            if isinstance(position, AtTime):
                _require_past(position.at, key=POSITIONS, now=at)
            known[name] = _split(name, position, shard)
        splits = tuple(known[name] for name in sorted(known))
        if self._values.pinned:
            _require_pinned(known, self._values.pinned)
            return follow(splits, [shard for shard in listed if shard.id in known])
        followed = follow(splits, listed)
        lacking = [
            name
            for name in _lacking(listed, known, followed)
            if knows_shard(self._client, name, patience=self._patience)
        ]
        if lacking:
            raise _lacks(lacking)
        return followed

    def _resolved(
        self, wanted: Wanted, *, key: str, shard: ListedShard, summary: StreamSummary
    ) -> Position:
        match wanted:
            case Latest():
                return AtTime(at=summary.at)
            case AtTime(at=at):
                _require_held(at, key=key, summary=summary)
            case _:
                self._require_own(wanted, shard, key=key)
        return wanted

    def _require_own(self, position: Position, shard: ListedShard, *, key: str) -> None:
        """Require that a sequence number is one of the shard."""
        if not isinstance(position, At | After):
            return
        try:
            if int(position.value) >= int(shard.begins or 0):
                open_shard(self._client, shard.id, position, patience=self._patience)
                return
        except StreamError as error:
            if error.kind is not Kind.BAD_ARGUMENT:
                raise
        raise refused(
            f'option "{key}" must have a sequence number of shard {shard.id} for it, '
            f"not {position.value}",
            hint=f"The shard begins at {shard.begins}.",
        )

    def _no_shard(self, name: str, *, key: str, listed: tuple[ListedShard, ...]) -> UserError:
        some = _some([shard.id for shard in listed])
        return UserError(
            f'option "{key}" names shard "{name}", which does not exist in stream '
            f'"{self._values.stream}"',
            code=Code.META_NOT_FOUND_ERR,
            hint=f"The stream has {len(listed)} shards: {some}.",
        )


def _split(name: str, position: Position, shard: ListedShard | None) -> SplitProgress:
    lineage = Lineage(
        begins=shard.begins if shard else "", parents=shard.parents if shard else ()
    )
    return SplitProgress(split=name, floor=position, position=position, lineage=lineage)


def _require_pinned(named: Collection[str], pinned: tuple[str, ...]) -> None:
    """Require a position for every pinned shard, and for no other."""
    for name in sorted(named):
        if name not in pinned:
            raise refused(
                f'option "{POSITIONS}" names shard {name}, which "{_PINS}" does not name',
                hint="Only shards that are pinned are read, so no other has a position.",
            )
    lacking = [name for name in pinned if name not in named]
    if lacking:
        raise refused(
            f'option "{POSITIONS}" lacks shard {_some(lacking)}, which "{_PINS}" names',
            hint="Every pinned shard needs a position; END for one that shall not be read.",
        )


def _lacking(
    listed: tuple[ListedShard, ...], named: Collection[str], followed: Progress
) -> list[str]:
    """Answer the shards without a position that do not descend from one that has one.

    A descendant is found by itself, and is read from its beginning.
    """
    found = {split.split for split in followed if split.lineage and split.lineage.parents}
    return [s.id for s in listed if s.id not in named and s.id not in found]


def _lacks(names: list[str]) -> UserError:
    return refused(
        f'option "{POSITIONS}" lacks shard {_some(names)}: every shard needs a position',
        hint=f"""Add '{POSITIONS}' = '{{"{names[0]}": "TRIM_HORIZON"}}', or END in its place """
        "for one that shall not be read.",
    )


def _some(names: list[str]) -> str:
    return ", ".join(names[:_NAMED_MAX]) + (" …" if len(names) > _NAMED_MAX else "")


def _require_past(at: datetime, *, key: str, now: datetime) -> None:
    if at > now + timedelta(seconds=1):
        raise refused(
            f'option "{key}" must not be a time in the future, as {_told(at)} is: the '
            f"service's clock shows {_told(now)}"
        )


def _require_held(at: datetime, *, key: str, summary: StreamSummary) -> None:
    _require_past(at, key=key, now=summary.at)
    oldest = summary.at - summary.retention
    if at < oldest:
        raise refused(
            f'option "{key}" must not be a time before {_told(oldest)}, from when on the '
            f"stream keeps records, as {_told(at)} is",
            hint="Write TRIM_HORIZON for everything that it still holds.",
        )


def _told(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
