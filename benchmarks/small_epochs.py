"""How soon a few rows can be seen: epochs of a hundred rows, from the plan to the commit.

They are held against what no load on Spark into Delta can do without: an empty Spark job and a
bare Delta commit, half of them measured before the epochs and half after.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction

from benchmarks.figures import Comparison, Figure, Goal, of_samples
from benchmarks.product import create_job
from benchmarks.rivals import write_share
from benchmarks.sample_orders import ARROW_SCHEMA, SQL_COLUMNS, write_orders
from benchmarks.workshop import Workshop

ROWS = 100
EPOCHS_UNCOUNTED = 5


def measure_small_epochs(workshop: Workshop, *, epochs: int) -> list[Figure]:
    """Load one small file per epoch; answer the figures in milliseconds."""
    workshop.console.print(f"loading {epochs} epochs of {ROWS} rows …", style="dim")
    inbox = workshop.fresh_folder("small")
    write_orders(inbox, files=epochs + EPOCHS_UNCOUNTED, rows_per_file=ROWS)
    sample = next(inbox.iterdir())
    before = bare_minimum(workshop, sample=sample, times=epochs // 2)
    product = workshop.product
    one_file = "'s3.max_batch_files' = '1'"
    product.sql(create_job("s", inbox=inbox, columns=SQL_COLUMNS, properties=one_file))
    watch = product.load("s")
    after = bare_minimum(workshop, sample=sample, times=epochs // 2)
    jobs, commits = before.jobs + after.jobs, before.commits + after.commits
    counted = watch.epochs[EPOCHS_UNCOUNTED:]
    needed = median(jobs) + median(commits)
    whole = of_samples(
        f"{ROWS} rows, plan to visible", milliseconds([e.to_visible for e in counted]), "ms"
    )
    steps = [
        of_samples(f"  {step}", milliseconds([e.seconds_by_step[step] for e in counted]), "ms")
        for step in counted[0].seconds_by_step
    ]
    return [
        of_samples("empty Spark job", milliseconds(jobs), "ms"),
        of_samples("bare Delta commit", milliseconds(commits), "ms"),
        whole.against(
            Comparison(
                ratio=whole.value / (needed * 1000),
                against="job + commit",
                goal=Goal(at_most=3.0),
            )
        ),
        *steps,
        of_samples("  then catalog and copy", milliseconds(watch.between_epochs), "ms"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class BareMinimum:
    """What no load on Spark into Delta can do without, in seconds."""

    jobs: list[float]
    commits: list[float]


def bare_minimum(workshop: Workshop, *, sample: Path, times: int) -> BareMinimum:
    """Measure empty Spark jobs and bare Delta commits."""
    job = _empty_jobs(workshop)
    commit = _bare_commits(workshop.fresh_folder("bare"), sample)
    _samples(job, EPOCHS_UNCOUNTED)
    return BareMinimum(jobs=_samples(job, times), commits=_samples(commit, times))


def milliseconds(seconds: list[float]) -> list[float]:
    """Answer seconds as milliseconds."""
    return [1000 * taken for taken in seconds]


def _samples(work: Callable[[], float], times: int) -> list[float]:
    return [work() for _ in range(times)]


def _empty_jobs(workshop: Workshop) -> Callable[[], float]:
    context = workshop.context

    def run() -> float:
        begun = perf_counter()
        context.parallelize([0], 1).map(int).collect()
        return perf_counter() - begun

    return run


def _bare_commits(folder: Path, sample: Path) -> Callable[[], float]:
    """Answer what commits one small file to a table; nothing is synced, nothing looked at."""
    table = DeltaTable.create(str(folder), Schema.from_arrow(ARROW_SCHEMA))
    data = folder / "small.parquet"
    rows = write_share([sample], data)
    action = AddAction(
        path=data.name,
        size=data.stat().st_size,
        partition_values={},
        modification_time=0,
        data_change=True,
        stats=f'{{"numRecords":{rows}}}',
    )

    def run() -> float:
        begun = perf_counter()
        table.create_write_transaction([action], mode="append", schema=table.schema())
        taken = perf_counter() - begun
        table.update_incremental()
        return taken

    return run
