"""Write record batches to the Parquet files of a table."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.arrow.types import arrow_schema
from penstock.errors import Code, ExternalError, InvariantError
from penstock.model.schema import Column, Primitive
from penstock.tables import writer as writer_module
from penstock.tables.writer import TableWriter
from tests.contract.table_building import folder_at
from tests.error_values import raises

COLUMNS = (
    Column(name="id", type=Primitive.BIGINT, nullable=False),
    Column(name="note", type=Primitive.STRING),
)


def batch(*ids: int, note: str = "n") -> pa.RecordBatch:
    rows = [{"id": number, "note": note} for number in ids]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(COLUMNS))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_batches_of_one_task_become_one_file(tmp_path: Path) -> None:
    writer = TableWriter(folder_at(tmp_path), COLUMNS, "7-abc")
    writer.write(batch(1, 2))
    writer.write(batch(3))

    (file,) = writer.close()

    path = tmp_path / "part-7-abc-0.parquet"
    assert (file.path, file.rows) == (path.name, 3)
    assert file.size_bytes == path.stat().st_size
    assert abs(file.modified_at - datetime.now(UTC)) < timedelta(minutes=1)
    assert pq.read_table(path).column("id").to_pylist() == [1, 2, 3]


def test_no_file_is_written_without_a_row(tmp_path: Path) -> None:
    writer = TableWriter(folder_at(tmp_path), COLUMNS, "t")
    writer.write(batch())

    assert writer.close() == ()
    assert names(tmp_path) == []


def test_a_full_file_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_FILE_BYTES_MAX", 1)
    writer = TableWriter(folder_at(tmp_path), COLUMNS, "t")
    large = "x" * 2**20
    for first in (0, 40, 80):
        writer.write(batch(*range(first, first + 40), note=large))

    files = writer.close()

    assert [file.path for file in files] == ["part-t-0.parquet", "part-t-1.parquet"]
    assert [file.rows for file in files] == [80, 40]
    assert names(tmp_path) == [file.path for file in files]


def test_an_aborted_writer_deletes_all_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_FILE_BYTES_MAX", 1)
    writer = TableWriter(folder_at(tmp_path), COLUMNS, "t")
    for first in (0, 40, 80):
        writer.write(batch(*range(first, first + 40), note="x" * 2**20))
    assert names(tmp_path) == ["part-t-0.parquet"]

    writer.abort()

    assert names(tmp_path) == []


def test_files_can_be_written_below_a_folder_and_are_deleted_with_it(tmp_path: Path) -> None:
    writer = TableWriter(
        folder_at(tmp_path), COLUMNS, "t", partition_by=("note",), below="staged/a"
    )
    writer.write(batch(1, note="x"))

    (file,) = writer.close()

    assert file.path == "staged/a/note=x/part-t-0.parquet"
    assert (tmp_path / file.path).stat().st_size == file.size_bytes
    writer.abort()
    assert names(tmp_path) == []


def test_a_writer_aborted_after_close_deletes_its_files(tmp_path: Path) -> None:
    writer = TableWriter(folder_at(tmp_path), COLUMNS, "t")
    writer.write(batch(1))
    writer.close()

    writer.abort()

    assert names(tmp_path) == []


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "part-t-0.parquet").write_bytes(b"committed")
    writer = TableWriter(folder_at(tmp_path), COLUMNS, "t")
    writer.write(batch(1))

    with raises(InvariantError, Code.INTERNAL_ERR, "part-t-0.parquet"):
        writer.close()
    writer.abort()

    assert (tmp_path / "part-t-0.parquet").read_bytes() == b"committed"


def test_a_batch_of_another_schema_is_refused(tmp_path: Path) -> None:
    writer = TableWriter(folder_at(tmp_path), COLUMNS, "t")

    with raises(InvariantError, Code.INTERNAL_ERR, "batch", "id: int64"):
        writer.write(pa.RecordBatch.from_pydict({"id": [1], "note": ["n"]}))


def test_a_missing_folder_raises_external_error(tmp_path: Path) -> None:
    writer = TableWriter(folder_at(tmp_path / "missing"), COLUMNS, "t")
    writer.write(batch(1))

    with raises(ExternalError, Code.STORAGE_ERR, "/missing/part-") as caught:
        writer.close()

    assert caught.value.code is Code.STORAGE_ERR
    assert caught.value.hint


def test_whole_numbers_are_packed_and_texts_have_dictionaries(tmp_path: Path) -> None:
    writer = TableWriter(folder_at(tmp_path), COLUMNS, "t")
    writer.write(batch(1, 2))
    writer.close()

    group = pq.ParquetFile(tmp_path / "part-t-0.parquet").metadata.row_group(0)

    assert "DELTA_BINARY_PACKED" in group.column(0).encodings
    assert "RLE_DICTIONARY" in group.column(1).encodings
    assert group.column(0).compression == "ZSTD"
