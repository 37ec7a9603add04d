"""The window of errors of a routine load: how many bad rows it bears before it pauses.

An epoch never fails by its rows: the good ones are committed, the others kept in rejects(), and
the commit itself says whether the window is too full. Whoever finds that pauses the job.
"""

from penstock.errors import Code, UserError
from penstock.model.epoch import ErrorWindow
from penstock.model.job import JobDefinition, JobState
from penstock.model.routine_properties import RoutineProperties
from penstock.model.statistics import Statistics

# A window holds this many times the rows of an epoch.
_BATCHES = 10


def next_window(
    before: ErrorWindow, epoch: Statistics, *, first: str, definition: JobDefinition
) -> ErrorWindow:
    """Answer the window behind an epoch; one that was looked at is opened anew."""
    properties = definition.properties
    if not isinstance(properties, RoutineProperties):
        return ErrorWindow()
    errors = epoch.rows_rejected - epoch.rows_foreign
    rows = before.rows + epoch.rows_read - epoch.rows_skipped
    # A window that was opened anew shows the message of the last one until an epoch is added.
    kept = before.first if before.errors else ""
    window = ErrorWindow(
        rows=rows, errors=before.errors + errors, first=first if errors else kept
    )
    tripped = _tripped(window, properties)
    if tripped:
        return ErrorWindow(first=window.first, tripped=tripped)
    return window if rows <= properties.max_batch_rows * _BATCHES else ErrorWindow()


def _tripped(window: ErrorWindow, properties: RoutineProperties) -> str:
    """Say why a window is too full; empty if it is not."""
    found = f"{window.errors} of {window.rows} rows could not be loaded"
    if window.errors > properties.max_error_number:
        return f"{found}; max_error_number is {properties.max_error_number}"
    if window.rows and window.errors / window.rows > properties.max_filter_ratio:
        return f"{found}; max_filter_ratio is {properties.max_filter_ratio:g}"
    return ""


def too_many_errors(state: JobState) -> UserError:
    """Answer the error that pauses a job whose window was too full."""
    return UserError(
        state.tripped,
        code=Code.TOO_MANY_FAILURE_ROWS_ERR,
        detail="Good rows are in the table, the others in its rejects.",
        hint="Look at its rejects(…), then RESUME the load, or raise max_error_number before.",
    )
