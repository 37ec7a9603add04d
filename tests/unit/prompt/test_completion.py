"""Completions of the Tab key."""

import pytest

from penstock.cli.prompt.completion import Candidate, Names, candidates
from penstock.cli.prompt.guide import HELP_BY_HEAD, guide
from penstock.control.stream_tables import FROZEN_OPTIONS
from penstock.model.job_kinds import (
    JobProperties,
    RoutineProperties,
    StreamingTableProperties,
)
from penstock.model.options import option_fields, option_key
from penstock.sources.files.kind import FilesOptions
from penstock.sources.kinesis.kind import KinesisOptions, KinesisStart
from penstock.sources.kinesis.start import POSITION_KEYS
from penstock.sources.table_log.kind import TableLogStart
from penstock.sql.parser import parse_script, statement_heads

NAMES = Names(
    jobs=lambda: ["load_orders", "my job", "load_clicks", "per_city", "add_web"],
    routine_loads=lambda: ["load_clicks"],
    streaming_tables=lambda: ["per_city"],
    flows=lambda: ["add_web"],
    tables=lambda: ["orders", "cities", "per_city"],
    secrets=lambda: ["lake"],
)
ROUTINE_LOAD = "CREATE ROUTINE LOAD j ON orders "
STREAMING_TABLE = "CREATE STREAMING TABLE t "
STREAM_QUERY = "CREATE STREAMING TABLE t AS SELECT * FROM "
INSERT = "CREATE JOB j ON STREAMING DO INSERT INTO orders SELECT * FROM "


def offered(text: str) -> list[str]:
    """Return the text after each completion is accepted."""
    return [accepted(text, candidate) for candidate in candidates(text, names=NAMES)]


def accepted(text: str, candidate: Candidate) -> str:
    return text[: len(text) - candidate.replaced] + candidate.text


def labels(text: str) -> list[str]:
    return [candidate.label for candidate in candidates(text, names=NAMES)]


def test_an_empty_line_offers_every_statement() -> None:
    heads = [" ".join(head) for head in statement_heads()]

    found = " | ".join(labels(""))

    assert [head for head in heads if head not in found] == []
    assert found.endswith("help | exit")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SHOW J", ["SHOW JOBS"]),
        ("show j", ["show jobs"]),
        ("SHOW CREATE T", ["SHOW CREATE TABLE"]),
        ("SHOW EP", ["SHOW EPOCHS FOR"]),
        ("SHOW EPOCHS ", ["SHOW EPOCHS FOR"]),
        (
            "DROP ",
            ["DROP TABLE", "DROP JOB", "DROP STREAMING TABLE", "DROP FLOW", "DROP SECRET"],
        ),
        ("SHOW JOBS; SHOW T", ["SHOW JOBS; SHOW TABLES"]),
        ("SHOW JOBS", []),
        ("CREATE JOB j O", ["CREATE JOB j ON STREAMING"]),
        ("CREATE JOB j ON S", ["CREATE JOB j ON STREAMING"]),
        ("CREATE JOB j p", ["CREATE JOB j properties("]),
        (
            "ALTER JOB j ",
            [
                "ALTER JOB j PROPERTIES(",
                "ALTER JOB j INSERT INTO",
                "ALTER JOB j RESET BACKLOG",
            ],
        ),
        ("ALTER JOB j RESET ", ["ALTER JOB j RESET BACKLOG"]),
        ("SHOW B", ["SHOW BACKLOG"]),
        ("SHOW BACKLOG ", ["SHOW BACKLOG FOR"]),
        ("CREATE TABLE t (id BI", ["CREATE TABLE t (id BIGINT", "CREATE TABLE t (id BINARY"]),
        ("CREATE TABLE t (id INT) P", ["CREATE TABLE t (id INT) PARTITIONED BY ("]),
        ("SELECT a FROM t wher", ["SELECT a FROM t where"]),
    ],
)
def test_keywords_are_completed_where_the_parser_accepts_them(
    text: str, expected: list[str]
) -> None:
    assert offered(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE R", ["ROUTINE LOAD"]),
        ("CREATE ROUTINE ", ["LOAD"]),
        (
            "PAUSE ",
            ["JOB", "ROUTINE LOAD FOR", "ALL ROUTINE LOAD", "STREAMING TABLE", "FLOW"],
        ),
        ("STOP ", ["ROUTINE LOAD FOR"]),
        ("SHOW R", ["ROUTINE LOAD", "ROUTINE LOAD TASK FOR"]),
        ("SHOW ROUTINE LOAD ", ["TASK FOR", "FOR", "LIKE"]),
        ("SHOW ROUTINE LOAD TASK ", ["FOR", "FROM", "IN", "WHERE"]),
        ("SHOW ROUTINE LOAD TASK FROM default ", ["WHERE"]),
        ("SHOW ALL ", ["ROUTINE LOAD", "CREATE ROUTINE LOAD FOR"]),
        ("SHOW SH", ["SHARDS FOR"]),
        (
            "ALTER ROUTINE LOAD FOR j ",
            [
                "COLUMNS TERMINATED BY",
                "COLUMNS(",
                "PRECEDING FILTER",
                "WHERE",
                "PROPERTIES(",
                "FROM KINESIS(",
                "FROM DATAGEN(",
                "RESET BACKLOG",
            ],
        ),
        ("ALTER ROUTINE LOAD FOR j RESET ", ["BACKLOG"]),
        ("ALTER ROUTINE LOAD FOR j WHERE a > 1 R", []),
    ],
)
def test_keywords_of_routine_loads_are_completed(text: str, expected: list[str]) -> None:
    assert labels(text) == expected


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("W", ["WITH APPEND", "WHERE"]),
        ("WITH ", ["APPEND"]),
        ("COLUMNS ", ["TERMINATED BY"]),
        ("COLUMNS(a), ", ["COLUMNS TERMINATED BY", "PRECEDING FILTER", "WHERE"]),
        ("WHERE a > 1 ", ["PROPERTIES(", "FROM KINESIS(", "FROM DATAGEN("]),
        ("PROPERTIES() ", ["FROM KINESIS(", "FROM DATAGEN("]),
        ("FROM ", ["KINESIS(", "DATAGEN("]),
        ("FROM KINESIS() ", ["COMMENT"]),
    ],
)
def test_a_routine_load_is_completed_clause_by_clause(
    clauses: str, expected: list[str]
) -> None:
    assert labels(f"CREATE ROUTINE LOAD j ON t {clauses}") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PAUSE JOB ", ["load_orders", "my job"]),
        ("PAUSE ROUTINE LOAD FOR ", ["load_clicks"]),
        ("SHOW ALL CREATE ROUTINE LOAD FOR ", ["load_clicks"]),
        ("SHOW ROUTINE LOAD TASK FOR ", ["load_clicks"]),
        ("SHOW SHARDS FOR l", ["load_clicks"]),
        ("CREATE ROUTINE LOAD ", []),
        ("CREATE ROUTINE LOAD j ON ", ["orders", "cities"]),
        ("RESUME JOB lo", ["load_orders"]),
        ("SHOW EVENTS FOR ", ["load_orders", "my job", "load_clicks", "per_city", "add_web"]),
        ("SHOW BACKLOG FOR ", ["load_orders", "my job", "load_clicks", "per_city", "add_web"]),
        ("SHOW CREATE JOB ", ["load_orders", "my job"]),
        ("EXPLAIN JOB ", ["load_orders", "my job"]),
        ("DROP TABLE ", ["orders", "cities", "IF EXISTS"]),
        ("DROP TABLE IF EXISTS o", ["orders"]),
        ("SHOW CREATE TABLE ", ["orders", "cities", "per_city"]),
        ("DESCRIBE ", ["DETAIL", "orders", "cities", "per_city"]),
        ("DESCRIBE DETAIL c", ["cities"]),
        ("CREATE JOB j ON STREAMING DO INSERT INTO ", ["orders", "cities"]),
        ("SELECT * FROM ", ["orders", "cities", "per_city", "jobs(", "tasks(", "rejects("]),
        (INSERT, ["orders", "cities", "per_city", "FILES(", "S3("]),
        ("DROP SECRET ", ["lake", "IF EXISTS"]),
        ("ALTER SECRET l", ["lake"]),
        ("CREATE JOB ", []),
        ("CREATE TABLE ", ["IF NOT EXISTS"]),
        ("CREATE TABLE IF NOT EXISTS ", []),
    ],
)
def test_existing_names_are_completed_where_a_statement_needs_them(
    text: str, expected: list[str]
) -> None:
    assert labels(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE S", ["STREAMING TABLE", "SECRET"]),
        ("CREATE OR ", ["REFRESH STREAMING TABLE"]),
        ("CREATE OR REFRESH ", ["STREAMING TABLE"]),
        ("CREATE F", ["FLOW"]),
        ("SHOW CREATE ", ["TABLE", "JOB", "ROUTINE LOAD FOR", "STREAMING TABLE", "FLOW"]),
        ("SHOW CH", ["CHECKPOINTS FOR"]),
        ("SHOW STREAMING TABLES ", ["LIKE"]),
        ("REFRESH ", ["STREAMING TABLE", "FLOW"]),
        ("ALTER STREAMING TABLE t ", ["SET (", "ADVANCE WATERMARK TO", "RESET BACKLOG"]),
        ("ALTER STREAMING TABLE t RESET ", ["BACKLOG"]),
        ("ALTER FLOW f R", ["RESET BACKLOG"]),
        ("ALTER STREAMING TABLE t ADVANCE ", ["WATERMARK"]),
        ("ALTER STREAMING TABLE t ADVANCE WATERMARK TO ", ["TIMESTAMP", "FINAL"]),
        ("ALTER FLOW f S", ["SET ("]),
        ("ALTER TABLE t ", ["SET WATERMARK FOR", "DROP WATERMARK"]),
        ("ALTER TABLE t SET ", ["WATERMARK FOR"]),
        (
            "ALTER TABLE t SET WATERMARK FOR ts AS ts - INTERVAL 5 M",
            ["MINUTES", "MILLISECONDS"],
        ),
        ("DROP STREAMING TABLE t ", ["KEEP TABLE"]),
        ("CREATE FLOW f ", ["COMMENT", "WITH (", "AS INSERT INTO"]),
        ("CREATE FLOW f AS INSERT INTO t ", ["BY NAME"]),
        ("CREATE FLOW f AS INSERT INTO t BY ", ["NAME"]),
        ("CREATE FLOW f AS INSERT INTO t BY NAME ", ["SELECT"]),
        (
            STREAMING_TABLE,
            [
                "USING DELTA",
                "PARTITIONED BY (",
                "COMMENT",
                "LOCATION",
                "TBLPROPERTIES (",
                "WITH (",
                "AS SELECT",
            ],
        ),
        (f"{STREAMING_TABLE}PARTITIONED ", ["BY"]),
        (f"{STREAMING_TABLE}AS ", ["SELECT"]),
        (f"{STREAM_QUERY}STREAM orders W", ["WATERMARK", "WHERE", "WHEN"]),
        (f"{STREAM_QUERY}STREAM orders WATERMARK ", []),
        (f"{STREAM_QUERY}STREAM orders WATERMARK ts ", ["DELAY OF INTERVAL"]),
        (f"{STREAM_QUERY}STREAM orders WATERMARK ts DELAY ", ["OF INTERVAL"]),
        (f"{STREAM_QUERY}STREAM orders WATERMARK ts DELAY OF ", ["INTERVAL"]),
        (
            f"{STREAM_QUERY}STREAM orders WATERMARK ts DELAY OF INTERVAL 5 m",
            ["minutes", "milliseconds"],
        ),
        (f"{STREAM_QUERY}STREAM orders GROUP BY wi", ["window("]),
        (f"{STREAM_QUERY}STREAM orders O", ["ON", "OR"]),
    ],
)
def test_keywords_of_streaming_tables_are_completed(text: str, expected: list[str]) -> None:
    assert labels(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE STREAMING TABLE ", ["IF NOT EXISTS"]),
        ("CREATE OR REFRESH STREAMING TABLE ", ["per_city"]),
        ("CREATE FLOW ", []),
        ("CREATE FLOW f AS INSERT INTO ", ["per_city"]),
        (STREAM_QUERY, ["orders", "cities", "per_city", "STREAM"]),
        (f"{STREAM_QUERY}STREAM ", ["orders", "cities", "per_city"]),
        (f"{STREAM_QUERY}STREAM orders JOIN ", ["orders", "cities", "per_city", "STREAM"]),
        ("EXPLAIN STREAMING TABLE ", ["per_city", "AS SELECT"]),
        ("EXPLAIN STREAMING TABLE AS SELECT 1 FROM S", ["STREAM"]),
        ("PAUSE STREAMING TABLE ", ["per_city"]),
        ("RESUME FLOW ", ["add_web"]),
        ("ALTER FLOW ", ["add_web"]),
        ("ALTER TABLE p", ["per_city"]),
        ("DROP STREAMING TABLE ", ["per_city", "IF EXISTS"]),
        ("DROP FLOW IF EXISTS ", ["add_web"]),
        ("REFRESH STREAMING TABLE ", ["per_city"]),
        ("SHOW CHECKPOINTS FOR ", ["per_city", "add_web"]),
        ("SHOW CREATE STREAMING TABLE ", ["per_city"]),
        ("SHOW CREATE FLOW ", ["add_web"]),
    ],
)
def test_the_names_of_streaming_tables_and_flows_are_completed(
    text: str, expected: list[str]
) -> None:
    assert labels(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PAUSE JOB m", "PAUSE JOB `my job`"),
        ("PAUSE JOB `m", "PAUSE JOB `my job`"),
        ("PAUSE JOB WHERE jobname = 'm", "PAUSE JOB WHERE jobname = 'my job'"),
        (
            "SHOW ROUTINE LOAD TASK WHERE jobname = '",
            "SHOW ROUTINE LOAD TASK WHERE jobname = 'load_clicks'",
        ),
        ("SELECT * FROM rejects('job' = 'm", "SELECT * FROM rejects('job' = 'my job'"),
    ],
)
def test_a_completed_name_is_quoted_if_necessary(text: str, expected: str) -> None:
    assert offered(text) == [expected]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"{INSERT}FILES(", FilesOptions),
        (f"{INSERT}S3('", FilesOptions),
        ("CREATE JOB j PROPERTIES(", JobProperties),
        ('ALTER JOB j PROPERTIES("', JobProperties),
        (f"{ROUTINE_LOAD}PROPERTIES(", RoutineProperties),
        ("ALTER ROUTINE LOAD FOR j PROPERTIES('", RoutineProperties),
        (f"{ROUTINE_LOAD}FROM KINESIS(", KinesisOptions),
        ("ALTER ROUTINE LOAD FOR j FROM KINESIS('", KinesisStart),
        (f"{STREAMING_TABLE}WITH (", StreamingTableProperties),
        (f"{STREAMING_TABLE}TBLPROPERTIES ('", StreamingTableProperties),
        ("CREATE OR REFRESH STREAMING TABLE t WITH ('", StreamingTableProperties),
        ("CREATE FLOW f WITH (", TableLogStart),
    ],
)
def test_all_options_are_completed_with_their_explanations(text: str, kind: type) -> None:
    keys = {option_key(declared) for declared in option_fields(kind)}

    found = candidates(text, names=NAMES)

    assert keys <= {candidate.label for candidate in found}
    assert all(candidate.meaning for candidate in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FILES(ur", ['FILES("uri" = "']),
        ("FILES('ur", ["FILES('uri' = '"]),
        ('FILES("format" = "js', ['FILES("format" = "json"']),
        ("FILES('format' = js", ["FILES('format' = \"json\""]),
        ('FILES("uri" = "a", "ur', []),
        (
            "FILES('strip_outer_array' = '",
            [f"FILES('strip_outer_array' = '{truth}'" for truth in ("true", "false")],
        ),
        ("FILES('s3.secret_key' = '", ["FILES('s3.secret_key' = 'secret:lake'"]),
        ("FILES('nothing' = '", []),
    ],
)
def test_keys_and_values_are_completed_in_the_open_quotes(
    text: str, expected: list[str]
) -> None:
    assert offered(INSERT + text) == [INSERT + one for one in expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PROPERTIES(form", ['PROPERTIES("format" = "']),
        (
            "PROPERTIES('format' = '",
            [f"PROPERTIES('format' = '{one}'" for one in ("csv", "json", "text")],
        ),
        ("FROM KINESIS('kinesis_st", ["FROM KINESIS('kinesis_stream' = '"]),
        (
            "FROM KINESIS('aws.secret_key' = '",
            ["FROM KINESIS('aws.secret_key' = 'secret:lake'"],
        ),
    ],
)
def test_keys_and_values_of_routine_loads_are_completed(text: str, expected: list[str]) -> None:
    assert offered(ROUTINE_LOAD + text) == [ROUTINE_LOAD + one for one in expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("WITH (checkpoint.i", []),
        (
            "WITH ('checkpoint.i",
            [
                "WITH ('checkpoint.interval' = '",
                "WITH ('checkpoint.interval-during-backlog' = '",
            ],
        ),
        (
            "WITH ('output' = '",
            [f"WITH ('output' = '{one}'" for one in ("auto", "append", "update")],
        ),
        ("TBLPROPERTIES ('state.ttl' = '", ["TBLPROPERTIES ('state.ttl' = 'none'"]),
        ("WITH ('rewrites' = 's", ["WITH ('rewrites' = 'skip'"]),
        ("WITH ('starting' = 'l", ["WITH ('starting' = 'latest'"]),
        ("WITH ('strea", []),
    ],
)
def test_keys_and_values_of_streaming_tables_are_completed(
    text: str, expected: list[str]
) -> None:
    assert offered(STREAMING_TABLE + text) == [STREAMING_TABLE + one for one in expected]


@pytest.mark.parametrize("clause", ["SET (", "SET TBLPROPERTIES ('"])
def test_alter_completes_only_options_that_can_be_altered(clause: str) -> None:
    keys = {option_key(declared) for declared in option_fields(StreamingTableProperties)}

    found = labels(f"ALTER STREAMING TABLE t {clause}")

    assert set(found) == (keys | {"rewrites"}) - set(FROZEN_OPTIONS)


@pytest.mark.parametrize("text", ["", "SELECT * FROM ", INSERT, STREAM_QUERY, ROUTINE_LOAD])
def test_the_function_of_table_logs_is_not_offered(text: str) -> None:
    assert not [label for label in labels(text) if "TABLE_LOG" in label]
    assert labels(f"{INSERT}TABLE_LOG(") == labels(f"{INSERT}UNKNOWN(")


def test_the_position_keys_of_a_stream_are_completed() -> None:
    keys = [option_key(declared) for declared in option_fields(KinesisStart)]

    assert sorted(keys) == sorted(POSITION_KEYS)


def test_create_secret_completes_only_secret_keys() -> None:
    assert "aws.secret_key" in labels("CREATE SECRET lake (")
    assert "s3.secret_key" in labels("CREATE SECRET lake (")
    assert "s3.endpoint" not in labels("CREATE SECRET lake (")


def test_required_options_come_first() -> None:
    assert labels(f"{INSERT}FILES(")[:2] == ["uri", "format"]
    assert labels(f"{ROUTINE_LOAD}FROM KINESIS(")[:2] == ["aws.region", "kinesis_stream"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\", ["\\?", "\\watch 2s", "\\timing", "\\e", "\\q"]),
        ("\\t", ["\\timing"]),
        ("SHOW JOBS \\", ["\\G", "\\watch 2s"]),
    ],
)
def test_commands_are_completed_after_a_backslash(text: str, expected: list[str]) -> None:
    assert labels(text) == expected


@pytest.mark.parametrize("text", ["-- SH", "SHOW /* J", "COMMENT 'SH", "SELECT '", "nonsense "])
def test_nothing_is_completed_in_comments_strings_and_unknown_statements(text: str) -> None:
    assert offered(text) == []


def test_every_statement_has_an_example_that_can_be_parsed() -> None:
    heads = [" ".join(head) for head in statement_heads()]

    examples = "\n".join(HELP_BY_HEAD[head].example for head in heads)

    assert len(parse_script(examples)) == len(heads)
    assert all(HELP_BY_HEAD[head].example.startswith(head) for head in heads)


def test_the_help_text_fits_80_columns_and_lists_every_statement() -> None:
    text = guide()

    assert max(len(line) for line in text.splitlines()) < 80
    assert [
        h
        for h in statement_heads()
        if HELP_BY_HEAD[" ".join(h)].example.split("\n")[0] not in text
    ] == []
