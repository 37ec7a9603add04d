"""What Spark or Doris know and Penstock does not is refused by name, never half understood."""

import pytest

from penstock.errors import Code, UserError
from penstock.sql.parser import parse_script

IN_SELECT = " is not supported yet in a job's SELECT"
IN_TABLE = " is not supported yet in CREATE TABLE"
YET = " is not supported yet"


@pytest.mark.parametrize(
    ("select", "column"),
    [
        ("SELECT a FROM FILES(), FILES()", 24),
        ("SELECT a FROM FILES() UNION ALL SELECT b FROM FILES()", 47),
        ("SELECT a FROM FILES() WHERE b IN (SELECT c FROM FILES())", 49),
    ],
)
def test_a_second_source_is_refused_where_it_stands(select: str, column: int) -> None:
    with pytest.raises(UserError) as caught:
        parse_script(f"CREATE JOB j ON STREAMING DO INSERT INTO t\n{select}")

    error = caught.value
    assert error.code is Code.NOT_SUPPORTED_ERR
    assert error.message == f"a second FILES(){IN_SELECT}"
    assert error.detail == f"Line 2, column {column}."


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
    ("text", "construct", "column"),
    [
        ("INSERT INTO t SELECT 1", "INSERT" + YET, 1),
        ("EXPLAIN SELECT 1", "EXPLAIN SELECT" + YET, 9),
        ("MERGE INTO t", "MERGE" + YET, 1),
        ("TRUNCATE TABLE t", "TRUNCATE TABLE" + YET, 1),
        ("CANCEL TASK WHERE jobname = 'x' AND taskid = 1", "CANCEL TASK" + YET, 1),
        ("CREATE OR REPLACE TABLE t (a INT)", "CREATE OR REPLACE" + YET, 8),
        ("CREATE VIEW v AS SELECT 1", "CREATE VIEW" + YET, 8),
        ("STOP SYNC JOB j", "STOP SYNC" + YET, 6),
        ("DROP DATABASE d", "DROP DATABASE" + YET, 6),
        ("ALTER TABLE t ADD COLUMN a INT", "ALTER TABLE" + YET, 7),
        ("SHOW DATABASES", "SHOW DATABASES" + YET, 6),
        ("SHOW CREATE VIEW v", "SHOW CREATE VIEW" + YET, 13),
        ("DESCRIBE HISTORY t", "DESCRIBE HISTORY" + YET, 10),
        ("CREATE TABLE t (a INT) PARTITION BY RANGE(a) ()", "PARTITION BY" + IN_TABLE, 24),
        (
            "CREATE TABLE t (a INT) PARTITIONED BY (b INT)",
            "a type in PARTITIONED BY" + IN_TABLE,
            40,
        ),
        (
            "CREATE TABLE t (a INT) PARTITIONED BY (days(a))",
            "days(…) in PARTITIONED BY" + IN_TABLE,
            40,
        ),
        ("CREATE TABLE t (a INT) USING parquet", "USING parquet" + IN_TABLE, 30),
        ("CREATE TABLE t (a INT) TBLPROPERTIES ('a'='b')", "TBLPROPERTIES" + IN_TABLE, 24),
        ("CREATE TABLE t (a INT) ENGINE = OLAP", "ENGINE" + IN_TABLE, 24),
        ("CREATE TABLE t AS SELECT 1", "AS SELECT" + IN_TABLE, 16),
        ("CREATE TABLE t (a INT) AS SELECT 1", "AS SELECT" + IN_TABLE, 24),
        ("CREATE TABLE t LIKE u", "LIKE" + IN_TABLE, 16),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a))", "PRIMARY KEY" + IN_TABLE, 24),
        ("CREATE TABLE t (a INT, CONSTRAINT c CHECK (a))", "CONSTRAINT" + IN_TABLE, 24),
        ("CREATE TABLE t (a INT) UNIQUE KEY (a)", "UNIQUE KEY" + IN_TABLE, 24),
        ("CREATE TABLE t (a INT PRIMARY KEY)", "PRIMARY is not supported yet in a column", 23),
        ("CREATE TABLE t (a INT DEFAULT 1)", "DEFAULT is not supported yet in a column", 23),
        ("CREATE TABLE t (a TIME)", "the type TIME" + YET, 19),
        ("CREATE TABLE t (a ARRAY<INTERVAL>)", "the type INTERVAL" + YET, 25),
        ("CREATE TABLE t (a VARIANT)", "the type VARIANT" + YET, 19),
        (
            "CREATE JOB IF NOT EXISTS j ON",
            "IF NOT EXISTS is not supported yet in CREATE JOB",
            12,
        ),
        ("CREATE JOB j ON SCHEDULE EVERY 1 DAY DO", "ON SCHEDULE" + YET, 17),
        ("CREATE JOB j ON STREAMING FROM MYSQL ()", "FROM … TO DATABASE" + YET, 27),
        ("CREATE JOB j ON STREAMING DO INSERT OVERWRITE t", "INSERT OVERWRITE" + YET, 37),
        ("CREATE JOB j ON STREAMING DO INSERT INTO t VALUES (1)", "INSERT … VALUES" + YET, 44),
        ("CREATE JOB j ON STREAMING DO INSERT INTO t(a) VALUES 1", "INSERT … VALUES" + YET, 47),
        ("CREATE JOB j ON STREAMING DO INSERT INTO t PARTITION (a)", "PARTITION" + YET, 44),
    ],
)
def test_a_foreign_construct_is_refused_by_name(text: str, construct: str, column: int) -> None:
    with pytest.raises(UserError) as caught:
        parse_script(text)

    error = caught.value
    assert (error.code, error.message) == (Code.NOT_SUPPORTED_ERR, construct)
    assert error.detail == f"Line 1, column {column}."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE JOB ON STREAMING DO", 'expected a job name after CREATE JOB, found "ON"'),
        ("CREATE JOB j COMMENT 'x' ON STREAMING DO", "COMMENT must come after ON STREAMING"),
        ("CREATE JOB j PROPERTIES() PROPERTIES()", "PROPERTIES must not come twice"),
        ("CREATE JOB j ON STREAMING PROPERTIES()", "PROPERTIES must come before ON STREAMING"),
        (
            "CREATE JOB j ON STREAMING COMMENT 'x' PROPERTIES()",
            "PROPERTIES must come before ON STREAMING",
        ),
        ("CREATE JOB j ON STREAMING COMMENT 'x' COMMENT 'y'", "COMMENT must not come twice"),
        (
            "CREATE JOB j ON STREAMING ON STREAMING",
            "ON STREAMING must come once, before COMMENT",
        ),
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
    with pytest.raises(UserError) as caught:
        parse_script(text)

    assert caught.value.code is Code.SYNTAX_ERR
    assert caught.value.message.startswith(message)
