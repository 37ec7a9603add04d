import pytest

from penstock.sql.formatter import format_interval, format_statement
from penstock.sql.parser import parse_script
from penstock.sql.statements import (
    CreateFlow,
    CreateJob,
    CreateStreamingTable,
    CreateTable,
    StreamQueryText,
)

TABLE = """CREATE TABLE IF NOT EXISTS `my orders` (
  Id BIGINT NOT NULL COMMENT 'it''s',
  tags ARRAY<STRING>
)
USING DELTA
COMMENT 'all orders'
LOCATION '/data/orders'"""

TIMED_TABLE = """CREATE TABLE clicks (
  id BIGINT,
  `Clicked at` TIMESTAMP,
  WATERMARK FOR `Clicked at` AS `Clicked at` - INTERVAL 5 MINUTES
)
USING DELTA
PARTITIONED BY (id)"""

TIMED_WITHOUT_DELAY = """CREATE TABLE clicks (
  at TIMESTAMP,
  WATERMARK FOR at
)
USING DELTA"""

JOB = """CREATE JOB `load-orders`
PROPERTIES (
  'max_interval' = '10',
  'note' = 'a "b"'
)
ON STREAMING
COMMENT 'every order'
DO
INSERT INTO orders (Id, city)
SELECT id, /* kept */ customer.city FROM FILES(
  'path' = '/in/*.json',
  'format' = 'json'
) AS f"""

SHORT_JOB = """CREATE JOB j
ON STREAMING
DO
INSERT INTO t
SELECT * FROM S3()"""


STREAMING_TABLE = """CREATE OR REFRESH STREAMING TABLE IF NOT EXISTS `per minute` (
  minute TIMESTAMP NOT NULL COMMENT 'it''s',
  `how many`,
  city COMMENT 'of the shop'
)
USING DELTA
PARTITIONED BY (city, `how many`)
COMMENT 'clicks per minute'
LOCATION 's3://lake/per minute'
WITH (
  'checkpoint.interval' = '10s',
  's3.secret_key' = SECRET 'lake'
)
AS
SELECT window.start AS minute, /* kept */ count(*)  -- per city
  FROM STREAM clicks WATERMARK at DELAY OF INTERVAL 5 MINUTES c
 GROUP BY window(at, '1 minute'), city"""

SHORT_STREAMING_TABLE = """CREATE STREAMING TABLE t
USING DELTA
AS
(SELECT * FROM STREAM(a))"""

FLOW = """CREATE FLOW `from-web`
COMMENT 'the web shop'
WITH (
  'max_failures' = '3'
)
AS INSERT INTO `all clicks` BY NAME
WITH web AS (SELECT * FROM STREAM web_clicks)
SELECT * FROM web"""

SHORT_FLOW = """CREATE FLOW f
AS INSERT INTO t BY NAME
SELECT a FROM STREAM s"""


@pytest.mark.parametrize(
    "text",
    [
        TABLE,
        TIMED_TABLE,
        TIMED_WITHOUT_DELAY,
        JOB,
        SHORT_JOB,
        STREAMING_TABLE,
        SHORT_STREAMING_TABLE,
        FLOW,
        SHORT_FLOW,
    ],
)
def test_a_formatted_statement_does_not_change_when_formatted_again(text: str) -> None:
    (parsed,) = parse_script(text)
    assert isinstance(
        parsed.statement, CreateTable | CreateJob | CreateStreamingTable | CreateFlow
    )

    assert format_statement(parsed.statement) == text


@pytest.mark.parametrize(
    ("length_ms", "text"),
    [
        (86_400_000, "1 day"),
        (36_500 * 86_400_000, "36500 days"),
        (90 * 60_000, "90 minutes"),
        (7_200_000, "2 hours"),
        (1_000, "1 second"),
        (1_001, "1001 milliseconds"),
    ],
)
def test_an_interval_is_formatted_in_the_largest_unit_that_divides_it(
    length_ms: int, text: str
) -> None:
    assert format_interval(length_ms) == text


def test_a_flow_called_as_can_have_options() -> None:
    query = StreamQueryText(text="SELECT a FROM s")
    flow = CreateFlow(name="as", table="t", query=query, options=(("k", "v"),))

    (parsed,) = parse_script(format_statement(flow))

    assert parsed.statement == flow


def test_only_the_call_is_formatted_in_a_select() -> None:
    (parsed,) = parse_script(
        "create job j on streaming do insert into T select  A -- why\n from files ( 'k' = 1 ) f"
    )
    assert isinstance(parsed.statement, CreateJob)

    written = format_statement(parsed.statement)

    assert written.endswith("INSERT INTO t\nselect  A -- why\n from FILES(\n  'k' = '1'\n) f")
