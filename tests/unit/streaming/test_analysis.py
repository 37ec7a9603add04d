"""Texts of the analysis of streaming queries."""

import pytest

from penstock.streaming.logical import interval_text, shown, table_of


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0 seconds"),
        (1, "1 millisecond"),
        (90_000, "90 seconds"),
        (600_000, "10 minutes"),
        (7_200_000, "2 hours"),
        (86_400_000, "1 day"),
        (600_500, "600,500 milliseconds"),
    ],
)
def test_an_interval_is_written_exactly_in_one_unit(duration_ms: int, text: str) -> None:
    assert interval_text(duration_ms) == text


@pytest.mark.parametrize(
    ("view", "table"), [("orders__1", "orders"), ("a__b__12", "a__b"), ("plain", "plain")]
)
def test_the_table_of_a_view_has_no_number(view: str, table: str) -> None:
    assert table_of(view) == table


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("orders__1.id = b__10.id", "orders.id = b.id"),
        ("`my orders__2`.id", "`my orders`.id"),
        ("upper(__auto_generated_subquery_name.k)", "upper(k)"),
        ("k__1", "k__1"),
    ],
)
def test_sql_is_shown_without_names_of_views(sql: str, text: str) -> None:
    assert shown(sql) == text
