r"""Parse a script into statements; report unsupported constructs of Spark and Doris.

A statement ends with ``;``, or with ``\G``, which prints its result vertically.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from penstock.errors import UserError
from penstock.model.job_kinds import FLOW, ROUTINE_LOAD, STREAMING_TABLE
from penstock.sql.lexer import Script, Token, TokenKind, read_script, tokenize
from penstock.sql.load_grammar import (
    filtered_job_name,
    job_after_for,
    load_after_for,
    parse_alter_job,
    parse_alter_routine_load,
    parse_create_job,
    parse_create_routine_load,
    parse_show_routine_load,
    parse_show_routine_load_task,
)
from penstock.sql.names import flow_name, job_name, secret_name, table_name
from penstock.sql.object_grammar import (
    parse_alter_secret,
    parse_alter_table,
    parse_create_secret,
    parse_create_table,
    parse_describe,
)
from penstock.sql.query import at_query, parse_query
from penstock.sql.reader import TokenReader, either, words
from penstock.sql.statements import (
    DropJob,
    DropSecret,
    DropTable,
    ExplainJob,
    ParsedStatement,
    PauseJob,
    ResumeJob,
    ShowBacklog,
    ShowCheckpoints,
    ShowCreateJob,
    ShowCreateTable,
    ShowEpochs,
    ShowEvents,
    ShowJobs,
    ShowSecrets,
    ShowShards,
    ShowTables,
    Statement,
)
from penstock.sql.stream_grammar import (
    CDC_HINT,
    checkpoints_name,
    parse_alter_streaming_table,
    parse_create_flow,
    parse_create_streaming_table,
    parse_drop_streaming_table,
    parse_explain_streaming_table,
    parse_refresh,
    parse_show_streaming_tables,
)

Parse = Callable[[TokenReader], Statement]


_FOREIGN_STATEMENTS = words(
    "ADD ANALYZE APPLY AUTO BEGIN CACHE CALL CANCEL CLEAR COMMENT COMMIT CONVERT COPY DECLARE "
    "DELETE EXECUTE EXPORT GRANT INSERT KILL LIST LOAD LOCK MERGE MSCK "
    "OPTIMIZE RENAME REPAIR REPLACE RESET RESTORE REVOKE ROLLBACK SET "
    "START SYNC TABLE TRUNCATE UNCACHE UNSET UPDATE USE VACUUM"
)
_FOREIGN_HINTS = {
    "STOP ALL": "A stopped load cannot be resumed. Stop loads one by one with STOP ROUTINE "
    "LOAD FOR name, or pause all with PAUSE ALL ROUTINE LOAD.",
    "INSERT": "Use INSERT in a job: CREATE JOB name ON STREAMING DO INSERT INTO ….",
    "APPLY": CDC_HINT,
    "AUTO": CDC_HINT,
    "CREATE MATERIALIZED VIEW": "Write CREATE STREAMING TABLE name AS query.",
    "CREATE OR REPLACE": "Drop the object first. A streaming table can also be created with "
    "CREATE OR REFRESH STREAMING TABLE.",
    "REFRESH MATERIALIZED VIEW": "Write REFRESH STREAMING TABLE name.",
    "REFRESH TABLE": "Every SELECT reads the newest version of a table. A streaming table is "
    "refreshed with REFRESH STREAMING TABLE name.",
}
_FOREIGN_OBJECTS = {
    "CREATE": words(
        "CATALOG DATABASE EXTERNAL FUNCTION GLOBAL INDEX LIVE MATERIALIZED PRIVATE RESOURCE "
        "ROLE SCHEMA TEMP TEMPORARY USER VIEW"
    ),
    "EXPLAIN": words(
        "ANALYZE CODEGEN COST DELETE EXTENDED FORMATTED INSERT SELECT UPDATE WITH"
    ),
    "ALTER": words("CATALOG DATABASE MATERIALIZED SCHEMA USER VIEW"),
    "REFRESH": words("FUNCTION MATERIALIZED TABLE"),
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
    "SHOW CREATE": words("CATALOG DATABASE FUNCTION MATERIALIZED SCHEMA SECRET VIEW"),
}


def parse_script(text: str) -> tuple[ParsedStatement, ...]:
    r"""Parse the statements of a script, each up to ; or \G; skip empty statements."""
    script = read_script(text)
    found = _split(tokenize(script))
    return tuple(_parsed(script, tokens, vertical=vertical) for tokens, vertical in found)


def statement_heads() -> tuple[tuple[str, ...], ...]:
    """Return the first words of every statement, such as SHOW CREATE JOB."""
    heads: list[tuple[str, ...]] = []
    for verb, parsers in _PARSERS.items():
        for word, parse in parsers.items():
            more = _SHOW_CREATE if parse is _show_create else ("",)
            heads += [(verb, *word.split(), *last.split()) for last in more]
    return (*heads, ("DESCRIBE",), ("DESCRIBE", "DETAIL"), ("SELECT",))


def _split(tokens: tuple[Token, ...]) -> Iterator[tuple[list[Token], bool]]:
    r"""Yield the tokens of every statement, and whether it ends with \G."""
    statement: list[Token] = []
    for token in tokens:
        before = statement[-1] if statement else token
        ends = (token.kind, token.text) == (TokenKind.WORD, "G")
        vertical = ends and before.is_symbol("\\") and before.end == token.start
        if not vertical and not token.is_symbol(";"):
            statement.append(token)
            continue
        if vertical:
            statement.pop()
        if statement:
            yield statement, vertical
        statement = []
    if statement:
        yield statement, False


def _parsed(script: Script, tokens: list[Token], *, vertical: bool) -> ParsedStatement:
    reader = TokenReader(script, tokens)
    statement = _statement(reader)
    if not reader.ended:
        raise reader.unexpected("the end of the statement")
    line, column = script.position(tokens[0].start)
    return ParsedStatement(
        statement=statement,
        text=script.text[tokens[0].start : tokens[-1].end],
        line=line,
        column=column,
        vertical=vertical,
    )


def _statement(reader: TokenReader) -> Statement:
    word = reader.peek().keyword
    if at_query(reader):
        return parse_query(reader)
    if word in _FOREIGN_STATEMENTS:
        second = reader.peek(1).keyword
        paired = second in ("CDC", "CHANGES", "TABLE", "TASK")
        construct = f"{word} {second}" if paired else word
        raise reader.unsupported(construct, hint=_FOREIGN_HINTS.get(word, ""))
    if word not in _PARSERS and word not in ("DESCRIBE", "DESC"):
        known = ", ".join(" ".join(head) for head in statement_heads())
        raise reader.unexpected(
            "a statement",
            hint=f"The statements are {known}.",
            choices=[*_PARSERS, "DESCRIBE", "SELECT", *_FOREIGN_STATEMENTS],
        )
    reader.take()
    return _object(reader, word, _PARSERS[word]) if word in _PARSERS else parse_describe(reader)


def _object(reader: TokenReader, verb: str, parsers: Mapping[str, Parse]) -> Statement:
    construct = _foreign_object(reader, verb)
    if construct:
        raise reader.unsupported(construct, hint=_FOREIGN_HINTS.get(construct, ""))
    found = [phrase for phrase in parsers if reader.at(*phrase.split())]
    if not found:
        raise _unknown(reader, parsers, after=verb)
    longest = max(found, key=len)
    reader.skip(*longest.split())
    return parsers[longest](reader)


def _foreign_object(reader: TokenReader, verb: str) -> str:
    """Return the first words of a known statement that is not supported; empty if none."""
    if verb == "CREATE" and reader.at("OR", "REPLACE"):
        return "CREATE OR REPLACE"
    refreshed = verb == "CREATE" and reader.at("OR", "REFRESH")
    word = reader.peek(2 if refreshed else 0).keyword
    if word not in _FOREIGN_OBJECTS[verb]:
        return ""
    return f"{verb} {word} VIEW" if word == "MATERIALIZED" else f"{verb} {word}"


def _unknown(reader: TokenReader, phrases: Iterable[str], *, after: str) -> UserError:
    """Return the error about the first word that matches none of the phrases."""
    word = reader.peek().keyword
    matching = [
        phrase.removeprefix(f"{word} ") for phrase in phrases if word in phrase.split()[:1]
    ]
    if matching:
        reader.take()
        return _unknown(reader, matching, after=word)
    return reader.unexpected(either(*phrases), after=after, choices=phrases)


def _show_create(reader: TokenReader) -> Statement:
    return _object(reader, "SHOW CREATE", _SHOW_CREATE)


def _show_backlog(reader: TokenReader) -> ShowBacklog:
    if reader.skip("FOR"):
        return ShowBacklog(name=job_name(reader, after="FOR"))
    if not reader.ended:
        raise reader.unexpected("FOR or the end of the statement", after="SHOW BACKLOG")
    return ShowBacklog()


def _show_create_job(reader: TokenReader) -> ShowCreateJob:
    # FOR is optional. A job can also be named FOR, so FOR is skipped only before a name.
    if reader.at_name(1):
        reader.skip("FOR")
    return ShowCreateJob(name=job_name(reader, after="SHOW CREATE JOB"))


def _named(
    statement: Callable[..., Statement], parse_name: Callable[..., str], **values: object
) -> Parse:
    """Return the parser of a statement that has only a name; ``values`` are other fields."""
    return lambda reader: statement(name=parse_name(reader, after=reader.head), **values)


def _drop(statement: Callable[..., Statement], parse_name: Callable[..., str]) -> Parse:
    """Return the parser of DROP … [IF EXISTS] name."""

    def parse(reader: TokenReader) -> Statement:
        if_exists = reader.skip("IF", "EXISTS")
        return statement(name=parse_name(reader, after=reader.head), if_exists=if_exists)

    return parse


_SHOW_CREATE: Mapping[str, Parse] = {
    "TABLE": _named(ShowCreateTable, table_name),
    "JOB": _show_create_job,
    "ROUTINE LOAD": _named(ShowCreateJob, load_after_for, kind=ROUTINE_LOAD),
    "STREAMING TABLE": _named(ShowCreateJob, table_name, kind=STREAMING_TABLE),
    "FLOW": _named(ShowCreateJob, flow_name, kind=FLOW),
}
_PARSERS: Mapping[str, Mapping[str, Parse]] = {
    "CREATE": {
        "TABLE": parse_create_table,
        "JOB": parse_create_job,
        "ROUTINE LOAD": parse_create_routine_load,
        "STREAMING TABLE": parse_create_streaming_table,
        "OR REFRESH STREAMING TABLE": partial(parse_create_streaming_table, or_refresh=True),
        "FLOW": parse_create_flow,
        "SECRET": parse_create_secret,
    },
    "ALTER": {
        "TABLE": parse_alter_table,
        "JOB": parse_alter_job,
        "ROUTINE LOAD": parse_alter_routine_load,
        "STREAMING TABLE": partial(
            parse_alter_streaming_table, kind=STREAMING_TABLE, parse_name=table_name
        ),
        "FLOW": partial(parse_alter_streaming_table, kind=FLOW, parse_name=flow_name),
        "SECRET": parse_alter_secret,
    },
    "PAUSE": {
        "JOB": _named(PauseJob, filtered_job_name),
        "ROUTINE LOAD": _named(PauseJob, load_after_for, kind=ROUTINE_LOAD),
        "ALL ROUTINE LOAD": lambda _: PauseJob(kind=ROUTINE_LOAD, name=None),
        "STREAMING TABLE": _named(PauseJob, table_name, kind=STREAMING_TABLE),
        "FLOW": _named(PauseJob, flow_name, kind=FLOW),
    },
    "RESUME": {
        "JOB": _named(ResumeJob, filtered_job_name),
        "ROUTINE LOAD": _named(ResumeJob, load_after_for, kind=ROUTINE_LOAD),
        "ALL ROUTINE LOAD": lambda _: ResumeJob(kind=ROUTINE_LOAD, name=None),
        "STREAMING TABLE": _named(ResumeJob, table_name, kind=STREAMING_TABLE),
        "FLOW": _named(ResumeJob, flow_name, kind=FLOW),
    },
    "STOP": {"ROUTINE LOAD": _named(DropJob, load_after_for, kind=ROUTINE_LOAD)},
    "DROP": {
        "TABLE": _drop(DropTable, table_name),
        "JOB": _drop(DropJob, filtered_job_name),
        "STREAMING TABLE": parse_drop_streaming_table,
        "FLOW": _drop(partial(DropJob, kind=FLOW), flow_name),
        "SECRET": _drop(DropSecret, secret_name),
    },
    "REFRESH": {
        "STREAMING TABLE": partial(parse_refresh, kind=STREAMING_TABLE, parse_name=table_name),
        "FLOW": partial(parse_refresh, kind=FLOW, parse_name=flow_name),
    },
    "EXPLAIN": {
        "JOB": _named(ExplainJob, job_name),
        "STREAMING TABLE": parse_explain_streaming_table,
    },
    "SHOW": {
        "TABLES": lambda _: ShowTables(),
        "JOBS": lambda _: ShowJobs(),
        "CREATE": _show_create,
        "EPOCHS": _named(ShowEpochs, job_after_for),
        "EVENTS": _named(ShowEvents, job_after_for),
        "ROUTINE LOAD": lambda reader: parse_show_routine_load(reader, ended=False),
        "ROUTINE LOAD TASK": parse_show_routine_load_task,
        "ALL ROUTINE LOAD": lambda reader: parse_show_routine_load(reader, ended=True),
        "ALL CREATE ROUTINE LOAD": _named(
            ShowCreateJob, load_after_for, kind=ROUTINE_LOAD, all=True
        ),
        "SHARDS": _named(ShowShards, load_after_for),
        "STREAMING TABLES": parse_show_streaming_tables,
        "CHECKPOINTS": _named(ShowCheckpoints, checkpoints_name),
        "BACKLOG": _show_backlog,
        "SECRETS": lambda _: ShowSecrets(),
    },
}
