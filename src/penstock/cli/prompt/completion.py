"""Complete statements: keywords, names, and the keys and values of options.

Keywords come from the parser. The first words come from the table of statements, and the
others from the error of the parser at the end of the text. This module lists only the optional
words that these errors do not name.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, Field, dataclass, replace
from enum import Enum
from itertools import chain
from typing import Any

from penstock.cli.prompt.commands import MEANING_BY_COMMAND, MEANING_BY_ENDING, outside
from penstock.cli.prompt.guide import HELP_BY_HEAD
from penstock.errors import UserError
from penstock.model.job_kinds import ROUTINE_LOAD, STREAMING, JobKind
from penstock.model.options import open_fields, option_fields, option_key, rule_of
from penstock.model.schema import Primitive
from penstock.model.text import quoted_name
from penstock.sources.registry import kinds_of, source_kinds
from penstock.sources.source import SourceKind
from penstock.sql.lexer import Token, TokenKind, read_script, tokenize
from penstock.sql.parser import parse_script, statement_heads

NamesOf = Callable[[], Iterable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Functions that list names, called when a name is completed."""

    # Jobs of every kind, including routine loads.
    jobs: NamesOf
    routine_loads: NamesOf
    tables: NamesOf
    secrets: NamesOf


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """The explanation of an option, and its values if they are few."""

    explanation: str
    values: tuple[str, ...] = ()


def _start_options(kind: SourceKind, job_kind: JobKind) -> tuple[type, ...]:
    """Return the start options of a source, if jobs of the kind can read the source."""
    start = kind.start_options
    return (start,) if start is not None and job_kind.name in kind.job_kinds else ()


def _options_of(call: str, *, about: str, names: Names) -> dict[str, _Option] | None:
    """Return the options of a source or of PROPERTIES by key; None for another word.

    ``about`` is the second word of the statement: JOB, ROUTINE, SECRET.
    """
    classes_by_function = {
        function: (kind.options, *_start_options(kind, ROUTINE_LOAD))
        for kind in source_kinds()
        for function in kind.functions
    }
    if call in classes_by_function:
        return _declared(*classes_by_function[call], names=names)
    match call, about:
        case "PROPERTIES", "ROUTINE":
            return _declared(ROUTINE_LOAD.properties, names=names)
        case "PROPERTIES", "JOB":
            starts = (_start_options(kind, STREAMING) for kind in source_kinds())
            return _declared(STREAMING.properties, *chain(*starts), names=names)
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
    values: tuple[str, ...] = ()
    if declared.type is bool:
        values = ("true", "false")
    elif isinstance(declared.type, type) and issubclass(declared.type, Enum):
        values = tuple(str(member.value) for member in declared.type)
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
_QUERY_WORDS = (
    "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "JOIN", "LEFT JOIN", "ON", "AS",
    "AND", "OR", "NOT", "IN", "IS NULL", "IS NOT NULL", "LIKE", "BETWEEN", "CASE", "WHEN",
    "THEN", "ELSE", "END", "CAST(", "DISTINCT", "LATERAL VIEW", "UNION ALL", "VERSION AS OF",
    "DESC",
)  # fmt: skip
# Names of a source in errors of the parser, and the text to write before the source.
_SOURCES = {"FROM source": "FROM ", "a source": ""}
# Completions for other words that the parser expects.
_COMPLETION_BY_PHRASE = {
    "PROPERTIES": "PROPERTIES(",
    "COLUMNS": "COLUMNS(",
    "INSERT": "INSERT INTO",
    "DO INSERT": "DO INSERT INTO",
    "PARTITIONED BY": "PARTITIONED BY (",
}
# Optional clauses before words that the parser expects.
_OPTIONAL_BY_PHRASE = {"ON STREAMING": "PROPERTIES(", "DO INSERT": "COMMENT"}
_IF_BY_HEAD = {
    **dict.fromkeys(("CREATE TABLE", "CREATE SECRET"), "IF NOT EXISTS"),
    **dict.fromkeys(("DROP TABLE", "DROP JOB", "DROP SECRET"), "IF EXISTS"),
}


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
    about = place.keywords[1] if len(place.tokens) > 1 else ""
    options = _options_of(place.keywords[opened[-1] - 1], about=about, names=names)
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
    words: Iterable[str] = _QUERY_WORDS
    if place.last in ("FROM", "JOIN"):
        yield from _named(names.tables(), place)
        words = ("jobs(", "tasks(", "rejects(")
        if place.keywords[0] in ("ALTER", "CREATE"):
            words = _source_calls(STREAMING)
    if not place.quote:
        yield from _phrases(words)


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
        for phrase in phrases:
            if phrase in _SOURCES:
                calls = _source_calls(ROUTINE_LOAD)
                yield from _phrases(f"{_SOURCES[phrase]}{call}" for call in calls)
            else:
                yield from _phrases([_COMPLETION_BY_PHRASE.get(phrase, phrase)])
        yield from _phrases(_TYPES if expected == "a type" else ())
        head = " ".join(place.keywords)
        yield from _phrases([_IF_BY_HEAD[head]] if head in _IF_BY_HEAD else ())


def _parser_expects(statement: str) -> str:
    """Return what the parser expects after the start of a statement."""
    try:
        parse_script(statement + _UNEXPECTED)
    except UserError as error:
        return error.expected
    return ""


def _keywords(expected: str) -> list[str]:
    phrases = re.split(", | or ", expected)
    return [phrase for phrase in phrases if phrase in _SOURCES or _KEYWORDS.match(phrase)]


def _names(place: _Place, expected: str, *, names: Names) -> Iterable[str]:
    """Return the existing names that fit; none where the statement needs a new name."""
    creating = place.keywords[0] == "CREATE" and place.keywords in statement_heads()
    if creating or place.keywords[-2:] == ("NOT", "EXISTS"):
        return ()
    if place.last == "SECRET" or expected == "a secret name":
        return names.secrets()
    if expected == "a job name":
        return _jobs(place, names=names)
    if expected == "a table name" or place.last in _TABLE_WORDS:
        return names.tables()
    return ()


def _jobs(place: _Place, *, names: Names) -> Iterable[str]:
    """Return the jobs that a statement accepts: all jobs, or the jobs of one kind."""
    if "ROUTINE" in place.keywords or "SHARDS" in place.keywords:
        return names.routine_loads()
    if "JOB" in place.keywords:
        loads = set(names.routine_loads())
        return [name for name in names.jobs() if name not in loads]
    return names.jobs()


def _named(names: Iterable[str], place: _Place) -> Iterator[Candidate]:
    for name in names:
        quoted = f"{name.replace('`', '``')}`" if place.quote else quoted_name(name)
        yield Candidate(text=quoted, label=name)


def _phrases(phrases: Iterable[str], *, meaning: str = "") -> Iterator[Candidate]:
    return (Candidate(text=phrase, label=phrase, meaning=meaning) for phrase in phrases)


def _matching(found: list[Candidate], written: str) -> list[Candidate]:
    """Return the candidates that start with the word or, without any, contain the word."""
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
