"""Run tasks on Spark: the tasks reach the workers by file, their answers come back as text.

Nothing but a path and the name of a function travels in the closure, because Spark writes
closures and broadcasts to disk in the clear.
"""

import json
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import structlog

from penstock.errors import Code, ExternalError, PenstockError, StoppedError
from penstock.model.job import SparkQuery
from penstock.model.query import Lookup, QueryRun, QueryText
from penstock.spark.job_session import Halves, JobSession
from penstock.spark.plan_check import analyse
from penstock.spark.session import Spark, SparkOptions, cause_of, start_spark
from penstock.spark.sql_errors import explained
from penstock.spark.table_query import SelectPlace, select_tables
from penstock.spark.worker import freeze_once
from penstock.tables.scan import TableScan

log = structlog.get_logger()

Work = Callable[[str, str], str]


class SparkExecutor:
    """Spark, started when the first task needs it."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._spark: Spark | None = None
        self._cancelled: set[str] = set()
        self._sessions: dict[str, JobSession] = {}

    @property
    def ready(self) -> bool:
        """Whether Spark runs already."""
        return self._spark is not None

    @property
    def parallelism(self) -> int:
        """How many tasks run at the same time."""
        return self._running().parallelism

    def run(self, tasks: Sequence[str], *, work: Work, group: str) -> list[str]:
        """Run every task as one Spark task and answer their results in order."""
        spark = self._running()
        self._cancelled.discard(group)
        path = self._options.scratch / f"tasks-{uuid.uuid4().hex}.jsonl"
        try:
            path.write_text("\n".join(json.dumps(task) for task in tasks), "ascii")
            spark.context.setJobGroup(group, group)
            spark.context.setLocalProperty("spark.scheduler.pool", group)
            numbers = spark.context.parallelize(range(len(tasks)), len(tasks))
            answers = numbers.mapPartitions(partial(_run_tasks, str(path), work)).collect()
        except Exception as error:
            self._forget_if_dead(spark)
            raise self._wrapped(error, group) from error
        finally:
            path.unlink(missing_ok=True)
        return [str(answer) for answer in answers]

    def run_query(
        self, tasks: Sequence[str], *, run: QueryRun, halves: Halves, group: str
    ) -> list[str]:
        """Run a SELECT over the shares of the tasks and answer the writers' results."""
        spark = self._running()
        self._cancelled.discard(group)
        try:
            spark.context.setJobGroup(group, group)
            spark.context.setLocalProperty("spark.scheduler.pool", group)
            session = self._job_session(spark, run, halves=halves, group=group)
            return session.answers(run, tasks)
        except PenstockError:
            raise
        except Exception as error:
            self._forget_if_dead(spark)
            if group in self._cancelled:
                raise StoppedError("the Spark job was cancelled") from error
            raise explained(error, log_file=self._options.log_file) from error

    def analyse(self, query: QueryText, *, find_lookup: Callable[[str], Lookup]) -> SparkQuery:
        """Find out what Spark makes of a SELECT."""
        spark = self._running()
        return analyse(
            spark.sessions(), query, find_lookup=find_lookup, log_file=self._options.log_file
        )

    def select(
        self,
        text: str,
        *,
        scans: Mapping[str, TableScan],
        find_scan: Callable[[str], TableScan],
    ) -> "pa.Table":
        """Answer the rows of a SELECT over tables."""
        spark = self._running()
        folder = self._options.scratch / f"select-{uuid.uuid4().hex}"
        place = SelectPlace(
            root=spark.sessions(),
            folder=folder,
            tasks=spark.parallelism,
            log_file=self._options.log_file,
        )
        try:
            return select_tables(text, scans=scans, find_scan=find_scan, place=place)
        except ExternalError:
            self._forget_if_dead(spark)
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _job_session(
        self, spark: Spark, run: QueryRun, *, halves: Halves, group: str
    ) -> JobSession:
        with self._lock:
            session = self._sessions.get(group)
        if session is None or not session.serves(run):
            folder = self._options.scratch / f"job-{group}-{uuid.uuid4().hex[:8]}"
            session = JobSession(spark.sessions(), run, folder=folder, halves=halves)
            with self._lock:
                self._sessions[group] = session
        return session

    def cancel(self, group: str) -> None:
        """Stop what runs under the group."""
        self._cancelled.add(group)
        spark = self._spark
        if spark is not None and spark.alive:
            try:
                spark.context.cancelJobGroup(group)
            except Exception as error:  # noqa: BLE001 - A Spark that is ending needs no cancel.
                log.warning("cancel failed", group=group, reason=cause_of(error))

    def stop(self) -> None:
        """Stop Spark, if it was started."""
        with self._lock:
            spark, self._spark = self._spark, None
            self._sessions.clear()
            if spark is not None:
                spark.stop()

    def _running(self) -> Spark:
        with self._lock:
            if self._spark is None:
                self._spark = start_spark(self._options)
            return self._spark

    def _forget_if_dead(self, spark: Spark) -> None:
        """Let the next run start another Spark when the JVM of this one has ended."""
        with self._lock:
            if self._spark is spark and not spark.alive:
                self._spark = None
                self._sessions.clear()
                spark.stop()

    def _wrapped(self, error: Exception, group: str) -> Exception:
        if group in self._cancelled:
            return StoppedError("the Spark job was cancelled")
        return ExternalError(
            f"Spark could not run the epoch: {cause_of(error)}",
            code=Code.SPARK_ERR,
            hint=f"See {self._options.log_file}.",
        )


def _run_tasks(path: str, work: Work, numbers: Iterator[int]) -> Iterator[str]:
    from pyspark import TaskContext

    context = TaskContext.get()
    try_id = str(context.taskAttemptId()) if context else "0"
    tasks = Path(path).read_text("ascii").split("\n")
    for number in numbers:
        yield work(json.loads(tasks[number]), try_id)
    freeze_once()
