"""Execution of one statement: a table from the statement's class to its role and handler.

Handlers are imported on first use. Statements that read only the catalog therefore import
neither Arrow nor the table library.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

from penstock.catalog.catalog import Catalog
from penstock.clock import Clock
from penstock.control.result import Caller, Result
from penstock.errors import Code, InvariantError, UserError
from penstock.secrets.vault import Vault
from penstock.sources.registry import Sources
from penstock.sql import statements
from penstock.tables.table import Tables

if TYPE_CHECKING:
    from penstock.control.result import Analyzer, StreamAnalyzer

ATTEMPTS_MAX = 10


@dataclass(frozen=True, kw_only=True)
class Services:
    """The dependencies of statement handlers."""

    catalog: Catalog
    open_tables: Callable[[], Tables]
    open_analyzer: Callable[[], "Analyzer"]
    clock: Clock
    vault: Vault
    sources: Sources
    # How many tasks a node runs at once; None if unknown.
    tasks_max: int | None = None
    warehouse_secret: str = ""
    open_stream_analyzer: Callable[[], "StreamAnalyzer"] | None = None
    # Deletes the checkpoints of a job that was dropped, unless a process still uses them.
    delete_checkpoints: Callable[[str], None] = lambda _: None

    @cached_property
    def tables(self) -> "Tables":
        """The tables, opened on first use."""
        return self.open_tables()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Handler:
    """A handler function, by module and name, and the role that it requires."""

    role: str
    module: str
    name: str
    # Whether to run the handler again if a runner changed the job first.
    changes: bool = False


def _reads(module: str, name: str) -> _Handler:
    return _Handler(role="read", module=module, name=name)


def _writes(module: str, name: str) -> _Handler:
    return _Handler(role="write", module=module, name=name)


def _changes(name: str) -> _Handler:
    return _Handler(role="write", module="jobs", name=name, changes=True)


def _stream_changes(name: str) -> _Handler:
    return _Handler(role="write", module="stream_tables", name=name, changes=True)


_HANDLERS: dict[type, _Handler] = {
    statements.CreateJob: _changes("create_job"),
    statements.AlterJob: _changes("alter_job"),
    statements.PauseJob: _changes("pause_job"),
    statements.ResumeJob: _changes("resume_job"),
    statements.DropJob: _changes("drop_job"),
    statements.ShowJobs: _reads("show", "show_jobs"),
    statements.ShowCreateJob: _reads("show", "show_create_job"),
    statements.ShowEpochs: _reads("show", "show_epochs"),
    statements.ShowEvents: _reads("show", "show_events"),
    statements.ShowRoutineLoad: _reads("show", "show_loads"),
    statements.ShowRoutineLoadTask: _reads("show", "show_load_tasks"),
    statements.ShowShards: _reads("show", "show_splits"),
    statements.ExplainJob: _reads("explain", "explain_job"),
    statements.CreateStreamingTable: _stream_changes("create_streaming_table"),
    statements.CreateFlow: _stream_changes("create_flow"),
    statements.AlterStreamingTable: _stream_changes("alter_streaming_table"),
    statements.RefreshStreamingTable: _stream_changes("refresh_streaming_table"),
    statements.ExplainStreamingTable: _reads("stream_show", "explain_streaming_table"),
    statements.ShowStreamingTables: _reads("stream_show", "show_streaming_tables"),
    statements.ResetBacklog: _writes("backlog", "reset_backlog"),
    statements.ShowBacklog: _reads("backlog", "show_backlog"),
    statements.ShowCheckpoints: _reads("stream_show", "show_checkpoints"),
    statements.ViewQuery: _reads("view_query", "query_view"),
    statements.TableQuery: _reads("queries", "select_from_tables"),
    statements.CreateTable: _writes("tables", "create_table"),
    statements.AlterTableWatermark: _writes("tables", "alter_table_watermark"),
    statements.DropTable: _writes("tables", "drop_table"),
    statements.ShowTables: _reads("tables", "show_tables"),
    statements.DescribeTable: _reads("tables", "describe_table"),
    statements.DescribeDetail: _reads("tables", "describe_detail"),
    statements.ShowCreateTable: _reads("tables", "show_create_table"),
    statements.CreateSecret: _writes("secrets", "create_secret"),
    statements.AlterSecret: _writes("secrets", "alter_secret"),
    statements.DropSecret: _writes("secrets", "drop_secret"),
    statements.ShowSecrets: _reads("secrets", "show_secrets"),
}


def execute(
    statement: statements.Statement, *, services: Services, caller: Caller | None = None
) -> Result:
    """Run one statement and return its result."""
    caller = caller or Caller()
    handler = _HANDLERS.get(type(statement))
    if handler is None:
        raise InvariantError(f"statement {type(statement).__name__} has no handler")
    if handler.role not in caller.roles:
        raise UserError(
            f'user "{caller.user}" must have the role {handler.role} for this statement',
            code=Code.STATE_ERR,
        )
    run = getattr(import_module(f"penstock.control.{handler.module}"), handler.name)
    # The copy opens the tables again, with the current secrets.
    services = replace(services)
    if handler.changes:
        return _run_with_retries(statement, run, services)
    result: Result = run(statement, services=services)
    return result


def _run_with_retries(
    statement: statements.Statement, run: Callable[..., Result], services: Services
) -> Result:
    """Run a change; retry if a runner changed the job before anything was stored."""
    from penstock.control.changes import ConcurrentChangeError

    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return run(statement, services=services)
        except ConcurrentChangeError:
            # A runner took over the job: read and check everything again.
            continue
    return run(statement, services=services)
