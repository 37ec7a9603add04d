"""Generated rows as a source: find the rows that are due, and plan epochs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

from penstock.errors import InvariantError
from penstock.model.epoch import EpochLimits, EpochPlan
from penstock.model.split import (
    Amount,
    At,
    Note,
    Position,
    Progress,
    SplitProgress,
    SplitRead,
    SplitStatus,
)
from penstock.sources.datagen.kind import (
    DATAGEN,
    DatagenOptions,
    first_row_at,
    next_row,
    position_at,
    remaining,
    row_bytes,
    rows_due,
)
from penstock.sources.registry import source_options
from penstock.sources.source import (
    EpochResult,
    Poll,
    ReportPoll,
    ShowRequest,
    Source,
    SourceServices,
)

# The overhead of a task is too large for fewer rows.
_ROWS_PER_TASK_MIN = 20_000


class DatagenSource(Source):
    """The generated rows of one job, in the driver."""

    def __init__(self, services: SourceServices) -> None:
        self._services = services
        self._options: DatagenOptions = source_options(services.state.definition.source)
        self._progress: Progress = services.state.progress
        # By split: the number of rows due at the last poll, and the end of the last plan.
        self._due: dict[str, int] = {}
        self._planned: dict[str, int] = {}
        self._polled_at: datetime | None = None

    def poll(self, progress: Progress, *, report: ReportPoll) -> Poll:
        report(f"DATAGEN: {len(progress)} splits so far")
        self._polled_at = self._services.clock.now()
        self._progress = progress
        self._planned = {}
        # Rows stay due even if the clock is set back.
        self._due = {
            split.split: max(
                rows_due(self._options, split, now=self._polled_at),
                self._due.get(split.split, 0),
            )
            for split in progress
        }
        return Poll(progress=progress, waiting=self.waiting())

    def poll_due(self, interval: timedelta) -> bool:
        polled_at = self._polled_at
        return polled_at is None or self._services.clock.now() - polled_at >= interval

    def waiting(self) -> Amount:
        left = {split.split: self._left(split) for split in self._progress}
        now = self._polled_at or self._services.clock.now()
        lags = [remaining(self._options, split, now=now).lag for split in self._progress]
        return Amount(
            items=sum(rows > 0 for rows in left.values()),
            rows=sum(left.values()),
            lag=max((lag for lag in lags if lag), default=None),
        )

    def _left(self, split: SplitProgress) -> int:
        taken = max(next_row(split, self._options), self._planned.get(split.split, 0))
        return max(0, self._due.get(split.split, 0) - taken)

    def plan(self, progress: Progress, *, limits: EpochLimits) -> EpochPlan | None:
        """Plan the due rows; no split gets more than its equal part of the limits."""
        self._progress = progress
        # Rows of a plan that was not committed are planned again only after the next poll.
        ready = [split for split in progress if self._left(split) and self._settled(split)]
        if not ready:
            return None
        columns = self._services.state.definition.source_columns
        fitting = limits.size_bytes // max(1, row_bytes(self._options, columns))
        most = max(1, min(limits.records, fitting) // len(ready))
        reads = []
        for split in ready:
            first, work = next_row(split, self._options), first_row_at(split).isoformat()
            end = first + min(most, self._left(split))
            reads.append(_read(split.split, first, end, work=work))
        ends = {read.split: _row(read.end) for read in reads}
        self._planned |= ends
        moved = (self._moved(split, ends.get(split.split)) for split in progress)
        return EpochPlan(reads=tuple(reads), progress=tuple(moved), final=True)

    def _settled(self, split: SplitProgress) -> bool:
        return next_row(split, self._options) >= self._planned.get(split.split, 0)

    def _moved(self, split: SplitProgress, row: int | None) -> SplitProgress:
        if row is None:
            return split
        position = position_at(row, self._options, int(split.split))
        return replace(split, position=position, records=row)

    def distribute(
        self, plan: EpochPlan, *, tasks: int, needed: Sequence[str]
    ) -> list[tuple[SplitRead, ...]]:
        """Divide the rows of each split into ranges, and assign the ranges to tasks in turn."""
        del needed
        parts = [part for read in plan.reads for part in _divide(read, parts=tasks)]
        return [tuple(parts[task::tasks]) for task in range(min(tasks, len(parts)))]

    def advance(self, plan: EpochPlan, notes: Sequence[Note]) -> Progress:
        """Check that the notes cover every planned row once; return the plan's progress."""
        for read in plan.reads:
            own = [note for note in notes if note.read.startswith(f"{read.split}:")]
            ranges = sorted(_range(note.result) for note in own)
            ends = [_row(read.begin), *(end for _, end in ranges)]
            starts = [start for start, _ in ranges]
            if starts != ends[:-1] or ends[-1] != _row(read.end):
                raise InvariantError(
                    f"tasks did not report the rows of split {read.split} exactly once",
                    detail=f"Planned {read.id}, reported {ranges}.",
                )
        return plan.progress

    def committed(self, progress: Progress, notes: Sequence[Note]) -> None:
        del notes
        self._progress = progress

    def heads(self) -> Mapping[str, Position]:
        return {
            split.split: At(value=str(self._due.get(split.split, 0)))
            for split in self._progress
        }

    def passed(
        self, split: str, boundary: Position, *, result: EpochResult | None = None
    ) -> bool:
        progress = self._progress if result is None else result.progress
        found = next(one for one in progress if one.split == split)
        return next_row(found, self._options) >= _row(boundary)

    def statuses(self) -> tuple[SplitStatus, ...]:
        state = replace(self._services.state, progress=self._progress)
        request = ShowRequest(state=state, memory="", at=self._services.clock.now())
        return DATAGEN.statuses(request)


def _divide(read: SplitRead, *, parts: int) -> list[SplitRead]:
    """Divide the rows of a read into at most ``parts`` ranges of sufficient size."""
    start, end = _row(read.begin), _row(read.end)
    count = max(1, min(parts, (end - start) // _ROWS_PER_TASK_MIN))
    bounds = [start + (end - start) * part // count for part in range(count + 1)]
    return [_read(read.split, *rows, work=read.work) for rows in pairwise(bounds)]


def _read(split: str, first: int, end: int, *, work: str) -> SplitRead:
    return SplitRead(
        id=f"{split}:{first}-{end}",
        split=split,
        begin=At(value=str(first)),
        end=At(value=str(end)),
        shown=split,
        work=work,
    )


def _row(position: Position | None) -> int:
    if not isinstance(position, At):
        raise InvariantError(f"position of DATAGEN must be a row number, not {position}")
    return int(position.value)


def _range(result: str) -> tuple[int, int]:
    start, _, end = result.partition("-")
    return int(start), int(end)
