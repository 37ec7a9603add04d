"""Constructs of Spark and Doris that Penstock does not support are refused by name."""

import pytest

from penstock.errors import Code, UserError
from penstock.sql.parser import parse_script
from tests.error_values import assert_error, assert_names, raises
from tests.unit.sql.refusal import refusal


@pytest.mark.parametrize(
    ("select"),
    [
        ("SELECT a FROM FILES(), ¦FILES()"),
        ("SELECT a FROM FILES() UNION ALL SELECT b FROM ¦FILES()"),
        ("SELECT a FROM FILES() WHERE b IN (SELECT c FROM ¦FILES())"),
    ],
)
def test_a_second_source_is_refused_with_its_position(select: str) -> None:
    error = refusal(f"CREATE JOB j ON STREAMING DO INSERT INTO t\n{select}")

    assert error.code is Code.NOT_SUPPORTED_ERR
    assert_names(error.message, "FILES()", "SELECT")


@pytest.mark.parametrize(
    "select",
    [
        "SELECT a FROM (SELECT 1)",
        "SELECT a FROM HDFS()",
        "SELECT a FROM orders",
        "SELECT a FROM VALUES (1)",
        "SELECT a FROM x.FILES()",
        "SELECT files FROM s3",
    ],
)
def test_a_select_without_a_source_is_refused(select: str) -> None:
    with raises(UserError, Code.SYNTAX_ERR, "FILES(…)", "S3"):
        parse_script(f"CREATE JOB j ON STREAMING DO INSERT INTO t {select}")


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        ("¦INSERT INTO t SELECT 1", "INSERT"),
        ("EXPLAIN ¦SELECT 1", "EXPLAIN SELECT"),
        ("¦MERGE INTO t", "MERGE"),
        ("¦TRUNCATE TABLE t", "TRUNCATE TABLE"),
        ("¦CANCEL TASK WHERE jobname = 'x' AND taskid = 1", "CANCEL TASK"),
        ("CREATE ¦OR REPLACE TABLE t (a INT)", "CREATE OR REPLACE"),
        ("CREATE ¦VIEW v AS SELECT 1", "CREATE VIEW"),
        ("STOP ¦SYNC JOB j", "STOP SYNC"),
        ("DROP ¦DATABASE d", "DROP DATABASE"),
        ("ALTER TABLE t ¦ADD COLUMN a INT", "ALTER TABLE … ADD"),
        ("SHOW ¦DATABASES", "SHOW DATABASES"),
        ("SHOW CREATE ¦VIEW v", "SHOW CREATE VIEW"),
        ("DESCRIBE ¦HISTORY t", "DESCRIBE HISTORY"),
        ("CREATE TABLE t (a INT) ¦PARTITION BY RANGE(a) ()", "PARTITION BY"),
        (
            "CREATE TABLE t (a INT) PARTITIONED BY (¦b INT)",
            "type in PARTITIONED BY",
        ),
        (
            "CREATE TABLE t (a INT) PARTITIONED BY (¦days(a))",
            "days(…) in PARTITIONED BY",
        ),
        ("CREATE TABLE t (a INT) USING ¦parquet", "USING parquet"),
        ("CREATE TABLE t (a INT) ¦TBLPROPERTIES ('a'='b')", "TBLPROPERTIES"),
        ("CREATE TABLE t (a INT) ¦ENGINE = OLAP", "ENGINE"),
        ("CREATE TABLE t ¦AS SELECT 1", "AS SELECT"),
        ("CREATE TABLE t (a INT) ¦AS SELECT 1", "AS SELECT"),
        ("CREATE TABLE t ¦LIKE u", "LIKE"),
        ("CREATE TABLE t (a INT, ¦PRIMARY KEY (a))", "PRIMARY KEY"),
        ("CREATE TABLE t (a INT, ¦CONSTRAINT c CHECK (a))", "CONSTRAINT"),
        ("CREATE TABLE t (a INT) ¦UNIQUE KEY (a)", "UNIQUE KEY"),
        ("CREATE TABLE t (a INT ¦PRIMARY KEY)", "PRIMARY"),
        ("CREATE TABLE t (a INT ¦DEFAULT 1)", "DEFAULT"),
        ("CREATE TABLE t (a ¦TIME)", "the type TIME"),
        ("CREATE TABLE t (a ARRAY<¦INTERVAL>)", "the type INTERVAL"),
        ("CREATE TABLE t (a ¦VARIANT)", "the type VARIANT"),
        ("CREATE JOB ¦IF NOT EXISTS j ON", "IF NOT EXISTS"),
        ("CREATE JOB j ON ¦SCHEDULE EVERY 1 DAY DO", "ON SCHEDULE"),
        ("CREATE JOB j ON STREAMING ¦FROM MYSQL ()", "FROM … TO DATABASE"),
        ("CREATE JOB j ON STREAMING DO INSERT ¦OVERWRITE t", "INSERT OVERWRITE"),
        ("CREATE JOB j ON STREAMING DO INSERT INTO t ¦VALUES (1)", "INSERT … VALUES"),
        ("CREATE JOB j ON STREAMING DO INSERT INTO t(a) ¦VALUES 1", "INSERT … VALUES"),
        ("CREATE JOB j ON STREAMING DO INSERT INTO t ¦PARTITION (a)", "PARTITION"),
    ],
)
def test_an_unsupported_construct_of_spark_or_doris_is_named(text: str, construct: str) -> None:
    error = refusal(text)

    assert_error(error, Code.NOT_SUPPORTED_ERR, construct)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("CREATE JOB ON STREAMING DO", ("CREATE JOB", '"ON"')),
        ("CREATE JOB j COMMENT 'x' ON STREAMING DO", ("COMMENT", "ON STREAMING")),
        ("CREATE JOB j PROPERTIES() PROPERTIES()", ("PROPERTIES", "more than once")),
        ("CREATE JOB j ON STREAMING PROPERTIES()", ("PROPERTIES", "ON STREAMING")),
        (
            "CREATE JOB j ON STREAMING COMMENT 'x' PROPERTIES()",
            ("PROPERTIES", "COMMENT"),
        ),
        (
            "CREATE JOB j ON STREAMING COMMENT 'x' ON STREAMING",
            ("ON STREAMING", "COMMENT"),
        ),
        ("CREATE JOB j ON STREAMING COMMENT 'x' COMMENT 'y'", ("COMMENT", "more than once")),
        ("CREATE JOB j ON STREAMING ON STREAMING", ("ON STREAMING", "more than once")),
        ("CREATE JOB j DO", ("ON STREAMING", '"DO"')),
        ("CREATE JOB j ON TUESDAY", ("STREAMING", "ON", '"TUESDAY"')),
        (
            "CREATE JOB j ON STREAMING INSERT",
            ("DO INSERT", "ON STREAMING", '"INSERT"'),
        ),
        ("CREATE JOB j ON STREAMING DO DELETE", ("INSERT", "DO", '"DELETE"')),
        ("CREATE JOB j ON STREAMING DO INSERT t", ("INTO", "INSERT", '"t"')),
    ],
)
def test_a_misplaced_clause_is_named(text: str, named: tuple[str, ...]) -> None:
    error = refusal(text)

    assert error.code is Code.SYNTAX_ERR
    assert_names(error.message, *named)
