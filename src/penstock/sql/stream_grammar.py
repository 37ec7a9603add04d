"""Parse the statements about streaming tables and flows, and find the streams of their queries.

The grammar is that of Spark Declarative Pipelines, with WITH (…) for options. Each function
parses the tokens after the first words of its statement, such as CREATE STREAMING TABLE.

A query stays verbatim. Only ``STREAM table`` is parsed, where Spark expects a table: after
FROM, after JOIN, and after a comma in a FROM list. Elsewhere, ``stream`` is a name.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from penstock.errors import Code, UserError
from penstock.model.job_kinds import STREAMING_TABLE, JobKind
from penstock.sql.lexer import SHOWN_CHARACTERS_MAX, Token, TokenKind
from penstock.sql.names import (
    flow_name,
    joined_text,
    parse_options,
    partition_names,
    plain_name,
    skip_if_not_exists,
    table_name,
)
from penstock.sql.query import CLAUSE_WORDS, at_query
from penstock.sql.reader import TokenReader, words
from penstock.sql.statements import (
    AlterStreamingTable,
    CreateFlow,
    CreateStreamingTable,
    DropJob,
    ExplainStreamingTable,
    Properties,
    RefreshStreamingTable,
    ResetBacklog,
    ShowStreamingTables,
    StreamColumn,
    StreamQueryText,
    StreamUse,
    Watermark,
)
from penstock.sql.types import interval_ms, stream_column_list

ParseName = Callable[..., str]

_NAMES = (TokenKind.WORD, TokenKind.NAME)

_CREATE = "CREATE STREAMING TABLE"
_FLOW = "CREATE FLOW"
_SOURCES_HINT = "Load the data into a table with a job, and read STREAM table."
CDC_HINT = (
    "Keep one row per key with GROUP BY: CREATE STREAMING TABLE t AS SELECT key, "
    "max_by(value, version) FROM STREAM changes GROUP BY key."
)
_NO_QUERY_HINT = "Write AS query. Flows can add rows of further queries."
_REMOVE = "Remove the clause."
# The first words of clauses that are not supported, with the clause and a hint.
_REFUSED_CLAUSES = {
    "CLUSTER": ("CLUSTER BY", "Write PARTITIONED BY (column, …)."),
    "CLUSTERED": ("CLUSTERED BY", "Write PARTITIONED BY (column, …)."),
    "DEFAULT": ("DEFAULT COLLATION", _REMOVE),
    "FLOW": ("FLOW AUTO CDC", CDC_HINT),
    "OPTIONS": ("OPTIONS", "Write WITH ('key' = 'value', …)."),
    "PARTITION": ("PARTITION BY", "Write PARTITIONED BY (column, …)."),
    "PROPERTIES": ("PROPERTIES", "Write WITH ('key' = 'value', …)."),
    "ROW": ("ROW FORMAT", "Write USING DELTA."),
    "SCHEDULE": ("SCHEDULE", "A streaming table runs all the time. Remove the clause."),
    "SKEWED": ("SKEWED BY", _REMOVE),
    "STORED": ("STORED AS", "Write USING DELTA."),
    "TRIGGER": ("TRIGGER", "A streaming table runs all the time. Remove the clause."),
}
_EXPECTED_CLAUSES = {
    "USING": "USING DELTA",
    "PARTITIONED": "PARTITIONED BY",
    "COMMENT": "COMMENT",
    "LOCATION": "LOCATION",
    "TBLPROPERTIES": "TBLPROPERTIES",
    "WITH": "WITH",
}


def parse_create_streaming_table(
    reader: TokenReader, *, or_refresh: bool = False
) -> CreateStreamingTable:
    """Parse CREATE [OR REFRESH] STREAMING TABLE."""
    if_not_exists = skip_if_not_exists(reader)
    _check_name(reader, "a table name", after=_CREATE)
    name = table_name(reader, after=_CREATE)
    columns = stream_column_list(reader) if reader.skip_symbol("(") else ()
    clauses = _clauses(reader, columns)
    return CreateStreamingTable(
        name=name,
        query=parse_stream_query(reader),
        columns=columns,
        partition_by=clauses.partition_by,
        comment=clauses.text_by_word.get("COMMENT", ""),
        location=clauses.text_by_word.get("LOCATION"),
        options=clauses.options,
        if_not_exists=if_not_exists,
        or_refresh=or_refresh,
    )


def parse_create_flow(reader: TokenReader) -> CreateFlow:
    """Parse CREATE FLOW."""
    if reader.at("IF", "NOT") or (reader.at("IF") and reader.at_symbol("!", 1)):
        hint = "Write CREATE FLOW f AS INSERT INTO t BY NAME query."
        raise reader.unsupported("IF NOT EXISTS", place=_FLOW, hint=hint)
    _check_name(reader, "a flow name", after=_FLOW)
    name = flow_name(reader, after=_FLOW)
    comment = ""
    if reader.skip("COMMENT"):
        comment = joined_text(reader, "a comment", after="COMMENT")
    options: Properties = ()
    if reader.skip("WITH"):
        options = parse_options(reader, after="WITH")
    if not reader.skip("AS"):
        raise reader.unexpected("COMMENT, WITH or AS INSERT INTO", after="the flow name")
    table = _insert_target(reader)
    return CreateFlow(
        name=name,
        table=table,
        query=parse_stream_query(reader),
        comment=comment,
        options=options,
    )


def parse_alter_streaming_table(
    reader: TokenReader, *, kind: JobKind, parse_name: ParseName
) -> AlterStreamingTable | ResetBacklog:
    """Parse ALTER STREAMING TABLE or ALTER FLOW."""
    name = parse_name(reader, after=reader.head)
    if reader.skip("RESET"):
        reader.expect("BACKLOG", after="RESET")
        return ResetBacklog(kind=kind, name=name)
    if reader.skip("ADVANCE"):
        reader.expect("WATERMARK", after="ADVANCE")
        reader.expect("TO", after="ADVANCE WATERMARK")
        return AlterStreamingTable(kind=kind, name=name, advance=_advance(reader))
    if not reader.skip("SET"):
        expected = "SET, ADVANCE WATERMARK TO or RESET BACKLOG"
        raise reader.unexpected(expected, after="the name")
    after = "TBLPROPERTIES" if reader.skip("TBLPROPERTIES") else "SET"
    return AlterStreamingTable(kind=kind, name=name, options=parse_options(reader, after=after))


def parse_drop_streaming_table(reader: TokenReader) -> DropJob:
    """Parse DROP STREAMING TABLE."""
    if_exists = reader.skip("IF", "EXISTS")
    name = table_name(reader, after=reader.head)
    keep_table = reader.skip("KEEP", "TABLE")
    if not reader.ended:
        raise reader.unexpected("KEEP TABLE or the end of the statement", after="the name")
    return DropJob(kind=STREAMING_TABLE, name=name, if_exists=if_exists, keep_table=keep_table)


def parse_refresh(
    reader: TokenReader, *, kind: JobKind, parse_name: ParseName
) -> RefreshStreamingTable:
    """Parse REFRESH STREAMING TABLE or REFRESH FLOW."""
    name = parse_name(reader, after=reader.head)
    if reader.at("FULL"):
        hint = f"To compute all rows again, drop the {kind.noun} and create it again."
        raise reader.unsupported("REFRESH … FULL", hint=hint)
    return RefreshStreamingTable(kind=kind, name=name)


def parse_explain_streaming_table(reader: TokenReader) -> ExplainStreamingTable:
    """Parse EXPLAIN STREAMING TABLE {name | AS query}."""
    # A table can have the name ``as``.
    if reader.at("AS") and reader.peek(1).kind is not TokenKind.END:
        reader.take()
        return ExplainStreamingTable(query=parse_stream_query(reader))
    if not reader.at_name():
        raise reader.unexpected("a table name or AS", after=reader.head)
    return ExplainStreamingTable(name=table_name(reader, after=reader.head))


def parse_show_streaming_tables(reader: TokenReader) -> ShowStreamingTables:
    """Parse SHOW STREAMING TABLES [LIKE pattern]."""
    if reader.skip("LIKE"):
        return ShowStreamingTables(like=reader.expect_text("a pattern", after="LIKE"))
    if not reader.ended:
        raise reader.unexpected("LIKE or the end of the statement", after="STREAMING TABLES")
    return ShowStreamingTables()


def checkpoints_name(reader: TokenReader, *, after: str) -> str:
    """Parse FOR and the name of a streaming table or a flow."""
    reader.expect("FOR", after=after)
    return table_name(reader, after="FOR")


def _check_name(reader: TokenReader, what: str, *, after: str) -> None:
    """Raise if the name is missing, or is not written as a name."""
    called = reader.at("IDENTIFIER") and reader.at_symbol("(", 1)
    if called and reader.peek(2).kind is TokenKind.TEXT:
        raise reader.unsupported("IDENTIFIER(…)", place=after, hint="Write the name itself.")
    # The name itself can be ``as``, if WITH (…) or the keyword AS follows.
    queried = reader.peek(1).keyword in ("INSERT", "SELECT", "WITH", "FROM")
    if reader.at("AS") and queried and not reader.at_symbol("(", 2):
        raise reader.unexpected(what, after=after)


def _advance(reader: TokenReader) -> str:
    if reader.skip("FINAL"):
        return "FINAL"
    if not reader.at("TIMESTAMP"):
        raise reader.unexpected("TIMESTAMP or FINAL", after="ADVANCE WATERMARK TO")
    reader.take()
    token = reader.peek()
    text = reader.expect_text("a timestamp", after="TIMESTAMP")
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        raise reader.error(
            f'TIMESTAMP must be a date and a time, not "{text[:SHOWN_CHARACTERS_MAX]}"',
            token=token,
            hint="Write for example TIMESTAMP '2026-05-01 12:00:00'. A zone is +02:00 or Z.",
        ) from error
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clauses:
    """The clauses between the columns and AS."""

    text_by_word: dict[str, str]
    partition_by: tuple[str, ...]
    options: Properties


def _clauses(reader: TokenReader, columns: tuple[StreamColumn, ...]) -> _Clauses:
    text_by_word: dict[str, str] = {}
    partition_by: tuple[str, ...] = ()
    options: Properties = ()
    while not reader.skip("AS"):
        _check_clause(reader, text_by_word)
        word = reader.take().keyword
        text_by_word[word] = ""
        if word == "PARTITIONED":
            partition_by = _partition_by(reader, columns)
        elif word in ("TBLPROPERTIES", "WITH"):
            options = parse_options(reader, after=word, given=options)
        else:
            text_by_word[word] = _clause_text(reader, word)
    return _Clauses(text_by_word=text_by_word, partition_by=partition_by, options=options)


def _check_clause(reader: TokenReader, text_by_word: dict[str, str]) -> None:
    word = reader.peek().keyword
    if word in _REFUSED_CLAUSES:
        construct, hint = _REFUSED_CLAUSES[word]
        raise reader.unsupported(construct, place=_CREATE, hint=hint)
    if reader.ended:
        raise reader.unsupported(f"{_CREATE} without AS query", hint=_NO_QUERY_HINT)
    if word in text_by_word:
        raise reader.error(f"{_EXPECTED_CLAUSES[word]} is specified more than once")
    if word not in _EXPECTED_CLAUSES:
        missing = [text for key, text in _EXPECTED_CLAUSES.items() if key not in text_by_word]
        expected = ", ".join(missing) + " or AS" if missing else "AS"
        raise reader.unexpected(expected, choices=[*_EXPECTED_CLAUSES, "AS"])


def _clause_text(reader: TokenReader, word: str) -> str:
    token = reader.peek()
    if word == "USING":
        name = plain_name(reader, "DELTA", after="USING")
        if name.upper() != "DELTA" or reader.at_symbol("."):
            hint = "Write USING DELTA."
            raise reader.unsupported(f"USING {name}", place=_CREATE, token=token, hint=hint)
        return ""
    text = joined_text(reader, f"a {word.lower()}", after=word)
    if word == "LOCATION" and not text.strip():
        raise reader.error("LOCATION must not be empty", token=token)
    return text


def _partition_by(reader: TokenReader, columns: tuple[StreamColumn, ...]) -> tuple[str, ...]:
    """Parse the partition columns; they keep the spelling of the column list."""
    declared = {column.name.lower(): column.name for column in columns}
    name_by_key: dict[str, str] = {}
    for token in partition_names(reader, place=_CREATE):
        key = token.text.lower()
        if key in name_by_key:
            message = f'partition column "{token.text}" is specified more than once'
            raise reader.error(message, token=token)
        if declared and key not in declared:
            message = f'partition column "{token.text}" is not in the column list'
            raise reader.error(message, token=token)
        name_by_key[key] = declared.get(key, token.text)
    return tuple(name_by_key.values())


_BY_NAME_HINT = "Write INSERT INTO t BY NAME SELECT …. Columns are matched by name."
# The words after AS that are not supported in a flow, with hints.
_REFUSED_FLOWS = {
    "AUTO CDC": CDC_HINT,
    "APPLY CHANGES": CDC_HINT,
    "INSERT OVERWRITE": "A flow appends rows: write INSERT INTO.",
    "INSERT WITH SCHEMA EVOLUTION": _BY_NAME_HINT,
}
# The words after INSERT INTO t that are not supported in a flow.
_INSERT_MODIFIERS = {
    "IF": "IF NOT EXISTS",
    "PARTITION": "PARTITION",
    "REPLACE": "REPLACE WHERE",
    "WITH": "INSERT INTO … WITH",
}


def _insert_target(reader: TokenReader) -> str:
    """Parse INSERT INTO [TABLE] t BY NAME; return the table."""
    for phrase, hint in _REFUSED_FLOWS.items():
        if reader.at(*phrase.split()):
            raise reader.unsupported(phrase, place=_FLOW, hint=hint)
    reader.expect("INSERT", after="AS")
    reader.expect("INTO", after="INSERT")
    if _at_word_before_name(reader, "ONCE"):
        raise reader.unsupported("INSERT INTO ONCE", place=_FLOW, hint=_BY_NAME_HINT)
    if _at_word_before_name(reader, "TABLE"):
        reader.take()
    _check_name(reader, "a table name", after="INSERT INTO")
    table = table_name(reader, after="INSERT INTO")
    if not reader.skip("BY", "NAME"):
        raise _without_by_name(reader)
    return table


def _at_word_before_name(reader: TokenReader, word: str) -> bool:
    """Return whether an optional word comes next; the word can be the name of the table."""
    return reader.at(word) and reader.at_name(1) and not reader.at(word, "BY", "NAME")


def _without_by_name(reader: TokenReader) -> UserError:
    word = reader.peek().keyword
    # WITH is also the first word of a query.
    if word in _INSERT_MODIFIERS and (word != "WITH" or reader.at_symbol("(", 1)):
        return reader.unsupported(_INSERT_MODIFIERS[word], place=_FLOW, hint=_BY_NAME_HINT)
    if _at_stream_query(reader):
        return reader.unsupported("INSERT INTO … without BY NAME", hint=_BY_NAME_HINT)
    return reader.unexpected("BY NAME", after="the table name", hint=_BY_NAME_HINT)


# Words that end the list of tables after FROM, unless they are functions or names.
_CLAUSES_AFTER_FROM = words(
    "CLUSTER DISTRIBUTE EXCEPT GROUP HAVING INTERSECT LIMIT MINUS OFFSET ORDER QUALIFY SELECT "
    "SORT UNION WHERE WINDOW"
)
_BEFORE_BY = words("CLUSTER DISTRIBUTE GROUP ORDER SORT")
_SET_OPERATIONS = words("EXCEPT INTERSECT MINUS UNION")
# Spark reads the word after ``stream`` as the name of a table, although it is a keyword.
_MISREAD = words("ANTI AS ASOF CROSS FULL INNER LEFT NATURAL RIGHT SELECT SEMI USING WITH")
# The search for DELAY OF ends after this many tokens, because a column has only a few tokens.
_EXPRESSION_TOKENS_MAX = 200
_STREAM_HINT = "Write STREAM t, or STREAM t WATERMARK ts DELAY OF INTERVAL 5 MINUTES."


@dataclass(slots=True, kw_only=True)
class _Level:
    """The state of the search inside one pair of parentheses.

    ``query``: the level has a SELECT or a FROM. ``listed``: a comma starts another table.
    ``joined``: JOIN starts another table. ``table``: a table comes next.
    """

    opening: Token | None = None
    query: bool = False
    listed: bool = False
    joined: bool = False
    table: bool = False
    first: bool = True


def parse_stream_query(reader: TokenReader) -> StreamQueryText:
    """Parse a query up to the end of the statement, and find its streams."""
    if not _at_stream_query(reader):
        raise reader.unexpected("a query", after=_last_word(reader))
    start = reader.peek().start
    streams = tuple(_streams(reader, start))
    return StreamQueryText(
        text=reader.script.text[start : reader.taken_end],
        at=reader.script.position(start),
        streams=streams,
    )


def _at_stream_query(reader: TokenReader) -> bool:
    return at_query(reader) or reader.at_any(("TABLE", "MAP", "REDUCE"))


def _last_word(reader: TokenReader) -> str:
    return reader.previous.keyword or "the clauses"


def _streams(reader: TokenReader, start: int) -> Iterator[StreamUse]:
    """Take all tokens; yield the streams among them. ``start`` is the offset of the query."""
    levels = [_Level(query=True)]
    while not reader.ended:
        level = levels[-1]
        if level.table and _at_stream(reader):
            level.table = level.first = False
            yield _stream(reader, start)
            continue
        if reader.at("DELAY", "OF", "INTERVAL"):
            hint = f"WATERMARK must follow STREAM. {_STREAM_HINT}"
            raise reader.unsupported("WATERMARK without STREAM", hint=hint)
        if reader.at_symbol("("):
            table, level.table, level.first = level.table, False, False
            levels.append(_Level(opening=reader.take(), query=table, joined=table, table=table))
        elif reader.at_symbol(")"):
            if len(levels) == 1:
                raise reader.unexpected("the end of the statement")
            levels.pop()
            reader.take()
        else:
            _take_token(reader, level)
    if levels[-1].opening is not None:
        raise reader.error('"(" is not closed', token=levels[-1].opening)


def _take_token(reader: TokenReader, level: _Level) -> None:
    before = None if level.first else reader.previous
    token = reader.take()
    # A field and an alias can have the name of a clause.
    named = before is not None and (before.is_symbol(".") or before.keyword == "AS")
    keyword = "" if named else token.keyword
    lateral = keyword == "LATERAL" and level.table
    if token.is_symbol(","):
        level.table = level.listed
    elif token.is_symbol("|") and reader.at_symbol(">"):
        level.listed, level.joined, level.table = False, level.query, False
    elif keyword == "FROM":
        # IS DISTINCT FROM is an operator, and extract(day FROM ts) is a function.
        compares = before is not None and before.keyword == "DISTINCT"
        level.query = level.query or level.first
        if level.query and not compares:
            level.listed = level.joined = level.table = True
    elif keyword == "JOIN":
        level.table = level.joined
    elif not lateral:
        level.table = False
        _enter_clause(reader, level, keyword)
    level.first = False


def _enter_clause(reader: TokenReader, level: _Level, keyword: str) -> None:
    """Change the state of a level after a keyword other than FROM and JOIN."""
    if keyword == "SELECT" or keyword in _SET_OPERATIONS or (keyword == "WITH" and level.first):
        level.query = True
    function = keyword == "WINDOW" and reader.at_symbol("(")
    name = keyword in _BEFORE_BY and not reader.at("BY")
    view = keyword == "LATERAL" and reader.at("VIEW")
    if view or (keyword in _CLAUSES_AFTER_FROM and not function and not name):
        level.listed = level.joined = False


def _at_stream(reader: TokenReader) -> bool:
    """Return whether a stream comes next; a table can have the name ``stream``."""
    if not reader.at("STREAM"):
        return False
    token = reader.peek(1)
    if token.keyword in _MISREAD:
        raise reader.error(
            f"the table name stream before {token.keyword} must be in backquotes",
            hint=f"Write `stream` {token.keyword}. Without backquotes, STREAM reads a table.",
        )
    travels = reader.peek(2).keyword == "AS" and reader.peek(3).keyword == "OF"
    sampled = token.keyword == "TABLESAMPLE" and reader.at_symbol("(", 2)
    if token.keyword in CLAUSE_WORDS or travels or sampled:
        return False
    return reader.at_symbol("(", 1) or reader.at_name(1)


def _stream(reader: TokenReader, start: int) -> StreamUse:
    first = reader.take()
    bracketed = reader.skip_symbol("(")
    name = reader.peek()
    table = table_name(reader, after="STREAM")
    if reader.at_symbol("("):
        function = f"STREAM {name.text}(…)"
        raise reader.unsupported(function, token=name, hint=_SOURCES_HINT)
    if bracketed:
        reader.expect_symbol(")", after="the table name")
    if reader.at_symbol("."):
        raise reader.unexpected("the end of the name", hint="Write default.t, or just t.")
    _check_extension(reader)
    clause = reader.peek(1)
    qualifier, watermark = _watermark(reader) if _at_watermark(reader) else (None, None)
    end = reader.taken_end
    if watermark is not None and _at_watermark(reader):
        message = f'WATERMARK of the stream "{table}" is specified more than once'
        raise reader.error(message, hint=_STREAM_HINT)
    alias = _alias(reader)
    if _at_watermark(reader) and alias is not None:
        hint = f"Write STREAM {table} WATERMARK … DELAY OF INTERVAL … {alias}."
        raise reader.error(f'WATERMARK must come before the alias "{alias}"', hint=hint)
    if qualifier is not None and qualifier.lower() != (alias or table).lower():
        raise _expression_error(reader, clause)
    return StreamUse(
        table=table,
        start=first.start - start,
        end=end - start,
        watermark=watermark,
        alias=alias,
    )


def _check_extension(reader: TokenReader) -> None:
    """Raise for the clauses of Spark between the table and WATERMARK."""
    word = reader.peek().keyword
    if word == "CHANGES":
        hint = "A stream reads appended rows. Write AS `changes` for an alias."
        raise reader.unsupported("STREAM … CHANGES", hint=hint)
    if word == "WITH" and reader.at_symbol("(", 1):
        hint = "Write the options in WITH (…) of the statement."
        raise reader.unsupported("STREAM … WITH (…)", hint=hint)
    if reader.at("IDENTIFIED", "BY"):
        raise reader.unsupported("STREAM … IDENTIFIED BY", hint=_REMOVE)
    if word == "TABLESAMPLE" and reader.at_symbol("(", 1):
        raise reader.unsupported("STREAM … TABLESAMPLE", hint=_REMOVE)
    if reader.peek(1).keyword == "AS" and reader.peek(2).keyword == "OF":
        hint = "A stream reads all rows of a table. Remove the clause."
        raise reader.unsupported(f"STREAM … {word} AS OF", hint=hint)


def _at_watermark(reader: TokenReader) -> bool:
    """Return whether the clause WATERMARK comes next; an alias can be ``watermark``."""
    if not reader.at("WATERMARK"):
        return False
    if _distance_of_delay(reader) is not None:
        return True
    return reader.at_name(1) and reader.peek(1).keyword not in CLAUSE_WORDS


def _distance_of_delay(reader: TokenReader) -> int | None:
    """Return the number of tokens from WATERMARK to DELAY OF; None if there is none."""
    depth = 0
    for distance in range(1, _EXPRESSION_TOKENS_MAX):
        token = reader.peek(distance)
        depth += reader.at_symbol("(", distance) - reader.at_symbol(")", distance)
        called = reader.at_symbol("(", distance + 1)
        stops = token.is_symbol(",") or (token.keyword in CLAUSE_WORDS and not called)
        if token.kind is TokenKind.END or depth < 0 or (depth == 0 and stops):
            return None
        delay = token.keyword == "DELAY" and reader.peek(distance + 1).keyword == "OF"
        if depth == 0 and delay and distance > 1:
            return distance
    return None


def _watermark(reader: TokenReader) -> tuple[str | None, Watermark]:
    """Parse WATERMARK c DELAY OF INTERVAL …; return the qualifier of the column, too."""
    distance = _distance_of_delay(reader)
    reader.take()
    if distance is None:
        plain_name(reader, "a column name", after="WATERMARK")
        raise reader.unexpected("DELAY OF", after="the column", hint=_STREAM_HINT)
    tokens = [reader.take() for _ in range(distance - 1)]
    reader.skip("DELAY", "OF")
    column, qualifier = _column_path(tokens)
    if column is None:
        raise _expression_error(reader, tokens[0])
    delay_ms = interval_ms(reader, after="DELAY OF")
    return qualifier, Watermark(column=column, delay_ms=delay_ms)


def _column_path(tokens: list[Token]) -> tuple[str | None, str | None]:
    """Return the column and the qualifier that tokens name; None for an expression."""
    while tokens and tokens[0].is_symbol("(") and tokens[-1].is_symbol(")"):
        tokens = tokens[1:-1]
    match [
        token.text if token.kind in _NAMES or token.is_symbol(".") else "" for token in tokens
    ]:
        case [column] if column not in ("", "."):
            return column, None
        case [qualifier, ".", column] if qualifier and column:
            return column, qualifier
    return None, None


def _expression_error(reader: TokenReader, token: Token) -> UserError:
    return reader.error(
        "WATERMARK must be on a column of the table, not on an expression",
        token=token,
        code=Code.NOT_SUPPORTED_ERR,
        hint=f"Store the event time in a column of the table. {_STREAM_HINT}",
    )


def _alias(reader: TokenReader) -> str | None:
    if reader.skip("AS"):
        return plain_name(reader, "an alias", after="AS")
    if not reader.at_name() or reader.at_any(CLAUSE_WORDS) or reader.at("BIN", "BY"):
        return None
    return plain_name(reader, "an alias")
