"""Build all objects from the settings and connect them."""

import os
import re
import shutil
import socket
import tempfile
import threading
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.catalog.catalog import Catalog, open_catalog
from penstock.clock import SystemClock
from penstock.control.execute import Services
from penstock.errors import Code, ExternalError
from penstock.logs import configure_logging, log_files
from penstock.secrets.vault import Vault
from penstock.settings.settings import KEY_FILE, Settings
from penstock.sources.registry import Sources

if TYPE_CHECKING:
    from penstock.engine.run import Executor
    from penstock.epochs.progress import ProgressReporter
    from penstock.epochs.runner import LoopParts
    from penstock.model.job import JobState
    from penstock.spark.executor import SparkExecutor
    from penstock.storage.options import StoreOptions
    from penstock.streaming.analysis import StreamAnalyzer
    from penstock.supervisor.loop import RunnerKind
    from penstock.supervisor.supervisor import Supervisor
    from penstock.tables.delta import DeltaTables


def _silent(line: str) -> None:
    """Print nothing."""


class App:
    """One process of Penstock with one home."""

    def __init__(
        self,
        settings: Settings,
        *,
        command: str = "sql",
        notify: Callable[[str], None] = _silent,
    ) -> None:
        self.settings = settings
        self._notify = notify
        self.clock = SystemClock()
        self.logs = log_files(settings.home, command=command, at=self.clock.now())
        self._spark: SparkExecutor | None = None
        self._scratch = Path()
        self._logging = False
        _create_folder(settings.home)
        self.catalog: Catalog = open_catalog(settings.catalog_url, clock=self.clock)
        self.vault = Vault(self.catalog, key_file=settings.home / KEY_FILE)
        self.sources = Sources(
            catalog=self.catalog, vault=self.vault, clock=self.clock, open_tables=self._tables
        )
        self.node_id = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"

    def log(self, *, verbose: bool = False) -> None:
        """Start to write log files, unless this process already does."""
        if not self._logging:
            self._logging = True
            configure_logging(self.logs, verbose=verbose)

    def services(self) -> Services:
        """Return the services with which statements are executed."""
        return Services(
            catalog=self.catalog,
            open_tables=self._tables,
            open_analyzer=self._analyzer,
            clock=self.clock,
            vault=self.vault,
            sources=self.sources,
            tasks_max=local_tasks(self.settings.spark_master),
            warehouse_secret=self.settings.warehouse_secret,
            open_stream_analyzer=self._stream_analyzer,
            delete_checkpoints=self._delete_checkpoints,
        )

    def supervisor(
        self, *, only: frozenset[str], until_caught_up: bool
    ) -> tuple["Supervisor", Callable[[], None]]:
        """Return this node's supervisor, and a function that stops the supervisor and Spark."""
        from penstock.spark.session import remove_stale_files
        from penstock.supervisor.leases import HomeLock
        from penstock.supervisor.runner import SupervisorParts
        from penstock.supervisor.supervisor import Supervisor

        self.log()
        home = self.settings.home
        executor = self.executor()

        def upstream_works(state: "JobState") -> bool:
            return supervisor.upstream_works(state)

        loop = self._loop_parts(upstream_works)
        supervisor = Supervisor(
            parts=SupervisorParts(
                catalog=self.catalog,
                clock=self.clock,
                node_id=self.node_id,
                start_thread=_start_thread,
                runners={
                    "load": self._load_runner(executor, loop),
                    "query": self._query_runner(executor, loop),
                },
                capabilities=_capabilities(),
            ),
            only=only,
            until_caught_up=until_caught_up,
        )
        lock = HomeLock(home / "lock")
        # The lock covers only this home. Processes of other homes may use the same external
        # catalog.
        own_catalog = self.settings.catalog is None
        sole = lock.acquire()
        if sole:
            remove_stale_files(home / "tmp")
        supervisor.start(sole_process=sole and own_catalog)

        # Every step runs even if an earlier step fails.
        end = ExitStack()
        end.callback(lock.release)
        end.callback(executor.stop)
        end.callback(supervisor.stop)
        return supervisor, end.close

    def executor(self) -> "SparkExecutor":
        """Return the executor of the jobs' tasks; the first task starts Spark."""
        from penstock.spark.executor import SparkExecutor
        from penstock.spark.session import SparkOptions

        return SparkExecutor(
            SparkOptions(
                master=self.settings.spark_master,
                scratch=self.settings.home / "tmp",
                log_file=self.logs.spark,
                computing=any(
                    job.definition.query or job.definition.streaming
                    for job in self.catalog.jobs()
                ),
                conf=self.settings.spark_conf,
            )
        )

    def _load_runner(self, executor: "Executor", loop: "LoopParts") -> "RunnerKind":
        from penstock.engine.loop import LoadParts, open_load_loop
        from penstock.epochs.task import run_task_text
        from penstock.supervisor.loop import RunnerKind

        parts = LoadParts(loop=loop, executor=executor, work=run_task_text)
        return RunnerKind(
            open_loop=lambda job_id, reporter: open_load_loop(
                job_id, parts=parts, reporter=reporter
            ),
            caught_up=self.sources.is_caught_up,
        )

    def _query_runner(self, executor: "SparkExecutor", loop: "LoopParts") -> "RunnerKind":
        from penstock.supervisor.loop import Loop, RunnerKind

        def open_loop(job_id: str, reporter: "ProgressReporter") -> Loop:
            from penstock.streaming.runner import QueryParts, open_query_loop

            parts = QueryParts(
                loop=loop,
                executor=executor,
                checkpoints=self.settings.checkpoints_folder,
                state_memory_mb=self.settings.state_memory_mb,
            )
            return open_query_loop(job_id, parts=parts, reporter=reporter)

        return RunnerKind(open_loop=open_loop, caught_up=self.sources.is_query_caught_up)

    def _loop_parts(self, upstream_works: Callable[["JobState"], bool]) -> "LoopParts":
        """Return the dependencies of all jobs."""
        from penstock.epochs.runner import LoopParts

        return LoopParts(
            catalog=self.catalog,
            tables=self._tables(),
            clock=self.clock,
            open_source=self.sources.open,
            node_id=self.node_id,
            upstream_works=upstream_works,
        )

    def close(self) -> None:
        """Close the catalog, and stop the Spark of statements if it was started."""
        if self._spark is not None:
            self._spark.stop()
            shutil.rmtree(self._scratch, ignore_errors=True)
        self.catalog.close()

    def _analyzer(self) -> "SparkExecutor":
        """Return the Spark for statements, which is separate from the Spark of a run."""
        from penstock.spark.executor import SparkExecutor
        from penstock.spark.session import SparkOptions

        if self._spark is None:
            self._notify("starting Spark …")
            self.log()
            self._scratch = Path(tempfile.mkdtemp(prefix="penstock-sql-"))
            self._spark = SparkExecutor(
                SparkOptions(
                    master=self.settings.spark_master,
                    scratch=self._scratch,
                    log_file=self.logs.spark,
                    conf=self.settings.spark_conf,
                )
            )
        return self._spark

    def _stream_analyzer(self) -> "StreamAnalyzer":
        from penstock.streaming.analysis import StreamAnalyzer

        return StreamAnalyzer(self._analyzer(), scratch=self._scratch / "trials")

    def _delete_checkpoints(self, job_id: str) -> None:
        from penstock.streaming.checkpoint import delete_unused

        delete_unused(self.settings.checkpoints_folder / job_id)

    def check_warehouse(self) -> str:
        """Probe the warehouse and return the result as text."""
        return self._tables().probe()

    def _tables(self) -> "DeltaTables":
        return open_warehouse(
            self.settings.warehouse_location,
            secret=self.settings.warehouse_secret,
            vault=self.vault,
        )


def open_warehouse(location: str, *, secret: str, vault: Vault) -> "DeltaTables":
    """Return the tables of a warehouse, without sending a request."""
    from penstock.storage.options import seal
    from penstock.tables.delta import DeltaTables

    return DeltaTables(
        location,
        options=partial(_bucket_options, secret, vault),
        seal=lambda options: seal(options, vault.sealed_for_tasks),
    )


def _bucket_options(secret: str, vault: Vault) -> "StoreOptions":
    """Return the current values of a secret; without a secret, use keys of the environment."""
    from penstock.model.options import option_fields, option_key, parse_options
    from penstock.storage.options import StoreOptions, check_access

    if not secret:
        return StoreOptions()
    known = {option_key(f) for f in option_fields(StoreOptions)}
    values = vault.reveal_all(secret, known=known)
    origins = tuple((key, f"SECRET '{secret}'") for key, _ in values)
    parsed = parse_options(StoreOptions, values, what=f'secret "{secret}"', origins=origins)
    options = replace(parsed, origins=origins)
    check_access(options)
    return options


def _capabilities() -> frozenset[str]:
    """Return the installed libraries that source kinds need."""
    from importlib.util import find_spec

    from penstock.sources.registry import source_kinds

    needed = {library for kind in source_kinds() for library in kind.needs}
    return frozenset(library for library in needed if find_spec(library))


def local_tasks(master: str) -> int | None:
    """Return how many tasks a local Spark runs at once; None for a remote Spark."""
    found = re.match(r"local(?:\[(\*|\d+))?", master)
    if found is None:
        return None
    return os.cpu_count() if found[1] == "*" else int(found[1] or 1)


def _start_thread(run: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def _create_folder(home: Path) -> None:
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExternalError(
            f'home "{home}" cannot be created: {error.strerror}',
            code=Code.STORAGE_ERR,
            hint="Choose another folder with --home or PENSTOCK_HOME.",
        ) from error
