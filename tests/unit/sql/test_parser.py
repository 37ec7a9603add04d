import pytest

from penstock.errors import Code, UserError
from penstock.sql.parser import parse_script
from penstock.sql.statements import (
    AlterJob,
    CreateJob,
    DescribeDetail,
    DescribeTable,
    DropJob,
    DropTable,
    Insert,
    PauseJob,
    ResumeJob,
    SelectItem,
    ShowCreateJob,
    ShowCreateTable,
    ShowEpochs,
    ShowEvents,
    ShowJobs,
    ShowTables,
    SourceCall,
    Statement,
)
from tests.error_values import assert_error, assert_names, raises
from tests.unit.sql.refusal import refusal


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("SHOW TABLES", ShowTables()),
        ("show jobs", ShowJobs()),
        ("DROP TABLE Orders", DropTable(name="orders")),
        (
            "DROP TABLE IF EXISTS Default.`My Orders`",
            DropTable(name="my orders", if_exists=True),
        ),
        ("DESCRIBE orders", DescribeTable(name="orders")),
        ("DESC TABLE orders", DescribeTable(name="orders")),
        ("DESC table", DescribeTable(name="table")),
        ("DESCRIBE DETAIL orders", DescribeDetail(name="orders")),
        ("DESCRIBE detail", DescribeTable(name="detail")),
        ("SHOW CREATE TABLE orders", ShowCreateTable(name="orders")),
        ("SHOW CREATE JOB Load_Orders", ShowCreateJob(name="Load_Orders")),
        ("SHOW CREATE JOB FOR `load-orders`", ShowCreateJob(name="load-orders")),
        ("SHOW CREATE JOB for", ShowCreateJob(name="for")),
        ("SHOW EPOCHS FOR load", ShowEpochs(name="load")),
        ("SHOW EVENTS FOR load", ShowEvents(name="load")),
        ("PAUSE JOB load", PauseJob(name="load")),
        ("PAUSE JOB WHERE jobName = 'my load'", PauseJob(name="my load")),
        ('RESUME JOB WHERE name = "load"', ResumeJob(name="load")),
        ("RESUME JOB `load`", ResumeJob(name="load")),
        ("DROP JOB load", DropJob(name="load")),
        ("DROP JOB IF EXISTS WHERE jobname='a'", DropJob(name="a", if_exists=True)),
        ("DROP JOB IF EXISTS if", DropJob(name="if", if_exists=True)),
        (
            "ALTER JOB load PROPERTIES ('max_interval' = 10)",
            AlterJob(name="load", properties=(("max_interval", "10"),)),
        ),
    ],
)
def test_a_statement_is_parsed(text: str, statement: Statement) -> None:
    (parsed,) = parse_script(text)

    assert parsed.statement == statement


def test_create_job_is_parsed_with_its_clauses_and_the_verbatim_select() -> None:
    (parsed,) = parse_script(
        """create job `load orders`
        PROPERTIES("max_interval" = 10, 's3.max_batch_files'='5', "offset" = -1, "x" = true)
        on streaming COMMENT 'every order'
        DO INSERT INTO default.Orders (Id, city)
        SELECT f.Id, /* nested */ f.customer.`home city` AS city
        FROM Files("path" = "/in/*.json",
                   'format' = json) AS F  -- the source
        ;"""
    )

    select = (
        "SELECT f.Id, /* nested */ f.customer.`home city` AS city\n"
        '        FROM Files("path" = "/in/*.json",\n'
        "                   'format' = json) AS F"
    )
    assert parsed.statement == CreateJob(
        name="load orders",
        properties=(
            ("max_interval", "10"),
            ("s3.max_batch_files", "5"),
            ("offset", "-1"),
            ("x", "true"),
        ),
        comment="every order",
        body=Insert(
            table="orders",
            columns=("Id", "city"),
            select=select,
            items=(
                SelectItem(path=("Id",)),
                SelectItem(path=("customer", "home city"), alias="city"),
            ),
            source=SourceCall(
                function="FILES",
                options=(("path", "/in/*.json"), ("format", "json")),
                start=select.index("Files"),
                end=select.index(" AS F"),
            ),
        ),
    )


def test_a_script_is_split_at_semicolons_outside_of_strings_and_comments() -> None:
    parsed = parse_script(
        "\ufeff;; -- first; not a statement\n"
        "  SHOW JOBS /* ; */;\r\n"
        "PAUSE JOB WHERE jobname = ';' ;"
    )

    assert [(one.text, one.line, one.column) for one in parsed] == [
        ("SHOW JOBS", 2, 3),
        ("PAUSE JOB WHERE jobname = ';'", 3, 1),
    ]


@pytest.mark.parametrize("text", ["", " \n", ";", "-- nothing", "/* nothing */;", "\ufeff"])
def test_a_script_without_statements_is_empty(text: str) -> None:
    assert parse_script(text) == ()


def test_the_longest_names_are_accepted() -> None:
    parsed = parse_script(f"SHOW EVENTS FOR {'j' * 64}; DROP TABLE {'t' * 128}")

    assert [one.statement for one in parsed] == [
        ShowEvents(name="j" * 64),
        DropTable(name="t" * 128),
    ]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("¦SHWO JOBS", ('"SHWO"',)),
        ("SHOW JOBS;\n ¦x", ('"x"',)),
        ("¦# SHOW JOBS", ('"#"',)),
        ("¦'secret'", ("statement", "string")),
        (
            "SHOW ¦JOB",
            (
                "TABLES",
                "JOBS",
                "CREATE",
                "EPOCHS",
                "EVENTS",
                "ROUTINE LOAD",
                "ROUTINE LOAD TASK",
                "ALL ROUTINE LOAD",
                "ALL CREATE ROUTINE LOAD",
                "SHARDS",
                "SECRETS",
                "SHOW",
                '"JOB"',
            ),
        ),
        (
            "PAUSE¦",
            ("JOB", "ROUTINE LOAD", "ALL ROUTINE LOAD", "PAUSE"),
        ),
        ("SHOW EPOCHS ¦load", ("FOR", "SHOW EPOCHS", '"load"')),
        ("SHOW JOBS ¦now", ('"now"',)),
        ("PAUSE JOB ¦'load'", ("PAUSE JOB",)),
        ("PAUSE JOB WHERE ¦id = 'x'", ('"jobname"', '"id"')),
        ("PAUSE JOB WHERE jobname = ¦x", ('"="', '"x"')),
        ("PAUSE JOB my¦-job", ('"-"',)),
        ("PAUSE JOB ¦` `", ("job name",)),
        ("PAUSE JOB WHERE jobname = ¦''", ("job name",)),
        ("PAUSE JOB ¦`a\tb`", ("U+0009",)),
        ("PAUSE JOB ¦inner_x", ('"inner_x"', '"inner_"')),
        (
            f"PAUSE JOB ¦{'j' * 65}",
            (f"{'j' * 65}", "64", "65"),
        ),
        (
            f"DROP TABLE default.¦{'t' * 129}",
            (f"{'t' * 129}", "128", "129"),
        ),
        ("ALTER JOB j PROPERTIES¦()", ("PROPERTIES",)),
        ("ALTER JOB j PROPERTIES('a'='1', ¦'A'='2')", ('"A"',)),
        ("ALTER JOB j PROPERTIES(¦''='1')", ("key",)),
        ("ALTER JOB j PROPERTIES('a' ¦'1')", ('"="', '"a"')),
        ("ALTER JOB j PROPERTIES('a'='1',¦)", ('","', '")"')),
        ("ALTER JOB j PROPERTIES('a'=-¦x)", ('"a"', '"x"')),
        (
            "ALTER JOB j PROPERTIES('a'='1' ¦'b'='2')",
            ('")"', "PROPERTIES"),
        ),
    ],
)
def test_a_syntax_error_reports_the_token_and_its_position(
    text: str, named: tuple[str, ...]
) -> None:
    error = refusal(text)

    assert_error(error, Code.SYNTAX_ERR, *named)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("SHWO JOBS", ("SHOW", "CREATE TABLE", "CREATE JOB")),
        ("SHOW JOB", ("JOBS",)),
        ("xyzzy", ("CREATE TABLE",)),
    ],
)
def test_a_mistyped_keyword_produces_a_suggestion(text: str, named: tuple[str, ...]) -> None:
    error = refusal(text)

    assert_names(error.hint, *named)


def test_another_database_does_not_exist() -> None:
    with raises(UserError, Code.META_NOT_FOUND_ERR, '"sales"') as caught:
        parse_script("DROP TABLE sales.orders")

    assert caught.value.code is Code.META_NOT_FOUND_ERR
    assert_names(caught.value.detail, '"default"', "Line 1, column 12.")


def test_a_message_never_quotes_a_string() -> None:
    error = refusal("ALTER JOB j PROPERTIES('s3.secret_key' 'hunter2')")

    assert "hunter2" not in f"{error.message} {error.detail} {error.hint}"


def test_backslash_g_prints_a_result_vertically() -> None:
    first, second, third = parse_script("SHOW JOBS\\G SHOW TABLES; DESCRIBE t \\G;")

    assert (first.statement, first.text, first.vertical) == (ShowJobs(), "SHOW JOBS", True)
    assert (second.statement, second.vertical) == (ShowTables(), False)
    assert (third.statement, third.vertical) == (DescribeTable(name="t"), True)


@pytest.mark.parametrize("text", ["SHOW JOBS \\", "SHOW JOBS \\ G", "SHOW JOBS \\g", "\\"])
def test_any_other_backslash_is_a_syntax_error(text: str) -> None:
    error = refusal(text)

    assert error.code is Code.SYNTAX_ERR
