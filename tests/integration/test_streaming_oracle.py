"""Streaming tables against two oracles: a model of the recorded plans, and a batch query.

One scenario drives all query shapes at once: they are streaming tables over the same inputs, in
one node.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from penstock.crashpoints import CrashPoint
from penstock.model.codec import from_text
from penstock.sources.table_log.kind import FileWork
from penstock.spark.executor import SparkExecutor
from penstock.streaming.checkpoint import BatchPlan, SourcePlan, parse_plan
from tests.crash.queries import kill_at
from tests.node import Node
from tests.streaming_model import (
    FUNCTIONS,
    INPUT,
    SHAPES,
    Batch,
    Marks,
    Result,
    Row,
    late_rows,
    plain,
    shout,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
# Later than ``watermark.max-future`` allows: it must not move the watermark.
FAR_FUTURE_SECONDS = 80 * 365 * 86_400
SECONDS_MAX = 250
# The first one has many late rows in both inputs. The second one has an idle input.
LATE_SEEDS = (6, 5)
BATCH_SEED = 35
INPUTS = ("a", "b")
STATIC_SCHEMA = pa.schema([("k", pa.string()), ("name", pa.string())])
MICROSECONDS_PER_MS = 1_000
KILL_POINTS = (
    CrashPoint.BATCH_OPENED,
    CrashPoint.PLAN_WRITTEN,
    CrashPoint.BATCH_COLLECTED,
    CrashPoint.RUN_FINISHED,
    CrashPoint.TABLE_COMMITTED,
    CrashPoint.CATALOG_APPLIED,
    CrashPoint.BATCH_RETURNED,
)
# Random scenarios in addition to the fixed ones: PENSTOCK_ORACLE_EXAMPLES=20 pytest …
EXAMPLES = int(os.environ.get("PENSTOCK_ORACLE_EXAMPLES", "0"))


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One commit to an input table: the rows of one file."""

    table: str
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Run:
    """Some commits, a kill or a restart, and then a run until everything is read."""

    commits: tuple[Commit, ...]
    # Where the runners of all tables are killed in their first epoch; None: only a restart.
    killed_at: CrashPoint | None
    # The static table gets one more row.
    static_row: tuple[str, str] | None


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """The commits before CREATE, the runs after it, and the options of all tables."""

    snapshot: tuple[Commit, ...]
    runs: tuple[Run, ...]
    options: Mapping[str, str]


def scenario(seed: int, *, late: bool, runs: int = 2) -> Scenario:
    """Return a random scenario.

    The simplest example of a strategy of lists is an empty stream. With a seed, all examples
    are equally rich.

    Spark never closes a group with a NULL event time. So a scenario without late rows has no
    NULL event time.
    """
    random = Random(seed)  # noqa: S311 - The data is not a secret.
    clock = dict.fromkeys(INPUTS, 0.0)
    ids = iter(range(1, 1_000))

    def moment(table: str) -> datetime | None:
        kind = random.random()
        if late and kind < 0.05:
            return None
        if kind < 0.08:
            return MIDNIGHT + timedelta(seconds=FAR_FUTURE_SECONDS + random.randrange(60))
        second = clock[table] - random.choice((0, 0, 1, 2, 4, 5, 7))
        if late and kind < 0.4:
            second -= random.choice((10, 15, 20, 30, 50))
        # Watermarks have milliseconds, and event times have microseconds.
        fraction = random.choice((0, 0, 0, 500_000, 1_000, 1, 999))
        return MIDNIGHT + timedelta(seconds=60 + second, microseconds=fraction)

    def commit(table: str) -> Commit:
        clock[table] += random.choice((0, 5, 10, 20, 30))
        keys = ("x", "x", "y", None)
        return Commit(
            table=table,
            rows=tuple(
                (next(ids), random.choice(keys), random.randrange(9), moment(table))
                for _ in range(random.randrange(3, 8))
            ),
        )

    def run(number: int) -> Run:
        # Sometimes, one input is idle for a whole run.
        tables = random.choice(
            ((*INPUTS, *INPUTS), ("a", "b", "a"), ("a", "a"), ("b", "b", "a"))
        )
        return Run(
            commits=tuple(commit(table) for table in tables),
            killed_at=random.choice(KILL_POINTS) if number else None,
            static_row=random.choice((None, ("x", f"x{number}"), ("y", f"y{number}"))),
        )

    return Scenario(
        snapshot=tuple(commit(table) for table in INPUTS),
        runs=tuple(run(number) for number in range(runs)),
        options={
            "parallelism": str(random.choice((1, 1, 2))),
            "max_files_per_epoch": str(random.choice((1, 2, 2, 3))),
            # After a short timeout, the rows of an idle input are late.
            "watermark.idle-timeout": random.choice(("never", "never", "1ms"))
            if late
            else "never",
        },
    )


@dataclass
class World:
    """A node with the inputs and all shapes, and every plan that was recorded."""

    node: Node
    plans: dict[str, dict[int, BatchPlan]] = field(default_factory=dict)
    rows_by_file: dict[str, tuple[Row, ...]] = field(default_factory=dict)

    def play(self, played: Scenario) -> None:
        """Create everything and run all runs."""
        node = self.node
        for table in INPUTS:
            node.sql(f"CREATE TABLE {table} (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP)")
        node.sql("CREATE TABLE d (k STRING, name STRING)")
        self.append("d", STATIC_SCHEMA, [("x", "first"), (None, "nobody")])
        self.commit(played.snapshot)
        udfs = {"session.python_udfs": FUNCTIONS}
        for shape in SHAPES:
            own = udfs if "shout" in shape.text else {}
            node.sql(shape.create({**played.options, **own}))
        for run in played.runs:
            if run.static_row is not None:
                self.append("d", STATIC_SCHEMA, [run.static_row])
            self.commit(run.commits)
            if run.killed_at is None:
                self.node = self.node.restart()
            else:
                names = tuple(shape.name for shape in SHAPES)
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr("tests.integration.driving.TIMEOUT_SECONDS", SECONDS_MAX)
                    self.node = kill_at(self.node, run.killed_at, tables=names, all_reach=False)
            self.run()

    def finish(self) -> None:
        """Close all open state of every table."""
        for shape in SHAPES:
            self.node.sql(f"ALTER STREAMING TABLE {shape.name} ADVANCE WATERMARK TO FINAL")
        self.run()

    def commit(self, commits: Sequence[Commit]) -> None:
        for one in commits:
            self.append(one.table, INPUT, one.rows)

    def append(self, table: str, schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> None:
        found = [dict(zip(schema.names, row, strict=True)) for row in rows]
        data = pa.Table.from_pylist(found, schema=schema)
        write_deltalake(self.location(table), data, mode="append")

    def location(self, table: str) -> str:
        record = self.node.catalog.table(table)
        assert record is not None
        return record.location

    def run(self) -> None:
        """Run all tables until they are caught up, and record their plans."""
        with pytest.MonkeyPatch.context() as patch:
            # All queries run at once.
            patch.setattr("tests.node.TIMEOUT_SECONDS", SECONDS_MAX)
            reports = self.node.run()
        assert all(report.caught_up for report in reports), reports
        for shape in SHAPES:
            state = self.node.job(shape.name)
            assert state.definition.streaming is not None
            folder = self.node.checkpoints / state.id / state.definition.streaming.checkpoint_id
            recorded = self.plans.setdefault(shape.name, {})
            for path in (folder / "plans").iterdir():
                plan = parse_plan(path.read_text())
                recorded[plan.batch] = plan

    def batches(self, name: str) -> list[Batch]:
        """Return all batches of a table, in order; each must continue the batch before it."""
        plans = [plan for _, plan in sorted(self.plans[name].items())]
        ends = {split: source.end for split, source in plans[-1].sources.items()}
        assert [plan.batch for plan in plans] == list(range(len(plans)))
        for before, plan in pairwise(plans):
            assert (plan.closes_ms, plan.drops_ms) == (before.watermark_ms, before.closes_ms)
            assert plan.watermark_ms >= before.watermark_ms
            assert all(
                source.begin == before.sources[split].end
                for split, source in plan.sources.items()
            )
        assert ends == self.heads(plans[-1])
        return [self.batch(plan) for plan in plans]

    def heads(self, plan: BatchPlan) -> dict[str, str]:
        """Return the positions after the newest commits to the tables of a plan."""
        versions = {
            record.id: DeltaTable(record.location).version()
            for record in self.node.catalog.tables()
            if record.name in INPUTS
        }
        return {
            split: f"LOG {versions[source.table] + 1}.0"
            for split, source in plan.sources.items()
        }

    def batch(self, plan: BatchPlan) -> Batch:
        static: tuple[Row, ...] = ()
        if "d" in plan.pins:
            found = DeltaTable(self.location("d"), version=plan.pins["d"])
            static = tuple(found.to_pyarrow_table().to_pylist())
        return Batch(
            streams={name: self.read(source) for name, source in plan.sources.items()},
            static=static,
            marks=Marks(
                closes=plan.closes_ms * MICROSECONDS_PER_MS,
                drops=plan.drops_ms * MICROSECONDS_PER_MS,
            ),
        )

    def read(self, source: SourcePlan) -> tuple[Row, ...]:
        """Return the rows of the files that a batch read from one table."""
        location = next(r.location for r in self.node.catalog.tables() if r.id == source.table)
        works = [from_text(FileWork, read.work) for share in source.shares for read in share]
        paths = [Path(location, work.path) for work in works]
        return tuple(row for path in paths for row in self.rows_of(path))

    def rows_of(self, path: Path) -> tuple[Row, ...]:
        if str(path) not in self.rows_by_file:
            found = pq.ParquetFile(path).read().to_pylist()
            rows = tuple({name: plain(value) for name, value in row.items()} for row in found)
            self.rows_by_file[str(path)] = rows
        return self.rows_by_file[str(path)]

    def results(self) -> dict[str, list[Result]]:
        """Return the rows of all tables."""
        return {
            shape.name: ordered(
                tuple(map(plain, row.values())) for row in self.node.rows(shape.name)
            )
            for shape in SHAPES
        }

    def expected(self) -> dict[str, list[Result]]:
        """Return the rows that the models expect."""
        return {shape.name: ordered(shape.model(self.batches(shape.name))) for shape in SHAPES}

    def answers(self, spark: SparkExecutor) -> dict[str, list[Result]]:
        """Return the rows of the same queries over the whole tables."""
        session = spark.running().sessions().newSession()
        session.conf.set("spark.sql.session.timeZone", "UTC")
        session.conf.set("spark.sql.shuffle.partitions", "1")
        session.udf.register("shout", shout)
        for table in (*INPUTS, "d"):
            rows = DeltaTable(self.location(table)).to_pyarrow_table()
            session.createDataFrame(rows).createOrReplaceTempView(table)
        return {
            shape.name: ordered(
                tuple(map(plain, row)) for row in session.sql(shape.select()).collect()
            )
            for shape in SHAPES
        }


def ordered(results: Any) -> list[Result]:
    return sorted(results, key=str)


def examples(*, late: bool, runs: int) -> st.SearchStrategy[Scenario]:
    return st.integers(0, 2**32).map(lambda seed: scenario(seed, late=late, runs=runs))


few = settings(
    max_examples=max(1, EXAMPLES),
    deadline=None,
    database=None,
    # A smaller seed is not a smaller scenario.
    phases=(Phase.explicit, Phase.generate) if EXAMPLES else (Phase.explicit,),
)
LATE = [scenario(seed, late=True, runs=2) for seed in LATE_SEEDS]
BATCH = scenario(BATCH_SEED, late=False, runs=1)


@contextmanager
def opened(spark: SparkExecutor, factory: pytest.TempPathFactory) -> Iterator[World]:
    """Open an empty home; an example cannot use a fixture, because all examples share it."""
    world = World(node=Node(home=factory.mktemp("home"), spark=spark))
    yield world
    world.node.catalog.close()


def event_times(played: Scenario) -> set[datetime | None]:
    commits = [*played.snapshot, *(one for run in played.runs for one in run.commits)]
    return {row[-1] for one in commits for row in one.rows}


def test_the_fixed_scenarios_contain_every_kind_of_input() -> None:
    every = [*LATE, BATCH]
    runs = [run for played in every for run in played.runs]
    times = set().union(*map(event_times, every))
    far = MIDNIGHT + timedelta(seconds=FAR_FUTURE_SECONDS)

    assert {played.options["parallelism"] for played in every} == {"1", "2"}
    assert {played.options["watermark.idle-timeout"] for played in LATE} == {"never", "1ms"}
    assert all(any(at and at >= far for at in event_times(one)) for one in (LATE[1], BATCH))
    assert None in times
    assert {frozenset(one.table for one in run.commits) for run in runs} == {
        frozenset({"a"}),
        frozenset(INPUTS),
    }
    assert {run.killed_at for run in runs} == {
        None,
        CrashPoint.TABLE_COMMITTED,
        CrashPoint.BATCH_COLLECTED,
    }


@few
@example(played=LATE[0])
@example(played=LATE[1])
@given(played=examples(late=True, runs=2))
def test_every_table_equals_a_model_of_its_recorded_plans(
    spark: SparkExecutor, tmp_path_factory: pytest.TempPathFactory, played: Scenario
) -> None:
    with opened(spark, tmp_path_factory) as world:
        world.play(played)

        rows = world.node.sql("SHOW STREAMING TABLES")

        assert world.results() == world.expected()
        late = {shape.name: late_rows(world.batches(shape.name)) for shape in SHAPES}
        assert {row["name"]: row["rows_late"] for row in rows} == late


@few
@example(played=BATCH)
@given(played=examples(late=False, runs=1))
def test_without_late_rows_the_final_tables_equal_the_answers_of_batch_queries(
    spark: SparkExecutor, tmp_path_factory: pytest.TempPathFactory, played: Scenario
) -> None:
    with opened(spark, tmp_path_factory) as world:
        world.play(played)

        world.finish()

        assert world.results() == world.expected()
        assert world.results() == world.answers(spark)
