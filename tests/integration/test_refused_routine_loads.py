"""Statements that cannot create a routine load are refused by code and value."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from penstock.errors import Code, ExternalError, UserError
from tests.error_values import raises
from tests.integration.driving import stored
from tests.integration.routine_loads import FIRST, create, put, times_in
from tests.node import Node
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import StreamUnderTest, new_stream

pytestmark = pytest.mark.integration

# Placeholder for the name of the stream.
STREAM = "<stream>"
ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
STREAM_ARN = "property.aws.kinesis.stream_arn"
TIMESTAMP = "property.aws.kinesis.timestamp"
DEFAULT = "property.kinesis_default_pos"
POSITIONS = "property.kinesis_positions"
A_TIME = "2026-11-15 10:00:00"


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Parts of a CREATE ROUTINE LOAD, and the code and values of its error."""

    code: Code
    values: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    clauses: str = ""
    # Part of the statement, and its replacement.
    replaced: tuple[str, str] = ("", "")


def option(options: Mapping[str, str], *values: str) -> Refused:
    return Refused(code=Code.OPTION_ERR, values=values, options=options)


def prop(properties: Mapping[str, str], *values: str) -> Refused:
    return Refused(code=Code.OPTION_ERR, values=values, properties=properties)


def columns(clauses: str, *values: str, code: Code = Code.TYPE_ERR) -> Refused:
    return Refused(code=code, values=values, clauses=clauses)


REFUSED = {
    "a secret key without an access key": option(
        {"aws.access_key": ""}, '"aws.secret_key"', '"aws.access_key"'
    ),
    "an access key without a secret key": option(
        {"aws.secret_key": ""}, '"aws.access_key"', '"aws.secret_key"'
    ),
    "a session key without an access key": option(
        {"aws.access_key": "", "aws.secret_key": "", "aws.session_key": "x"},
        *('"aws.session_key"', '"aws.access_key"'),
    ),
    "an external id without a role": option(
        {"property.aws.external.id": "x"}, '"property.aws.external.id"', '"aws.role_arn"'
    ),
    "a role that is not an ARN": option(
        {"aws.role_arn": "mine"}, '"aws.role_arn"', "ARN", '"mine"'
    ),
    "an invalid region": option({"aws.region": "moon"}, '"aws.region"', "eu-west-1", '"moon"'),
    "no region": option({"aws.region": ""}, "KINESIS", '"aws.region"'),
    "an invalid stream name": option({"kinesis_stream": "a/b"}, '"kinesis_stream"', '"a/b"'),
    "no stream": option({"kinesis_stream": ""}, "KINESIS", '"kinesis_stream"'),
    "an endpoint without a scheme": option(
        {"aws.endpoint": "localhost"}, '"aws.endpoint"', "https://", "http://", '"localhost"'
    ),
    "an endpoint with a blank": option(
        {"aws.endpoint": "http://bad host/"}, '"aws.endpoint"', "65535", '"http://bad host/"'
    ),
    "an endpoint whose port is too large": option(
        {"aws.endpoint": "http://host:99999"}, '"aws.endpoint"', "65535", '"http://host:99999"'
    ),
    "an endpoint with a password": option(
        {"aws.endpoint": "http://me:mine@localhost"}, '"aws.endpoint"', "password"
    ),
    "an invalid ARN of a stream": option(
        {STREAM_ARN: "orders"}, f'"{STREAM_ARN}"', ARN, '"orders"'
    ),
    "a stream's ARN of another region": option(
        {STREAM_ARN: ARN}, f'"{STREAM_ARN}"', '"eu-west-1"', '"aws.region"', '"us-east-1"'
    ),
    "a stream's ARN of another stream": option(
        {STREAM_ARN: ARN, "aws.region": "eu-west-1"},
        *(f'"{STREAM_ARN}"', '"orders"', '"kinesis_stream"', f'"{STREAM}"'),
    ),
    "more records than the service returns": option(
        {"property.aws.kinesis.max_records": "10001"},
        *('"property.aws.kinesis.max_records"', "10000", "10001"),
    ),
    "no results": option(
        {"property.aws.kinesis.max_results": "0"},
        *('"property.aws.kinesis.max_results"', "1", "0"),
    ),
    "foreign records that are stored": option(
        {"kpl_foreign_records": "keep"},
        *('"kpl_foreign_records"', "reject", "load", "skip", '"keep"'),
    ),
    "an unknown option": option({"kinesis_region": "us-east-1"}, "KINESIS", '"kinesis_region"'),
    "the same option under two names": option(
        {"kinesis_endpoint": "http://localhost"}, '"aws.endpoint"', '"kinesis_endpoint"'
    ),
    "a shard twice": option(
        {"kinesis_shards": f"{FIRST},{FIRST}"}, '"kinesis_shards"', f"{FIRST},{FIRST}"
    ),
    "more positions than shards": option(
        {"kinesis_shards": FIRST, "kinesis_shards_pos": "LATEST,LATEST"},
        *('"kinesis_shards_pos"', "2", '"kinesis_shards"', "1"),
    ),
    "a position without a shard": option(
        {"kinesis_shards_pos": "LATEST"}, '"kinesis_shards_pos"', "1", '"kinesis_shards"', "0"
    ),
    "positions and a default position": option(
        {"kinesis_shards": FIRST, "kinesis_shards_pos": "LATEST", DEFAULT: "LATEST"},
        *('"kinesis_shards_pos"', f'"{DEFAULT}"'),
    ),
    "an invalid default position": option(
        {DEFAULT: "soon"}, f'"{DEFAULT}"', "TRIM_HORIZON", "LATEST", A_TIME, '"soon"'
    ),
    "a timestamp that is a word": option(
        {TIMESTAMP: "LATEST"}, f'"{TIMESTAMP}"', A_TIME, '"LATEST"'
    ),
    "a timestamp that is a number": option(
        {TIMESTAMP: "4959"}, f'"{TIMESTAMP}"', A_TIME, '"4959"'
    ),
    "typed positions that are not an object": option(
        {POSITIONS: "[]"}, f'"{POSITIONS}"', "JSON", '"[]"'
    ),
    "a typed position of an unknown type": option(
        {POSITIONS: '{"a": "BEHIND 1"}'},
        *(f'"{POSITIONS}"', "TRIM_HORIZON", "TIME", "AT", "AFTER", "END", "a", '"BEHIND 1"'),
    ),
    "a typed position in the future": option(
        {POSITIONS: json.dumps({FIRST: "TIME 2999-01-01T00:00:00+00:00"})},
        *(f'"{POSITIONS}"', "2999-01-01 00:00:00 UTC"),
    ),
    "a typed position with a negative record": option(
        {POSITIONS: json.dumps({FIRST: "AFTER 1/-3"})},
        *(f'"{POSITIONS}"', "TRIM_HORIZON", "TIME", "AT", "AFTER", "END", FIRST),
        '"AFTER 1/-3"',
    ),
    "a typed position with the number of another shard": option(
        {POSITIONS: json.dumps({FIRST: "AFTER 1"})}, f'"{POSITIONS}"', "sequence", FIRST, "1"
    ),
    "t83: a short number, which is compared as a number": option(
        {"kinesis_shards": FIRST, "kinesis_shards_pos": "9"},
        *('"kinesis_shards_pos"', "sequence", FIRST, "9"),
    ),
    "no rows in a batch": prop({"max_batch_rows": "0"}, '"max_batch_rows"', "1", "0"),
    "no time for a batch": prop({"max_batch_interval": "0"}, '"max_batch_interval"', "1s", "0"),
    "a ratio above one": prop({"max_filter_ratio": "1.5"}, '"max_filter_ratio"', "1.0", "1.5"),
    "a negative number of errors": prop(
        {"max_error_number": "-1"}, '"max_error_number"', "0", "-1"
    ),
    "a time zone that does not exist": prop({"timezone": "Moon"}, '"timezone"', '"Moon"'),
    "an unknown format": prop({"format": "xml"}, '"format"', "csv", "json", "text", '"xml"'),
    "an unknown property": prop({"no_such": "1"}, '"no_such"'),
    "an enclosing character in JSON": prop({"enclose": '"'}, '"enclose"', "json"),
    "paths into CSV": prop({"format": "csv", "jsonpaths": "[]"}, '"jsonpaths"', "csv"),
    "a column that the table does not have": columns(
        "COLUMNS(id, note, extra = id)", '"t"', '"extra"'
    ),
    "no column that the table has": columns("COLUMNS(a, b)", '"t"', "records"),
    "a NOT NULL column without a value": columns("COLUMNS(note)", '"id"', "NOT NULL"),
    "a separator in JSON": columns(
        "COLUMNS TERMINATED BY ','", "COLUMNS TERMINATED BY", "json", code=Code.OPTION_ERR
    ),
    "a stream that does not exist": Refused(
        code=Code.META_NOT_FOUND_ERR,
        values=('"kinesis_stream"', '"nowhere"', "us-east-1"),
        options={"kinesis_stream": "nowhere"},
    ),
    "a shard that does not exist": Refused(
        code=Code.META_NOT_FOUND_ERR,
        values=('"kinesis_shards"', '"shardId-000000000007"', f'"{STREAM}"'),
        options={"kinesis_shards": "shardId-000000000007"},
    ),
    "a table that does not exist": Refused(
        code=Code.META_NOT_FOUND_ERR,
        values=("table", '"nowhere"'),
        replaced=(" ON t ", " ON nowhere "),
    ),
    "a stream of a kind that is not supported yet": Refused(
        code=Code.NOT_SUPPORTED_ERR,
        values=("FROM KAFKA",),
        replaced=("FROM KINESIS(", "FROM KAFKA("),
    ),
}


def refusal(node: Node, statement: str, code: Code, *values: str) -> str:
    """Require that a statement is refused and changes nothing; return the message."""
    before = stored(node)
    with raises(UserError, code, *values) as refused:
        node.sql(statement)
    assert stored(node) == before
    return refused.value.message


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_a_wrong_statement_is_refused_by_code_and_value_and_changes_nothing(
    loads: Node, stream: StreamUnderTest, case: Refused
) -> None:
    options = {key.replace(".", "__"): value for key, value in case.options.items()}
    created = create(stream, clauses=case.clauses, properties=case.properties, **options)
    values = [value.replace(STREAM, stream.name) for value in case.values]

    refusal(loads, created.replace(*case.replaced), case.code, *values)


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
def test_an_ineffective_option_of_doris_accepts_only_its_default(
    loads: Node, stream: StreamUnderTest, *, key: str, value: str, rule: str
) -> None:
    statement = create(stream, properties={key: value})

    refusal(loads, statement, Code.NOT_SUPPORTED_ERR, f'"{key}"', rule, f'"{value}"')

    loads.sql(create(stream, properties={key: rule.replace("empty", "").upper()}))


def test_a_stream_that_is_being_deleted_is_refused(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    server.control.switch(delete_ms=60_000)
    stream.client.delete_stream(StreamName=stream.name)

    refusal(loads, create(stream), Code.STATE_ERR, '"kinesis_stream"', f'"{stream.name}"')


def test_a_time_before_the_retention_of_the_stream_is_refused(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    statement = create(stream, property__kinesis_default_pos="2020-01-01 00:00:00")
    oldest = server.control.now() - timedelta(hours=24)

    message = refusal(
        loads, statement, Code.OPTION_ERR, f'"{DEFAULT}"', "2020-01-01 00:00:00 UTC"
    )

    assert abs(times_in(message)[0] - oldest) < timedelta(minutes=1)


def test_a_time_in_the_future_is_refused(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    statement = create(stream, property__kinesis_default_pos="2999-01-01 00:00:00")
    now = server.control.now()

    message = refusal(
        loads, statement, Code.OPTION_ERR, f'"{DEFAULT}"', "2999-01-01 00:00:00 UTC"
    )

    assert abs(times_in(message)[-1] - now) < timedelta(minutes=1)


def test_a_sequence_number_of_another_shard_is_refused(
    loads: Node, stream: StreamUnderTest
) -> None:
    wide = new_stream(stream.client, shards=2)
    (number,) = put(wide, 1, hash_key=2**128 - 1)
    statement = create(wide, kinesis_shards=FIRST, kinesis_shards_pos=number)

    refusal(loads, statement, Code.OPTION_ERR, '"kinesis_shards_pos"', FIRST, number)


def test_t82_an_error_names_the_host_of_the_request(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    server.control.inject("DescribeStreamSummary", "AccessDeniedException")
    before = stored(loads)

    with raises(
        ExternalError,
        Code.GET_REMOTE_DATA_ERROR,
        *(f'"{stream.name}"', server.endpoint, "kinesis:DescribeStreamSummary"),
    ):
        loads.sql(create(stream))

    assert stored(loads) == before


def test_a_duplicate_name_is_refused(loads: Node, stream: StreamUnderTest) -> None:
    loads.sql(create(stream))

    refusal(loads, create(stream), Code.ALREADY_EXISTS_ERR, "routine load", '"r"')


def test_a_refused_statement_does_not_delete_a_stopped_load(
    loads: Node, stream: StreamUnderTest
) -> None:
    loads.sql(create(stream))
    loads.sql("STOP ROUTINE LOAD FOR r")

    refusal(loads, create(stream, aws__region="moon"), Code.OPTION_ERR, '"moon"')

    assert len(loads.sql("SHOW ALL ROUTINE LOAD FOR r")) == 1
