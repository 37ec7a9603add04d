"""How far a split was read, as typed values."""

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """Before everything that the source still holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTime:
    """At the first record that arrived at this moment or later."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """At the named record, which was not taken yet."""

    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """Behind the named record or file, which was taken.

    Of a record that holds others, those up to the number ``sub`` were taken; None: all.
    """

    value: str
    sub: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Behind the last record that the split will ever have."""


Position = Horizon | AtTime | At | After | End


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """What tells a shard from one of the same name, and which shards it follows."""

    # The sequence number with which it began: a stream made again uses the names again.
    begins: str
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitProgress:
    """How far one split was read, and where a person said that reading begins."""

    split: str
    floor: Position
    position: Position
    # Of shards alone.
    lineage: Lineage | None = None
    records: int = 0


def further(one: Position, other: Position) -> Position:
    """Answer the position among files that lies further on, by the bytes of its key."""
    match one, other:
        case After(), After():
            return max(one, other, key=lambda position: position.value.encode())
        case After(), _:
            return one
        case _:
            return other


def lies_above(key: str, position: Position) -> bool:
    """Tell whether a key lies strictly behind a position among files."""
    return not isinstance(position, After) or key.encode() > position.value.encode()


def position_text(position: Position) -> str:
    """Write one position: a word, or a word and what it is about."""
    match position:
        case Horizon():
            return "TRIM_HORIZON"
        case AtTime(at=at):
            return f"TIME {at.astimezone(UTC).isoformat(timespec='microseconds')}"
        case At(value=value):
            return f"AT {value}"
        case After(value=value, sub=None):
            return f"AFTER {value}"
        case After(value=value, sub=sub):
            return f"AFTER {value}/{sub}"
        case End():
            return "END"
