"""Complete statements: keywords, names, and the keys and values of options.

Keywords come from the parser. The first words come from the table of statements. The
other words come from the error of the parser at the end of the text. This module lists only the
optional words that these errors do not name.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, Field, dataclass, replace
from enum import Enum
from itertools import chain
from typing import Any, get_args

from penstock.cli.prompt.commands import MEANING_BY_COMMAND, MEANING_BY_ENDING, outside
from penstock.cli.prompt.guide import HELP_BY_HEAD
from penstock.errors import UserError
from penstock.model.job_kinds import (
    ROUTINE_LOAD,
    STREAMING,
    STREAMING_TABLE,
    JobKind,
)
from penstock.model.options import open_fields, option_fields, option_key, rule_of
from penstock.model.schema import Primitive
from penstock.model.text import quoted_name
from penstock.sources.registry import kinds_of
from penstock.sources.source import SourceKind
from penstock.sql.lexer import Token, TokenKind, read_script, tokenize
from penstock.sql.parser import parse_script, statement_heads

NamesOf = Callable[[], Iterable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Functions that list names, called when a name is completed."""

    # Jobs of every kind, including routine loads, streaming tables and flows.
    jobs: NamesOf
    routine_loads: NamesOf
    streaming_tables: NamesOf
    flows: NamesOf
    # All tables, including streaming tables.
    tables: NamesOf
    secrets: NamesOf


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """The explanation of an option, and its values if they are few."""

    explanation: str
    values: tuple[str, ...] = ()


# The kinds of jobs whose statements call a source by its function.
_CALLING = (STREAMING, ROUTINE_LOAD)
# Frequent values of options that have no fixed list of values.
_FREQUENT_VALUES: dict[str, tuple[str, ...]] = {"starting": ("earliest", "latest")}


def _start_options(kind: SourceKind) -> tuple[type, ...]:
    return () if kind.start_options is None else (kind.start_options,)


def _options_of(call: str, place: "_Place", *, names: Names) -> dict[str, _Option] | None:
    """Return the options of a source or an option list, by key; None for any other call."""
    classes_by_function = {
        function: (kind.options, *(_start_options(kind) if one is ROUTINE_LOAD else ()))
        for one in _CALLING
        for kind in kinds_of(one.name)
        for function in kind.functions
    }
    if call in classes_by_function:
        return _declared(*classes_by_function[call], names=names)
    match call, place.about:
        case "PROPERTIES", "ROUTINE":
            return _declared(ROUTINE_LOAD.properties, names=names)
        case "PROPERTIES", "JOB":
            starts = map(_start_options, kinds_of(STREAMING.name))
            return _declared(STREAMING.properties, *chain(*starts), names=names)
        case (("WITH" | "TBLPROPERTIES" | "SET"), ("STREAMING" | "FLOW")):
            return _streaming_options(alter=place.keywords[0] == "ALTER", names=names)
        case _, "SECRET":
            classes = chain.from_iterable(classes_by_function.values())
            secret = [f for one in classes for f in option_fields(one) if rule_of(f).secret]
            return {option_key(f): _Option(explanation=rule_of(f).explanation) for f in secret}
        case (("JOBS" | "TASKS"), _):
            return {"type": _Option(explanation="Kind of the jobs.", values=("insert",))}
        case "REJECTS", _:
            jobs = tuple(names.jobs())
            return {"job": _Option(explanation="Job with the rejected rows.", values=jobs)}
        case _:
            return None


def _streaming_options(*, alter: bool, names: Names) -> dict[str, _Option]:
    """Return the options of a streaming table, and of the tables that it streams."""
    from penstock.control.stream_tables import FROZEN_OPTIONS

    kinds = kinds_of(STREAMING_TABLE.name)
    classes = [one for kind in kinds for one in (*_start_options(kind), kind.options)]
    found = _declared(STREAMING_TABLE.properties, *classes, names=names)
    refused = {key for kind in kinds for key in kind.fixed}
    if alter:
        refused.update(FROZEN_OPTIONS)
    return {key: one for key, one in found.items() if key not in refused}


def _declared(*kinds: type, names: Names) -> dict[str, _Option]:
    """Return the options of classes; required options come first."""
    declared = chain.from_iterable(map(option_fields, kinds))
    ordered = sorted(declared, key=lambda f: f.default is not MISSING)
    found = {option_key(f): _choice(f, names=names) for f in ordered}
    for f in chain.from_iterable(map(open_fields, kinds)):
        found[f.metadata["prefix"]] = _Option(explanation=f.metadata["explanation"])
    return found


def _choice(declared: Field[Any], *, names: Names) -> _Option:
    rule = rule_of(declared)
    must = "Required. " if declared.default is MISSING else ""
    values = _FREQUENT_VALUES.get(option_key(declared), ())
    # The type of an optional value is a union with None.
    for kind in get_args(declared.type) or (declared.type,):
        if kind is bool:
            values = ("true", "false")
        elif isinstance(kind, type) and issubclass(kind, Enum):
            values = tuple(str(member.value) for member in kind)
    if rule.none_word:
        values = (rule.none_word, *values)
    if rule.secret:
        values = tuple(f"secret:{name}" for name in names.secrets())
    return _Option(explanation=f"{must}{rule.explanation}", values=values)


_KEYWORDS = re.compile(r"[A-Z][A-Z ]*\Z")
_QUOTES = ("'", '"', "`")
# No statement contains this text, so the parser raises an error that names what it expects.
_UNEXPECTED = " ?"
_WORDS = {"help": "list statements, commands and keys", "exit": "quit the prompt"}
_TABLE_WORDS = frozenset({"DESC", "DESCRIBE", "DETAIL", "INTO", "JOIN", "TABLE"})
_TYPES = (*(kind.value for kind in Primitive), "DECIMAL(", "ARRAY<", "MAP<", "STRUCT<")
_STREAM_WORDS = (
    "FROM", "WHERE", "GROUP BY", "HAVING", "JOIN", "LEFT JOIN", "ON", "AS", "AND", "OR", "NOT",
    "IN", "IS NULL", "IS NOT NULL", "LIKE", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "END",
    "CAST(", "DISTINCT", "LATERAL VIEW", "UNION ALL",
)  # fmt: skip
# A query over streams has no order and no end, so it cannot use these words.
_QUERY_WORDS = (*_STREAM_WORDS, "ORDER BY", "LIMIT", "VERSION AS OF", "DESC")
_WINDOWS = ("window(", "session_window(", "INTERVAL")
_WORDS_BY_EXPECTED: dict[str, tuple[str, ...]] = {
    "a type": _TYPES,
    "a unit": ("SECONDS", "MINUTES", "HOURS", "DAYS", "WEEKS", "MILLISECONDS"),
}
# Names of a source in errors of the parser, and the text to write before the source.
_SOURCES = {"FROM source": "FROM ", "a source": ""}
# Completions for other words that the parser expects.
_COMPLETION_BY_PHRASE = {
    "PROPERTIES": "PROPERTIES(",
    "COLUMNS": "COLUMNS(",
    "INSERT": "INSERT INTO",
    "DO INSERT": "DO INSERT INTO",
    "PARTITIONED BY": "PARTITIONED BY (",
    "TBLPROPERTIES": "TBLPROPERTIES (",
    "WITH": "WITH (",
    "SET": "SET (",
    "DELAY OF": "DELAY OF INTERVAL",
    "SET WATERMARK": "SET WATERMARK FOR",
    "AS": "AS SELECT",
    "a query": "SELECT",
}
# Optional clauses before words that the parser expects.
_OPTIONAL_BY_PHRASE = {"ON STREAMING": "PROPERTIES(", "DO INSERT": "COMMENT"}
_IF_BY_HEAD = {
    **dict.fromkeys(
        ("CREATE TABLE", "CREATE STREAMING TABLE", "CREATE SECRET"), "IF NOT EXISTS"
    ),
    **dict.fromkeys(
        ("DROP TABLE", "DROP JOB", "DROP STREAMING TABLE", "DROP FLOW", "DROP SECRET"),
        "IF EXISTS",
    ),
}


# Words between the verb of a statement and the kind of its object.
_BEFORE_KIND = frozenset({"ALL", "CREATE", "OR", "REFRESH"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A text that replaces the last ``replaced`` characters before the cursor."""

    text: str
    label: str
    meaning: str = ""
    replaced: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The cursor: the statement before the current word, and the word up to the cursor."""

    before: str
    tokens: tuple[Token, ...]
    written: str
    quote: str

    @property
    def keywords(self) -> tuple[str, ...]:
        return tuple(token.keyword for token in self.tokens)

    @property
    def last(self) -> str:
        return self.tokens[-1].keyword if self.tokens else ""

    def rest(self, phrase: str) -> str:
        """Return a phrase without its first word, if this word is before the cursor."""
        first, _, rest = phrase.partition(" ")
        return rest if rest and first == self.last else phrase

    @property
    def about(self) -> str:
        """The first word of the kind of object: JOB, ROUTINE, STREAMING, FLOW, SECRET."""
        words = (word for word in self.keywords[1:4] if word not in _BEFORE_KIND)
        return next(words, "")

    @property
    def streams(self) -> bool:
        """Whether a query of the statement reads streams."""
        return self.about in ("STREAMING", "FLOW")


def candidates(text: str, *, names: Names) -> tuple[Candidate, ...]:
    """Return the completions at the end of a text, in the order to show them."""
    place = _place(text)
    if place is None:
        return ()
    matching = _matching(list(_found(place, names=names)), place.written)
    # Keep the first of equal candidates.
    unique = list({found.text: found for found in reversed(matching)}.values())[::-1]
    if place.written.islower() and not place.quote:
        unique = [_lowered(found) for found in unique]
    replaced = len(place.written)
    return tuple(replace(c, replaced=replaced) for c in unique if c.text != place.written)


def _found(place: _Place, *, names: Names) -> Iterator[Candidate]:
    if place.tokens and place.tokens[-1].is_symbol("\\"):
        meanings = MEANING_BY_COMMAND if len(place.tokens) == 1 else MEANING_BY_ENDING
        for command, meaning in meanings.items():
            bare = command.removeprefix("\\")
            yield Candidate(text=bare, label=command, meaning=meaning)
        return
    listed = _in_list(place, names=names)
    if listed is not None:
        yield from listed
        return
    if "SELECT" in place.keywords or place.keywords[:1] in (("FROM",), ("WITH",)):
        yield from _query(place, names=names)
        return
    heads = [] if place.quote else list(_heads(place))
    yield from heads
    if place.tokens:
        whole = place.keywords in statement_heads()
        yield from _expected(place, words=whole or not heads, names=names)


def _place(text: str) -> _Place | None:
    """Find the word at the end of a text; return None in a comment or unreadable text."""
    for quote in ("", *_QUOTES):
        try:
            tokens = tokenize(read_script(text + quote))
        except UserError:
            continue
        if not quote and not outside(text):
            return None
        return _place_in(text, tokens, quote=quote)
    return None


def _place_in(text: str, tokens: tuple[Token, ...], *, quote: str) -> _Place:
    start = len(text)
    written = ""
    if quote:
        start, written = tokens[-1].start, text[tokens[-1].start + 1 :]
        tokens = tokens[:-1]
    elif tokens and tokens[-1].end == len(text) and tokens[-1].kind is TokenKind.WORD:
        start, written = tokens[-1].start, tokens[-1].text
        tokens = tokens[:-1]
    ends = [index for index, token in enumerate(tokens) if token.is_symbol(";")]
    first = ends[-1] + 1 if ends else 0
    after = tokens[ends[-1]].end if ends else 0
    return _Place(before=text[after:start], tokens=tokens[first:], written=written, quote=quote)


def _in_list(place: _Place, *, names: Names) -> list[Candidate] | None:
    """Return options or values of an option; None outside of a list of options."""
    opened: list[int] = []
    for index, token in enumerate(place.tokens):
        if token.is_symbol("("):
            opened.append(index)
        elif token.is_symbol(")") and opened:
            opened.pop()
    if not opened or opened[-1] == 0:
        return None
    options = _options_of(place.keywords[opened[-1] - 1], place, names=names)
    if options is None:
        return None
    inside = place.tokens[opened[-1] + 1 :]
    if not inside or inside[-1].is_symbol(","):
        given = {token.text.lower() for token in inside if token.kind is TokenKind.TEXT}
        offered = {key: one for key, one in options.items() if key not in given}
        return [_key(key, one.explanation, place) for key, one in offered.items()]
    chosen = options.get(inside[-2].text) if inside[-1].is_symbol("=") else None
    return [_value(value, place) for value in chosen.values] if chosen else []


def _key(key: str, explanation: str, place: _Place) -> Candidate:
    quote = place.quote or '"'
    opening = "" if place.quote else quote
    text = f"{opening}{key}{quote} = {quote}"
    return Candidate(text=text, label=key, meaning=explanation)


def _value(value: str, place: _Place) -> Candidate:
    text = f"{value}{place.quote}" if place.quote else f'"{value}"'
    return Candidate(text=text, label=value)


def _query(place: _Place, *, names: Names) -> Iterator[Candidate]:
    if place.quote in ("'", '"'):
        return
    words: Iterable[str] = _stream_words(place) if place.streams else _QUERY_WORDS
    if place.last in ("FROM", "JOIN", "STREAM"):
        yield from _named(names.tables(), place)
    if place.last in ("FROM", "JOIN") and not place.streams:
        words = ("jobs(", "tasks(", "rejects(")
        if place.keywords[0] in ("ALTER", "CREATE"):
            words = _source_calls(STREAMING)
    if not place.quote:
        yield from _phrases(words)


def _stream_words(place: _Place) -> Iterable[str]:
    """Return the words that can follow in a query over streams."""
    if place.last in ("FROM", "JOIN"):
        return ("STREAM",)
    # A table or a column follows.
    if place.last in ("STREAM", "WATERMARK"):
        return ()
    if place.keywords[-2:-1] == ("STREAM",):
        return ("WATERMARK", *_STREAM_WORDS)
    expected = _expected_words(place, _parser_expects(place.before))
    return expected or (*_STREAM_WORDS, *_WINDOWS)


def _source_calls(kind: JobKind) -> Iterator[str]:
    """Return the calls, up to the parenthesis, of all sources that jobs of a kind read."""
    return (f"{function}(" for one in kinds_of(kind.name) for function in one.functions)


def _heads(place: _Place) -> Iterator[Candidate]:
    """Yield the next words of all statements that start with the words before the cursor."""
    words = place.keywords
    for head in statement_heads():
        if len(head) > len(words) and head[: len(words)] == words:
            statement = " ".join(head)
            expected = _parser_expects(statement)
            required = [] if "the end of the statement" in expected else _keywords(expected)[:1]
            phrase = " ".join([*head[len(words) :], *required])
            yield from _phrases([phrase], meaning=HELP_BY_HEAD[statement].meaning)
    if not words:
        for word, meaning in _WORDS.items():
            yield from _phrases([word], meaning=meaning)


def _expected(place: _Place, *, words: bool, names: Names) -> Iterator[Candidate]:
    expected = _parser_expects(place.before)
    if place.quote in ("", "`"):
        yield from _named(_names(place, expected, names=names), place)
    elif expected == "a job name in quotes":
        yield from (_value(name, place) for name in _jobs(place, names=names))
    if words and not place.quote:
        phrases = _keywords(expected)
        before = [
            _OPTIONAL_BY_PHRASE[phrase] for phrase in phrases if phrase in _OPTIONAL_BY_PHRASE
        ]
        yield from _phrases(p for p in before if p.rstrip("(") not in place.keywords)
        yield from _phrases(_expected_words(place, expected))
        head = " ".join(place.keywords)
        yield from _phrases([_IF_BY_HEAD[head]] if head in _IF_BY_HEAD else ())


def _expected_words(place: _Place, expected: str) -> list[str]:
    """Return the words that the parser expects next, or the rest of a phrase."""
    if not expected and place.tokens:
        # The parser does not accept the first word of a phrase without the second word.
        token = place.tokens[-1]
        before = place.before.rstrip()[: token.start - token.end]
        rests = _completions(_parser_expects(before))
        return [rest for rest in map(place.rest, rests) if rest not in rests]
    return [place.rest(phrase) for phrase in _completions(expected)]


def _completions(expected: str) -> list[str]:
    """Return the texts to offer for what the parser expects."""
    found: list[str] = []
    for phrase in _keywords(expected):
        if phrase in _SOURCES:
            found += [f"{_SOURCES[phrase]}{call}" for call in _source_calls(ROUTINE_LOAD)]
        else:
            found.append(_COMPLETION_BY_PHRASE.get(phrase, phrase))
    return [*found, *_WORDS_BY_EXPECTED.get(expected, ())]


def _parser_expects(statement: str) -> str:
    """Return what the parser expects after the start of a statement."""
    try:
        parse_script(statement + _UNEXPECTED)
    except UserError as error:
        return error.expected
    return ""


def _keywords(expected: str) -> list[str]:
    phrases = re.split(", | or ", expected)
    known = (*_SOURCES, *_COMPLETION_BY_PHRASE)
    return [phrase for phrase in phrases if phrase in known or _KEYWORDS.match(phrase)]


def _names(place: _Place, expected: str, *, names: Names) -> Iterable[str]:
    """Return the existing names that fit; none where the statement needs a new name."""
    creating = place.keywords[0] == "CREATE" and place.keywords in statement_heads()
    if creating and "REFRESH" in place.keywords:
        return names.streaming_tables()
    if creating or place.keywords[-2:] == ("NOT", "EXISTS"):
        return ()
    if place.last == "SECRET" or expected == "a secret name":
        return names.secrets()
    if expected == "a job name":
        return _jobs(place, names=names)
    if expected.startswith("a table name") or place.last in _TABLE_WORDS:
        return _tables(place, names=names)
    return ()


def _tables(place: _Place, *, names: Names) -> Iterable[str]:
    """Return the tables that a statement accepts: all, streaming tables, or the others."""
    if place.about == "CHECKPOINTS":
        return [*names.streaming_tables(), *names.flows()]
    if place.about in ("STREAMING", "FLOW"):
        return names.streaming_tables()
    if place.keywords[0] in ("CREATE", "DROP") or place.last == "INTO":
        streaming = set(names.streaming_tables())
        return [name for name in names.tables() if name not in streaming]
    return names.tables()


def _jobs(place: _Place, *, names: Names) -> Iterable[str]:
    """Return the jobs that a statement accepts: all jobs, or the jobs of one kind."""
    if place.about == "FLOW":
        return names.flows()
    if "ROUTINE" in place.keywords or "SHARDS" in place.keywords:
        return names.routine_loads()
    if "JOB" in place.keywords:
        others = {*names.routine_loads(), *names.streaming_tables(), *names.flows()}
        return [name for name in names.jobs() if name not in others]
    return names.jobs()


def _named(names: Iterable[str], place: _Place) -> Iterator[Candidate]:
    for name in names:
        quoted = f"{name.replace('`', '``')}`" if place.quote else quoted_name(name)
        yield Candidate(text=quoted, label=name)


def _phrases(phrases: Iterable[str], *, meaning: str = "") -> Iterator[Candidate]:
    return (Candidate(text=phrase, label=phrase, meaning=meaning) for phrase in phrases)


def _matching(found: list[Candidate], written: str) -> list[Candidate]:
    """Return the candidates that start with the word; if none does, those that contain it."""
    typed = written.lower()
    bare = [(candidate, candidate.label.lstrip("\\").lower()) for candidate in found]
    starting = [candidate for candidate, label in bare if label.startswith(typed)]
    return starting or [candidate for candidate, label in bare if typed in label]


def _lowered(candidate: Candidate) -> Candidate:
    """Return keywords in lower case; names and options keep their case."""
    if candidate.text != candidate.label or not candidate.text.isupper():
        return candidate
    lower = candidate.text.lower()
    return replace(candidate, text=lower, label=lower)
