"""Complete statements: keywords, names, and the keys and values of options.

Keywords come from the parser: the first words from its table of statements, the others from
what it expects at the end of the text. Only optional words that the parser does not name in its
errors are listed here.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, replace
from enum import Enum
from itertools import chain
from typing import Any

from penstock.cli.prompt.commands import MEANING_BY_COMMAND, MEANING_BY_ENDING, outside
from penstock.cli.prompt.guide import LESSON_BY_HEAD
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
    """Functions that list names; each is called when such a name is completed."""

    # Jobs of every kind; routine loads are among them.
    jobs: NamesOf
    routine_loads: NamesOf
    tables: NamesOf
    secrets: NamesOf


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionChoice:
    """An option, its explanation and, if they are few, its values."""

    explanation: str
    values: tuple[str, ...] = ()


def option_classes() -> Mapping[str, tuple[type, ...]]:
    """Return the option classes of every source by the word in front of its options."""
    return {
        function: (kind.options, *_start_options(kind, ROUTINE_LOAD))
        for kind in source_kinds()
        for function in kind.functions
    }


def _start_options(kind: SourceKind, job_kind: JobKind) -> tuple[type, ...]:
    """Return the start options of a source, if jobs of the kind can read it."""
    start = kind.start_options
    return (start,) if start is not None and job_kind.name in kind.job_kinds else ()


def option_list(call: str, *, about: str, names: Names) -> Mapping[str, OptionChoice] | None:
    """Return the options by key of a source or of PROPERTIES; None for another word.

    ``about`` is the second word of the statement: JOB, ROUTINE, SECRET.
    """
    if call in option_classes():
        return _declared(*option_classes()[call], names=names)
    match call, about:
        case "PROPERTIES", "ROUTINE":
            return _declared(ROUTINE_LOAD.properties, names=names)
        case "PROPERTIES", "JOB":
            starts = (_start_options(kind, STREAMING) for kind in source_kinds())
            return _declared(STREAMING.properties, *chain(*starts), names=names)
        case _, "SECRET":
            return _secrets()
        case (("JOBS" | "TASKS"), _):
            return {"type": OptionChoice(explanation="Kind of the jobs.", values=("insert",))}
        case "REJECTS", _:
            jobs = tuple(names.jobs())
            return {"job": OptionChoice(explanation="Job with the rejected rows.", values=jobs)}
        case _:
            return None


def _declared(*kinds: type, names: Names) -> dict[str, OptionChoice]:
    """Return the options of classes; required ones come first."""
    declared = (f for kind in kinds for f in option_fields(kind))
    ordered = sorted(declared, key=lambda f: f.default is not MISSING)
    found = {option_key(f): _choice(f, names=names) for f in ordered}
    for f in (f for kind in kinds for f in open_fields(kind)):
        found[f.metadata["prefix"]] = OptionChoice(explanation=f.metadata["explanation"])
    return found


def _choice(declared: Field[Any], *, names: Names) -> OptionChoice:
    rule = rule_of(declared)
    must = "Required. " if declared.default is MISSING else ""
    values = _values(declared.type)
    if rule.none_word:
        values = (rule.none_word, *values)
    if rule.secret:
        values = tuple(f"secret:{name}" for name in names.secrets())
    return OptionChoice(explanation=f"{must}{rule.explanation}", values=values)


def _values(kind: object) -> tuple[str, ...]:
    if kind is bool:
        return ("true", "false")
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(str(member.value) for member in kind)
    return ()


def _secrets() -> dict[str, OptionChoice]:
    """Return the options of all sources whose values may be secrets."""
    return {
        option_key(f): OptionChoice(explanation=rule_of(f).explanation)
        for kinds in option_classes().values()
        for kind in kinds
        for f in option_fields(kind)
        if rule_of(f).secret
    }


_KEYWORDS = re.compile(r"[A-Z][A-Z ]*\Z")
_QUOTES = ("'", '"', "`")
# No statement contains this, so the error of the parser names what it expects.
_UNEXPECTED = " ?"
_WORDS = {"help": "list statements, commands and keys", "exit": "leave"}
_CREATING = (
    ("CREATE", "TABLE"),
    ("CREATE", "JOB"),
    ("CREATE", "ROUTINE", "LOAD"),
    ("CREATE", "SECRET"),
)
_TABLE_WORDS = frozenset({"DESC", "DESCRIBE", "DETAIL", "INTO", "JOIN", "TABLE"})
_TYPES = (*(kind.value for kind in Primitive), "DECIMAL(", "ARRAY<", "MAP<", "STRUCT<")
_QUERY_WORDS = (
    "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "JOIN", "LEFT JOIN", "ON", "AS",
    "AND", "OR", "NOT", "IN", "IS NULL", "IS NOT NULL", "LIKE", "BETWEEN", "CASE", "WHEN",
    "THEN", "ELSE", "END", "CAST(", "DISTINCT", "LATERAL VIEW", "UNION ALL", "VERSION AS OF",
    "DESC",
)  # fmt: skip
# What is offered for words that the parser expects.
# The words of the parser for the source of a routine load, and what comes before its name.
_SOURCES = {"FROM source": "FROM ", "a source": ""}
_WRITTEN = {
    "PROPERTIES": "PROPERTIES(",
    "COLUMNS": "COLUMNS(",
    "INSERT": "INSERT INTO",
    "DO INSERT": "DO INSERT INTO",
    "PARTITIONED BY": "PARTITIONED BY (",
}
# Optional clauses before words that the parser expects.
_BEFORE = {"ON STREAMING": "PROPERTIES(", "DO INSERT": "COMMENT"}
_IF_BY_VERB = {"CREATE": "IF NOT EXISTS", "DROP": "IF EXISTS"}
_OPTIONAL_IF = frozenset(
    {"CREATE TABLE", "CREATE SECRET", "DROP TABLE", "DROP JOB", "DROP SECRET"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A text that replaces the last ``replaced`` characters before the cursor."""

    text: str
    label: str
    meaning: str = ""
    replaced: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The statement before the word at the cursor, and the part of the word before it."""

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
    found = _unique(_matching(list(_found(place, names=names)), place.written))
    if place.written.islower() and not place.quote:
        found = [_lowered(candidate) for candidate in found]
    return tuple(c for c in found if c.text != place.written)


def _found(place: _Place, *, names: Names) -> Iterator[Candidate]:
    if place.tokens and _is_symbol(place.tokens[-1], "\\"):
        yield from _commands(place)
        return
    listed = _in_list(place, names=names)
    if listed is not None:
        yield from listed
        return
    if _in_query(place):
        yield from _query(place, names=names)
        return
    heads = [] if place.quote else list(_heads(place))
    yield from heads
    if place.tokens:
        whole = place.keywords in statement_heads()
        yield from _expected(place, words=whole or not heads, names=names)


def _place(text: str) -> _Place | None:
    """Find the word at the end of a text; None in a comment or an unreadable text."""
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
    ends = [index for index, token in enumerate(tokens) if _is_symbol(token, ";")]
    first = ends[-1] + 1 if ends else 0
    begin = tokens[ends[-1]].end if ends else 0
    return _Place(before=text[begin:start], tokens=tokens[first:], written=written, quote=quote)


def _commands(place: _Place) -> Iterator[Candidate]:
    meanings = MEANING_BY_COMMAND if len(place.tokens) == 1 else MEANING_BY_ENDING
    for command, meaning in meanings.items():
        bare = command.removeprefix("\\")
        yield Candidate(text=bare, label=command, meaning=meaning, replaced=len(place.written))


def _in_list(place: _Place, *, names: Names) -> list[Candidate] | None:
    """Return options, or values of an option; None if the cursor is not in their list."""
    opened: list[int] = []
    for index, token in enumerate(place.tokens):
        if _is_symbol(token, "("):
            opened.append(index)
        elif _is_symbol(token, ")") and opened:
            opened.pop()
    if not opened or opened[-1] == 0:
        return None
    about = place.keywords[1] if len(place.tokens) > 1 else ""
    options = option_list(place.keywords[opened[-1] - 1], about=about, names=names)
    if options is None:
        return None
    inside = place.tokens[opened[-1] + 1 :]
    if not inside or _is_symbol(inside[-1], ","):
        given = {token.text.lower() for token in inside if token.kind is TokenKind.TEXT}
        return [
            _key(key, choice.explanation, place)
            for key, choice in options.items()
            if key not in given
        ]
    chosen = options.get(inside[-2].text) if _is_symbol(inside[-1], "=") else None
    return [_value(value, place) for value in chosen.values] if chosen else []


def _key(key: str, explanation: str, place: _Place) -> Candidate:
    quote = place.quote or '"'
    opening = "" if place.quote else quote
    return Candidate(
        text=f"{opening}{key}{quote} = {quote}",
        label=key,
        meaning=explanation,
        replaced=len(place.written),
    )


def _value(value: str, place: _Place) -> Candidate:
    text = f"{value}{place.quote}" if place.quote else f'"{value}"'
    return Candidate(text=text, label=value, replaced=len(place.written))


def _in_query(place: _Place) -> bool:
    return "SELECT" in place.keywords or place.keywords[:1] in (("FROM",), ("WITH",))


def _query(place: _Place, *, names: Names) -> Iterator[Candidate]:
    if place.quote in ("'", '"'):
        return
    if place.last not in ("FROM", "JOIN"):
        yield from _phrases(() if place.quote else _QUERY_WORDS, place)
        return
    yield from _named(names.tables(), place)
    in_job = place.keywords[0] in ("ALTER", "CREATE")
    sources = (f for kind in kinds_of(STREAMING.name) for f in kind.functions)
    calls = (
        tuple(f"{function}(" for function in sources)
        if in_job
        else ("jobs(", "tasks(", "rejects(")
    )
    yield from _phrases(() if place.quote else calls, place)


def _heads(place: _Place) -> Iterator[Candidate]:
    """Yield the next words of all statements that start like this one."""
    words = place.keywords
    for head in statement_heads():
        if len(head) > len(words) and head[: len(words)] == words:
            lesson = LESSON_BY_HEAD.get(" ".join(head))
            phrase = " ".join([*head[len(words) :], *_required(" ".join(head))])
            yield from _phrases([phrase], place, meaning=lesson.meaning if lesson else "")
    if not words:
        for word, meaning in _WORDS.items():
            yield from _phrases([word], place, meaning=meaning)


def _expected(place: _Place, *, words: bool, names: Names) -> Iterator[Candidate]:
    """Yield what the parser expects next."""
    wanted = _wanted(place.before)
    if place.quote in ("", "`"):
        yield from _named(_names(place, wanted, names=names), place)
    elif wanted == "a job name in quotes":
        yield from (_value(name, place) for name in _jobs(place, names=names))
    if words and not place.quote:
        phrases = _keywords(wanted)
        before = [_BEFORE[phrase] for phrase in phrases if phrase in _BEFORE]
        given = set(place.keywords)
        yield from _phrases([p for p in before if p.rstrip("(") not in given], place)
        yield from _phrases(chain.from_iterable(map(_offered, phrases)), place)
        yield from _phrases(_TYPES if wanted == "a type" else (), place)
        if " ".join(place.keywords) in _OPTIONAL_IF:
            yield from _phrases([_IF_BY_VERB[place.keywords[0]]], place)


def _offered(phrase: str) -> list[str]:
    """Return an expected phrase with what always follows it; a source is any known one."""
    if phrase in _SOURCES:
        functions = (f for kind in kinds_of(ROUTINE_LOAD.name) for f in kind.functions)
        return [f"{_SOURCES[phrase]}{function}(" for function in functions]
    return [_WRITTEN.get(phrase, phrase)]


def _wanted(statement: str) -> str:
    """Return what the parser expects after the start of a statement."""
    try:
        parse_script(statement + _UNEXPECTED)
    except UserError as error:
        return error.wanted
    return ""


def _required(statement: str) -> list[str]:
    """Return the word that must come next; nothing if the statement can end."""
    wanted = _wanted(statement)
    return [] if "the end of the statement" in wanted else _keywords(wanted)[:1]


def _keywords(wanted: str) -> list[str]:
    phrases = re.split(", | or ", wanted)
    return [phrase for phrase in phrases if phrase in _SOURCES or _KEYWORDS.match(phrase)]


def _names(place: _Place, wanted: str, *, names: Names) -> Iterable[str]:
    """Return the existing names that fit; nothing where a new name is given."""
    creating = place.keywords in _CREATING or place.keywords[-2:] == ("NOT", "EXISTS")
    if creating:
        return ()
    if place.last == "SECRET" or wanted == "a secret name":
        return names.secrets()
    if wanted == "a job name":
        return _jobs(place, names=names)
    if wanted == "a table name" or place.last in _TABLE_WORDS:
        return names.tables()
    return ()


def _jobs(place: _Place, *, names: Names) -> Iterable[str]:
    """Return the jobs that a statement accepts: all, or those of one kind."""
    if "ROUTINE" in place.keywords or "SHARDS" in place.keywords:
        return names.routine_loads()
    if "JOB" in place.keywords:
        loads = set(names.routine_loads())
        return [name for name in names.jobs() if name not in loads]
    return names.jobs()


def _named(names: Iterable[str], place: _Place) -> Iterator[Candidate]:
    for name in names:
        quoted = f"{name.replace('`', '``')}`" if place.quote else quoted_name(name)
        yield Candidate(text=quoted, label=name, replaced=len(place.written))


def _phrases(
    phrases: Iterable[str], place: _Place, *, meaning: str = ""
) -> Iterator[Candidate]:
    for phrase in phrases:
        yield Candidate(text=phrase, label=phrase, meaning=meaning, replaced=len(place.written))


def _matching(found: list[Candidate], written: str) -> list[Candidate]:
    """Return what starts with the word or, if nothing does, what contains it."""
    wanted = written.lower()
    bare = [(candidate, candidate.label.lstrip("\\").lower()) for candidate in found]
    starting = [candidate for candidate, label in bare if label.startswith(wanted)]
    return starting or [candidate for candidate, label in bare if wanted in label]


def _unique(found: list[Candidate]) -> list[Candidate]:
    return list({candidate.text: candidate for candidate in reversed(found)}.values())[::-1]


def _lowered(candidate: Candidate) -> Candidate:
    """Return keywords in lower case; names and options keep their case."""
    if candidate.text != candidate.label or not candidate.text.isupper():
        return candidate
    lower = candidate.text.lower()
    return replace(candidate, text=lower, label=lower)


def _is_symbol(token: Token, symbol: str) -> bool:
    return token.kind is TokenKind.SYMBOL and token.text == symbol
