"""Check what the tasks report against what was planned, and count it."""

from collections import defaultdict
from collections.abc import Sequence

from penstock.errors import Code, InvariantError, UserError
from penstock.model.epoch import Ack, EpochPlan, Note
from penstock.model.statistics import Statistics


def check_cover(plan: EpochPlan, acks: Sequence[Ack]) -> None:
    """Require that the acks cover every planned byte of every file exactly once."""
    notes_by_key: dict[str, list[Note]] = defaultdict(list)
    for ack in acks:
        for note in ack.notes:
            notes_by_key[note.key].append(note)
    for file in plan.files:
        notes = sorted(notes_by_key.pop(file.key, []), key=lambda note: (note.start, note.end))
        ends = [0, *(note.end for note in notes)]
        contiguous = all(note.start == end for note, end in zip(notes, ends, strict=False))
        pinned = all(note.etag == file.etag for note in notes)
        if not (notes and contiguous and pinned and ends[-1] == file.size_bytes):
            ranges = ", ".join(f"{note.start}..{note.end}" for note in notes) or "nothing"
            raise InvariantError(
                f'tasks did not report file "{file.key}" exactly once',
                detail=f"Planned 0..{file.size_bytes}, reported {ranges}.",
            )
    if notes_by_key:
        raise InvariantError(
            f'tasks reported file "{min(notes_by_key)}", which was not planned'
        )


def count(plan: EpochPlan, acks: Sequence[Ack], *, row_wise: bool) -> Statistics:
    """Add up what the tasks report; refuse figures that do not balance."""
    notes = [note for ack in acks for note in ack.notes]
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
        files_read=len(plan.files),
        bytes_read=plan.size_bytes,
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
