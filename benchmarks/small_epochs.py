"""Latency of small epochs: a hundred rows, from the plan to the commit.

The baseline is the minimum of every load on Spark into Delta: an empty Spark job and a bare
Delta commit. Half of the baseline is measured before the epochs and half after.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction

from benchmarks.baselines import write_share
from benchmarks.environment import Environment
from benchmarks.figures import Comparison, Figure, Goal, of_samples
from benchmarks.product import create_job
from benchmarks.sample_orders import ARROW_SCHEMA, SQL_COLUMNS, write_orders

ROWS = 100
EPOCHS_UNCOUNTED = 5


def measure_small_epochs(environment: Environment, *, epochs: int) -> list[Figure]:
    """Load one small file per epoch; return the figures in milliseconds."""
    environment.console.print(f"loading {epochs} epochs of {ROWS} rows …", style="dim")
    inbox = environment.fresh_folder("small")
    write_orders(inbox, files=epochs + EPOCHS_UNCOUNTED, rows_per_file=ROWS)
    sample = next(inbox.iterdir())
    before = bare_minimum(environment, sample=sample, times=epochs // 2)
    product = environment.product
    one_file = "'s3.max_batch_files' = '1'"
    product.sql(create_job("s", inbox=inbox, columns=SQL_COLUMNS, properties=one_file))
    measured = product.load("s")
    after = bare_minimum(environment, sample=sample, times=epochs // 2)
    jobs, commits = before.jobs + after.jobs, before.commits + after.commits
    counted = measured.epochs[EPOCHS_UNCOUNTED:]
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
        of_samples("  then catalog and copy", milliseconds(measured.between_epochs), "ms"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class BareMinimum:
    """The minimum of every load on Spark into Delta, in seconds."""

    jobs: list[float]
    commits: list[float]


def bare_minimum(environment: Environment, *, sample: Path, times: int) -> BareMinimum:
    """Measure empty Spark jobs and bare Delta commits."""
    job = _empty_jobs(environment)
    commit = _bare_commits(environment.fresh_folder("bare"), sample)
    _samples(job, EPOCHS_UNCOUNTED)
    return BareMinimum(jobs=_samples(job, times), commits=_samples(commit, times))


def milliseconds(seconds: list[float]) -> list[float]:
    """Convert seconds to milliseconds."""
    return [1000 * taken for taken in seconds]


def _samples(work: Callable[[], float], times: int) -> list[float]:
    return [work() for _ in range(times)]


def _empty_jobs(environment: Environment) -> Callable[[], float]:
    context = environment.context

    def run() -> float:
        started = perf_counter()
        context.parallelize([0], 1).map(int).collect()
        return perf_counter() - started

    return run


def _bare_commits(folder: Path, sample: Path) -> Callable[[], float]:
    """Return a function that commits one small file without a sync or a check."""
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
        started = perf_counter()
        table.create_write_transaction([action], mode="append", schema=table.schema())
        taken = perf_counter() - started
        table.update_incremental()
        return taken

    return run
