"""The benchmarks measure every step, and fail if outputs differ."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from subprocess import PIPE

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from benchmarks.baselines import copy_bytes, split_evenly, write_share
from benchmarks.figures import Comparison, Figure, Goal, paired_ratio, save_figures
from benchmarks.memory import WORKER, peak_bytes, role_of
from benchmarks.product import Product, create_job
from benchmarks.sample_orders import SQL_COLUMNS, order_line, write_orders
from benchmarks.streams import Amounts, measure_streams
from benchmarks.throughput import RowComparison, RowsDifferError, processor_seconds, read_delta
from penstock.sources.kinesis.client import CLIENTS
from penstock.testing.executor import InProcessExecutor

pytestmark = pytest.mark.integration

ROWS = 30


@pytest.fixture
def orders(tmp_path: Path) -> list[Path]:
    """Three files of ten orders."""
    write_orders(tmp_path / "orders", files=3, rows_per_file=ROWS // 3)
    return sorted((tmp_path / "orders").iterdir())


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    """The product on an empty home, without Spark."""
    opened = Product(tmp_path / "home", executor=InProcessExecutor())
    yield opened
    opened.close()


def test_sample_files_are_the_same_on_every_run(tmp_path: Path) -> None:
    first = write_orders(tmp_path / "a", files=2, rows_per_file=50)

    second = write_orders(tmp_path / "b", files=2, rows_per_file=50)

    texts = [
        "".join(path.read_text() for path in sorted((tmp_path / name).iterdir()))
        for name in ("a", "b")
    ]
    assert texts[0] == texts[1] == "".join(map(order_line, range(100)))
    assert first == second == len(texts[0])


def test_penstock_and_the_hand_written_loop_write_the_same_rows(
    orders: list[Path], product: Product, tmp_path: Path
) -> None:
    product.sql(create_job("j", inbox=orders[0].parent, columns=SQL_COLUMNS))
    comparison = RowComparison(rows=ROWS)

    write_share(orders, tmp_path / "by-hand.parquet")
    product.load("j")

    by_hand = pq.read_table(tmp_path / "by-hand.parquet")
    comparison.check(by_hand, name="by hand", values=True)
    comparison.check(read_delta(product.location("j")), name="penstock", values=True)


def test_a_load_is_timed_by_epoch_and_step_in_order(
    orders: list[Path], product: Product
) -> None:
    one_file = "'s3.max_batch_files' = '1'"
    product.sql(
        create_job(
            "j",
            inbox=orders[0].parent,
            columns=SQL_COLUMNS,
            properties=one_file,
        )
    )

    watch = product.load("j")

    assert len(watch.epochs) == len(orders)
    assert len(watch.between_epochs) == len(orders) - 1
    assert all(min(epoch.seconds_by_step.values()) > 0 for epoch in watch.epochs)
    assert min(watch.between_epochs) > 0
    assert watch.to_visible > sum(epoch.to_visible for epoch in watch.epochs) > 0


def test_a_comparison_finds_a_lost_row(orders: list[Path], tmp_path: Path) -> None:
    write_share(orders, tmp_path / "rows.parquet")
    rows = pq.read_table(tmp_path / "rows.parquet")

    with pytest.raises(RowsDifferError, match="29 rows, not 30"):
        RowComparison(rows=ROWS).check(rows.slice(1), name="x", values=False)


def test_a_comparison_finds_a_changed_value(orders: list[Path], tmp_path: Path) -> None:
    write_share(orders, tmp_path / "rows.parquet")
    rows = pq.read_table(tmp_path / "rows.parquet")
    comparison = RowComparison(rows=ROWS)
    comparison.check(rows, name="first", values=True)
    duplicated = pa.concat_tables([rows.slice(0, 1), rows.slice(0, ROWS - 1)])

    with pytest.raises(RowsDifferError, match="second: the values differ"):
        comparison.check(duplicated, name="second", values=True)


def test_a_plain_copy_contains_every_byte(orders: list[Path], tmp_path: Path) -> None:
    seconds = copy_bytes(orders, tmp_path / "copy")

    assert seconds > 0
    assert (tmp_path / "copy").read_bytes() == b"".join(path.read_bytes() for path in orders)


def test_split_evenly_returns_every_file_once() -> None:
    files = [Path(str(number)) for number in range(5)]

    shares = split_evenly(files, parts=2)

    assert [len(share) for share in shares] == [3, 2]
    assert sorted(path for share in shares for path in share) == files


@pytest.mark.parametrize(
    ("goal", "ratio", "met"),
    [
        (Goal(at_least=0.85), 0.85, True),
        (Goal(at_least=0.85), 0.84, False),
        (Goal(at_most=3), 3.0, True),
        (Goal(at_most=3), 3.1, False),
    ],
)
def test_a_goal_is_met_up_to_its_bound(goal: Goal, ratio: float, *, met: bool) -> None:
    assert Comparison(ratio=ratio, against="x", goal=goal).met is met


def test_a_paired_ratio_is_the_median_of_the_ratios_per_round() -> None:
    assert paired_ratio([1.0, 30.0, 2.0], [2.0, 60.0, 1.0]) == 0.5


def test_figures_are_saved_as_json(tmp_path: Path) -> None:
    compared = Comparison(ratio=0.5, against="other", goal=Goal(at_least=0.85))
    figure = Figure(name="x", value=1.5, unit="s", spread=(1.0, 2.0)).against(compared)

    save_figures([figure], {"cores": 2}, tmp_path / "figures.json")

    saved = json.loads((tmp_path / "figures.json").read_text())
    assert saved["about"] == {"cores": 2}
    assert saved["figures"][0]["comparisons"][0]["ratio"] == 0.5


def test_the_peak_of_a_process_includes_its_allocated_memory() -> None:
    code = "data = b'x' * (64 << 20); print('allocated', flush=True); input()"
    command = [sys.executable, "-c", code]

    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "allocated\n"
        child = psutil.Process(process.pid)
        peak, role = peak_bytes(child), role_of(child, psutil.Process())
        process.communicate("\n")

    assert 64 << 20 < peak < 128 << 20
    assert role == WORKER


def test_processor_time_grows_with_work() -> None:
    before = processor_seconds()
    started = os.times().user

    while os.times().user < started + 0.05:
        sum(range(10_000))

    assert processor_seconds() > before


@dataclass(frozen=True)
class Bench:
    """The product without Spark, and a console that discards its output."""

    product: Product
    console: Console


def test_stream_loads_are_measured_with_small_amounts(product: Product) -> None:
    console = Console(file=StringIO())
    amounts = Amounts(records=40, rounds=1, limited_records=10, idle_shards=(2, 4))

    figures = measure_streams(Bench(product=product, console=console), amounts)
    CLIENTS.close()

    assert [figure.name for figure in figures] == [
        "boto3, 4 threads, only counting",
        "Penstock, Kinesis into a table",
        "least time at 2 MB/s a shard",
        "drain of 4 limited shards",
        "an idle minute over 2 shards",
        "an idle minute over 4 shards",
    ]
    assert all(figure.value > 0 for figure in figures)
