"""How far a split was read, as typed values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """Before everything that the source still holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """Behind the named record, file or sequence; what it names was taken."""

    value: str


Position = Horizon | After


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitProgress:
    """How far one split was read, and where a person said that reading begins."""

    split: str
    floor: Position
    position: Position


def further(one: Position, other: Position) -> Position:
    """Answer the position that lies further on, by the bytes of its value."""
    match one, other:
        case Horizon(), _:
            return other
        case _, Horizon():
            return one
        case After(), After():
            return max(one, other, key=lambda position: position.value.encode())


def lies_above(key: str, position: Position) -> bool:
    """Tell whether a key lies strictly behind a position."""
    return isinstance(position, Horizon) or key.encode() > position.value.encode()
