"""The demo counts the rows of the table and fails if they differ from the orders sent."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pj
import pytest
from deltalake import write_deltalake

from examples.demo import FILES_FIRST, LATE_NAME, Place, read_back, report, uncommitted_files
from examples.orders import ORDERS_PER_FILE, names, write_files
from examples.web_shop import STREAM, opened_shop
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
