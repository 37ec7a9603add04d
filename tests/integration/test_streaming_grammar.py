"""The grammar of streaming tables and flows, compared with Spark's own parser."""

import re
from typing import Any

import pytest

from penstock.errors import Code, UserError
from penstock.spark.executor import SparkExecutor
from penstock.sql.parser import parse_script
from penstock.sql.statements import CreateFlow, CreateStreamingTable
from tests.error_values import assert_names

pytestmark = pytest.mark.integration

QUERY = "SELECT * FROM STREAM x"
DELAY = "DELAY OF INTERVAL"
STREAMING_RELATION = re.compile(r"UnresolvedRelation \[([^\]]*)\], \[.*?\], true")
PROPERTIES = re.compile(r"TableSpec\(Map\((.*?)\),")
WATERMARK = re.compile(r"UnresolvedEventTimeWatermark '([^,]+), (.+)")

# Clauses of CREATE STREAMING TABLE t … AS query that both parsers accept.
CLAUSES = [
    "",
    "()",
    "(a INT)",
    "(a INT NOT NULL COMMENT 'x', `b c` STRUCT<d: ARRAY<INT>> COMMENT 'y' 'z' NOT NULL)",
    "(watermark TIMESTAMP, constraint STRING, check INT, comment STRING COMMENT 'c')",
    "USING delta",
    "(a INT) USING `delta` COMMENT 'c'",
    "COMMENT 'a' 'b'",
    'COMMENT "a"',
    "COMMENT r'a\\n'",
    "PARTITIONED BY (a, b)",
    "TBLPROPERTIES ('a' = 'b') COMMENT 'c' PARTITIONED BY (a)",
    "PARTITIONED BY (a) COMMENT 'c' TBLPROPERTIES ('a' = 'b')",
]
# Lists of TBLPROPERTIES that both parsers accept.
LISTS = [
    "'a' = 'b'",
    "'a' == 'b'",
    "'a' 'b'",
    "'a' 'b' 'c'",
    "'a' 'b' = 'c' 'd'",
    "a.b.c = 1, d = 1.5, e = true, f = FALSE",
    "a.b 'x', c 1, d TRUE",
    "`a-b` = .5, c = 5.",
    "select.from = 'x'",
]
HEADS = [
    "CREATE STREAMING TABLE t AS",
    "CREATE STREAMING TABLE IF NOT EXISTS default.t AS",
    "CREATE STREAMING TABLE IF ! EXISTS t AS",
    "CREATE STREAMING TABLE as AS",
    "CREATE FLOW f AS INSERT INTO t BY NAME",
    "CREATE FLOW default.f COMMENT 'c' 'd' AS INSERT INTO TABLE default.t BY NAME",
    "CREATE FLOW as AS INSERT INTO table BY NAME",
]
# Queries that both parsers accept.
QUERIES = [
    QUERY,
    "SELECT * FROM STREAM(x)",
    "SELECT * FROM STREAM x AS a (c, d)",
    "SELECT * FROM STREAM stream stream",
    "SELECT * FROM STREAM x watermark",
    "SELECT * FROM STREAM x watermark WHERE a",
    "SELECT * FROM STREAM x AS window, STREAM y",
    "SELECT * FROM STREAM x a LEFT JOIN STREAM(x) b ON a.i = b.i",
    "SELECT * FROM a JOIN b ON window(ts, '1 hour') = y, STREAM c",
    "SELECT * FROM ((STREAM a) JOIN STREAM b)",
    "SELECT * FROM VALUES (1), (2) AS t(a), STREAM x",
    "SELECT * FROM STREAM x PIVOT (sum(a) FOR b IN (1)), STREAM y",
    "SELECT * FROM STREAM x a, LATERAL (SELECT * FROM STREAM y) b",
    "SELECT * FROM STREAM x QUALIFY a > 1",
    "SELECT * FROM f(TABLE(SELECT * FROM STREAM x))",
    "SELECT * FROM STREAM /* c */ x -- d",
    "SELECT /*+ BROADCAST(x) */ * FROM STREAM x",
    "(SELECT * FROM STREAM x)",
    "FROM STREAM x",
    "FROM STREAM x SELECT a, stream b",
    "FROM STREAM x |> WHERE a > 1 |> JOIN STREAM y ON a = b |> SELECT a, stream b",
    "SELECT * FROM x |> UNION ALL (SELECT * FROM STREAM y)",
    "SELECT * FROM x |> AS q |> LEFT JOIN STREAM y ON a",
    "WITH stream AS (SELECT 1), y AS (FROM STREAM x SELECT a) "
    "SELECT * FROM stream, STREAM z UNION ALL SELECT * FROM y",
    "SELECT * FROM x WHERE a IN (SELECT b FROM STREAM y)",
    "SELECT * FROM x WHERE a IN ((SELECT b FROM STREAM y) UNION SELECT c FROM STREAM z)",
    "SELECT a AS from FROM STREAM x",
    "SELECT a.stream, stream.b FROM STREAM a AS stream",
    "SELECT a IS DISTINCT FROM stream b FROM STREAM c",
    "SELECT extract(day FROM stream), trim(BOTH FROM stream) FROM STREAM x",
    "SELECT substring(a FROM stream FOR 2) FROM STREAM x",
    "SELECT sum(a) OVER (PARTITION BY b, stream ORDER BY c) FROM STREAM x",
    "SELECT 'FROM STREAM y' FROM STREAM x",
    "SELECT a, stream b, stream(1), struct(a, stream c) FROM x",
    "SELECT * FROM stream",
    "SELECT * FROM stream, y",
    "SELECT * FROM stream WHERE a > 1",
    "SELECT * FROM stream GROUP BY a",
    "SELECT * FROM stream JOIN y ON a = b",
    "SELECT * FROM x JOIN stream ON a = b",
    "SELECT * FROM stream LIMIT 1",
    "SELECT * FROM stream UNION SELECT 1",
    "SELECT * FROM stream LATERAL VIEW explode(a) t AS c",
    "SELECT * FROM stream PIVOT (sum(a) FOR b IN (1))",
    "SELECT * FROM stream TABLESAMPLE (10 PERCENT)",
    "SELECT * FROM stream VERSION AS OF 1",
    "SELECT * FROM stream.x",
    "SELECT * FROM `stream` x",
    "SELECT * FROM `STREAM` (x)",
    "SELECT a FROM x GROUP BY a, stream ORDER BY a, stream DESC",
    "SELECT a FROM x LATERAL VIEW explode(b) t AS c, stream",
    "TABLE x",
    "VALUES (1)",
]
# Intervals in Spark's own words, with the same length in milliseconds.
INTERVALS = [
    ("5 MINUTES", "5 minutes", 300_000),
    ("'5' MINUTE", "5 minutes", 300_000),
    ("1 HOUR 30 MINUTES", "1 hours 30 minutes", 5_400_000),
    ("1 HOUR -5 MINUTES", "55 minutes", 3_300_000),
    ("1 WEEK 1 DAY 1 HOUR", "193 hours", 694_800_000),
    ("1 DAY 2 DAYS", "72 hours", 259_200_000),
    ("1.5 SECONDS", "1.5 seconds", 1_500),
    ("'1.5' SECOND", "1.5 seconds", 1_500),
    (".5 SECOND", "0.5 seconds", 500),
    ("' 1 ' SECOND", "1 seconds", 1_000),
    ("+ 1 SECOND", "1 seconds", 1_000),
    ("0 SECONDS", "0 seconds", 0),
]
# Statements that only Spark accepts, with the words of the refusal.
REFUSED = [
    ("CREATE MATERIALIZED VIEW t AS SELECT 1", "CREATE MATERIALIZED VIEW"),
    ("CREATE STREAMING TABLE t", "AS query"),
    ("CREATE STREAMING TABLE t FLOW AUTO CDC FROM STREAM x KEYS (a) SEQUENCE BY b", "AUTO CDC"),
    (f"CREATE STREAMING TABLE IDENTIFIER('t') AS {QUERY}", "IDENTIFIER(…)"),
    (f"CREATE STREAMING TABLE t USING parquet AS {QUERY}", "USING parquet"),
    (f"CREATE STREAMING TABLE t CLUSTER BY (a) AS {QUERY}", "CLUSTER BY"),
    (f"CREATE STREAMING TABLE t DEFAULT COLLATION utf8_binary AS {QUERY}", "COLLATION"),
    (f"CREATE STREAMING TABLE t PARTITIONED BY (a INT) AS {QUERY}", "type"),
    (f"CREATE STREAMING TABLE t PARTITIONED BY (years(a)) AS {QUERY}", "years(…)"),
    (f"CREATE STREAMING TABLE t PARTITIONED BY (a.b) AS {QUERY}", "a.…"),
    (f"CREATE STREAMING TABLE t (a INT DEFAULT 1) AS {QUERY}", "DEFAULT"),
    (f"CREATE STREAMING TABLE t (a INT GENERATED ALWAYS AS (1)) AS {QUERY}", "GENERATED"),
    (f"CREATE STREAMING TABLE t (a VARIANT) AS {QUERY}", "VARIANT"),
    (f"CREATE FLOW f AS INSERT INTO t {QUERY}", "without BY NAME"),
    (f"CREATE FLOW f AS INSERT INTO t (a) {QUERY}", "without BY NAME"),
    (f"CREATE FLOW f AS INSERT OVERWRITE t BY NAME {QUERY}", "INSERT OVERWRITE"),
    (f"CREATE FLOW f AS INSERT INTO t PARTITION (a = 1) BY NAME {QUERY}", "PARTITION"),
    (f"CREATE FLOW f AS INSERT INTO t WITH ('a' = 'b') BY NAME {QUERY}", "WITH"),
    (f"CREATE FLOW f AS INSERT INTO t REPLACE WHERE a = 1 {QUERY}", "REPLACE WHERE"),
    (f"CREATE FLOW f AS INSERT WITH SCHEMA EVOLUTION INTO t BY NAME {QUERY}", "EVOLUTION"),
    ("CREATE FLOW f AS AUTO CDC INTO t FROM STREAM x KEYS (a) SEQUENCE BY b", "AUTO CDC"),
    ("CREATE STREAMING TABLE t AS FROM STREAM range(1)", "STREAM range(…)"),
    ("CREATE STREAMING TABLE t AS FROM STREAM x CHANGES", "CHANGES"),
    ("CREATE STREAMING TABLE t AS FROM STREAM x WITH ('a' = 'b')", "WITH (…)"),
    ("CREATE STREAMING TABLE t AS FROM STREAM x IDENTIFIED BY n", "IDENTIFIED BY"),
    (f"CREATE STREAMING TABLE t AS FROM x WATERMARK ts {DELAY} 1 DAY", "without STREAM"),
    (f"CREATE STREAMING TABLE t AS FROM STREAM x WATERMARK ts + 1 {DELAY} 1 DAY", "expression"),
    (
        f"CREATE STREAMING TABLE t AS FROM STREAM x WATERMARK a {DELAY} '1:3' MINUTE TO SECOND",
        "MINUTE TO SECOND",
    ),
]
# Spark reads the word after an unquoted table name stream as the name of a table.
MISREAD = ["AS s", "LEFT JOIN y ON a = b", "NATURAL JOIN y", "CROSS JOIN y", "SEMI JOIN y ON a"]


@pytest.fixture(scope="module")
def parser(spark: SparkExecutor) -> Any:
    """Spark's own parser."""
    return spark.running().sessions()._jsparkSession.sessionState().sqlParser()


def plan_of(parser: Any, text: str) -> str:
    """Return the plan of a statement as text; raise if Spark's parser refuses it."""
    return str(parser.parsePlan(text).toString())


def created(text: str) -> CreateStreamingTable | CreateFlow:
    (parsed,) = parse_script(text)
    assert isinstance(parsed.statement, CreateStreamingTable | CreateFlow)
    return parsed.statement


@pytest.mark.parametrize("clauses", CLAUSES)
def test_every_clause_that_spark_accepts_is_accepted(parser: Any, clauses: str) -> None:
    text = f"CREATE STREAMING TABLE t {clauses} AS {QUERY}"

    plan = plan_of(parser, text)

    found = created(text)
    assert found.query.text == QUERY
    assert f"Some({found.comment})" in plan or not found.comment


@pytest.mark.parametrize("head", HEADS)
def test_every_form_of_a_statement_is_accepted(parser: Any, head: str) -> None:
    text = f"{head} {QUERY}"

    plan = plan_of(parser, text)

    found = created(text)
    assert f"[{found.name}]" in plan.replace("default, ", "")
    assert [stream.table for stream in found.query.streams] == ["x"]


@pytest.mark.parametrize("listed", LISTS)
def test_options_have_the_keys_and_values_of_spark(parser: Any, listed: str) -> None:
    text = f"CREATE STREAMING TABLE t TBLPROPERTIES ({listed}) AS {QUERY}"

    found = PROPERTIES.search(plan_of(parser, text))

    assert found is not None
    shown = [f"{key} -> {value}" for key, value in created(text).options]
    assert sorted(found[1].split(", ")) == sorted(shown)


@pytest.mark.parametrize("query", QUERIES)
def test_the_streams_of_a_query_are_those_of_spark(parser: Any, query: str) -> None:
    text = f"CREATE STREAMING TABLE t AS {query}"

    found = STREAMING_RELATION.findall(plan_of(parser, text))

    assert sorted(found) == sorted(s.table for s in created(text).query.streams)


@pytest.mark.parametrize("query", QUERIES)
def test_spark_reads_a_view_in_place_of_each_stream(parser: Any, query: str) -> None:
    parsed = created(f"CREATE STREAMING TABLE t AS {query}").query

    replaced = parsed.text
    for stream in reversed(parsed.streams):
        alias = "" if stream.alias else f" AS `{stream.table}`"
        replaced = f"{replaced[: stream.start]}a_view{alias}{replaced[stream.end :]}"

    plan = plan_of(parser, replaced)
    assert not STREAMING_RELATION.search(plan)
    assert plan.count("UnresolvedRelation [a_view]") == len(parsed.streams)


@pytest.mark.parametrize(("interval", "shown", "delay_ms"), INTERVALS)
def test_a_watermark_has_the_delay_of_spark(
    parser: Any, interval: str, shown: str, delay_ms: int
) -> None:
    text = f"CREATE STREAMING TABLE t AS FROM STREAM x WATERMARK ts {DELAY} {interval} a"

    found = WATERMARK.search(plan_of(parser, text))

    (stream,) = created(text).query.streams
    assert stream.watermark is not None
    assert found is not None
    assert found.groups() == (stream.watermark.column, shown)
    assert stream.watermark.delay_ms == delay_ms


@pytest.mark.parametrize(("text", "named"), REFUSED)
def test_a_statement_that_only_spark_accepts_is_refused_by_name(
    parser: Any, text: str, named: str
) -> None:
    assert plan_of(parser, text)

    with pytest.raises(UserError) as caught:
        parse_script(text)

    assert caught.value.code is Code.NOT_SUPPORTED_ERR
    assert_names(caught.value.message, named)
    assert caught.value.hint


@pytest.mark.parametrize("rest", MISREAD)
def test_a_table_called_stream_needs_backquotes_where_spark_misreads_it(
    parser: Any, rest: str
) -> None:
    text = f"CREATE STREAMING TABLE t AS FROM y, stream {rest}"
    assert STREAMING_RELATION.search(plan_of(parser, text))

    with pytest.raises(UserError, match="backquotes"):
        parse_script(text)
    quoted = text.replace("stream ", "`stream` ")
    assert created(quoted).query.streams == ()
    assert not STREAMING_RELATION.search(plan_of(parser, quoted))
