"""What Spark or Doris know and Penstock does not is refused by name, never half understood."""

import pytest

from penstock.errors import Code, UserError
from penstock.sql.parser import parse_script
from tests.unit.sql.refusal import refusal

IN_SELECT = " is not supported yet in a job's SELECT"
IN_TABLE = " is not supported yet in CREATE TABLE"
YET = " is not supported yet"


@pytest.mark.parametrize(
    ("select"),
    [
        ("SELECT a FROM FILES(), ¦FILES()"),
        ("SELECT a FROM FILES() UNION ALL SELECT b FROM ¦FILES()"),
        ("SELECT a FROM FILES() WHERE b IN (SELECT c FROM ¦FILES())"),
    ],
)
def test_a_second_source_is_refused_where_it_stands(select: str) -> None:
    error = refusal(f"CREATE JOB j ON STREAMING DO INSERT INTO t\n{select}")

    assert error.code is Code.NOT_SUPPORTED_ERR
    assert error.message == f"a second FILES(){IN_SELECT}"


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
    with pytest.raises(UserError, match=r"must read from FILES\(…\) or S3\(…\)"):
        parse_script(f"CREATE JOB j ON STREAMING DO INSERT INTO t {select}")


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        ("¦INSERT INTO t SELECT 1", "INSERT" + YET),
        ("EXPLAIN ¦SELECT 1", "EXPLAIN SELECT" + YET),
        ("¦MERGE INTO t", "MERGE" + YET),
        ("¦TRUNCATE TABLE t", "TRUNCATE TABLE" + YET),
        ("¦CANCEL TASK WHERE jobname = 'x' AND taskid = 1", "CANCEL TASK" + YET),
        ("CREATE ¦OR REPLACE TABLE t (a INT)", "CREATE OR REPLACE" + YET),
        ("CREATE ¦VIEW v AS SELECT 1", "CREATE VIEW" + YET),
        ("STOP ¦SYNC JOB j", "STOP SYNC" + YET),
        ("DROP ¦DATABASE d", "DROP DATABASE" + YET),
        ("ALTER ¦TABLE t ADD COLUMN a INT", "ALTER TABLE" + YET),
        ("SHOW ¦DATABASES", "SHOW DATABASES" + YET),
        ("SHOW CREATE ¦VIEW v", "SHOW CREATE VIEW" + YET),
        ("DESCRIBE ¦HISTORY t", "DESCRIBE HISTORY" + YET),
        ("CREATE TABLE t (a INT) ¦PARTITION BY RANGE(a) ()", "PARTITION BY" + IN_TABLE),
        (
            "CREATE TABLE t (a INT) PARTITIONED BY (¦b INT)",
            "a type in PARTITIONED BY" + IN_TABLE,
        ),
        (
            "CREATE TABLE t (a INT) PARTITIONED BY (¦days(a))",
            "days(…) in PARTITIONED BY" + IN_TABLE,
        ),
        ("CREATE TABLE t (a INT) USING ¦parquet", "USING parquet" + IN_TABLE),
        ("CREATE TABLE t (a INT) ¦TBLPROPERTIES ('a'='b')", "TBLPROPERTIES" + IN_TABLE),
        ("CREATE TABLE t (a INT) ¦ENGINE = OLAP", "ENGINE" + IN_TABLE),
        ("CREATE TABLE t ¦AS SELECT 1", "AS SELECT" + IN_TABLE),
        ("CREATE TABLE t (a INT) ¦AS SELECT 1", "AS SELECT" + IN_TABLE),
        ("CREATE TABLE t ¦LIKE u", "LIKE" + IN_TABLE),
        ("CREATE TABLE t (a INT, ¦PRIMARY KEY (a))", "PRIMARY KEY" + IN_TABLE),
        ("CREATE TABLE t (a INT, ¦CONSTRAINT c CHECK (a))", "CONSTRAINT" + IN_TABLE),
        ("CREATE TABLE t (a INT) ¦UNIQUE KEY (a)", "UNIQUE KEY" + IN_TABLE),
        ("CREATE TABLE t (a INT ¦PRIMARY KEY)", "PRIMARY is not supported yet in a column"),
        ("CREATE TABLE t (a INT ¦DEFAULT 1)", "DEFAULT is not supported yet in a column"),
        ("CREATE TABLE t (a ¦TIME)", "the type TIME" + YET),
        ("CREATE TABLE t (a ARRAY<¦INTERVAL>)", "the type INTERVAL" + YET),
        ("CREATE TABLE t (a ¦VARIANT)", "the type VARIANT" + YET),
        ("CREATE JOB ¦IF NOT EXISTS j ON", "IF NOT EXISTS is not supported yet in CREATE JOB"),
        ("CREATE JOB j ON ¦SCHEDULE EVERY 1 DAY DO", "ON SCHEDULE" + YET),
        ("CREATE JOB j ON STREAMING ¦FROM MYSQL ()", "FROM … TO DATABASE" + YET),
        ("CREATE JOB j ON STREAMING DO INSERT ¦OVERWRITE t", "INSERT OVERWRITE" + YET),
        ("CREATE JOB j ON STREAMING DO INSERT INTO t ¦VALUES (1)", "INSERT … VALUES" + YET),
        ("CREATE JOB j ON STREAMING DO INSERT INTO t(a) ¦VALUES 1", "INSERT … VALUES" + YET),
        ("CREATE JOB j ON STREAMING DO INSERT INTO t ¦PARTITION (a)", "PARTITION" + YET),
    ],
)
def test_a_foreign_construct_is_refused_by_name(text: str, construct: str) -> None:
    error = refusal(text)

    assert (error.code, error.message) == (Code.NOT_SUPPORTED_ERR, construct)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE JOB ON STREAMING DO", 'expected a job name after CREATE JOB, found "ON"'),
        ("CREATE JOB j COMMENT 'x' ON STREAMING DO", "COMMENT must come after ON STREAMING"),
        ("CREATE JOB j PROPERTIES() PROPERTIES()", "PROPERTIES must not come twice"),
        ("CREATE JOB j ON STREAMING PROPERTIES()", "PROPERTIES must come before ON STREAMING"),
        (
            "CREATE JOB j ON STREAMING COMMENT 'x' PROPERTIES()",
            "PROPERTIES must come before COMMENT",
        ),
        (
            "CREATE JOB j ON STREAMING COMMENT 'x' ON STREAMING",
            "ON STREAMING must come before COMMENT",
        ),
        ("CREATE JOB j ON STREAMING COMMENT 'x' COMMENT 'y'", "COMMENT must not come twice"),
        ("CREATE JOB j ON STREAMING ON STREAMING", "ON STREAMING must not come twice"),
        ("CREATE JOB j DO", 'expected ON STREAMING after the job name, found "DO"'),
        ("CREATE JOB j ON TUESDAY", 'expected STREAMING after ON, found "TUESDAY"'),
        (
            "CREATE JOB j ON STREAMING INSERT",
            'expected DO INSERT after ON STREAMING, found "INS',
        ),
        ("CREATE JOB j ON STREAMING DO DELETE", 'expected INSERT after DO, found "DELETE"'),
        ("CREATE JOB j ON STREAMING DO INSERT t", 'expected INTO after INSERT, found "t"'),
    ],
)
def test_a_clause_at_the_wrong_place_is_named(text: str, message: str) -> None:
    error = refusal(text)

    assert error.code is Code.SYNTAX_ERR
    assert error.message.startswith(message)
