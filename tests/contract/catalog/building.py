"""Jobs, tables and commits for tests of the catalog, and a clock that the test moves."""

import threading
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from penstock.catalog.catalog import Catalog, TableRecord, open_catalog
from penstock.errors import Code
from penstock.model.epoch import (
    Attachment,
    CommitKind,
    Generation,
    LoadedItem,
    Statistics,
    Timings,
)
from penstock.model.events import DesiredStateChanged, EpochStarted, JobCreated, NoticesChanged
from penstock.model.job import (
    DesiredState,
    JobDefinition,
    JobState,
    Reason,
    TableRef,
    TargetColumn,
)
from penstock.model.job_kinds import JobProperties
from penstock.model.schema import Column, Decimal, Primitive
from penstock.model.split import After, Horizon, Position, SplitProgress
from penstock.sources.files.kind import FILES, FileFormat, FilesOptions
from penstock.sources.registry import source_ref

START = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
TABLE = TableRecord(
    name="orders",
    id="table-1",
    location="file:///warehouse/orders",
    managed=True,
    comment="all orders",
    created_at=START,
)
DEFINITION = JobDefinition(
    name="load_orders",
    comment="day and night",
    revision=1,
    table=TableRef(name=TABLE.name, id=TABLE.id, location=TABLE.location),
    columns=("id", "price"),
    select="SELECT id, price FROM FILES(...)",
    select_source_start=22,
    select_source_end=32,
    function="FILES",
    job_kind="STREAMING",
    source=source_ref(FILES, FilesOptions(uri="file:///in/", format=FileFormat.JSON)),
    place_columns=FILES.place_columns,
    source_columns=(
        Column(name="id", type=Primitive.BIGINT, nullable=False),
        Column(name="price", type=Decimal(precision=10, scale=2), comment="in €"),
    ),
    targets=(TargetColumn(name="id", path=("id",)), TargetColumn(name="price", path=None)),
    properties=JobProperties(max_interval=timedelta(seconds=3)),
    metadata=(("team", "sales"),),
)
JOB = "job-1"
FIRST = Generation(number=1, id="first")
SECOND = Generation(number=2, id="second")

PAUSED = DesiredStateChanged(
    state=DesiredState.PAUSE,
    reason=Reason(code=Code.MANUAL_PAUSE_ERR, message="paused by a user"),
    generation=SECOND,
    auto_resumes=3,
    resumed_at=START - timedelta(days=1),
)
COUNTED = Statistics(**{f.name: at for at, f in enumerate(fields(Statistics), start=11)})


class MovableClock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.instant = START

    def now(self) -> datetime:
        return self.instant

    def monotonic(self) -> float:
        return (self.instant - START).total_seconds()

    def wait(self, event: threading.Event, timeout: timedelta) -> bool:
        self.instant += timeout
        return event.is_set()

    def move(self, **parts: float) -> None:
        """Advance the clock."""
        self.instant += timedelta(**parts)


def progress(position: Position, *, floor: Position | None = None) -> tuple[SplitProgress, ...]:
    """Return the progress of a source with one split."""
    return (SplitProgress(split="files", floor=floor or Horizon(), position=position),)


def files(*keys: str, etag: str = "v1") -> tuple[LoadedItem, ...]:
    """Return source files with these keys."""
    return tuple(
        LoadedItem(key=key, etag=etag, size_bytes=100, modified_at=START) for key in keys
    )


def commit(number: int, *keys: str, **changes: object) -> Attachment:
    """Return the attachment of an epoch that loaded these files."""
    statistics = Statistics(rows_read=10, rows_loaded=9, rows_rejected=1, files_read=len(keys))
    attachment = Attachment(
        kind=CommitKind.EPOCH,
        job_id=JOB,
        table_id=TABLE.id,
        number=number,
        generation=FIRST,
        epoch=number - 1,
        attempt=1,
        attempt_id=f"attempt-{number}",
        revision=1,
        progress=progress(After(value=max(keys)) if keys else Horizon()),
        statistics=statistics,
        cumulative=statistics,
        items=files(*keys),
        timings=Timings(plan_seconds=0.25, run_seconds=1.5),
        committed_at=START + timedelta(minutes=number),
    )
    return replace(attachment, **changes)  # type: ignore[arg-type]


def move(number: int, floor: Position) -> Attachment:
    """Return the attachment of an ALTER that sets the position."""
    return commit(
        number,
        kind=CommitKind.MOVE,
        epoch=0,
        statistics=Statistics(),
        progress=progress(floor, floor=floor),
    )


def created(name: str = DEFINITION.name, job_id: str = JOB) -> JobCreated:
    """Return the first event of a job."""
    opening = commit(
        1, kind=CommitKind.OPENING, job_id=job_id, epoch=0, statistics=Statistics()
    )
    return JobCreated(
        definition=replace(DEFINITION, name=name),
        generation=FIRST,
        opening=replace(opening, cumulative=Statistics()),
        table_version=1,
    )


def modified(files: int) -> NoticesChanged:
    """Return the event of files that changed after they were loaded."""
    return NoticesChanged(notices=(("files_modified", files),))


def started(epoch: int, attempt: int = 1) -> EpochStarted:
    """Return the start of the attempt that ``commit(epoch + 1)`` ends."""
    return EpochStarted(
        attempt_id=f"attempt-{epoch + 1}" if attempt == 1 else f"attempt-{epoch + 1}-{attempt}",
        epoch=epoch,
        attempt=attempt,
        progress=progress(After(value="z")),
        items=3,
        size_bytes=300,
        plan_seconds=0.25,
    )


def create_job(catalog: Catalog, name: str = DEFINITION.name, job_id: str = JOB) -> JobState:
    """Store a job, and its table if the table does not exist."""
    if catalog.table(TABLE.name) is None:
        catalog.create_table(TABLE)
    return catalog.create_job(job_id, created(name, job_id))


def apply(catalog: Catalog, attachment: Attachment) -> JobState:
    """Apply a commit to the catalog."""
    return catalog.apply_commit(
        attachment.job_id, attachment, table_version=attachment.number, commit_seconds=0.125
    )


class SqliteStore:
    """A catalog in a file, which survives the process that opened it."""

    def __init__(self, folder: Path, clock: MovableClock) -> None:
        self._url = f"sqlite:///{folder / 'catalog.db'}"
        self._clock = clock

    def open(self) -> Catalog:
        """Open the catalog as a new process does."""
        return open_catalog(self._url, clock=self._clock)


STORES = (SqliteStore,)
