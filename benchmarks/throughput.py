"""How fast files become rows: Penstock, Spark's own stream and a hand-written loop.

All load the same files into a new table, in turns, round after round, so that what disturbs
the machine disturbs all of them. The rows are compared after the first round, and counted
after the others.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.figures import Comparison, Figure, Goal, of_samples, paired_ratio
from benchmarks.product import create_job
from benchmarks.rivals import copy_bytes, load_by_hand, stream_with_spark
from benchmarks.sample_orders import ARROW_SCHEMA, SQL_COLUMNS, write_orders
from benchmarks.workshop import Workshop

FILES = 20
STREAM = "Spark's own stream"
BY_HAND = "pyarrow by hand"
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
    taken = _rounds(workshop, inbox, rows=rows, rounds=rounds)
    workshop.console.print(f"{size_bytes / 1e6:,.0f} MB were loaded each time", style="dim")
    rate = {name: [rows / 1000 / one.seconds for one in some] for name, some in taken.items()}
    copied = of_samples("plain copy", [rows / 1000 / one for one in copies], "k rows/s")
    loaded = [of_samples(name, samples, "k rows/s") for name, samples in rate.items()]
    return [
        copied,
        *(figure.against(*_comparisons(figure.name, rate)) for figure in loaded),
        *_processor_figures(taken),
    ]


def _processor_figures(taken: dict[str, list["Taken"]]) -> list[Figure]:
    """Answer the processor's time, which other work on the machine changes less."""
    used = {name: [one.processor_seconds for one in some] for name, some in taken.items()}
    figures = [of_samples(f"processors, {name}", some, "s") for name, some in used.items()]
    ratio = paired_ratio(used[BY_HAND], used[PENSTOCK])
    compared = Comparison(ratio=ratio, against=f"{BY_HAND} (inverse)")
    return [
        figure.against(compared) if figure.name.endswith(PENSTOCK) else figure
        for figure in figures
    ]


def _comparisons(name: str, rate: dict[str, list[float]]) -> list[Comparison]:
    """Hold both ways of Penstock against the others; the goals are for the default one."""
    if name not in (PENSTOCK, PENSTOCK_EPOCHS):
        return []
    return [
        Comparison(
            ratio=paired_ratio(rate[name], rate[other]),
            against=other,
            goal=goal if name == PENSTOCK else None,
        )
        for other, goal in ((BY_HAND, Goal(at_least=0.85)), (STREAM, Goal(at_least=2.0)))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What one load took: time on the wall, and of all processors together."""

    seconds: float
    processor_seconds: float


def _rounds(
    workshop: Workshop, inbox: Path, *, rows: int, rounds: int
) -> dict[str, list[Taken]]:
    taken: dict[str, list[Taken]] = {name: [] for name in LOADS}
    comparison = RowComparison(rows=rows)
    names = list(LOADS)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            # What somebody else has written is not to reach the disk during this one's turn.
            os.sync()
            used = processor_seconds()
            outcome = LOADS[name](workshop, inbox)
            one = Taken(seconds=outcome.seconds, processor_seconds=processor_seconds() - used)
            taken[name].append(one)
            workshop.console.print(
                f"round {number + 1}: {name}: {one.seconds:.2f} s, "
                f"{one.processor_seconds:.2f} s of the processors",
                style="dim",
            )
            comparison.check(outcome.read(), name=name, values=number == 0)
            outcome.remove()
    return taken


def processor_seconds() -> float:
    """Answer what this process and all that it started have used of the processors."""
    here = psutil.Process()
    family = [here, *here.children(recursive=True)]
    return sum(sum(process.cpu_times()[:2]) for process in family)


class RowComparison:
    """Rows of several loads, which must be the same."""

    def __init__(self, *, rows: int) -> None:
        self._rows = rows
        self._first: pa.Table | None = None

    def check(self, found: pa.Table, *, name: str, values: bool) -> None:
        """Require the right number of rows and, if wanted, the values of the first load."""
        if found.num_rows != self._rows:
            raise RowsDifferError(f"{name}: {found.num_rows} rows, not {self._rows}")
        if not values:
            return
        ordered = found.cast(ARROW_SCHEMA).sort_by("order_id").combine_chunks()
        self._first = ordered if self._first is None else self._first
        if not ordered.equals(self._first):
            raise RowsDifferError(f"{name}: other values than the first load")


def _stream(workshop: Workshop, inbox: Path) -> Outcome:
    folder = workshop.fresh_folder("stream")
    return Outcome(
        seconds=workshop.streaming.submit(stream_with_spark, inbox, folder).result(),
        read=lambda: pq.read_table(folder / "rows", columns=ARROW_SCHEMA.names),
        remove=lambda: shutil.rmtree(folder),
    )


def _by_hand(workshop: Workshop, inbox: Path) -> Outcome:
    folder = workshop.fresh_folder("by-hand")
    return Outcome(
        seconds=load_by_hand(workshop.by_hand, sorted(inbox.iterdir()), folder),
        read=lambda: read_delta(folder),
        remove=lambda: shutil.rmtree(folder),
    )


def _penstock(properties: str) -> Load:
    def load(workshop: Workshop, inbox: Path) -> Outcome:
        product = workshop.product
        product.sql(create_job("j", inbox=inbox, columns=SQL_COLUMNS, properties=properties))
        watch = product.load("j")
        return Outcome(
            seconds=watch.to_visible,
            read=lambda: read_delta(product.location("j")),
            remove=lambda: product.sql("DROP JOB j; DROP TABLE j"),
        )

    return load


def read_delta(location: Path | str) -> pa.Table:
    """Read the rows of a Delta table."""
    return DeltaTable(location).to_pyarrow_table()


LOADS: dict[str, Load] = {
    STREAM: _stream,
    BY_HAND: _by_hand,
    PENSTOCK: _penstock(""),
    PENSTOCK_EPOCHS: _penstock("'s3.max_batch_files' = '5'"),
}
