"""Statements about streaming tables, flows and watermarks, and the streams of queries."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import Code, UserError
from penstock.model.job_kinds import FLOW, STREAMING_TABLE
from penstock.model.schema import Array, Primitive
from penstock.sql.formatter import format_statement
from penstock.sql.parser import parse_script, statement_heads
from penstock.sql.statements import (
    AlterStreamingTable,
    AlterTableWatermark,
    CreateFlow,
    CreateStreamingTable,
    CreateTable,
    DropJob,
    ExplainStreamingTable,
    PauseJob,
    RefreshStreamingTable,
    ResumeJob,
    ShowCheckpoints,
    ShowCreateJob,
    ShowStreamingTables,
    Statement,
    StreamColumn,
    StreamQueryText,
    StreamUse,
    Watermark,
)
from tests.error_values import assert_error, assert_names
from tests.unit.sql.refusal import refusal

QUERY = "SELECT * FROM STREAM x"
TEXT = StreamQueryText(
    text=QUERY, streams=(StreamUse(table="x", start=14, end=22, watermark=None, alias=None),)
)
FIVE_MINUTES = Watermark(column="ts", delay_ms=300_000)


def parsed(text: str) -> Statement:
    (one,) = parse_script(text)
    return one.statement


def created(clauses: str, *, query: str = QUERY) -> CreateStreamingTable:
    statement = parsed(f"CREATE STREAMING TABLE t {clauses} AS {query}")
    assert isinstance(statement, CreateStreamingTable)
    return statement


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        (
            f"CREATE STREAMING TABLE T AS {QUERY}",
            CreateStreamingTable(name="t", query=TEXT),
        ),
        (
            f"create or refresh streaming table if not exists default.T as {QUERY}",
            CreateStreamingTable(name="t", query=TEXT, if_not_exists=True, or_refresh=True),
        ),
        (
            f"CREATE STREAMING TABLE IF ! EXISTS t () AS {QUERY}",
            CreateStreamingTable(name="t", query=TEXT, if_not_exists=True),
        ),
        (f"CREATE STREAMING TABLE as AS {QUERY}", CreateStreamingTable(name="as", query=TEXT)),
        (
            f"CREATE FLOW F AS INSERT INTO T BY NAME {QUERY}",
            CreateFlow(name="f", table="t", query=TEXT),
        ),
        (
            "CREATE FLOW default.f COMMENT 'a' 'b' WITH (k = 1) "
            f"AS INSERT INTO TABLE default.t BY NAME {QUERY}",
            CreateFlow(name="f", table="t", query=TEXT, comment="ab", options=(("k", "1"),)),
        ),
        (
            f"CREATE FLOW as AS INSERT INTO table BY NAME {QUERY}",
            CreateFlow(name="as", table="table", query=TEXT),
        ),
        (
            f"CREATE FLOW f AS INSERT INTO once BY NAME {QUERY}",
            CreateFlow(name="f", table="once", query=TEXT),
        ),
        (
            "ALTER STREAMING TABLE t SET ('max_failures' = 3, output = append)",
            AlterStreamingTable(
                name="t", options=(("max_failures", "3"), ("output", "append"))
            ),
        ),
        (
            "ALTER STREAMING TABLE t SET TBLPROPERTIES ('k' 'v')",
            AlterStreamingTable(name="t", options=(("k", "v"),)),
        ),
        (
            "ALTER STREAMING TABLE t ADVANCE WATERMARK TO TIMESTAMP '2026-05-01 12:00:00Z'",
            AlterStreamingTable(name="t", advance="2026-05-01 12:00:00Z"),
        ),
        (
            "ALTER FLOW f ADVANCE WATERMARK TO FINAL",
            AlterStreamingTable(kind=FLOW, name="f", advance="FINAL"),
        ),
        (
            "ALTER FLOW F SET (k = true)",
            AlterStreamingTable(kind=FLOW, name="f", options=(("k", "true"),)),
        ),
        ("PAUSE STREAMING TABLE T", PauseJob(kind=STREAMING_TABLE, name="t")),
        ("PAUSE FLOW F", PauseJob(kind=FLOW, name="f")),
        ("RESUME STREAMING TABLE t", ResumeJob(kind=STREAMING_TABLE, name="t")),
        ("RESUME FLOW f", ResumeJob(kind=FLOW, name="f")),
        ("DROP STREAMING TABLE t", DropJob(kind=STREAMING_TABLE, name="t")),
        (
            "DROP STREAMING TABLE IF EXISTS t KEEP TABLE",
            DropJob(kind=STREAMING_TABLE, name="t", if_exists=True, keep_table=True),
        ),
        ("DROP FLOW IF EXISTS f", DropJob(kind=FLOW, name="f", if_exists=True)),
        ("REFRESH STREAMING TABLE t", RefreshStreamingTable(name="t")),
        ("REFRESH FLOW f", RefreshStreamingTable(kind=FLOW, name="f")),
        ("EXPLAIN STREAMING TABLE t", ExplainStreamingTable(name="t")),
        ("EXPLAIN STREAMING TABLE as", ExplainStreamingTable(name="as")),
        (f"EXPLAIN STREAMING TABLE AS {QUERY}", ExplainStreamingTable(query=TEXT)),
        ("SHOW CREATE STREAMING TABLE t", ShowCreateJob(kind=STREAMING_TABLE, name="t")),
        ("SHOW CREATE FLOW f", ShowCreateJob(kind=FLOW, name="f")),
        ("SHOW STREAMING TABLES", ShowStreamingTables()),
        ("SHOW STREAMING TABLES LIKE 'a%'", ShowStreamingTables(like="a%")),
        ("SHOW CHECKPOINTS FOR default.T", ShowCheckpoints(name="t")),
        (
            "ALTER TABLE T SET WATERMARK FOR ts AS ts - INTERVAL '5' MINUTE",
            AlterTableWatermark(name="t", watermark=FIVE_MINUTES),
        ),
        ("ALTER TABLE t DROP WATERMARK", AlterTableWatermark(name="t", watermark=None)),
    ],
)
def test_every_statement_about_streaming_tables_is_parsed(
    text: str, statement: Statement
) -> None:
    assert parsed(text) == statement


def test_the_heads_of_all_statements_are_listed() -> None:
    heads = {" ".join(head) for head in statement_heads()}

    assert heads >= {
        "CREATE STREAMING TABLE",
        "CREATE OR REFRESH STREAMING TABLE",
        "CREATE FLOW",
        "ALTER TABLE",
        "ALTER STREAMING TABLE",
        "ALTER FLOW",
        "PAUSE STREAMING TABLE",
        "PAUSE FLOW",
        "RESUME STREAMING TABLE",
        "RESUME FLOW",
        "DROP STREAMING TABLE",
        "DROP FLOW",
        "REFRESH STREAMING TABLE",
        "REFRESH FLOW",
        "EXPLAIN STREAMING TABLE",
        "SHOW CREATE STREAMING TABLE",
        "SHOW CREATE FLOW",
        "SHOW STREAMING TABLES",
        "SHOW CHECKPOINTS",
    }


def test_clauses_of_a_streaming_table_can_be_in_any_order() -> None:
    table = created(
        "(Day DATE COMMENT 'd', n ARRAY<INT> NOT NULL, v COMMENT 'x' 'y' NOT NULL, w) "
        "TBLPROPERTIES ('a' = '1') LOCATION '/t' COMMENT 'c' WITH (b.c = 2) "
        "PARTITIONED BY (day) USING delta"
    )

    assert table == CreateStreamingTable(
        name="t",
        query=TEXT,
        columns=(
            StreamColumn(name="Day", type=Primitive.DATE, comment="d"),
            StreamColumn(name="n", type=Array(element=Primitive.INT), nullable=False),
            StreamColumn(name="v", comment="xy", nullable=False),
            StreamColumn(name="w"),
        ),
        partition_by=("Day",),
        comment="c",
        location="/t",
        options=(("a", "1"), ("b.c", "2")),
    )


def test_columns_can_have_the_names_of_clauses() -> None:
    table = created("(watermark TIMESTAMP, constraint, check INT, comment COMMENT 'c')")

    assert [column.name for column in table.columns] == [
        "watermark",
        "constraint",
        "check",
        "comment",
    ]


@pytest.mark.parametrize(
    ("listed", "options"),
    [
        ("'a' = 'b'", (("a", "b"),)),
        ("'a' == 'b'", (("a", "b"),)),
        ("'a' 'b'", (("a", "b"),)),
        ("'a' 'b' 'c'", (("a", "bc"),)),
        ("'a' 'b' = 'c' 'd'", (("ab", "cd"),)),
        ("a.b.C 'x', `d-e` = TRUE", (("a.b.C", "x"), ("d-e", "true"))),
        (
            "a 1, b = 1.5, c = .5, d = -2, e = auto",
            (("a", "1"), ("b", "1.5"), ("c", ".5"), ("d", "-2"), ("e", "auto")),
        ),
        ("select.from = 'x'", (("select.from", "x"),)),
        ("'a' = SECRET s", (("a", "secret:s"),)),
    ],
)
def test_options_are_written_as_in_tblproperties_of_spark(
    listed: str, options: tuple[tuple[str, str], ...]
) -> None:
    assert created(f"TBLPROPERTIES ({listed})").options == options
    assert created(f"WITH ({listed})").options == options


def test_the_same_option_in_both_clauses_is_kept_once() -> None:
    assert created("WITH ('A' = 1) TBLPROPERTIES ('a' = 1)").options == (("A", "1"),)


@pytest.mark.parametrize(
    "clauses",
    [
        "WITH ('k' = 'one') TBLPROPERTIES (¦K = 'two')",
        "TBLPROPERTIES ('k' = 'one') WITH (¦'K' 'two')",
    ],
)
def test_an_option_with_two_values_is_refused(clauses: str) -> None:
    error = refusal(f"CREATE STREAMING TABLE t {clauses} AS SELECT 1")

    assert_error(error, Code.OPTION_ERR, '"K"', '"one"', '"two"', hint=["WITH"])


@pytest.mark.parametrize(
    "clauses",
    [
        "WITH ('password' = 'hunter1') TBLPROPERTIES ('password' = 'hunter2')",
        "WITH ('password' = 'hunter1', 'password' = 'hunter2')",
        "WITH ('password' 'hunter1' 'hunter2' x)",
        "WITH ('password' = 'hunter1' hunter2 = 3)",
    ],
)
def test_no_message_quotes_a_secret_option(clauses: str) -> None:
    error = refusal(f"CREATE STREAMING TABLE t {clauses} AS SELECT 1")

    assert "hunter" not in f"{error.message} {error.detail} {error.hint}"


@pytest.mark.parametrize(
    ("element", "watermark"),
    [
        ("WATERMARK FOR ts", Watermark(column="Ts", delay_ms=0)),
        ("WATERMARK FOR TS AS ts", Watermark(column="Ts", delay_ms=0)),
        (
            "WATERMARK FOR ts AS ts - INTERVAL 90 SECONDS",
            Watermark(column="Ts", delay_ms=90_000),
        ),
        (
            "WATERMARK FOR `ts` AS ts-INTERVAL '1' DAY",
            Watermark(column="Ts", delay_ms=86_400_000),
        ),
    ],
)
def test_a_table_can_have_a_watermark(element: str, watermark: Watermark) -> None:
    table = parsed(f"CREATE TABLE t (watermark INT, Ts TIMESTAMP, {element})")

    assert isinstance(table, CreateTable)
    assert table.watermark == watermark
    assert parsed(format_statement(table)) == table


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE STREAMING TABLE t AS {QUERY}",
        "CREATE OR REFRESH STREAMING TABLE IF NOT EXISTS `a b` (a INT NOT NULL COMMENT 'x', b) "
        "PARTITIONED BY (a) COMMENT 'c' LOCATION '/t' WITH ('k' = 'v', 'p' = SECRET s) "
        "AS SELECT a, b FROM STREAM x WATERMARK ts DELAY OF INTERVAL 5 MINUTES a -- end",
        f"CREATE FLOW f COMMENT 'it''s' WITH ('k' = 'v') AS INSERT INTO t BY NAME {QUERY}",
        f"CREATE FLOW f AS INSERT INTO t BY NAME {QUERY}",
    ],
)
def test_a_formatted_statement_is_parsed_to_the_same_statement(text: str) -> None:
    statement = parsed(text)
    assert isinstance(statement, CreateStreamingTable | CreateFlow)

    assert parsed(format_statement(statement)) == statement


@pytest.mark.parametrize(
    ("text", "construct", "hint"),
    [
        ("CREATE ¦MATERIALIZED VIEW v AS SELECT 1", "CREATE MATERIALIZED VIEW", "STREAMING"),
        ("CREATE ¦OR REFRESH MATERIALIZED VIEW v", "CREATE MATERIALIZED VIEW", "STREAMING"),
        ("CREATE ¦OR REPLACE STREAMING TABLE t", "CREATE OR REPLACE", "OR REFRESH"),
        ("REFRESH ¦TABLE t", "REFRESH TABLE", "REFRESH STREAMING TABLE"),
        ("REFRESH ¦MATERIALIZED VIEW v", "REFRESH MATERIALIZED VIEW", "STREAMING TABLE"),
        ("REFRESH STREAMING TABLE t ¦FULL", "REFRESH … FULL", "streaming table"),
        ("REFRESH FLOW f ¦FULL", "REFRESH … FULL", "flow"),
        ("¦APPLY CHANGES INTO t FROM STREAM x", "APPLY CHANGES", "GROUP BY"),
        ("¦AUTO CDC INTO t FROM STREAM x", "AUTO CDC", "GROUP BY"),
        ("CREATE STREAMING TABLE t¦", "without AS query", "AS query"),
        ("CREATE STREAMING TABLE t (a INT)¦", "without AS query", "AS query"),
        ("CREATE STREAMING TABLE t ¦FLOW AUTO CDC FROM x", "FLOW AUTO CDC", "GROUP BY"),
        ("CREATE STREAMING TABLE t ¦CLUSTER BY (a) AS", "CLUSTER BY", "PARTITIONED BY"),
        ("CREATE STREAMING TABLE t ¦CLUSTERED BY (a)", "CLUSTERED BY", "PARTITIONED BY"),
        ("CREATE STREAMING TABLE t ¦OPTIONS ('a' = 'b')", "OPTIONS", "WITH"),
        ("CREATE STREAMING TABLE t ¦STORED AS parquet", "STORED AS", "USING DELTA"),
        ("CREATE STREAMING TABLE t ¦SCHEDULE EVERY 1 HOUR", "SCHEDULE", "Remove"),
        ("CREATE STREAMING TABLE t USING ¦parquet AS", "USING parquet", "USING DELTA"),
        (
            "CREATE STREAMING TABLE t PARTITIONED BY (¦a INT)",
            "type in PARTITIONED BY",
            "column",
        ),
        ("CREATE STREAMING TABLE t PARTITIONED BY (¦years(a))", "years(…)", "column"),
        ("CREATE STREAMING TABLE t PARTITIONED BY (¦a.b)", "a.… in PARTITIONED BY", "column"),
        ("CREATE STREAMING TABLE ¦IDENTIFIER('t') AS SELECT 1", "IDENTIFIER(…)", "name"),
        (
            "CREATE STREAMING TABLE t (a, ¦CONSTRAINT c EXPECT (a > 0) ON VIOLATION DROP ROW)",
            "EXPECT",
            "WHERE",
        ),
        ("CREATE STREAMING TABLE t (¦CONSTRAINT c CHECK (a > 0))", "CHECK", "WHERE"),
        ("CREATE STREAMING TABLE t (¦PRIMARY KEY (a))", "PRIMARY KEY", "WHERE"),
        ("CREATE STREAMING TABLE t (a INT ¦DEFAULT 1)", "DEFAULT", "query"),
        ("CREATE STREAMING TABLE t (a INT ¦GENERATED ALWAYS AS (1))", "GENERATED", "query"),
        ("CREATE STREAMING TABLE t (a ¦VARIANT)", "the type VARIANT", "STRING"),
        (
            "CREATE STREAMING TABLE t (ts TIMESTAMP, ¦WATERMARK FOR ts) AS SELECT 1",
            "WATERMARK FOR",
            "STREAM t WATERMARK",
        ),
        ("CREATE FLOW ¦IF NOT EXISTS f AS", "IF NOT EXISTS", "CREATE FLOW f"),
        ("CREATE FLOW f AS ¦AUTO CDC INTO t", "AUTO CDC", "GROUP BY"),
        ("CREATE FLOW f AS ¦APPLY CHANGES INTO t", "APPLY CHANGES", "GROUP BY"),
        ("CREATE FLOW f AS ¦INSERT OVERWRITE t BY NAME", "INSERT OVERWRITE", "INSERT INTO"),
        ("CREATE FLOW f AS INSERT INTO ¦ONCE t BY NAME", "INSERT INTO ONCE", "BY NAME"),
        ("CREATE FLOW f AS INSERT INTO t ¦SELECT 1", "without BY NAME", "BY NAME"),
        ("CREATE FLOW f AS INSERT INTO t ¦(a) SELECT 1", "without BY NAME", "BY NAME"),
        ("CREATE FLOW f AS INSERT INTO t ¦WITH ('a'='b')", "INSERT INTO … WITH", "BY NAME"),
        ("CREATE FLOW f AS INSERT INTO t ¦WITH a AS (SELECT 1)", "without BY NAME", "BY NAME"),
        ("CREATE FLOW f AS INSERT INTO t ¦PARTITION (a = 1)", "PARTITION", "BY NAME"),
        ("CREATE FLOW f AS INSERT INTO t ¦REPLACE WHERE a", "REPLACE WHERE", "BY NAME"),
        ("ALTER TABLE t ¦ADD COLUMN a INT", "ALTER TABLE … ADD", "SET WATERMARK"),
        ("ALTER TABLE t ¦SET TBLPROPERTIES ('a'='b')", "ALTER TABLE … SET", "WATERMARK"),
    ],
)
def test_an_unsupported_construct_is_refused_with_the_alternative(
    text: str, construct: str, hint: str
) -> None:
    error = refusal(text)

    assert_error(error, Code.NOT_SUPPORTED_ERR, construct, hint=[hint])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("CREATE STREAMING TABLE ¦AS SELECT 1", ("a table name", '"AS"')),
        ("CREATE STREAMING TABLE t ¦SELECT 1", ("AS", '"SELECT"')),
        ("CREATE STREAMING TABLE t COMMENT 'a' ¦COMMENT 'b' AS", ("COMMENT", "more than once")),
        ("CREATE STREAMING TABLE t LOCATION ¦'' AS", ("LOCATION",)),
        ("CREATE STREAMING TABLE t WITH ¦() AS", ("WITH", "at least one key")),
        ("CREATE STREAMING TABLE t WITH ('a' = 1, ¦A = 2)", ('"A"', "more than once")),
        ("CREATE STREAMING TABLE t WITH ('a'¦) AS", ('"="', '")"')),
        ("CREATE STREAMING TABLE t WITH ('a' = ¦) AS", ("a value", '")"')),
        ("CREATE STREAMING TABLE t WITH (¦'' = 1)", ("key", "empty")),
        ("CREATE STREAMING TABLE t (a, ¦A) AS", ('"A"', "more than once")),
        ("CREATE STREAMING TABLE t (a,¦) AS", ("a column name", '")"')),
        ("CREATE STREAMING TABLE t (a INT NOT NULL ¦NOT NULL)", ("NOT NULL", '"a"')),
        ("CREATE STREAMING TABLE t (a COMMENT 'x' ¦COMMENT 'y')", ("COMMENT", '"a"')),
        ("CREATE STREAMING TABLE t PARTITIONED BY (a, ¦A)", ('"A"', "more than once")),
        ("CREATE STREAMING TABLE t (a) PARTITIONED BY (¦b)", ('"b"', "column list")),
        ("CREATE FLOW ¦AS INSERT INTO t", ("a flow name", '"AS"')),
        ("CREATE FLOW f ¦TBLPROPERTIES ()", ("COMMENT", "WITH", '"TBLPROPERTIES"')),
        ("CREATE FLOW f AS INSERT INTO t ¦x BY NAME", ("BY NAME", '"x"')),
        ("ALTER STREAMING TABLE t ¦RENAME TO u", ("SET", "ADVANCE", '"RENAME"')),
        ("ALTER STREAMING TABLE t ADVANCE WATERMARK TO ¦now", ("TIMESTAMP", "FINAL", '"now"')),
        ("ALTER FLOW f ADVANCE WATERMARK TO TIMESTAMP ¦'FINAL'", ("TIMESTAMP", '"FINAL"')),
        ("ALTER TABLE t ¦FORGET", ("SET WATERMARK", "DROP WATERMARK", '"FORGET"')),
        ("DROP STREAMING TABLE t ¦KEEP", ("KEEP TABLE", '"KEEP"')),
        ("DROP FLOW f ¦KEEP TABLE", ("the end", '"KEEP"')),
        ("REFRESH ¦x", ("STREAMING TABLE", "FLOW", '"x"')),
        ("SHOW STREAMING TABLES ¦IN x", ("LIKE", '"IN"')),
        ("SHOW CHECKPOINTS ¦t", ("FOR", '"t"')),
        ("EXPLAIN STREAMING TABLE¦", ("a table name", "AS")),
    ],
)
def test_a_syntax_error_of_a_statement_names_the_token(
    text: str, named: tuple[str, ...]
) -> None:
    error = refusal(text)

    assert_error(error, Code.SYNTAX_ERR, *named)


@pytest.mark.parametrize(
    ("elements", "code", "named"),
    [
        (
            "¦WATERMARK FOR ts, ts TIMESTAMP",
            Code.SYNTAX_ERR,
            ("WATERMARK", "after the columns"),
        ),
        ("ts TIMESTAMP, WATERMARK FOR ts¦, a INT", Code.SYNTAX_ERR, ('")"', "WATERMARK")),
        ("ts TIMESTAMP, WATERMARK FOR ¦u", Code.SYNTAX_ERR, ('"u"', "column")),
        ("ts STRING, WATERMARK FOR ¦ts", Code.TYPE_ERR, ('"ts"', "TIMESTAMP", "STRING")),
        ("a INT, ts TIMESTAMP, WATERMARK FOR ¦ts.b", Code.SYNTAX_ERR, ('"ts"', "field")),
        (
            "a TIMESTAMP, ts TIMESTAMP, WATERMARK FOR ts AS ¦a - INTERVAL 1 DAY",
            Code.SYNTAX_ERR,
            ('"ts"', '"a"'),
        ),
        ("ts TIMESTAMP, WATERMARK FOR ts AS ¦ts(1)", Code.SYNTAX_ERR, ('"ts"', "expression")),
        ("ts TIMESTAMP, WATERMARK FOR ts AS ¦1", Code.SYNTAX_ERR, ('"ts"', '"1"')),
        ("ts TIMESTAMP, WATERMARK FOR ts AS ts ¦+ 1", Code.SYNTAX_ERR, ('"+"',)),
        ("ts TIMESTAMP, WATERMARK FOR ts AS ts - ¦1", Code.SYNTAX_ERR, ("INTERVAL", '"1"')),
        (
            "ts TIMESTAMP, WATERMARK FOR ts¦, WATERMARK FOR ts",
            Code.SYNTAX_ERR,
            ('")"', "WATERMARK"),
        ),
    ],
)
def test_a_wrong_watermark_of_a_table_is_refused(
    elements: str, code: Code, named: tuple[str, ...]
) -> None:
    error = refusal(f"CREATE TABLE t ({elements})")

    assert_error(error, code, *named)


def test_a_misspelt_clause_produces_a_suggestion() -> None:
    error = refusal("CREATE STREAMING TABLE t ¦COMENT 'x' AS SELECT 1")

    assert_names(error.hint, "COMMENT")


WORDS = re.findall(
    r"'[^']*'|\S+|\n",
    "CREATE STREAMING TABLE FLOW OR REFRESH IF NOT EXISTS USING DELTA PARTITIONED BY COMMENT "
    "LOCATION TBLPROPERTIES WITH AS SELECT * FROM STREAM JOIN LATERAL VIEW WHERE GROUP UNION "
    "WATERMARK FOR DELAY OF INTERVAL MINUTES TO MONTH INSERT INTO NAME ALTER SET DROP ADVANCE "
    "TIMESTAMP FINAL KEEP EXPLAIN SHOW CHECKPOINTS LIKE stream t x.y a ( ( ) ) , , . = - + | "
    "> 'a' '5' '5 minutes' \"b\" `c` `stream` 1 1.5 -- /* */ /*+ ; ` \n '",
)
STARTS = (
    "",
    "CREATE STREAMING TABLE t AS SELECT * FROM ",
    "CREATE STREAMING TABLE t (a INT, ",
    "CREATE STREAMING TABLE t WITH ('k' = ",
    "CREATE FLOW f AS INSERT INTO t BY NAME ",
    "EXPLAIN STREAMING TABLE AS SELECT * FROM STREAM x WATERMARK ts DELAY OF ",
    "CREATE TABLE t (ts TIMESTAMP, WATERMARK FOR ",
)
scripts = st.builds(
    lambda start, parts: start + " ".join(parts),
    st.sampled_from(STARTS),
    st.lists(st.sampled_from(WORDS) | st.text(max_size=4), max_size=25),
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(text=scripts)
def test_any_text_is_parsed_to_exact_streams_or_refused(text: str) -> None:
    queries = [query for one in parsed_or_none(text) if (query := getattr(one, "query", None))]

    replaced = [query.text[use.start : use.end] for query in queries for use in query.streams]
    assert all(part[:6].upper() == "STREAM" for part in replaced)
    assert all(query.text in text for query in queries)


def parsed_or_none(text: str) -> list[Statement]:
    """Return the statements of a script; none if it is refused with a UserError."""
    try:
        return [one.statement for one in parse_script(text)]
    except UserError:
        return []
