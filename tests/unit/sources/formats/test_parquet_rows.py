"""Parquet files become rows of the declared columns; a bad row does not affect others."""

import datetime as dt
import io
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import Code
from penstock.sources.files.kind import MissingColumns
from penstock.sources.formats.blocks import RecordBlock, UnreadableFileError, Wanted
from penstock.sources.formats.parquet_reader import read_parquet
from tests.error_values import assert_names

TYPE_BY_COLUMN: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "note": pa.string(),
    "day": pa.date32(),
}
COLUMNS = pa.schema(TYPE_BY_COLUMN)
INSTANT = dt.datetime(2026, 11, 15, 10, tzinfo=dt.UTC)


def parquet(table: pa.Table | Mapping[str, Any], **options: Any) -> bytes:
    sink = io.BytesIO()
    whole = table if isinstance(table, pa.Table) else pa.table(dict(table))
    pq.write_table(whole, sink, **options)
    return sink.getvalue()


def read(
    content: bytes,
    *,
    columns: pa.Schema = COLUMNS,
    wanted: tuple[str, ...] | None = None,
    missing: MissingColumns = MissingColumns.NULL,
    rescue: bool = False,
) -> list[RecordBlock]:
    blocks = read_parquet(
        io.BytesIO(content),
        wanted=Wanted(
            columns=columns,
            names=tuple(columns.names) if wanted is None else wanted,
            missing=missing,
            rescue=rescue,
        ),
        start=0,
        end=None,
    )
    return list(blocks)


def rows(blocks: list[RecordBlock]) -> list[dict[str, Any]]:
    return [row for block in blocks for row in block.batch.to_pylist()]


def one(array: Any, target: pa.DataType, **options: Any) -> object:
    """Return a value that was written to a file and read as the target type."""
    (row,) = rows(read(parquet({"v": array}, **options), columns=pa.schema([("v", target)])))
    return row["v"]


def failure(content: bytes, **options: Any) -> UnreadableFileError:
    with pytest.raises(UnreadableFileError) as caught:
        read(content, **options)
    return caught.value


def test_rows_are_read_in_the_order_of_the_wanted_columns() -> None:
    content = parquet({"day": [None, dt.date(2026, 1, 2)], "id": [1, 2], "note": ["a", None]})

    (block,) = read(content, wanted=("note", "id"))

    assert block.batch.schema == pa.schema([COLUMNS.field("note"), COLUMNS.field("id")])
    assert rows([block]) == [{"note": "a", "id": 1}, {"note": None, "id": 2}]
    assert (block.record_of_row, block.lines, block.bad) == (range(2), 2, ())


def test_batches_have_bounded_size_and_consecutive_line_numbers() -> None:
    content = parquet({"id": pa.array(range(150_000))}, row_group_size=100_000)

    blocks = read(content, wanted=("id",))

    assert [block.batch.num_rows for block in blocks] == [65_536, 34_464, 50_000]
    assert [block.record_of_row[0] for block in blocks] == [0, 65_536, 100_000]


def test_rows_are_counted_even_if_no_column_is_requested() -> None:
    (block,) = read(parquet({"id": [1, 2, 3]}), wanted=())

    assert (block.batch.num_rows, block.lines) == (3, 3)


def test_a_file_without_rows_has_no_block() -> None:
    assert read(parquet({"id": pa.array([], pa.int64())})) == []


@pytest.mark.parametrize("name", ["id", "ID", "Id"])
def test_a_column_is_found_by_name_in_another_case(name: str) -> None:
    assert rows(read(parquet({name: [1]}), wanted=("id",))) == [{"id": 1}]


def test_the_exact_name_takes_precedence_over_another_case() -> None:
    assert rows(read(parquet({"ID": [1], "id": [2]}), wanted=("id",))) == [{"id": 2}]


def test_two_names_that_differ_only_in_case_match_no_column() -> None:
    assert rows(read(parquet({"ID": [1], "Id": [2]}), wanted=("id",))) == [{"id": None}]


def test_a_name_with_a_dot_is_not_a_path() -> None:
    table = pa.table({"a": [{"b": 1, "c": 2}], "a.b": [7]})
    struct = pa.struct([("b", pa.int64()), ("c", pa.int64())])
    columns = pa.schema([pa.field("a.b", pa.int64()), pa.field("a", struct)])

    assert rows(read(parquet(table), columns=columns, wanted=("a.b",))) == [{"a.b": 7}]
    assert rows(read(parquet(table), columns=columns)) == [{"a.b": 7, "a": {"b": 1, "c": 2}}]


def test_a_missing_column_is_null() -> None:
    assert rows(read(parquet({"id": [1]}))) == [{"id": 1, "note": None, "day": None}]


def test_missing_columns_can_be_an_error_that_names_them() -> None:
    error = failure(parquet({"id": [1]}), missing=MissingColumns.FAIL)

    assert_names(error.message, '"note"', '"day"')
    assert_names(error.detail, "id")
    assert '"missing_columns"' in error.hint


def test_a_column_that_is_not_requested_can_be_missing() -> None:
    blocks = read(parquet({"id": [1]}), wanted=("id",), missing=MissingColumns.FAIL)

    assert rows(blocks) == [{"id": 1}]


def test_a_file_with_a_repeated_name_is_unreadable() -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["id", "id"])

    assert_names(failure(parquet(table)).message, '"id"', "more than once")


@pytest.mark.parametrize(
    ("array", "target", "value"),
    [
        (pa.array([7], pa.int32()), pa.int64(), 7),
        (pa.array([7], pa.uint64()), pa.int8(), 7),
        (pa.array([7]), pa.string(), "7"),
        (pa.array([7.0]), pa.int32(), 7),
        (pa.array(["7"]), pa.int64(), 7),
        (pa.array([1.5], pa.float16()), pa.float64(), 1.5),
        (pa.array([Decimal("1.005")]), pa.decimal128(10, 2), Decimal("1.01")),
        (
            pa.array([Decimal("1.5")], pa.decimal256(50, 2)),
            pa.decimal128(10, 2),
            Decimal("1.5"),
        ),
        (pa.array(["a"], pa.large_string()), pa.string(), "a"),
        (pa.array(["a"], pa.string_view()), pa.string(), "a"),
        (pa.array(["a"]).dictionary_encode(), pa.string(), "a"),
        (pa.array([b"a"], pa.binary(1)), pa.binary(), b"a"),
        (pa.array([b"a"]), pa.string(), "a"),
        (pa.array([dt.date(2026, 1, 2)], pa.date64()), pa.date32(), dt.date(2026, 1, 2)),
        (pa.array([INSTANT]), pa.timestamp("us", "UTC"), INSTANT),
        (
            pa.array([INSTANT], pa.timestamp("ms", "Asia/Tokyo")),
            pa.timestamp("us", "UTC"),
            INSTANT,
        ),
        (pa.array([[1]], pa.large_list(pa.int32())), pa.list_(pa.int64()), [1]),
        (
            pa.array([{"a": "x"}], pa.struct([("a", pa.dictionary(pa.int32(), pa.string()))])),
            pa.struct([("a", pa.string()), ("b", pa.int64())]),
            {"a": "x", "b": None},
        ),
        (
            pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
            pa.map_(pa.string(), pa.int64()),
            [("k", 1)],
        ),
        (pa.array([bytes(range(16))], pa.uuid()), pa.binary(), bytes(range(16))),
        (pa.nulls(1), pa.int64(), None),
    ],
    ids=lambda value: str(getattr(value, "type", value)).replace("\n", " "),
)
def test_a_value_is_converted_to_the_type_of_its_column(
    array: Any, target: pa.DataType, value: object
) -> None:
    assert one(array, target) == value


def test_int96_values_are_instants_without_a_zone() -> None:
    array = pa.array([INSTANT], pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    options = {"use_deprecated_int96_timestamps": True}

    assert one(array, pa.timestamp("us", "UTC"), **options) == INSTANT
    assert one(array, pa.timestamp("us"), **options) == INSTANT.replace(tzinfo=None)


@pytest.mark.parametrize(
    ("array", "target", "named"),
    [
        (
            pa.array([dt.time(1)]),
            pa.string(),
            ("STRING",),
        ),
        (
            pa.array([dt.timedelta(1)]),
            pa.int64(),
            ("duration[us]", "BIGINT"),
        ),
        (
            pa.array([[1]]),
            pa.int64(),
            ("list<element: int64>", "BIGINT"),
        ),
        (pa.array([True]), pa.int64(), ("bool", "BIGINT")),
    ],
)
def test_a_type_that_cannot_be_converted_is_refused_by_name(
    array: Any, target: pa.DataType, named: tuple[str, ...]
) -> None:
    error = failure(parquet({"v": array}), columns=pa.schema([("v", target)]))

    assert_names(error.message, '"v"', *named)
    assert error.code is Code.TYPE_ERR


def test_an_unsupported_type_of_an_unused_column_is_ignored() -> None:
    content = parquet({"id": [1], "note": [dt.time(1)]})

    assert rows(read(content, wanted=("id",))) == [{"id": 1}]


def test_a_row_with_a_value_that_does_not_fit_is_bad() -> None:
    notes = ["1", "x", "3", "4", None, "y"]
    content = parquet({"id": notes, "note": ["a", "b", "c", "d", "e", None]})

    (block,) = read(content)

    assert [row["id"] for row in rows([block])] == [1, 3, 4, None]
    assert list(block.record_of_row) == [0, 2, 3, 4]
    assert block.lines == 6
    assert [bad.record for bad in block.bad] == [1, 5]
    assert_names(block.bad[0].error, '"id"', "BIGINT", '"x"')
    assert_names(block.bad[1].error, '"id"', "BIGINT", '"y"')
    assert [json.loads(bad.raw) for bad in block.bad] == [{"id": "x", "note": "b"}, {"id": "y"}]


def test_bad_rows_are_numbered_within_the_range() -> None:
    content = parquet({"id": ["1", "2", "x"] * 2}, row_group_size=3)

    blocks = read(content, wanted=("id",))

    assert [bad.record for block in blocks for bad in block.bad] == [2, 5]
    assert [block.record_of_row[0] for block in blocks] == [0, 3]


def test_the_error_names_the_first_bad_column() -> None:
    content = parquet({"id": ["x"], "note": ["n"], "day": ["never"]})

    (block,) = read(content)

    (error,) = [bad.error for bad in block.bad]
    assert_names(error, '"id"', "BIGINT", '"x"')


def test_the_error_names_the_path_of_a_bad_value_in_a_struct() -> None:
    columns = pa.schema({"c": pa.struct([("zip", pa.int8())])})

    (block,) = read(parquet({"c": [{"zip": 1}, {"zip": 1000}]}), columns=columns)

    (error,) = [bad.error for bad in block.bad]
    assert_names(error, '"c.zip"', "TINYINT", "1000")
    assert block.bad[0].raw == b'{"c": {"zip": 1000}}'


def test_a_row_with_null_in_a_not_null_column_is_bad() -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False)])

    (block,) = read(parquet({"id": [1, None]}), columns=columns)

    (error,) = [bad.error for bad in block.bad]
    assert_names(error, '"id"', "BIGINT", "NULL")
    assert rows([block]) == [{"id": 1}]


def test_a_row_with_a_text_that_is_not_utf8_is_bad() -> None:
    array = pa.array([b"a", b"\xff\xfe", b"c"]).view(pa.string())

    (block,) = read(parquet({"note": array}), wanted=("note",))

    assert rows([block]) == [{"note": "a"}, {"note": "c"}]
    (error,) = [bad.error for bad in block.bad]
    assert_names(error, '"note"', "STRING", "UTF-8")
    assert json.loads(block.bad[0].raw) == {"note": "\ufffd\ufffd"}


@pytest.mark.parametrize("days", [10**7, -(10**7)])
def test_a_date_outside_of_pythons_range_loads_or_is_bad(days: int) -> None:
    array = pa.array([days], pa.int32()).view(pa.date32())

    (block,) = read(parquet({"day": array, "id": ["x"]}))

    (error,) = [bad.error for bad in block.bad]
    assert_names(error, '"id"', "BIGINT", '"x"')


def test_a_row_with_nanoseconds_that_do_not_fit_is_bad() -> None:
    array = pa.array([1_000, 1_001], pa.timestamp("ns"))
    columns = pa.schema({"at": pa.timestamp("us")})

    (block,) = read(parquet({"at": array}), columns=columns)

    assert list(block.record_of_row) == [0]


def test_extra_columns_are_rescued_as_json() -> None:
    table = {
        "id": [1, 2, 3],
        "Note": ["n", "n", "n"],
        "other": [1.5, None, float("nan")],
        'odd "name"': [None, None, "ø"],
        "time": [None, None, dt.time(1, 2)],
    }

    (block,) = read(parquet(table), wanted=("id",), rescue=True)

    assert block.batch.schema.names == ["id", "_rescued"]
    assert [row["_rescued"] for row in rows([block])] == [
        '{"other": 1.5}',
        None,
        '{"other": "NaN", "odd \\"name\\"": "ø", "time": "01:02:00.000000"}',
    ]


def test_nothing_is_rescued_if_every_column_is_declared() -> None:
    (block,) = read(parquet({"id": [1]}), rescue=True)

    assert block.batch.column("_rescued").to_pylist() == [None]


def test_rescued_values_of_every_type_are_json() -> None:
    table = {
        "flag": [True],
        "exact": [Decimal("12345678901234567890.10")],
        "day": [dt.date(2026, 1, 2)],
        "at": [INSTANT],
        "octets": [b"\xff\x00"],
        "list": [[1, None, 3]],
        "struct": [{"a": None, "b": ["x"]}],
        "map": pa.array([[("k", 1), ("l", None)]], pa.map_(pa.string(), pa.int64())),
        "numbered": pa.array([[(1, "x")]], pa.map_(pa.int64(), pa.string())),
        "coded": pa.array(["c"]).dictionary_encode(),
        "span": [dt.timedelta(seconds=1)],
    }

    (block,) = read(parquet(table), wanted=(), columns=pa.schema({}), rescue=True)

    assert block.batch.column(0).to_pylist() == [
        '{"flag": true, "exact": 12345678901234567890.10, "day": "2026-01-02",'
        ' "at": "2026-11-15 10:00:00", "octets": "/wA=", "list": [1, null, 3],'
        ' "struct": {"b": ["x"]}, "map": {"k": 1, "l": null}, "numbered": {"1": "x"},'
        ' "coded": "c", "span": "1000000"}'
    ]


GOOD = parquet({"id": list(range(100)), "note": ["text"] * 100})


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", ("b'PAR1'", "b''")),
        (b"PA", ("Parquet", "PAR1", "PA")),
        (b"PAR1", ("footer", "broken")),
        (b'{"id":1}\n' * 9, ("b'PAR1'", "b'{\"id'")),
        (b"X" + GOOD[1:], ("Parquet", "PAR1", "XAR1")),
        (GOOD[:-4] + b"PARE", ("encrypted",)),
        (b"PARE" + GOOD[4:], ("encrypted",)),
        (GOOD[:-8] + b"\xff\xff\xff\x7fPAR1", ("footer", "broken")),
        (GOOD[:-100] + bytes(92) + GOOD[-8:], ("footer", "broken")),
        (
            b"PAR1" + bytes(40) + GOOD[44:],
            ("row group 0",),
        ),
    ],
)
def test_a_file_of_another_format_is_unreadable(content: bytes, named: tuple[str, ...]) -> None:
    error = failure(content)

    assert_names(error.message, *named)
    assert error.code is Code.FILE_ERR


def test_a_file_truncated_at_any_byte_is_unreadable() -> None:
    errors = [failure(GOOD[:size]) for size in range(len(GOOD))]

    assert_names(errors[len(GOOD) // 2].message, "b'PAR1'")


def test_a_wrong_checksum_is_detected() -> None:
    content = bytearray(
        parquet(
            {"id": list(range(1000))},
            write_page_checksum=True,
            use_dictionary=False,
            compression="none",
        )
    )
    content[4000] ^= 1

    assert_names(failure(bytes(content)).message, "row group 0")


def test_an_error_of_the_store_is_not_reported_as_a_broken_file() -> None:
    class Unplugged(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if size and size > 4:
                raise OSError(5, "Input/output error")
            return super().read(size)

    wanted = Wanted(columns=COLUMNS, names=("id",))
    blocks = read_parquet(Unplugged(GOOD), wanted=wanted, start=0, end=None)

    with pytest.raises(OSError, match="Input/output error"):
        list(blocks)
