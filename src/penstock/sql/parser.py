r"""Turn a script into statements; what Spark or Doris know and Penstock does not is named.

A statement ends with ``;``, or with ``\G``, which asks for its result to be printed vertically.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum

from penstock.errors import UserError
from penstock.sql.lexer import Script, Token, TokenKind, read_script, tokenize
from penstock.sql.load_grammar import (
    parse_alter_job,
    parse_alter_routine_load,
    parse_create_job,
    parse_create_routine_load,
    parse_drop_job,
    parse_pause_job,
    parse_pause_routine_load,
    parse_resume_job,
    parse_resume_routine_load,
    parse_show_all_create_routine_load,
    parse_show_all_routine_load,
    parse_show_create_routine_load,
    parse_show_routine_load,
    parse_show_routine_load_task,
    parse_show_shards,
    parse_stop_routine_load,
)
from penstock.sql.names import job_name
from penstock.sql.object_grammar import (
    parse_alter_secret,
    parse_create_secret,
    parse_create_table,
    parse_describe,
    parse_drop_secret,
    parse_drop_table,
    parse_show_create_table,
)
from penstock.sql.query import at_query, parse_query
from penstock.sql.reader import TokenReader, either, words
from penstock.sql.statements import (
    ExplainJob,
    ParsedStatement,
    PauseRoutineLoad,
    ResumeRoutineLoad,
    ShowCreateJob,
    ShowEpochs,
    ShowEvents,
    ShowJobs,
    ShowSecrets,
    ShowTables,
    Statement,
)

Parse = Callable[[TokenReader], Statement]


class Ending(StrEnum):
    """What a statement ends with."""

    PLAIN = ";"
    VERTICAL = "\\G"


_STATEMENTS = (
    "CREATE TABLE, DROP TABLE, SHOW TABLES, DESCRIBE, DESCRIBE DETAIL, SHOW CREATE TABLE, "
    "CREATE JOB, ALTER JOB, PAUSE JOB, RESUME JOB, DROP JOB, SHOW JOBS, SHOW CREATE JOB, "
    "SHOW EPOCHS, SHOW EVENTS, EXPLAIN JOB, CREATE ROUTINE LOAD, ALTER ROUTINE LOAD, "
    "PAUSE ROUTINE LOAD, RESUME ROUTINE LOAD, STOP ROUTINE LOAD, SHOW ROUTINE LOAD, "
    "SHOW ROUTINE LOAD TASK, SHOW CREATE ROUTINE LOAD, SHOW SHARDS, CREATE SECRET, "
    "ALTER SECRET, DROP SECRET, SHOW SECRETS, SELECT"
)
_FOREIGN_STATEMENTS = words(
    "ADD ANALYZE BEGIN CACHE CALL CANCEL CLEAR COMMENT COMMIT CONVERT COPY DECLARE "
    "DELETE EXECUTE EXPORT GRANT INSERT KILL LIST LOAD LOCK MERGE MSCK "
    "OPTIMIZE REFRESH RENAME REPAIR REPLACE RESET RESTORE REVOKE ROLLBACK SET "
    "START SYNC TABLE TRUNCATE UNCACHE UNSET UPDATE USE VACUUM"
)
_FOREIGN_HINTS = {
    "STOP ALL": "Write STOP ROUTINE LOAD FOR name, for a stopped one cannot be resumed; "
    "PAUSE ALL ROUTINE LOAD pauses all.",
    "INSERT": "Put it into a job: CREATE JOB name ON STREAMING DO INSERT INTO ….",
}
_FOREIGN_OBJECTS = {
    "CREATE": words(
        "CATALOG DATABASE EXTERNAL FUNCTION GLOBAL INDEX MATERIALIZED OR RESOURCE ROLE "
        "SCHEMA STREAMING TEMP TEMPORARY USER VIEW"
    ),
    "EXPLAIN": words(
        "ANALYZE CODEGEN COST DELETE EXTENDED FORMATTED INSERT SELECT UPDATE WITH"
    ),
    "ALTER": words("CATALOG DATABASE SCHEMA TABLE USER VIEW"),
    "PAUSE": words("SYNC"),
    "RESUME": words("SYNC"),
    "STOP": words("ALL SYNC"),
    "DROP": words(
        "CATALOG DATABASE FUNCTION INDEX MATERIALIZED ROLE SCHEMA TEMPORARY USER VIEW"
    ),
    "SHOW": words(
        "CATALOGS COLUMNS CURRENT DATABASES FUNCTIONS GRANTS LOAD PARTITIONS PROCESSLIST "
        "SCHEMAS STATUS TBLPROPERTIES TRANSACTIONS USER VARIABLES VIEWS"
    ),
    "SHOW CREATE": words("CATALOG DATABASE FUNCTION SCHEMA SECRET VIEW"),
}


def parse_script(text: str) -> tuple[ParsedStatement, ...]:
    r"""Read the statements of a script, each up to ; or \G; empty ones are skipped."""
    script = read_script(text)
    return tuple(_parsed(script, *found) for found in _split(tokenize(script)))


def statement_heads() -> tuple[tuple[str, ...], ...]:
    """Answer the words that every statement begins with, such as SHOW CREATE JOB."""
    heads: list[tuple[str, ...]] = []
    for verb, parsers in _PARSERS.items():
        for word, parse in parsers.items():
            more = _SHOW_CREATE if parse is _show_create else ("",)
            heads += [(verb, *word.split(), *last.split()) for last in more]
    return (*heads, ("DESCRIBE",), ("DESCRIBE", "DETAIL"), ("SELECT",))


def _split(tokens: tuple[Token, ...]) -> Iterator[tuple[list[Token], Ending]]:
    """Yield the tokens of every statement, and what it ends with."""
    statement: list[Token] = []
    for token in tokens:
        ending = _ending([*statement[-1:], token])
        if ending is None:
            statement.append(token)
            continue
        if ending is Ending.VERTICAL:
            statement.pop()
        if statement:
            yield statement, ending
        statement = []
    if statement:
        yield statement, Ending.PLAIN


def _ending(tokens: list[Token]) -> Ending | None:
    """Tell what the last tokens end a statement with, if they do."""
    last = tokens[-1]
    if last.kind is TokenKind.SYMBOL and last.text == ";":
        return Ending.PLAIN
    before = tokens[0]
    slash = before.kind is TokenKind.SYMBOL and before.text == "\\"
    if slash and before.end == last.start and (last.kind, last.text) == (TokenKind.WORD, "G"):
        return Ending.VERTICAL
    return None


def _parsed(script: Script, tokens: list[Token], ending: Ending) -> ParsedStatement:
    reader = TokenReader(script, tokens)
    statement = _statement(reader)
    if not reader.ended:
        raise reader.unexpected("the end of the statement")
    start = script.position(tokens[0].start)
    return ParsedStatement(
        statement=statement,
        text=script.text[tokens[0].start : tokens[-1].end],
        line=start.line,
        column=start.column,
        vertical=ending is Ending.VERTICAL,
    )


def _statement(reader: TokenReader) -> Statement:
    word = reader.look().keyword
    if at_query(reader):
        return parse_query(reader)
    if word in _FOREIGN_STATEMENTS:
        second = reader.look(1).keyword
        construct = f"{word} {second}" if second in ("TABLE", "TASK") else word
        raise reader.unsupported(construct, hint=_FOREIGN_HINTS.get(word, ""))
    if word not in _PARSERS and word not in ("DESCRIBE", "DESC"):
        raise reader.unexpected(
            "a statement",
            hint=f"The statements are {_STATEMENTS}.",
            choices=[*_PARSERS, "DESCRIBE", "SELECT", *_FOREIGN_STATEMENTS],
        )
    reader.take()
    return _object(reader, word, _PARSERS[word]) if word in _PARSERS else parse_describe(reader)


def _object(reader: TokenReader, verb: str, parsers: Mapping[str, Parse]) -> Statement:
    word = reader.look().keyword
    if word in _FOREIGN_OBJECTS[verb]:
        construct = "CREATE OR REPLACE" if word == "OR" else f"{verb} {word}"
        raise reader.unsupported(construct, hint=_FOREIGN_HINTS.get(construct, ""))
    said = [phrase for phrase in parsers if reader.at(*phrase.split())]
    if not said:
        raise _unknown(reader, parsers, after=verb)
    longest = max(said, key=len)
    reader.skip(*longest.split())
    return parsers[longest](reader)


def _unknown(reader: TokenReader, phrases: Iterable[str], *, after: str) -> UserError:
    """Build the error about the first word that goes on with none of the phrases."""
    word = reader.look().keyword
    begun = [
        phrase.removeprefix(f"{word} ") for phrase in phrases if word in phrase.split()[:1]
    ]
    if begun:
        reader.take()
        return _unknown(reader, begun, after=word)
    return reader.unexpected(either(*phrases), after=after, choices=phrases)


def _show_create(reader: TokenReader) -> Statement:
    return _object(reader, "SHOW CREATE", _SHOW_CREATE)


def _show_create_job(reader: TokenReader) -> ShowCreateJob:
    # FOR is a noise word before a name, and may be a name itself.
    if reader.at_name(1):
        reader.skip("FOR")
    return ShowCreateJob(name=job_name(reader, after="SHOW CREATE JOB"))


def _explain_job(reader: TokenReader) -> ExplainJob:
    return ExplainJob(name=job_name(reader, after="EXPLAIN JOB"))


def _show_epochs(reader: TokenReader) -> ShowEpochs:
    reader.expect("FOR", after="SHOW EPOCHS")
    return ShowEpochs(name=job_name(reader, after="FOR"))


def _show_events(reader: TokenReader) -> ShowEvents:
    reader.expect("FOR", after="SHOW EVENTS")
    return ShowEvents(name=job_name(reader, after="FOR"))


_SHOW_CREATE: Mapping[str, Parse] = {
    "TABLE": parse_show_create_table,
    "JOB": _show_create_job,
    "ROUTINE LOAD": parse_show_create_routine_load,
}
_PARSERS: Mapping[str, Mapping[str, Parse]] = {
    "CREATE": {
        "TABLE": parse_create_table,
        "JOB": parse_create_job,
        "ROUTINE LOAD": parse_create_routine_load,
        "SECRET": parse_create_secret,
    },
    "ALTER": {
        "JOB": parse_alter_job,
        "ROUTINE LOAD": parse_alter_routine_load,
        "SECRET": parse_alter_secret,
    },
    "PAUSE": {
        "JOB": parse_pause_job,
        "ROUTINE LOAD": parse_pause_routine_load,
        "ALL ROUTINE LOAD": lambda _: PauseRoutineLoad(name=None),
    },
    "RESUME": {
        "JOB": parse_resume_job,
        "ROUTINE LOAD": parse_resume_routine_load,
        "ALL ROUTINE LOAD": lambda _: ResumeRoutineLoad(name=None),
    },
    "STOP": {"ROUTINE LOAD": parse_stop_routine_load},
    "DROP": {
        "TABLE": parse_drop_table,
        "JOB": parse_drop_job,
        "SECRET": parse_drop_secret,
    },
    "EXPLAIN": {"JOB": _explain_job},
    "SHOW": {
        "TABLES": lambda _: ShowTables(),
        "JOBS": lambda _: ShowJobs(),
        "CREATE": _show_create,
        "EPOCHS": _show_epochs,
        "EVENTS": _show_events,
        "ROUTINE LOAD": parse_show_routine_load,
        "ROUTINE LOAD TASK": parse_show_routine_load_task,
        "ALL ROUTINE LOAD": parse_show_all_routine_load,
        "ALL CREATE ROUTINE LOAD": parse_show_all_create_routine_load,
        "SHARDS": parse_show_shards,
        "SECRETS": lambda _: ShowSecrets(),
    },
}
