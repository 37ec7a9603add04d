"""Check task reports against the plan, count rows, and apply the error limits.

Bad rows of a routine load do not fail its epoch: valid rows are committed, and the others are
stored in rejects(). The commit also stores the error window. If the window exceeds a limit, the
owner of the job pauses it.
"""

from collections import Counter
from collections.abc import Sequence

from penstock.errors import Code, InvariantError, UserError
from penstock.model.epoch import Ack, EpochPlan, ErrorWindow, Statistics, Tripped
from penstock.model.job import JobDefinition
from penstock.model.job_kinds import RoutineProperties
from penstock.model.split import Note, SplitRead


def check_cover(shares: Sequence[Sequence[SplitRead]], acks: Sequence[Ack]) -> None:
    """Raise InvariantError unless the acks report every planned read exactly once."""
    planned = {read.id: read for share in shares for read in share}
    reported = Counter(note.read for note in notes_of(acks))
    for read_id, read in planned.items():
        if reported.pop(read_id, 0) != 1:
            raise InvariantError(
                f'tasks did not report "{read.shown or read.id}" exactly once',
                detail=f"The read is {read.id} of split {read.split}.",
            )
    if reported:
        raise InvariantError(f'tasks reported "{min(reported)}", which was not planned')


def notes_of(acks: Sequence[Ack]) -> tuple[Note, ...]:
    """Return the notes of all tasks."""
    return tuple(note for ack in acks for note in ack.notes)


def count(plan: EpochPlan, acks: Sequence[Ack], *, row_wise: bool) -> Statistics:
    """Add up the counts of all tasks; raise InvariantError if they do not balance."""
    counts = [note.counts for note in notes_of(acks)]
    files = [file for ack in acks for file in ack.files]
    misfit = sum(ack.rows_misfit for ack in acks)
    statistics = Statistics(
        rows_read=sum(one.rows_read for one in counts),
        rows_skipped=sum(one.rows_skipped for one in counts),
        rows_parsed=sum(one.rows_parsed for one in counts),
        rows_produced=sum(ack.rows_produced for ack in acks),
        rows_loaded=sum(file.rows for file in files),
        rows_rejected=sum(one.rows_rejected for one in counts) + misfit,
        rows_misfit=misfit,
        rows_foreign=sum(one.rows_foreign for one in counts),
        rows_late=sum(one.rows_late for one in counts),
        records_read=sum(one.records for one in counts),
        files_read=len(plan.items) + sum(one.files for one in counts),
        bytes_read=plan.size_bytes + sum(one.size_bytes for one in counts),
        files_written=len(files),
        bytes_written=sum(file.size_bytes for file in files),
    )
    stored = sum(file.rows for ack in acks for file in ack.reject_files)
    if not statistics.balanced or (row_wise and statistics.rows_unselected < 0):
        raise InvariantError(
            "row counts do not add up: every row read must be loaded, rejected, skipped or "
            "filtered out by the SELECT",
            detail=str(statistics),
        )
    if stored != statistics.rows_rejected:
        raise InvariantError(
            f"{statistics.rows_rejected} rows were rejected, but {stored} were stored",
            detail=str(statistics),
        )
    return statistics


def check_reject_ratio(
    statistics: Statistics, acks: Sequence[Ack], *, ratio_max: float
) -> None:
    """Raise UserError if the reject ratio exceeds the limit."""
    if statistics.filtered_ratio > ratio_max:
        first = next(ack.first_reject for ack in acks if ack.first_reject)
        total = statistics.rows_loaded + statistics.rows_rejected
        raise UserError(
            f"{statistics.rows_rejected} of {total} rows could not be loaded, which exceeds "
            f"the allowed ratio of {ratio_max:g}; first error: {first}",
            code=Code.TOO_MANY_FAILURE_ROWS_ERR,
            detail="The epoch was not committed; none of its rows are in the table.",
            hint=(
                "Fix or remove the files, or raise "
                '"session.insert_max_filter_ratio" with ALTER JOB. Then RESUME the job.'
            ),
        )


# A window covers this many full epochs.
_BATCHES = 10


def next_window(
    before: ErrorWindow, epoch: Statistics, *, first: str, definition: JobDefinition
) -> ErrorWindow:
    """Return the error window after an epoch.

    The window starts again at zero when it exceeds a limit or is full.
    """
    properties = definition.properties
    if not isinstance(properties, RoutineProperties):
        return ErrorWindow()
    errors = epoch.rows_rejected - epoch.rows_foreign
    rows = before.rows + epoch.rows_read - epoch.rows_skipped
    # A window that has started again keeps its last error message for one epoch.
    previous = before.first if before.errors else ""
    window = ErrorWindow(
        rows=rows, errors=before.errors + errors, first=first if errors else previous
    )
    tripped = _tripped(window, properties)
    if tripped is not None:
        return ErrorWindow(first=window.first, tripped=tripped)
    return window if rows <= properties.max_batch_rows * _BATCHES else ErrorWindow()


def _tripped(window: ErrorWindow, properties: RoutineProperties) -> Tripped | None:
    """Return the limit that a window exceeds; None if it exceeds none."""
    ratio = window.errors / window.rows if window.rows else 0.0
    for limit, found, value in (
        ("max_error_number", window.errors, properties.max_error_number),
        ("max_filter_ratio", ratio, properties.max_filter_ratio),
    ):
        if found > value:
            return Tripped(
                limit=limit, limit_value=value, rows=window.rows, errors=window.errors
            )
    return None


def too_many_errors(tripped: Tripped) -> UserError:
    """Return the error for a job whose error window exceeded a limit."""
    return UserError(
        f"{tripped.errors} of {tripped.rows} rows could not be loaded; "
        f"{tripped.limit} is {tripped.limit_value:.15g}",
        code=Code.TOO_MANY_FAILURE_ROWS_ERR,
        detail="Valid rows are in the table; the other rows are in rejects(…).",
        hint="Query rejects(…), fix the cause, then RESUME the load. To tolerate more errors, "
        "raise max_error_number first.",
    )
