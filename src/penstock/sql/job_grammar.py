"""Read the statements about jobs."""

from penstock.errors import UserError
from penstock.sql.names import declared_name, job_name, quoted_job_name, table_name
from penstock.sql.properties import parse_properties
from penstock.sql.reader import TokenReader
from penstock.sql.select import parse_select
from penstock.sql.statements import (
    AlterJob,
    CreateJob,
    DropJob,
    Insert,
    PauseJob,
    Properties,
    ResumeJob,
)

_ORDER = (
    "The order is CREATE JOB name PROPERTIES(…) ON STREAMING COMMENT '…' DO INSERT INTO …; "
    "PROPERTIES and COMMENT may be left out."
)
_FILTER_COLUMNS = frozenset({"JOBNAME", "NAME"})
_INSERT_MODIFIERS = {
    "BY": "INSERT INTO … BY NAME",
    "IF": "IF NOT EXISTS",
    "PARTITION": "PARTITION",
    "REPLACE": "REPLACE WHERE",
    "TABLE": "INSERT … TABLE",
    "VALUES": "INSERT … VALUES",
}


def parse_create_job(reader: TokenReader) -> CreateJob:
    """Take what follows CREATE JOB."""
    if reader.at("IF", "NOT"):
        raise reader.unsupported("IF NOT EXISTS", place="CREATE JOB")
    if reader.at("ON", "STREAMING"):
        raise reader.unexpected("a job name", after="CREATE JOB")
    name = job_name(reader, after="CREATE JOB")
    properties: Properties = ()
    if reader.skip("PROPERTIES"):
        properties = parse_properties(reader, after="PROPERTIES")
    _expect_on_streaming(reader)
    comment = ""
    if reader.skip("COMMENT"):
        comment = reader.expect_text("a comment", after="COMMENT")
    _expect_do(reader)
    insert = _insert(reader)
    return CreateJob(name=name, properties=properties, comment=comment, insert=insert)


def parse_alter_job(reader: TokenReader) -> AlterJob:
    """Take what follows ALTER JOB."""
    name = job_name(reader, after="ALTER JOB")
    properties: Properties = ()
    if reader.at("PROPERTIES"):
        reader.take()
        token = reader.look()
        properties = parse_properties(reader, after="PROPERTIES")
        if not properties:
            raise reader.error("PROPERTIES must have at least one key to change", token=token)
    if reader.at("FROM"):
        raise _from_to_database(reader)
    # Doris writes no DO here; whoever copies it from CREATE JOB is understood.
    if reader.at("INSERT") or reader.at("DO", "INSERT"):
        reader.skip("DO")
        return AlterJob(name=name, properties=properties, insert=_insert(reader))
    if not properties:
        raise reader.unexpected("PROPERTIES or INSERT", after="the job name")
    return AlterJob(name=name, properties=properties)


def parse_pause_job(reader: TokenReader) -> PauseJob:
    """Take what follows PAUSE JOB."""
    return PauseJob(name=filtered_job_name(reader, after="PAUSE JOB"))


def parse_resume_job(reader: TokenReader) -> ResumeJob:
    """Take what follows RESUME JOB."""
    return ResumeJob(name=filtered_job_name(reader, after="RESUME JOB"))


def parse_drop_job(reader: TokenReader) -> DropJob:
    """Take what follows DROP JOB."""
    if_exists = reader.skip("IF", "EXISTS")
    after = "IF EXISTS" if if_exists else "DROP JOB"
    return DropJob(name=filtered_job_name(reader, after=after), if_exists=if_exists)


def filtered_job_name(reader: TokenReader, *, after: str) -> str:
    """Take the name of a job, as it is or as ``WHERE jobname = '…'``."""
    if not reader.skip("WHERE"):
        return job_name(reader, after=after)
    token = reader.look()
    column = declared_name(reader, "jobname", after="WHERE")
    if column.upper() not in _FILTER_COLUMNS:
        message = f'a job is found by "jobname", not by "{column}"'
        raise reader.error(message, token=token, hint=f"Write {after} WHERE jobname = '…'.")
    reader.expect_symbol("=", after=column)
    return quoted_job_name(reader, after='"="')


def _expect_on_streaming(reader: TokenReader) -> None:
    _check_order(reader, "PROPERTIES", "PROPERTIES must not come twice")
    _check_order(reader, "COMMENT", "COMMENT must come after ON STREAMING")
    if reader.at("FROM"):
        raise _from_to_database(reader)
    if not reader.skip("ON"):
        raise reader.unexpected("ON STREAMING", after="the job name", hint=_ORDER)
    if reader.at("SCHEDULE"):
        raise reader.unsupported("ON SCHEDULE", hint="Write ON STREAMING.")
    reader.expect("STREAMING", after="ON")


def _expect_do(reader: TokenReader) -> None:
    _check_order(reader, "PROPERTIES", "PROPERTIES must come before ON STREAMING")
    _check_order(reader, "COMMENT", "COMMENT must not come twice")
    _check_order(reader, "ON", "ON STREAMING must come once, before COMMENT")
    if reader.at("FROM"):
        raise _from_to_database(reader)
    if not reader.skip("DO"):
        raise reader.unexpected("DO INSERT", after="ON STREAMING", hint=_ORDER)


def _check_order(reader: TokenReader, keyword: str, rule: str) -> None:
    if reader.at(keyword):
        raise reader.error(rule, hint=_ORDER)


def _from_to_database(reader: TokenReader) -> UserError:
    hint = "Write DO INSERT INTO t SELECT … FROM FILES(…)."
    return reader.unsupported("FROM … TO DATABASE", hint=hint)


def _insert(reader: TokenReader) -> Insert:
    reader.expect("INSERT", after="DO")
    if reader.at("OVERWRITE"):
        raise reader.unsupported("INSERT OVERWRITE", hint="A job appends: write INSERT INTO.")
    reader.expect("INTO", after="INSERT")
    # TABLE is a noise word before a name, and may be a name itself.
    if reader.at("TABLE") and reader.at_name(1) and reader.look(1).keyword != "SELECT":
        reader.take()
    table = table_name(reader, after="INSERT INTO")
    _check_no_modifier(reader)
    columns = _insert_columns(reader)
    _check_no_modifier(reader)
    begin = reader.script.position(reader.look().start)
    select = parse_select(reader)
    return Insert(
        table=table,
        columns=columns,
        select=select.text,
        items=select.items,
        source=select.source,
        plain=select.plain,
        starred=select.starred,
        source_starred=select.source_starred,
        names=select.names,
        stars=select.stars,
        select_at=(begin.line, begin.column),
    )


def _check_no_modifier(reader: TokenReader) -> None:
    if reader.at_any(_INSERT_MODIFIERS):
        raise reader.unsupported(
            _INSERT_MODIFIERS[reader.look().keyword],
            hint="Write INSERT INTO t (column, …) SELECT … FROM FILES(…).",
        )


def _insert_columns(reader: TokenReader) -> tuple[str, ...] | None:
    # A column may be called select, but then a comma or the end of the list follows.
    listed = reader.at_symbol(",", 2) or reader.at_symbol(")", 2)
    nested = reader.look(1).keyword in ("SELECT", "WITH") and not listed
    if nested or not reader.skip_symbol("("):
        return None
    columns: list[str] = []
    seen: set[str] = set()
    while not columns or reader.skip_symbol(","):
        token = reader.look()
        columns.append(declared_name(reader, "a column name", after='"(" or ","'))
        if columns[-1].lower() in seen:
            raise reader.error(f'column "{columns[-1]}" is given twice', token=token)
        seen.add(columns[-1].lower())
    reader.expect_symbol(")", after="the columns")
    return tuple(columns)
