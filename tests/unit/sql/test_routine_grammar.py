"""Parsing and formatting of statements about routine loads."""

import pytest

from penstock.errors import Code
from penstock.model.job import LoadColumn, LoadProperties
from penstock.model.job_kinds import ROUTINE_LOAD
from penstock.sql.formatter import format_statement
from penstock.sql.masking import visible_part
from penstock.sql.parser import parse_script
from penstock.sql.statements import (
    AlterJob,
    CreateJob,
    DropJob,
    PauseJob,
    ResumeJob,
    RoutineBody,
    ShowCreateJob,
    ShowRoutineLoad,
    ShowRoutineLoadTask,
    ShowShards,
    SourceCall,
    Statement,
)
from tests.error_values import assert_error, assert_names
from tests.unit.sql.refusal import refusal

HEAD = "CREATE ROUTINE LOAD j ON t"
TAIL = "FROM KINESIS()"
WRITTEN = """CREATE ROUTINE LOAD `load-clicks` ON clicks
COLUMNS TERMINATED BY '	',
COLUMNS (Id, `the url`, day = to_date(at), Id = Id + 1),
PRECEDING FILTER Id > 0,
WHERE day IS DISTINCT FROM DATE '2020-01-01' -- why
  AND x
PROPERTIES (
  'format' = 'csv'
)
FROM KINESIS (
  'kinesis_stream' = 'it''s',
  'aws.secret_key' = SECRET 'lake'
)
COMMENT 'all clicks'"""
SHORT = """CREATE ROUTINE LOAD j ON t
FROM KAFKA ()"""


def created(clauses: str) -> RoutineBody:
    """Parse a CREATE ROUTINE LOAD with these clauses after its table."""
    (parsed,) = parse_script(f"{HEAD} {clauses}")
    assert isinstance(parsed.statement, CreateJob)
    assert isinstance(parsed.statement.body, RoutineBody)
    return parsed.statement.body


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("PAUSE ROUTINE LOAD FOR Load", PauseJob(kind=ROUTINE_LOAD, name="Load")),
        (
            "PAUSE ROUTINE LOAD FOR Default.`my load`",
            PauseJob(kind=ROUTINE_LOAD, name="my load"),
        ),
        ("pause all routine load", PauseJob(kind=ROUTINE_LOAD, name=None)),
        ("RESUME ROUTINE LOAD FOR j", ResumeJob(kind=ROUTINE_LOAD, name="j")),
        ("RESUME ALL ROUTINE LOAD", ResumeJob(kind=ROUTINE_LOAD, name=None)),
        ("STOP ROUTINE LOAD FOR default.j", DropJob(kind=ROUTINE_LOAD, name="j")),
        ("STOP ROUTINE LOAD FOR for", DropJob(kind=ROUTINE_LOAD, name="for")),
        ("SHOW ROUTINE LOAD", ShowRoutineLoad()),
        ("SHOW ALL ROUTINE LOAD", ShowRoutineLoad(all=True)),
        ("SHOW ROUTINE LOAD FOR j", ShowRoutineLoad(name="j")),
        ("SHOW ROUTINE LOAD FOR task", ShowRoutineLoad(name="task")),
        ("SHOW ALL ROUTINE LOAD FOR default.j", ShowRoutineLoad(name="j", all=True)),
        ("SHOW ROUTINE LOAD LIKE 'load%'", ShowRoutineLoad(like="load%")),
        ("SHOW ALL ROUTINE LOAD LIKE '%'", ShowRoutineLoad(like="%", all=True)),
        ("SHOW ROUTINE LOAD TASK FOR j", ShowRoutineLoadTask(name="j")),
        ("SHOW ROUTINE LOAD TASK WHERE JobName = 'j j'", ShowRoutineLoadTask(name="j j")),
        (
            "SHOW ROUTINE LOAD TASK FROM default WHERE jobname = 'j'",
            ShowRoutineLoadTask(name="j"),
        ),
        (
            "show routine load task in Default where jobname = 'j'",
            ShowRoutineLoadTask(name="j"),
        ),
        ("SHOW CREATE ROUTINE LOAD FOR j", ShowCreateJob(kind=ROUTINE_LOAD, name="j")),
        (
            "SHOW ALL CREATE ROUTINE LOAD FOR j",
            ShowCreateJob(kind=ROUTINE_LOAD, name="j", all=True),
        ),
        ("SHOW SHARDS FOR default.j", ShowShards(name="j")),
        (
            "ALTER ROUTINE LOAD FOR default.j WHERE a > comment",
            AlterJob(
                kind=ROUTINE_LOAD,
                name="j",
                body=RoutineBody(load=LoadProperties(where="a > comment")),
            ),
        ),
        (
            "ALTER ROUTINE LOAD FOR j PROPERTIES('max_error_number' = 5)",
            AlterJob(
                kind=ROUTINE_LOAD,
                name="j",
                properties=(("max_error_number", "5"),),
                body=RoutineBody(),
            ),
        ),
        (
            "ALTER ROUTINE LOAD FOR j COLUMNS TERMINATED BY ';' FROM kinesis('a' = 'b')",
            AlterJob(
                kind=ROUTINE_LOAD,
                name="j",
                body=RoutineBody(
                    load=LoadProperties(separator=";"),
                    source=SourceCall(function="KINESIS", options=(("a", "b"),)),
                ),
            ),
        ),
    ],
)
def test_a_statement_about_routine_loads_is_parsed(text: str, statement: Statement) -> None:
    (parsed,) = parse_script(text)

    assert parsed.statement == statement


def test_create_routine_load_is_parsed_with_all_clauses() -> None:
    (parsed,) = parse_script(
        r"""create routine load Default.`Load Clicks` on DEFAULT.Clicks with append
        COLUMNS TERMINATED BY '\t', columns(id, Url, day = to_date(at, 'y,m') , Id = id + 1),
        preceding filter id > 0, WHERE day > '2020' /* not
          old */ AND url IN ('a', 'b') -- the end
        PROPERTIES("format" = csv) FROM Kinesis ("kinesis_stream" = "clicks") COMMENT 'c';"""
    )

    load = LoadProperties(
        separator="\t",
        columns=(
            LoadColumn(name="id"),
            LoadColumn(name="Url"),
            LoadColumn(name="day", expression="to_date(at, 'y,m')"),
            LoadColumn(name="Id", expression="id + 1"),
        ),
        preceding_filter="id > 0",
        where="day > '2020' /* not\n          old */ AND url IN ('a', 'b')",
    )
    source = SourceCall(function="KINESIS", options=(("kinesis_stream", "clicks"),))
    assert parsed.statement == CreateJob(
        kind=ROUTINE_LOAD,
        name="Load Clicks",
        body=RoutineBody(table="clicks", load=load, source=source),
        properties=(("format", "csv"),),
        comment="c",
    )


@pytest.mark.parametrize("source", ["KINESIS", "Kafka", "pulsar", "FROM", "properties"])
def test_a_routine_load_requires_only_a_table_and_a_source(source: str) -> None:
    assert created(f"FROM {source}('a' = 'b')") == RoutineBody(
        table="t", source=SourceCall(function=source.upper(), options=(("a", "b"),))
    )


def test_clauses_about_records_come_in_any_order() -> None:
    load = created(f"WHERE b, PRECEDING FILTER a, COLUMNS(a), COLUMNS TERMINATED BY ',' {TAIL}")

    assert load.load == LoadProperties(
        separator=",", columns=(LoadColumn(name="a"),), preceding_filter="a", where="b"
    )


@pytest.mark.parametrize(
    "expression",
    [
        "a",
        "a IN (1, 2) AND b[0, 1] = 'x, y'",
        "CASE WHEN a THEN b ELSE concat(c, ',') END = 'x'",
        "extract(year FROM x) = 2020",
        "trim(BOTH ',' FROM x) IS NOT DISTINCT FROM y",
        "count(*) FILTER (WHERE a) > 0",
        "x.from = x.where AND x.properties(1)",
        "comment = 'x' AND properties IS NOT NULL",
        "`FROM` = 'FROM KINESIS ('",
        "a -- FROM KINESIS()\n > 1",
        "kinesis(a) = partition",
        "transform(a, x -> x + 1)[0] <=> NULL",
    ],
)
@pytest.mark.parametrize("suffix", ["", ", COLUMNS(a)", " PROPERTIES('a' = 'b')"])
def test_an_expression_stays_verbatim(expression: str, suffix: str) -> None:
    load = created(f"WHERE {expression}{suffix} {TAIL}").load

    assert load.where == expression


def test_the_expression_of_a_column_ends_at_the_end_of_the_list() -> None:
    columns = created(f"COLUMNS(a = (b), c = CASE WHEN d THEN f(1, 2) END) {TAIL}").load.columns

    assert columns == (
        LoadColumn(name="a", expression="(b)"),
        LoadColumn(name="c", expression="CASE WHEN d THEN f(1, 2) END"),
    )


@pytest.mark.parametrize("text", [WRITTEN, SHORT])
def test_a_formatted_routine_load_does_not_change_when_formatted_again(text: str) -> None:
    (parsed,) = parse_script(text)
    assert isinstance(parsed.statement, CreateJob)

    assert format_statement(parsed.statement) == text


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        (f"{HEAD} WITH ¦MERGE {TAIL}", "WITH MERGE"),
        (f"{HEAD} WITH ¦DELETE {TAIL}", "WITH DELETE"),
        (f"{HEAD} ¦DELETE ON a > 1 {TAIL}", "DELETE ON"),
        (f"{HEAD} WHERE a ¦DELETE ON b {TAIL}", "DELETE ON"),
        (f"{HEAD} COLUMNS(a), ¦ORDER BY a {TAIL}", "ORDER BY"),
        (f"{HEAD} ¦PARTITION(p) {TAIL}", "PARTITION"),
        (f"{HEAD} WHERE a, ¦PARTITIONS (p) {TAIL}", "PARTITIONS"),
        (f"{HEAD} ¦TEMPORARY PARTITIONS(p)", "TEMPORARY PARTITION"),
        (f"CREATE ROUTINE LOAD j ¦{TAIL}", "CREATE ROUTINE LOAD without ON table"),
        ("CREATE ROUTINE LOAD j ¦WHERE a", "CREATE ROUTINE LOAD without ON table"),
        ("CREATE ROUTINE LOAD j¦", "CREATE ROUTINE LOAD without ON table"),
        (
            f"CREATE ROUTINE LOAD ¦IF NOT EXISTS j ON t {TAIL}",
            "IF NOT EXISTS",
        ),
        ("STOP ¦ALL ROUTINE LOAD", "STOP ALL"),
        ("ALTER ROUTINE LOAD FOR j WHERE a ¦COMMENT 'x'", "COMMENT"),
        ("ALTER ROUTINE LOAD FOR j ¦ORDER BY a", "ORDER BY"),
    ],
)
def test_an_unsupported_clause_of_a_routine_load_is_named_with_a_hint(
    text: str, construct: str
) -> None:
    error = refusal(text)

    assert_error(error, Code.NOT_SUPPORTED_ERR, construct, hint=())


@pytest.mark.parametrize(
    ("clauses", "named"),
    [
        (f"{TAIL} PROPERTIES()", ("PROPERTIES", "FROM")),
        (f"{TAIL} WHERE a", ("WHERE", "FROM")),
        (f"{TAIL} FROM KINESIS()", ("FROM", "more than once")),
        (f"{TAIL} COMMENT 'x' PROPERTIES()", ("PROPERTIES", "COMMENT")),
        (f"{TAIL} COMMENT 'x' COMMENT 'y'", ("COMMENT", "more than once")),
        (f"COMMENT 'x' {TAIL}", ("COMMENT", "FROM")),
        (f"WHERE a COMMENT 'x' {TAIL}", ("COMMENT", "FROM")),
        (f"PROPERTIES() COMMENT 'x' {TAIL}", ("COMMENT", "FROM")),
        (f"PROPERTIES() COLUMNS(a) {TAIL}", ("COLUMNS", "PROPERTIES")),
        (
            f"PROPERTIES() PRECEDING FILTER a {TAIL}",
            ("PRECEDING FILTER", "PROPERTIES"),
        ),
        (f"PROPERTIES() PROPERTIES() {TAIL}", ("PROPERTIES", "more than once")),
    ],
)
def test_the_hint_for_a_misplaced_clause_shows_the_order(
    clauses: str, named: tuple[str, ...]
) -> None:
    error = refusal(f"{HEAD} {clauses}")

    assert_error(error, Code.SYNTAX_ERR, *named)
    assert_names(error.hint, "CREATE ROUTINE LOAD name ON table")


@pytest.mark.parametrize(
    ("clauses", "named"),
    [
        (f"WHERE ¦{TAIL}", ("WHERE", '"FROM"')),
        (
            "PRECEDING FILTER ¦, WHERE a",
            ("PRECEDING FILTER", '","'),
        ),
        (f"COLUMNS(a, b = ¦) {TAIL}", ('"b"', '")"')),
        (f"COLUMNS(a, ¦A) {TAIL}", ('"A"',)),
        (f"COLUMNS(a = 1, ¦A = 2) {TAIL}", ('"A"', "computed")),
        (f"COLUMNS¦() {TAIL}", ("COLUMNS",)),
        (f"COLUMNS(a ¦b) {TAIL}", ('"="', '","', '")"', '"b"')),
        (f"COLUMNS ¦a {TAIL}", ("TERMINATED BY", '"("', "COLUMNS", '"a"')),
        (f"COLUMNS(a) ¦WHERE a {TAIL}", ('","', "WHERE")),
        (f"PRECEDING FILTER a ¦WHERE b {TAIL}", ('","', "WHERE")),
        (f"WHERE a ¦COLUMNS(a) {TAIL}", ('","', "COLUMNS")),
        (f"WHERE a, ¦WHERE b {TAIL}", ("WHERE",)),
        (f"COLUMNS TERMINATED BY ¦'' {TAIL}", ("COLUMNS TERMINATED BY",)),
        (f"WHERE ¦(a {TAIL}", ('"("',)),
        (f"WHERE a[b¦) {TAIL}", ('"]"', '")"')),
        (f"WHERE a¦) {TAIL}", ('","', "PROPERTIES", "FROM", '")"')),
        ("FROM ¦'x'", ("FROM",)),
        ("FROM ¦`x`()", ("FROM", '"x"')),
        ("FROM KINESIS¦", ('"("', "KINESIS")),
        (f"WITH ¦{TAIL}", ("APPEND", "WITH", '"FROM"')),
        (
            f"{TAIL} ¦AGAIN",
            ("COMMENT", "FROM KINESIS(…)", '"AGAIN"'),
        ),
    ],
)
def test_a_syntax_error_in_a_routine_load_reports_its_position(
    clauses: str, named: tuple[str, ...]
) -> None:
    error = refusal(f"{HEAD} {clauses}")

    assert_error(error, Code.SYNTAX_ERR, *named)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("CREATE ROUTINE LOAD ON t", ("CREATE ROUTINE LOAD",)),
        ("CREATE ROUTINE LOAD j INTO t", ("ON", '"INTO"')),
        ("CREATE ROUTINE j", ("LOAD", "ROUTINE", '"j"')),
        ("PAUSE ROUTINE LOAD j", ("FOR", "PAUSE ROUTINE LOAD", '"j"')),
        ("PAUSE ALL JOBS", ("ROUTINE LOAD", "ALL", '"JOBS"')),
        ("STOP JOB j", ("ROUTINE LOAD", "STOP", '"JOB"')),
        ("SHOW ALL JOBS", ("ROUTINE LOAD", "CREATE ROUTINE LOAD", "ALL")),
        ("SHOW ROUTINE LOAD j", ("FOR", "LIKE")),
        (
            "SHOW ROUTINE LOAD TASK j",
            ("FOR", "FROM", "IN", "WHERE", "SHOW ROUTINE LOAD TASK"),
        ),
        ("SHOW ROUTINE LOAD TASK FROM default", ("WHERE",)),
        ("SHOW ROUTINE LOAD TASK WHERE a = 'b'", ('"jobname"', '"a"')),
        ("SHOW ROUTINE LOAD LIKE x", ("LIKE",)),
        ("SHOW SHARDS j", ("FOR", "SHOW SHARDS", '"j"')),
        ("ALTER ROUTINE LOAD FOR j", ("COLUMNS TERMINATED BY", "COLUMNS", "PRECEDING")),
        ("ALTER ROUTINE LOAD FOR j PROPERTIES()", ("PROPERTIES",)),
        ("ALTER ROUTINE LOAD FOR j FROM KINESIS()", ("KINESIS",)),
        ("ALTER ROUTINE LOAD FOR j FROM KINESIS('a' = 'b') WHERE a", ("WHERE", "before")),
        ("ALTER ROUTINE LOAD FOR j PROPERTIES('a' = 'b') x", ("FROM",)),
        (
            "STOP ROUTINE LOAD FOR inner_j",
            ('"inner_j"', '"inner_"'),
        ),
    ],
)
def test_a_syntax_error_in_a_statement_about_routine_loads_is_named(
    text: str, named: tuple[str, ...]
) -> None:
    error = refusal(text)

    assert error.code is Code.SYNTAX_ERR
    assert_names(error.message, *named)


def test_tasks_of_another_database_do_not_exist() -> None:
    error = refusal("SHOW ROUTINE LOAD TASK IN sales WHERE jobname = 'j'")

    assert_error(error, Code.META_NOT_FOUND_ERR, '"sales"', hint=["default"])


def test_a_routine_load_of_another_database_does_not_exist() -> None:
    error = refusal("PAUSE ROUTINE LOAD FOR sales.j")

    assert_error(error, Code.META_NOT_FOUND_ERR, '"sales"', hint=["default.name"])


@pytest.mark.parametrize(
    "key",
    [
        "aws.access_key",
        "aws.secret_key",
        "aws.session_key",
        "aws.session_token",
        "property.aws.secret.key",
        "property.aws.access.key",
        "property.sasl.jaas.config",
        "property.ssl.key.pem",
    ],
)
@pytest.mark.parametrize("quote", ["'", ""])
def test_credentials_of_a_stream_are_hidden(key: str, quote: str) -> None:
    before = f"{HEAD} FROM KINESIS({quote}{key}{quote}"

    assert visible_part(f"{before} = 'CANARY', 'a' = 'b')") == before


def test_options_of_a_stream_without_credentials_are_visible() -> None:
    text = (
        f"{HEAD} COLUMNS(id, token), WHERE a = 'b' FROM KINESIS('kinesis_stream' = 'x', "
        "'aws.region' = 'eu-west-1', 'aws.role_arn' = 'y', 'aws.secret_key' = SECRET 's', "
        "'property.aws.credentials.provider' = 'env', 'property.kinesis_default_pos' = 'z')"
    )

    assert visible_part(text) == text
