"""The watermark of a table in CREATE, ALTER, SHOW CREATE TABLE and DESCRIBE DETAIL."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from penstock.catalog.catalog import Catalog, open_catalog
from penstock.control.execute import execute
from penstock.control.result import Caller, Result
from penstock.errors import Code, UserError
from penstock.model.schema import Column, Primitive
from penstock.sql.parser import parse_script
from penstock.sql.statements import AlterTableWatermark, CreateTable, Watermark
from penstock.testing.memory_tables import MemoryTables
from tests.contract.catalog.building import MovableClock
from tests.error_values import raises
from tests.unit.control.services import services

Run = Callable[[str], Result]
COLUMNS = (
    Column(name="id", type=Primitive.BIGINT),
    Column(name="Clicked At", type=Primitive.TIMESTAMP),
    Column(name="seen", type=Primitive.TIMESTAMP),
    Column(name="local", type=Primitive.TIMESTAMP_NTZ),
)
CREATE = (
    "CREATE TABLE clicks (id BIGINT, `Clicked At` TIMESTAMP, seen TIMESTAMP, "
    "local TIMESTAMP_NTZ, WATERMARK FOR `clicked at` AS `Clicked At` - INTERVAL 5 MINUTES)"
)


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    opened = open_catalog("sqlite://", clock=MovableClock())
    yield opened
    opened.close()


@pytest.fixture
def tables() -> MemoryTables:
    return MemoryTables()


@pytest.fixture
def run(catalog: Catalog, tables: MemoryTables) -> Run:
    """Run a statement on tables that stay until the end of the test."""
    used = replace(services(catalog), open_tables=lambda: tables)
    return lambda text: execute(parse_script(text)[0].statement, services=used)


def stored(catalog: Catalog) -> tuple[str | None, int]:
    """Return the stored watermark of the table."""
    record = catalog.table("clicks")
    assert record is not None
    return record.watermark_column, record.watermark_delay_ms


def shown(run: Run) -> object:
    """Return the watermark that DESCRIBE DETAIL shows."""
    detail = run("DESCRIBE DETAIL clicks")
    return dict(zip(detail.names, detail.rows[0], strict=True))["watermark"]


def test_a_table_is_created_with_its_watermark_spelled_as_declared(
    run: Run, catalog: Catalog
) -> None:
    result = run(CREATE)

    assert result == Result(message="table clicks created")
    assert stored(catalog) == ("Clicked At", 300_000)
    assert shown(run) == "Clicked At - 5 minutes"


def test_show_create_table_prints_a_statement_that_creates_the_same_watermark(
    run: Run, catalog: Catalog
) -> None:
    run(CREATE)

    ((_, text),) = run("SHOW CREATE TABLE clicks").rows
    run("DROP TABLE clicks")
    run(str(text))

    assert "WATERMARK FOR `Clicked At` AS `Clicked At` - INTERVAL 5 MINUTES\n)" in str(text)
    assert stored(catalog) == ("Clicked At", 300_000)


def test_a_table_without_a_watermark_shows_none(run: Run, catalog: Catalog) -> None:
    run("CREATE TABLE clicks (id BIGINT, watermark TIMESTAMP)")

    ((_, text),) = run("SHOW CREATE TABLE clicks").rows

    assert stored(catalog) == (None, 0)
    assert "WATERMARK FOR" not in str(text)
    assert shown(run) == ""


def test_a_watermark_is_set_changed_and_dropped(run: Run, catalog: Catalog) -> None:
    run("CREATE TABLE clicks (id BIGINT, `Clicked At` TIMESTAMP, seen TIMESTAMP)")
    texts = [
        "SET WATERMARK FOR `CLICKED AT` AS `clicked at` - INTERVAL 90 SECONDS",
        "SET WATERMARK FOR seen",
        "DROP WATERMARK",
    ]

    seen = [
        (run(f"ALTER TABLE clicks {t}").message, stored(catalog), shown(run)) for t in texts
    ]

    altered = "table clicks altered"
    assert seen == [
        (altered, ("Clicked At", 90_000), "Clicked At - 90 seconds"),
        (altered, ("seen", 0), "seen"),
        (altered, (None, 0), ""),
    ]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("id", ['"id"', "BIGINT", "TIMESTAMP"]),
        ("local", ['"local"', "TIMESTAMP_NTZ"]),
        ("at", ['"at"', '"clicks"']),
    ],
)
def test_a_table_whose_watermark_does_not_fit_is_not_created(
    catalog: Catalog, tables: MemoryTables, column: str, values: list[str]
) -> None:
    watermark = Watermark(column=column, delay_ms=0)
    statement = CreateTable(
        name="clicks", columns=COLUMNS, location="memory://clicks", watermark=watermark
    )
    used = replace(services(catalog), open_tables=lambda: tables)

    with raises(UserError, Code.TYPE_ERR, *values):
        execute(statement, services=used)

    assert catalog.tables() == ()
    with pytest.raises(UserError):
        tables.open("memory://clicks").columns()


@pytest.mark.parametrize(
    ("column", "values", "hint"),
    [
        ("ID", ['"id"', "BIGINT", "TIMESTAMP"], []),
        ("LOCAL", ['"local"', "TIMESTAMP_NTZ"], []),
        ("at", ['"at"', '"clicks"'], ["Clicked At, seen"]),
    ],
)
def test_a_watermark_that_does_not_fit_the_table_is_refused(
    run: Run, catalog: Catalog, column: str, values: list[str], hint: list[str]
) -> None:
    run(CREATE)

    with raises(UserError, Code.TYPE_ERR, *values, hint=hint):
        run(f"ALTER TABLE clicks SET WATERMARK FOR {column}")

    assert stored(catalog) == ("Clicked At", 300_000)


def test_a_table_without_columns_for_a_watermark_is_named(run: Run) -> None:
    run("CREATE TABLE clicks (id BIGINT)")

    with raises(UserError, Code.TYPE_ERR, '"at"', hint=["none"]):
        run("ALTER TABLE clicks SET WATERMARK FOR at")


def test_the_same_watermark_again_is_refused(run: Run, catalog: Catalog) -> None:
    run(CREATE)

    with raises(UserError, Code.OPTION_ERR, '"clicks"', "watermark"):
        run(
            "ALTER TABLE clicks "
            "SET WATERMARK FOR `clicked at` AS `Clicked At` - INTERVAL 300 SECONDS"
        )

    assert stored(catalog) == ("Clicked At", 300_000)


def test_dropping_a_missing_watermark_is_refused(run: Run) -> None:
    run("CREATE TABLE clicks (id BIGINT)")

    with raises(UserError, Code.OPTION_ERR, '"clicks"', "no watermark"):
        run("ALTER TABLE clicks DROP WATERMARK")


@pytest.mark.parametrize("change", ["SET WATERMARK FOR at", "DROP WATERMARK"])
def test_a_missing_table_cannot_be_altered(run: Run, change: str) -> None:
    with raises(UserError, Code.META_NOT_FOUND_ERR, '"clicks"'):
        run(f"ALTER TABLE clicks {change}")


def test_a_watermark_can_be_dropped_although_the_files_are_missing(
    run: Run, catalog: Catalog, tables: MemoryTables
) -> None:
    run(f"{CREATE} LOCATION 'memory://clicks'")
    tables.delete("memory://clicks")

    run("ALTER TABLE clicks DROP WATERMARK")

    assert stored(catalog) == (None, 0)


def test_a_reader_cannot_alter_a_watermark(catalog: Catalog) -> None:
    reader = Caller(user="ann", roles=frozenset({"read"}))
    statement = AlterTableWatermark(name="clicks", watermark=None)

    with raises(UserError, Code.STATE_ERR, '"ann"', "write"):
        execute(statement, services=services(catalog), caller=reader)
