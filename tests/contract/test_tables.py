"""The contract of tables, for Delta tables on a disk and for fake tables in memory."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.errors import Code, CommitOutcomeUnknownError, InvariantError, UserError
from penstock.model.epoch import DataFile
from penstock.model.job import TableRef
from penstock.model.schema import Array, Column, Decimal, Map, Primitive, Struct
from penstock.tables.chain import log_entry
from penstock.tables.delta import DeltaTables
from penstock.tables.table import ChainCommit, Tables
from penstock.testing.memory_tables import MemoryTables
from tests.contract.table_building import COLUMNS, JOB, OTHER_JOB, attachment, data_file
from tests.error_values import assert_names, raises


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Tables of one kind, with the actions of other writers."""

    tables: Tables
    location: str
    add_file: Callable[[TableRef, str], DataFile]
    foreign_commit: Callable[[str], None]
    clean_log: Callable[[str, int], None]
    recreate: Callable[[str], None]


def memory_world() -> World:
    tables = MemoryTables()

    def add_file(_table: TableRef, path: str) -> DataFile:
        tables.register_rows(path, [{"id": 1}])
        return data_file(path)

    return World(
        tables=tables,
        location="memory://given",
        add_file=add_file,
        foreign_commit=tables.foreign_commit,
        clean_log=tables.clean_log,
        recreate=tables.recreate,
    )


def delta_world(folder: Path) -> World:
    tables = DeltaTables(str(folder / "warehouse"))

    def recreate(location: str) -> None:
        shutil.rmtree(location)
        tables.create("orders", COLUMNS, location=location, comment="")

    return World(
        tables=tables,
        location=str(folder / "given"),
        add_file=add_parquet_file,
        foreign_commit=foreign_append,
        clean_log=clean_delta_log,
        recreate=recreate,
    )


def add_parquet_file(table: TableRef, path: str) -> DataFile:
    target = Path(table.location) / path
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(b"rows")
    return data_file(path)


def foreign_append(location: str) -> None:
    other = DeltaTable(location)
    other.create_write_transaction([], mode="append", schema=other.schema())


def clean_delta_log(location: str, keep_from_version: int) -> None:
    DeltaTable(location).create_checkpoint()
    for version in range(keep_from_version):
        (Path(location) / log_entry(version)).unlink()


@pytest.fixture(params=["memory", "delta"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return memory_world() if request.param == "memory" else delta_world(tmp_path)


@pytest.fixture
def table(world: World) -> TableRef:
    return world.tables.create("orders", COLUMNS, location=None, comment="what was ordered")


def commit_all(world: World, table: TableRef, *numbers: int, job_id: str = JOB) -> None:
    for number in numbers:
        world.tables.open(table.location).commit(attachment(number, job_id=job_id), [])


def numbers_of(chain: tuple[ChainCommit, ...] | list[ChainCommit]) -> list[int]:
    return [commit.attachment.number for commit in chain]


def test_a_new_table_is_empty_and_has_its_columns(world: World) -> None:
    columns = (
        Column(name="id", type=Primitive.BIGINT, nullable=False, comment='the "id"'),
        Column(name="price", type=Decimal(precision=12, scale=2)),
        Column(name="tags", type=Array(element=Primitive.TIMESTAMP_NTZ)),
        Column(name="marks", type=Map(key=Primitive.STRING, value=Primitive.TIMESTAMP)),
        Column(
            name="customer",
            type=Struct(fields=(Column(name="city", type=Primitive.STRING, nullable=False),)),
        ),
    )

    created = world.tables.create("sales.orders", columns, location=None, comment="c")

    handle = world.tables.open(created.location)
    assert handle.table_id == created.id
    assert handle.columns() == columns
    assert (handle.version, handle.detail().files, handle.detail().rows) == (0, 0, 0)


def test_two_tables_of_one_name_have_different_locations_and_ids(world: World) -> None:
    one = world.tables.create("orders", COLUMNS, location=None, comment="")
    other = world.tables.create("orders", COLUMNS, location=None, comment="")

    assert one.location != other.location
    assert one.id != other.id


def test_a_table_is_created_at_a_given_location_but_never_over_another_table(
    world: World,
) -> None:
    created = world.tables.create("orders", COLUMNS, location=world.location, comment="")

    with raises(UserError, Code.ALREADY_EXISTS_ERR, "location") as caught:
        world.tables.create("orders", COLUMNS, location=world.location, comment="")

    assert caught.value.code is Code.ALREADY_EXISTS_ERR
    assert world.tables.open(world.location).table_id == created.id


def test_a_table_that_does_not_exist_cannot_be_opened(world: World) -> None:
    with raises(UserError, Code.TABLE_CHANGED_ERR, "does not exist") as caught:
        world.tables.open(world.location)

    assert caught.value.code is Code.TABLE_CHANGED_ERR


def test_a_job_without_commits_has_the_number_zero(world: World, table: TableRef) -> None:
    handle = world.tables.open(table.location)

    assert handle.newest_number(JOB) == 0
    assert list(handle.chain_after(JOB, 0)) == []


def test_a_commit_is_visible_only_after_a_refresh(world: World, table: TableRef) -> None:
    handle = world.tables.open(table.location)

    version = handle.commit(attachment(1), [world.add_file(table, "part-a-0.parquet")])

    assert version == 1
    assert (handle.version, handle.newest_number(JOB)) == (0, 0)
    handle.refresh()
    assert (handle.version, handle.newest_number(JOB)) == (1, 1)
    assert (handle.detail().files, handle.detail().rows, handle.detail().size_bytes) == (
        1,
        1,
        4,
    )


def test_an_attachment_is_read_as_it_was_committed(world: World, table: TableRef) -> None:
    world.tables.open(table.location).commit(attachment(1), [])

    chain = world.tables.open(table.location).chain_after(JOB, 0)

    assert list(chain) == [ChainCommit(attachment=attachment(1), table_version=1)]


def test_the_second_commit_of_two_handles_of_one_job_is_refused(
    world: World, table: TableRef
) -> None:
    first, second = world.tables.open(table.location), world.tables.open(table.location)
    first.commit(attachment(1, attempt_id="first"), [])

    with raises(CommitOutcomeUnknownError, Code.COMMIT_OUTCOME_UNKNOWN_ERR, "commit 1"):
        second.commit(attachment(1, attempt_id="second"), [])

    chain = world.tables.open(table.location).chain_after(JOB, 0)
    assert [commit.attachment.attempt_id for commit in chain] == ["first"]


def test_t39_a_late_commit_of_an_older_number_is_refused(world: World, table: TableRef) -> None:
    commit_all(world, table, 1)
    frozen = world.tables.open(table.location)
    commit_all(world, table, 2, 3)

    with raises(CommitOutcomeUnknownError, Code.COMMIT_OUTCOME_UNKNOWN_ERR, "commit 2"):
        frozen.commit(attachment(2, attempt_id="frozen"), [])

    newest = world.tables.open(table.location)
    assert newest.newest_number(JOB) == 3
    assert numbers_of([*newest.chain_after(JOB, 0)]) == [1, 2, 3]


def test_a_handle_must_be_refreshed_between_two_commits(world: World, table: TableRef) -> None:
    handle = world.tables.open(table.location)
    handle.commit(attachment(1), [])

    with pytest.raises(CommitOutcomeUnknownError):
        handle.commit(attachment(2), [])

    handle.refresh()
    assert handle.commit(attachment(2), []) == 2


def test_two_jobs_of_one_table_do_not_conflict(world: World, table: TableRef) -> None:
    one, other = world.tables.open(table.location), world.tables.open(table.location)

    one_version = one.commit(attachment(1), [])
    other_version = other.commit(attachment(1, job_id=OTHER_JOB), [])

    handle = world.tables.open(table.location)
    assert (one_version, other_version) == (1, 2)
    assert [c.table_version for c in handle.chain_after(JOB, 0)] == [1]
    assert [c.table_version for c in handle.chain_after(OTHER_JOB, 0)] == [2]


def test_a_commit_of_another_writer_does_not_repeat_a_commit_of_the_job(
    world: World, table: TableRef
) -> None:
    handle = world.tables.open(table.location)
    world.foreign_commit(table.location)

    try:
        handle.commit(attachment(1), [world.add_file(table, "part-a-0.parquet")])
        committed = 1
    except CommitOutcomeUnknownError:
        committed = 0

    handle.refresh()
    assert handle.newest_number(JOB) == committed
    assert handle.detail().files == committed
    assert len(handle.chain_after(JOB, 0)) == committed


def test_a_table_accepts_a_repeated_number_after_a_refresh(
    world: World, table: TableRef
) -> None:
    commit_all(world, table, 1)
    handle = world.tables.open(table.location)

    assert handle.newest_number(JOB) == 1
    handle.commit(attachment(1, attempt_id="again"), [])

    handle.refresh()
    assert handle.newest_number(JOB) == 1
    with raises(UserError, Code.CANNOT_RESUME_ERR, "commit 1", "commit 0"):
        handle.chain_after(JOB, -1)


def test_the_chain_above_a_number_is_read_from_the_log(world: World, table: TableRef) -> None:
    commit_all(world, table, 1, 2)
    commit_all(world, table, 1, job_id=OTHER_JOB)
    world.foreign_commit(table.location)
    commit_all(world, table, 3)

    chain = world.tables.open(table.location).chain_after(JOB, 1)

    assert numbers_of([*chain]) == [2, 3]
    assert [commit.table_version for commit in chain] == [2, 5]


def test_commits_of_a_cleaned_log_are_read_from_their_copies(
    world: World, table: TableRef
) -> None:
    commit_all(world, table, 1, 2, 3)
    for number in (1, 2):
        world.tables.open(table.location).write_copy(attachment(number))
    world.clean_log(table.location, 3)

    chain = world.tables.open(table.location).chain_after(JOB, 0)

    assert [commit.attachment for commit in chain] == [attachment(n) for n in (1, 2, 3)]
    assert [commit.table_version for commit in chain] == [None, None, 3]


def test_the_error_for_a_missing_commit_names_its_number(world: World, table: TableRef) -> None:
    commit_all(world, table, 1, 2, 3)
    world.tables.open(table.location).write_copy(attachment(2))
    world.clean_log(table.location, 3)

    with raises(UserError, Code.CANNOT_RESUME_ERR, "commit 1") as caught:
        world.tables.open(table.location).chain_after(JOB, 0)

    assert caught.value.code is Code.CANNOT_RESUME_ERR
    assert_names(caught.value.detail, "0", "3")


def test_an_attachment_of_an_unknown_format_is_refused(world: World, table: TableRef) -> None:
    commit_all(world, table, 1)
    world.tables.open(table.location).commit(replace(attachment(2), format=99), [])

    with raises(UserError, Code.CANNOT_RESUME_ERR, "2", "99") as e:
        world.tables.open(table.location).chain_after(JOB, 0)

    assert e.value.code is Code.CANNOT_RESUME_ERR


def test_a_copy_of_an_unknown_format_is_refused(world: World, table: TableRef) -> None:
    commit_all(world, table, 1, 2)
    world.tables.open(table.location).write_copy(replace(attachment(1), format=99))
    world.clean_log(table.location, 2)

    with raises(UserError, Code.CANNOT_RESUME_ERR, "99"):
        world.tables.open(table.location).chain_after(JOB, 0)


def test_a_copy_is_never_overwritten(world: World, table: TableRef) -> None:
    commit_all(world, table, 1, 2)
    handle = world.tables.open(table.location)
    handle.write_copy(attachment(1))

    handle.write_copy(attachment(1))
    handle.write_copy(attachment(1, attempt_id="another"))

    world.clean_log(table.location, 2)
    assert handle.chain_after(JOB, 0)[0].attachment == attachment(1)


def test_a_table_recreated_at_the_same_location_has_another_id(
    world: World, table: TableRef
) -> None:
    handle = world.tables.open(table.location)
    handle.commit(attachment(1), [])
    world.recreate(table.location)

    handle.refresh()

    assert handle.table_id == world.tables.open(table.location).table_id != table.id
    assert handle.newest_number(JOB) == 0


def test_a_commit_through_a_handle_of_a_replaced_table_is_refused(
    world: World, table: TableRef
) -> None:
    former = world.tables.open(table.location)
    world.recreate(table.location)

    with pytest.raises(CommitOutcomeUnknownError):
        former.commit(attachment(1), [])

    assert world.tables.open(table.location).newest_number(JOB) == 0


def test_a_deleted_table_does_not_exist_and_can_be_deleted_again(
    world: World, table: TableRef
) -> None:
    handle = world.tables.open(table.location)

    world.tables.delete(table.location)
    world.tables.delete(table.location)

    for action in (handle.refresh, lambda: handle.write_copy(attachment(1))):
        with raises(UserError, Code.TABLE_CHANGED_ERR, "does not exist") as caught:
            action()
        assert caught.value.code is Code.TABLE_CHANGED_ERR
    with pytest.raises(CommitOutcomeUnknownError):
        handle.commit(attachment(1), [])


def test_missing_files_are_reported_and_existing_files_are_not(
    world: World, table: TableRef
) -> None:
    world.add_file(table, "part-a-0.parquet")

    missing = world.tables.missing_files(
        table.location, ["part-a-0.parquet", "part-b-0.parquet"]
    )

    assert missing == ("part-b-0.parquet",)


def test_missing_files_are_reported_in_partition_folders_too(
    world: World, table: TableRef
) -> None:
    world.add_file(table, "day=2026-01-31/part-a-0.parquet")

    paths = ["day=2026-01-31/part-a-0.parquet", "day=2026-02-01/part-a-0.parquet"]

    assert world.tables.missing_files(table.location, paths) == (paths[1],)


PARTITIONED = (
    Column(name="id", type=Primitive.BIGINT),
    Column(name="Day", type=Primitive.DATE),
    Column(name="city", type=Primitive.STRING),
)


def test_a_table_returns_its_partition_columns(world: World) -> None:
    created = world.tables.create(
        "t", PARTITIONED, location=None, comment="", partition_by=("city", "Day")
    )

    handle = world.tables.open(created.location)

    assert handle.partition_columns() == ("city", "Day")
    assert handle.columns() == PARTITIONED


def test_a_table_is_not_partitioned_by_default(world: World, table: TableRef) -> None:
    assert world.tables.open(table.location).partition_columns() == ()


def test_files_are_committed_with_their_partition_values(world: World) -> None:
    created = world.tables.create(
        "t", PARTITIONED, location=None, comment="", partition_by=("Day", "city")
    )
    values = (("Day", "2026-01-31"), ("city", None))
    file = replace(world.add_file(created, "a/part-a-0.parquet"), partition_values=values)

    world.tables.open(created.location).commit(attachment(1), [file])

    handle = world.tables.open(created.location)
    assert (handle.detail().files, handle.detail().rows) == (1, 1)
    assert handle.partition_columns() == ("Day", "city")


@pytest.mark.parametrize("values", [(), (("city", "a"), ("Day", None)), (("Day", None),)])
def test_a_file_with_values_of_other_partition_columns_is_never_committed(
    world: World, values: tuple[tuple[str, str | None], ...]
) -> None:
    created = world.tables.create(
        "t", PARTITIONED, location=None, comment="", partition_by=("Day", "city")
    )
    file = replace(world.add_file(created, "a/part-a-0.parquet"), partition_values=values)

    with raises(InvariantError, Code.INTERNAL_ERR, '"a/part-a-0.parquet"'):
        world.tables.open(created.location).commit(attachment(1), [file])

    assert world.tables.open(created.location).version == 0


def test_an_older_version_has_the_files_of_that_version(world: World, table: TableRef) -> None:
    handle = world.tables.open(table.location)
    handle.commit(attachment(1), [world.add_file(table, "part-a-0.parquet")])
    handle.refresh()
    handle.commit(attachment(2), [world.add_file(table, "part-b-0.parquet")])
    handle.refresh()

    old = handle.at(1)

    assert (old.version, handle.version) == (1, 2)
    assert [file.path for file in old.files()] == ["part-a-0.parquet"]
    assert handle.at(0).files() == ()


def test_the_error_for_a_missing_version_names_it(world: World, table: TableRef) -> None:
    handle = world.tables.open(table.location)

    with raises(UserError, Code.META_NOT_FOUND_ERR, "7") as caught:
        handle.at(7)

    assert caught.value.code is Code.META_NOT_FOUND_ERR
    assert_names(caught.value.hint, "0")
