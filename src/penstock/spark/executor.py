"""Run tasks on Spark. Tasks and their results are texts, sent with the Spark job."""

import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
import structlog

from penstock.errors import Code, ExternalError, PenstockError, StoppedError
from penstock.model.job import SparkQuery
from penstock.model.query import Lookup, QueryRun, QueryText
from penstock.spark.job_session import Halves, JobSession, analyse
from penstock.spark.session import Spark, SparkOptions, cause_of, start_spark
from penstock.spark.sql_errors import convert_job_error
from penstock.spark.worker import Work, run_tasks
from penstock.tables.scan import TableScan

log = structlog.get_logger()


class SparkExecutor:
    """An executor on Spark; the first task starts Spark."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._spark: Spark | None = None
        self._cancelled: set[str] = set()
        self._sessions: dict[str, JobSession] = {}

    @property
    def ready(self) -> bool:
        """Whether Spark is running."""
        return self._spark is not None

    @property
    def parallelism(self) -> int:
        """The number of tasks that run at the same time."""
        return self.running().parallelism

    def running(self) -> Spark:
        """Return Spark; start it if it is not running."""
        with self._lock:
            if self._spark is None:
                self._spark = start_spark(self._options)
            return self._spark

    def convert_error(self, error: Exception) -> PenstockError:
        """Convert an error of a query; discard Spark if its JVM has ended."""
        spark = self._spark
        if spark is not None:
            self._discard_if_dead(spark)
        if isinstance(error, PenstockError):
            return error
        return convert_job_error(error, log_file=self._options.log_file)

    def run(self, tasks: Sequence[str], *, work: Work, group: str) -> list[str]:
        """Run every task as one Spark task and return their results in order."""
        with self._group(group, self._failed) as spark:
            rows = spark.context.parallelize(tasks, len(tasks))
            return [str(a) for a in rows.mapPartitions(partial(run_tasks, work)).collect()]

    def run_query(
        self, tasks: Sequence[str], *, run: QueryRun, halves: Halves, group: str
    ) -> list[str]:
        """Run a SELECT over the tasks and return the results of their writing halves."""
        explain = partial(convert_job_error, log_file=self._options.log_file)
        with self._group(group, explain) as spark:
            session = self._sessions.get(group)
            if session is None or session.query != run.query:
                session = JobSession(spark.sessions(), run.query, halves=halves)
                self._sessions[group] = session
            return session.run(run, tasks)

    def analyse(self, query: QueryText, *, find_lookup: Callable[[str], Lookup]) -> SparkQuery:
        """Check a job's SELECT and return its properties."""
        spark = self.running()
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
        """Return the rows of a SELECT over tables."""
        from penstock.spark.table_query import SelectPlace, select_tables

        spark = self.running()
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
            self._discard_if_dead(spark)
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _group(
        self, group: str, explain: Callable[[Exception], PenstockError]
    ) -> Iterator[Spark]:
        """Assign the Spark jobs of this thread to a group and convert their errors."""
        spark = self.running()
        try:
            self._cancelled.discard(group)
            spark.context.setJobGroup(group, group)
            yield spark
        except PenstockError:
            raise
        except Exception as error:
            self._discard_if_dead(spark)
            if group in self._cancelled:
                raise StoppedError("the Spark job was cancelled") from error
            raise explain(error) from error

    def cancel(self, group: str) -> None:
        """Cancel the Spark jobs of a group."""
        self._cancelled.add(group)
        spark = self._spark
        if spark is not None and spark.alive:
            try:
                spark.context.cancelJobGroup(group)
            except Exception as error:  # noqa: BLE001 - A stopping Spark needs no cancel.
                log.warning("cancel failed", group=group, reason=cause_of(error))

    def stop(self) -> None:
        """Stop Spark if it is running."""
        with self._lock:
            spark, self._spark = self._spark, None
            self._sessions.clear()
            if spark is not None:
                spark.stop()

    def _discard_if_dead(self, spark: Spark) -> None:
        """Discard Spark if its JVM has ended, so that the next run starts it again."""
        with self._lock:
            if self._spark is spark and not spark.alive:
                self._spark = None
                self._sessions.clear()
                spark.stop()

    def _failed(self, error: Exception) -> ExternalError:
        return ExternalError(
            f"Spark could not run the epoch: {cause_of(error)}",
            code=Code.SPARK_ERR,
            hint=f"See {self._options.log_file}.",
        )
