"""Throughput of file loads: Penstock, Spark's own stream and a hand-written loop.

All load the same files into a new table, alternately in every round. So other work on the
machine affects all of them. The rows are compared after the first round and counted after the
other rounds.
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

from benchmarks.baselines import copy_bytes, load_by_hand, stream_with_spark
from benchmarks.environment import Environment
from benchmarks.figures import Comparison, Figure, Goal, of_samples, paired_ratio
from benchmarks.product import create_job
from benchmarks.sample_orders import ARROW_SCHEMA, SQL_COLUMNS, write_orders

FILES = 20
STREAM = "Spark's own stream"
BY_HAND = "pyarrow by hand"
PENSTOCK = "Penstock, one epoch"
PENSTOCK_EPOCHS = "Penstock, 5 files an epoch"


class RowsDifferError(Exception):
    """Raised if two outputs do not contain the same rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The duration of one load, with functions to read and remove its output."""

    seconds: float
    read: Callable[[], pa.Table]
    remove: Callable[[], None]


Load = Callable[[Environment, Path], Outcome]


def measure_throughput(environment: Environment, *, rows: int, rounds: int) -> list[Figure]:
    """Load the same files alternately with all candidates; return the figures."""
    inbox = environment.fresh_folder("inbox")
    environment.console.print(f"writing {rows:,} rows in {FILES} files …", style="dim")
    size_bytes = write_orders(inbox, files=FILES, rows_per_file=rows // FILES)
    copies = [_copy(environment, inbox) for _ in range(rounds)]
    _warm_up(environment)
    taken = _rounds(environment, inbox, rows=rows, rounds=rounds)
    environment.console.print(f"{size_bytes / 1e6:,.0f} MB were loaded each time", style="dim")
    rate = {name: [rows / 1000 / one.seconds for one in some] for name, some in taken.items()}
    copied = of_samples("plain copy", [rows / 1000 / one for one in copies], "k rows/s")
    loaded = [of_samples(name, samples, "k rows/s") for name, samples in rate.items()]
    return [
        copied,
        *(figure.against(*_comparisons(figure.name, rate)) for figure in loaded),
        *_processor_figures(taken),
    ]


def _processor_figures(taken: dict[str, list["LoadCost"]]) -> list[Figure]:
    """Return the processor time, which depends less on other work on the machine."""
    used = {name: [one.processor_seconds for one in some] for name, some in taken.items()}
    figures = [of_samples(f"processors, {name}", some, "s") for name, some in used.items()]
    ratio = paired_ratio(used[BY_HAND], used[PENSTOCK])
    compared = Comparison(ratio=ratio, against=f"{BY_HAND} (inverse)")
    return [
        figure.against(compared) if figure.name.endswith(PENSTOCK) else figure
        for figure in figures
    ]


def _comparisons(name: str, rate: dict[str, list[float]]) -> list[Comparison]:
    """Compare both settings of Penstock with the baselines; only the default has goals."""
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


def _copy(environment: Environment, inbox: Path) -> float:
    folder = environment.fresh_folder("copy")
    seconds = copy_bytes(sorted(inbox.iterdir()), folder / "all.json")
    shutil.rmtree(folder)
    return seconds


def _warm_up(environment: Environment) -> None:
    """Load a few rows with all candidates first, so that one-time starts are not measured."""
    environment.console.print("warming up …", style="dim")
    inbox = environment.fresh_folder("little")
    write_orders(inbox, files=4, rows_per_file=25_000)
    for load in LOADS.values():
        load(environment, inbox).remove()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCost:
    """The duration of one load, and the time of all processors together."""

    seconds: float
    processor_seconds: float


def _rounds(
    environment: Environment, inbox: Path, *, rows: int, rounds: int
) -> dict[str, list[LoadCost]]:
    taken: dict[str, list[LoadCost]] = {name: [] for name in LOADS}
    comparison = RowComparison(rows=rows)
    names = list(LOADS)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            # Write buffered data of the previous load to disk before the timing starts.
            os.sync()
            used = processor_seconds()
            outcome = LOADS[name](environment, inbox)
            one = LoadCost(
                seconds=outcome.seconds, processor_seconds=processor_seconds() - used
            )
            taken[name].append(one)
            environment.console.print(
                f"round {number + 1}: {name}: {one.seconds:.2f} s, "
                f"{one.processor_seconds:.2f} s of the processors",
                style="dim",
            )
            comparison.check(outcome.read(), name=name, values=number == 0)
            outcome.remove()
    return taken


def processor_seconds() -> float:
    """Return the processor time of this process and its children."""
    here = psutil.Process()
    family = [here, *here.children(recursive=True)]
    return sum(sum(process.cpu_times()[:2]) for process in family)


class RowComparison:
    """Check that several loads wrote the same rows."""

    def __init__(self, *, rows: int) -> None:
        self._rows = rows
        self._first: pa.Table | None = None

    def check(self, found: pa.Table, *, name: str, values: bool) -> None:
        """Require the right number of rows and, optionally, the values of the first load."""
        if found.num_rows != self._rows:
            raise RowsDifferError(f"{name}: {found.num_rows} rows, not {self._rows}")
        if not values:
            return
        ordered = found.cast(ARROW_SCHEMA).sort_by("order_id").combine_chunks()
        self._first = ordered if self._first is None else self._first
        if not ordered.equals(self._first):
            raise RowsDifferError(f"{name}: the values differ from the first load")


def _stream(environment: Environment, inbox: Path) -> Outcome:
    folder = environment.fresh_folder("stream")
    return Outcome(
        seconds=environment.streaming.submit(stream_with_spark, inbox, folder).result(),
        read=lambda: pq.read_table(folder / "rows", columns=ARROW_SCHEMA.names),
        remove=lambda: shutil.rmtree(folder),
    )


def _by_hand(environment: Environment, inbox: Path) -> Outcome:
    folder = environment.fresh_folder("by-hand")
    return Outcome(
        seconds=load_by_hand(environment.by_hand, sorted(inbox.iterdir()), folder),
        read=lambda: read_delta(folder),
        remove=lambda: shutil.rmtree(folder),
    )


def _penstock(properties: str) -> Load:
    def load(environment: Environment, inbox: Path) -> Outcome:
        product = environment.product
        product.sql(create_job("j", inbox=inbox, columns=SQL_COLUMNS, properties=properties))
        measured = product.load("j")
        return Outcome(
            seconds=measured.to_visible,
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
