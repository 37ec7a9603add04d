"""What a person writes about where the reading of a stream begins, as typed values.

Nothing is asked here: whether the stream has such shards and positions is found out later.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from penstock.errors import Code, UserError
from penstock.model.position import (
    After,
    At,
    AtTime,
    End,
    Horizon,
    Position,
    SplitProgress,
    position_text,
)
from penstock.nouns import counted

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

Progress = tuple[SplitProgress, ...]


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


def write_positions(progress: Progress) -> str:
    """Write positions so that a job that begins with them repeats no record."""
    told = {split.split: position_text(split.position) for split in progress}
    return json.dumps(told, ensure_ascii=False)


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
