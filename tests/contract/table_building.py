"""Values for tests of tables: attachments, data files, folders."""

from datetime import UTC, datetime
from pathlib import Path

from penstock.model.epoch import (
    Attachment,
    CommitKind,
    DataFile,
    Generation,
    Statistics,
    Timings,
)
from penstock.model.schema import Column, Primitive
from penstock.model.split import After, Horizon, SplitProgress
from penstock.storage.options import StoreOptions
from penstock.tables.folder import TableFolder, open_folder

NOW = datetime(2026, 11, 15, 12, 30, tzinfo=UTC)
COLUMNS = (Column(name="id", type=Primitive.BIGINT),)
JOB = "6d9a1b9e-0000-4000-8000-000000000001"
OTHER_JOB = "6d9a1b9e-0000-4000-8000-000000000002"


def folder_at(path: Path) -> TableFolder:
    """Return a local folder as the folder of a table."""
    return open_folder(str(path), StoreOptions())


def data_file(path: str) -> DataFile:
    return DataFile(
        path=path, size_bytes=4, rows=1, modified_at=NOW, statistics_json='{"numRecords":1}'
    )


def open_files(folder: Path) -> list[Path]:
    """List the files below a folder that this process has open."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [link.readlink() for link in links if link.readlink().is_relative_to(folder)]


def attachment(number: int, *, job_id: str = JOB, attempt_id: str = "") -> Attachment:
    return Attachment(
        kind=CommitKind.EPOCH,
        job_id=job_id,
        table_id="t",
        number=number,
        generation=Generation(number=2, id="g"),
        epoch=number,
        attempt=1,
        attempt_id=attempt_id or f"attempt-{job_id}-{number}",
        revision=1,
        progress=(
            SplitProgress(
                split="", floor=Horizon(), position=After(value=f'in/"{number}".json')
            ),
        ),
        statistics=Statistics(rows_read=1, rows_loaded=1),
        cumulative=Statistics(rows_read=number, rows_loaded=number),
        items=(),
        timings=Timings(),
        committed_at=NOW,
    )
