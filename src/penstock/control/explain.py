"""EXPLAIN JOB: how a job's rows are computed, and what its next epoch would read."""

import threading

from penstock.control.execute import Services
from penstock.control.find import find_job
from penstock.control.result import Result, result_columns
from penstock.model.job import JobDefinition, JobState
from penstock.model.job_kinds import STREAMING
from penstock.model.options import all_options
from penstock.model.text import format_count
from penstock.sources.registry import source_kind
from penstock.sources.source import Source
from penstock.sql.statements import ExplainJob

_TASKS_SHOWN_MAX = 8
_ROWS = {True: "at most one per input row", False: "any number per input row"}


def explain_job(statement: ExplainJob, *, services: Services) -> Result:
    """Return the path with its reason and operators, the next epoch and the limits."""
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
            ("reason", "the SELECT only lists columns: one task reads, casts and writes"),
            ("operators", "read, write"),
        ]
    between = [name for name in reversed(query.operators) if name != "MapInArrow"]
    return [
        ("path", "Spark"),
        (
            "reason",
            "the SELECT does more than list columns: Spark runs it between read and write",
        ),
        ("operators", ", ".join(["read", *between, "write"])),
        ("rows", _ROWS[query.row_wise]),
        ("plan", "reused between epochs" if query.reusable else "rebuilt every epoch"),
        ("lookups", ", ".join(table.name for table in query.lookups) or "none"),
    ]


def _next_epoch(
    state: JobState, *, source: Source, tasks_max: int | None
) -> list[tuple[str, str]]:
    definition = state.definition
    noun = source_kind(definition.source.kind).waiting_noun
    waiting = source.poll(state.progress, report=lambda _: None).waiting
    plan = source.plan(state.progress, limits=definition.properties.limits)
    if plan is None:
        return [("next epoch", "no data to read")]
    shown = [
        ("waiting", _amount(waiting.items or 0, waiting.size_bytes or 0, noun)),
        ("next epoch", _amount(len(plan.items), plan.size_bytes, noun)),
    ]
    if tasks_max is None:
        return [*shown, ("tasks", "as many as the cluster runs at once")]
    shares = source.distribute(plan, tasks=tasks_max, needed=definition.needed)
    for number, share in enumerate(shares[:_TASKS_SHOWN_MAX]):
        size_bytes = sum(read.size_bytes for read in share)
        shown.append((f"task {number}", _amount(len(share), size_bytes, "part")))
    more = len(shares) - _TASKS_SHOWN_MAX
    return [*shown, ("tasks", f"{more} more")] if more > 0 else shown


def _amount(items: int, size_bytes: int, noun: str) -> str:
    return f"{format_count(items, noun)}, {format_count(size_bytes, 'byte')}"
