"""Keyed commits of Delta tables, beyond the contract of all tables."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import (
    CommitProperties,
    DeltaTable,
    Field,
    PostCommitHookProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType

from penstock.arrow.types import arrow_schema
from penstock.errors import Code, CommitOutcomeUnknownError, UserError
from penstock.model.epoch import DataFile
from penstock.model.schema import Array, Column, Map, Primitive, Struct
from penstock.tables.delta import DeltaHandle, DeltaTables
from penstock.tables.folder import staged_folder
from penstock.tables.keyed import MERGES_MAX, KeyedCommit, StagedRows
from penstock.tables.writer import TableWriter
from tests.contract.table_building import JOB, attachment, folder_at
from tests.error_values import raises

Row = dict[str, object]

COLUMNS = (
    Column(name="id", type=Primitive.BIGINT),
    Column(name="value", type=Primitive.STRING),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed:
    """A table with keys and its jobs."""

    tables: DeltaTables
    location: str
    columns: tuple[Column, ...]

    def open(self) -> DeltaHandle:
        return self.tables.open(self.location)

    def stage(self, *rows: Row, attempt_id: str = "a") -> tuple[DataFile, ...]:
        folder = folder_at(Path(self.location))
        below = staged_folder(JOB, attempt_id)
        writer = TableWriter(folder, self.columns, "t", below=below)
        writer.write(pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(self.columns)))
        return writer.close()

    def merge(self, number: int, *rows: Row, key: tuple[str, ...] = ("id",)) -> int:
        staged = self.stage(*rows, attempt_id=f"{number}")
        return self.open().commit_keyed(attachment(number), staged, key=key)

    def rows(self) -> list[Row]:
        return sorted(DeltaTable(self.location).to_pyarrow_table().to_pylist(), key=repr)


def created(
    folder: Path, columns: tuple[Column, ...], partition_by: tuple[str, ...] = ()
) -> Keyed:
    tables = DeltaTables(str(folder))
    table = tables.create("t", columns, location=None, comment="", partition_by=partition_by)
    return Keyed(tables=tables, location=table.location, columns=columns)


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    """A table with two files."""
    keyed = created(tmp_path, COLUMNS)
    keyed.merge(1, {"id": 1, "value": "a"})
    keyed.merge(2, {"id": 2, "value": "a"})
    return keyed


def compact(location: str) -> None:
    DeltaTable(location).optimize.compact()


def delete_all(location: str) -> None:
    DeltaTable(location).delete()


@pytest.mark.parametrize(
    ("other_writer", "kept"), [(compact, [{"id": 1, "value": "a"}]), (delete_all, [])]
)
def test_a_merge_is_repeated_after_another_writer_has_replaced_files(
    keyed: Keyed, other_writer: Callable[[str], None], kept: list[Row]
) -> None:
    handle = keyed.open()
    staged = keyed.stage({"id": 2, "value": "b"})
    other_writer(keyed.location)

    version = handle.commit_keyed(attachment(3), staged, key=("id",))

    assert version == 4
    assert keyed.rows() == [*kept, {"id": 2, "value": "b"}]


def test_no_row_is_merged_after_another_writer_has_changed_the_columns(keyed: Keyed) -> None:
    handle = keyed.open()
    staged = keyed.stage({"id": 2, "value": "b"})
    DeltaTable(keyed.location).alter.add_columns([Field("note", PrimitiveType("string"))])

    with raises(CommitOutcomeUnknownError, Code.COMMIT_OUTCOME_UNKNOWN_ERR, "columns"):
        handle.commit_keyed(attachment(3), staged, key=("id",))

    assert keyed.open().newest_number(JOB) == 2


class OvertakenRows(StagedRows):
    """Staged rows; another writer appends rows before each merge of these rows."""

    def merge_into(
        self,
        table: DeltaTable,
        *,
        properties: CommitProperties,
        after: PostCommitHookProperties,
    ) -> None:
        row = pa.Table.from_pylist([{"id": 9, "value": "f"}], arrow_schema(COLUMNS))
        write_deltalake(self.folder.location, row, mode="append")
        super().merge_into(table, properties=properties, after=after)


def commit_of(keyed: Keyed, rows: type[StagedRows], staged: Sequence[DataFile]) -> KeyedCommit:
    return KeyedCommit(
        rows=rows(
            folder=folder_at(Path(keyed.location)),
            files=tuple(staged),
            columns=COLUMNS,
            key=("id",),
        ),
        attachment=attachment(3),
        snapshot=DeltaTable(keyed.location),
        properties=CommitProperties(),
        after=PostCommitHookProperties(),
    )


def test_a_merge_that_other_writers_always_precede_is_given_up(keyed: Keyed) -> None:
    commit = commit_of(keyed, OvertakenRows, keyed.stage({"id": 2, "value": "b"}))

    with raises(CommitOutcomeUnknownError, Code.COMMIT_OUTCOME_UNKNOWN_ERR, MERGES_MAX) as e:
        commit.execute()

    assert isinstance(e.value.__cause__, CommitFailedError)
    assert keyed.rows()[1] == {"id": 2, "value": "a"}
    assert keyed.open().version == 2 + MERGES_MAX


def test_no_row_is_merged_into_a_table_that_replaced_the_opened_one(keyed: Keyed) -> None:
    commit = commit_of(keyed, StagedRows, keyed.stage({"id": 2, "value": "b"}))
    keyed.tables.delete(keyed.location)
    keyed.tables.create("t", COLUMNS, location=keyed.location, comment="")
    keyed.merge(1, {"id": 1, "value": "new"})
    keyed.merge(2, {"id": 2, "value": "new"})

    with raises(UserError, Code.TABLE_CHANGED_ERR, "replaced"):
        commit.execute()

    assert keyed.open().version == 2


ODD_NAMES = ('a"b', "a`b", "a'b", "a.b", "a b", "a%20b", "Upper", "s", "t", "t.s", "ä☃")


def test_columns_can_have_any_name(tmp_path: Path) -> None:
    columns = tuple(Column(name=name, type=Primitive.BIGINT) for name in (*ODD_NAMES, "value"))
    keyed = created(tmp_path, columns)
    key: Row = dict.fromkeys(ODD_NAMES, 1)
    keyed.merge(1, key | {"value": 1}, key=ODD_NAMES)

    keyed.merge(2, key | {"value": 2}, key=ODD_NAMES)

    assert keyed.rows() == [key | {"value": 2}]


POINT = Struct(fields=(Column(name="x", type=Primitive.INT),))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (POINT, [None, {"x": None}, {"x": 1}]),
        (Array(element=Primitive.INT), [None, [], [None], [1, 2]]),
        (Map(key=Primitive.STRING, value=POINT), [None, [], [("a", None)], [("a", {"x": 1})]]),
        (Primitive.BINARY, [None, b"", b"\x00"]),
    ],
)
def test_keys_can_be_nested(
    tmp_path: Path, kind: Primitive | Struct | Array | Map, values: list[object]
) -> None:
    columns = (Column(name="key", type=kind), Column(name="value", type=Primitive.INT))
    keyed = created(tmp_path, columns)
    keyed.merge(1, *({"key": key, "value": 1} for key in values), key=("key",))

    keyed.merge(2, *({"key": key, "value": 2} for key in values), key=("key",))

    expected: list[Row] = [{"key": key, "value": 2} for key in values]
    assert keyed.rows() == sorted(expected, key=repr)


def test_merged_files_are_in_the_folders_of_their_partitions(tmp_path: Path) -> None:
    keyed = created(tmp_path, COLUMNS, partition_by=("value",))
    rows: list[Row] = [{"id": 1, "value": text} for text in (None, "", "a/b")]

    keyed.merge(1, *rows, key=("value",))

    files = keyed.open().files()
    assert {file.path.split("/")[0] for file in files} == {
        "value=__HIVE_DEFAULT_PARTITION__",
        "value=",
        "value=a%2Fb",
    }
    assert {file.partition_values[0][1] for file in files} == {None, "", "a/b"}


def test_vacuum_does_not_delete_staged_files(keyed: Keyed) -> None:
    (staged,) = keyed.stage({"id": 3, "value": "c"})

    DeltaTable(keyed.location).vacuum(
        0, dry_run=False, enforce_retention_duration=False, full=True
    )

    assert keyed.tables.missing_files(keyed.location, [staged.path]) == ()
