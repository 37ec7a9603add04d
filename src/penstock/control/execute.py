"""Run one statement: a table from the statement's class to its role and handler.

Handlers are imported when they are needed, so that SHOW and DESCRIBE of the catalog alone
load neither Arrow nor the table library.
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
from penstock.sql import statements as said
from penstock.tables.table import Tables

if TYPE_CHECKING:
    from penstock.control.result import Analyst

START_OVER_MAX = 10


@dataclass(frozen=True, kw_only=True)
class Services:
    """What statements are run with."""

    catalog: Catalog
    open_tables: Callable[[], Tables]
    open_analyst: Callable[[], "Analyst"]
    clock: Clock
    vault: Vault
    sources: Sources
    # How many tasks a node runs at once; None if unknown.
    tasks_max: int | None = None
    warehouse_secret: str = ""

    @cached_property
    def tables(self) -> "Tables":
        """The tables, opened by the first use."""
        return self.open_tables()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Handler:
    """A function of control, by module and name, and the role that a caller needs."""

    role: str
    module: str
    name: str
    # Whether it changes a job; it starts over if a runner changed the job first.
    changes: bool = False


def _reads(module: str, name: str) -> _Handler:
    return _Handler(role="read", module=module, name=name)


def _writes(module: str, name: str) -> _Handler:
    return _Handler(role="write", module=module, name=name)


def _changes(name: str) -> _Handler:
    return _Handler(role="write", module="jobs", name=name, changes=True)


_HANDLERS: dict[type, _Handler] = {
    said.CreateJob: _changes("create_job"),
    said.AlterJob: _changes("alter_job"),
    said.PauseJob: _changes("pause_job"),
    said.ResumeJob: _changes("resume_job"),
    said.DropJob: _changes("drop_job"),
    said.ShowJobs: _reads("show", "show_jobs"),
    said.ShowCreateJob: _reads("show", "show_create_job"),
    said.ShowEpochs: _reads("show", "show_epochs"),
    said.ShowEvents: _reads("show", "show_events"),
    said.ShowRoutineLoad: _reads("show", "show_loads"),
    said.ShowRoutineLoadTask: _reads("show", "show_load_tasks"),
    said.ShowShards: _reads("show", "show_splits"),
    said.ExplainJob: _reads("explain", "explain_job"),
    said.ViewQuery: _reads("view_query", "query_view"),
    said.TableQuery: _reads("queries", "select_from_tables"),
    said.CreateTable: _writes("tables", "create_table"),
    said.DropTable: _writes("tables", "drop_table"),
    said.ShowTables: _reads("tables", "show_tables"),
    said.DescribeTable: _reads("tables", "describe_table"),
    said.DescribeDetail: _reads("tables", "describe_detail"),
    said.ShowCreateTable: _reads("tables", "show_create_table"),
    said.CreateSecret: _writes("secrets", "create_secret"),
    said.AlterSecret: _writes("secrets", "alter_secret"),
    said.DropSecret: _writes("secrets", "drop_secret"),
    said.ShowSecrets: _reads("secrets", "show_secrets"),
}


def execute(
    statement: said.Statement, *, services: Services, caller: Caller | None = None
) -> Result:
    """Run one statement and return its result."""
    caller = caller or Caller()
    handler = _HANDLERS.get(type(statement))
    if handler is None:
        raise InvariantError(f"statement {type(statement).__name__} has no handler")
    if handler.role not in caller.roles:
        raise UserError(
            f'user "{caller.user}" needs the role {handler.role} for this statement',
            code=Code.STATE_ERR,
        )
    run = getattr(import_module(f"penstock.control.{handler.module}"), handler.name)
    # A copy opens the tables once, with the secrets of now.
    services = replace(services)
    if handler.changes:
        return _start_over(statement, run, services)
    result: Result = run(statement, services=services)
    return result


def _start_over(
    statement: said.Statement, run: Callable[..., Result], services: Services
) -> Result:
    """Run a change; start over if a runner changed the job before the first effect."""
    from penstock.control.changes import OutpacedError

    for _ in range(START_OVER_MAX - 1):
        try:
            return run(statement, services=services)
        except OutpacedError:
            # A runner took the job in the meantime: read and check everything again.
            continue
    return run(statement, services=services)
