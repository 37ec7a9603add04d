"""The streams in the query of a streaming table, and their watermarks."""

import pytest

from penstock.errors import Code, UserError
from penstock.sql.parser import parse_script
from penstock.sql.statements import CreateStreamingTable, StreamQueryText, Watermark
from tests.error_values import assert_error, raises
from tests.unit.sql.refusal import refusal


def parsed_query(query: str) -> StreamQueryText:
    """Return the query of a streaming table."""
    (parsed,) = parse_script(f"CREATE STREAMING TABLE t AS {query}")
    assert isinstance(parsed.statement, CreateStreamingTable)
    return parsed.statement.query


def streams(query: str) -> list[tuple[str, str, str | None]]:
    """Return the table, the replaced text and the alias of each stream of a query."""
    found = parsed_query(query)
    return [(one.table, found.text[one.start : one.end], one.alias) for one in found.streams]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT * FROM STREAM x", [("x", "STREAM x", None)]),
        ("SELECT * FROM stream(X)", [("x", "stream(X)", None)]),
        ("SELECT * FROM STREAM default.x AS a", [("x", "STREAM default.x", "a")]),
        ("SELECT * FROM STREAM `my x` `an a`", [("my x", "STREAM `my x`", "an a")]),
        ("SELECT * FROM STREAM x a (c, d)", [("x", "STREAM x", "a")]),
        ("SELECT * FROM STREAM stream stream", [("stream", "STREAM stream", "stream")]),
        ("FROM STREAM x SELECT *", [("x", "STREAM x", None)]),
        ("(SELECT * FROM STREAM x)", [("x", "STREAM x", None)]),
        ("SELECT * FROM STREAM /* a */ x -- b", [("x", "STREAM /* a */ x", None)]),
        ("SELECT * FROM STREAM x WHERE a", [("x", "STREAM x", None)]),
        (
            "SELECT * FROM STREAM x AS window, STREAM y",
            [("x", "STREAM x", "window"), ("y", "STREAM y", None)],
        ),
        (
            "SELECT * FROM STREAM x a LEFT JOIN STREAM(x) b ON a.i = b.i",
            [("x", "STREAM x", "a"), ("x", "STREAM(x)", "b")],
        ),
        (
            "SELECT * FROM ((STREAM a) JOIN STREAM b)",
            [("a", "STREAM a", None), ("b", "STREAM b", None)],
        ),
        ("SELECT * FROM a JOIN b ON window(t) = y, STREAM c", [("c", "STREAM c", None)]),
        (
            "SELECT * FROM STREAM x PIVOT (sum(a) FOR b IN (1)), STREAM y",
            [("x", "STREAM x", None), ("y", "STREAM y", None)],
        ),
        (
            "WITH s AS (FROM STREAM x SELECT a) SELECT * FROM s, STREAM z UNION SELECT 1",
            [("x", "STREAM x", None), ("z", "STREAM z", None)],
        ),
        (
            "SELECT * FROM y WHERE a IN ((SELECT b FROM STREAM y) UNION FROM STREAM z)",
            [("y", "STREAM y", None), ("z", "STREAM z", None)],
        ),
        (
            "SELECT * FROM STREAM x a, LATERAL (SELECT * FROM STREAM y) b",
            [("x", "STREAM x", "a"), ("y", "STREAM y", None)],
        ),
        (
            "FROM STREAM x |> WHERE a |> JOIN STREAM y ON a |> SELECT a, stream b",
            [("x", "STREAM x", None), ("y", "STREAM y", None)],
        ),
        ("SELECT * FROM f(TABLE(SELECT * FROM STREAM x))", [("x", "STREAM x", None)]),
        ("SELECT a AS from FROM STREAM x", [("x", "STREAM x", None)]),
        ("SELECT a.from, a.where FROM STREAM a", [("a", "STREAM a", None)]),
        ("SELECT extract(day FROM stream) FROM STREAM x", [("x", "STREAM x", None)]),
        ("SELECT substr(a FROM stream FOR 2) FROM STREAM x", [("x", "STREAM x", None)]),
        ("SELECT a IS DISTINCT FROM stream b FROM STREAM c", [("c", "STREAM c", None)]),
        ("SELECT 'FROM STREAM y' FROM STREAM x", [("x", "STREAM x", None)]),
        ("SELECT * FROM STREAM x watermark JOIN y ON a", [("x", "STREAM x", "watermark")]),
    ],
)
def test_streams_are_found_with_their_text_and_alias(
    query: str, found: list[tuple[str, str, str | None]]
) -> None:
    assert streams(query) == found


@pytest.mark.parametrize(
    "query",
    [
        "SELECT stream FROM x",
        "SELECT a, stream b FROM x",
        "SELECT stream.a, stream(1), struct(a, stream b) FROM stream",
        "SELECT * FROM stream, y",
        "SELECT * FROM stream WHERE a > 1",
        "SELECT * FROM stream JOIN y ON a = b",
        "SELECT * FROM x JOIN stream ON a = b",
        "SELECT * FROM stream.x",
        "SELECT * FROM stream VERSION AS OF 3",
        "SELECT * FROM `stream` x",
        "SELECT * FROM `STREAM` (x)",
        "WITH stream AS (SELECT 1) SELECT * FROM stream",
        "SELECT a FROM x GROUP BY a, stream ORDER BY a, stream DESC",
        "SELECT sum(a) OVER (PARTITION BY b, stream ORDER BY c) FROM x",
        "SELECT a FROM x LATERAL VIEW explode(b) t AS c, stream",
        "SELECT * FROM x |> EXTEND a, stream AS b",
        "TABLE x",
        "VALUES (1)",
    ],
)
def test_stream_is_a_plain_name_where_it_reads_no_table(query: str) -> None:
    assert parsed_query(query) == StreamQueryText(text=query)


def test_the_position_of_the_query_is_kept() -> None:
    script = "SHOW JOBS;\nCREATE STREAMING TABLE t\n  AS SELECT * FROM STREAM x;"

    _, second = parse_script(script)

    assert isinstance(second.statement, CreateStreamingTable)
    assert second.statement.query.at == (3, 6)
    assert second.statement.query.text == "SELECT * FROM STREAM x"


@pytest.mark.parametrize(
    ("clause", "column", "delay_ms"),
    [
        ("WATERMARK ts DELAY OF INTERVAL 5 MINUTES", "ts", 300_000),
        ("WATERMARK ts DELAY OF INTERVAL '5' MINUTE", "ts", 300_000),
        ("WATERMARK ts DELAY OF INTERVAL '5 minutes'", "ts", 300_000),
        ("WATERMARK ts DELAY OF INTERVAL '1 hour 30 minutes'", "ts", 5_400_000),
        ("WATERMARK ts DELAY OF INTERVAL 1 HOUR 30 MINUTES", "ts", 5_400_000),
        ("WATERMARK ts DELAY OF INTERVAL 1 HOUR -5 MINUTES", "ts", 3_300_000),
        ("WATERMARK ts DELAY OF INTERVAL 1 WEEK 1 DAY 1 HOUR", "ts", 694_800_000),
        ("WATERMARK ts DELAY OF INTERVAL 1.5 SECONDS", "ts", 1_500),
        ("WATERMARK ts DELAY OF INTERVAL .5 SECOND", "ts", 500),
        ("WATERMARK ts DELAY OF INTERVAL ' 2 ' SECOND", "ts", 2_000),
        ("WATERMARK ts DELAY OF INTERVAL 1 MILLISECOND 999 MICROSECONDS", "ts", 1),
        ("WATERMARK ts DELAY OF INTERVAL 0 SECONDS", "ts", 0),
        ("WATERMARK (`t s`) DELAY OF INTERVAL 1 DAY", "t s", 86_400_000),
        ("WATERMARK delay DELAY OF INTERVAL 1 DAY", "delay", 86_400_000),
        ("WATERMARK A.ts DELAY OF INTERVAL 1 DAY", "ts", 86_400_000),
    ],
)
def test_a_watermark_is_a_part_of_its_stream(clause: str, column: str, delay_ms: int) -> None:
    query = parsed_query(f"FROM STREAM(x) {clause} AS a SELECT b")

    (stream,) = query.streams
    assert stream.watermark == Watermark(column=column, delay_ms=delay_ms)
    assert query.text[stream.start : stream.end] == f"STREAM(x) {clause}"
    assert stream.alias == "a"


def test_a_column_of_a_watermark_can_be_qualified_by_the_table() -> None:
    query = parsed_query("FROM STREAM x WATERMARK x.ts DELAY OF INTERVAL 5 MINUTES")

    assert query.streams[0].watermark == Watermark(column="ts", delay_ms=300_000)


@pytest.mark.parametrize(
    ("query", "code", "named"),
    [
        ("SELECT * FROM STREAM ¦range(1)", Code.NOT_SUPPORTED_ERR, "STREAM range(…)"),
        ("SELECT * FROM STREAM(¦range(1))", Code.NOT_SUPPORTED_ERR, "STREAM range(…)"),
        ("SELECT * FROM STREAM x ¦CHANGES", Code.NOT_SUPPORTED_ERR, "CHANGES"),
        ("SELECT * FROM STREAM x ¦WITH ('a'='b')", Code.NOT_SUPPORTED_ERR, "WITH (…)"),
        ("SELECT * FROM STREAM x ¦IDENTIFIED BY n", Code.NOT_SUPPORTED_ERR, "IDENTIFIED BY"),
        ("SELECT * FROM STREAM x ¦TABLESAMPLE (1 ROWS)", Code.NOT_SUPPORTED_ERR, "TABLESAMPLE"),
        ("SELECT * FROM STREAM x ¦VERSION AS OF 1", Code.NOT_SUPPORTED_ERR, "VERSION AS OF"),
        (
            "SELECT * FROM x WATERMARK ts ¦DELAY OF INTERVAL 1 DAY",
            Code.NOT_SUPPORTED_ERR,
            "WATERMARK without STREAM",
        ),
        (
            "SELECT * FROM (FROM STREAM x) WATERMARK ts ¦DELAY OF INTERVAL 1 DAY",
            Code.NOT_SUPPORTED_ERR,
            "WATERMARK without STREAM",
        ),
        (
            "FROM STREAM x WATERMARK ¦to_date(ts) AS t DELAY OF INTERVAL 1 DAY",
            Code.NOT_SUPPORTED_ERR,
            "expression",
        ),
        (
            "FROM STREAM x WATERMARK ¦a.ts DELAY OF INTERVAL 1 DAY",
            Code.NOT_SUPPORTED_ERR,
            "expression",
        ),
        (
            "FROM STREAM x WATERMARK ts DELAY OF INTERVAL '1:30' ¦MINUTE TO SECOND",
            Code.NOT_SUPPORTED_ERR,
            "INTERVAL … MINUTE TO SECOND",
        ),
        (
            "FROM STREAM x WATERMARK a DELAY OF INTERVAL 1 DAY ¦WATERMARK b DELAY OF",
            Code.SYNTAX_ERR,
            "more than once",
        ),
        (
            "FROM STREAM x a ¦WATERMARK ts DELAY OF INTERVAL 1 DAY",
            Code.SYNTAX_ERR,
            'before the alias "a"',
        ),
        ("FROM STREAM x WATERMARK ts ¦DELAI OF", Code.SYNTAX_ERR, "DELAY OF"),
        ("FROM STREAM x WATERMARK ts DELAY OF ¦'1 day'", Code.SYNTAX_ERR, "INTERVAL"),
        ("FROM STREAM x WATERMARK ts DELAY OF ¦INTERVAL -1 DAY", Code.SYNTAX_ERR, "negative"),
        ("FROM STREAM x WATERMARK ts DELAY OF INTERVAL 1 ¦MONTH", Code.SYNTAX_ERR, "MONTH"),
        ("FROM STREAM x WATERMARK ts DELAY OF INTERVAL ¦'1 year'", Code.SYNTAX_ERR, "YEAR"),
        ("FROM STREAM x WATERMARK ts DELAY OF INTERVAL 1 ¦PARSEC", Code.SYNTAX_ERR, "PARSEC"),
        ("FROM STREAM x WATERMARK ts DELAY OF INTERVAL 1.5 ¦DAYS", Code.SYNTAX_ERR, "DAYS"),
        ("FROM STREAM x WATERMARK ts DELAY OF INTERVAL ¦'soon' DAY", Code.SYNTAX_ERR, "DAY"),
        ("FROM STREAM x WATERMARK ts DELAY OF INTERVAL ¦'soon'", Code.SYNTAX_ERR, "INTERVAL"),
        ("FROM STREAM x WATERMARK ts DELAY OF INTERVAL ¦x", Code.SYNTAX_ERR, '"x"'),
        ("FROM STREAM x WATERMARK ts DELAY OF INTERVAL 5¦", Code.SYNTAX_ERR, "a unit"),
        (
            "FROM STREAM x WATERMARK ts DELAY OF ¦INTERVAL 99999999 DAYS",
            Code.SYNTAX_ERR,
            "36500 days",
        ),
        ("SELECT * FROM ¦stream AS s", Code.SYNTAX_ERR, "AS"),
        ("SELECT * FROM ¦stream LEFT JOIN y ON a", Code.SYNTAX_ERR, "LEFT"),
        ("SELECT * FROM STREAM(¦1)", Code.SYNTAX_ERR, '"1"'),
        ("SELECT * FROM STREAM(x ¦y)", Code.SYNTAX_ERR, '"y"'),
        ("SELECT * FROM STREAM(x)¦.y", Code.SYNTAX_ERR, '"."'),
        ("SELECT * FROM STREAM x AS ¦1", Code.SYNTAX_ERR, "an alias"),
        ("SELECT ¦(1 FROM STREAM x", Code.SYNTAX_ERR, '"("'),
        ("SELECT 1¦) FROM STREAM x", Code.SYNTAX_ERR, '")"'),
        ("¦DELETE FROM x", Code.SYNTAX_ERR, "a query"),
    ],
)
def test_a_query_that_cannot_be_a_stream_is_refused(query: str, code: Code, named: str) -> None:
    error = refusal(f"CREATE STREAMING TABLE t AS {query}")

    assert_error(error, code, named)


def test_a_stream_of_another_database_is_refused() -> None:
    with raises(UserError, Code.META_NOT_FOUND_ERR, '"sales"'):
        parsed_query("SELECT * FROM STREAM sales.orders")
