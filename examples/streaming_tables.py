"""The streaming tables of the demo: totals per day and per item, and their true values.

The true values come from the order files themselves, without any code of Penstock.
"""

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

TABLE_FILES_PER_EPOCH = 8
# A file that arrives late, or is loaded out of order, is not as late as this.
DELAY = timedelta(days=1)
STREAMING_TABLES = """\
CREATE STREAMING TABLE orders_per_day
LOCATION '{per_day}'
WITH ("max_files_per_epoch" = "{files_per_epoch}", "checkpoint.interval" = "100ms") AS
SELECT window(ordered_at, '1 day').start AS day, count(*) AS orders, sum(amount) AS amount
FROM STREAM orders WATERMARK ordered_at DELAY OF INTERVAL 1 DAY
GROUP BY window(ordered_at, '1 day');

CREATE STREAMING TABLE orders_per_item
LOCATION '{per_item}'
WITH ("max_files_per_epoch" = "{files_per_epoch}", "checkpoint.interval" = "100ms") AS
SELECT item, count(*) AS orders, sum(amount) AS amount FROM STREAM orders GROUP BY item;
"""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Total:
    """The orders of one day or item."""

    key: str
    orders: int
    amount: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The totals of the order files, in the order of their keys."""

    # Only days whose end the watermark has passed.
    days: list[Total]
    items: list[Total]


def read_truth(inbox: Path) -> Truth:
    """Compute the totals of all order files."""
    orders: Counter[tuple[str, str]] = Counter()
    amounts: dict[tuple[str, str], Decimal] = {}
    newest = ""
    for path in inbox.glob("*.json"):
        for line in path.read_text("utf-8").splitlines():
            one = json.loads(line, parse_float=Decimal, parse_int=Decimal)
            newest = max(newest, one["ordered_at"])
            for key in (("day", one["ordered_at"][:10]), ("item", one["item"])):
                orders[key] += 1
                amounts[key] = amounts.get(key, Decimal(0)) + one["amount"]
    open_day = (datetime.fromisoformat(newest) - DELAY).date().isoformat()
    totals = {
        (kind, key): Total(key=key, orders=count, amount=amounts[kind, key])
        for (kind, key), count in sorted(orders.items())
    }
    return Truth(
        days=[one for (kind, day), one in totals.items() if kind == "day" and day < open_day],
        items=[one for (kind, _), one in totals.items() if kind == "item"],
    )


def read_totals(table: Path, column: str) -> list[Total]:
    """Read a streaming table with deltalake's own query engine."""
    tables = QueryBuilder().register("totals", DeltaTable(table))
    query = f"SELECT {column} AS key, orders, amount FROM totals"  # noqa: S608 - Our own name.
    rows = pa.table(tables.execute(query).read_all()).to_pylist()
    # A day is read as its first moment.
    return sorted(Total(**{**row, "key": str(row["key"]).partition(" ")[0]}) for row in rows)
