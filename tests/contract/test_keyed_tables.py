"""The contract of keyed commits, for Delta tables on a disk and for fake tables in memory."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.arrow.types import arrow_schema
from penstock.errors import (
    Code,
    CommitOutcomeUnknownError,
    ExternalError,
    InvariantError,
    UserError,
)
from penstock.model.epoch import DataFile
from penstock.model.job import TableRef
from penstock.model.schema import Column, Decimal, Primitive
from penstock.tables.chain import newest_commit
from penstock.tables.delta import DeltaTables
from penstock.tables.folder import staged_folder
from penstock.tables.table import ChainCommit, Tables
from penstock.tables.writer import TableWriter
from penstock.testing.memory_tables import MemoryTables
from tests.contract.table_building import JOB, OTHER_JOB, attachment, data_file, folder_at
from tests.error_values import raises

Row = dict[str, Any]

COLUMNS = (
    Column(name="id", type=Primitive.BIGINT),
    Column(name="city", type=Primitive.STRING),
    Column(name="ratio", type=Primitive.DOUBLE),
)
SCHEMA = arrow_schema(COLUMNS)


def row(number: int | None, city: str | None = "Bern", ratio: float = 0.0) -> Row:
    return {"id": number, "city": city, "ratio": ratio}


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Tables of one kind; ``write`` writes rows below a folder of the table."""

    tables: Tables
    write: Callable[[TableRef, str, Sequence[Row]], tuple[DataFile, ...]]
    foreign_append: Callable[[str, list[Row]], None]
    all_rows: Callable[[str], Sequence[Any]]

    def stage(
        self, table: TableRef, *rows: Row, job_id: str = JOB, attempt_id: str = "a"
    ) -> tuple[DataFile, ...]:
        """Write a file for each row, because an epoch has many tasks."""
        folder = staged_folder(job_id, attempt_id)
        return tuple(file for row in rows for file in self.write(table, folder, [row]))

    def merge(self, table: TableRef, number: int, *rows: Row, key: tuple[str, ...]) -> int:
        handle = self.tables.open(table.location)
        return handle.commit_keyed(attachment(number), self.stage(table, *rows), key=key)

    def rows(self, table: TableRef) -> list[Row]:
        return sorted(self.all_rows(table.location), key=repr)


def memory_world() -> World:
    tables = MemoryTables()
    numbers = count()

    def write(_table: TableRef, below: str, rows: Sequence[Row]) -> tuple[DataFile, ...]:
        path = f"{below}/part-{next(numbers)}.parquet"
        tables.register_rows(path, rows)
        return (data_file(path),)

    return World(
        tables=tables, write=write, foreign_append=tables.foreign_commit, all_rows=tables.rows
    )


def delta_world(folder: Path) -> World:
    numbers = count()

    def write(table: TableRef, below: str, rows: Sequence[Row]) -> tuple[DataFile, ...]:
        place = folder_at(Path(table.location))
        writer = TableWriter(place, COLUMNS, f"{next(numbers)}", below=below)
        writer.write(pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA))
        return writer.close()

    def foreign_append(location: str, rows: list[Row]) -> None:
        write_deltalake(location, pa.Table.from_pylist(rows, schema=SCHEMA), mode="append")

    def all_rows(location: str) -> list[Row]:
        return DeltaTable(location).to_pyarrow_table().to_pylist()

    return World(
        tables=DeltaTables(str(folder)),
        write=write,
        foreign_append=foreign_append,
        all_rows=all_rows,
    )


@pytest.fixture(params=["memory", "delta"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return memory_world() if request.param == "memory" else delta_world(tmp_path)


@pytest.fixture
def table(world: World) -> TableRef:
    return world.tables.create("cities", COLUMNS, location=None, comment="")


def test_a_staged_row_replaces_the_row_with_its_key_or_is_added(
    world: World, table: TableRef
) -> None:
    world.tables.open(table.location).commit(
        attachment(1), world.write(table, "appended", [row(1, ratio=0.1), row(2, ratio=0.2)])
    )

    version = world.merge(table, 2, row(2, ratio=2.0), row(3, ratio=3.0), key=("id",))

    assert version == 2
    assert world.rows(table) == [row(1, ratio=0.1), row(2, ratio=2.0), row(3, ratio=3.0)]
    assert world.tables.open(table.location).detail().rows == 3


def test_a_null_key_is_equal_to_another_null_key(world: World, table: TableRef) -> None:
    world.merge(table, 1, row(None, ratio=0.1), row(0, ratio=0.1), key=("id",))

    world.merge(table, 2, row(None, ratio=2.0), key=("id",))

    assert world.rows(table) == [row(0, ratio=0.1), row(None, ratio=2.0)]


def test_all_columns_of_a_key_are_compared(world: World, table: TableRef) -> None:
    kept = [row(1, "Bern"), row(1, None), row(2, "Bern")]
    world.merge(table, 1, *kept, row(2, None), key=("city", "id"))

    world.merge(table, 2, row(2, None, ratio=2.0), key=("city", "id"))

    assert world.rows(table) == [*kept, row(2, None, ratio=2.0)]


def test_a_nan_key_equals_nan_and_negative_zero_equals_zero(
    world: World, table: TableRef
) -> None:
    world.merge(table, 1, row(1, ratio=math.nan), row(1, ratio=0.0), key=("ratio",))

    world.merge(table, 2, row(2, ratio=math.nan), row(2, ratio=-0.0), key=("ratio",))

    assert [found["id"] for found in world.rows(table)] == [2, 2]


def test_a_table_with_an_empty_key_has_one_row(world: World, table: TableRef) -> None:
    world.merge(table, 1, row(1), key=())

    world.merge(table, 2, row(2), key=())

    assert world.rows(table) == [row(2)]


@pytest.mark.parametrize(
    ("key", "rows"),
    [
        (("id",), [row(1, "a"), row(2), row(1, "b")]),
        (("id",), [row(None, "a"), row(None, "b")]),
        (("city", "id"), [row(1, None), row(2, None), row(1, None, ratio=2.0)]),
        (("ratio",), [row(1, ratio=math.nan), row(2, ratio=math.nan)]),
        (("ratio",), [row(1, ratio=0.0), row(2, ratio=-0.0)]),
        ((), [row(1), row(2)]),
    ],
)
def test_two_staged_rows_with_the_same_key_are_never_committed(
    world: World, table: TableRef, key: tuple[str, ...], rows: list[Row]
) -> None:
    with raises(InvariantError, Code.INTERNAL_ERR, *(f'"{name}"' for name in key)):
        world.merge(table, 1, *rows, key=key)

    assert world.tables.open(table.location).version == 0


def test_a_key_of_other_columns_is_refused(world: World, table: TableRef) -> None:
    with raises(InvariantError, Code.INTERNAL_ERR, "country"):
        world.merge(table, 1, row(1), key=("id", "country"))

    assert world.tables.open(table.location).version == 0


def test_a_keyed_commit_without_staged_rows_changes_no_row(
    world: World, table: TableRef
) -> None:
    world.merge(table, 1, row(1), key=("id",))

    version = world.merge(table, 2, key=("id",))

    handle = world.tables.open(table.location)
    assert (version, handle.newest_number(JOB)) == (2, 2)
    assert world.rows(table) == [row(1)]


def test_a_keyed_commit_is_the_newest_commit_of_the_job_after_a_refresh(
    world: World, table: TableRef
) -> None:
    handle = world.tables.open(table.location)

    handle.commit_keyed(attachment(1), world.stage(table, row(1)), key=("id",))

    assert (handle.version, handle.newest_number(JOB)) == (0, 0)
    handle.refresh()
    expected = ChainCommit(attachment=attachment(1), table_version=1)
    assert newest_commit(handle, job_id=JOB) == expected


def test_rows_that_another_writer_appended_meanwhile_are_merged_too(
    world: World, table: TableRef
) -> None:
    world.merge(table, 1, row(1), key=("id",))
    handle = world.tables.open(table.location)
    staged = world.stage(table, row(1, ratio=2.0), row(2, ratio=2.0))
    world.foreign_append(table.location, [row(2), row(3)])

    version = handle.commit_keyed(attachment(2), staged, key=("id",))

    assert version == 3
    assert world.rows(table) == [row(1, ratio=2.0), row(2, ratio=2.0), row(3)]
    chain = world.tables.open(table.location).chain_after(JOB, 0)
    assert [commit.table_version for commit in chain] == [1, 3]


def test_a_keyed_commit_after_a_commit_of_another_job_is_committed(
    world: World, table: TableRef
) -> None:
    handle = world.tables.open(table.location)
    world.tables.open(table.location).commit(attachment(1, job_id=OTHER_JOB), [])

    version = handle.commit_keyed(attachment(1), world.stage(table, row(1)), key=("id",))

    assert version == 2
    assert world.rows(table) == [row(1)]


def test_a_keyed_commit_after_another_commit_of_the_job_is_refused(
    world: World, table: TableRef
) -> None:
    handle = world.tables.open(table.location)
    world.tables.open(table.location).commit(attachment(1, attempt_id="other"), [])

    with raises(CommitOutcomeUnknownError, Code.COMMIT_OUTCOME_UNKNOWN_ERR, "commit 1"):
        handle.commit_keyed(attachment(1), world.stage(table, row(1)), key=("id",))

    assert world.tables.open(table.location).version == 1
    assert world.rows(table) == []


@pytest.mark.parametrize("number", [1, 3])
def test_a_keyed_commit_must_have_the_next_number(
    world: World, table: TableRef, number: int
) -> None:
    world.merge(table, 1, row(1), key=("id",))

    with pytest.raises(CommitOutcomeUnknownError):
        world.merge(table, number, row(2), key=("id",))

    assert world.rows(table) == [row(1)]


def test_a_keyed_commit_whose_response_was_lost_is_found(world: World, table: TableRef) -> None:
    handle = world.tables.open(table.location)
    staged = world.stage(table, row(1))
    committed = world.tables.open(table.location).commit_keyed(
        attachment(1), staged, key=("id",)
    )
    world.tables.open(table.location).commit(attachment(2), [])

    version = handle.commit_keyed(attachment(1), staged, key=("id",))

    assert version == committed == 1
    assert world.rows(table) == [row(1)]
    assert world.tables.open(table.location).version == 2


def test_a_keyed_commit_through_a_handle_of_a_replaced_table_is_refused(
    world: World, table: TableRef
) -> None:
    former = world.tables.open(table.location)
    world.tables.delete(table.location)
    world.tables.create("cities", COLUMNS, location=table.location, comment="")

    with pytest.raises(CommitOutcomeUnknownError):
        former.commit_keyed(attachment(1), world.stage(table, row(1)), key=("id",))

    assert world.tables.open(table.location).version == 0


def test_a_staged_row_replaces_a_row_in_another_partition(world: World) -> None:
    table = world.tables.create(
        "cities", COLUMNS, location=None, comment="", partition_by=("city",)
    )
    world.merge(table, 1, row(1, "Bern"), row(2, "Bern"), row(3, None), key=("id",))

    world.merge(table, 2, row(1, "Genf"), row(3, "Bern"), row(4, None), key=("id",))

    expected = [row(1, "Genf"), row(2, "Bern"), row(3, "Bern"), row(4, None)]
    assert world.rows(table) == expected


def test_a_table_with_keys_cannot_be_partitioned_by_fractions(world: World) -> None:
    columns = (*COLUMNS, Column(name="price", type=Decimal(precision=9, scale=2)))
    table = world.tables.create(
        "cities", columns, location=None, comment="", partition_by=("price",)
    )

    with raises(UserError, Code.NOT_SUPPORTED_ERR, '"price"', "DECIMAL(9,2)", hint=()):
        world.merge(table, 1, row(1), key=("id",))

    assert world.tables.open(table.location).version == 0


def test_staged_files_are_not_part_of_the_table(world: World, table: TableRef) -> None:
    world.merge(table, 1, row(1), key=("id",))

    world.stage(table, row(2), attempt_id="not committed")

    assert world.rows(table) == [row(1)]
    assert world.tables.open(table.location).detail().rows == 1


def test_all_staged_files_of_a_job_can_be_deleted_again_and_again(
    world: World, table: TableRef
) -> None:
    world.merge(table, 1, row(1), key=("id",))
    staged = [*world.stage(table, row(2)), *world.stage(table, row(2), attempt_id="b")]
    others = world.stage(table, row(3), job_id=OTHER_JOB)

    world.tables.delete_staged(table.location, JOB)
    world.tables.delete_staged(table.location, JOB)

    paths = [file.path for file in (*staged, *others)]
    assert world.tables.missing_files(table.location, paths) == tuple(f.path for f in staged)
    assert world.rows(table) == [row(1)]


def test_a_missing_staged_file_is_reported_before_any_commit(
    world: World, table: TableRef
) -> None:
    (staged,) = world.stage(table, row(1))
    world.tables.delete_staged(table.location, JOB)

    with raises(ExternalError, Code.STORAGE_ERR, "data file"):
        world.tables.open(table.location).commit_keyed(attachment(1), [staged], key=("id",))

    assert world.tables.open(table.location).version == 0
