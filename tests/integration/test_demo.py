"""The demo counts what is really in the table, and says so when that is not what it wrote."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from examples.demo import (
    LATE_NAME,
    ORDERS_PER_FILE,
    Place,
    Tally,
    names,
    order,
    read_back,
    report,
    unseen_files,
    write_files,
)

pytestmark = pytest.mark.integration

AMOUNT = pa.decimal128(10, 2)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Folders of a demo that has written two files."""
    return Place(root=tmp_path)


def write_table(place: Place, numbers: list[int]) -> None:
    orders = [order(number, "till-0000.json") for number in numbers]
    rows = pa.Table.from_pylist(orders)
    amounts = rows["amount"].cast(AMOUNT)
    index = rows.schema.get_field_index("amount")
    write_deltalake(place.table, rows.set_column(index, "amount", amounts))


def expected(*numbers: int) -> Tally:
    amount = sum((Tally().amount + _amount(number) for number in numbers), Tally().amount)
    return Tally(files=1, rows=len(numbers), orders=len(numbers), amount=amount)


def _amount(number: int) -> "pa.Decimal128Scalar":
    return pa.scalar(order(number, "x")["amount"]).cast(AMOUNT).as_py()
