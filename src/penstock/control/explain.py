"""EXPLAIN JOB: how a job's rows are made, and what its next epoch would read."""

from functools import partial

from penstock.control.result import Result
from penstock.model.job import JobDefinition, JobState, SparkQuery
from penstock.model.options import all_options
from penstock.model.text import counted
from penstock.sources.files.reader import needed_columns, share_out, splittable
from penstock.sources.files.source import FilesSource

_TASKS_SHOWN_MAX = 8


def explain_job(state: JobState, *, source: FilesSource, tasks_max: int | None) -> Result:
    """Tell the path, why it was chosen, its operators, the next epoch and the limits."""
    definition = state.definition
    rows = [
        *_path(definition),
        ("reads", ", ".join(needed_columns(definition)) or "no column"),
        *_next_epoch(state, source=source, tasks_max=tasks_max),
        *_limits(definition),
    ]
    return Result(columns=("item", "value"), rows=tuple(rows))


def _limits(definition: JobDefinition) -> list[tuple[str, str]]:
    given = all_options(definition.properties)
    return [(f"limit {key}", value) for key, value in given if value]


def _path(definition: JobDefinition) -> list[tuple[str, str]]:
    if definition.query is None:
        return [
            ("path", "fused"),
            ("why", "the SELECT is a plain list of columns: one task reads, fits and writes"),
            ("operators", "read, write"),
        ]
    return [
        ("path", "Spark"),
        ("why", "the SELECT has more than columns by name; Spark runs it between two halves"),
        ("operators", _operators(definition.query)),
        ("rows", _rows(definition.query)),
        ("plan", "kept between epochs" if definition.query.reusable else "made every epoch"),
        ("lookups", ", ".join(t.name for t in definition.query.lookups) or "none"),
    ]


def _operators(query: SparkQuery) -> str:
    """Write the stage from the reader to the writer."""
    between = [name for name in reversed(query.operators) if name != "MapInArrow"]
    return ", ".join(["read", *between, "write"])


def _rows(query: SparkQuery) -> str:
    return "at most one for each" if query.row_wise else "any number for each"


def _next_epoch(
    state: JobState, *, source: FilesSource, tasks_max: int | None
) -> list[tuple[str, str]]:
    definition = state.definition
    waiting = source.discover(state.progress, listed=lambda _: None)
    plan = source.plan(state.progress, limits=definition.properties.limits)
    if plan is None:
        return [("next epoch", "nothing is waiting")]
    told = [
        ("waiting", _amount(waiting.files, waiting.size_bytes)),
        ("next epoch", _amount(len(plan.files), plan.size_bytes)),
    ]
    if tasks_max is None:
        return [*told, ("tasks", "as many as the cluster runs at once")]
    needed = needed_columns(definition)
    cut = partial(splittable, source=definition.files, needed=needed)
    shares = share_out(plan.files, tasks=tasks_max, splittable=cut)
    for number, share in enumerate(shares[:_TASKS_SHOWN_MAX]):
        size_bytes = sum(read.end - read.start for read in share)
        told.append((f"task {number}", f"{counted(len(share), 'part')}, {size_bytes:,} bytes"))
    more = len(shares) - _TASKS_SHOWN_MAX
    return [*told, ("tasks", f"{more} more")] if more > 0 else told


def _amount(files: int, size_bytes: int) -> str:
    return f"{counted(files, 'file')}, {counted(size_bytes, 'byte')}"
