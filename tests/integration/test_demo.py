"""The demo counts rows and compares totals, and fails if they differ from the orders sent."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pj
import pytest
from deltalake import write_deltalake

from examples.demo import (
    FILES_FIRST,
    FILES_MORE,
    LATE_NAME,
    Place,
    read_back,
    report,
    report_totals,
    uncommitted_files,
)
from examples.orders import ORDERS_PER_FILE, names, write_files
from examples.streaming_tables import DELAY, STREAMING_TABLES, Total, read_totals, read_truth
from examples.web_shop import STREAM, opened_shop
from penstock.sql.parser import parse_script
from penstock.sql.statements import CreateStreamingTable
from tests.servers.kinesis_clients import kinesis_client, wait_until

pytestmark = pytest.mark.integration


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Folders of a demo, empty."""
    return Place(root=tmp_path)


def fill_table(
    place: Place, change: Callable[[pa.Table], pa.Table] = lambda rows: rows
) -> None:
    """Create a table from the files in the inbox; ``change`` can spoil its rows."""
    rows = pa.concat_tables(pj.read_json(path) for path in sorted(place.inbox.iterdir()))
    amounts = rows["amount"].cast(pa.decimal128(10, 2))
    rows = rows.drop_columns("amount").append_column("amount", amounts)
    write_deltalake(place.orders, change(rows))


def test_the_demo_passes_if_every_order_is_in_the_table_once(place: Place) -> None:
    expected = write_files(place.inbox, names(2), first_order=1)
    fill_table(place)

    passed = report(place.orders, expected, sent_in="files")

    assert passed
    assert read_back(place.orders).rows == expected.rows == 2 * ORDERS_PER_FILE


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda rows: rows.slice(1), id="lost"),
        pytest.param(lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]), id="duplicated"),
        pytest.param(
            lambda rows: pa.concat_tables([rows.slice(1), rows.slice(1, 1)]),
            id="one lost, one duplicated",
        ),
        pytest.param(lambda rows: rows.slice(ORDERS_PER_FILE), id="a whole file lost"),
    ],
)
def test_the_demo_fails_if_a_row_is_lost_or_duplicated(
    place: Place, change: Callable[[pa.Table], pa.Table]
) -> None:
    expected = write_files(place.inbox, names(2), first_order=1)
    fill_table(place, change)

    passed = report(place.orders, expected, sent_in="files")

    assert not passed


def test_the_demo_counts_uncommitted_data_files(place: Place) -> None:
    write_files(place.inbox, names(1), first_order=1)
    fill_table(place)
    before = uncommitted_files(place.orders)

    (place.orders / "part-uncommitted.parquet").write_bytes(b"")

    assert before == 0
    assert uncommitted_files(place.orders) == 1


def test_the_late_file_of_the_demo_sorts_before_all_others() -> None:
    assert min(names(FILES_FIRST)) > LATE_NAME


def test_the_web_shop_continues_to_sell_during_a_split_of_a_shard() -> None:
    with opened_shop() as shop, kinesis_client(shop.endpoint) as client:
        shop.open()
        split = shop.split()
        before = shop.sold
        wait_until(lambda: shop.sold > before)
        tally = shop.close()

        shards = client.list_shards(StreamName=STREAM)["Shards"]

    assert [shard["ShardId"] for shard in shards if shard.get("ParentShardId") == split]
    assert tally.rows == tally.orders == shop.sold > before


def write_orders(place: Place, *orders: tuple[str, str, str]) -> None:
    """Write a file of orders: time, item and amount."""
    place.inbox.mkdir(exist_ok=True)
    lines = [
        f'{{"ordered_at": "{at}", "item": "{item}", "amount": {n}}}' for at, item, n in orders
    ]
    (place.inbox / "a.json").write_text("\n".join(lines))


def total(key: str, orders: int, amount: str) -> Total:
    return Total(key=key, orders=orders, amount=Decimal(amount))


def test_the_true_totals_have_every_item_and_all_days_but_the_open_ones(place: Place) -> None:
    write_orders(
        place,
        ("2026-01-01T10:00:00Z", "tea", "0.1"),
        ("2026-01-01T11:00:00Z", "tea", "0.2"),
        ("2026-01-02T10:00:00Z", "milk", "3"),
        ("2026-01-03T23:30:00Z", "tea", "4"),
    )

    truth = read_truth(place.inbox)

    assert truth.days == [total("2026-01-01", 2, "0.3")]
    assert truth.items == [total("milk", 1, "3"), total("tea", 3, "4.3")]


def test_the_totals_of_a_streaming_table_are_read_by_day(place: Place) -> None:
    days = pa.array([datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)])
    amounts = pa.array([Decimal("2.50"), Decimal("1.25")], pa.decimal128(20, 2))
    write_deltalake(place.per_day, pa.table({"day": days, "orders": [2, 1], "amount": amounts}))

    found = read_totals(place.per_day, "day")

    assert found == [total("2026-01-01", 1, "1.25"), total("2026-01-02", 2, "2.50")]


TRUTH = [total("milk", 1, "3"), total("tea", 2, "4.3")]


@pytest.mark.parametrize(
    ("found", "passed"),
    [
        pytest.param(TRUTH, True, id="equal"),
        pytest.param(TRUTH[:1], False, id="missing"),
        pytest.param([*TRUTH, TRUTH[1]], False, id="duplicated"),
        pytest.param([TRUTH[0], replace(TRUTH[1], orders=3)], False, id="wrong count"),
        pytest.param([TRUTH[0], replace(TRUTH[1], amount=Decimal(4))], False, id="wrong sum"),
    ],
)
def test_the_demo_fails_if_a_total_is_wrong(found: list[Total], *, passed: bool) -> None:
    assert report_totals(found, TRUTH, of="item") is passed


def test_the_delay_of_the_demo_is_that_of_its_statement() -> None:
    first, second = (one.statement for one in parse_script(STREAMING_TABLES))

    assert isinstance(first, CreateStreamingTable)
    assert isinstance(second, CreateStreamingTable)
    assert first.query.streams[0].watermark is not None
    assert first.query.streams[0].watermark.delay_ms == DELAY.total_seconds() * 1000


def test_the_orders_of_the_demo_span_several_days(place: Place) -> None:
    last = (FILES_FIRST + FILES_MORE) * ORDERS_PER_FILE
    write_files(place.inbox, names(1), first_order=last - ORDERS_PER_FILE + 1)

    lines = (place.inbox / "till-0000.json").read_text().splitlines()

    assert json.loads(lines[-1])["ordered_at"] == "2026-01-04T03:33:20Z"
