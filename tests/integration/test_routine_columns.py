"""From the bytes of a record to the columns of a table: formats, COLUMNS, filters, metadata."""

import gzip
import json

import pytest

from penstock.errors import Code, UserError
from penstock.spark.executor import SparkExecutor
from tests.error_values import raises
from tests.integration.routine_loads import FIRST, Load, row
from tests.servers.kinesis_clients import new_stream

pytestmark = pytest.mark.integration

ONE = [{"id": 1, "note": "a"}]
CSV = {"format": "csv"}


@pytest.mark.parametrize(
    ("record", "clauses", "properties"),
    [
        (b"1\ta", "", CSV),
        (b"a,1", "COLUMNS TERMINATED BY ',', COLUMNS(note, id)", CSV),
        (b"x,1,y,a", "COLUMNS TERMINATED BY ',', COLUMNS(x, id, y, note)", CSV),
        (b'1,"a"', "COLUMNS TERMINATED BY ','", CSV | {"enclose": '"'}),
        (b'"1","a"', "COLUMNS TERMINATED BY ','", CSV | {"trim_double_quotes": "true"}),
        (b'{"note": "a", "id": 1}', "", {}),
        (b'{"data": {"note": "a", "id": 1}}', "", {"json_root": "$.data"}),
        (b'[{"note": "a", "id": 1}]', "", {"strip_outer_array": "true"}),
        (
            b'{"k": 1, "v": {"w": "a"}}',
            "COLUMNS(id, note)",
            {"jsonpaths": '["$.k", "$.v.w"]'},
        ),
        (b'{"id": 1, "note": "a"}', "", {"num_as_string": "true"}),
        (gzip.compress(b'{"id": 1, "note": "a"}'), "", {"compress_type": "gzip"}),
    ],
    ids=[
        "csv",
        "columns of csv",
        "unused columns",
        "enclosed",
        "trimmed quotes",
        "json",
        "root",
        "array",
        "paths",
        "numbers as texts",
        "gzip",
    ],
)
def test_a_record_becomes_a_row(
    load: Load, *, record: bytes, clauses: str, properties: dict[str, str]
) -> None:
    load.stream.put(record)
    load.create(clauses=clauses, properties=properties)

    load.run()

    assert load.loaded() == ONE


@pytest.mark.parametrize(
    ("record", "properties", "note"),
    [
        (rb"1,\N", {}, None),
        (b"1,", {}, ""),
        (b"1,", {"empty_field_as_null": "true"}, None),
    ],
)
def test_null_values_in_csv(
    load: Load, *, record: bytes, properties: dict[str, str], note: str | None
) -> None:
    load.stream.put(record)
    clauses = "COLUMNS TERMINATED BY ','"
    load.create(clauses=clauses, properties=CSV | properties)

    load.run()

    assert load.loaded() == [{"id": 1, "note": note}]


@pytest.mark.parametrize(
    ("as_string", "rows"), [("false", []), ("true", [{"id": 1, "flag": True}])]
)
def test_numbers_are_loaded_as_strings_if_the_option_is_set(
    load: Load, as_string: str, rows: list[object]
) -> None:
    load.sql("DROP TABLE t; CREATE TABLE t (id BIGINT, flag BOOLEAN)")
    load.stream.put(b'{"id": 1, "flag": 1}')
    load.create(properties={"num_as_string": as_string})

    load.run()

    assert load.loaded() == rows
    assert load.statistic()["errorRows"] == 1 - len(rows)


def test_text_records_are_loaded_unchanged(load: Load) -> None:
    load.sql("DROP TABLE t; CREATE TABLE t (value STRING)")
    load.stream.put(b'{"no": "json"')
    load.create(properties={"format": "text"})

    load.run()

    assert load.loaded() == [{"value": '{"no": "json"'}]


def test_t85_cloudwatch_events_become_rows(load: Load) -> None:
    events = [{"id": number, "note": "x"} for number in range(3)]
    load.stream.put(gzip.compress(json.dumps({"owner": 1, "logEvents": events}).encode()))
    properties = {
        "compress_type": "gzip",
        "json_root": "$.logEvents",
        "strip_outer_array": "true",
    }
    load.create(properties=properties)

    load.run()

    assert load.loaded() == events


def test_t85_a_record_of_ten_mebibytes_is_loaded(load: Load) -> None:
    wide = new_stream(load.stream.client, MaxRecordSizeInKiB=10 * 1024)
    head, tail = b'{"id": 1, "note": "', b'"}'
    wide.put(head + b"x" * (10 * 2**20 - len(head) - len(tail) - len("k")) + tail)
    load.create(stream=wide)

    load.run()

    assert load.ids() == [1]


@pytest.fixture
def spark_load(load: Load, spark: SparkExecutor) -> Load:
    """The load, with Spark for the expressions of its clauses."""
    load.node.spark = spark
    return load


def expressions(load: Load, clauses: str, **properties: str) -> None:
    """Load the stream with clauses that need Spark."""
    load.create(clauses=clauses, properties=properties)
    load.run()


def test_columns_are_computed_and_filtered(spark_load: Load) -> None:
    for number in range(1, 6):
        spark_load.stream.put(row(number, f"n{number}"), key="a")

    expressions(
        spark_load,
        "COLUMNS(id, note, id = id * 10, note = concat(_partition_key, upper(note))), "
        "PRECEDING FILTER id > 1, WHERE id < 50 AND note <> 'aN3'",
    )

    assert spark_load.loaded() == [{"id": 20, "note": "aN2"}, {"id": 40, "note": "aN4"}]
    counted = spark_load.statistic()
    assert (counted["totalRows"], counted["unselectedRows"]) == (5, 3)


def test_a_text_is_split_by_expressions(spark_load: Load) -> None:
    spark_load.stream.put(b"7 seven")

    expressions(
        spark_load,
        "COLUMNS(value, id = cast(left(value, 1) AS BIGINT), note = substring(value, 3))",
        format="text",
    )

    assert spark_load.loaded() == [{"id": 7, "note": "seven"}]


def test_a_row_whose_expression_fails_is_rejected_in_strict_mode_too(spark_load: Load) -> None:
    spark_load.stream.put_all(b"1", b"x", b"2")

    expressions(
        spark_load, "COLUMNS(a, id = CAST(a AS BIGINT))", format="csv", strict_mode="true"
    )

    assert spark_load.ids() == [1, 2]
    assert spark_load.statistic()["errorRows"] == 1
    assert spark_load.reason() == ["TOO_MANY_FAILURE_ROWS_ERR", "1", "3", "0"]
    assert spark_load.shown()["JobProperties"]["strict_mode"] == "true"


def test_metadata_of_a_record_can_be_loaded(spark_load: Load) -> None:
    spark_load.sql(
        "DROP TABLE t; CREATE TABLE t (id BIGINT, _shard STRING, number STRING, key STRING, "
        "at TIMESTAMP, encryption STRING)"
    )
    number = spark_load.stream.put(b'{"id": 1, "_shard": "mine"}', key="a key")
    spark_load.control.switch(encrypted=True)
    second = spark_load.stream.put(b'{"id": 2}', key="a key")
    clauses = (
        "COLUMNS(id, _shard = _shard, number = _sequence, key = _partition_key, "
        "at = _arrived_at, encryption = _encryption_type), WHERE _partition_key = 'a key'"
    )
    spark_load.create(clauses=clauses)

    spark_load.run()

    found = spark_load.loaded()
    arrived_at = [one.pop("at") for one in found]
    assert [list(one.values()) for one in found] == [
        [1, FIRST, number, "a key", "NONE"],
        [2, FIRST, second, "a key", "KMS"],
    ]
    assert abs((spark_load.control.now() - arrived_at[0]).total_seconds()) < 60


def test_t35_an_altered_filter_survives_a_restart(spark_load: Load) -> None:
    spark_load.stream.put(row(1))
    expressions(spark_load, "WHERE id > 0")
    spark_load.alter("WHERE id > 2")
    spark_load.stream.put_all(row(2), row(3))

    again = spark_load.restart()
    text = again.create_text()
    again.run()

    assert "WHERE id > 2" in text
    assert again.ids() == [1, 3]


@pytest.mark.parametrize(
    ("clauses", "named"),
    [
        ("WHERE nothing > 1", "nothing"),
        ("COLUMNS(id, note, note = sum(id))", "GROUP BY"),
    ],
)
def test_invalid_expressions_are_refused(spark_load: Load, clauses: str, named: str) -> None:
    with raises(UserError, Code.TYPE_ERR, named):
        spark_load.create(clauses=clauses)

    assert spark_load.sql("SHOW ALL ROUTINE LOAD") == []
