"""Divide rows into partitions, and name the folders of partitions."""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal as ExactNumber
from pathlib import Path, PosixPath
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.arrow.types import arrow_schema, arrow_type
from penstock.errors import Code, InvariantError, UserError
from penstock.model.epoch import DataFile
from penstock.model.job import TargetColumn
from penstock.model.schema import Array, Column, DataType, Decimal, Primitive
from penstock.storage.local import LocalFile, LocalStore
from penstock.tables import writer as writer_module
from penstock.tables.fitting import RowError, fit
from penstock.tables.partitions import check_partition_columns, folder_names, split, value_texts
from penstock.tables.writer import TableWriter
from tests.contract.table_building import folder_at, open_files
from tests.error_values import assert_names, raises

DAY = Column(name="day", type=Primitive.DATE)
CITY = Column(name="city", type=Primitive.STRING)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC).replace(tzinfo=None)
ID = Column(name="id", type=Primitive.BIGINT)
COLUMNS = (DAY, ID, CITY)


def batch(*rows: tuple[date | None, str | None, int]) -> pa.RecordBatch:
    named = [{"day": day, "city": city, "id": number} for day, city, number in rows]
    return pa.RecordBatch.from_pylist(named, schema=arrow_schema(COLUMNS))


def of_cities(*cities: str | None, first: int = 0) -> pa.RecordBatch:
    return batch(*((None, city, number) for number, city in enumerate(cities, start=first)))


def paths_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def ids(folder: Path, file: DataFile) -> list[int]:
    rows = pq.ParquetFile(folder / file.path).read().to_pylist()
    return [row["id"] for row in rows]


def test_the_largest_partition_comes_first_and_rows_keep_their_order() -> None:
    rows = pa.Table.from_batches(
        [of_cities("a", "b", None), of_cities("b", None, "b", first=3)]
    )

    parts = split(rows, (CITY,))

    assert [(part.values, part.rows["id"].to_pylist()) for part in parts] == [
        ((("city", "b"),), [1, 3, 5]),
        ((("city", None),), [2, 4]),
        ((("city", "a"),), [0]),
    ]


def test_null_and_the_empty_text_are_different_partitions() -> None:
    parts = split(pa.Table.from_batches([of_cities("", None, "")]), (CITY,))

    assert [part.values for part in parts] == [(("city", ""),), (("city", None),)]


def test_a_partition_has_one_value_of_every_column() -> None:
    first, second = date(2026, 1, 1), date(2026, 1, 2)
    rows = batch((first, "a", 1), (second, "a", 2), (first, None, 3), (first, "a", 4))

    parts = split(pa.Table.from_batches([rows]), (CITY, DAY))

    assert {part.values: part.rows["id"].to_pylist() for part in parts} == {
        (("city", "a"), ("day", "2026-01-01")): [1, 4],
        (("city", "a"), ("day", "2026-01-02")): [2],
        (("city", None), ("day", "2026-01-01")): [3],
    }


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Primitive.BOOLEAN, True, "true"),
        (Primitive.TINYINT, -128, "-128"),
        (Primitive.DATE, date.min, "0001-01-01"),
        (Primitive.TIMESTAMP, datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00.000000Z"),
        (Primitive.TIMESTAMP_NTZ, LAST, "9999-12-31 23:59:59.999999"),
        (Decimal(precision=38, scale=38), ExactNumber("1e-38"), f"0.{'0' * 37}1"),
        (Decimal(precision=9, scale=2), ExactNumber("-1.50"), "-1.50"),
        (Primitive.STRING, "", ""),
        (Primitive.STRING, None, None),
    ],
)
def test_partition_values_are_written_in_the_format_of_delta(
    kind: DataType, value: object, text: str | None
) -> None:
    assert value_texts(pa.array([value], arrow_type(kind)), kind) == [text]


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        (None, "city=__HIVE_DEFAULT_PARTITION__"),
        ("", "city="),
        ("a/b", "city=a%2Fb"),
        ("%\n=", "city=%25%0A%3D"),
        ("..", "city=.."),
        ("🙂 ", "city=%F0%9F%99%82%20"),
    ],
)
def test_a_folder_is_named_after_the_encoded_value(value: str | None, folder: str) -> None:
    assert folder_names((("city", value),)) == (folder,)


def fit_city(*cities: str) -> pa.RecordBatch:
    targets = tuple(TargetColumn(name=c.name, path=(c.name,)) for c in COLUMNS)
    return fit(of_cities(*cities), targets=targets, columns=COLUMNS, partition_by=("city",))


def test_a_text_that_can_be_a_folder_name_fits() -> None:
    assert fit_city("x" * 250, "é" * 41).num_rows == 2


@pytest.mark.parametrize(("text", "size"), [("x" * 251, 256), ("é" * 42, 257)])
def test_a_text_too_long_for_a_folder_name_does_not_fit(text: str, size: int) -> None:
    with pytest.raises(RowError) as caught:
        fit_city("short", text, text)

    assert_names(str(caught.value), size, "255")

    assert (caught.value.row, caught.value.column) == (1, "city")


def test_the_text_that_means_null_does_not_fit() -> None:
    with pytest.raises(RowError) as caught:
        fit_city("a", "b", "__HIVE_DEFAULT_PARTITION__")

    assert_names(str(caught.value), "NULL")

    assert caught.value.row == 2


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (Primitive.DATE, 10**7),
        (Primitive.DATE, -(10**6)),
        (Primitive.TIMESTAMP, 10**18),
        (Primitive.TIMESTAMP_NTZ, -(10**17)),
    ],
)
def test_a_year_that_readers_do_not_support_does_not_fit(kind: DataType, number: int) -> None:
    numbers = pa.array([0, number], pa.int32() if kind is Primitive.DATE else pa.int64())
    rows = pa.RecordBatch.from_arrays([numbers.cast(arrow_type(kind))], names=["at"])
    columns = (Column(name="at", type=kind),)
    targets = (TargetColumn(name="at", path=("at",)),)

    with pytest.raises(RowError) as caught:
        fit(rows, targets=targets, columns=columns, partition_by=("at",))

    assert_names(str(caught.value), "1", "9999")

    assert caught.value.row == 1


@pytest.mark.parametrize(
    ("names", "named"),
    [
        (("town",), ('"town"',)),
        (("tags",), ('"tags"', "ARRAY", "INT")),
        (("id", "tags"), ('"tags"', "ARRAY", "INT")),
    ],
)
def test_partition_columns_of_other_writers_are_checked(
    names: tuple[str, ...], named: tuple[str, ...]
) -> None:
    columns = (ID, Column(name="tags", type=Array(element=Primitive.INT)))

    with pytest.raises(UserError) as caught:
        check_partition_columns(columns, names)

    assert_names(str(caught.value), *named)


def test_a_table_with_only_partition_columns_is_refused() -> None:
    with raises(UserError, Code.TABLE_ERR, "partition column") as caught:
        check_partition_columns((ID, CITY), ("city", "id"))

    assert caught.value.code is Code.TABLE_ERR


def test_every_partition_has_a_file_without_the_partition_column(tmp_path: Path) -> None:
    writer = TableWriter(folder_at(tmp_path), COLUMNS, "7-abc", partition_by=("city",))
    writer.write(of_cities("a", "b/c", "a"))
    writer.write(of_cities("a", first=3))

    files = writer.close()

    assert [(file.path, file.rows, file.partition_values) for file in files] == [
        ("city=a/part-7-abc-0.parquet", 3, (("city", "a"),)),
        ("city=b%2Fc/part-7-abc-1.parquet", 1, (("city", "b/c"),)),
    ]
    assert ids(tmp_path, files[0]) == [0, 2, 3]
    assert pq.read_schema(tmp_path / files[0].path).names == ["day", "id"]
    assert "city" not in files[0].statistics_json


def test_folders_of_several_partition_columns_are_nested(tmp_path: Path) -> None:
    writer = TableWriter(folder_at(tmp_path), COLUMNS, "t", partition_by=("day", "city"))
    writer.write(batch((date(2026, 1, 31), None, 1)))

    (file,) = writer.close()

    folder = "day=2026-01-31/city=__HIVE_DEFAULT_PARTITION__"
    assert file.path == f"{folder}/part-t-0.parquet"
    assert file.partition_values == (("day", "2026-01-31"), ("city", None))


def test_a_full_file_of_a_partition_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_GROUP_ROWS_MAX", 3)
    monkeypatch.setattr(writer_module, "_FILE_BYTES_MAX", 1)
    writer = TableWriter(folder_at(tmp_path), COLUMNS, "t", partition_by=("city",))
    writer.write(of_cities("a", "a", "b"))
    writer.write(of_cities("a", "a", first=3))

    files = writer.close()

    assert [(file.path, ids(tmp_path, file)) for file in files] == [
        ("city=a/part-t-0.parquet", [0, 1]),
        ("city=a/part-t-1.parquet", [3, 4]),
        ("city=b/part-t-2.parquet", [2]),
    ]


def test_an_aborted_writer_deletes_its_files_and_folders(tmp_path: Path) -> None:
    writer = TableWriter(folder_at(tmp_path), COLUMNS, "t", partition_by=("day", "city"))
    writer.write(batch((None, "a", 1), (date(2026, 1, 1), None, 2)))
    writer.close()
    assert paths_below(tmp_path)

    writer.abort()

    assert paths_below(tmp_path) == []


def test_an_aborted_writer_closes_its_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_GROUP_ROWS_MAX", 2)
    writer = TableWriter(folder_at(tmp_path), COLUMNS, "t", partition_by=("city",))
    writer.write(of_cities("a", "b"))
    assert open_files(tmp_path)

    writer.abort()

    assert open_files(tmp_path) == []
    assert paths_below(tmp_path) == []


def test_an_aborted_writer_keeps_the_files_of_other_writers(tmp_path: Path) -> None:
    other = TableWriter(folder_at(tmp_path), COLUMNS, "other", partition_by=("city",))
    other.write(of_cities("a"))
    writer = TableWriter(folder_at(tmp_path), COLUMNS, "t", partition_by=("city",))
    writer.write(of_cities("a", "b"))
    writer.close()
    (kept,) = other.close()

    writer.abort()

    assert paths_below(tmp_path) == ["city=a", kept.path]


class DisturbedPath(PosixPath):
    """A path of which another writer deletes the folder once, before it has a file."""

    deleted: ClassVar[list[Path]] = []

    def touch(self, mode: int = 0o666, exist_ok: bool = True) -> None:  # noqa: FBT001, FBT002
        if not self.deleted:
            self.deleted.append(self.parent)
            self.parent.rmdir()
        super().touch(mode, exist_ok)


@dataclass(frozen=True, slots=True)
class DisturbedStore(LocalStore):
    """A local store with another writer that deletes folders."""

    def create(self, folder: str, name: str) -> LocalFile:
        return LocalFile(DisturbedPath(folder), name)


def test_a_folder_that_another_writer_deleted_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DisturbedPath, "deleted", [])
    folder = replace(folder_at(tmp_path), store=DisturbedStore())
    writer = TableWriter(folder, COLUMNS, "t", partition_by=("city",))
    writer.write(of_cities("a"))

    (file,) = writer.close()

    assert DisturbedPath.deleted == [tmp_path / "city=a"]
    assert ids(tmp_path, file) == [0]


def test_a_file_of_a_partition_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "city=a").mkdir()
    (tmp_path / "city=a" / "part-t-0.parquet").write_bytes(b"committed")
    writer = TableWriter(folder_at(tmp_path), COLUMNS, "t", partition_by=("city",))
    writer.write(of_cities("a"))

    with raises(InvariantError, Code.INTERNAL_ERR, "part-t-0.parquet"):
        writer.close()
    writer.abort()

    assert (tmp_path / "city=a" / "part-t-0.parquet").read_bytes() == b"committed"


def test_small_partitions_wait_while_the_largest_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "_GROUP_ROWS_MAX", 4)
    writer = TableWriter(folder_at(tmp_path), COLUMNS, "t", partition_by=("city",))
    writer.write(of_cities("a", "b", "a", "c"))
    assert paths_below(tmp_path) == ["city=a", "city=a/part-t-0.parquet"]

    writer.write(of_cities("b", "b", first=4))
    files = writer.close()

    assert [ids(tmp_path, file) for file in files] == [[0, 2], [1, 4, 5], [3]]
