"""Resolve start positions of a stream: options to typed positions, checked by the service.

Nothing is asked here: whether the stream has such shards and positions is found out later.

Every symbol is resolved here, once, before anything is read: LATEST is the service's time now.
"""

import json
import re
from collections.abc import Collection, Mapping
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
    SplitProgress,
    same_split,
)
from penstock.model.text import counted
from penstock.sources.kinesis.access import stream_access
from penstock.sources.kinesis.client import Kind, Patience, StreamClient, StreamError
from penstock.sources.kinesis.kind import KinesisOptions
from penstock.sources.kinesis.reading import (
    StreamSummary,
    describe,
    knows_shard,
    list_shards,
    open_shard,
)
from penstock.sources.kinesis.shards import ListedShard, begin, follow
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
_INSIDE = re.compile(r"(\d{1,128})/(\d{1,9})")
_UTC_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """Behind everything that the stream holds now."""


Wanted = Position | Latest


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where reading begins: somewhere for all shards, or for each by name."""

    # The option that says so.
    key: str
    default: Wanted | None = None
    by_shard: Mapping[str, Wanted] = field(default_factory=dict)
    # Positions as SHOW CREATE writes them.
    stored: Mapping[str, Position] | None = None
    # Shards that stay where they are, unless a stored position names them.
    kept: Progress = ()


def read_start(given: Mapping[str, str], *, shards: tuple[str, ...], zone: str) -> Start | None:
    """Read the options that say where to begin; None where none of them is given."""
    named = [key for key in POSITION_KEYS if key in given]
    if not named:
        return None
    if len(named) > 1:
        raise refused(f'options "{named[0]}" and "{named[1]}" exclude each other')
    key, text = named[0], given[named[0]]
    match key:
        case "kinesis_shards_pos":
            return _by_shard(text, shards=shards, zone=zone)
        case "property.kinesis_positions":
            return Start(key=key, stored=read_positions(text, zone=zone))
        case "property.aws.kinesis.timestamp":
            return Start(key=key, default=_time(key, text, zone=zone, allowed=_TIME))
        case _:
            return Start(key=key, default=_wanted(key, text, zone=zone))


def _by_shard(text: str, *, shards: tuple[str, ...], zone: str) -> Start:
    positions = [one.strip() for one in text.split(",")]
    if len(positions) != len(shards):
        raise refused(
            f'option "{SHARD_POSITIONS}" has {counted(len(positions), "position")}, but '
            f'"kinesis_shards" has {counted(len(shards), "shard")}',
            hint="Give one position for every shard, in the same order.",
        )
    wanted = (_wanted(SHARD_POSITIONS, one, zone=zone) for one in positions)
    return Start(key=SHARD_POSITIONS, by_shard=dict(zip(shards, wanted, strict=True)))


def _wanted(key: str, text: str, *, zone: str) -> Wanted:
    match text.strip().upper():
        case "TRIM_HORIZON" | "-2":
            return Horizon()
        case "LATEST" | "-1":
            return Latest()
        case word if _SEQUENCE.fullmatch(word):
            return At(value=word.lstrip("0") or "0")
        case _:
            return _time(key, text, zone=zone, allowed=_ALLOWED)


def _time(key: str, text: str, *, zone: str, allowed: str) -> AtTime:
    try:
        return _at_time(text.strip(), zone=zone)
    except ValueError as error:
        raise refused(f'option "{key}" must be {allowed}, not "{text}"') from error


def _at_time(text: str, *, zone: str) -> AtTime:
    """Read a time, of the zone unless it brings its own; a ValueError if it is none."""
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
    """Read positions as they are written by SHOW CREATE."""
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if not isinstance(told, dict) or not told:
        raise refused(
            f'option "{POSITIONS}" must be JSON with a position for every shard, not "{text}"',
            hint='Write it as SHOW CREATE does: {"shardId-000000000000": "AFTER 4959…"}.',
        )
    return {shard: _read_position(shard, one, zone=zone) for shard, one in told.items()}


def _read_position(shard: str, told: object, *, zone: str) -> Position:
    try:
        words = told.split(" ", 1) if isinstance(told, str) else []
        position = _position_of(words, zone=zone)
    except ValueError as error:
        raise _bad_position(shard, told) from error
    if position is None:
        raise _bad_position(shard, told)
    return position


def _position_of(words: list[str], *, zone: str) -> Position | None:
    """Answer the position that a word, and what it is about, mean."""
    match words:
        case ["TRIM_HORIZON"]:
            return Horizon()
        case ["END"]:
            return End()
        case ["TIME", at]:
            return _at_time(at, zone=zone)
        case ["AT", value] if _SEQUENCE.fullmatch(value):
            return At(value=value)
        case ["AFTER", value] if _SEQUENCE.fullmatch(value):
            return After(value=value)
        case ["AFTER", value] if inside := _INSIDE.fullmatch(value):
            return After(value=inside[1], sub=int(inside[2]))
        case _:
            return None


def _bad_position(shard: str, told: object) -> UserError:
    return refused(
        f'option "{POSITIONS}" must have {_TYPED} for shard {shard}, not "{told}"',
        hint="A time is one such as 2026-11-15 10:00:00, in the zone of the load.",
    )


def refused(message: str, *, hint: str = "", detail: str = "") -> UserError:
    """Answer the refusal of an option."""
    return UserError(message, code=Code.OPTION_ERR, hint=hint, detail=detail)


_PINS = "kinesis_shards"
_STREAM = "kinesis_stream"
_STREAM_ARN = "property.aws.kinesis.stream_arn"
_GIVE_UP_AFTER = timedelta(seconds=10)
_DELETING = "DELETING"
_NAMED_MAX = 3


def resolve_start(request: StartRequest) -> Progress | None:
    """Return where the shards start; None if an ALTER leaves them where they are."""
    values: KinesisOptions = request.values
    zone = request.properties.time_zone
    start = read_start(request.given, shards=values.pinned, zone=zone)
    resolver = StartResolver(values, clock=request.clock)
    if request.before is None:
        return resolver.progress(start)
    before = _place_before(request.before, request.reveal)
    if (values.stream, values.region) != (before.stream, before.region):
        return resolver.progress(start)
    if start is None:
        if values.pinned == before.pinned:
            return None
        _require_tracked(values, request.progress)
        start = Start(key=POSITIONS, stored={})
    if start.stored is not None:
        # A shard that is not named stays; of pinned shards no others are followed.
        pinned = values.pinned
        kept = (s for s in request.progress if not pinned or s.split in pinned)
        start = replace(start, kept=tuple(kept))
    known = {split.split: split for split in request.progress}
    return tuple(
        replace(one, records=known[one.split].records)
        if one.split in known and same_split(known[one.split], one)
        else one
        for one in resolver.progress(start)
    )


def _place_before(source: SourceRef, reveal: Reveal) -> KinesisOptions:
    """Return which stream and shards were read; broken keys may be what ALTER repairs."""
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
    return SplitProgress(
        split=name,
        floor=position,
        position=position,
        identity=shard.begins if shard else "",
        parents=shard.parents if shard else (),
    )


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
    found = {split.split for split in followed if split.parents}
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
