"""Parse the statements about jobs and routine loads.

Each function parses the tokens after the first words of its statement, such as CREATE JOB.
"""

from collections.abc import Iterable
from dataclasses import replace

from penstock.model.job import LoadColumn, LoadProperties
from penstock.model.job_kinds import ROUTINE_LOAD, STREAMING
from penstock.sql.names import (
    comment_clause,
    database_name,
    declared_name,
    job_name,
    parse_properties,
    quoted_job_name,
    routine_load_name,
    table_name,
)
from penstock.sql.reader import TokenReader, either
from penstock.sql.select import parse_expression, parse_select
from penstock.sql.statements import (
    AlterJob,
    CreateJob,
    Insert,
    Properties,
    ResetBacklog,
    RoutineBody,
    ShowRoutineLoad,
    ShowRoutineLoadTask,
    SourceCall,
)

_END = "the end of the statement"

# Clauses of CREATE JOB in their order; the keys are the first words of the clauses.
_JOB_CLAUSES = {"PROPERTIES": "PROPERTIES", "ON": "ON STREAMING", "COMMENT": "COMMENT"}
_JOB_ORDER = (
    "The order is CREATE JOB name PROPERTIES(…) ON STREAMING COMMENT '…' DO INSERT INTO …; "
    "PROPERTIES and COMMENT are optional."
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
    """Parse CREATE JOB."""
    if reader.at("IF", "NOT"):
        raise reader.unsupported("IF NOT EXISTS", place="CREATE JOB")
    if reader.at("ON", "STREAMING"):
        raise reader.unexpected("a job name", after="CREATE JOB")
    name = job_name(reader, after="CREATE JOB")
    properties: Properties = ()
    if reader.skip("PROPERTIES"):
        properties = parse_properties(reader, after="PROPERTIES")
        _check_order(reader, _JOB_CLAUSES, last="PROPERTIES", order=_JOB_ORDER)
    _expect_on_streaming(reader)
    _check_order(reader, _JOB_CLAUSES, last="ON", order=_JOB_ORDER)
    comment = comment_clause(reader)
    if comment is not None:
        _check_order(reader, _JOB_CLAUSES, last="COMMENT", order=_JOB_ORDER)
    _refuse_from(reader)
    if not reader.skip("DO"):
        raise reader.unexpected("DO INSERT", after="ON STREAMING", hint=_JOB_ORDER)
    insert = _parse_insert(reader)
    return CreateJob(name=name, properties=properties, comment=comment or "", body=insert)


def parse_alter_job(reader: TokenReader) -> AlterJob | ResetBacklog:
    """Parse ALTER JOB."""
    name = job_name(reader, after="ALTER JOB")
    if reader.skip("RESET"):
        reader.expect("BACKLOG", after="RESET")
        return ResetBacklog(kind=STREAMING, name=name)
    properties: Properties = ()
    if reader.skip("PROPERTIES"):
        properties = _parse_pairs(reader, after="PROPERTIES", pairs_min=1)
    _refuse_from(reader)
    # Doris has no DO here. DO is accepted, because users copy it from CREATE JOB.
    if reader.at("INSERT") or reader.at("DO", "INSERT"):
        reader.skip("DO")
        return AlterJob(name=name, properties=properties, body=_parse_insert(reader))
    if not properties:
        expected = "PROPERTIES, INSERT or RESET BACKLOG"
        raise reader.unexpected(expected, after="the job name")
    return AlterJob(name=name, properties=properties)


def filtered_job_name(reader: TokenReader, *, after: str) -> str:
    """Parse the name of a job, bare or as ``WHERE jobname = '…'``."""
    if not reader.skip("WHERE"):
        return job_name(reader, after=after)
    token = reader.peek()
    column = declared_name(reader, "jobname", after="WHERE")
    if column.upper() not in _FILTER_COLUMNS:
        message = f'WHERE must compare the column "jobname", not "{column}"'
        raise reader.error(message, token=token, hint=f"Write {after} WHERE jobname = '…'.")
    reader.expect_symbol("=", after=column)
    return quoted_job_name(reader, after='"="')


def job_after_for(reader: TokenReader, *, after: str) -> str:
    """Parse FOR and the name of a job."""
    reader.expect("FOR", after=after)
    return job_name(reader, after="FOR")


def load_after_for(reader: TokenReader, *, after: str) -> str:
    """Parse FOR and the name of a routine load."""
    reader.expect("FOR", after=after)
    return routine_load_name(reader, after="FOR")


def _expect_on_streaming(reader: TokenReader) -> None:
    if reader.at("COMMENT"):
        raise reader.error("COMMENT must come after ON STREAMING", hint=_JOB_ORDER)
    _refuse_from(reader)
    if not reader.skip("ON"):
        raise reader.unexpected("ON STREAMING", after="the job name", hint=_JOB_ORDER)
    if reader.at("SCHEDULE"):
        raise reader.unsupported("ON SCHEDULE", hint="Write ON STREAMING.")
    reader.expect("STREAMING", after="ON")


def _refuse_from(reader: TokenReader) -> None:
    if reader.at("FROM"):
        hint = "Write DO INSERT INTO t SELECT … FROM source(…)."
        raise reader.unsupported("FROM … TO DATABASE", hint=hint)


def _check_order(
    reader: TokenReader, clauses: dict[str, str], *, last: str, order: str
) -> None:
    """Raise if the next clause repeats the last clause or must come before it."""
    word = reader.peek().keyword
    if word == last:
        raise reader.error(f"{clauses[word]} is specified more than once", hint=order)
    ordered = list(clauses)
    if word in ordered[: ordered.index(last)]:
        raise reader.error(f"{clauses[word]} must come before {clauses[last]}", hint=order)


def _parse_pairs(reader: TokenReader, *, after: str, pairs_min: int) -> Properties:
    token = reader.peek()
    pairs = parse_properties(reader, after=after)
    if len(pairs) < pairs_min:
        raise reader.error(f"{after} must contain at least one key", token=token)
    return pairs


def _parse_insert(reader: TokenReader) -> Insert:
    reader.expect("INSERT", after="DO")
    if reader.at("OVERWRITE"):
        raise reader.unsupported(
            "INSERT OVERWRITE", hint="A job appends rows: write INSERT INTO."
        )
    reader.expect("INTO", after="INSERT")
    # TABLE is optional before a name, and can be the name itself.
    if reader.at("TABLE") and reader.at_name(1) and reader.peek(1).keyword != "SELECT":
        reader.take()
    table = table_name(reader, after="INSERT INTO")
    _refuse_modifier(reader)
    columns = _parse_insert_columns(reader)
    _refuse_modifier(reader)
    return parse_select(reader, table=table, columns=columns)


def _refuse_modifier(reader: TokenReader) -> None:
    if reader.at_any(_INSERT_MODIFIERS):
        raise reader.unsupported(
            _INSERT_MODIFIERS[reader.peek().keyword],
            hint="Write INSERT INTO t (column, …) SELECT … FROM source(…).",
        )


def _parse_insert_columns(reader: TokenReader) -> tuple[str, ...] | None:
    # A column can have the name ``select``. A comma or the end of the list follows the name.
    listed = reader.at_symbol(",", 2) or reader.at_symbol(")", 2)
    nested = reader.peek(1).keyword in ("SELECT", "WITH") and not listed
    if nested or not reader.skip_symbol("("):
        return None
    columns: list[str] = []
    seen: set[str] = set()
    while not columns or reader.skip_symbol(","):
        token = reader.peek()
        columns.append(declared_name(reader, "a column name", after='"(" or ","'))
        if columns[-1].lower() in seen:
            message = f'column "{columns[-1]}" is specified more than once'
            raise reader.error(message, token=token)
        seen.add(columns[-1].lower())
    reader.expect_symbol(")", after="the columns")
    return tuple(columns)


_CREATE = "CREATE ROUTINE LOAD"
_SOURCE = "FROM source"
_SEPARATOR = "COLUMNS TERMINATED BY"
_PRECEDING_FILTER = "PRECEDING FILTER"
_COMMA = "Separate COLUMNS TERMINATED BY, COLUMNS, PRECEDING FILTER and WHERE with commas."
_APPENDS = "A routine load only appends rows: select them with WHERE."
_PARTITIONS = "The columns of a row determine its partition: select rows with WHERE."
_REFUSED_CLAUSES = {
    "DELETE": ("DELETE ON", _APPENDS),
    "ORDER": ("ORDER BY", "Rows are appended in the order of the stream: remove the clause."),
    "PARTITION": ("PARTITION", _PARTITIONS),
    "PARTITIONS": ("PARTITIONS", _PARTITIONS),
    "TEMPORARY": ("TEMPORARY PARTITION", _PARTITIONS),
}
_RECORD_CLAUSES = ("COLUMNS", "PRECEDING", "WHERE", *_REFUSED_CLAUSES)
# Clauses after those about records, in their order.
_LOAD_CLAUSES = {word: word for word in ("PROPERTIES", "FROM", "COMMENT")}
_WORDS = ("WITH", "COLUMNS", "PRECEDING", "WHERE", *_LOAD_CLAUSES)
_CLAUSES = (
    "COLUMNS TERMINATED BY '…', COLUMNS(…), PRECEDING FILTER …, WHERE … PROPERTIES(…) "
    "FROM source(…)"
)
_CREATE_ORDER = (
    f"The order is CREATE ROUTINE LOAD name ON table {_CLAUSES} COMMENT '…'; "
    "all but ON and FROM are optional."
)
_ALTER_ORDER = (
    f"The order is ALTER ROUTINE LOAD FOR name {_CLAUSES}; at least one clause is required."
)


def parse_create_routine_load(reader: TokenReader) -> CreateJob:
    """Parse CREATE ROUTINE LOAD."""
    if reader.at("IF", "NOT"):
        hint = "Write CREATE ROUTINE LOAD name ON table …."
        raise reader.unsupported("IF NOT EXISTS", place=_CREATE, hint=hint)
    # A job can have the name ``on``. The keyword ON follows the name.
    if reader.at("ON") and reader.at_name(1) and reader.peek(1).keyword != "ON":
        raise reader.unexpected("a job name", after=_CREATE)
    name = routine_load_name(reader, after=_CREATE)
    table = _parse_target(reader)
    appends = _skip_append(reader)
    body, properties = _parse_clauses(reader, order=_CREATE_ORDER)
    if body.source is None:
        if reader.at("COMMENT"):
            raise reader.error("COMMENT must come after FROM", hint=_CREATE_ORDER)
        bare = body == RoutineBody() and properties is None
        append = ("WITH APPEND",) if bare and not appends else ()
        expected = either(*append, *_expected_clauses(body.load, properties))
        raise reader.unexpected(expected, hint=_CREATE_ORDER, choices=_WORDS)
    comment = comment_clause(reader)
    if comment is not None:
        _check_load_order(reader, last="COMMENT", order=_CREATE_ORDER)
    elif not reader.ended:
        raise reader.unexpected(f"COMMENT or {_END}", after=f"FROM {body.source.function}(…)")
    return CreateJob(
        kind=ROUTINE_LOAD,
        name=name,
        body=replace(body, table=table),
        properties=properties or (),
        comment=comment or "",
    )


def parse_alter_routine_load(reader: TokenReader) -> AlterJob | ResetBacklog:
    """Parse ALTER ROUTINE LOAD."""
    name = load_after_for(reader, after=reader.head)
    if reader.skip("RESET"):
        reader.expect("BACKLOG", after="RESET")
        return ResetBacklog(kind=ROUTINE_LOAD, name=name)
    body, properties = _parse_clauses(reader, order=_ALTER_ORDER, pairs_min=1)
    if reader.at("COMMENT"):
        raise reader.unsupported("COMMENT", place="ALTER ROUTINE LOAD", hint=_ALTER_ORDER)
    bare = body == RoutineBody() and properties is None
    if body.source is None and (bare or not reader.ended):
        end = ("RESET BACKLOG",) if bare else (_END,)
        expected = either(*_expected_clauses(body.load, properties), *end)
        raise reader.unexpected(expected, hint=_ALTER_ORDER, choices=_WORDS)
    return AlterJob(kind=ROUTINE_LOAD, name=name, properties=properties or (), body=body)


def parse_show_routine_load(reader: TokenReader, *, ended: bool) -> ShowRoutineLoad:
    """Parse SHOW [ALL] ROUTINE LOAD."""
    if reader.skip("FOR"):
        return ShowRoutineLoad(name=routine_load_name(reader, after="FOR"), all=ended)
    if reader.skip("LIKE"):
        return ShowRoutineLoad(like=reader.expect_text("a pattern", after="LIKE"), all=ended)
    if not reader.ended:
        raise reader.unexpected(f"FOR, LIKE or {_END}", after="ROUTINE LOAD")
    return ShowRoutineLoad(all=ended)


def parse_show_routine_load_task(reader: TokenReader) -> ShowRoutineLoadTask:
    """Parse SHOW ROUTINE LOAD TASK."""
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


def _parse_target(reader: TokenReader) -> str:
    if reader.skip("ON"):
        return table_name(reader, after="ON")
    if reader.at_any(_WORDS) or reader.ended:
        hint = "A routine load writes to one table: write CREATE ROUTINE LOAD name ON table …."
        raise reader.unsupported(f"{_CREATE} without ON table", hint=hint)
    raise reader.unexpected("ON", after="the job name", hint=_CREATE_ORDER)


def _skip_append(reader: TokenReader) -> bool:
    if not reader.skip("WITH"):
        return False
    if reader.at_any(("MERGE", "DELETE")):
        raise reader.unsupported(
            f"WITH {reader.peek().keyword}",
            place=_CREATE,
            hint="A routine load only appends rows: write WITH APPEND, or remove the clause.",
        )
    reader.expect("APPEND", after="WITH")
    return True


def _parse_clauses(
    reader: TokenReader, *, order: str, pairs_min: int = 0
) -> tuple[RoutineBody, Properties | None]:
    """Parse the clauses up to the source and check their order.

    The properties are None if the statement has no PROPERTIES.
    """
    body = RoutineBody(load=_parse_record_clauses(reader))
    properties: Properties | None = None
    if reader.skip("PROPERTIES"):
        properties = _parse_pairs(reader, after="PROPERTIES", pairs_min=pairs_min)
        _check_load_order(reader, last="PROPERTIES", order=order)
    if reader.skip("FROM"):
        function = reader.peek().keyword
        if not function:
            raise reader.unexpected("a source", after="FROM")
        reader.take()
        options = _parse_pairs(reader, after=function, pairs_min=pairs_min)
        body = replace(body, source=SourceCall(function=function, options=options))
        _check_load_order(reader, last="FROM", order=order)
    return body, properties


def _check_load_order(reader: TokenReader, *, last: str, order: str) -> None:
    if reader.at_any(_RECORD_CLAUSES):
        clause = _take_clause(reader.fork(), expected=())
        raise reader.error(f"{clause} must come before {last}", hint=order)
    _check_order(reader, _LOAD_CLAUSES, last=last, order=order)


def _expected_clauses(load: LoadProperties, properties: Properties | None) -> tuple[str, ...]:
    """Return the clauses, up to the source, that can follow the parsed clauses."""
    if properties is not None:
        return (_SOURCE,)
    missing = _missing_clauses(load)
    if load != LoadProperties():
        missing = ('","',) if missing else ()
    return (*missing, "PROPERTIES", _SOURCE)


def _parse_record_clauses(reader: TokenReader) -> LoadProperties:
    """Parse the clauses about records, each at most once, with commas between them."""
    load = LoadProperties()
    if not reader.at_any(_RECORD_CLAUSES):
        return load
    load = _with_clause(reader, load)
    while reader.skip_symbol(","):
        load = _with_clause(reader, load)
    if reader.at_any(_RECORD_CLAUSES):
        clause = _take_clause(reader.fork(), expected=())
        raise reader.error(f'"," must come before {clause}', hint=_COMMA)
    return load


def _with_clause(reader: TokenReader, load: LoadProperties) -> LoadProperties:
    token = reader.peek()
    missing = _missing_clauses(load)
    clause = _take_clause(reader, expected=missing or ("PROPERTIES", "FROM"))
    if clause not in missing:
        raise reader.error(f"{clause} is specified more than once", token=token)
    if clause == _SEPARATOR:
        token = reader.peek()
        separator = reader.expect_text("a separator", after=_SEPARATOR)
        if not separator:
            raise reader.error(f"{_SEPARATOR} must not be empty", token=token)
        return replace(load, separator=separator)
    if clause == "COLUMNS":
        return replace(load, columns=_parse_columns(reader))
    expression = parse_expression(reader, after=clause)
    if clause == "WHERE":
        return replace(load, where=expression)
    return replace(load, preceding_filter=expression)


def _missing_clauses(load: LoadProperties) -> tuple[str, ...]:
    value_by_clause = {
        _SEPARATOR: load.separator,
        "COLUMNS": load.columns,
        _PRECEDING_FILTER: load.preceding_filter,
        "WHERE": load.where,
    }
    return tuple(clause for clause, value in value_by_clause.items() if value is None)


def _take_clause(reader: TokenReader, *, expected: Iterable[str]) -> str:
    """Take the words of a clause; an error lists the ``expected`` clauses."""
    if reader.at_any(_REFUSED_CLAUSES):
        construct, hint = _REFUSED_CLAUSES[reader.peek().keyword]
        raise reader.unsupported(construct, place="ROUTINE LOAD", hint=hint)
    if reader.skip("WHERE"):
        return "WHERE"
    if reader.skip("PRECEDING"):
        reader.expect("FILTER", after="PRECEDING")
        return _PRECEDING_FILTER
    if not reader.skip("COLUMNS"):
        raise reader.unexpected(either(*expected), after='","', choices=_RECORD_CLAUSES)
    if reader.skip("TERMINATED"):
        reader.expect("BY", after="COLUMNS TERMINATED")
        return _SEPARATOR
    if not reader.at_symbol("("):
        raise reader.unexpected('TERMINATED BY or "("', after="COLUMNS")
    return "COLUMNS"


def _parse_columns(reader: TokenReader) -> tuple[LoadColumn, ...]:
    first = reader.take()
    if reader.at_symbol(")"):
        raise reader.error("COLUMNS must have at least one column", token=first)
    columns: list[LoadColumn] = []
    # A computed column can have the name of a column of the records.
    seen: set[tuple[str, bool]] = set()
    while not columns or reader.skip_symbol(","):
        token = reader.peek()
        name = declared_name(reader, "a column name", after='","' if columns else '"("')
        computed = reader.skip_symbol("=")
        expression = parse_expression(reader, after=f'"{name}" =') if computed else None
        if (name.lower(), computed) in seen:
            verb = "computed" if computed else "specified"
            raise reader.error(f'column "{name}" is {verb} more than once', token=token)
        seen.add((name.lower(), computed))
        columns.append(LoadColumn(name=name, expression=expression))
    if not reader.skip_symbol(")"):
        expected = '"=", "," or ")"' if columns[-1].expression is None else '"," or ")"'
        raise reader.unexpected(expected, after="the column")
    return tuple(columns)
