"""Check what the tasks report against what was planned, and count it."""

from collections import defaultdict
from collections.abc import Sequence

from penstock.errors import InvariantError
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


def count(plan: EpochPlan, acks: Sequence[Ack]) -> Statistics:
    """Add up what the tasks report; refuse figures that do not balance."""
    notes = [note for ack in acks for note in ack.notes]
    files = [file for ack in acks for file in ack.files]
    statistics = Statistics(
        rows_read=sum(note.rows_read for note in notes),
        rows_loaded=sum(file.rows for file in files),
        rows_rejected=sum(note.rows_rejected for note in notes),
        rows_skipped=sum(note.rows_skipped for note in notes),
        files_read=len(plan.files),
        bytes_read=plan.size_bytes,
        files_written=len(files),
        bytes_written=sum(file.size_bytes for file in files),
    )
    if not statistics.balanced:
        raise InvariantError(
            "rows read are not rows loaded, rejected or skipped", detail=str(statistics)
        )
    return statistics
