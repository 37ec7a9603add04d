"""The orders of the demo; an order depends only on its number and its till."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

ORDERS_PER_FILE = 4_000
FIRST_ORDER_AT = datetime(2026, 1, 1, tzinfo=UTC)
ITEMS = ("bread", "butter", "coffee", "honey", "milk", "oats", "pears", "salt", "tea")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Counts of orders that were sent, or that are in a table."""

    tills: int = 0
    rows: int = 0
    orders: int = 0
    amount: Decimal = Decimal(0)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            tills=self.tills + other.tills,
            rows=self.rows + other.rows,
            orders=self.orders + other.orders,
            amount=self.amount + other.amount,
        )


def order(number: int, till: str) -> dict[str, object]:
    """Return the order with this number."""
    chance = number * 2_654_435_761 % 2**32
    ordered_at = FIRST_ORDER_AT + timedelta(seconds=number)
    return {
        "order_id": number,
        "till": till,
        "customer": f"customer-{chance % 10_000:04d}",
        "item": ITEMS[chance % len(ITEMS)],
        "quantity": 1 + chance % 9,
        "amount": (50 + chance % 20_000) / 100,
        "ordered_at": f"{ordered_at:%Y-%m-%dT%H:%M:%SZ}",
    }


def tally_of(orders: Iterable[dict[str, object]], *, tills: int) -> Tally:
    """Count orders that are all distinct."""
    amounts = [Decimal(str(one["amount"])) for one in orders]
    return Tally(
        tills=tills, rows=len(amounts), orders=len(amounts), amount=sum(amounts, Decimal(0))
    )


def names(count: int, *, first: int = 0) -> list[str]:
    """Return the names of the order files."""
    return [f"till-{number:04d}.json" for number in range(first, first + count)]


def write_files(inbox: Path, file_names: list[str], *, first_order: int) -> Tally:
    """Write order files and move each complete file into the inbox; return the counts."""
    inbox.mkdir(exist_ok=True)
    tally = Tally()
    for name in file_names:
        first = first_order + tally.orders
        till = name.removesuffix(".json")
        orders = [order(number, till) for number in range(first, first + ORDERS_PER_FILE)]
        incomplete = inbox.parent / name
        incomplete.write_text(
            "".join(json.dumps(one) + "\n" for one in orders), encoding="utf-8"
        )
        incomplete.replace(inbox / name)
        tally += tally_of(orders, tills=1)
    return tally
