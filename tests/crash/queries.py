"""Three streaming tables that are killed and restarted, and the rows that they must contain.

The input comes in rounds, half an hour of event time apart. Every result depends on state of
earlier rounds. No row is close to the watermark. So the result does not depend on the epochs
that the rows are read in.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.crashpoints import CrashPoint, handle_in_this_thread
from penstock.model.codec import from_text
from penstock.model.events import QueryStarted
from penstock.model.job import StreamView
from penstock.spark.worker import local_property
from penstock.streaming import query
from penstock.streaming.checkpoint import CheckpointFolder
from penstock.streaming.task import TASK, StreamTask, reader_function, write_rows
from penstock.supervisor.supervisor import RunnerReport
from tests.integration.driving import TIMEOUT_SECONDS, Crashed, rounds_until
from tests.node import Node

COUNTS, JOINED, TOTALS = "counts", "joined", "totals"
TABLES = (COUNTS, JOINED, TOTALS)

_START = datetime(2026, 1, 1, tzinfo=UTC)
_ROUND_MINUTES = 30
_WINDOW_MINUTES = 60
# The newest row of a round is at minute 4, and the delay of the watermark is 5 minutes.
_WATERMARK_LAG_MINUTES = 1
# Rows of the key "late" are far older than the watermark, from this round on.
_LATE_FROM = 4
_LATE_MINUTES = 240
_TYPES: dict[str, pa.DataType] = {
    "k": pa.string(),
    "ts": pa.timestamp("us", tz="UTC"),
    "v": pa.int64(),
}
_COLUMNS = "(k STRING, ts TIMESTAMP, v BIGINT)"
SELECTS = {
    COUNTS: (
        "SELECT window(ts, '1 hour').start AS start, count(*) AS n, sum(v) AS total "
        "FROM STREAM clicks WATERMARK ts DELAY OF INTERVAL 5 MINUTES "
        "GROUP BY window(ts, '1 hour')"
    ),
    JOINED: (
        "SELECT c.k, c.v, o.v AS order_v "
        "FROM STREAM clicks WATERMARK ts DELAY OF INTERVAL 5 MINUTES AS c "
        "LEFT JOIN STREAM orders WATERMARK ts DELAY OF INTERVAL 5 MINUTES AS o "
        "ON c.k = o.k AND o.ts BETWEEN c.ts AND c.ts + INTERVAL 1 HOUR"
    ),
    TOTALS: "SELECT k, count(*) AS n, sum(v) AS total FROM STREAM clicks GROUP BY k",
}
INPUTS = f"CREATE TABLE clicks {_COLUMNS}; CREATE TABLE orders {_COLUMNS}"

Row = dict[str, Any]
Rows = dict[str, list[Row]]


def create(table: str, select: str = "", options: Mapping[str, str] | None = None) -> str:
    """Return the statement that creates a streaming table; each epoch reads one round."""
    files = "2" if table == JOINED else "1"
    given = {"max_files_per_epoch": files, "parallelism": "2", "checkpoint.interval": "1"}
    given |= options or {}
    pairs = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    return f"CREATE STREAMING TABLE {table} WITH ({pairs}) AS {select or SELECTS[table]}"


def at(minutes: int) -> datetime:
    """Return an event time."""
    return _START + timedelta(minutes=minutes)


def append(node: Node, table: str, rows: Iterable[tuple[str, int, int]]) -> None:
    """Append rows to an input table in one file; a row is a key, minutes and a value."""
    record = node.catalog.table(table)
    assert record is not None
    data = [{"k": k, "ts": at(minutes), "v": v} for k, minutes, v in rows]
    write_deltalake(
        record.location, pa.Table.from_pylist(data, schema=pa.schema(_TYPES)), mode="append"
    )


def write_no_statistics(node: Node, table: str) -> None:
    """Write later files of a table without statistics about event times."""
    record = node.catalog.table(table)
    assert record is not None
    properties = {"delta.dataSkippingNumIndexedCols": "0"}
    DeltaTable(record.location).alter.set_table_properties(properties)


def append_rounds(node: Node, *numbers: int) -> None:
    """Append the rows of rounds to both input tables."""
    for number in numbers:
        append(node, "clicks", clicks(number))
        append(node, "orders", orders(number))


def clicks(number: int) -> list[tuple[str, int, int]]:
    """Return the clicks of a round."""
    base = number * _ROUND_MINUTES
    late = [("late", base - _LATE_MINUTES, number)] if number >= _LATE_FROM else []
    return [("a", base, number), ("b", base + 2, number), ("c", base + 4, number), *late]


def orders(number: int) -> list[tuple[str, int, int]]:
    """Return the orders of a round; they also match clicks of the round before."""
    base = number * _ROUND_MINUTES
    return [("a", base + 3, 100 + number), ("b", base + 4, 100 + number)]


def expected(*, rounds: int) -> Rows:
    """Return the rows of all streaming tables after a number of rounds, computed in Python."""
    every = [row for number in range(rounds) for row in clicks(number)]
    in_time = [row for row in every if row[0] != "late"]
    watermark = (rounds - 1) * _ROUND_MINUTES - _WATERMARK_LAG_MINUTES
    return {
        COUNTS: in_order(_counted(in_time, watermark)),
        JOINED: in_order(
            _joined(in_time, [row for n in range(rounds) for row in orders(n)], watermark)
        ),
        TOTALS: in_order(_totals(every)),
    }


def _counted(rows: Sequence[tuple[str, int, int]], watermark: int) -> list[Row]:
    values: dict[int, list[int]] = {}
    for _, minutes, value in rows:
        values.setdefault(minutes - minutes % _WINDOW_MINUTES, []).append(value)
    return [
        {"start": at(start), "n": len(own), "total": sum(own)}
        for start, own in values.items()
        if start + _WINDOW_MINUTES <= watermark
    ]


def _joined(
    left: Sequence[tuple[str, int, int]],
    right: Sequence[tuple[str, int, int]],
    watermark: int,
) -> list[Row]:
    rows: list[Row] = []
    for key, minutes, value in left:
        matches = [v for k, m, v in right if k == key and minutes <= m <= minutes + 60]
        if not matches and minutes + 60 < watermark:
            rows.append({"k": key, "v": value, "order_v": None})
        rows += [{"k": key, "v": value, "order_v": match} for match in matches]
    return rows


def _totals(rows: Sequence[tuple[str, int, int]]) -> list[Row]:
    values: dict[str, list[int]] = {}
    for key, _, value in rows:
        values.setdefault(key, []).append(value)
    return [{"k": key, "n": len(own), "total": sum(own)} for key, own in values.items()]


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Return rows in the order of ``Node.rows``."""
    return sorted(rows, key=lambda row: json.dumps(row, default=str))


def results(node: Node, tables: Iterable[str] = TABLES) -> Rows:
    """Return the rows of the streaming tables."""
    return {table: node.rows(table) for table in tables}


@dataclass(frozen=True, kw_only=True)
class Durable:
    """Everything of a streaming table that survives its process."""

    table_version: int
    events: int
    commits: frozenset[str]
    plans: frozenset[str]


def durable(node: Node, table: str) -> Durable:
    """Return everything of a streaming table that survives its process."""
    assert node.tables is not None
    state = node.job(table)
    folder = checkpoint(node, table).path
    return Durable(
        table_version=node.tables.open(state.definition.table.location).version,
        events=len(node.catalog.events(state.id)),
        commits=_names(folder / "spark/commits"),
        plans=_names(folder / "plans"),
    )


def _names(folder: Path) -> frozenset[str]:
    return frozenset(path.name for path in folder.glob("[0-9]*"))


def checkpoint(node: Node, table: str) -> CheckpointFolder:
    """Return the checkpoint of a streaming table."""
    state = node.job(table)
    assert state.definition.streaming is not None
    path = node.checkpoints / state.id / state.definition.streaming.checkpoint_id
    return CheckpointFolder(path)


def verdicts(node: Node, table: str) -> list[str]:
    """Return how the query of a streaming table was started each time."""
    bodies = (event.body for event in node.catalog.events(node.job(table).id))
    return [body.verdict for body in bodies if isinstance(body, QueryStarted)]


@dataclass
class _Killing:
    """Ends the thread of each runner where its process would be killed."""

    node: Node
    # The streaming tables to kill; the others run until they are caught up.
    tables: tuple[str, ...]
    point: CrashPoint
    count: int
    # The durable parts at the end of each thread, by name.
    killed: dict[str, Durable] = field(default_factory=dict)
    _threads: dict[str, threading.Thread] = field(default_factory=dict)

    def start(self, run: Callable[[], None], name: str) -> threading.Thread:
        """Start the thread of a runner; a killed runner is not started again."""
        jobs = self.node.catalog.jobs()
        job = next(job for job in jobs if name == f"runner-{job.id[:8]}").name
        if job in self.killed:
            return self._threads[job]
        self._threads[job] = threading.Thread(target=self._run, args=(run, job), name=name)
        self._threads[job].start()
        return self._threads[job]

    def _run(self, run: Callable[[], None], job: str) -> None:
        left = self.count

        def die(point: CrashPoint) -> None:
            nonlocal left
            left -= point is self.point
            if left == 0:
                self.killed[job] = durable(self.node, job)
                raise Crashed

        if job in self.tables:
            handle_in_this_thread(die)
        with suppress(Crashed):
            run()

    def done(self, reports: tuple[RunnerReport, ...]) -> bool:
        """Return whether all runners were killed or are caught up."""
        running = any(thread.is_alive() for thread in self._threads.values())
        ended = all(r.caught_up or r.state.name in self.killed for r in reports)
        return ended and not running


def kill_at(
    node: Node,
    point: CrashPoint,
    *,
    count: int = 1,
    tables: tuple[str, ...] = TABLES,
    all_reach: bool = True,
) -> Node:
    """Run until each streaming table is killed at a crash point; return the opened home.

    Only without ``all_reach``, tables that never reach the point are caught up instead.
    Nothing is stored after the kill, with one exception. A batch that was returned to Spark is
    still committed to the checkpoint. A JVM that survives its driver does the same.
    """
    killing = _Killing(node, tables, point, count)
    supervisor = node.supervisor(start_runner=killing.start)
    supervisor.start(sole_process=True)
    try:
        rounds_until(supervisor, killing.done)
    finally:
        supervisor.stop()
    missed = set(tables) - set(killing.killed)
    assert not missed or (not all_reach and killing.killed), f"not all tables reached {point}"
    for table, before in killing.killed.items():
        after = durable(node, table)
        if point is CrashPoint.BATCH_RETURNED:
            after = replace(after, commits=before.commits)
        assert after == before
    return node.restart()


@contextmanager
def killed_workers(point: CrashPoint, killed: Path) -> Iterator[None]:
    """Kill one Python worker of Spark for each streaming table, when it reaches a crash point.

    Each kill creates a file in a folder, with the id of the job as its name.
    """

    # Nested functions are pickled by value, so the workers do not import this module.
    def deadly(work: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
        def run(batches: Any) -> Iterator[Any]:
            handle_in_this_thread(die)
            try:
                yield from work(batches)
            finally:
                # Other queries use the same worker.
                handle_in_this_thread(None)

        def die(reached: CrashPoint) -> None:
            task = from_text(StreamTask, local_property(TASK) or "")
            mark = killed / Path(task.output.rejects_root).name
            if reached == point and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        run.__name__ = work.__name__
        return run

    def deadly_reader(checkpoint: str, view: StreamView) -> Callable[[Any], Iterator[Any]]:
        return deadly(reader_function(checkpoint, view))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{query.__name__}.reader_function", deadly_reader)
        patch.setattr(f"{query.__name__}.write_rows", deadly(write_rows))
        yield


@dataclass
class PowerLoss:
    """Loses files of Spark that were not synced to the disk, as a power loss does."""

    synced: set[Path] = field(default_factory=set)

    @contextmanager
    def recording(self) -> "Iterator[PowerLoss]":
        """Record the files that are synced."""
        settle = CheckpointFolder.settle

        def recorded(folder: CheckpointFolder, batch: int) -> tuple[str, ...]:
            files = settle(folder, batch)
            self.synced.update(map(Path, files))
            return files

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CheckpointFolder, "settle", recorded)
            yield self

    def lose(
        self, node: Node, *, below: Sequence[str], damage: Callable[[Path], None]
    ) -> list[str]:
        """Damage all files below some folders of the checkpoints that were not synced."""
        lost: list[str] = []
        for table in TABLES:
            folder = checkpoint(node, table).path
            for name in below:
                paths = [path for path in (folder / name).rglob("*") if path.is_file()]
                for path in [path for path in paths if path not in self.synced]:
                    damage(path)
                    lost.append(str(path.relative_to(folder)))
        return lost


def truncate(path: Path) -> None:
    """Keep the first half of a file."""
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    """Keep nothing of a file but its name."""
    os.truncate(path, 0)


@dataclass
class Prepared:
    """A home that is put back, with its own path, to the state in which it was stored."""

    home: Path
    copy: Path
    # The files of Spark that were synced.
    synced: frozenset[Path]

    @classmethod
    def of(cls, node: Node, copy: Path, *, synced: Iterable[Path] = ()) -> "Prepared":
        """Store the home of a node, and close the node."""
        node.catalog.close()
        shutil.copytree(node.home, copy)
        return cls(node.home, copy, frozenset(synced))

    def put_back(self, **parts: Any) -> Node:
        """Put the home back, and open it."""
        shutil.rmtree(self.home)
        shutil.copytree(self.copy, self.home)
        return Node(self.home, **parts)


_IN_OPEN = 0x20
_EVENT_BYTES_MAX = 4096


@dataclass(frozen=True)
class Opens:
    """Reports every time that a process opens a file."""

    descriptor: int

    def wait(self) -> None:
        """Wait until the file is opened once more."""
        ready, _, _ = select.select([self.descriptor], [], [], TIMEOUT_SECONDS)
        assert ready, "the file was not opened"
        os.read(self.descriptor, _EVENT_BYTES_MAX)


@contextmanager
def opens_of(path: Path) -> Iterator[Opens]:
    """Watch a file."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init()
    try:
        assert libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_OPEN) >= 0
        yield Opens(descriptor)
    finally:
        os.close(descriptor)
