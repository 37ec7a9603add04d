"""Resolve start positions of a stream: options to typed positions, checked by the service.

Every symbol is resolved once, before anything is read: LATEST becomes the service's time.
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
from penstock.model.text import counted, format_instant
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
    knows_shard,
    list_shards,
    open_shard,
)
from penstock.sources.kinesis.shards import ListedShard, follow, split_of
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

# None is LATEST: after everything that the stream holds now.
Wanted = Position | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start positions as options give them: one for all shards, or one for each."""

    # The option that gives them.
    key: str
    default: Wanted = None
    by_shard: Mapping[str, Wanted] = field(default_factory=dict)
    # Positions as SHOW CREATE writes them.
    stored: Mapping[str, Position] | None = None


def read_start(given: Mapping[str, str], *, shards: tuple[str, ...], zone: str) -> Start | None:
    """Read the start options; None if there are none."""
    named = [key for key in POSITION_KEYS if key in given]
    if not named:
        return None
    if len(named) > 1:
        raise UserError(f'options "{named[0]}" and "{named[1]}" exclude each other')
    key, text = named[0], given[named[0]]
    if key == POSITIONS:
        return Start(key=key, stored=read_positions(text, zone=zone))
    if key == TIMESTAMP:
        return Start(key=key, default=_time(key, text, zone=zone, allowed=_TIME))
    if key == DEFAULT_POSITION:
        return Start(key=key, default=_wanted(key, text, zone=zone))
    positions = [one.strip() for one in text.split(",")]
    if len(positions) != len(shards):
        raise UserError(
            f'option "{key}" has {counted(len(positions), "position")}, but '
            f'"kinesis_shards" has {counted(len(shards), "shard")}',
            hint="Give one position for every shard, in the same order.",
        )
    wanted = (_wanted(key, one, zone=zone) for one in positions)
    return Start(key=key, by_shard=dict(zip(shards, wanted, strict=True)))


def _wanted(key: str, text: str, *, zone: str) -> Wanted:
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
    """Read a time, of the zone unless it has its own; raise ValueError if it is none."""
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
    """Read positions as SHOW CREATE writes them."""
    found = None
    with suppress(ValueError):
        found = json.loads(text)
    if not isinstance(found, dict) or not found:
        raise UserError(
            f'option "{POSITIONS}" must be JSON with a position for every shard, not "{text}"',
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
        hint="A time is one such as 2026-11-15 10:00:00, in the zone of the load.",
    )


_GIVE_UP_AFTER = timedelta(seconds=10)
_NAMED_MAX = 3


def resolve_start(request: StartRequest) -> Progress | None:
    """Return where the shards start; None if an ALTER leaves them where they are."""
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
    # Shards without a stored position stay; only pinned shards are read if there are any.
    kept = tuple(s for s in request.progress if not pinned or s.split in pinned)
    known = {split.split: split for split in request.progress}
    return tuple(
        replace(one, records=known[one.split].records)
        if one.split in known and same_split(known[one.split], one)
        else one
        for one in resolver.progress(start, kept=kept)
    )


def _place_before(source: SourceRef, reveal: Reveal) -> KinesisOptions:
    """Return the old stream and shards; ALTER may repair broken keys, which stay unread."""
    options: KinesisOptions = source_options(source)
    return replace(
        options,
        stream=reveal("kinesis_stream", options.stream),
        region=reveal("aws.region", options.region),
        shards=reveal("kinesis_shards", options.shards),
    )


def _require_tracked(values: KinesisOptions, progress: Progress) -> None:
    """Require that every pinned shard has a position already."""
    known = {split.split for split in progress}
    for name in values.pinned:
        if name not in known:
            raise UserError(
                f'option "kinesis_shards" names shard "{name}", which this routine load does '
                "not read",
                code=Code.META_NOT_FOUND_ERR,
                hint=(
                    f"It reads {', '.join(sorted(known)[:3])}; see SHOW SHARDS. For others say "
                    'with "kinesis_shards_pos" where reading begins.'
                ),
            )


class StartResolver:
    """Resolves start positions by asking the stream."""

    def __init__(self, values: KinesisOptions, *, clock: Clock) -> None:
        self._values = values
        retries = Retries(clock=clock, give_up_after=_GIVE_UP_AFTER)
        self._client = StreamClient(stream_access(values), retries)

    def progress(self, start: Start | None, *, kept: Progress = ()) -> Progress:
        """Return the shards to read with their start positions.

        ``kept`` are shards that keep their position unless a stored position names them.
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
                hint="Name a stream that stays, or wait until it was made again.",
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
        """Continue where this job, or another one, stopped; descendants are new."""
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
            return follow(splits, [shard for shard in listed if shard.id in known])
        followed = follow(splits, listed)
        self._require_all(listed, {*known, *(s.split for s in followed if s.parents)})
        return followed

    def _require_all(self, listed: tuple[ListedShard, ...], found: Collection[str]) -> None:
        """Require a position for every shard that does not descend from one with a position."""
        missing = [shard.id for shard in listed if shard.id not in found]
        missing = [name for name in missing if knows_shard(self._client, name)]
        if missing:
            raise UserError(
                f'option "{POSITIONS}" lacks shard {_some(missing)}: every shard needs a '
                "position",
                hint=f"""Add '{POSITIONS}' = '{{"{missing[0]}": "TRIM_HORIZON"}}', or END in """
                "its place for one that shall not be read.",
            )

    def _require_own(self, position: Position, shard: ListedShard, *, key: str) -> None:
        """Require that a sequence number is one of the shard."""
        if not isinstance(position, At | After):
            return
        try:
            if int(position.value) >= int(shard.begins or 0):
                open_shard(self._client, shard.id, position)
                return
        except StreamError as error:
            if error.kind is not Kind.BAD_ARGUMENT:
                raise
        raise UserError(
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


def _require_pinned(named: Collection[str], pinned: tuple[str, ...]) -> None:
    """Require a position for every pinned shard, and for no other."""
    for name in sorted(named):
        if name not in pinned:
            raise UserError(
                f'option "{POSITIONS}" names shard {name}, which "kinesis_shards" does not '
                "name",
                hint="Only shards that are pinned are read, so no other has a position.",
            )
    missing = [name for name in pinned if name not in named]
    if missing:
        raise UserError(
            f'option "{POSITIONS}" lacks shard {_some(missing)}, which "kinesis_shards" names',
            hint="Every pinned shard needs a position; END for one that shall not be read.",
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:_NAMED_MAX]) + (" …" if len(names) > _NAMED_MAX else "")


def _require_past(at: datetime, *, key: str, now: datetime) -> None:
    if at > now + timedelta(seconds=1):
        raise UserError(
            f'option "{key}" must not be a time in the future, as {format_instant(at)} UTC is: '
            f"the service's clock shows {format_instant(now)} UTC"
        )


def _require_held(at: datetime, *, key: str, summary: StreamSummary) -> None:
    _require_past(at, key=key, now=summary.at)
    oldest = summary.at - summary.retention
    if at < oldest:
        raise UserError(
            f'option "{key}" must not be a time before {format_instant(oldest)} UTC, from when '
            f"on the stream keeps records, as {format_instant(at)} UTC is",
            hint="Write TRIM_HORIZON for everything that it still holds.",
        )
