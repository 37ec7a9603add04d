"""Refused statements about streaming tables name the rule and change nothing."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from penstock.errors import Code, UserError
from penstock.spark.executor import SparkExecutor
from tests.node import Node

pytestmark = pytest.mark.integration

TABLES = """
CREATE TABLE a (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP,
  WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);
CREATE TABLE b (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP);
CREATE TABLE filled (id BIGINT);
CREATE STREAMING TABLE keyed AS SELECT k, count(*) AS n FROM STREAM a GROUP BY k;
CREATE STREAMING TABLE plain AS SELECT id, k FROM STREAM a;
{detailed};
PAUSE STREAMING TABLE detailed
"""
# Every part of the statement; a test replaces one part.
DETAILED = """
CREATE STREAMING TABLE detailed (id BIGINT, k STRING COMMENT 'key') PARTITIONED BY (k)
COMMENT 'about' WITH ('checkpoint.interval' = '1s', 'starting' = 'latest')
AS SELECT id, k FROM STREAM a
"""
DROP_HINT = "DROP STREAMING TABLE detailed"


def create(query: str, *, options: str = "", columns: str = "") -> str:
    """Return a statement that creates the table t."""
    return f"CREATE STREAMING TABLE t {columns} {options} AS {query}"


def interval(text: str) -> str:
    return create("SELECT id FROM STREAM a", options=f"WITH ('checkpoint.interval' = '{text}')")


REFUSED: dict[str, tuple[str, Code, str]] = {
    "interval zero": (interval("0"), Code.OPTION_ERR, '"checkpoint.interval"'),
    "interval negative": (interval("-1s"), Code.OPTION_ERR, "-1s"),
    "interval nonsense": (interval("soon"), Code.OPTION_ERR, "soon"),
    "unknown option": (
        create("SELECT id FROM STREAM a", options="WITH ('speed' = '1')"),
        Code.OPTION_ERR,
        '"speed"',
    ),
    "repeated option": (
        create(
            "SELECT id FROM STREAM a", options="WITH ('output' = 'append', 'output' = 'update')"
        ),
        Code.SYNTAX_ERR,
        "output",
    ),
    "two values of one option": (
        create(
            "SELECT id FROM STREAM a",
            options="TBLPROPERTIES ('max_failures' = '2') WITH ('max_failures' = '3')",
        ),
        Code.OPTION_ERR,
        "max_failures",
    ),
    "altered interval zero": (
        "ALTER STREAMING TABLE detailed SET ('checkpoint.interval' = '0')",
        Code.OPTION_ERR,
        '"checkpoint.interval"',
    ),
    "static table above the limit": (
        create(
            "SELECT id FROM STREAM a JOIN filled USING (id)",
            options="WITH ('lookup_max_bytes' = '1')",
        ),
        Code.OPTION_ERR,
        "lookup_max_bytes",
    ),
    "stream of an unknown table": (
        create("SELECT id FROM STREAM missing"),
        Code.META_NOT_FOUND_ERR,
        '"missing"',
    ),
    "stream of a keyed table": (
        create("SELECT k FROM STREAM keyed"),
        Code.NOT_SUPPORTED_ERR,
        '"keyed"',
    ),
    "stream of a table function": (
        create("""SELECT * FROM STREAM jobs("type" = "insert")"""),
        Code.NOT_SUPPORTED_ERR,
        "STREAM jobs(…)",
    ),
    "stream of itself": (
        create("SELECT id FROM STREAM t"),
        Code.NOT_SUPPORTED_ERR,
        '"t" cannot read itself',
    ),
    "stream of a query of WITH": (
        create("WITH recent AS (SELECT id FROM STREAM a) SELECT id FROM STREAM recent"),
        Code.NOT_SUPPORTED_ERR,
        "WITH defines it",
    ),
    "no stream": (create("SELECT id FROM a"), Code.NOT_SUPPORTED_ERR, "STREAM"),
    "watermark on a bigint": (
        create("SELECT id FROM STREAM a WATERMARK id DELAY OF INTERVAL 1 SECOND"),
        Code.TYPE_ERR,
        '"id"',
    ),
    "watermark on an unknown column": (
        create("SELECT id FROM STREAM a WATERMARK at DELAY OF INTERVAL 1 SECOND"),
        Code.TYPE_ERR,
        '"at"',
    ),
    "watermark on an expression": (
        create(
            "SELECT id FROM STREAM a WATERMARK ts + INTERVAL 1 DAY AS t DELAY OF INTERVAL 1 DAY"
        ),
        Code.NOT_SUPPORTED_ERR,
        "expression",
    ),
    "watermark given twice": (
        create(
            "SELECT id FROM STREAM a WATERMARK ts DELAY OF INTERVAL 1 SECOND "
            "WATERMARK ts DELAY OF INTERVAL 2 SECONDS"
        ),
        Code.SYNTAX_ERR,
        "more than once",
    ),
    "column list with another name": (
        create("SELECT id FROM STREAM a", columns="(number BIGINT)"),
        Code.TYPE_ERR,
        '"number"',
    ),
    "column list that lacks an output": (
        create("SELECT id, k FROM STREAM a", columns="(id BIGINT)"),
        Code.TYPE_ERR,
        '"k"',
    ),
    "column list with a type that does not fit": (
        create("SELECT id FROM STREAM a", columns="(id ARRAY<INT>)"),
        Code.TYPE_ERR,
        "ARRAY<INT>",
    ),
    "partition column that does not exist": (
        create("SELECT id FROM STREAM a", options="PARTITIONED BY (day)"),
        Code.TYPE_ERR,
        '"day"',
    ),
    "start at a missing version": (
        create("SELECT id FROM STREAM a", options="WITH ('starting' = 'version 99')"),
        Code.META_NOT_FOUND_ERR,
        "99",
    ),
    "existing table": (
        "CREATE STREAMING TABLE a AS SELECT id FROM STREAM b",
        Code.ALREADY_EXISTS_ERR,
        '"a"',
    ),
    "location of an existing table": (
        create("SELECT id FROM STREAM a", options="LOCATION '{a}'"),
        Code.ALREADY_EXISTS_ERR,
        "already",
    ),
    "existing streaming table": (
        "CREATE STREAMING TABLE plain AS SELECT id FROM STREAM b",
        Code.ALREADY_EXISTS_ERR,
        '"plain"',
    ),
    "flow into a keyed table": (
        "CREATE FLOW f AS INSERT INTO keyed BY NAME SELECT k FROM STREAM b",
        Code.NOT_SUPPORTED_ERR,
        '"keyed"',
    ),
    "flow into a plain table": (
        "CREATE FLOW f AS INSERT INTO b BY NAME SELECT k FROM STREAM a",
        Code.STATE_ERR,
        '"b"',
    ),
    "flow with an unknown column": (
        "CREATE FLOW f AS INSERT INTO plain BY NAME SELECT v FROM STREAM b",
        Code.TYPE_ERR,
        '"v"',
    ),
    "flow that reads its own table": (
        "CREATE FLOW f AS INSERT INTO plain BY NAME SELECT id, k FROM STREAM plain",
        Code.NOT_SUPPORTED_ERR,
        '"plain"',
    ),
    "order by": (
        create("SELECT id FROM STREAM a ORDER BY id"),
        Code.NOT_SUPPORTED_ERR,
        "ORDER BY",
    ),
    "unbounded join": (
        create("SELECT x.id FROM STREAM a AS x JOIN STREAM a AS y ON x.id = y.id"),
        Code.NOT_SUPPORTED_ERR,
        "join",
    ),
    "drop of a streamed table": ("DROP TABLE a", Code.STATE_ERR, "keyed"),
    "job into a streaming table": (
        "CREATE JOB j ON STREAMING DO INSERT INTO plain SELECT id, k "
        "FROM FILES('uri' = 'file:///in/*.json', 'format' = 'json')",
        Code.STATE_ERR,
        '"plain"',
    ),
    "advance without an event time": (
        "CREATE STREAMING TABLE u AS SELECT id FROM STREAM b; "
        "ALTER STREAMING TABLE u ADVANCE WATERMARK TO FINAL",
        Code.STATE_ERR,
        '"u"',
    ),
    "refresh of a paused table": (
        "REFRESH STREAMING TABLE detailed",
        Code.STATE_ERR,
        "RESUME STREAMING TABLE detailed",
    ),
    "refresh of a paused table by its statement": (
        DETAILED.replace("CREATE", "CREATE OR REFRESH"),
        Code.STATE_ERR,
        "RESUME STREAMING TABLE detailed",
    ),
    "statement of another kind": ("PAUSE JOB plain", Code.STATE_ERR, '"plain"'),
    "checkpoints of a table": ("SHOW CHECKPOINTS FOR b", Code.META_NOT_FOUND_ERR, '"b"'),
}


# By changed part: the part in the statement, its replacement, the error, and the hint.
CHANGED: dict[str, tuple[str, str, str, str]] = {
    "query": ("SELECT id, k", "SELECT id, upper(k) AS k", "the query", DROP_HINT),
    "string of the query": ("SELECT id, k", "SELECT id, 'k' AS k", "the query", DROP_HINT),
    "column type": ("id BIGINT", "id INT", "the column list", DROP_HINT),
    "column comment": ("'key'", "'the key'", "the column list", DROP_HINT),
    "no column list": (
        "(id BIGINT, k STRING COMMENT 'key')",
        "",
        "the column list",
        DROP_HINT,
    ),
    "comment": ("COMMENT 'about'", "", "the comment", DROP_HINT),
    "location": ("COMMENT 'about'", "COMMENT 'about' LOCATION '/t'", "the location", DROP_HINT),
    "partitions": (
        "PARTITIONED BY (k)",
        "",
        "the list of partition columns",
        DROP_HINT,
    ),
    "option": (
        "'1s'",
        "'2s'",
        'option "checkpoint.interval" of streaming table "detailed" is 1s',
        "ALTER STREAMING TABLE detailed SET ('checkpoint.interval' = '2s')",
    ),
    "option of the streams": (
        "'starting'",
        "'rewrites' = 'skip', 'starting'",
        'option "rewrites" of streaming table "detailed" is fail',
        "SET ('rewrites' = 'skip')",
    ),
    "option that is not given": (
        "'checkpoint.interval' = '1s', ",
        "",
        'option "checkpoint.interval"',
        "SET ('checkpoint.interval' = '10s')",
    ),
    "start": (
        "'latest'",
        "'version 0'",
        'option "starting" of streaming table "detailed" is latest',
        DROP_HINT,
    ),
    "property": (
        "WITH (",
        "TBLPROPERTIES ('parallelism' = '3') WITH (",
        'option "parallelism"',
        DROP_HINT,
    ),
}


@pytest.fixture(scope="module")
def node(spark: SparkExecutor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One node for all statements, because none of them changes it."""
    opened = Node(tmp_path_factory.mktemp("refused") / "home", spark=spark)
    opened.sql(TABLES.format(detailed=DETAILED))
    write_deltalake(location(opened, "filled"), pa.table({"id": [1]}), mode="append")
    yield opened
    opened.catalog.close()


def location(node: Node, table: str) -> str:
    record = node.catalog.table(table)
    assert record is not None
    return record.location


def stored(node: Node) -> tuple[object, ...]:
    """Return everything that a refused statement must not change."""
    folders = sorted(path.name for path in (node.home / "warehouse").iterdir())
    trials = node.home / "trials"
    return (
        node.catalog.jobs(),
        node.catalog.tables(),
        folders,
        node.checkpoints.exists(),
        sorted(trials.iterdir()) if trials.exists() else [],
    )


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_statement_names_the_rule_and_changes_nothing(node: Node, case: str) -> None:
    statement, code, value = REFUSED[case]
    statement = statement.replace("{a}", location(node, "a"))
    *prepared, refused = statement.split("; ")
    for text in prepared:
        node.sql(text)
    before = stored(node)

    with pytest.raises(UserError) as raised:
        node.sql(refused)

    assert (raised.value.code, stored(node)) == (code, before), raised.value
    assert value in f"{raised.value.message} {raised.value.detail} {raised.value.hint}"


def test_a_cycle_of_flows_is_refused(node: Node) -> None:
    node.sql("CREATE STREAMING TABLE first AS SELECT id, k FROM STREAM b")
    node.sql("CREATE STREAMING TABLE second AS SELECT id, k FROM STREAM first")
    before = stored(node)

    with pytest.raises(UserError, match="first") as refused:
        node.sql("CREATE FLOW f AS INSERT INTO first BY NAME SELECT id, k FROM STREAM second")

    assert refused.value.code is Code.NOT_SUPPORTED_ERR
    assert stored(node) == before


@pytest.mark.parametrize("case", CHANGED)
def test_create_or_refresh_names_the_part_that_differs_and_changes_nothing(
    node: Node, case: str
) -> None:
    part, replacement, named, hint = CHANGED[case]
    statement = DETAILED.replace("CREATE", "CREATE OR REFRESH").replace(part, replacement)
    before = stored(node)

    with pytest.raises(UserError) as refused:
        node.sql(statement)

    assert (refused.value.code, stored(node)) == (Code.NOT_SUPPORTED_ERR, before)
    assert named in refused.value.message
    assert hint in refused.value.hint


def test_s8_a_refresh_with_another_aggregate_is_refused(node: Node) -> None:
    before = stored(node)

    with pytest.raises(UserError, match='"keyed" cannot be changed') as refused:
        node.sql(
            "CREATE OR REFRESH STREAMING TABLE keyed AS "
            "SELECT k, max(v) AS n FROM STREAM a GROUP BY k"
        )

    assert refused.value.code is Code.NOT_SUPPORTED_ERR
    assert stored(node) == before
