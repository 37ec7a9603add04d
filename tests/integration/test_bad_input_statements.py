"""Statements that cannot work are refused by name and rule, and leave nothing behind."""

from pathlib import Path

import pytest

from penstock.control.result import Cell
from penstock.crashpoints import CrashPoint
from penstock.errors import Code, UserError
from tests.integration.driving import crash_inside
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows


@pytest.fixture
def ready(node: Node, folder: Path) -> Node:
    """A node with a table, and a file that could be loaded into it."""
    write_rows(folder / "a.json", numbered(1))
    node.sql(CREATE_TABLE)
    return node


def table_version(node: Node) -> Cell:
    return node.sql("DESCRIBE DETAIL t")[0]["version"]


def refused(node: Node, sql: str) -> UserError:
    """Answer the error of a CREATE JOB, which must leave neither a job nor a commit."""
    with pytest.raises(UserError) as error:
        node.sql(sql)
    assert node.sql("SHOW JOBS") == []
    assert table_version(node) == 0
    return error.value


def job_with(insert: str, folder: Path, properties: str = "") -> str:
    """Answer a CREATE JOB with an INSERT of its own; $ stands for the source."""
    source = f"FILES('uri' = 'file://{folder}/*.json', 'format' = 'json')"
    clause = f"PROPERTIES({properties})" if properties else ""
    return f"CREATE JOB j {clause} ON STREAMING DO INSERT INTO {insert.replace('$', source)}"


@pytest.mark.parametrize(
    ("properties", "message", "hint"),
    [
        (
            "'max_intervall' = '3'",
            'a streaming job does not know the option "max_intervall"',
            'Did you mean "max_interval"? Allowed: lookup_max_bytes, max_interval, offset, '
            "s3.max_batch_bytes, s3.max_batch_files, session.enable_insert_strict, "
            "session.insert_max_filter_ratio, session.python_udfs, session.time_zone.",
        ),
        (
            "'a' = '1', 'b' = '2'",
            'a streaming job does not know the options "a", "b"',
            "Allowed: lookup_max_bytes, max_interval, offset, s3.max_batch_bytes, "
            "s3.max_batch_files, session.enable_insert_strict, "
            "session.insert_max_filter_ratio, session.python_udfs, session.time_zone.",
        ),
        ("'max_interval' = '0'", 'option "max_interval" must be at least 1s, not 0', ""),
        (
            "'max_interval' = 'soon'",
            'option "max_interval" must be a number with an optional unit, not "soon"',
            "Write for example 10s, 5m or 1h.",
        ),
        (
            "'s3.max_batch_files' = '0'",
            'option "s3.max_batch_files" must be at least 1, not 0',
            "",
        ),
        (
            "'s3.max_batch_files' = 'many'",
            'option "s3.max_batch_files" must be a whole number, not "many"',
            "",
        ),
        (
            "'s3.max_batch_bytes' = '11GB'",
            'option "s3.max_batch_bytes" must be at most 10GB, not 11GB',
            "",
        ),
    ],
)
def test_a_property_that_cannot_be_is_refused_at_create(
    ready: Node, folder: Path, properties: str, message: str, hint: str
) -> None:
    error = refused(ready, job_with("t SELECT * FROM $", folder, properties))

    assert error.code is Code.OPTION_ERR
    assert error.message == message
    assert error.hint == hint


@pytest.mark.parametrize("offset", ["", " ", "a.json", "[]", "{}", '{"fileName": 1}', "7"])
def test_an_offset_that_names_no_file_is_refused_at_create(
    ready: Node, folder: Path, offset: str
) -> None:
    error = refused(ready, job_with("t SELECT * FROM $", folder, f"'offset' = '{offset}'"))

    assert error.code is Code.OPTION_ERR
    assert error.message == (
        f'option "offset" must be JSON with the key fileName, not "{offset}"'
    )
    assert "fileName" in error.hint


@pytest.mark.parametrize("offset", ["", "a.json", '{"endFile": "a.json"}'])
def test_an_offset_that_names_no_file_is_refused_at_alter(
    ready: Node, folder: Path, offset: str
) -> None:
    ready.sql(f"{create_job(folder)}; PAUSE JOB j")
    before, version = ready.job("j"), table_version(ready)

    with pytest.raises(UserError, match='option "offset" must be JSON with the key fileName'):
        ready.sql(f"ALTER JOB j PROPERTIES('offset' = '{offset}')")

    assert ready.job("j") == before
    assert table_version(ready) == version


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (
            {"late_file": "load"},
            'FILES does not know the option "late_file"',
            'Did you mean "late_files"? '
            "Allowed: audit_interval, column_separator, compress_type, "
            "empty_field_as_null, enclose, escape, format, gs.service_account, json_root, "
            "jsonpaths, late_files, late_window, line_delimiter, missing_columns, "
            "modified_files, num_as_string, ordered_listing, path_partition_keys, "
            "provider, request_budget, s3.access_key, s3.endpoint, s3.external_id, "
            "s3.region, s3.role_arn, s3.secret_key, s3.session_token, schema, "
            "skip_lines, strip_outer_array, trim_double_quotes, uri, use_path_style.",
        ),
        (
            {"late_files": "skip"},
            'option "late_files" must be one of load, ignore, not "skip"',
            "",
        ),
        (
            {"modified_files": "load"},
            'option "modified_files" must be one of ignore, fail, not "load"',
            "",
        ),
        (
            {"format": "orc"},
            'option "format" must be one of json, csv, csv_with_names, '
            'csv_with_names_and_types, parquet, not "orc"',
            "",
        ),
    ],
)
def test_an_option_of_the_source_that_cannot_be_is_refused_at_create(
    ready: Node, folder: Path, options: dict[str, str], message: str, hint: str
) -> None:
    error = refused(ready, create_job(folder, **options))  # type: ignore[arg-type]

    assert error.code is Code.OPTION_ERR
    assert error.message == message
    assert error.hint == hint


@pytest.mark.parametrize(
    ("options", "missing"), [("'format' = 'json'", "uri"), ("'uri' = 'file:///in/'", "format")]
)
def test_an_option_that_is_missing_is_named(ready: Node, options: str, missing: str) -> None:
    job = "CREATE JOB j ON STREAMING DO INSERT INTO t SELECT * FROM "

    error = refused(ready, f"{job} FILES({options})")

    assert error.code is Code.OPTION_ERR
    assert error.message == f'FILES lacks "{missing}"'
    assert error.hint.startswith(f'Add "{missing}" = ')


@pytest.mark.parametrize(
    ("insert", "message"),
    [
        ("t SELECT id FROM $", "INSERT fills 2 columns, but the SELECT gives 1"),
        ("t SELECT id, note, id FROM $", "INSERT fills 2 columns, but the SELECT gives 3"),
        ("t (id) SELECT * FROM $", "INSERT fills 1 column, but the SELECT gives 2"),
        ("t SELECT id, text FROM $", 'source has no field "text"'),
        ("t SELECT id, note.x FROM $", 'source field "note" has no field "x"'),
        ("t (id, text) SELECT id, note FROM $", 'table "t" has no column "text"'),
        ("t (note) SELECT note FROM $", 'column "id" is NOT NULL, but nothing fills it'),
    ],
)
def test_columns_that_do_not_fit_are_refused_at_create(
    ready: Node, folder: Path, insert: str, message: str
) -> None:
    error = refused(ready, job_with(insert, folder))

    assert error.code is Code.TYPE_ERR
    assert error.message == message


def test_a_field_without_a_place_is_named_when_columns_are_filled_by_name(
    ready: Node, folder: Path
) -> None:
    write_rows(folder / "a.json", [{"id": 1, "note": "x", "more": 1, "most": 2}])

    error = refused(ready, job_with("t SELECT * FROM $", folder))

    assert error.code is Code.TYPE_ERR
    assert error.message == 'the table has no column for the source field "more"'
    assert "more, most" in error.detail


def test_a_type_without_a_conversion_is_refused_at_create(ready: Node, folder: Path) -> None:
    write_rows(folder / "a.json", [{"id": {"x": 1}, "note": "a"}])

    error = refused(ready, job_with("t SELECT id, note FROM $", folder))

    assert error.code is Code.TYPE_ERR
    assert error.message.startswith('column "id" is BIGINT, but "id" is STRUCT<')


@pytest.mark.parametrize(
    ("schema", "message"),
    [("id BIGINT, id STRING", "id"), ("id NUMBER(3)", "NUMBER"), ("id", "id")],
)
def test_a_schema_that_cannot_be_read_is_refused_at_create(
    ready: Node, folder: Path, schema: str, message: str
) -> None:
    error = refused(ready, create_job(folder, schema=schema))

    assert error.code in (Code.SYNTAX_ERR, Code.TYPE_ERR)
    assert message in error.message


def test_a_job_on_a_table_that_does_not_exist_is_refused(ready: Node, folder: Path) -> None:
    error = refused(ready, job_with("nowhere SELECT * FROM $", folder))

    assert error.code is Code.META_NOT_FOUND_ERR
    assert error.message == 'table "nowhere" does not exist'
    assert error.hint == "Known tables: t."


def test_files_without_any_record_are_refused_at_create_unless_the_schema_is_given(
    ready: Node, folder: Path
) -> None:
    (folder / "a.json").write_text("\n")

    error = refused(ready, create_job(folder))

    assert error.message == "no record was found to infer the columns from"
    ready.sql(create_job(folder, schema="id BIGINT, note STRING"))
    write_rows(folder / "b.json", numbered(1))
    ready.run()
    assert ready.rows("t") == numbered(1)


def test_a_second_job_of_the_same_name_is_refused_and_the_first_stays(
    ready: Node, folder: Path
) -> None:
    ready.sql(create_job(folder))
    before, version = ready.job("j"), table_version(ready)

    with pytest.raises(UserError, match='job "j" exists already') as error:
        ready.sql(create_job(folder))

    assert error.value.code is Code.ALREADY_EXISTS_ERR
    assert ready.job("j") == before
    assert table_version(ready) == version


def test_a_create_that_died_before_the_catalog_leaves_no_job_and_can_be_repeated(
    ready: Node, folder: Path
) -> None:
    crash_inside(ready, create_job(folder), CrashPoint.OPENING_COMMITTED)
    node = ready.restart()
    nothing = node.sql("SHOW JOBS")

    node.sql(create_job(folder))
    node.run()

    assert nothing == []
    assert node.rows("t") == numbered(1)
    assert node.show("j")["position"] == str(folder / "a.json")


def test_a_chain_that_nobody_owns_does_not_keep_its_table(ready: Node, folder: Path) -> None:
    crash_inside(ready, create_job(folder), CrashPoint.OPENING_COMMITTED)

    ready.sql("DROP TABLE t")

    assert ready.sql("SHOW TABLES") == []


@pytest.mark.parametrize(
    ("sql", "code", "message"),
    [
        ("PAUSE JOB nobody", Code.META_NOT_FOUND_ERR, 'job "nobody" does not exist'),
        ("RESUME JOB nobody", Code.META_NOT_FOUND_ERR, 'job "nobody" does not exist'),
        ("DROP JOB nobody", Code.META_NOT_FOUND_ERR, 'job "nobody" does not exist'),
        ("SHOW CREATE JOB nobody", Code.META_NOT_FOUND_ERR, 'job "nobody" does not exist'),
        ("SHOW EPOCHS FOR nobody", Code.META_NOT_FOUND_ERR, 'job "nobody" does not exist'),
        ("SHOW EVENTS FOR nobody", Code.META_NOT_FOUND_ERR, 'job "nobody" does not exist'),
        ("RESUME JOB j", Code.STATE_ERR, 'job "j" is not paused'),
        ("PAUSE JOB j; PAUSE JOB j", Code.STATE_ERR, 'job "j" is already paused'),
        ("CREATE TABLE t (id INT)", Code.ALREADY_EXISTS_ERR, 'table "t" exists already'),
        ("DROP TABLE nowhere", Code.META_NOT_FOUND_ERR, 'table "nowhere" does not exist'),
        ("DESCRIBE nowhere", Code.META_NOT_FOUND_ERR, 'table "nowhere" does not exist'),
        (
            "ALTER JOB j PROPERTIES('max_interval' = '3s')",
            Code.STATE_ERR,
            'job "j" must be paused before it is altered',
        ),
    ],
)
def test_a_statement_in_the_wrong_state_or_about_nobody_is_refused(
    ready: Node, folder: Path, sql: str, code: Code, message: str
) -> None:
    ready.sql(create_job(folder))

    with pytest.raises(UserError) as error:
        ready.sql(sql)

    assert error.value.code is code
    assert error.value.message == message


def test_if_exists_makes_a_drop_of_nobody_silent(ready: Node) -> None:
    ready.sql("DROP JOB IF EXISTS nobody; DROP TABLE IF EXISTS nowhere")

    assert [row["name"] for row in ready.sql("SHOW TABLES")] == ["t"]
