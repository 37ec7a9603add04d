"""Expected rows, computed from the sent records only and not from product code."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# The key of all rows from foreign sub-records.
FOREIGN_KEY = "foreign"


class Outcome(StrEnum):
    """Expected outcome of a record."""

    LOADED = "loaded"
    SKIPPED = "skipped"
    REJECTED = "rejected"
    FOREIGN = "foreign"


@dataclass
class Expectation:
    """The records that were sent since the load was created, by expected outcome."""

    sent_by_key: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    loaded_by_key: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    count_by_outcome: dict[Outcome, int] = field(
        default_factory=lambda: dict.fromkeys(Outcome, 0)
    )

    def next_number(self, key: str) -> int:
        """Return the number of the next record of a key."""
        self.sent_by_key[key] += 1
        return self.sent_by_key[key]

    def expect(self, key: str, number: int, outcome: Outcome) -> None:
        """Store the expected outcome of a record."""
        self.count_by_outcome[outcome] += 1
        if outcome is Outcome.LOADED:
            self.loaded_by_key[key].append(number)

    def check_so_far(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Check that every key has its first records, each once and in order."""
        for key, numbers in numbers_by_key(rows).items():
            expected = self.loaded_by_key[key]
            if key == FOREIGN_KEY:
                assert len(set(numbers)) == len(numbers), f"{key} has duplicates: {numbers}"
                assert set(numbers) <= set(expected), f"{key}: {numbers}"
            else:
                assert numbers == expected[: len(numbers)], f"{key}: {numbers} of {expected}"

    def check_final(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Check that all expected rows are loaded."""
        self.check_so_far(rows)
        found = {key: len(numbers) for key, numbers in numbers_by_key(rows).items()}
        expected = {key: len(numbers) for key, numbers in self.loaded_by_key.items() if numbers}
        assert found == expected, "rows are lost"


def numbers_by_key(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Return the numbers of the rows by key, in the order of the table."""
    found: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        found[row["k"]].append(row["n"])
    return found
