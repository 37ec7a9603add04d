"""Check task reports against the plan, count rows, and apply the error limits.

An epoch never fails by its rows: the good ones are committed, the others kept in rejects(), and
the commit itself says whether the window is too full. Whoever finds that pauses the job.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import assert_never

from penstock.errors import Code, InvariantError, UserError
from penstock.model.epoch import (
    Ack,
    EpochPlan,
    ErrorWindow,
    FilePart,
    Note,
    SourceFile,
    Statistics,
)
from penstock.model.job import JobDefinition, JobState
from penstock.model.job_kinds import RoutineProperties
from penstock.model.split import ShardPart, ShardRead


def check_cover(plan: EpochPlan, acks: Sequence[Ack]) -> None:
    """Require that the acks cover every planned byte and every planned shard exactly once."""
    files: dict[str, list[FilePart]] = defaultdict(list)
    shards: dict[str, list[ShardPart]] = defaultdict(list)
    for note in notes_of(acks):
        match note.part:
            case FilePart() as part:
                files[part.key].append(part)
            case ShardPart() as part:
                shards[part.shard].append(part)
            case _:
                assert_never(note.part)
    for file in plan.files:
        _check_file(file, files.pop(file.key, []))
    for read in plan.shards:
        _check_shard(read, shards.pop(read.shard.id, []))
    for what, unplanned in (("file", files), ("shard", shards)):
        if unplanned:
            raise InvariantError(
                f'tasks reported {what} "{min(unplanned)}", which was not planned'
            )


def notes_of(acks: Sequence[Ack]) -> tuple[Note, ...]:
    """Answer the notes of all tasks."""
    return tuple(note for ack in acks for note in ack.notes)


def _check_file(file: SourceFile, parts: list[FilePart]) -> None:
    parts = sorted(parts, key=lambda part: (part.start, part.end))
    ends = [0, *(part.end for part in parts)]
    contiguous = all(part.start == end for part, end in zip(parts, ends, strict=False))
    pinned = all(part.etag == file.etag for part in parts)
    if not (parts and contiguous and pinned and ends[-1] == file.size_bytes):
        ranges = ", ".join(f"{part.start}..{part.end}" for part in parts) or "nothing"
        raise InvariantError(
            f'tasks did not report file "{file.key}" exactly once',
            detail=f"Planned 0..{file.size_bytes}, reported {ranges}.",
        )


def _check_shard(read: ShardRead, parts: list[ShardPart]) -> None:
    if [part.begin for part in parts] != [read.begin]:
        begins = ", ".join(str(part.begin) for part in parts) or "nothing"
        raise InvariantError(
            f'tasks did not report shard "{read.shard.id}" exactly once',
            detail=f"Planned from {read.begin}, reported from {begins}.",
        )


def count(plan: EpochPlan, acks: Sequence[Ack], *, row_wise: bool) -> Statistics:
    """Add up what the tasks report; refuse figures that do not balance."""
    notes = notes_of(acks)
    files = [file for ack in acks for file in ack.files]
    misfit = sum(ack.rows_misfit for ack in acks)
    statistics = Statistics(
        rows_read=sum(note.rows_read for note in notes),
        rows_skipped=sum(note.rows_skipped for note in notes),
        rows_parsed=sum(note.rows_parsed for note in notes),
        rows_produced=sum(ack.rows_produced for ack in acks),
        rows_loaded=sum(file.rows for file in files),
        rows_rejected=sum(note.rows_rejected for note in notes) + misfit,
        rows_misfit=misfit,
        rows_foreign=sum(note.rows_foreign for note in notes),
        records_read=sum(note.records for note in notes),
        files_read=len(plan.files),
        bytes_read=plan.size_bytes + sum(note.size_bytes for note in notes),
        files_written=len(files),
        bytes_written=sum(file.size_bytes for file in files),
    )
    kept = sum(file.rows for ack in acks for file in ack.reject_files)
    if not statistics.balanced or (row_wise and statistics.rows_unselected < 0):
        raise InvariantError(
            "rows read are not rows loaded, rejected, skipped or left out by the SELECT",
            detail=str(statistics),
        )
    if kept != statistics.rows_rejected:
        raise InvariantError(
            f"{statistics.rows_rejected} rows were rejected, but {kept} were kept",
            detail=str(statistics),
        )
    return statistics


def require_few_rejects(
    statistics: Statistics, acks: Sequence[Ack], *, ratio_max: float
) -> None:
    """Refuse an epoch of which more rows were rejected than the job bears."""
    if statistics.filtered_ratio > ratio_max:
        first = next(ack.first_reject for ack in acks if ack.first_reject)
        wanted = statistics.rows_loaded + statistics.rows_rejected
        raise UserError(
            f"{statistics.rows_rejected} of {wanted} rows cannot be loaded, which is more than "
            f"{ratio_max:g} of them; the first: {first}",
            code=Code.TOO_MANY_FAILURE_ROWS_ERR,
            detail="The epoch was not committed; nothing of it is in the table.",
            hint=(
                "Mend or remove the files, or raise "
                '"session.insert_max_filter_ratio" with ALTER JOB; then RESUME the job.'
            ),
        )


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
