"""How fast files become rows: Penstock, Spark's own stream and a hand-written loop.

All load the same files into a new table, in turns, round after round, so that what disturbs
the machine disturbs all of them. The rows are compared after the first round, and counted
after the others.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.figures import Figure, Goal, of_samples, paired_ratio
from benchmarks.product import create_job
from benchmarks.rivals import copy_bytes, load_by_hand, stream_with_spark
from benchmarks.sample_orders import ARROW_SCHEMA, SQL_COLUMNS, write_orders
from benchmarks.workshop import Workshop

FILES = 20
STREAM = "Spark's own stream to Parquet"
BY_HAND = "hand-written pyarrow, two processes"
PENSTOCK = "Penstock, one epoch"
PENSTOCK_EPOCHS = "Penstock, 5 files an epoch"


class RowsDifferError(Exception):
    """Two outputs that must hold the same rows do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one load took, and how to read what it wrote."""

    seconds: float
    read: Callable[[], pa.Table]
    remove: Callable[[], None]


Load = Callable[[Workshop, Path], Outcome]


def measure_throughput(workshop: Workshop, *, rows: int, rounds: int) -> list[Figure]:
    """Let everybody load the same files in turns; answer the figures."""
    inbox = workshop.fresh_folder("inbox")
    workshop.console.print(f"writing {rows:,} rows in {FILES} files …", style="dim")
    size_bytes = write_orders(inbox, files=FILES, rows_per_file=rows // FILES)
    copies = [_copy(workshop, inbox) for _ in range(rounds)]
    _warm_up(workshop)
    seconds = _rounds(workshop, inbox, rounds=rounds)
    rate = {name: [rows / taken for taken in times] for name, times in seconds.items()}
    copied = of_samples("plain copy of the bytes", [rows / s for s in copies], "rows/s")
    figures = [replace(copied, against=f"{size_bytes / 1e6:,.0f} MB")]
    figures += [of_samples(name, samples, "rows/s") for name, samples in rate.items()]
    return [*figures, *_ratios(rate)]


def _ratios(rate: dict[str, list[float]]) -> list[Figure]:
    goals = {BY_HAND: Goal(at_least=0.85), STREAM: Goal(at_least=2.0)}
    return [
        Figure(
            name=f"{name}: of {other}",
            value=paired_ratio(rate[name], rate[other]),
            unit="×",
            ratio=paired_ratio(rate[name], rate[other]),
            against=other,
            goal=goal if name == PENSTOCK else None,
        )
        for name in (PENSTOCK, PENSTOCK_EPOCHS)
        for other, goal in goals.items()
    ]


def _copy(workshop: Workshop, inbox: Path) -> float:
    folder = workshop.fresh_folder("copy")
    seconds = copy_bytes(sorted(inbox.iterdir()), folder / "all.json")
    shutil.rmtree(folder)
    return seconds


def _warm_up(workshop: Workshop) -> None:
    """Let everybody load a little first: what starts once is not measured."""
    workshop.console.print("warming up …", style="dim")
    inbox = workshop.fresh_folder("little")
    write_orders(inbox, files=4, rows_per_file=25_000)
    for load in LOADS.values():
        load(workshop, inbox).remove()


def _rounds(workshop: Workshop, inbox: Path, *, rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in LOADS}
    reference: pa.Table | None = None
    names = list(LOADS)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            # What somebody else has written is not to reach the disk during this one's turn.
            os.sync()
            outcome = LOADS[name](workshop, inbox)
            seconds[name].append(outcome.seconds)
            workshop.console.print(
                f"round {number + 1}: {name}: {outcome.seconds:.2f} s", style="dim"
            )
            reference = _checked(outcome.read(), reference, name=name, whole=number == 0)
            outcome.remove()
    return seconds


def _checked(rows: pa.Table, reference: pa.Table | None, *, name: str, whole: bool) -> pa.Table:
    """Compare rows with those of the first load, by number or by value; answer the latter."""
    if reference is not None and rows.num_rows != reference.num_rows:
        raise RowsDifferError(f"{name}: {rows.num_rows} rows, not {reference.num_rows}")
    if reference is not None and not whole:
        return reference
    ordered = rows.cast(ARROW_SCHEMA).sort_by("order_id").combine_chunks()
    if reference is not None and not ordered.equals(reference):
        raise RowsDifferError(f"{name}: other values")
    return ordered if reference is None else reference


def _stream(workshop: Workshop, inbox: Path) -> Outcome:
    folder = workshop.fresh_folder("stream")
    return Outcome(
        seconds=stream_with_spark(workshop.spark, inbox, folder),
        read=lambda: pq.read_table(folder / "rows", columns=ARROW_SCHEMA.names),
        remove=lambda: shutil.rmtree(folder),
    )


def _by_hand(workshop: Workshop, inbox: Path) -> Outcome:
    folder = workshop.fresh_folder("by-hand")
    return Outcome(
        seconds=load_by_hand(workshop.pool, sorted(inbox.iterdir()), folder),
        read=lambda: read_delta(folder),
        remove=lambda: shutil.rmtree(folder),
    )


def _penstock(properties: str) -> Load:
    def load(workshop: Workshop, inbox: Path) -> Outcome:
        product = workshop.product
        product.sql(
            create_job("j", inbox=inbox, table="t", columns=SQL_COLUMNS, properties=properties)
        )
        watch = product.load("j")
        return Outcome(
            seconds=watch.to_visible,
            read=lambda: read_delta(product.location("t")),
            remove=lambda: product.sql("DROP JOB j; DROP TABLE t"),
        )

    return load


def read_delta(location: Path) -> pa.Table:
    """Read the rows of a Delta table."""
    return DeltaTable(location).to_pyarrow_table()


LOADS: dict[str, Load] = {
    STREAM: _stream,
    BY_HAND: _by_hand,
    PENSTOCK: _penstock(""),
    PENSTOCK_EPOCHS: _penstock("'s3.max_batch_files' = '5'"),
}
