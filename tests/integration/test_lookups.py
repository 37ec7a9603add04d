"""Tables that a SELECT joins, functions that it calls, and errors from Spark."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType, StringType

from penstock.crashpoints import CrashPoint
from penstock.errors import Code, UserError
from penstock.spark.executor import SparkExecutor
from tests.error_values import assert_names, assert_reason, raises
from tests.integration.driving import (
    MovedClock,
    attempts,
    handling,
    paused,
    rounds_until,
    supervised,
)
from tests.node import Node, write_rows

pytestmark = pytest.mark.integration

TABLES = "CREATE TABLE city (customer STRING, name STRING); CREATE TABLE t (a BIGINT, b STRING)"
JOIN = "SELECT f.id, c.name FROM SRC f LEFT JOIN city c ON f.customer = c.customer"
ONE_BY_ONE = "'s3.max_batch_files' = '1'"
LIMIT = "'lookup_max_bytes' = '3000'"
ZONE = "'session.time_zone' = "
CAST = "SELECT CAST(customer AS BIGINT), customer FROM SRC"
THIS_MODULE = __name__


# Without type hints, because pyspark would interpret them as hints for pandas.
@udf(StringType())
def shout(text):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    return text.upper()


@udf(LongType())
def fail_always(number):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    raise ValueError(f"cannot take {number}")


def create(folder: Path, select: str, *, properties: str = "") -> str:
    """Return a CREATE JOB whose SELECT reads orders from SRC."""
    given = f"PROPERTIES({properties}) " if properties else ""
    source = (
        f"FILES('uri' = 'file://{folder}/*.json', 'format' = 'json', "
        "'schema' = 'id BIGINT, customer STRING, at TIMESTAMP')"
    )
    return f"CREATE JOB j {given}ON STREAMING DO INSERT INTO t {select.replace('SRC', source)}"


def order(folder: Path, number: int, customer: str) -> Path:
    at = "2026-07-01T22:30:00Z"
    return write_rows(
        folder / f"{number}.json", [{"id": number, "customer": customer, "at": at}]
    )


def add_city(node: Node, customer: str, name: str) -> None:
    """Append to the table as another program would."""
    record = node.catalog.table("city")
    assert record is not None
    write_deltalake(
        record.location, pa.table({"customer": [customer], "name": [name]}), mode="append"
    )


def loaded(node: Node) -> list[tuple[Any, Any]]:
    return [(row["a"], row["b"]) for row in node.rows("t")]


@pytest.fixture
def fast_node(tmp_path: Path, spark: SparkExecutor) -> Iterator[Node]:
    """A node on Spark with short waits."""
    node = Node(tmp_path / "home", clock=MovedClock(), spark=spark)
    yield node
    node.catalog.close()


@dataclass
class EpochStarts:
    """Calls a function each time an attempt of an epoch starts."""

    actions: list[Callable[[], object]]
    count: int = field(default=0)

    def __call__(self, point: CrashPoint) -> None:
        if point is CrashPoint.EPOCH_STARTED:
            self.count += 1
            if self.actions:
                self.actions.pop(0)()


def run_with(node: Node, starts: EpochStarts) -> None:
    """Run the jobs until they are caught up; call the functions when attempts start."""

    with supervised(node, until_caught_up=True, start_runner=handling(starts)) as supervisor:
        rounds_until(supervisor, lambda reports: all(report.caught_up for report in reports))


def test_all_attempts_of_an_epoch_see_the_same_version_of_a_joined_table(
    fast_node: Node, folder: Path
) -> None:
    order(folder, 1, "ann")
    fast_node.sql(f"{TABLES}; {create(folder, JOIN)}")
    add_city(fast_node, "ann", "Aachen")
    # The first attempt pins the table and then finds its file changed. The table grows before
    # the second attempt runs.
    starts = EpochStarts(
        actions=[lambda: order(folder, 1, "bob"), lambda: add_city(fast_node, "bob", "Bonn")]
    )

    run_with(fast_node, starts)

    assert attempts(fast_node) == [(1, 1, "FAILED"), (1, 2, "COMMITTED")]
    assert loaded(fast_node) == [(1, None)]
    order(folder, 2, "bob")
    fast_node.run()
    assert loaded(fast_node) == [(1, None), (2, "Bonn")]


def test_each_epoch_sees_the_newest_version_of_a_joined_table(
    spark_node: Node, folder: Path
) -> None:
    for number in (1, 2, 3):
        order(folder, number, "ann")
    spark_node.sql(f"{TABLES}; {create(folder, JOIN, properties=ONE_BY_ONE)}")
    starts = EpochStarts(
        actions=[
            lambda: None,
            lambda: add_city(spark_node, "ann", "Aachen"),
            lambda: add_city(spark_node, "ann", "Ahlen"),
        ]
    )

    run_with(spark_node, starts)

    assert loaded(spark_node) == [
        (1, None),
        (2, "Aachen"),
        (3, "Aachen"),
        (3, "Ahlen"),
    ]
    assert spark_node.job("j").cumulative.rows_read == 3


EVERYTHING = "SELECT f.id, c.* FROM SRC f LEFT JOIN city c ON f.customer = c.customer"


def test_a_column_that_is_added_to_a_joined_table_does_not_change_the_outputs(
    spark_node: Node, folder: Path
) -> None:
    order(folder, 1, "ann")
    spark_node.sql(
        "CREATE TABLE city (customer STRING, name STRING);"
        f"CREATE TABLE t (a BIGINT, c STRING, b STRING); {create(folder, EVERYTHING)}"
    )
    add_city(spark_node, "ann", "Aachen")
    spark_node.run()

    opened_city(spark_node).alter.add_columns([Field("country", PrimitiveType("string"))])
    order(folder, 2, "ann")
    spark_node.run()

    assert loaded(spark_node) == [(1, "Aachen"), (2, "Aachen")]


def test_a_column_of_a_joined_table_that_has_another_type_pauses_the_job(
    fast_node: Node, folder: Path
) -> None:
    order(folder, 1, "ann")
    fast_node.sql(f"{TABLES}; {create(folder, JOIN)}")
    other = pa.table({"customer": ["ann"], "name": [7]})
    write_deltalake(opened_city(fast_node), other, mode="overwrite", schema_mode="overwrite")

    with supervised(fast_node) as supervisor:
        rounds_until(supervisor, paused)

    reason = fast_node.show("j")["reason"]
    assert_reason(reason, Code.TABLE_CHANGED_ERR, '"name"', '"city"', "STRING")
    assert loaded(fast_node) == []


def opened_city(node: Node) -> DeltaTable:
    """Return the joined table as another program opens it."""
    record = node.catalog.table("city")
    assert record is not None
    return DeltaTable(record.location)


def test_a_table_that_is_too_large_to_join_with_is_refused_at_create(
    spark_node: Node, folder: Path
) -> None:
    order(folder, 1, "ann")
    spark_node.sql(TABLES)
    add_city(spark_node, "ann", "Aachen")

    with raises(UserError, Code.OPTION_ERR, '"city"', "10", "Line 1") as refused:
        spark_node.sql(create(folder, JOIN, properties="'lookup_max_bytes' = '10'"))

    assert refused.value.code is Code.OPTION_ERR
    assert '"lookup_max_bytes"' in refused.value.hint
    assert spark_node.sql("SHOW JOBS") == []


def test_a_joined_table_that_grows_too_large_pauses_the_job(
    fast_node: Node, folder: Path
) -> None:
    order(folder, 1, "ann")
    fast_node.sql(f"{TABLES}; {create(folder, JOIN, properties=LIMIT)}")
    add_city(fast_node, "ann", "Aachen")
    fast_node.run()
    for number in range(5):
        add_city(fast_node, f"c{number}", "x" * 1000)
    order(folder, 2, "ann")

    with supervised(fast_node) as supervisor:
        rounds_until(supervisor, paused)

    assert_reason(fast_node.show("j")["reason"], Code.OPTION_ERR, '"city"', "3000")
    assert loaded(fast_node) == [(1, "Aachen")]
    fast_node.sql("ALTER JOB j PROPERTIES('lookup_max_bytes' = '1MB'); RESUME JOB j")
    fast_node.run()
    assert loaded(fast_node) == [(1, "Aachen"), (2, "Aachen")]


def test_a_joined_table_cannot_be_dropped_before_the_job(
    spark_node: Node, folder: Path
) -> None:
    order(folder, 1, "ann")
    spark_node.sql(f"{TABLES}; {create(folder, JOIN)}")

    with raises(UserError, Code.STATE_ERR, '"city"', '"j"'):
        spark_node.sql("DROP TABLE city")

    spark_node.run()
    assert loaded(spark_node) == [(1, None)]
    spark_node.sql("DROP JOB j; DROP TABLE city")
    assert spark_node.catalog.table("city") is None


def test_a_deleted_joined_table_pauses_the_job_with_a_reason(
    fast_node: Node, folder: Path
) -> None:
    order(folder, 1, "ann")
    fast_node.sql(f"{TABLES}; {create(folder, JOIN)}")
    fast_node.run()
    record = fast_node.catalog.table("city")
    assert record is not None
    moved = Path(record.location).rename(folder.with_name("away"))
    order(folder, 2, "ann")

    with supervised(fast_node) as supervisor:
        rounds_until(supervisor, paused)

    assert 'TABLE_CHANGED_ERR: table "city"' in str(fast_node.show("j")["reason"])
    assert loaded(fast_node) == [(1, None)]
    moved.rename(record.location)
    fast_node.sql("RESUME JOB j")
    fast_node.run()
    assert loaded(fast_node) == [(1, None), (2, None)]


def test_a_job_can_read_its_own_table_as_of_the_previous_epoch(
    spark_node: Node, folder: Path
) -> None:
    own = "SELECT f.id, f.customer FROM SRC f LEFT ANTI JOIN t ON f.id = t.a"
    write_rows(folder / "a.json", [{"id": 1, "customer": "x"}, {"id": 1, "customer": "y"}])
    spark_node.sql(f"{TABLES}; {create(folder, own)}")
    spark_node.run()
    write_rows(folder / "b.json", [{"id": 1, "customer": "z"}, {"id": 2, "customer": "z"}])

    spark_node.run()

    assert loaded(spark_node) == [(1, "x"), (1, "y"), (2, "z")]
    assert spark_node.job("j").cumulative.rows_read == 4


def udfs(module: str) -> str:
    return f"'session.python_udfs' = '{module}'"


def test_a_select_calls_the_functions_of_a_module(spark_node: Node, folder: Path) -> None:
    order(folder, 1, "ann")
    select = "SELECT id, shout(customer) FROM SRC"

    spark_node.sql(f"{TABLES}; {create(folder, select, properties=udfs(THIS_MODULE))}")
    spark_node.run()

    assert loaded(spark_node) == [(1, "ANN")]


@pytest.mark.parametrize(
    ("module", "named"),
    [
        ("no.such", ('"no.such"', '"session.python_udfs"')),
        ("json.decoder", ('"json.decoder"', '"session.python_udfs"', "function")),
    ],
)
def test_a_module_that_is_missing_or_has_no_function_is_refused(
    spark_node: Node, folder: Path, module: str, named: tuple[str, ...]
) -> None:
    order(folder, 1, "ann")
    spark_node.sql(TABLES)

    with pytest.raises(UserError) as refused:
        spark_node.sql(
            create(folder, "SELECT id, shout(customer) FROM SRC", properties=udfs(module))
        )

    assert_names(refused.value.message, *named)
    assert refused.value.code is Code.OPTION_ERR
    assert refused.value.hint
    assert spark_node.sql("SHOW JOBS") == []


def test_a_function_that_raises_pauses_the_job_with_its_message(
    fast_node: Node, folder: Path
) -> None:
    order(folder, 1, "ann")
    select = "SELECT fail_always(id), customer FROM SRC"
    fast_node.sql(f"{TABLES}; {create(folder, select, properties=udfs(THIS_MODULE))}")

    with supervised(fast_node) as supervisor:
        rounds_until(supervisor, lambda _: (1, 1, "FAILED") in attempts(fast_node))

    failed = next(row for row in fast_node.sql("SHOW EPOCHS FOR j") if row["epoch"] == 1)
    reason = str(failed["reason"])
    assert "ValueError: cannot take 1" in reason
    assert "Traceback" not in reason
    assert "\tat org." not in reason
    assert loaded(fast_node) == []


@pytest.mark.parametrize(
    ("zone", "shown"), [("UTC", "2026-07-01 22"), ("Europe/Berlin", "2026-07-02 00")]
)
def test_a_select_sees_local_times_in_the_time_zone_of_the_job(
    spark_node: Node, folder: Path, zone: str, shown: str
) -> None:
    order(folder, 1, "ann")
    select = "SELECT id, date_format(at, 'yyyy-MM-dd HH') FROM SRC"

    spark_node.sql(f"{TABLES}; " + create(folder, select, properties=f"{ZONE}'{zone}'"))
    spark_node.run()

    assert loaded(spark_node) == [(1, shown)]


def test_an_instant_keeps_its_value_and_its_text_in_every_time_zone(
    spark_node: Node, folder: Path
) -> None:
    order(folder, 1, "ann")
    select = "SELECT id, at FROM SRC WHERE true"

    spark_node.sql(f"{TABLES}; " + create(folder, select, properties=f"{ZONE}'Asia/Kolkata'"))
    spark_node.run()

    assert loaded(spark_node) == [(1, "2026-07-01 22:30:00")]


def test_an_unknown_time_zone_is_refused(spark_node: Node, folder: Path) -> None:
    order(folder, 1, "ann")
    spark_node.sql(TABLES)

    with raises(UserError, Code.OPTION_ERR, '"session.time_zone"', '"Mars"') as refused:
        spark_node.sql(create(folder, "SELECT id + 1, at FROM SRC", properties=f"{ZONE}'Mars'"))

    assert refused.value.code is Code.OPTION_ERR


def test_a_value_that_a_strict_select_cannot_convert_pauses_the_job_at_once(
    spark_node: Node, folder: Path
) -> None:
    order(folder, 1, "7")
    order(folder, 2, "seven")
    spark_node.sql(f"{TABLES}; {create(folder, CAST)}")

    spark_node.run()

    assert spark_node.show("j")["state"] == "PAUSED"
    reason = str(spark_node.show("j")["reason"])
    assert reason.startswith("TOO_MANY_FAILURE_ROWS_ERR: ")
    assert "'seven'" in reason
    assert "\n" not in reason
    assert "org.apache" not in reason
    assert attempts(spark_node) == [(1, 1, "FAILED")]
    assert loaded(spark_node) == []
    order(folder, 2, "8")
    spark_node.sql("RESUME JOB j")
    spark_node.run()
    assert loaded(spark_node) == [(7, "7"), (8, "8")]


def test_a_value_that_a_lenient_select_cannot_convert_is_null(
    spark_node: Node, folder: Path
) -> None:
    order(folder, 1, "7")
    order(folder, 2, "seven")
    lenient = "'session.enable_insert_strict' = 'false'"

    spark_node.sql(f"{TABLES}; {create(folder, CAST, properties=lenient)}")
    spark_node.run()

    assert loaded(spark_node) == [(7, "7"), (None, "seven")]
    assert spark_node.job("j").cumulative.rows_rejected == 0


CALL = "FILES(\n    'uri' = 'file://DIR/*.json',\n    'format' = 'json'\n  )"
MISTAKES = [
    ("SELECT id,\n  customer\nFROM SRC\nWHERE\n  nope > 1", "nope", "`nope`"),
    ("SELECT id,\n  customer FROM SRC WHERE nope > 1", "nope", "`nope`"),
    ("SELECT\n  nope + 1, customer FROM SRC", "nope", "`nope`"),
    ("SELECT id, customer\nFROM SRC\nWHERE id > > 1", "> 1", "Syntax error"),
    ("SELECT id, customer\nFROM SRC\nWHERE\n id = array(1)", "id = array", "mismatch"),
    ("SELECT id, no_such(customer)\nFROM SRC", "no_such", "`no_such`"),
    ("SELECT id, x.name FROM SRC f\nJOIN nowhere x ON true", "nowhere", '"nowhere"'),
]


@pytest.mark.parametrize(("select", "place", "message"), MISTAKES)
def test_an_error_in_a_select_is_reported_at_create_with_line_and_column(
    spark_node: Node, folder: Path, *, select: str, place: str, message: str
) -> None:
    order(folder, 1, "ann")
    spark_node.sql(TABLES)
    select = select.replace("SRC", CALL.replace("DIR", str(folder)))
    statement = f"CREATE JOB j\nON STREAMING DO\nINSERT INTO t {select}"
    before = statement[: statement.rindex(place)].split("\n")

    with pytest.raises(UserError) as refused:
        spark_node.sql(statement)

    assert message in refused.value.message
    assert_names(refused.value.detail, f"Line {len(before)}, column {len(before[-1]) + 1}.")
    error_text = refused.value.message + refused.value.detail + refused.value.hint
    assert "\n" not in error_text
    assert "org.apache" not in error_text
    assert "SQLSTATE" not in error_text
    assert spark_node.sql("SHOW JOBS") == []
