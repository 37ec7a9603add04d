"""Sample files for the benchmarks: orders as JSON lines, the same bytes on every run."""

from pathlib import Path

import pyarrow as pa

ITEMS = ("bread", "butter", "coffee", "honey", "milk", "oats", "pears", "salt", "tea")

SQL_COLUMNS = (
    "order_id BIGINT, customer STRING, item STRING, quantity INT, price DOUBLE, "
    "paid BOOLEAN, ordered_at TIMESTAMP"
)
_FIELDS: list[tuple[str, pa.DataType]] = [
    ("order_id", pa.int64()),
    ("customer", pa.string()),
    ("item", pa.string()),
    ("quantity", pa.int32()),
    ("price", pa.float64()),
    ("paid", pa.bool_()),
    ("ordered_at", pa.timestamp("us", tz="UTC")),
]
ARROW_SCHEMA = pa.schema(_FIELDS)


def order_line(number: int) -> str:
    """Return the order with this number as a line of JSON, about 140 bytes."""
    chance = number * 2_654_435_761 % 2**32
    day, second = 1 + chance % 28, number % 86_400
    return (
        f'{{"order_id":{number},"customer":"customer-{chance % 1_000_000:06d}",'
        f'"item":"{ITEMS[chance % 9]}","quantity":{1 + chance % 9},'
        f'"price":{(50 + chance % 20_000) / 100},"paid":{"true" if chance & 64 else "false"},'
        f'"ordered_at":"2026-01-{day:02d}T{second // 3600:02d}:{second // 60 % 60:02d}:'
        f'{second % 60:02d}Z"}}\n'
    )


def write_orders(folder: Path, *, files: int, rows_per_file: int, first: int = 0) -> int:
    """Write numbered orders into numbered files; return the number of bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    size_bytes = 0
    for file in range(files):
        first_order = (first + file) * rows_per_file
        text = "".join(map(order_line, range(first_order, first_order + rows_per_file)))
        size_bytes += (folder / f"orders-{first + file:06d}.json").write_bytes(text.encode())
    return size_bytes
