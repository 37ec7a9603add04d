"""Statements that cannot work are refused by code and value, and change nothing."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.crashpoints import CrashPoint
from penstock.errors import Code, ExternalError, PenstockError, UserError
from penstock.model.options import option_fields, option_key
from penstock.sources.files.kind import FilesOptions
from tests.error_values import raises
from tests.integration.driving import crash_inside, stored, without_privileges
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

# Placeholder for the folder of the source, in statements and in values.
FOLDER = "<folder>"
FILES = f"FILES('uri' = 'file://{FOLDER}/*.json', 'format' = 'json')"
CREATE = create_job(Path(FOLDER))
PROPERTIES = (
    "backlog.lag-high",
    "backlog.lag-low",
    "checkpoint.interval",
    "checkpoint.interval-during-backlog",
    "freshness",
    "lookup_max_bytes",
    "max_batch_interval",
    "max_interval",
    "offset",
    "s3.max_batch_bytes",
    "s3.max_batch_bytes-during-backlog",
    "s3.max_batch_files",
    "s3.max_batch_files-during-backlog",
    "session.enable_insert_strict",
    "session.insert_max_filter_ratio",
    "session.python_udfs",
    "session.time_zone",
)
SOURCE_OPTIONS = tuple(option_key(field) for field in option_fields(FilesOptions))


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A statement, the code and the values of its error, and the statements before it."""

    sql: str
    code: Code
    values: tuple[str, ...]
    hint: tuple[str, ...] | None = None
    kind: type[PenstockError] = UserError
    given: str = ""
    content: str = '{"id": 1, "note": "row 1"}\n'


def job(insert: str, properties: str = "") -> str:
    """Return a CREATE JOB with the given INSERT; $ is the placeholder of the source."""
    clause = f"PROPERTIES({properties}) " if properties else ""
    return f"CREATE JOB j {clause}ON STREAMING DO INSERT INTO {insert.replace('$', FILES)}"


def wrong_property(text: str, *values: str, hint: tuple[str, ...] | None = None) -> Refused:
    sql = job("t SELECT * FROM $", text)
    return Refused(sql=sql, code=Code.OPTION_ERR, values=values, hint=hint)


def wrong_offset(offset: str, *, altered: bool = False) -> Refused:
    text = f"'offset' = '{offset}'"
    create, alter = job("t SELECT * FROM $", text), f"ALTER JOB j PROPERTIES({text})"
    return Refused(
        sql=alter if altered else create,
        code=Code.OPTION_ERR,
        values=('"offset"', "fileName", f'"{offset}"'),
        hint=("fileName",),
        given=f"{CREATE}; PAUSE JOB j" if altered else "",
    )


def wrong_option(*values: str, hint: tuple[str, ...] | None = None, **options: str) -> Refused:
    sql = create_job(Path(FOLDER), **options)  # type: ignore[arg-type]
    return Refused(sql=sql, code=Code.OPTION_ERR, values=values, hint=hint)


def wrong_uri(uri: str, *values: str) -> Refused:
    return wrong_option(f'"{uri}"', *values, uri=uri)


def missing_option(options: str, missing: str) -> Refused:
    sql = job("t SELECT * FROM $").replace(FILES, f"FILES({options})")
    return Refused(sql=sql, code=Code.OPTION_ERR, values=("FILES", missing), hint=(missing,))


def wrong_columns(insert: str, *values: str, fields: dict[str, Any] | None = None) -> Refused:
    content = json.dumps(fields or numbered(1)[0]) + "\n"
    sql = job(insert)
    return Refused(sql=sql, code=Code.TYPE_ERR, values=values, content=content)


def wrong_schema(schema: str, code: Code, *values: str) -> Refused:
    sql = create_job(Path(FOLDER), schema=schema)
    return Refused(sql=sql, code=code, values=values)


def unknown(sql: str, name: str) -> Refused:
    return Refused(sql=sql, code=Code.META_NOT_FOUND_ERR, values=(f'"{name}"',), given=CREATE)


def wrong_state(sql: str, given: str = "") -> Refused:
    return Refused(sql=sql, code=Code.STATE_ERR, values=('"j"',), given=f"{CREATE}{given}")


REFUSED = {
    "a misspelt property": wrong_property(
        "'max_intervall' = '3'", '"max_intervall"', hint=('"max_interval"', *PROPERTIES)
    ),
    "two unknown properties": wrong_property(
        "'a' = '1', 'b' = '2'", '"a"', '"b"', hint=PROPERTIES
    ),
    "an interval that is too short": wrong_property(
        "'max_interval' = '0'", '"max_interval"', "1s", "0"
    ),
    "an interval that is not a duration": wrong_property(
        "'max_interval' = 'soon'", '"max_interval"', '"soon"', hint=("10s", "5m", "1h")
    ),
    "a number of files that is too small": wrong_property(
        "'s3.max_batch_files' = '0'", '"s3.max_batch_files"', "1", "0"
    ),
    "a number of files that is not a number": wrong_property(
        "'s3.max_batch_files' = 'many'", '"s3.max_batch_files"', '"many"'
    ),
    "a number of bytes that is too large": wrong_property(
        "'s3.max_batch_bytes' = '11GB'", '"s3.max_batch_bytes"', "10GB", "11GB"
    ),
    "an empty offset": wrong_offset(""),
    "a blank offset": wrong_offset(" "),
    "an offset that is not JSON": wrong_offset("a.json"),
    "an offset that is an array": wrong_offset("[]"),
    "an offset without a key": wrong_offset("{}"),
    "an offset whose file is a number": wrong_offset('{"fileName": 1}'),
    "an offset that is a number": wrong_offset("7"),
    "an empty offset at ALTER": wrong_offset("", altered=True),
    "an offset that is not JSON at ALTER": wrong_offset("a.json", altered=True),
    "an offset with another key at ALTER": wrong_offset('{"endFile": "a.json"}', altered=True),
    "a misspelt option of the source": wrong_option(
        "FILES", '"late_file"', hint=('"late_files"', *SOURCE_OPTIONS), late_file="load"
    ),
    "late files that are neither loaded nor ignored": wrong_option(
        '"late_files"', "load", "ignore", '"skip"', late_files="skip"
    ),
    "modified files that are neither ignored nor fail": wrong_option(
        '"modified_files"', "ignore", "fail", '"load"', modified_files="load"
    ),
    "an unknown format": wrong_option(
        *('"format"', "json", "csv", "csv_with_names", "csv_with_names_and_types", "parquet"),
        '"orc"',
        format="orc",
    ),
    "a source without a uri": missing_option("'format' = 'json'", '"uri"'),
    "a source without a format": missing_option("'uri' = 'file:///in/'", '"format"'),
    "a bucket in capitals": wrong_uri("s3://Bucket/in/", '"Bucket"'),
    "a uri without a bucket": wrong_uri("s3:///in/", '""'),
    "a path with an empty part": wrong_option('"in//x/"', uri="s3://bucket/in//x/"),
    "an unknown scheme": wrong_uri(
        "ftp://host/in/", "file://", "s3://", "gs://", "az://", "ftp://"
    ),
    "a path that is not absolute": wrong_uri("file://in/", "absolute"),
    "a path without a scheme": wrong_uri("/in/*.json", "file://", "s3://"),
    "a path with two dots": wrong_option('"/in/../x/"', uri="file:///in/../x/"),
    "a folder that does not exist": Refused(
        sql=create_job(Path(FOLDER) / "nowhere"),
        code=Code.GET_REMOTE_DATA_ERROR,
        values=(f'"{FOLDER}/nowhere/"', "does not exist"),
        kind=ExternalError,
    ),
    "a path through a file": Refused(
        sql=create_job(Path(FOLDER) / "a.json"),
        code=Code.GET_REMOTE_DATA_ERROR,
        values=(f'"{FOLDER}/a.json/"', "not a folder"),
        kind=ExternalError,
    ),
    "a pattern that matches nothing": Refused(
        sql=create_job(Path(FOLDER), uri=f"file://{FOLDER}/*.txt"),
        code=Code.META_NOT_FOUND_ERR,
        values=(f'"file://{FOLDER}/*.txt"',),
    ),
    "fewer fields than columns": wrong_columns("t SELECT id FROM $", "2", "1"),
    "more fields than columns": wrong_columns("t SELECT id, note, id FROM $", "2", "3"),
    "more fields than given columns": wrong_columns("t (id) SELECT * FROM $", "1", "2"),
    "a field that the source does not have": wrong_columns(
        "t SELECT id, text FROM $", "source", '"text"'
    ),
    "a field of a field that has none": wrong_columns(
        "t SELECT id, note.x FROM $", "source", '"note"', '"x"'
    ),
    "a column that the table does not have": wrong_columns(
        "t (id, text) SELECT id, note FROM $", "table", '"t"', '"text"'
    ),
    "a NOT NULL column without a value": wrong_columns(
        "t (note) SELECT note FROM $", '"id"', "NOT NULL"
    ),
    "extra fields when columns are matched by name": wrong_columns(
        "t SELECT * FROM $",
        *('"more"', "more, most"),
        fields={"id": 1, "note": "x", "more": 1, "most": 2},
    ),
    "a type without a conversion": wrong_columns(
        "t SELECT id, note FROM $",
        '"id"',
        "BIGINT",
        "STRUCT",
        fields={"id": {"x": 1}, "note": "a"},
    ),
    "a schema with a column twice": wrong_schema("id BIGINT, id STRING", Code.SYNTAX_ERR, "id"),
    "a schema with an unknown type": wrong_schema("id NUMBER(3)", Code.TYPE_ERR, "NUMBER"),
    "a schema without a type": wrong_schema("id", Code.SYNTAX_ERR, "id"),
    "a job on a table that does not exist": Refused(
        sql=job("nowhere SELECT * FROM $"),
        code=Code.META_NOT_FOUND_ERR,
        values=("table", '"nowhere"'),
        hint=("t",),
    ),
    "a second job of the same name": Refused(
        sql=CREATE, code=Code.ALREADY_EXISTS_ERR, values=("job", '"j"'), given=CREATE
    ),
    "a second table of the same name": Refused(
        sql="CREATE TABLE t (id INT)", code=Code.ALREADY_EXISTS_ERR, values=("table", '"t"')
    ),
    "PAUSE of a job that does not exist": unknown("PAUSE JOB missing", "missing"),
    "RESUME of a job that does not exist": unknown("RESUME JOB missing", "missing"),
    "DROP of a job that does not exist": unknown("DROP JOB missing", "missing"),
    "SHOW CREATE of a job that does not exist": unknown("SHOW CREATE JOB missing", "missing"),
    "SHOW EPOCHS of a job that does not exist": unknown("SHOW EPOCHS FOR missing", "missing"),
    "SHOW EVENTS of a job that does not exist": unknown("SHOW EVENTS FOR missing", "missing"),
    "DROP of a table that does not exist": unknown("DROP TABLE nowhere", "nowhere"),
    "DESCRIBE of a table that does not exist": unknown("DESCRIBE nowhere", "nowhere"),
    "RESUME of a job that is not paused": wrong_state("RESUME JOB j"),
    "PAUSE of a paused job": wrong_state("PAUSE JOB j", "; PAUSE JOB j"),
    "ALTER of a job that is not paused": wrong_state(
        "ALTER JOB j PROPERTIES('max_interval' = '3s')"
    ),
    "DROP of a table that a job loads": Refused(
        sql="DROP TABLE t", code=Code.STATE_ERR, values=('"t"', '"j"'), given=CREATE
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_a_wrong_statement_is_refused_by_code_and_value_and_changes_nothing(
    node: Node, folder: Path, case: Refused
) -> None:
    (folder / "a.json").write_text(case.content)
    node.sql(f"{CREATE_TABLE}; {case.given}".replace(FOLDER, str(folder)))
    before = stored(node)

    values = [value.replace(FOLDER, str(folder)) for value in case.values]
    with raises(case.kind, case.code, *values, hint=case.hint):
        node.sql(case.sql.replace(FOLDER, str(folder)))

    assert stored(node) == before


def test_a_folder_without_read_permission_is_refused_at_create(foreign: Path) -> None:
    folder = foreign / "in"
    node = Node(foreign / "home")
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, name='other')}; DROP JOB other")
    folder.chmod(0)

    with (
        without_privileges(foreign),
        raises(
            ExternalError,
            Code.GET_REMOTE_DATA_ERROR,
            *(f'"{folder}/"', "permission denied"),
            hint=(),
        ),
    ):
        node.sql(create_job(folder))

    folder.chmod(0o755)
    assert node.sql("SHOW JOBS") == []


@pytest.fixture
def ready(node: Node, folder: Path) -> Node:
    """A node with a table, and a file that can be loaded into the table."""
    write_rows(folder / "a.json", numbered(1))
    node.sql(CREATE_TABLE)
    return node


def test_files_without_records_are_refused_at_create_unless_the_schema_is_declared(
    ready: Node, folder: Path
) -> None:
    (folder / "a.json").write_text("\n")
    before = stored(ready)

    with raises(UserError, Code.TYPE_ERR, "no record", hint=('"schema"',)):
        ready.sql(create_job(folder))

    assert stored(ready) == before
    ready.sql(create_job(folder, schema="id BIGINT, note STRING"))
    write_rows(folder / "b.json", numbered(1))
    ready.run()
    assert ready.rows("t") == numbered(1)


def test_a_create_that_crashed_before_the_catalog_leaves_no_job_and_can_be_repeated(
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


def test_a_table_with_commits_of_a_job_that_was_never_created_can_be_dropped(
    ready: Node, folder: Path
) -> None:
    crash_inside(ready, create_job(folder), CrashPoint.OPENING_COMMITTED)

    ready.sql("DROP TABLE t")

    assert ready.sql("SHOW TABLES") == []


def test_drop_if_exists_of_a_missing_job_is_silent(ready: Node) -> None:
    ready.sql("DROP JOB IF EXISTS missing; DROP TABLE IF EXISTS nowhere")

    assert [row["name"] for row in ready.sql("SHOW TABLES")] == ["t"]
