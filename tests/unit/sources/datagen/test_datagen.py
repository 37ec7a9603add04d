"""Generated rows depend only on seed and position, and stay within their bounds."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as Number
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Code, UserError
from penstock.model.schema import Array, Column, Decimal, Primitive
from penstock.model.secrets import Sealed
from penstock.model.split import At, AtTime, End, SplitProgress, SplitRead
from penstock.sources.datagen.kind import (
    DATAGEN,
    DatagenOptions,
    check_fields,
    position_at,
    rows_due,
    rows_of_split,
)
from penstock.sources.datagen.reader import DatagenReader
from penstock.sources.registry import source_ref
from penstock.sources.source import ReadTask
from tests.error_values import raises

START = datetime(2026, 11, 17, 12, tzinfo=UTC)
COLUMNS = (
    Column(name="id", type=Primitive.BIGINT),
    Column(name="small", type=Primitive.TINYINT),
    Column(name="price", type=Decimal(precision=10, scale=2)),
    Column(name="ratio", type=Primitive.DOUBLE),
    Column(name="name", type=Primitive.STRING),
    Column(name="raw", type=Primitive.BINARY),
    Column(name="ok", type=Primitive.BOOLEAN),
    Column(name="day", type=Primitive.DATE),
    Column(name="at", type=Primitive.TIMESTAMP),
    Column(name="local", type=Primitive.TIMESTAMP_NTZ),
)


def read(start: int, end: int, *, split: int = 0) -> SplitRead:
    return SplitRead(
        id=f"{split}:{start}-{end}",
        split=str(split),
        begin=At(value=str(start)),
        end=At(value=str(end)),
        work=START.isoformat(),
    )


def generated(
    options: DatagenOptions,
    reads: Iterable[SplitRead],
    *,
    columns: tuple[Column, ...] = COLUMNS,
) -> list[dict[str, Any]]:
    """Return the rows that a task generates."""
    task = ReadTask(
        source=source_ref(DATAGEN, options),
        access=Sealed(),
        payload=None,
        columns=columns,
        needed=tuple(column.name for column in columns),
        reads=tuple(reads),
    )
    return [row for block in DatagenReader(task).blocks() for row in block.batch.to_pylist()]


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 3), st.integers())
def test_rows_do_not_depend_on_how_ranges_are_divided(
    one: int, other: int, splits: int, seed: int
) -> None:
    middle, end = sorted((one, other))
    options = DatagenOptions(splits=splits, seed=seed)

    whole = generated(options, [read(0, end, split=splits - 1)])
    parts = generated(
        options, [read(0, middle, split=splits - 1), read(middle, end, split=splits - 1)]
    )

    assert whole == parts


def test_all_splits_together_contain_every_row_once() -> None:
    options = DatagenOptions(splits=3, fields=(("id.kind", "sequence"), ("id.start", "10")))

    rows = [row for split in range(3) for row in generated(options, [read(0, 4, split=split)])]

    assert sorted(row["id"] for row in rows) == list(range(10, 22))


def test_another_seed_generates_other_rows() -> None:
    one, other = (generated(DatagenOptions(seed=seed), [read(0, 9)]) for seed in (1, 2))

    assert one != other


def test_random_values_stay_within_their_bounds() -> None:
    fields = (
        ("small.min", "-3"),
        ("small.max", "3"),
        ("price.min", "5"),
        ("price.max", "9.99"),
        ("ratio.min", "-1"),
        ("ratio.max", "1"),
        ("name.length", "30"),
        ("day.min", "2026-01-01"),
        ("day.max", "2026-01-31"),
    )

    rows = generated(DatagenOptions(fields=fields), [read(0, 2_000)])

    assert {row["small"] for row in rows} == set(range(-3, 4))
    assert all(Number(5) <= row["price"] <= Number("9.99") for row in rows)
    assert all(-1 <= row["ratio"] <= 1 for row in rows)
    assert {len(row["name"]) for row in rows} == {30}
    assert {row["ok"] for row in rows} == {True, False}
    assert min(row["day"] for row in rows) == date(2026, 1, 1)
    assert max(row["day"] for row in rows) == date(2026, 1, 31)


def test_now_is_the_start_plus_the_row_divided_by_the_rate() -> None:
    options = DatagenOptions(
        rows_per_second=4, fields=(("at.kind", "now"), ("day.kind", "now"))
    )

    rows = generated(options, [read(0, 9)])

    assert [row["at"] - START for row in rows] == [timedelta(seconds=n / 4) for n in range(9)]
    assert {row["day"] for row in rows} == {START.date()}


@pytest.mark.parametrize(
    ("seconds", "due"), [(0, [0, 0, 0]), (1.5, [1, 1, 1]), (60, [4, 3, 3])]
)
def test_rows_become_due_with_time_and_end_with_the_total(
    seconds: float, due: list[int]
) -> None:
    options = DatagenOptions(rows_per_second=2, rows_total=10, splits=3)
    splits = [
        SplitProgress(split=str(n), floor=AtTime(at=START), position=At(value="0"))
        for n in range(3)
    ]

    now = START + timedelta(seconds=seconds)

    assert [rows_due(options, split, now=now) for split in splits] == due
    assert [rows_of_split(options, n) for n in range(3)] == [4, 3, 3]
    assert position_at(4, options, 0) == End()


REFUSED = [
    ((("id.kind", "now"),), ('"id"', "BIGINT")),
    ((("ok.kind", "sequence"),), ('"ok"', "BOOLEAN")),
    ((("id.min", "9"), ("id.max", "1")), ("9", "1")),
    ((("id.min", "x"),), ('"fields.id.min"', '"x"')),
    ((("small.max", "1000"),), ("TINYINT", "1000")),
    ((("price.max", "1e8"),), ("DECIMAL", "10", "2", "1e", "08")),
    ((("small.kind", "sequence"), ("small.start", "128")), ("128",)),
    ((("day.max", "x"),), ("2026-01-31",)),
    ((("other.kind", "random"),), ('"fields.other.type"',)),
    ((("other.type", "INT, more INT"),), ("one type",)),
    ((("id.type", "STRING"),), ("column", '"id"')),
    ((("id.size", "3"),), ('"size"',)),
    ((("id", "3"),), ("fields.<name>.<option>",)),
]


@pytest.mark.parametrize(("fields", "named"), REFUSED)
def test_a_field_that_cannot_be_generated_is_refused(
    fields: tuple[tuple[str, str], ...], named: tuple[str, ...]
) -> None:
    with raises(UserError, Code.OPTION_ERR, *named) as refused:
        check_fields(DatagenOptions(fields=fields), COLUMNS)

    assert refused.value.code is Code.OPTION_ERR


def test_nested_types_are_refused_and_extra_fields_have_a_type() -> None:
    nested = (*COLUMNS, Column(name="tags", type=Array(element=Primitive.STRING)))
    further = (("tag.type", "STRING"), ("tag.length", "3"))

    with raises(UserError, Code.OPTION_ERR, '"tags"', "ARRAY<STRING>"):
        check_fields(DatagenOptions(), nested)
    columns = check_fields(DatagenOptions(fields=further), COLUMNS)

    assert columns == (*COLUMNS, Column(name="tag", type=Primitive.STRING))


def test_an_unlimited_rate_requires_a_total() -> None:
    unlimited = DatagenOptions(rows_per_second=None)

    with raises(UserError, Code.OPTION_ERR, '"rows_total"'):
        check_fields(unlimited, COLUMNS)
    assert check_fields(replace(unlimited, rows_total=1), COLUMNS)


def test_a_sequence_that_exceeds_its_type_before_the_total_is_refused() -> None:
    options = DatagenOptions(rows_total=200, fields=(("small.kind", "sequence"),))

    with raises(UserError, Code.OPTION_ERR, "1", "200"):
        check_fields(options, COLUMNS)


def test_a_sequence_fails_after_the_largest_value_of_its_type() -> None:
    options = DatagenOptions(fields=(("small.kind", "sequence"),))

    rows = generated(options, [read(100, 127)])

    assert rows[-1]["small"] == 127
    with raises(UserError, Code.OPTION_ERR, '"small"', "TINYINT"):
        generated(options, [read(100, 128)])


def test_a_sequence_can_be_decimal_or_floating_point() -> None:
    columns = (
        Column(name="price", type=Decimal(precision=10, scale=2)),
        Column(name="ratio", type=Primitive.FLOAT),
    )
    fields = (("price.kind", "sequence"), ("ratio.kind", "sequence"))

    rows = generated(DatagenOptions(fields=fields), [read(2**24, 2**24 + 2)], columns=columns)

    assert [row["price"] for row in rows] == [2**24 + 1, 2**24 + 2]
    assert all(abs(row["ratio"] - 2**24) <= 2 for row in rows)


def test_decimals_of_many_digits_stay_within_their_bounds() -> None:
    columns = (
        Column(name="wide", type=Decimal(precision=38, scale=18)),
        Column(name="low", type=Decimal(precision=38, scale=0)),
    )
    fields = (("low.min", "-9e37"), ("low.max", "-1e37"))

    rows = generated(DatagenOptions(fields=fields), [read(0, 100)], columns=columns)

    assert all(0 <= row["wide"] <= 1_000 for row in rows)
    assert len({row["wide"] for row in rows}) == 100
    assert all(Number("-9e37") <= row["low"] <= Number("-1e37") for row in rows)


def test_now_does_not_overflow_for_large_row_numbers() -> None:
    options = DatagenOptions(rows_per_second=100_000_000, fields=(("at.kind", "now"),))
    first = 100_000_000 * 86_400 * 2

    (row,) = generated(options, [read(first, first + 1)])

    assert row["at"] - START == timedelta(days=2)
