"""Delta tables, beyond the contract of all tables."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.errors import Code, CommitOutcomeUnknownError, ExternalError, UserError
from penstock.model.job import TableRef
from penstock.model.schema import Array, Column, DataType, Map, Primitive, Struct
from penstock.storage.options import StoreOptions
from penstock.tables.chain import log_entry
from penstock.tables.delta import DeltaTables
from tests.contract.table_building import COLUMNS, JOB, OTHER_JOB, attachment
from tests.error_values import assert_names, raises


@pytest.fixture
def tables(tmp_path: Path) -> DeltaTables:
    return DeltaTables(str(tmp_path / "warehouse"))


@pytest.fixture
def table(tables: DeltaTables) -> TableRef:
    return tables.create("orders", COLUMNS, location=None, comment="what was ordered")


def commit_through_new_handle(tables: DeltaTables, table: TableRef, number: int) -> int:
    return tables.open(table.location).commit(attachment(number), [])


def test_the_log_has_the_name_and_the_comment_of_the_table(table: TableRef) -> None:
    metadata = DeltaTable(table.location).metadata()

    assert (metadata.name, metadata.description) == ("orders", "what was ordered")


@pytest.mark.parametrize("name", ["a b", "a%20b", "a#b", "a?b", "ä☃", "../../etc", "x" * 300])
def test_a_table_of_any_name_is_inside_the_warehouse(tables: DeltaTables, name: str) -> None:
    created = tables.create(name, COLUMNS, location=None, comment="")

    assert str(Path(created.location).parent) == tables.warehouse
    assert tables.open(created.location).table_id == created.id


@pytest.mark.parametrize("folder", ["a b", "a+b", "a#b", "a?b", "a:b", "ä☃"])
def test_a_location_is_used_literally(tables: DeltaTables, tmp_path: Path, folder: str) -> None:
    location = f"file://{tmp_path}/{folder}/"

    created = tables.create("orders", COLUMNS, location=location, comment="")

    assert created.location == str(tmp_path / folder)
    assert (tmp_path / folder / log_entry(0)).exists()
    assert tables.open(location).table_id == created.id


@pytest.mark.parametrize("location", ["orders", "file://orders", "/", "file:///", "./x"])
def test_a_location_that_is_not_an_absolute_folder_path_is_refused(
    tables: DeltaTables, location: str
) -> None:
    with raises(UserError, Code.OPTION_ERR, "location", "absolute"):
        tables.create("orders", COLUMNS, location=location, comment="")


def test_a_location_with_a_percent_sign_is_refused(tables: DeltaTables, tmp_path: Path) -> None:
    with raises(UserError, Code.OPTION_ERR, "a%20b", "percent"):
        tables.create("orders", COLUMNS, location=str(tmp_path / "a%20b"), comment="")


@pytest.mark.parametrize(
    ("location", "named"),
    [
        ("s3://b/orders", ('"s3://b/orders"', "s3://", '"b"')),
        ("s3:///orders", ('"s3:///orders"', "s3://", '""')),
        ("s3://Bucket/a", ('"s3://Bucket/a"', "s3://", '"Bucket"')),
        ("s3://bucket", ('"s3://bucket"',)),
        ("s3://bucket/", ('"s3://bucket/"',)),
        ("s3://bucket/a//b", ('"a//b"', '"."', '".."')),
        ("s3://bucket/a/../b", ('"a/../b"', '"."', '".."')),
        (
            "hdfs://host/orders",
            ('"hdfs://host/orders"', "file://", "s3://", "gs://", "az://", "hdfs://"),
        ),
    ],
)
def test_a_malformed_location_is_refused(
    tables: DeltaTables, location: str, named: tuple[str, ...]
) -> None:
    with pytest.raises(UserError) as caught:
        tables.create("orders", COLUMNS, location=location, comment="")

    assert_names(caught.value.message, *named)
    assert caught.value.code is Code.OPTION_ERR


@pytest.mark.parametrize(
    ("location", "normal"),
    [
        ("s3://bucket/orders", "s3://bucket/orders"),
        ("s3a://bucket/all/orders/", "s3://bucket/all/orders"),
        ("GS://bucket/orders", "gs://bucket/orders"),
        ("az://bucket/orders", "az://bucket/orders"),
    ],
)
def test_a_location_in_a_bucket_is_normalized(location: str, normal: str) -> None:
    options = StoreOptions(access_key="some", secret_key="one")  # noqa: S106
    tables = DeltaTables("/warehouse", options=lambda: options)

    assert tables.normal_location(location) == normal


def test_no_table_is_created_in_a_folder_with_files(
    tables: DeltaTables, tmp_path: Path
) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "letter.txt").write_text("dear")

    with raises(UserError, Code.TABLE_ERR, '/given"', "empty"):
        tables.create("orders", COLUMNS, location=str(tmp_path / "given"), comment="")


def test_a_table_is_created_in_an_empty_folder(tables: DeltaTables, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()

    created = tables.create("orders", COLUMNS, location=str(tmp_path / "given"), comment="")

    assert tables.open(created.location).version == 0


def test_a_location_inside_a_file_raises_external_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")

    with raises(ExternalError, Code.STORAGE_ERR, '"orders"', "/file/orders-") as caught:
        DeltaTables(str(tmp_path / "file")).create("orders", COLUMNS, location=None, comment="")

    assert caught.value.code is Code.STORAGE_ERR
    assert caught.value.hint


def test_a_table_without_columns_is_refused(tables: DeltaTables) -> None:
    with raises(UserError, Code.TABLE_ERR, '"orders"', "column"):
        tables.create("orders", (), location=None, comment="")


def test_columns_that_differ_only_in_case_are_refused(tables: DeltaTables) -> None:
    columns = (
        Column(name="id", type=Primitive.BIGINT),
        Column(name="ID", type=Primitive.STRING),
    )

    with raises(UserError, Code.TABLE_ERR, '"orders"', "'ID'") as caught:
        tables.create("orders", columns, location=None, comment="")

    assert "'ID'" in caught.value.detail


@pytest.mark.parametrize(
    "kind",
    [
        Map(key=Primitive.STRING, value=Primitive.TIMESTAMP_NTZ),
        Array(element=Map(key=Primitive.STRING, value=Array(element=Primitive.TIMESTAMP_NTZ))),
        Struct(
            fields=(
                Column(
                    name="m",
                    type=Map(key=Primitive.TIMESTAMP_NTZ, value=Primitive.STRING),
                ),
            )
        ),
    ],
)
def test_a_type_that_delta_rs_stores_wrongly_is_refused(
    tables: DeltaTables, kind: DataType
) -> None:
    with raises(UserError, Code.NOT_SUPPORTED_ERR, '"m"', "TIMESTAMP_NTZ", "MAP"):
        tables.create("t", (Column(name="m", type=kind),), location=None, comment="")


def test_an_append_of_another_writer_between_refresh_and_commit_is_no_conflict(
    tables: DeltaTables, table: TableRef
) -> None:
    handle = tables.open(table.location)
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    for _ in range(3):
        write_deltalake(table.location, rows, mode="append")

    version = handle.commit(attachment(1), [])

    assert version == 4
    assert tables.open(table.location).chain_after(JOB, 0)[0].table_version == 4


def test_a_commit_for_an_old_schema_is_refused(tables: DeltaTables, table: TableRef) -> None:
    handle = tables.open(table.location)
    DeltaTable(table.location).alter.add_columns(
        DeltaTable(table.location).schema().from_json(_NEW_COLUMN).fields
    )

    with pytest.raises(CommitOutcomeUnknownError):
        handle.commit(attachment(1), [])

    handle.refresh()
    assert handle.newest_number(JOB) == 0
    assert [column.name for column in handle.columns()] == ["id", "note"]


_NEW_COLUMN = (
    '{"type":"struct","fields":[{"name":"note","type":"string","nullable":true,"metadata":{}}]}'
)


def test_numbers_remain_after_checkpoints_and_no_commit_cleans_the_log(
    tables: DeltaTables, table: TableRef
) -> None:
    # The retention of every log entry is over.
    DeltaTable(table.location).alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 0 seconds"}
    )
    handle = tables.open(table.location)
    for number in range(1, 103):
        handle.refresh()
        handle.commit(attachment(number), [])

    reopened = tables.open(table.location)

    assert list((Path(table.location) / "_delta_log").glob("*.checkpoint.parquet"))
    assert reopened.newest_number(JOB) == 102
    assert len(reopened.chain_after(JOB, 0)) == 102
    assert (Path(table.location) / log_entry(0)).exists()


def test_log_entries_of_other_writers_are_skipped(tables: DeltaTables, table: TableRef) -> None:
    commit_through_new_handle(tables, table, 1)
    rows = pa.table({"id": pa.array([1], pa.int64())})
    write_deltalake(table.location, rows, mode="append")
    tables.open(table.location).commit(attachment(1, job_id=OTHER_JOB), [])

    chain = tables.open(table.location).chain_after(JOB, 0)

    assert [commit.attachment for commit in chain] == [attachment(1)]


def test_only_the_needed_part_of_the_log_is_read(tables: DeltaTables, table: TableRef) -> None:
    for number in (1, 2, 3):
        commit_through_new_handle(tables, table, number)
    handle = tables.open(table.location)
    (Path(table.location) / log_entry(1)).write_text("not read")

    chain = handle.chain_after(JOB, 2)

    assert [commit.attachment.number for commit in chain] == [3]


def test_a_broken_copy_is_refused_with_its_number(tables: DeltaTables, table: TableRef) -> None:
    for number in (1, 2):
        commit_through_new_handle(tables, table, number)
    handle = tables.open(table.location)
    handle.write_copy(attachment(1))
    copy = Path(table.location) / "_penstock" / JOB / "1.json"
    copy.write_text(copy.read_text()[:50])
    (Path(table.location) / log_entry(1)).unlink()

    with raises(UserError, Code.CANNOT_RESUME_ERR, "commit 1") as caught:
        handle.chain_after(JOB, 0)

    assert caught.value.code is Code.CANNOT_RESUME_ERR


def test_vacuum_keeps_copies_and_copies_create_no_other_files(
    tables: DeltaTables, table: TableRef
) -> None:
    handle = tables.open(table.location)
    handle.write_copy(attachment(1))

    DeltaTable(table.location).vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True
    )

    folder = Path(table.location) / "_penstock" / JOB
    assert [path.name for path in folder.iterdir()] == ["1.json"]


def test_a_folder_without_a_table_is_not_deleted(tables: DeltaTables, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")

    tables.delete(str(tmp_path / "home"))

    assert (tmp_path / "home" / "letter.txt").read_text() == "dear"


def test_an_interrupted_delete_can_be_repeated(tables: DeltaTables, table: TableRef) -> None:
    folder = Path(table.location)
    (folder / "part-a-0.parquet").write_bytes(b"rows")
    (folder / "_penstock").mkdir()
    for entry in (folder / "_delta_log").iterdir():
        entry.unlink()

    tables.delete(table.location)

    assert not folder.exists()


def test_the_contract_of_tables_needs_neither_deltalake_nor_pyarrow() -> None:
    code = (
        "import sys, penstock.tables.table; print({'deltalake', 'pyarrow'} & set(sys.modules))"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "set()"


def test_partition_columns_of_a_table_of_another_writer_are_read_from_its_log(
    tables: DeltaTables, tmp_path: Path
) -> None:
    rows = pa.table({"id": pa.array([1], pa.int64()), "city": ["a"]})
    write_deltalake(str(tmp_path / "theirs"), rows, partition_by=["city"])

    handle = tables.open(str(tmp_path / "theirs"))

    assert handle.partition_columns() == ("city",)
    assert [column.name for column in handle.columns()] == ["id", "city"]


def test_a_table_of_another_writer_with_unsupported_partition_columns_is_refused(
    tables: DeltaTables, tmp_path: Path
) -> None:
    rows = pa.table({"id": pa.array([1], pa.int64()), "weight": [1.5]})
    write_deltalake(str(tmp_path / "theirs"), rows, partition_by=["weight"])

    with raises(UserError, Code.TYPE_ERR, '"weight"', "DOUBLE"):
        tables.open(str(tmp_path / "theirs")).partition_columns()
