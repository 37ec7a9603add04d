"""Parsing of SELECTs over tables: verbatim parts, views and errors."""

import pytest

from penstock.control.queries import spark_text
from penstock.errors import Code
from penstock.sql.parser import parse_script
from penstock.sql.statements import RejectsRead, TableQuery, VersionRead
from tests.error_values import assert_error, assert_names
from tests.unit.sql.refusal import refusal


def parsed(text: str) -> TableQuery:
    (found,) = parse_script(text)
    assert isinstance(found.statement, TableQuery)
    return found.statement


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "SELECT * FROM jobs",
        "SELECT a -> b, /* x */ 'it''s' FROM t -- why",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "FROM t SELECT a",
        "VALUES (1), (2)",
        "(SELECT 1) UNION ALL (SELECT 2)",
        "SELECT version AS of, timestamp AS of FROM t",
        "SELECT (version AS of) FROM t",
        "SELECT x.rejects(1), x.files(2) FROM t",
        "SELECT rejects FROM t",
    ],
)
def test_a_select_over_tables_stays_verbatim(text: str) -> None:
    query = parsed(text)

    assert query.select == text.removesuffix(" -- why")
    assert query.reads == ()
    assert spark_text(query) == query.select


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("SELECT * FROM t VERSION AS OF 3", "SELECT * FROM `@0` t"),
        ("SELECT * FROM t FOR VERSION AS OF 3 x", "SELECT * FROM `@0` x"),
        ("SELECT * FROM default.t VERSION AS OF 3 AS x", "SELECT * FROM `@0` AS x"),
        ("SELECT t.a FROM t VERSION AS OF '3' WHERE a", "SELECT t.a FROM `@0` t WHERE a"),
        (
            "SELECT * FROM t VERSION AS OF 1 , t VERSION AS OF 2 u",
            "SELECT * FROM `@0` t , `@1` u",
        ),
        (
            "SELECT * FROM rejects('job' = 'j') JOIN rejects('job' = 'k') r",
            "SELECT * FROM `@0` rejects JOIN `@1` r",
        ),
        (
            "SELECT * FROM t VERSION AS OF 3 TABLESAMPLE (1 ROWS)",
            "SELECT * FROM `@0` TABLESAMPLE (1 ROWS)",
        ),
    ],
)
def test_versions_and_rejects_become_views_for_spark(text: str, sent: str) -> None:
    assert spark_text(parsed(text)).split() == sent.split()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t VERSION AS OF 3 WHERE wrong",
        "SELECT *\nFROM t\nVERSION\nAS OF 3\nWHERE wrong",
        "SELECT * FROM rejects(\n'job' = 'j'\n) WHERE wrong",
    ],
)
def test_text_after_a_view_keeps_its_line_and_column(text: str) -> None:
    sent = spark_text(parsed(text))

    assert [line.find("wrong") for line in sent.split("\n")] == [
        line.find("wrong") for line in text.split("\n")
    ]
    assert len(sent) == len(text)


def test_versions_and_rejects_are_parsed_with_their_offsets() -> None:
    query = parsed('SELECT * FROM T VERSION AS OF 12 x, rejects("job" = "load t")')

    assert query.reads == (
        VersionRead(table="t", version=12, start=14, end=32, aliased=True),
        RejectsRead(job="load t", start=36, end=61),
    )


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        ("SELECT * FROM ¦FILES('uri' = 'x')", "FILES()"),
        ("SELECT * FROM t JOIN ¦s3('uri' = 'x')", "S3()"),
        ("SELECT * FROM orders, ¦jobs('type' = 'insert')", "JOBS()"),
        ("WITH x AS (SELECT * FROM ¦tasks('type' = 'insert')) SELECT 1", "TASKS()"),
        ("SELECT * FROM t ¦TIMESTAMP AS OF '2026-01-01'", "TIMESTAMP AS OF"),
        ("SELECT * FROM t ¦FOR SYSTEM_TIME AS OF now()", "SYSTEM_TIME AS OF"),
    ],
)
def test_an_unsupported_function_or_version_is_named(text: str, construct: str) -> None:
    error = refusal(text)

    assert_error(error, Code.NOT_SUPPORTED_ERR, construct, "SELECT", hint=())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("SELECT * FROM rejects()", ("rejects()", '"job"')),
        ("SELECT * FROM rejects('name' = 'j')", ("rejects()", '"name"')),
        ("SELECT * FROM rejects('job')", ('"="', '"job"', '")"')),
        (
            "SELECT * FROM t VERSION AS OF x",
            ("VERSION AS OF", '"x"'),
        ),
        (
            "SELECT * FROM t VERSION AS OF 1.5",
            ("VERSION AS OF", '"1.5"'),
        ),
        ("SELECT * FROM shop.t VERSION AS OF 1", ('"shop"',)),
    ],
)
def test_a_wrong_version_or_rejects_call_is_named(text: str, named: tuple[str, ...]) -> None:
    error = refusal(text)

    assert_names(error.message, *named)
