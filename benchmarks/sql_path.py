"""Throughput of a SELECT with expressions and a WHERE, against Spark's own stream."""

import shutil
from functools import partial
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq

from benchmarks.baselines import stream_with_spark
from benchmarks.environment import Environment
from benchmarks.figures import Comparison, Figure, Goal, of_samples, paired_ratio
from benchmarks.product import Source, create_job
from benchmarks.sample_orders import ARROW_SCHEMA, SQL_COLUMNS, write_orders
from benchmarks.small_epochs import EPOCHS_UNCOUNTED, ROWS, bare_minimum, milliseconds
from benchmarks.throughput import FILES, RowComparison, read_delta

OUTPUTS = (
    "order_id",
    "upper(customer) AS customer",
    "CASE WHEN item = 'tea' THEN 'coffee' ELSE item END AS item",
    "quantity",
    "round(price * quantity, 2) AS price",
    "paid",
    "ordered_at",
)
FILTER = "quantity > 1 AND item <> 'salt'"
SOURCE = Source(select=f"SELECT {', '.join(OUTPUTS)} FROM SOURCE WHERE {FILTER}")
ROUNDS_UNCOUNTED = 3
STREAM = "SELECT with WHERE, Spark's own stream"


def measure_sql_path(environment: Environment, *, rows: int, rounds: int) -> list[Figure]:
    """Run the same SELECT on the same files alternately with Penstock and Spark's stream."""
    environment.console.print(f"writing {rows:,} rows for a SELECT …", style="dim")
    inbox = environment.fresh_folder("select")
    write_orders(inbox, files=FILES, rows_per_file=rows // FILES)
    streams: list[float] = []
    own: list[float] = []
    comparison: RowComparison | None = None
    for number in range(ROUNDS_UNCOUNTED + rounds):
        folder = environment.fresh_folder("stream")
        job = partial(stream_with_spark, inbox, folder, OUTPUTS, FILTER)
        stream = environment.streaming.submit(job).result()
        found = pq.read_table(folder / "rows", columns=ARROW_SCHEMA.names)
        comparison = comparison or RowComparison(rows=found.num_rows)
        comparison.check(found, name=STREAM, values=number == 0)
        shutil.rmtree(folder)
        penstock = _load(environment, inbox, comparison, values=number == 0)
        # Both JVMs optimise generated code while it runs.
        if number >= ROUNDS_UNCOUNTED:
            streams.append(rows / 1000 / stream)
            own.append(rows / 1000 / penstock)
    compared = Comparison(
        ratio=paired_ratio(own, streams), against=STREAM, goal=Goal(at_least=1.4)
    )
    return [
        of_samples(STREAM, streams, "k rows/s"),
        of_samples("SELECT with WHERE, Penstock", own, "k rows/s").against(compared),
    ]


def _load(
    environment: Environment, inbox: Path, comparison: RowComparison, *, values: bool
) -> float:
    product = environment.product
    product.sql(create_job("q", inbox=inbox, columns=SQL_COLUMNS, source=SOURCE))
    seconds = product.load("q").to_visible
    comparison.check(read_delta(product.location("q")), name="Penstock", values=values)
    product.sql("DROP JOB q; DROP TABLE q")
    return seconds


def measure_small_sql_epochs(environment: Environment, *, epochs: int) -> list[Figure]:
    """Load one small file per epoch through a SELECT; return the figures in milliseconds."""
    environment.console.print(
        f"loading {epochs} epochs of {ROWS} rows by a SELECT …", style="dim"
    )
    inbox = environment.fresh_folder("small-select")
    write_orders(inbox, files=epochs + EPOCHS_UNCOUNTED, rows_per_file=ROWS)
    before = bare_minimum(environment, sample=next(inbox.iterdir()), times=epochs // 2)
    product = environment.product
    product.sql(
        create_job(
            "r",
            inbox=inbox,
            columns=SQL_COLUMNS,
            properties="'s3.max_batch_files' = '1'",
            source=SOURCE,
        )
    )
    counted = product.load("r").epochs[EPOCHS_UNCOUNTED:]
    after = bare_minimum(environment, sample=next(inbox.iterdir()), times=epochs // 2)
    needed = median(before.jobs + after.jobs) + median(before.commits + after.commits)
    whole = of_samples(
        f"{ROWS} rows by a SELECT, plan to visible",
        milliseconds([e.to_visible for e in counted]),
        "ms",
    )
    goal = Goal(at_most=4.0)
    ratio = whole.value / (needed * 1000)
    return [
        whole.against(Comparison(ratio=ratio, against="job + commit", goal=goal)),
        *(
            of_samples(
                f"  {step}", milliseconds([e.seconds_by_step[step] for e in counted]), "ms"
            )
            for step in counted[0].seconds_by_step
        ),
    ]
