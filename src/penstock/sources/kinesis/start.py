"""Convert start options to typed positions, and check them with the service.

Symbols are resolved once, before anything is read. LATEST becomes the service's time.
"""

import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from penstock.clock import Clock
from penstock.errors import Code, UserError
from penstock.model.job import SourceRef
from penstock.model.options import Reveal
from penstock.model.split import (
    After,
    At,
    AtTime,
    End,
    Horizon,
    Position,
    Progress,
    same_split,
)
from penstock.model.text import format_count, format_instant
from penstock.sources.kinesis.client import (
    Kind,
    Retries,
    StreamClient,
    StreamError,
    stream_access,
)
from penstock.sources.kinesis.kind import KinesisOptions
from penstock.sources.kinesis.reading import (
    StreamSummary,
    describe,
    list_shards,
    open_shard,
    shard_exists,
)
from penstock.sources.kinesis.shards import ListedShard, add_new_shards, split_of
from penstock.sources.registry import source_options
from penstock.sources.source import StartRequest

SHARD_POSITIONS = "kinesis_shards_pos"
DEFAULT_POSITION = "property.kinesis_default_pos"
POSITIONS = "property.kinesis_positions"
TIMESTAMP = "property.aws.kinesis.timestamp"
POSITION_KEYS = (SHARD_POSITIONS, DEFAULT_POSITION, POSITIONS, TIMESTAMP)

_TIME = "a time such as 2026-11-15 10:00:00"
_ALLOWED = f"TRIM_HORIZON, LATEST, a sequence number or {_TIME}"
_TYPED = "TRIM_HORIZON, TIME …, AT …, AFTER … or END"
_SEQUENCE = re.compile(r"\d{1,128}")
_SEQUENCE_AND_PART = re.compile(r"(\d{1,128})(?:/(\d{1,9}))?")
_UTC_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")

# None is LATEST: after all records that the stream has now.
StartPosition = Position | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start positions in options: one for all shards, or one for each shard."""

    # The option that contains the positions.
    key: str
    default: StartPosition = None
    by_shard: Mapping[str, StartPosition] = field(default_factory=dict)
    # Positions as SHOW CREATE prints them.
    stored: Mapping[str, Position] | None = None


def read_start(given: Mapping[str, str], *, shards: tuple[str, ...], zone: str) -> Start | None:
    """Read the start options; return None if there are none."""
    named = [key for key in POSITION_KEYS if key in given]
    if not named:
        return None
    if len(named) > 1:
        raise UserError(f'options "{named[0]}" and "{named[1]}" cannot be used together')
    key, text = named[0], given[named[0]]
    if key == POSITIONS:
        return Start(key=key, stored=read_positions(text, zone=zone))
    if key == TIMESTAMP:
        return Start(key=key, default=_time(key, text, zone=zone, allowed=_TIME))
    if key == DEFAULT_POSITION:
        return Start(key=key, default=_start_position(key, text, zone=zone))
    positions = [one.strip() for one in text.split(",")]
    if len(positions) != len(shards):
        raise UserError(
            f'option "{key}" has {format_count(len(positions), "position")}, but '
            f'"kinesis_shards" has {format_count(len(shards), "shard")}',
            hint="Write one position for every shard, in the same order.",
        )
    parsed = (_start_position(key, one, zone=zone) for one in positions)
    return Start(key=key, by_shard=dict(zip(shards, parsed, strict=True)))


def _start_position(key: str, text: str, *, zone: str) -> StartPosition:
    match text.strip().upper():
        case "TRIM_HORIZON" | "-2":
            return Horizon()
        case "LATEST" | "-1":
            return None
        case word if _SEQUENCE.fullmatch(word):
            return At(value=word.lstrip("0") or "0")
        case _:
            return _time(key, text, zone=zone, allowed=_ALLOWED)


def _time(key: str, text: str, *, zone: str, allowed: str) -> AtTime:
    try:
        return _at_time(text.strip(), zone=zone)
    except ValueError as error:
        raise UserError(f'option "{key}" must be {allowed}, not "{text}"') from error


def _at_time(text: str, *, zone: str) -> AtTime:
    """Parse a time, in ``zone`` unless it has an offset; raise ValueError if it is invalid."""
    at = datetime.fromisoformat(text)
    try:
        return AtTime(at=(at if at.tzinfo else at.replace(tzinfo=_zone(zone))).astimezone(UTC))
    except OverflowError as error:
        raise ValueError(text) from error


def _zone(name: str) -> tzinfo:
    offset = _UTC_OFFSET.fullmatch(name)
    if offset is None:
        return ZoneInfo(name)
    sign = -1 if offset[1] == "-" else 1
    return timezone(sign * timedelta(hours=int(offset[2]), minutes=int(offset[3])))


def read_positions(text: str, *, zone: str) -> dict[str, Position]:
    """Parse positions as SHOW CREATE prints them."""
    found = None
    with suppress(ValueError):
        found = json.loads(text)
    if not isinstance(found, dict) or not found:
        raise UserError(
            f'option "{POSITIONS}" must be a JSON object of positions by shard, not "{text}"',
            hint='Write it as SHOW CREATE does: {"shardId-000000000000": "AFTER 4959…"}.',
        )
    return {shard: _read_position(shard, one, zone=zone) for shard, one in found.items()}


def _read_position(shard: str, written: object, *, zone: str) -> Position:
    with suppress(ValueError):
        match written.split(" ", 1) if isinstance(written, str) else []:
            case ["TRIM_HORIZON"]:
                return Horizon()
            case ["END"]:
                return End()
            case ["TIME", at]:
                return _at_time(at, zone=zone)
            case ["AT", value] if _SEQUENCE.fullmatch(value):
                return At(value=value)
            case ["AFTER", value] if found := _SEQUENCE_AND_PART.fullmatch(value):
                return After(value=found[1], sub=int(found[2]) if found[2] else None)
            case _:
                pass
    raise UserError(
        f'option "{POSITIONS}" must have {_TYPED} for shard {shard}, not "{written}"',
        hint="Write a time such as 2026-11-15 10:00:00, in the time zone of the load.",
    )


_GIVE_UP_AFTER = timedelta(seconds=10)
_NAMED_MAX = 3


def resolve_start(request: StartRequest) -> Progress | None:
    """Return the start positions; None if an ALTER moves no shard."""
    values: KinesisOptions = request.values
    pinned = values.pinned
    start = read_start(request.given, shards=pinned, zone=request.properties.time_zone)
    resolver = StartResolver(values, clock=request.clock)
    if request.before is None:
        return resolver.progress(start)
    before = _place_before(request.before, request.reveal)
    if (values.stream, values.region) != (before.stream, before.region):
        return resolver.progress(start)
    if start is None:
        if pinned == before.pinned:
            return None
        _require_tracked(values, request.progress)
        start = Start(key=POSITIONS, stored={})
    # Shards without a stored position are not moved. If shards are pinned, only these are read.
    kept = tuple(s for s in request.progress if not pinned or s.split in pinned)
    known = {split.split: split for split in request.progress}
    return tuple(
        replace(one, records=known[one.split].records)
        if one.split in known and same_split(known[one.split], one)
        else one
        for one in resolver.progress(start, kept=kept)
    )


def _place_before(source: SourceRef, reveal: Reveal) -> KinesisOptions:
    """Return the old stream and shards; do not read keys, because the ALTER may fix them."""
    options: KinesisOptions = source_options(source)
    return replace(
        options,
        stream=reveal("kinesis_stream", options.stream),
        region=reveal("aws.region", options.region),
        shards=reveal("kinesis_shards", options.shards),
    )


def _require_tracked(values: KinesisOptions, progress: Progress) -> None:
    """Raise UserError if a pinned shard has no position yet."""
    known = {split.split for split in progress}
    for name in values.pinned:
        if name not in known:
            raise UserError(
                f'option "kinesis_shards" names shard "{name}", which this routine load does '
                "not read",
                code=Code.META_NOT_FOUND_ERR,
                hint=(
                    f"It reads {', '.join(sorted(known)[:3])}; see SHOW SHARDS. To read other "
                    'shards, set their start positions with "kinesis_shards_pos".'
                ),
            )


class StartResolver:
    """Resolver of start positions that sends requests to the stream."""

    def __init__(self, values: KinesisOptions, *, clock: Clock) -> None:
        self._values = values
        retries = Retries(clock=clock, give_up_after=_GIVE_UP_AFTER)
        self._client = StreamClient(stream_access(values), retries)

    def progress(self, start: Start | None, *, kept: Progress = ()) -> Progress:
        """Return the shards to read with their start positions.

        The shards in ``kept`` keep their position unless ``start`` has a stored position.
        """
        summary = self._summary()
        listed = list_shards(self._client)
        start = start or Start(key=DEFAULT_POSITION)
        if start.stored is not None:
            return self._from_stored(listed, start.stored, kept=kept, at=summary.at)
        found = []
        for shard in sorted(self._chosen(listed), key=lambda shard: shard.id):
            position = start.by_shard.get(shard.id, start.default)
            if position is None:
                position = AtTime(at=summary.at)
            elif isinstance(position, AtTime):
                _require_held(position.at, key=start.key, summary=summary)
            else:
                self._require_own(position, shard, key=start.key)
            found.append(split_of(shard, position))
        return tuple(found)

    def _summary(self) -> StreamSummary:
        access = self._client.access
        key = "property.aws.kinesis.stream_arn" if access.stream_arn else "kinesis_stream"
        named = f'option "{key}" names {access.shown}, which'
        try:
            summary = describe(self._client)
        except StreamError as error:
            if error.kind is not Kind.NOT_FOUND:
                raise
            raise UserError(
                f"{named} does not exist in {access.region_shown}",
                code=Code.META_NOT_FOUND_ERR,
                hint=f'Check "{key}", "aws.region" and "aws.endpoint".',
            ) from error
        if summary.status == "DELETING":
            raise UserError(
                f"{named} is being deleted",
                code=Code.STATE_ERR,
                hint="Name another stream, or wait until the stream is created again.",
            )
        return summary

    def _chosen(self, listed: tuple[ListedShard, ...]) -> tuple[ListedShard, ...]:
        by_id = {shard.id: shard for shard in listed}
        for name in self._values.pinned:
            if name not in by_id:
                raise self._no_shard(name, key="kinesis_shards", listed=listed)
        return tuple(by_id[name] for name in self._values.pinned) or listed

    def _from_stored(
        self,
        listed: tuple[ListedShard, ...],
        stored: Mapping[str, Position],
        *,
        kept: Progress,
        at: datetime,
    ) -> Progress:
        """Return progress at stored positions, with new shards for their descendants."""
        by_id = {shard.id: shard for shard in listed}
        known = {split.split: split for split in kept}
        for name, position in stored.items():
            shard = by_id.get(name)
            if shard is None and not isinstance(position, End):
                raise self._no_shard(name, key=POSITIONS, listed=listed)
            if shard is not None:
                self._require_own(position, shard, key=POSITIONS)
            if isinstance(position, AtTime):
                _require_past(position.at, key=POSITIONS, now=at)
            known[name] = split_of(shard or ListedShard(id=name), position)
        splits = tuple(known[name] for name in sorted(known))
        if self._values.pinned:
            _require_pinned(known, self._values.pinned)
            return add_new_shards(splits, [shard for shard in listed if shard.id in known])
        followed = add_new_shards(splits, listed)
        self._require_all(listed, {*known, *(s.split for s in followed if s.parents)})
        return followed

    def _require_all(self, listed: tuple[ListedShard, ...], found: Collection[str]) -> None:
        """Raise UserError if a shard has no position, and no ancestor with a position."""
        missing = [shard.id for shard in listed if shard.id not in found]
        missing = [name for name in missing if shard_exists(self._client, name)]
        if missing:
            raise UserError(
                f'option "{POSITIONS}" lacks shard {_some(missing)}: every shard needs a '
                "position",
                hint=f"""Add '{POSITIONS}' = '{{"{missing[0]}": "TRIM_HORIZON"}}'. """
                "To skip the shard, write END instead of TRIM_HORIZON.",
            )

    def _require_own(self, position: Position, shard: ListedShard, *, key: str) -> None:
        """Raise UserError if a sequence number does not belong to the shard."""
        if not isinstance(position, At | After):
            return
        try:
            if int(position.value) >= int(shard.first_sequence or 0):
                open_shard(self._client, shard.id, position)
                return
        except StreamError as error:
            if error.kind is not Kind.BAD_ARGUMENT:
                raise
        raise UserError(
            f'option "{key}" must have a sequence number of shard {shard.id}, '
            f"not {position.value}",
            hint=f"The first sequence number of the shard is {shard.first_sequence}.",
        )

    def _no_shard(self, name: str, *, key: str, listed: tuple[ListedShard, ...]) -> UserError:
        some = _some([shard.id for shard in listed])
        return UserError(
            f'option "{key}" names shard "{name}", which does not exist in stream '
            f'"{self._values.stream}"',
            code=Code.META_NOT_FOUND_ERR,
            hint=f"The stream has {len(listed)} shards: {some}.",
        )


def _require_pinned(named: Collection[str], pinned: tuple[str, ...]) -> None:
    """Raise UserError unless exactly the pinned shards have a position."""
    for name in sorted(named):
        if name not in pinned:
            raise UserError(
                f'option "{POSITIONS}" names shard {name}, which "kinesis_shards" does not '
                "name",
                hint='Only the shards in "kinesis_shards" are read. Remove the others.',
            )
    missing = [name for name in pinned if name not in named]
    if missing:
        raise UserError(
            f'option "{POSITIONS}" lacks shard {_some(missing)}, which "kinesis_shards" names',
            hint="Every pinned shard needs a position. Write END to skip a shard.",
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:_NAMED_MAX]) + (" …" if len(names) > _NAMED_MAX else "")


def _require_past(at: datetime, *, key: str, now: datetime) -> None:
    if at > now + timedelta(seconds=1):
        raise UserError(
            f'option "{key}" must not be in the future, but is {format_instant(at)} UTC: '
            f"the service's time is {format_instant(now)} UTC"
        )


def _require_held(at: datetime, *, key: str, summary: StreamSummary) -> None:
    _require_past(at, key=key, now=summary.at)
    oldest = summary.at - summary.retention
    if at < oldest:
        raise UserError(
            f'option "{key}" must be within the retention of the stream, which starts at '
            f"{format_instant(oldest)} UTC, but is {format_instant(at)} UTC",
            hint="To load all records that the stream still has, write TRIM_HORIZON.",
        )
