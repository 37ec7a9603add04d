"""Build every part from settings and wire them; decide nothing."""

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
from penstock.logs import log_files, write_logs
from penstock.secrets.vault import Vault
from penstock.settings.settings import KEY_FILE, Settings
from penstock.sources.registry import Sources

if TYPE_CHECKING:
    from penstock.engine.loop import LoadParts
    from penstock.engine.run import Executor
    from penstock.spark.executor import SparkExecutor
    from penstock.storage.options import StoreOptions
    from penstock.supervisor.loop import RunnerKind
    from penstock.supervisor.supervisor import Supervisor
    from penstock.tables.delta import DeltaTables


def _silent(line: str) -> None:
    """Tell nobody."""


class App:
    """One process of Penstock on one home."""

    def __init__(
        self,
        settings: Settings,
        *,
        command: str = "sql",
        tell: Callable[[str], None] = _silent,
    ) -> None:
        self.settings = settings
        self._tell = tell
        self.clock = SystemClock()
        self.logs = log_files(settings.home, command=command, at=self.clock.now())
        self._spark: SparkExecutor | None = None
        self._scratch = Path()
        self._logging = False
        _make_folder(settings.home)
        self.catalog: Catalog = open_catalog(settings.catalog_url, clock=self.clock)
        self.vault = Vault(self.catalog, key_file=settings.home / KEY_FILE)
        self.sources = Sources(catalog=self.catalog, vault=self.vault, clock=self.clock)
        self.node_id = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"

    def log(self, *, verbose: bool = False) -> None:
        """Begin to log, unless this process does already."""
        if not self._logging:
            self._logging = True
            write_logs(self.logs, verbose=verbose)

    def services(self) -> Services:
        """Return what statements are run with."""
        return Services(
            catalog=self.catalog,
            open_tables=self._tables,
            open_analyst=self._analyst,
            clock=self.clock,
            vault=self.vault,
            sources=self.sources,
            tasks_max=local_tasks(self.settings.spark_master),
            warehouse_secret=self.settings.warehouse_secret,
        )

    def supervisor(
        self, *, only: frozenset[str], until_caught_up: bool
    ) -> tuple["Supervisor", Callable[[], None]]:
        """Return the supervisor of this node, and a function that ends what it started."""
        from penstock.spark.session import clear_leftovers
        from penstock.supervisor.leases import HomeLock
        from penstock.supervisor.runner import SupervisorParts
        from penstock.supervisor.supervisor import Supervisor

        self.log()
        home = self.settings.home
        executor = self.executor()
        supervisor = Supervisor(
            parts=SupervisorParts(
                catalog=self.catalog,
                clock=self.clock,
                node_id=self.node_id,
                start_thread=_start_thread,
                runners={"load": self._load_runner(executor)},
                capabilities=_capabilities(),
            ),
            only=only,
            until_caught_up=until_caught_up,
        )
        lock = HomeLock(home / "lock")
        # A catalog that other homes may share has other processes than this home's lock knows.
        own_catalog = self.settings.catalog is None
        sole = lock.acquire()
        if sole:
            clear_leftovers(home / "tmp")
        supervisor.start(sole_process=sole and own_catalog)

        # Every step is done even if an earlier one fails.
        end = ExitStack()
        end.callback(lock.release)
        end.callback(executor.stop)
        end.callback(supervisor.stop)
        return supervisor, end.close

    def executor(self) -> "SparkExecutor":
        """Answer what runs the tasks of jobs; it starts when the first one needs it."""
        from penstock.spark.executor import SparkExecutor
        from penstock.spark.session import SparkOptions

        return SparkExecutor(
            SparkOptions(
                master=self.settings.spark_master,
                scratch=self.settings.home / "tmp",
                log_file=self.logs.spark,
                computing=any(job.definition.query for job in self.catalog.jobs()),
                conf=self.settings.spark_conf,
            )
        )

    def _load_runner(self, executor: "Executor") -> "RunnerKind":
        from penstock.engine.loop import LoadLoop
        from penstock.supervisor.loop import RunnerKind

        parts = self.load_parts(executor)
        return RunnerKind(
            open_loop=lambda job_id, reporter: LoadLoop(job_id, parts=parts, reporter=reporter),
            caught_up=self.sources.is_caught_up,
        )

    def load_parts(self, executor: "Executor") -> "LoadParts":
        """Return what load jobs run with."""
        from penstock.engine.loop import LoadParts
        from penstock.epochs.task import run_task_text

        return LoadParts(
            catalog=self.catalog,
            tables=self._tables(),
            executor=executor,
            clock=self.clock,
            open_source=self.sources.open,
            work=run_task_text,
            node_id=self.node_id,
        )

    def close(self) -> None:
        """Close the catalog, and end the Spark of statements if there is one."""
        if self._spark is not None:
            self._spark.stop()
            shutil.rmtree(self._scratch, ignore_errors=True)
        self.catalog.close()

    def _analyst(self) -> "SparkExecutor":
        """Answer the Spark that statements ask; it has nothing to do with that of a run."""
        from penstock.spark.executor import SparkExecutor
        from penstock.spark.session import SparkOptions

        if self._spark is None:
            self._tell("starting Spark …")
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

    def check_warehouse(self) -> str:
        """Probe the warehouse and return the finding."""
        return self._tables().probe()

    def _tables(self) -> "DeltaTables":
        return open_warehouse(
            self.settings.warehouse_location,
            secret=self.settings.warehouse_secret,
            vault=self.vault,
        )


def open_warehouse(location: str, *, secret: str, vault: Vault) -> "DeltaTables":
    """Return the tables of a warehouse, without a request to it."""
    from penstock.storage.options import seal
    from penstock.tables.delta import DeltaTables

    return DeltaTables(
        location,
        options=partial(_bucket_options, secret, vault),
        seal=lambda options: seal(options, vault.sealed_for_tasks),
    )


def _bucket_options(secret: str, vault: Vault) -> "StoreOptions":
    """Return the current values of a secret; without one, the environment has the keys."""
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
    """Return the libraries that source kinds need and this node has."""
    from importlib.util import find_spec

    from penstock.sources.registry import source_kinds

    needed = {library for kind in source_kinds() for library in kind.needs}
    return frozenset(library for library in needed if find_spec(library))


def local_tasks(master: str) -> int | None:
    """Answer how many tasks a Spark on this machine runs at once; None for another one."""
    found = re.match(r"local(?:\[(\*|\d+))?", master)
    if found is None:
        return None
    return os.cpu_count() if found[1] == "*" else int(found[1] or 1)


def _start_thread(run: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def _make_folder(home: Path) -> None:
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExternalError(
            f'home "{home}" cannot be made: {error.strerror}',
            code=Code.STORAGE_ERR,
            hint="Choose another with --home or PENSTOCK_HOME.",
        ) from error
