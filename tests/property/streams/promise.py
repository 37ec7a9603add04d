"""What must come out: a list of all that was sent, and nothing that knows how it is read."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

STRANGERS = "strangers"


class Fate(StrEnum):
    """What becomes of a record."""

    LOADED = "loaded"
    SKIPPED = "skipped"
    REJECTED = "rejected"
    FOREIGN = "foreign"


@dataclass
class Promise:
    """Everything that was sent since the load began, by what becomes of it."""

    sent_by_key: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    loaded_by_key: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    count_by_fate: dict[Fate, int] = field(default_factory=lambda: dict.fromkeys(Fate, 0))

    def next_number(self, key: str) -> int:
        """Answer the number of the next record of a key."""
        self.sent_by_key[key] += 1
        return self.sent_by_key[key]

    def expect(self, key: str, number: int, fate: Fate) -> None:
        """Remember what must become of a record."""
        self.count_by_fate[fate] += 1
        if fate is Fate.LOADED:
            self.loaded_by_key[key].append(number)

    def check_meanwhile(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Require that of every key the first records are there, each once, in their order."""
        for key, numbers in numbers_by_key(rows).items():
            expected = self.loaded_by_key[key]
            if key == STRANGERS:
                assert len(set(numbers)) == len(numbers), f"{key} doubled: {numbers}"
                assert set(numbers) <= set(expected), f"{key}: {numbers}"
            else:
                assert numbers == expected[: len(numbers)], f"{key}: {numbers} of {expected}"

    def check_at_the_end(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Require that everything is there."""
        self.check_meanwhile(rows)
        found = {key: len(numbers) for key, numbers in numbers_by_key(rows).items()}
        expected = {key: len(numbers) for key, numbers in self.loaded_by_key.items() if numbers}
        assert found == expected, "rows are lost"


def numbers_by_key(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Answer the numbers of the rows of every key, in the order of the table."""
    found: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        found[row["k"]].append(row["n"])
    return found
