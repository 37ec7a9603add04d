"""The Spark query of a streaming table: its session, its views, and the running query.

Spark's source is a clock with one row for each reader task. So the plans of Penstock, and not
Spark, decide what a batch reads. Every view with an event time has a watermark with a fixed
delay, and a marker row. The marker row sets Spark's watermark.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

from penstock.errors import Code, ExternalError, PenstockError, StoppedError
from penstock.model.job import StreamView
from penstock.model.query import output_name
from penstock.model.schema import Column, columns_sql
from penstock.spark.job_session import (
    Frame,
    Session,
    name_view,
    open_session,
    register_functions,
    select_frame,
)
from penstock.spark.plan_check import Node, children
from penstock.spark.session import Spark
from penstock.spark.sql_errors import error_in_query
from penstock.streaming.checkpoint import BATCHES_RETAINED, CheckpointFolder
from penstock.streaming.gate import Gate
from penstock.streaming.task import TASK, lookup_function, reader_function, write_rows
from penstock.streaming.watermark import SPARK_DELAY, row_filter

_STREAMING = "spark.sql.streaming"
_STATE = f"{_STREAMING}.stateStore"
_CLASSES = "org.apache.spark.sql.execution.streaming"
_STATE_MEMORY_MB = 256
_STATE_ROWS, _STATE_BYTES = "numTotalStateRows", "stateMemory"
# Spark checks this often whether the query has ended while the loop waits for a batch.
_POLL_SECONDS = 0.5
_END_SECONDS_MAX = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySettings:
    """The settings of the session of a streaming query."""

    parallelism: int
    time_zone: str = "UTC"
    python_udfs: str = ""
    state_memory_mb: int = _STATE_MEMORY_MB
    # The frozen settings of an existing checkpoint.
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def frozen(self) -> dict[str, str]:
        """The settings that must not change while a checkpoint exists."""
        return {
            "spark.sql.shuffle.partitions": str(self.parallelism),
            f"{_STATE}.providerClass": f"{_CLASSES}.state.RocksDBStateStoreProvider",
            f"{_STATE}.checkpointFormatVersion": "2",
            f"{_STREAMING}.join.stateFormatVersion": "4",
            f"{_STREAMING}.aggregation.stateFormatVersion": "2",
        }

    @property
    def conf(self) -> dict[str, str]:
        """All settings."""
        return {
            **self.frozen,
            "spark.sql.session.timeZone": self.time_zone,
            "spark.sql.ansi.enabled": "true",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.autoBroadcastJoinThreshold": "-1",
            # Without code generation, a join with an empty table would not read the stream.
            "spark.sql.codegen.maxFields": "100000",
            f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
            f"{_STATE}.rocksdb.boundedMemoryUsage": "true",
            f"{_STATE}.rocksdb.maxMemoryUsageMB": str(self.state_memory_mb),
            f"{_STATE}.rocksdb.trackTotalNumberOfRows": "true",
            # The default manager starts a process for each file.
            f"{_STREAMING}.checkpointFileManagerClass": (
                f"{_CLASSES}.checkpointing.FileSystemBasedCheckpointFileManager"
            ),
            f"{_STREAMING}.checkpoint.fileChecksum.enabled": "false",
            f"{_STREAMING}.noDataMicroBatches.enabled": "false",
            f"{_STREAMING}.minBatchesToRetain": str(BATCHES_RETAINED),
            **self.overrides,
        }


class StreamSession:
    """The session of one streaming query, with a view for each STREAM and static table."""

    def __init__(self, root: Session, settings: QuerySettings, *, checkpoint: Path) -> None:
        self.session = open_session(root, settings.conf)
        self._parallelism = settings.parallelism
        self._checkpoint = str(checkpoint)
        register_functions(self.session, settings.python_udfs)
        _write_no_checksums(self.session, checkpoint)

    def add_stream(self, view: StreamView) -> None:
        """Register a streamed table as a view."""
        clock = self.session.readStream.format("rate-micro-batch").options(
            rowsPerBatch=self._parallelism, numPartitions=self._parallelism, startTimestamp=0
        )
        read = reader_function(self._checkpoint, view)
        frame = clock.load().mapInArrow(read, _ddl(view.columns))
        if view.event_time is not None:
            frame = frame.withWatermark(quoted(view.event_time), SPARK_DELAY)
            frame = frame.where(row_filter(view.event_time))
        name_view(frame, view.view)

    def add_lookup(self, name: str, columns: tuple[Column, ...]) -> None:
        """Register a static table as a view that Spark broadcasts."""
        read = lookup_function(self._checkpoint, name)
        frame = self.session.range(0, 1, 1, 1).mapInArrow(read, _ddl(columns))
        name_view(frame.hint("broadcast"), name)

    def select(self, text: str) -> Frame:
        """Return the frame of a query."""
        return select_frame(self.session, text)


def quoted(name: str) -> str:
    """Quote a column name for Spark's functions."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def _ddl(columns: Sequence[Column]) -> str:
    # All columns are nullable, because a marker row has only the event time.
    return columns_sql(tuple(Column(name=c.name, type=c.type) for c in columns))


def _write_no_checksums(session: Session, checkpoint: Path) -> None:
    """Disable the checksum files of Hadoop's local file system."""
    jvm = session.sparkContext._jvm  # noqa: SLF001 - There is no public API.
    path = jvm.org.apache.hadoop.fs.Path(checkpoint.as_uri())
    system = path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())  # noqa: SLF001
    system.setWriteChecksum(False)


class RunningQuery:
    """A query that Spark runs batch by batch, at the pace of the loop."""

    def __init__(
        self,
        frame: Frame,
        *,
        mode: str,
        folder: CheckpointFolder,
        explain: Callable[[Exception], PenstockError],
    ) -> None:
        self._context = frame.sparkSession.sparkContext
        self._gate: Gate[str, list[str]] = Gate()
        self._explain = explain
        self._cancelled = threading.Event()
        numbered = frame.toDF(*(output_name(at) for at in range(len(frame.columns))))
        # None after the query has ended. Otherwise the query and its callback would keep each
        # other alive across the two garbage collectors. They would also keep all objects of
        # Spark alive.
        self._query: Any = (
            numbered.mapInArrow(write_rows, "result STRING")
            .writeStream.outputMode(mode)
            .option("checkpointLocation", str(folder.spark))
            .foreachBatch(self._visit)
            .start()
        )
        self._run_id = str(self._query.runId)
        # The paths to the operators with state in a batch's plan; None before the first batch.
        self._stateful: list[tuple[int, ...]] | None = None

    def _visit(self, frame: Frame, batch: int) -> None:
        self._gate.visit(batch, lambda task: self._collect(frame, task))

    def _collect(self, frame: Frame, task: str) -> list[str]:
        """Run the tasks of a batch; the query's thread in Spark calls this method."""
        try:
            self._context.setLocalProperty(TASK, task)
            return [str(row[0]) for row in frame.collect()]
        except Exception as error:
            if self._cancelled.is_set():
                raise StoppedError("the Spark job was cancelled") from error
            raise self._explain(error) from error

    def opened(self, stop: threading.Event) -> int:
        """Wait until Spark has opened a batch; return its number."""
        while not stop.is_set() and not self._cancelled.is_set():
            batch = self._gate.opened(seconds_max=_POLL_SECONDS)
            if batch is not None:
                return batch
            self._require_active()
        raise StoppedError("the runner was stopped before the batch was opened")

    def _require_active(self) -> None:
        error: Exception | None
        try:
            if self._query.isActive:
                return
            error = self._query.exception()
        except Exception as lost:  # noqa: BLE001 - py4j raises errors of several kinds.
            error = lost
        raise self._explain(error_in_query(error or RuntimeError("the query has ended")))

    def run(self, task: str) -> list[str]:
        """Run the open batch and return the results of its writers."""
        return self._gate.run(task)

    def finish(self) -> None:
        """Allow Spark to commit the batch to its checkpoint."""
        self._gate.finish()

    def cancel(self) -> None:
        """Cancel the running tasks; other threads call this."""
        self._cancelled.set()
        # A JVM that has ended has no jobs.
        with suppress(Exception):
            self._context.cancelJobGroup(self._run_id)

    def state_totals(self) -> tuple[int, int]:
        """Return the rows and bytes of the state after the batch that was run last."""
        rows = size_bytes = 0
        # The progress of a query is reported after the batch was finished, which is too late.
        plan = self._query._jsq.streamingQuery().lastExecution().executedPlan()  # noqa: SLF001
        # The plans of all batches have the same shape. A search costs many calls of the JVM.
        if self._stateful is None:
            self._stateful = [*_paths_to_state(plan)]
        for path in self._stateful:
            metrics = reduce(lambda node, at: node.children().apply(at), path, plan).metrics()
            rows += int(metrics.apply(_STATE_ROWS).value())
            size_bytes += int(metrics.apply(_STATE_BYTES).value())
        return rows, size_bytes

    def stop(self) -> None:
        """End the query, and wait for its end."""
        # ``stop`` of Spark would wait for the callback, which waits at the gate.
        self._gate.abandon(StoppedError("the query was stopped"))
        query, self._query = self._query, None
        with suppress(Exception):
            query.awaitTermination(_END_SECONDS_MAX)
        with suppress(Exception):
            query.stop()


def _paths_to_state(plan: Node, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Yield the path to each operator with state: the index of the child at each level."""
    if plan.metrics().contains(_STATE_ROWS):
        yield path
    for at, child in enumerate(children(plan)):
        yield from _paths_to_state(child, (*path, at))


class OwnerLock:
    """The lock of a job's checkpoints, held by the JVM.

    The JVM of a killed driver can run for a short time, and can still write to the checkpoint.
    """

    def __init__(self, spark: Spark, path: Path) -> None:
        self.spark = spark
        self._path = path
        self._file: Any = None

    def acquire(self) -> bool:
        """Lock the file; return False if another process holds the lock."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        jvm = self.spark.context._jvm  # noqa: SLF001 - There is no public API.
        file = jvm.java.io.RandomAccessFile(str(self._path), "rw")
        if file.getChannel().tryLock() is None:
            file.close()
            return False
        self._file = file
        return True

    def release(self) -> None:
        """Release the lock, unless it is not held or its JVM has ended."""
        if self._file is not None:
            with suppress(Exception):
                self._file.close()
            self._file = None


def checkpoint_in_use(path: Path) -> ExternalError:
    """Return the error for a checkpoint that another process still uses."""
    return ExternalError(
        f'checkpoint "{path}" is in use by another process',
        code=Code.STATE_ERR,
        hint="Wait for the other process, or end it.",
    )
