"""Find bad rows by bisection, because nearly all rows are good."""

from collections.abc import Callable, Iterator
from typing import TypeVar

_E = TypeVar("_E", bound=Exception)


def bad_rows(
    count: int, check: Callable[[int, int], object], error_type: type[_E]
) -> Iterator[tuple[int, _E]]:
    """Yield each bad row with its error, in order.

    ``check(first, count)`` raises ``error_type`` if the range has a bad row. The ranges that
    pass are disjoint, in order, and contain all good rows.
    """
    waiting = [(0, count)]
    while waiting:
        first, size = waiting.pop()
        try:
            check(first, size)
        except error_type as error:
            if size <= 1:
                yield first, error
                continue
            half = size // 2
            waiting += [(first + half, size - half), (first, half)]
