"""EXPLAIN JOB: how a job's rows are made, and what its next epoch would read."""

import threading

from penstock.control.execute import Services
from penstock.control.find import find_job
from penstock.control.result import Result, result_columns
from penstock.model.job import JobDefinition, JobState
from penstock.model.job_kinds import STREAMING
from penstock.model.options import all_options
from penstock.model.text import counted
from penstock.sources.registry import source_kind
from penstock.sources.source import Source
from penstock.sql.statements import ExplainJob

_TASKS_SHOWN_MAX = 8


def explain_job(statement: ExplainJob, *, services: Services) -> Result:
    """Show the path, why it was chosen, its operators, the next epoch and the limits."""
    state = find_job(statement.name, kind=STREAMING, catalog=services.catalog)
    source = services.sources.open(state, threading.Event())
    definition = state.definition
    rows = [
        *_path(definition),
        ("reads", ", ".join(definition.needed) or "no column"),
        *_next_epoch(state, source=source, tasks_max=services.tasks_max),
        *((f"limit {key}", v) for key, v in all_options(definition.properties) if v),
    ]
    return Result(columns=result_columns("item, value"), rows=tuple(rows))


def _path(definition: JobDefinition) -> list[tuple[str, str]]:
    query = definition.query
    if query is None:
        return [
            ("path", "fused"),
            ("why", "the SELECT is a plain list of columns: one task reads, fits and writes"),
            ("operators", "read, write"),
        ]
    between = [name for name in reversed(query.operators) if name != "MapInArrow"]
    return [
        ("path", "Spark"),
        ("why", "the SELECT has more than columns by name; Spark runs it between two halves"),
        ("operators", ", ".join(["read", *between, "write"])),
        ("rows", "at most one for each" if query.row_wise else "any number for each"),
        ("plan", "kept between epochs" if query.reusable else "made every epoch"),
        ("lookups", ", ".join(table.name for table in query.lookups) or "none"),
    ]


def _next_epoch(
    state: JobState, *, source: Source, tasks_max: int | None
) -> list[tuple[str, str]]:
    definition = state.definition
    noun = source_kind(definition.source.kind).waiting_noun
    waiting = source.poll(state.progress, seen=lambda _: None).waiting
    plan = source.plan(state.progress, limits=definition.properties.limits)
    if plan is None:
        return [("next epoch", "nothing is waiting")]
    shown = [
        ("waiting", _amount(waiting.items or 0, waiting.size_bytes or 0, noun)),
        ("next epoch", _amount(len(plan.items), plan.size_bytes, noun)),
    ]
    if tasks_max is None:
        return [*shown, ("tasks", "as many as the cluster runs at once")]
    shares = source.share(plan, tasks=tasks_max, needed=definition.needed)
    for number, share in enumerate(shares[:_TASKS_SHOWN_MAX]):
        size_bytes = sum(read.size_bytes for read in share)
        shown.append((f"task {number}", f"{counted(len(share), 'part')}, {size_bytes:,} bytes"))
    more = len(shares) - _TASKS_SHOWN_MAX
    return [*shown, ("tasks", f"{more} more")] if more > 0 else shown


def _amount(items: int, size_bytes: int, noun: str) -> str:
    return f"{counted(items, noun)}, {counted(size_bytes, 'byte')}"
