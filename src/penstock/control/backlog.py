"""SHOW BACKLOG, and ALTER … RESET BACKLOG."""

from datetime import timedelta

from penstock.control.execute import Services
from penstock.control.find import find_job
from penstock.control.job_view import JobView, backlog_cells, view_jobs
from penstock.control.jobs import require_not_ended
from penstock.control.result import Cell, Result, result_columns
from penstock.model.backlog import LagUnit, SplitBacklog
from penstock.model.events import BacklogReset
from penstock.model.split import Amount, position_text, total_amount
from penstock.model.text import format_count, format_duration, format_instant, format_size
from penstock.sql.statements import ResetBacklog, ShowBacklog

JOB_COLUMNS = result_columns(
    "job, in_backlog BOOLEAN, since TIMESTAMP, cause, splits_left BIGINT, remaining, rate, "
    "eta, interval, next_epoch_at TIMESTAMP, target_lag, lag, measured_at TIMESTAMP"
)
SPLIT_COLUMNS = result_columns(
    "split, boundary, set_at TIMESTAMP, position, remaining_files BIGINT, "
    "remaining_rows BIGINT, remaining_bytes BIGINT, remaining_seconds DOUBLE, lagging BOOLEAN, "
    "finished_at TIMESTAMP, finished_epoch BIGINT, measured_at TIMESTAMP"
)


def reset_backlog(statement: ResetBacklog, *, services: Services) -> Result:
    """Request boundaries at the current heads; the next poll of the job sets them."""
    state = find_job(statement.name, kind=statement.kind, catalog=services.catalog)
    require_not_ended(state)
    services.catalog.append(state.id, BacklogReset(), expected=state.generation)
    noun = state.definition.kind.noun
    return Result(message=f"{noun} {state.name}: backlog reset requested")


def show_backlog(statement: ShowBacklog, *, services: Services) -> Result:
    """List the backlog of all jobs, or the splits of one job."""
    if statement.name is None:
        views = view_jobs(services.catalog, clock=services.clock)
        rows = tuple(_job_row(view) for view in views if not view.ended)
        return Result(columns=JOB_COLUMNS, rows=rows)
    state = find_job(statement.name, catalog=services.catalog)
    (view,) = view_jobs(services.catalog, clock=services.clock, states=[state])
    return Result(columns=SPLIT_COLUMNS, rows=_split_rows(view))


def _job_row(view: JobView) -> tuple[Cell, ...]:
    pace, job = view.pace, view.job
    in_backlog, cause, eta, interval, next_epoch_at = backlog_cells(view)
    amounts = [status.remaining for status in pace.remaining] if pace else []
    total = total_amount(amounts)
    return (
        view.name,
        in_backlog,
        format_instant(job.backlog_since) if in_backlog else None,
        cause,
        sum(split.open or split.lagging for split in job.backlog.splits),
        amount_text(total, view) if pace else None,
        rate_text(pace.rate, pace.rate_unit) if pace and pace.rate is not None else None,
        eta,
        interval,
        next_epoch_at,
        job.definition.properties.cadence.freshness or None,
        None if total.lag is None else format_duration(total.lag),
        format_instant(pace.at) if pace else None,
    )


def _split_rows(view: JobView) -> tuple[tuple[Cell, ...], ...]:
    record, pace = view.job.backlog, view.pace
    known = {split.split: split for split in record.splits}
    position = {split.split: position_text(split.position) for split in view.job.progress}
    statuses = pace.remaining if pace else ()
    remaining = {status.split: status.remaining for status in statuses}
    rows: list[tuple[Cell, ...]] = []
    for name in sorted({*known, *position}):
        split, left = known.get(name, SplitBacklog(split=name)), remaining.get(name, Amount())
        removed = "removed" if split.gone else None
        boundary = split.boundary
        rows.append(
            (
                name,
                None if boundary is None else position_text(boundary),
                None if boundary is None else format_instant(record.fixed_at),
                position.get(name, removed),
                left.items,
                left.rows,
                left.size_bytes,
                LagUnit.TIME.of(left),
                split.lagging,
                format_instant(split.finished_at),
                split.epoch or None,
                format_instant(pace.at) if name in remaining and pace else None,
            )
        )
    return tuple(rows)


def amount_text(amount: Amount, view: JobView) -> str:
    """Return the parts of an amount that are known."""
    noun = view.kind.waiting_noun
    parts = [
        None if amount.items is None else format_count(amount.items, noun),
        None if amount.rows is None else format_count(amount.rows, "row"),
        None if amount.size_bytes is None else format_size(amount.size_bytes),
    ]
    texts = [part for part in parts if part is not None]
    if not texts and amount.lag is not None:
        texts = [format_duration(amount.lag)]
    return ", ".join(texts)


def rate_text(rate: float, unit: str) -> str:
    """Return a rate with its unit."""
    match LagUnit(unit):
        case LagUnit.ROWS:
            return f"{format_count(round(rate), 'row')}/s"
        case LagUnit.BYTES:
            return f"{format_size(round(rate))}/s"
        case LagUnit.TIME:
            return f"{format_duration(timedelta(seconds=rate))} of arrivals per second"
