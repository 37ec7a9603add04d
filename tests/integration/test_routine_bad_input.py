"""Statements that cannot become a routine load: refused by key, value and rule."""

import json
from datetime import timedelta

import pytest

from penstock.errors import ExternalError
from tests.integration.routine_loads import (
    FIRST,
    create,
    loads,
    put,
    refusal,
    server,
    stream,
    times_in,
)
from tests.node import Node
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import StreamUnderTest, new_stream

__all__ = ["loads", "server", "stream"]
pytestmark = pytest.mark.integration

TIME = "a time such as 2026-11-15 10:00:00"
ALLOWED = f"TRIM_HORIZON, LATEST, a sequence number or {TIME}"
ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"


def refused(node: Node, statement: str) -> str:
    """Answer how a statement is refused; it leaves nothing behind."""
    version = node.tables.open(table_location(node)).version  # type: ignore[union-attr]

    told = refusal(node, statement)

    assert node.sql("SHOW ALL ROUTINE LOAD") == []
    assert node.catalog.secrets() == ()
    assert node.tables.open(table_location(node)).version == version  # type: ignore[union-attr]
    return told


def table_location(node: Node) -> str:
    record = node.catalog.table("t")
    assert record is not None
    return record.location


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"aws__access_key": ""},
            'option "aws.secret_key" needs "aws.access_key" beside it',
        ),
        (
            {"aws__secret_key": ""},
            'option "aws.access_key" needs "aws.secret_key" beside it',
        ),
        (
            {"aws__access_key": "", "aws__secret_key": "", "aws__session_key": "x"},
            'option "aws.session_key" needs "aws.access_key" beside it',
        ),
        (
            {"property__aws__external__id": "x"},
            'option "property.aws.external.id" needs "aws.role_arn" beside it',
        ),
        (
            {"aws__role_arn": "mine"},
            'option "aws.role_arn" must be an ARN, not "mine"',
        ),
        (
            {"aws__region": "moon"},
            'option "aws.region" must look like eu-west-1, not "moon"',
        ),
        (
            {"aws__region": ""},
            'KINESIS lacks "aws.region"',
        ),
        (
            {"kinesis_stream": "a/b"},
            'option "kinesis_stream" must look like orders, not "a/b"',
        ),
        (
            {"kinesis_stream": ""},
            'KINESIS lacks "kinesis_stream"',
        ),
        (
            {"aws__endpoint": "localhost"},
            'option "aws.endpoint" must begin with https:// or http://: "localhost"',
        ),
        (
            {"aws__endpoint": "http://bad host/"},
            'option "aws.endpoint" must name a host and, if any, a port up to 65535: '
            '"http://bad host/"',
        ),
        (
            {"aws__endpoint": "http://host:99999"},
            'option "aws.endpoint" must name a host and, if any, a port up to 65535: '
            '"http://host:99999"',
        ),
        (
            {"aws__endpoint": "http://me:mine@localhost"},
            'option "aws.endpoint" must not hold a name or a password',
        ),
        (
            {"property__aws__kinesis__stream_arn": "orders"},
            'option "property.aws.kinesis.stream_arn" must look like '
            'arn:aws:kinesis:eu-west-1:123456789012:stream/orders, not "orders"',
        ),
        (
            {"property__aws__kinesis__stream_arn": ARN},
            'option "property.aws.kinesis.stream_arn" names "eu-west-1", but "aws.region" is '
            '"us-east-1"',
        ),
        (
            {"property__aws__kinesis__stream_arn": ARN, "aws__region": "eu-west-1"},
            'option "property.aws.kinesis.stream_arn" names "orders", but "kinesis_stream" is '
            '"{stream}"',
        ),
        (
            {"property__aws__kinesis__max_records": "10001"},
            'option "property.aws.kinesis.max_records" must be at most 10000, not 10001',
        ),
        (
            {"property__aws__kinesis__max_results": "0"},
            'option "property.aws.kinesis.max_results" must be at least 1, not 0',
        ),
        (
            {"kpl_foreign_records": "keep"},
            'option "kpl_foreign_records" must be one of reject, load, skip, not "keep"',
        ),
        (
            {"kinesis_region": "us-east-1"},
            'KINESIS does not know the option "kinesis_region"',
        ),
        (
            {"kinesis_endpoint": "http://localhost"},
            'options "aws.endpoint" and "kinesis_endpoint" are the same',
        ),
        (
            {"kinesis_shards": f"{FIRST},{FIRST}"},
            f'option "kinesis_shards" names a shard twice: {FIRST},{FIRST}',
        ),
        (
            {"kinesis_shards": FIRST, "kinesis_shards_pos": "LATEST,LATEST"},
            'option "kinesis_shards_pos" has 2 positions, but "kinesis_shards" has 1 shard',
        ),
        (
            {"kinesis_shards_pos": "LATEST"},
            'option "kinesis_shards_pos" has 1 position, but "kinesis_shards" has 0 shards',
        ),
        (
            {
                "kinesis_shards": FIRST,
                "kinesis_shards_pos": "LATEST",
                "property__kinesis_default_pos": "LATEST",
            },
            'options "kinesis_shards_pos" and "property.kinesis_default_pos" exclude each '
            "other",
        ),
        (
            {"property__kinesis_default_pos": "soon"},
            f'option "property.kinesis_default_pos" must be {ALLOWED}, not "soon"',
        ),
        (
            {"property__aws__kinesis__timestamp": "LATEST"},
            f'option "property.aws.kinesis.timestamp" must be {TIME}, not "LATEST"',
        ),
        (
            {"property__aws__kinesis__timestamp": "4959"},
            f'option "property.aws.kinesis.timestamp" must be {TIME}, not "4959"',
        ),
        (
            {"property__kinesis_positions": "[]"},
            'option "property.kinesis_positions" must be JSON with a position for every shard, '
            'not "[]"',
        ),
        (
            {"property__kinesis_positions": '{"a": "BEHIND 1"}'},
            'option "property.kinesis_positions" must have TRIM_HORIZON, TIME …, AT …, AFTER … '
            'or END for shard a, not "BEHIND 1"',
        ),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_key_value_and_rule(
    loads: Node, stream: StreamUnderTest, *, options: dict[str, str], told: str
) -> None:
    assert refused(loads, create(stream, properties={}, **options)) == (
        f"OPTION_ERR: {told.replace('{stream}', stream.name)}"
    )


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"max_batch_rows": "0"}, 'option "max_batch_rows" must be at least 1, not 0'),
        (
            {"max_batch_interval": "0"},
            'option "max_batch_interval" must be at least 1s, not 0',
        ),
        ({"max_filter_ratio": "1.5"}, 'option "max_filter_ratio" must be at most 1.0, not 1.5'),
        ({"max_error_number": "-1"}, 'option "max_error_number" must be at least 0, not -1'),
        ({"timezone": "Moon"}, 'option "timezone" must name a time zone, not "Moon"'),
        ({"format": "xml"}, 'option "format" must be one of csv, json, text, not "xml"'),
        ({"no_such": "1"}, 'a routine load does not know the option "no_such"'),
        ({"enclose": '"'}, 'option "enclose" has no meaning for the format json'),
        (
            {"format": "csv", "jsonpaths": "[]"},
            'option "jsonpaths" has no meaning for the format csv',
        ),
    ],
)
def test_a_property_that_cannot_be_is_refused_by_key_value_and_rule(
    loads: Node, stream: StreamUnderTest, *, properties: dict[str, str], told: str
) -> None:
    assert refused(loads, create(stream, properties=properties)) == f"OPTION_ERR: {told}"


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("exec_mem_limit", "1", "2147483648"),
        ("send_batch_parallelism", "2", "1"),
        ("load_to_single_tablet", "true", "false"),
        ("partial_columns", "true", "false"),
        ("unique_key_update_mode", "UPDATE_FIXED_COLUMNS", "upsert"),
        ("partial_update_new_key_behavior", "ERROR", "append"),
        ("fuzzy_parse", "true", "false"),
        ("workload_group", "g1", "empty"),
    ],
)
def test_an_option_of_doris_that_means_nothing_here_has_its_default(
    loads: Node, stream: StreamUnderTest, *, key: str, value: str, rule: str
) -> None:
    told = refused(loads, create(stream, properties={key: value}))

    assert told == (
        f'NOT_SUPPORTED_ERR: option "{key}" of Doris must be {rule} here, not "{value}"'
    )
    loads.sql(create(stream, properties={key: rule.replace("empty", "").upper()}))


def test_a_stream_that_does_not_exist_is_refused(loads: Node, stream: StreamUnderTest) -> None:
    assert refused(loads, create(stream, kinesis_stream="nowhere")) == (
        'META_NOT_FOUND_ERR: option "kinesis_stream" names stream "nowhere", which does not '
        "exist in us-east-1"
    )


def test_a_stream_that_is_being_deleted_is_refused(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    server.control.switch(delete_ms=60_000)
    stream.client.delete_stream(StreamName=stream.name)

    assert refused(loads, create(stream)) == (
        f'STATE_ERR: option "kinesis_stream" names stream "{stream.name}", which is being '
        "deleted"
    )


def test_a_shard_that_does_not_exist_is_refused(loads: Node, stream: StreamUnderTest) -> None:
    statement = create(stream, kinesis_shards="shardId-000000000007")

    assert refused(loads, statement) == (
        'META_NOT_FOUND_ERR: option "kinesis_shards" names shard "shardId-000000000007", which '
        f'does not exist in stream "{stream.name}"'
    )


def test_a_time_that_lies_before_what_the_stream_keeps_is_refused(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    statement = create(stream, property__kinesis_default_pos="2020-01-01 00:00:00")
    oldest = server.control.now() - timedelta(hours=24)

    told = refused(loads, statement)

    assert told.startswith(
        'OPTION_ERR: option "property.kinesis_default_pos" must not be a time before '
    )
    assert abs(times_in(told)[0] - oldest) < timedelta(minutes=1)
    assert told.endswith(
        " UTC, from when on the stream keeps records, as 2020-01-01 00:00:00 UTC is"
    )


def test_a_time_in_the_future_is_refused(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    statement = create(stream, property__kinesis_default_pos="2999-01-01 00:00:00")
    now = server.control.now()

    told = refused(loads, statement)

    assert told.startswith(
        'OPTION_ERR: option "property.kinesis_default_pos" must not be a time in the future, '
        "as 2999-01-01 00:00:00 UTC is: the service's clock shows "
    )
    assert abs(times_in(told)[-1] - now) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("position", "told"),
    [
        (
            "TIME 2999-01-01T00:00:00+00:00",
            'option "property.kinesis_positions" must not be a time in the future, as '
            "2999-01-01 00:00:00 UTC is",
        ),
        (
            "AFTER 1/-3",
            'option "property.kinesis_positions" must have TRIM_HORIZON, TIME …, AT …, AFTER … '
            f'or END for shard {FIRST}, not "AFTER 1/-3"',
        ),
        (
            "AFTER 1",
            'option "property.kinesis_positions" must have a sequence number of shard '
            f"{FIRST} for it, not 1",
        ),
    ],
)
def test_typed_positions_that_cannot_be_are_refused(
    loads: Node, stream: StreamUnderTest, *, position: str, told: str
) -> None:
    positions = json.dumps({FIRST: position})

    found = refused(loads, create(stream, property__kinesis_positions=positions))

    assert found.startswith(f"OPTION_ERR: {told}")


def test_a_number_of_another_shard_is_refused(loads: Node, stream: StreamUnderTest) -> None:
    wide = new_stream(stream.client, shards=2)
    (number,) = put(wide, 1, hash_key=2**128 - 1)

    told = refused(loads, create(wide, kinesis_shards=FIRST, kinesis_shards_pos=number))

    assert told == (
        'OPTION_ERR: option "kinesis_shards_pos" must have a sequence number of shard '
        f"{FIRST} for it, not {number}"
    )


def test_t83_numbers_are_compared_as_numbers(loads: Node, stream: StreamUnderTest) -> None:
    statement = create(stream, kinesis_shards=FIRST, kinesis_shards_pos="9")

    assert refused(loads, statement) == (
        'OPTION_ERR: option "kinesis_shards_pos" must have a sequence number of shard '
        f"{FIRST} for it, not 9"
    )


def test_t82_an_error_names_the_host_that_was_asked(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    server.control.inject("DescribeStreamSummary", "AccessDeniedException")

    with pytest.raises(ExternalError) as told:
        loads.sql(create(stream))

    assert told.value.message == (
        f'stream "{stream.name}" at {server.endpoint} refused kinesis:DescribeStreamSummary'
    )


@pytest.mark.parametrize(
    ("clauses", "told"),
    [
        ("COLUMNS(id, note, extra = id)", 'TYPE_ERR: table "t" has no column "extra"'),
        ("COLUMNS(a, b)", 'TYPE_ERR: no column of the records is called like one of table "t"'),
        ("COLUMNS(note)", 'TYPE_ERR: column "id" is NOT NULL, but nothing fills it'),
        (
            "COLUMNS TERMINATED BY ','",
            "OPTION_ERR: COLUMNS TERMINATED BY has no meaning for the format json",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    loads: Node, stream: StreamUnderTest, *, clauses: str, told: str
) -> None:
    assert refused(loads, create(stream, clauses=clauses)) == told


def test_a_table_that_does_not_exist_is_refused(loads: Node, stream: StreamUnderTest) -> None:
    statement = create(stream).replace(" ON t ", " ON nowhere ")

    assert refused(loads, statement) == ('META_NOT_FOUND_ERR: table "nowhere" does not exist')


def test_a_stream_of_another_kind_is_not_supported_yet(
    loads: Node, stream: StreamUnderTest
) -> None:
    statement = create(stream).replace("FROM KINESIS(", "FROM KAFKA(")

    assert refused(loads, statement) == "NOT_SUPPORTED_ERR: FROM KAFKA is not supported yet"


def test_a_name_that_is_taken_is_refused(loads: Node, stream: StreamUnderTest) -> None:
    loads.sql(create(stream))

    assert refusal(loads, create(stream)) == (
        'ALREADY_EXISTS_ERR: routine load "r" exists already'
    )


def test_a_refused_statement_does_not_forget_a_load_that_was_stopped(
    loads: Node, stream: StreamUnderTest
) -> None:
    loads.sql(create(stream))
    loads.sql("STOP ROUTINE LOAD FOR r")

    refusal(loads, create(stream, aws__region="moon"))

    assert len(loads.sql("SHOW ALL ROUTINE LOAD FOR r")) == 1
