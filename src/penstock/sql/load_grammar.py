"""Read the statements about jobs and routine loads."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from penstock.errors import UserError
from penstock.model.job import LoadColumn, LoadProperties
from penstock.sql.names import (
    database_name,
    declared_name,
    job_name,
    parse_properties,
    quoted_job_name,
    routine_load_name,
    table_name,
)
from penstock.sql.reader import TokenReader, either
from penstock.sql.select import SOURCES, parse_expression, parse_select
from penstock.sql.statements import (
    AlterJob,
    AlterRoutineLoad,
    CreateJob,
    CreateRoutineLoad,
    DropJob,
    Insert,
    PauseJob,
    PauseRoutineLoad,
    Properties,
    ResumeJob,
    ResumeRoutineLoad,
    ShowCreateRoutineLoad,
    ShowRoutineLoad,
    ShowRoutineLoadTask,
    ShowShards,
    StopRoutineLoad,
)

_SEPARATOR = "COLUMNS TERMINATED BY"
_COLUMNS = "COLUMNS"
_PRECEDING_FILTER = "PRECEDING FILTER"
_WHERE = "WHERE"
_COMMA = "A comma stands between COLUMNS TERMINATED BY, COLUMNS, PRECEDING FILTER and WHERE."
_APPENDS = "Rows are appended: choose them by WHERE."
_PARTITIONS = "Rows go to the partitions that their columns tell: choose them by WHERE."
_FOREIGN_CLAUSES = {
    "DELETE": ("DELETE ON", _APPENDS),
    "ORDER": ("ORDER BY", "Rows are appended in the order of the stream: leave it out."),
    "PARTITION": ("PARTITION", _PARTITIONS),
    "PARTITIONS": ("PARTITIONS", _PARTITIONS),
    "TEMPORARY": ("TEMPORARY PARTITION", _PARTITIONS),
}
_CLAUSE_WORDS = ("COLUMNS", "PRECEDING", "WHERE", *_FOREIGN_CLAUSES)


def at_load_property(reader: TokenReader) -> bool:
    """Tell whether a clause about records comes next."""
    return reader.at_any(_CLAUSE_WORDS)


def missing_clauses(load: LoadProperties) -> tuple[str, ...]:
    """Answer the clauses that were not given yet."""
    return tuple(clause for clause, value in _value_by_clause(load).items() if value is None)


def parse_load_properties(reader: TokenReader) -> LoadProperties:
    """Take the clauses about records, each at most once, with commas between them."""
    load = LoadProperties()
    if not at_load_property(reader):
        return load
    load = _with_clause(reader, load)
    while reader.skip_symbol(","):
        load = _with_clause(reader, load)
    if at_load_property(reader):
        clause = take_clause(reader.fork(), wanted=())
        raise reader.error(f'"," must come before {clause}', hint=_COMMA)
    return load


def take_clause(reader: TokenReader, *, wanted: Iterable[str]) -> str:
    """Take the words of a clause; ``wanted`` are those to name where there is none."""
    if reader.at_any(_FOREIGN_CLAUSES):
        construct, hint = _FOREIGN_CLAUSES[reader.look().keyword]
        raise reader.unsupported(construct, place="ROUTINE LOAD", hint=hint)
    if reader.skip("WHERE"):
        return _WHERE
    if reader.skip("PRECEDING"):
        reader.expect("FILTER", after="PRECEDING")
        return _PRECEDING_FILTER
    if not reader.skip("COLUMNS"):
        raise reader.unexpected(either(*wanted), after='","', choices=_CLAUSE_WORDS)
    if reader.skip("TERMINATED"):
        reader.expect("BY", after="COLUMNS TERMINATED")
        return _SEPARATOR
    if not reader.at_symbol("("):
        raise reader.unexpected('TERMINATED BY or "("', after="COLUMNS")
    return _COLUMNS


def _value_by_clause(load: LoadProperties) -> dict[str, object]:
    return {
        _SEPARATOR: load.separator,
        _COLUMNS: load.columns,
        _PRECEDING_FILTER: load.preceding_filter,
        _WHERE: load.where,
    }


def _with_clause(reader: TokenReader, load: LoadProperties) -> LoadProperties:
    token = reader.look()
    clause = take_clause(reader, wanted=missing_clauses(load) or ("PROPERTIES", "FROM"))
    if clause not in missing_clauses(load):
        raise reader.error(f"{clause} must not come twice", token=token)
    if clause == _SEPARATOR:
        return replace(load, separator=_separator(reader))
    if clause == _COLUMNS:
        return replace(load, columns=_columns(reader))
    expression = parse_expression(reader, after=clause)
    if clause == _WHERE:
        return replace(load, where=expression)
    return replace(load, preceding_filter=expression)


def _separator(reader: TokenReader) -> str:
    token = reader.look()
    text = reader.expect_text("a separator", after=_SEPARATOR)
    if not text:
        raise reader.error(f"{_SEPARATOR} must not be empty", token=token)
    return text


def _columns(reader: TokenReader) -> tuple[LoadColumn, ...]:
    first = reader.take()
    if reader.at_symbol(")"):
        raise reader.error("COLUMNS must have at least one column", token=first)
    columns: list[LoadColumn] = []
    seen: set[tuple[str, bool]] = set()
    while not columns or reader.skip_symbol(","):
        token = reader.look()
        column = _column(reader, after='","' if columns else '"("')
        computed = column.expression is not None
        # The columns of the records are a list of their own, those that are computed another.
        if (column.name.lower(), computed) in seen:
            told = "is computed twice" if computed else "is given twice"
            raise reader.error(f'column "{column.name}" {told}', token=token)
        seen.add((column.name.lower(), computed))
        columns.append(column)
    if not reader.skip_symbol(")"):
        wanted = '"=", "," or ")"' if columns[-1].expression is None else '"," or ")"'
        raise reader.unexpected(wanted, after="the column")
    return tuple(columns)


def _column(reader: TokenReader, *, after: str) -> LoadColumn:
    name = declared_name(reader, "a column name", after=after)
    if not reader.skip_symbol("="):
        return LoadColumn(name=name)
    return LoadColumn(name=name, expression=parse_expression(reader, after=f'"{name}" ='))


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


_CREATE = "CREATE ROUTINE LOAD"
_SOURCE = "FROM KINESIS"
_END = "the end of the statement"
_SEQUENCE = ("PROPERTIES", "FROM", "COMMENT")
_WORDS = ("WITH", "COLUMNS", "PRECEDING", "WHERE", *_SEQUENCE)
_CLAUSES = (
    "COLUMNS TERMINATED BY '…', COLUMNS(…), PRECEDING FILTER …, WHERE … PROPERTIES(…) "
    "FROM KINESIS(…)"
)
_CREATE_ORDER = (
    f"The order is CREATE ROUTINE LOAD name ON table {_CLAUSES} COMMENT '…'; "
    "all but ON and FROM may be left out."
)
_ALTER_ORDER = f"The order is ALTER ROUTINE LOAD FOR name {_CLAUSES}; one of them is enough."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clauses:
    """What CREATE and ALTER have in common; None is what was not said."""

    load: LoadProperties
    properties: Properties | None
    source: str | None = None
    options: Properties = ()


def parse_create_routine_load(reader: TokenReader) -> CreateRoutineLoad:
    """Take what follows CREATE ROUTINE LOAD."""
    if reader.at("IF", "NOT"):
        hint = "Write CREATE ROUTINE LOAD name ON table …."
        raise reader.unsupported("IF NOT EXISTS", place=_CREATE, hint=hint)
    # A job may be called on, but then another ON follows.
    if reader.at("ON") and reader.at_name(1) and reader.look(1).keyword != "ON":
        raise reader.unexpected("a job name", after=_CREATE)
    name = routine_load_name(reader, after=_CREATE)
    table = _target_table(reader)
    appends = _skip_append(reader)
    clauses = _clauses(reader, order=_CREATE_ORDER)
    if reader.at("COMMENT") and clauses.source is None:
        raise reader.error("COMMENT must come after FROM", hint=_CREATE_ORDER)
    if clauses.source is None:
        begin = () if appends or not _bare(clauses) else ("WITH APPEND",)
        wanted = either(*begin, *_wanted(clauses))
        raise reader.unexpected(wanted, hint=_CREATE_ORDER, choices=_WORDS)
    return CreateRoutineLoad(
        name=name,
        table=table,
        load=clauses.load,
        properties=clauses.properties or (),
        source=clauses.source,
        options=clauses.options,
        comment=_comment(reader, source=clauses.source),
    )


def parse_alter_routine_load(reader: TokenReader) -> AlterRoutineLoad:
    """Take what follows ALTER ROUTINE LOAD."""
    name = _name_behind_for(reader, after="ALTER ROUTINE LOAD")
    clauses = _clauses(reader, order=_ALTER_ORDER, pairs_min=1)
    if reader.at("COMMENT"):
        raise reader.unsupported("COMMENT", place="ALTER ROUTINE LOAD", hint=_ALTER_ORDER)
    if clauses.source is None and (_bare(clauses) or not reader.ended):
        end = () if _bare(clauses) else (_END,)
        wanted = either(*_wanted(clauses), *end)
        raise reader.unexpected(wanted, hint=_ALTER_ORDER, choices=_WORDS)
    return AlterRoutineLoad(
        name=name,
        load=clauses.load,
        properties=clauses.properties or (),
        source=clauses.source,
        options=clauses.options,
    )


def parse_pause_routine_load(reader: TokenReader) -> PauseRoutineLoad:
    """Take what follows PAUSE ROUTINE LOAD."""
    return PauseRoutineLoad(name=_name_behind_for(reader, after="PAUSE ROUTINE LOAD"))


def parse_resume_routine_load(reader: TokenReader) -> ResumeRoutineLoad:
    """Take what follows RESUME ROUTINE LOAD."""
    return ResumeRoutineLoad(name=_name_behind_for(reader, after="RESUME ROUTINE LOAD"))


def parse_stop_routine_load(reader: TokenReader) -> StopRoutineLoad:
    """Take what follows STOP ROUTINE LOAD."""
    return StopRoutineLoad(name=_name_behind_for(reader, after="STOP ROUTINE LOAD"))


def parse_show_routine_load(reader: TokenReader) -> ShowRoutineLoad:
    """Take what follows SHOW ROUTINE LOAD."""
    return _show_routine_load(reader, with_ended=False)


def parse_show_all_routine_load(reader: TokenReader) -> ShowRoutineLoad:
    """Take what follows SHOW ALL ROUTINE LOAD."""
    return _show_routine_load(reader, with_ended=True)


def parse_show_routine_load_task(reader: TokenReader) -> ShowRoutineLoadTask:
    """Take what follows SHOW ROUTINE LOAD TASK."""
    after = "SHOW ROUTINE LOAD TASK"
    if reader.at_any(("FROM", "IN")):
        database_name(reader, after=reader.take().keyword)
        if not reader.at("WHERE"):
            raise reader.unexpected("WHERE", after="the database")
    if reader.at("WHERE"):
        return ShowRoutineLoadTask(name=filtered_job_name(reader, after=after))
    if not reader.skip("FOR"):
        raise reader.unexpected("FOR, FROM, IN or WHERE", after=after)
    return ShowRoutineLoadTask(name=routine_load_name(reader, after="FOR"))


def parse_show_create_routine_load(reader: TokenReader) -> ShowCreateRoutineLoad:
    """Take what follows SHOW CREATE ROUTINE LOAD."""
    name = _name_behind_for(reader, after="SHOW CREATE ROUTINE LOAD")
    return ShowCreateRoutineLoad(name=name)


def parse_show_all_create_routine_load(reader: TokenReader) -> ShowCreateRoutineLoad:
    """Take what follows SHOW ALL CREATE ROUTINE LOAD."""
    name = _name_behind_for(reader, after="SHOW ALL CREATE ROUTINE LOAD")
    return ShowCreateRoutineLoad(name=name, all=True)


def parse_show_shards(reader: TokenReader) -> ShowShards:
    """Take what follows SHOW SHARDS."""
    return ShowShards(name=_name_behind_for(reader, after="SHOW SHARDS"))


def _name_behind_for(reader: TokenReader, *, after: str) -> str:
    reader.expect("FOR", after=after)
    return routine_load_name(reader, after="FOR")


def _show_routine_load(reader: TokenReader, *, with_ended: bool) -> ShowRoutineLoad:
    if reader.skip("FOR"):
        name = routine_load_name(reader, after="FOR")
        return ShowRoutineLoad(name=name, all=with_ended)
    if reader.skip("LIKE"):
        like = reader.expect_text("a pattern", after="LIKE")
        return ShowRoutineLoad(like=like, all=with_ended)
    if not reader.ended:
        raise reader.unexpected(f"FOR, LIKE or {_END}", after="ROUTINE LOAD")
    return ShowRoutineLoad(all=with_ended)


def _target_table(reader: TokenReader) -> str:
    if reader.skip("ON"):
        return table_name(reader, after="ON")
    if reader.at_any(_WORDS) or reader.ended:
        hint = "A routine load fills one table: write CREATE ROUTINE LOAD name ON table …."
        raise reader.unsupported(f"{_CREATE} without ON table", hint=hint)
    raise reader.unexpected("ON", after="the job name", hint=_CREATE_ORDER)


def _skip_append(reader: TokenReader) -> bool:
    if not reader.skip("WITH"):
        return False
    if reader.at_any(("MERGE", "DELETE")):
        raise reader.unsupported(
            f"WITH {reader.look().keyword}",
            place=_CREATE,
            hint="A routine load appends: write WITH APPEND, or leave it out.",
        )
    reader.expect("APPEND", after="WITH")
    return True


def _clauses(reader: TokenReader, *, order: str, pairs_min: int = 0) -> _Clauses:
    """Take the clauses up to the source, if they are in order."""
    load = parse_load_properties(reader)
    properties: Properties | None = None
    if reader.skip("PROPERTIES"):
        properties = _pairs(reader, after="PROPERTIES", pairs_min=pairs_min)
        _check_clause_order(reader, behind="PROPERTIES", order=order)
    if not reader.skip("FROM"):
        return _Clauses(load=load, properties=properties)
    source = _source_kind(reader)
    options = _pairs(reader, after=source, pairs_min=pairs_min)
    _check_clause_order(reader, behind="FROM", order=order)
    return _Clauses(load=load, properties=properties, source=source, options=options)


def _pairs(reader: TokenReader, *, after: str, pairs_min: int) -> Properties:
    token = reader.look()
    pairs = parse_properties(reader, after=after)
    if len(pairs) < pairs_min:
        raise reader.error(f"{after} must have at least one key to change", token=token)
    return pairs


def _check_clause_order(reader: TokenReader, *, behind: str, order: str) -> None:
    """Refuse what has to come before a clause, or is that clause again."""
    if at_load_property(reader):
        clause = take_clause(reader.fork(), wanted=())
        raise reader.error(f"{clause} must come before {behind}", hint=order)
    word = reader.look().keyword
    if word == behind:
        raise reader.error(f"{word} must not come twice", hint=order)
    if word in _SEQUENCE[: _SEQUENCE.index(behind)]:
        raise reader.error(f"{word} must come before {behind}", hint=order)


def _source_kind(reader: TokenReader) -> str:
    token = reader.look()
    if reader.at_any(SOURCES):
        return reader.take().keyword
    if reader.at_name():
        raise reader.unsupported(f"FROM {token.text}", hint="Write FROM KINESIS(…).")
    raise reader.unexpected("KINESIS", after="FROM")


def _comment(reader: TokenReader, *, source: str) -> str:
    if reader.skip("COMMENT"):
        comment = reader.expect_text("a comment", after="COMMENT")
        _check_clause_order(reader, behind="COMMENT", order=_CREATE_ORDER)
        return comment
    if not reader.ended:
        raise reader.unexpected(f"COMMENT or {_END}", after=f"FROM {source}(…)")
    return ""


def _bare(clauses: _Clauses) -> bool:
    """Tell whether not one clause was read."""
    return clauses == _Clauses(load=LoadProperties(), properties=None)


def _wanted(clauses: _Clauses) -> tuple[str, ...]:
    """Answer what could come behind the clauses that were read, up to the source."""
    if clauses.properties is not None:
        return (_SOURCE,)
    missing = missing_clauses(clauses.load)
    if not _bare(clauses):
        missing = ('","',) if missing else ()
    return (*missing, "PROPERTIES", _SOURCE)
