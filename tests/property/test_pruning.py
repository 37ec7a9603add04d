"""A pruned file or row group contains no row that matches the condition."""

import io
import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from penstock.arrow.types import arrow_type
from penstock.model.schema import Column, DataType, Decimal, Primitive
from penstock.tables.partitions import value_texts
from penstock.tables.pruning import Comparison, Condition, Pruning
from penstock.tables.table import SnapshotFile

TEXTS = st.text(st.sampled_from("amz\U0010ffff"), max_size=3) | st.builds(
    lambda end: "m" * 32 + end, st.text(st.sampled_from("az"), max_size=2)
)
VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    Primitive.BIGINT: st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1]),
    Primitive.DOUBLE: st.sampled_from([-1.5, -0.0, 0.0, 2.0, math.inf, -math.inf, math.nan]),
    Primitive.STRING: TEXTS,
    Primitive.BOOLEAN: st.booleans(),
    Primitive.DATE: st.dates(date(2026, 1, 1), date(2026, 1, 5)) | st.dates(),
    Primitive.TIMESTAMP: st.builds(
        lambda micros: datetime(2026, 1, 1, microsecond=micros, tzinfo=UTC),
        st.integers(0, 2500),
    ),
    Decimal(precision=38, scale=2): st.decimals(-2, 2, places=2),
}
PARTITIONS = [kind for kind in VALUES if kind is not Primitive.DOUBLE]


@st.composite
def examples(
    draw: st.DrawFn, kinds: Sequence[DataType]
) -> tuple[DataType, list[Any], Condition]:
    """Draw a type, the rows of a file and a condition on them."""
    kind = draw(st.sampled_from(kinds))
    value = VALUES[kind]
    rows = draw(st.lists(value | st.none(), min_size=1, max_size=5))
    textual = kind is Primitive.STRING
    possible = [one for one in Comparison if textual or one is not Comparison.PREFIX]
    comparison = draw(st.sampled_from(possible))
    several = comparison is Comparison.EQUAL
    values = draw(st.lists(value | st.none(), min_size=1, max_size=3 if several else 1))
    condition = Condition(
        column="x",
        comparison=comparison,
        values=() if comparison is Comparison.NULL else tuple(values),
        negated=draw(st.booleans()),
    )
    return kind, rows, condition


def matches(row: Any, condition: Condition) -> bool:
    """Return whether the condition is true in SQL."""
    if condition.comparison is Comparison.NULL:
        return (row is None) != condition.negated
    results = [truth(row, condition.comparison, value) for value in condition.values]
    if True in results:
        return not condition.negated
    return condition.negated and None not in results


def truth(row: Any, comparison: Comparison, value: Any) -> bool | None:
    if row is None or value is None:
        return None
    one, other = order(row), order(value)
    match comparison:
        case Comparison.EQUAL:
            return one == other
        case Comparison.LESS:
            return one < other
        case Comparison.LESS_OR_EQUAL:
            return one <= other
        case Comparison.GREATER:
            return one > other
        case Comparison.GREATER_OR_EQUAL:
            return one >= other
        case _:
            return bool(row.startswith(value))


def order(value: Any) -> tuple[bool, Any]:
    above = isinstance(value, float) and math.isnan(value)
    return (above, 0.0 if above else value)


def pruning(kind: DataType, condition: Condition) -> Pruning:
    return Pruning(conditions=(condition,), columns=(Column(name="x", type=kind),))


def file_of(rows: Sequence[Any]) -> SnapshotFile:
    """Return a file with imprecise statistics: truncated texts and times, and no NaN."""
    values = [row for row in rows if row is not None and not order(row)[0]]
    statistics: dict[str, Any] = {
        "numRecords": len(rows),
        "nullCount": {"x": sum(row is None for row in rows)},
    }
    if values:
        statistics["minValues"] = {"x": imprecise(min(values))}
        statistics["maxValues"] = {"x": imprecise(max(values))}
    return SnapshotFile(
        path="a",
        size_bytes=1,
        partition_values=(),
        statistics_json=json.dumps(statistics, default=str),
    )


def imprecise(value: Any) -> Any:
    if isinstance(value, str):
        return value[:32]
    if isinstance(value, datetime):
        return value.replace(microsecond=value.microsecond // 1000 * 1000)
    return str(value) if isinstance(value, Number) else value


@given(example=examples(list(VALUES)))
def test_a_pruned_file_contains_no_matching_row(
    example: tuple[DataType, list[Any], Condition],
) -> None:
    kind, rows, condition = example

    kept = pruning(kind, condition).files([file_of(rows)])

    assert kept or not any(matches(row, condition) for row in rows)


@given(example=examples(list(VALUES)))
def test_a_pruned_row_group_contains_no_matching_row(
    example: tuple[DataType, list[Any], Condition],
) -> None:
    kind, rows, condition = example
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": pa.array(rows, arrow_type(kind))}), sink)

    kept = pruning(kind, condition).row_groups(pq.read_metadata(sink))

    assert kept or not any(matches(row, condition) for row in rows)


@given(example=examples(PARTITIONS))
def test_a_partition_is_read_exactly_if_its_value_matches(
    example: tuple[DataType, list[Any], Condition],
) -> None:
    kind, (row, *_), condition = example
    text = value_texts(pa.array([row], arrow_type(kind)), kind)[0]
    file = SnapshotFile(
        path="a", size_bytes=1, partition_values=(("x", text),), statistics_json=""
    )

    kept = pruning(kind, condition).files([file])

    assert kept or not matches(row, condition)
