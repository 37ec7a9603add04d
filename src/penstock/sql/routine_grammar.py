"""Read the statements about routine loads."""

from dataclasses import dataclass

from penstock.model.routine import LoadProperties
from penstock.sql.expression import SOURCES
from penstock.sql.job_grammar import filtered_job_name
from penstock.sql.load_properties import (
    at_load_property,
    missing_clauses,
    parse_load_properties,
    take_clause,
)
from penstock.sql.names import database_name, routine_load_name, table_name
from penstock.sql.properties import parse_properties
from penstock.sql.reader import TokenReader, either
from penstock.sql.statements import (
    AlterRoutineLoad,
    CreateRoutineLoad,
    PauseRoutineLoad,
    Properties,
    ResumeRoutineLoad,
    ShowCreateRoutineLoad,
    ShowRoutineLoad,
    ShowRoutineLoadTask,
    ShowShards,
    StopRoutineLoad,
)

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
        _check_order(reader, behind="PROPERTIES", order=order)
    if not reader.skip("FROM"):
        return _Clauses(load=load, properties=properties)
    source = _source_kind(reader)
    options = _pairs(reader, after=source, pairs_min=pairs_min)
    _check_order(reader, behind="FROM", order=order)
    return _Clauses(load=load, properties=properties, source=source, options=options)


def _pairs(reader: TokenReader, *, after: str, pairs_min: int) -> Properties:
    token = reader.look()
    pairs = parse_properties(reader, after=after)
    if len(pairs) < pairs_min:
        raise reader.error(f"{after} must have at least one key to change", token=token)
    return pairs


def _check_order(reader: TokenReader, *, behind: str, order: str) -> None:
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
        _check_order(reader, behind="COMMENT", order=_CREATE_ORDER)
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
