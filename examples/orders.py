"""The orders of the demo: the same number always gives the same one."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

ORDERS_PER_FILE = 4_000
ITEMS = ("bread", "butter", "coffee", "honey", "milk", "oats", "pears", "salt", "tea")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What was sent, or what is in a table."""

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
    """Answer one order."""
    chance = number * 2_654_435_761 % 2**32
    seconds = number % 86_400
    return {
        "order_id": number,
        "till": till,
        "customer": f"customer-{chance % 10_000:04d}",
        "item": ITEMS[chance % len(ITEMS)],
        "quantity": 1 + chance % 9,
        "amount": (50 + chance % 20_000) / 100,
        "ordered_at": f"2026-01-01T{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
        f":{seconds % 60:02d}Z",
    }


def tally_of(orders: Iterable[dict[str, object]], *, tills: int) -> Tally:
    """Count orders, of which no two are the same."""
    amounts = [Decimal(str(one["amount"])) for one in orders]
    return Tally(
        tills=tills, rows=len(amounts), orders=len(amounts), amount=sum(amounts, Decimal(0))
    )


def names(count: int, *, first: int = 0) -> list[str]:
    """Answer the names of files as tills write them."""
    return [f"till-{number:04d}.json" for number in range(first, first + count)]


def write_files(inbox: Path, file_names: list[str], *, first_order: int) -> Tally:
    """Write order files; move each in when it is complete. Answer what they hold."""
    inbox.mkdir(exist_ok=True)
    tally = Tally()
    for name in file_names:
        first = first_order + tally.orders
        till = name.removesuffix(".json")
        orders = [order(number, till) for number in range(first, first + ORDERS_PER_FILE)]
        beside = inbox.parent / name
        beside.write_text("".join(json.dumps(one) + "\n" for one in orders), encoding="utf-8")
        beside.replace(inbox / name)
        tally += tally_of(orders, tills=1)
    return tally
