"""Statement to function: run what was said, against catalog and tables.

Modules that need Arrow or the table library are imported by the statements that use them, so
that SHOW and DESCRIBE of the catalog alone answer at once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.catalog.catalog import Catalog
from penstock.clock import Clock
from penstock.control.result import Result
from penstock.secrets.vault import Vault
from penstock.sql import statements as said
from penstock.tables.table import Tables

if TYPE_CHECKING:
    from penstock.control.changes import ChangeParts
    from penstock.control.result import Analyst

START_OVER_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlParts:
    """What statements are run with; tables are opened only by those that need them."""

    catalog: Catalog
    open_tables: Callable[[], Tables]
    open_analyst: Callable[[], "Analyst"]
    clock: Clock
    vault: Vault
    tasks_max: int | None = None
    warehouse_secret: str = ""


def execute(statement: said.Statement, *, parts: ControlParts) -> Result:
    """Run one statement and answer its result."""
    if isinstance(statement, said.RoutineLoadStatement):
        return _about_routine_loads(statement, parts=parts)
    match statement:
        case said.ShowJobs() | said.ShowCreateJob() | said.ShowEpochs() | said.ShowEvents():
            return _look_at_jobs(statement, parts=parts)
        case said.ExplainJob(name=name):
            return _explain(name, parts=parts)
        case said.CreateSecret() | said.AlterSecret() | said.DropSecret() | said.ShowSecrets():
            return _about_secrets(statement, parts=parts)
        case said.ViewQuery():
            return _read_view(statement, parts=parts)
        case said.TableQuery():
            return _read_tables(statement, parts=parts)
        case (
            said.CreateTable()
            | said.DropTable()
            | said.ShowTables()
            | said.DescribeTable()
            | said.DescribeDetail()
            | said.ShowCreateTable()
        ):
            return _about_tables(statement, parts=parts)
        case (
            said.CreateJob()
            | said.AlterJob()
            | said.PauseJob()
            | said.ResumeJob()
            | said.DropJob()
        ):
            return _start_over(lambda change: _change_job(statement, parts=change), parts)


def _look_at_jobs(
    statement: said.ShowJobs | said.ShowCreateJob | said.ShowEpochs | said.ShowEvents,
    *,
    parts: ControlParts,
) -> Result:
    from penstock.control import show
    from penstock.control.find import find_job, find_streaming_job

    catalog = parts.catalog
    match statement:
        case said.ShowJobs():
            return show.show_jobs(catalog=catalog)
        case said.ShowCreateJob(name=name):
            return show.show_create_job(find_streaming_job(name, catalog=catalog))
        case said.ShowEpochs(name=name):
            return show.show_epochs(find_job(name, catalog=catalog), catalog=catalog)
        case said.ShowEvents(name=name):
            return show.show_events(find_job(name, catalog=catalog), catalog=catalog)


def _read_view(statement: said.ViewQuery, *, parts: ControlParts) -> Result:
    from penstock.control.view_query import query_view
    from penstock.control.views import jobs_view, tasks_view

    build = jobs_view if statement.view == "jobs" else tasks_view
    return query_view(statement, build(parts.catalog), clock=parts.clock)


def _read_tables(statement: said.TableQuery, *, parts: ControlParts) -> Result:
    from penstock.control.queries import select_from_tables

    return select_from_tables(
        statement,
        catalog=parts.catalog,
        tables=parts.open_tables(),
        open_analyst=parts.open_analyst,
    )


def _explain(name: str, *, parts: ControlParts) -> Result:
    from penstock.control.explain import explain_job
    from penstock.control.find import find_streaming_job
    from penstock.job_source import open_files

    state = find_streaming_job(name, catalog=parts.catalog)
    source = open_files(state, catalog=parts.catalog, vault=parts.vault, clock=parts.clock)
    return explain_job(state, source=source, tasks_max=parts.tasks_max)


def _about_tables(
    statement: said.CreateTable
    | said.DropTable
    | said.ShowTables
    | said.DescribeTable
    | said.DescribeDetail
    | said.ShowCreateTable,
    *,
    parts: ControlParts,
) -> Result:
    from penstock.control import tables

    catalog = parts.catalog
    if isinstance(statement, said.ShowTables):
        return tables.show_tables(catalog=catalog)
    opened = parts.open_tables()
    match statement:
        case said.CreateTable():
            return tables.create_table(
                statement, catalog=catalog, tables=opened, clock=parts.clock
            )
        case said.DropTable():
            return tables.drop_table(statement, catalog=catalog, tables=opened)
        case said.DescribeTable():
            return tables.describe_table(statement, catalog=catalog, tables=opened)
        case said.DescribeDetail():
            return tables.describe_detail(statement, catalog=catalog, tables=opened)
        case said.ShowCreateTable():
            return tables.show_create_table(statement, catalog=catalog, tables=opened)


def _about_secrets(
    statement: said.CreateSecret | said.AlterSecret | said.DropSecret | said.ShowSecrets,
    *,
    parts: ControlParts,
) -> Result:
    from penstock.control import secrets

    catalog, of_warehouse = parts.catalog, parts.warehouse_secret
    match statement:
        case said.CreateSecret():
            return secrets.create_secret(statement, catalog=catalog, vault=parts.vault)
        case said.AlterSecret():
            return secrets.alter_secret(statement, catalog=catalog, vault=parts.vault)
        case said.DropSecret():
            return secrets.drop_secret(
                statement, catalog=catalog, warehouse_secret=of_warehouse
            )
        case said.ShowSecrets():
            return secrets.show_secrets(catalog=catalog, warehouse_secret=of_warehouse)


def _about_routine_loads(
    statement: said.RoutineLoadStatement, *, parts: ControlParts
) -> Result:
    from penstock.control import routine_show

    catalog, clock = parts.catalog, parts.clock
    match statement:
        case said.ShowRoutineLoad():
            return routine_show.show_routine_load(
                statement, catalog=catalog, clock=clock, tasks_max=parts.tasks_max
            )
        case said.ShowRoutineLoadTask(name=name):
            return routine_show.show_tasks(name, catalog=catalog)
        case said.ShowCreateRoutineLoad():
            return routine_show.show_create(statement, catalog=catalog)
        case said.ShowShards(name=name):
            from penstock.control.routine_show import show_shards

            return show_shards(name, catalog=catalog, clock=clock)
        case _:
            return _start_over(lambda change: _change_load(statement, parts=change), parts)


def _change_load(
    statement: said.CreateRoutineLoad
    | said.AlterRoutineLoad
    | said.PauseRoutineLoad
    | said.ResumeRoutineLoad
    | said.StopRoutineLoad,
    *,
    parts: "ChangeParts",
) -> Result:
    from penstock.control import routine_loads

    match statement:
        case said.CreateRoutineLoad():
            return routine_loads.create_routine_load(statement, parts=parts)
        case said.AlterRoutineLoad():
            return routine_loads.alter_routine_load(statement, parts=parts)
        case said.PauseRoutineLoad():
            return routine_loads.pause_routine_load(statement, parts=parts)
        case said.ResumeRoutineLoad():
            return routine_loads.resume_routine_load(statement, parts=parts)
        case said.StopRoutineLoad():
            return routine_loads.stop_routine_load(statement, parts=parts)


def _start_over(run: Callable[["ChangeParts"], Result], parts: ControlParts) -> Result:
    """Run a change again when a runner was quicker than its first effect."""
    from penstock.control.changes import ChangeParts, OutpacedError

    change = ChangeParts(
        catalog=parts.catalog,
        tables=parts.open_tables(),
        clock=parts.clock,
        open_analyst=parts.open_analyst,
        vault=parts.vault,
    )
    for _ in range(START_OVER_MAX - 1):
        try:
            return run(change)
        except OutpacedError:
            # A runner took the job meanwhile; what the statement checked is read anew.
            continue
    return run(change)


def _change_job(
    statement: said.CreateJob | said.AlterJob | said.PauseJob | said.ResumeJob | said.DropJob,
    *,
    parts: "ChangeParts",
) -> Result:
    from penstock.control import jobs

    match statement:
        case said.CreateJob():
            return jobs.create_job(statement, parts=parts)
        case said.AlterJob():
            return jobs.alter_job(statement, parts=parts)
        case said.PauseJob():
            return jobs.pause_job(statement, parts=parts)
        case said.ResumeJob():
            return jobs.resume_job(statement, parts=parts)
        case said.DropJob():
            return jobs.drop_job(statement, parts=parts)
