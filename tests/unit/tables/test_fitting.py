"""Fit the rows of a source to the columns of a table."""

import pickle
from typing import Any

import pyarrow as pa
import pytest

from penstock.arrow.types import arrow_schema
from penstock.errors import Code, UserError
from penstock.model.job import TargetColumn
from penstock.model.schema import Array, Column, DataType, Primitive, Struct
from penstock.tables.fitting import RowError, check_fit, fit
from tests.error_values import assert_names, raises

SOURCE = (
    Column(name="id", type=Primitive.BIGINT),
    Column(name="qty", type=Primitive.BIGINT),
    Column(name="text", type=Primitive.STRING),
    Column(
        name="customer",
        type=Struct(
            fields=(
                Column(name="city", type=Primitive.STRING),
                Column(
                    name="Address",
                    type=Struct(fields=(Column(name="zip", type=Primitive.STRING),)),
                ),
            )
        ),
    ),
)


def source(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(SOURCE))


def fit_one(
    batch: pa.RecordBatch, path: str | None, kind: DataType, *, nullable: bool = True
) -> list[Any]:
    target = TargetColumn(name="c", path=None if path is None else tuple(path.split(".")))
    column = Column(name="c", type=kind, nullable=nullable)
    fitted = fit(batch, targets=(target,), columns=(column,))
    values: list[Any] = fitted.column(0).to_pylist()
    return values


def test_the_result_has_exactly_the_schema_of_the_table() -> None:
    columns = (
        Column(name="b", type=Primitive.STRING),
        Column(name="a", type=Primitive.INT, nullable=False),
        Column(name="unfilled", type=Array(element=Primitive.DATE)),
    )
    targets = (TargetColumn(name="a", path=("id",)), TargetColumn(name="b", path=("qty",)))

    fitted = fit(source({"id": 1, "qty": 2}), targets=targets, columns=columns)

    assert fitted.schema == arrow_schema(columns)
    assert fitted.to_pylist() == [{"b": "2", "a": 1, "unfilled": None}]


def test_a_field_of_a_null_struct_is_null() -> None:
    batch = source(
        {"customer": {"city": "Bern", "Address": {"zip": "3000"}}},
        {"customer": {"city": None, "Address": None}},
        {"customer": None},
    )

    assert fit_one(batch, "customer.city", Primitive.STRING) == ["Bern", None, None]
    assert fit_one(batch, "customer.Address.zip", Primitive.INT) == [3000, None, None]


def test_a_field_of_a_sliced_batch_has_the_values_of_the_slice() -> None:
    batch = source(*({"customer": {"city": city}} for city in "abcd")).slice(2, 1)

    assert fit_one(batch, "customer.city", Primitive.STRING) == ["c"]


def test_a_column_without_a_source_is_null() -> None:
    assert fit_one(source({"id": 1}, {"id": 2}), None, Primitive.BIGINT) == [None, None]


def test_the_error_for_a_value_that_does_not_fit_names_row_column_value_and_type() -> None:
    batch = source({"qty": 1}, {"qty": None}, {"qty": 300})

    with pytest.raises(RowError) as caught:
        fit_one(batch, "qty", Primitive.TINYINT)

    assert (caught.value.row, caught.value.column) == (2, "c")
    assert_names(str(caught.value), '"c"', "TINYINT", "300")


def test_the_error_for_a_null_in_a_not_null_column_names_its_row() -> None:
    batch = source({"customer": {"city": "Bern"}}, {"customer": None})

    with pytest.raises(RowError) as caught:
        fit_one(batch, "customer.city", Primitive.STRING, nullable=False)

    assert_names(str(caught.value), '"c"', "STRING", "NULL")

    assert caught.value.row == 1


def test_a_null_in_a_not_null_field_of_a_struct_does_not_fit() -> None:
    strict = Struct(
        fields=(
            Column(name="city", type=Primitive.STRING, nullable=False),
            Column(name="Address", type=SOURCE[3].type.fields[1].type),  # type: ignore[union-attr]
        )
    )
    batch = source({"customer": None}, {"customer": {"city": None}})

    with pytest.raises(RowError) as caught:
        fit_one(batch, "customer", strict)

    assert_names(str(caught.value), '"city"', "STRING", "NULL")

    assert caught.value.row == 1


def test_the_message_truncates_a_long_value() -> None:
    with pytest.raises(RowError) as caught:
        fit_one(source({"text": "x" * 10_000}), "text", Primitive.INT)

    assert "x" * 80 in str(caught.value)
    assert len(str(caught.value)) < 150


def test_the_error_names_the_first_row_that_does_not_fit() -> None:
    batch = source({"id": 1, "qty": 1}, {"id": 1, "qty": 300}, {"id": 300, "qty": 1})
    columns = tuple(Column(name=name, type=Primitive.TINYINT) for name in ("id", "qty"))
    targets = tuple(TargetColumn(name=name, path=(name,)) for name in ("id", "qty"))

    with pytest.raises(RowError) as caught:
        fit(batch, targets=targets, columns=columns)

    assert (caught.value.row, caught.value.column) == (1, "qty")


@pytest.mark.parametrize("row", [0, 1, 2, 3, 4])
def test_text_that_is_not_utf8_is_refused_with_its_row(row: int) -> None:
    texts = [b"ok", None, "é".encode(), b"", b"fine"]
    texts[row] = b"\xff\xfe"
    broken = pa.array(texts, pa.binary()).view(pa.string())
    batch = pa.RecordBatch.from_arrays([broken], names=["text"])

    with pytest.raises(RowError) as caught:
        fit_one(batch, "text", Primitive.STRING)

    assert_names(str(caught.value), "UTF-8")

    assert caught.value.row == row


def test_a_row_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(RowError(3, "qty", "too large")))  # noqa: S301

    assert (error.row, str(error)) == (3, 'column "qty": too large')


def test_a_field_is_found_by_its_exact_name_first_and_then_ignoring_case() -> None:
    batch = pa.RecordBatch.from_pydict({"ID": [1], "id": [2], "Qty": [3]})

    assert fit_one(batch, "id", Primitive.BIGINT) == [2]
    assert fit_one(batch, "ID", Primitive.BIGINT) == [1]
    assert fit_one(batch, "QTY", Primitive.BIGINT) == [3]
    with raises(UserError, Code.TYPE_ERR, '"Id"', '"ID"', '"id"'):
        fit_one(batch, "Id", Primitive.BIGINT)


def check_one(path: str, kind: DataType) -> None:
    target = TargetColumn(name="c", path=tuple(path.split(".")))
    check_fit(SOURCE, (target,), (Column(name="c", type=kind),))


def test_a_convertible_type_is_accepted_at_create() -> None:
    check_one("id", Primitive.STRING)
    check_one("customer.ADDRESS.zip", Primitive.BIGINT)


def test_types_without_a_conversion_are_refused_at_create_with_both_types() -> None:
    with pytest.raises(UserError) as caught:
        check_one("customer.city", Array(element=Primitive.STRING))

    assert caught.value.code is Code.TYPE_ERR
    assert_names(caught.value.message, '"c"', "ARRAY<STRING>", '"customer.city"', "STRING")


def test_the_error_for_an_unknown_field_suggests_the_nearest_name() -> None:
    with raises(UserError, Code.TYPE_ERR, "source", '"qyt"') as caught:
        check_one("qyt", Primitive.BIGINT)

    assert_names(caught.value.hint, '"qty"', "id, qty, text, customer")


def test_the_error_for_an_unknown_nested_field_names_its_parent() -> None:
    with raises(UserError, Code.TYPE_ERR, '"customer"', '"town"') as caught:
        check_one("customer.town", Primitive.STRING)

    assert_names(caught.value.hint, "city, Address")


def test_a_target_that_the_table_lacks_is_refused() -> None:
    target = TargetColumn(name="c", path=("id",))

    with raises(UserError, Code.TYPE_ERR, "table", '"c"'):
        check_fit(SOURCE, (target,), (Column(name="d", type=Primitive.BIGINT),))


def test_an_unfilled_not_null_column_is_refused() -> None:
    column = Column(name="c", type=Primitive.BIGINT, nullable=False)

    with raises(UserError, Code.TYPE_ERR, '"c"', "NOT NULL"):
        check_fit(SOURCE, (), (column,))
