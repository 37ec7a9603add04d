"""Where the reading of a stream begins: what a person wrote, checked against the stream.

Every symbol is resolved here, once, before anything is read: LATEST is the service's time now.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

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
    position_text,
)
from penstock.model.shards import ListedShard
from penstock.sources.kinesis.access import stream_access
from penstock.sources.kinesis.client import StreamClient
from penstock.sources.kinesis.failures import Kind, StreamError
from penstock.sources.kinesis.lineage import Progress, begin, follow
from penstock.sources.kinesis.listing import StreamSummary, describe, list_shards
from penstock.sources.kinesis.pages import iterator_of
from penstock.sources.kinesis.patience import Patience

SHARD_POSITIONS = "kinesis_shards_pos"
DEFAULT_POSITION = "property.kinesis_default_pos"
POSITIONS = "property.kinesis_positions"
TIMESTAMP = "property.aws.kinesis.timestamp"
POSITION_KEYS = (SHARD_POSITIONS, DEFAULT_POSITION, POSITIONS, TIMESTAMP)

_ALLOWED = "TRIM_HORIZON, LATEST, a sequence number or a time such as 2026-11-15 10:00:00"
_SEQUENCE = re.compile(r"\d{1,128}")
_INSIDE = re.compile(r"(\d{1,128})/(\d{1,9})")
_UTC_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")
_GIVE_UP_AFTER = timedelta(seconds=10)
_DELETING = "DELETING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """Behind everything that the stream holds now."""


Wanted = Position | Latest


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where reading begins: somewhere for all shards, or for each by name."""

    default: Wanted | None = None
    by_shard: Mapping[str, Wanted] = field(default_factory=dict)
    # Positions as SHOW CREATE writes them; shards that they do not name are new.
    stored: Mapping[str, Position] | None = None


def read_start(given: Mapping[str, str], *, shards: tuple[str, ...], zone: str) -> Start | None:
    """Read the options that say where to begin; None where none of them is given."""
    named = [key for key in POSITION_KEYS if key in given]
    if not named:
        return None
    if len(named) > 1:
        raise _refused(f'options "{named[0]}" and "{named[1]}" exclude each other')
    key, text = named[0], given[named[0]]
    match key:
        case "kinesis_shards_pos":
            return _by_shard(text, shards=shards, zone=zone)
        case "property.kinesis_positions":
            return Start(stored=read_positions(text))
        case _:
            return Start(default=_wanted(key, text, zone=zone))


def _by_shard(text: str, *, shards: tuple[str, ...], zone: str) -> Start:
    positions = [one.strip() for one in text.split(",")]
    if len(positions) != len(shards):
        raise _refused(
            f'option "{SHARD_POSITIONS}" has {len(positions)} positions, but "kinesis_shards" '
            f"has {len(shards)} shards",
            hint="Give one position for every shard, in the same order.",
        )
    wanted = (_wanted(SHARD_POSITIONS, one, zone=zone) for one in positions)
    return Start(by_shard=dict(zip(shards, wanted, strict=True)))


def _wanted(key: str, text: str, *, zone: str) -> Wanted:
    match text.strip().upper():
        case "TRIM_HORIZON" | "-2":
            return Horizon()
        case "LATEST" | "-1":
            return Latest()
        case word if _SEQUENCE.fullmatch(word):
            return At(value=word.lstrip("0") or "0")
        case _:
            pass
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise _refused(f'option "{key}" must be {_ALLOWED}, not "{text}"') from error
    return AtTime(at=(at if at.tzinfo else at.replace(tzinfo=_zone(zone))).astimezone(UTC))


def _zone(name: str) -> tzinfo:
    offset = _UTC_OFFSET.fullmatch(name)
    if offset is None:
        return ZoneInfo(name)
    sign = -1 if offset[1] == "-" else 1
    return timezone(sign * timedelta(hours=int(offset[2]), minutes=int(offset[3])))


def write_positions(progress: Progress) -> str:
    """Write positions so that a job that begins with them repeats no record."""
    told = {split.split: position_text(split.position) for split in progress}
    return json.dumps(told, ensure_ascii=False)


def read_positions(text: str) -> dict[str, Position]:
    """Read positions as they are written by SHOW CREATE."""
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if not isinstance(told, dict) or not told:
        raise _refused(
            f'option "{POSITIONS}" must be JSON with a position for every shard, not "{text}"',
            hint='Write it as SHOW CREATE does: {"shardId-000000000000": "AFTER 4959…"}.',
        )
    return {shard: _read_position(shard, one) for shard, one in told.items()}


def _read_position(shard: str, told: object) -> Position:
    try:
        position = _position_of(told.split(" ", 1)) if isinstance(told, str) else None
    except ValueError as error:
        raise _bad_position(shard, told) from error
    if position is None:
        raise _bad_position(shard, told)
    return position


def _position_of(words: list[str]) -> Position | None:
    """Answer the position that a word, and what it is about, mean."""
    match words:
        case ["TRIM_HORIZON"]:
            return Horizon()
        case ["END"]:
            return End()
        case ["TIME", at]:
            return AtTime(at=datetime.fromisoformat(at).astimezone(UTC))
        case ["AT", value] if _SEQUENCE.fullmatch(value):
            return At(value=value)
        case ["AFTER", value] if _SEQUENCE.fullmatch(value):
            return After(value=value)
        case ["AFTER", value] if inside := _INSIDE.fullmatch(value):
            return After(value=inside[1], sub=int(inside[2]))
        case _:
            return None


def _bad_position(shard: str, told: object) -> UserError:
    return _refused(
        f'option "{POSITIONS}" has the position "{told}" for shard {shard}',
        hint="Allowed: TRIM_HORIZON, TIME …, AT …, AFTER …, END.",
    )


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
        shards = _chosen(listed, self._values.pinned)
        start = start or Start(default=Latest())
        if start.stored is not None:
            return self._from_stored(shards, start.stored, at=summary.at)
        found: list[SplitProgress] = []
        for split in begin(shards, Horizon()):
            wanted = start.by_shard.get(split.split, start.default) or Latest()
            shard = next(one for one in shards if one.id == split.split)
            position = self._resolved(wanted, shard=shard, summary=summary)
            found.append(replace(split, floor=position, position=position))
        return tuple(found)

    def _summary(self) -> StreamSummary:
        try:
            summary = describe(self._client, self._access, self._patience)
        except StreamError as error:
            if error.kind is not Kind.NOT_FOUND:
                raise
            raise UserError(
                f'stream "{self._values.stream}" does not exist in {self._access.region}',
                code=Code.META_NOT_FOUND_ERR,
                hint='Check "kinesis_stream", "aws.region" and "aws.endpoint".',
            ) from error
        if summary.status == _DELETING:
            raise UserError(
                f'stream "{self._values.stream}" is being deleted', code=Code.STATE_ERR
            )
        return summary

    def _from_stored(
        self, shards: tuple[ListedShard, ...], stored: Mapping[str, Position], *, at: datetime
    ) -> Progress:
        """Go on where another job stood; shards that it did not know are new."""
        by_id = {shard.id: shard for shard in shards}
        splits: list[SplitProgress] = []
        for name, position in sorted(stored.items()):
            shard = by_id.get(name)
            if shard is None and not isinstance(position, End):
                raise _no_shard(name, shards)
            if shard is not None:
                self._require_own(position, shard)
            if isinstance(position, AtTime):
                _require_past(position.at, now=at)
            lineage = Lineage(
                begins=shard.begins if shard else "", parents=shard.parents if shard else ()
            )
            splits.append(
                SplitProgress(split=name, floor=position, position=position, lineage=lineage)
            )
        return tuple(splits) if self._values.pinned else follow(tuple(splits), shards)

    def _resolved(
        self, wanted: Wanted, *, shard: ListedShard, summary: StreamSummary
    ) -> Position:
        match wanted:
            case Latest():
                return AtTime(at=summary.at)
            case AtTime(at=at):
                _require_held(at, summary=summary)
            case _:
                self._require_own(wanted, shard)
        return wanted

    def _require_own(self, position: Position, shard: ListedShard) -> None:
        """Require that a sequence number is one of the shard."""
        if not isinstance(position, At | After):
            return
        try:
            if int(position.value) >= int(shard.begins or 0):
                self._patience.ask(
                    self._client,
                    "get_shard_iterator",
                    ShardId=shard.id,
                    **self._access.naming,
                    **iterator_of(position),
                )
                return
        except StreamError as error:
            if error.kind is not Kind.BAD_ARGUMENT:
                raise
        raise _refused(
            f"sequence number {position.value} is none of shard {shard.id}",
            hint=f"The shard begins at {shard.begins}.",
        )


def _chosen(
    listed: tuple[ListedShard, ...], pinned: tuple[str, ...]
) -> tuple[ListedShard, ...]:
    by_id = {shard.id: shard for shard in listed}
    for name in pinned:
        if name not in by_id:
            raise _no_shard(name, listed)
    return tuple(by_id[name] for name in pinned) if pinned else listed


def _no_shard(name: str, listed: tuple[ListedShard, ...]) -> UserError:
    some = ", ".join(shard.id for shard in listed[:3])
    return UserError(
        f'shard "{name}" does not exist',
        code=Code.META_NOT_FOUND_ERR,
        hint=f"The stream has {len(listed)} shards: {some}{' …' if len(listed) > 3 else ''}.",  # noqa: PLR2004
    )


def _require_past(at: datetime, *, now: datetime) -> None:
    if at > now + timedelta(seconds=1):
        raise _refused(
            f"start position {_told(at)} lies in the future: the service's clock shows "
            f"{_told(now)}"
        )


def _require_held(at: datetime, *, summary: StreamSummary) -> None:
    _require_past(at, now=summary.at)
    oldest = summary.at - summary.retention
    if at < oldest:
        raise _refused(
            f"start position {_told(at)} lies before {_told(oldest)}, from when on the stream "
            "keeps records",
            hint="Write TRIM_HORIZON for everything that it still holds.",
        )


def _told(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _refused(message: str, *, hint: str = "") -> UserError:
    return UserError(message, code=Code.OPTION_ERR, hint=hint)
