"""Complete statements: keywords, names, and the keys and values of options.

The words of statements come from the parser: its table of statements gives the first ones, and
what it expects where the text ends gives the others, so that whatever can be parsed can be
completed. Only what the parser takes but does not ask for is listed here.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass
from enum import Enum
from typing import Any

from penstock.cli.prompt.commands import MEANING_BY_COMMAND, MEANING_BY_ENDING, outside
from penstock.cli.prompt.guide import LESSON_BY_HEAD
from penstock.errors import UserError
from penstock.model.job import JobProperties
from penstock.model.job_kinds import RoutineProperties
from penstock.model.options import option_fields, option_key, rule_of
from penstock.model.schema import Primitive, quoted_name
from penstock.sources.files.options import FilesOptions
from penstock.sources.kinesis.options import KinesisOptions, PositionOptions
from penstock.sql.lexer import Token, TokenKind, read_script, tokenize
from penstock.sql.parser import parse_script, statement_heads

NamesOf = Callable[[], Iterable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What is known by name; every function is asked when a name is completed."""

    # Jobs of every kind; routine loads are those with statements of their own.
    jobs: NamesOf
    routine_loads: NamesOf
    tables: NamesOf
    secrets: NamesOf


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionChoice:
    """An option that may be given: what it is for, and its values where they are few."""

    explanation: str
    values: tuple[str, ...] = ()


def option_list(call: str, *, about: str, names: Names) -> Mapping[str, OptionChoice] | None:
    """Answer the options by key that a call or PROPERTIES takes; None where none are taken.

    ``about`` is what the statement is about: a JOB, a ROUTINE load, a SECRET.
    """
    match call, about:
        case (("FILES" | "S3"), _):
            return _declared(FilesOptions, names=names)
        case "KINESIS", _:
            return _declared(KinesisOptions, PositionOptions, names=names)
        case "PROPERTIES", "ROUTINE":
            return _declared(RoutineProperties, names=names)
        case "PROPERTIES", "JOB":
            offset = OptionChoice(explanation='Where loading goes on: {"fileName": "…"}.')
            return {**_declared(JobProperties, names=names), "offset": offset}
        case _, "SECRET":
            return _secrets()
        case (("JOBS" | "TASKS"), _):
            return {"type": OptionChoice(explanation="Kind of the jobs.", values=("insert",))}
        case "REJECTS", _:
            jobs = tuple(names.jobs())
            return {"job": OptionChoice(explanation="Whose rejected rows.", values=jobs)}
        case _:
            return None


def _declared(*kinds: type, names: Names) -> dict[str, OptionChoice]:
    """Answer the options of classes; those that must be given come first."""
    declared = (f for kind in kinds for f in option_fields(kind))
    ordered = sorted(declared, key=lambda f: f.default is not MISSING)
    return {option_key(f): _choice(f, names=names) for f in ordered}


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
    """Answer the options whose values may be kept as secrets."""
    return {
        option_key(f): OptionChoice(explanation=rule_of(f).explanation)
        for kind in (FilesOptions, KinesisOptions)
        for f in option_fields(kind)
        if rule_of(f).secret
    }


_KEYWORDS = re.compile(r"[A-Z][A-Z ]*\Z")
_QUOTES = ("'", '"', "`")
# No statement has this anywhere, so the parser says what it wants instead.
_NOTHING_KNOWN = " ?"
_WORDS = {"help": "list what can be typed", "exit": "leave"}
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
# Words that go on behind those that the parser asks for.
_WRITTEN = {
    "PROPERTIES": "PROPERTIES(",
    "COLUMNS": "COLUMNS(",
    "FROM KINESIS": "FROM KINESIS(",
    "KINESIS": "KINESIS(",
    "INSERT": "INSERT INTO",
    "DO INSERT": "DO INSERT INTO",
    "PARTITIONED BY": "PARTITIONED BY (",
}
# Clauses that may come where the parser asks for something else.
_BEFORE = {"ON STREAMING": "PROPERTIES(", "DO INSERT": "COMMENT"}
_IF_BY_VERB = {"CREATE": "IF NOT EXISTS", "DROP": "IF EXISTS"}
_OPTIONAL_IF = frozenset(
    {"CREATE TABLE", "CREATE SECRET", "DROP TABLE", "DROP JOB", "DROP SECRET"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A text to write in the place of the last ``replaced`` characters before the cursor."""

    text: str
    label: str
    meaning: str = ""
    replaced: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The statement up to the word at the cursor, and that word as far as it is written."""

    said: str
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
    """Answer what can be written at the end of a text, in the order to show it."""
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
    """Find the word at the end of a text; none in a comment, or where nothing is clear."""
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
    return _Place(said=text[begin:start], tokens=tokens[first:], written=written, quote=quote)


def _commands(place: _Place) -> Iterator[Candidate]:
    meanings = MEANING_BY_COMMAND if len(place.tokens) == 1 else MEANING_BY_ENDING
    for command, meaning in meanings.items():
        bare = command.removeprefix("\\")
        yield Candidate(text=bare, label=command, meaning=meaning, replaced=len(place.written))


def _in_list(place: _Place, *, names: Names) -> list[Candidate] | None:
    """Answer the options, or values of one, where the cursor stands in a list of them."""
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
    calls = ("FILES(", "S3(") if in_job else ("jobs(", "tasks(", "rejects(")
    yield from _phrases(() if place.quote else calls, place)


def _heads(place: _Place) -> Iterator[Candidate]:
    """Yield the words of all statements that begin as this one does."""
    said = place.keywords
    for head in statement_heads():
        if len(head) > len(said) and head[: len(said)] == said:
            lesson = LESSON_BY_HEAD.get(" ".join(head))
            phrase = " ".join([*head[len(said) :], *_required(" ".join(head))])
            yield from _phrases([phrase], place, meaning=lesson.meaning if lesson else "")
    if not said:
        for word, meaning in _WORDS.items():
            yield from _phrases([word], place, meaning=meaning)


def _expected(place: _Place, *, words: bool, names: Names) -> Iterator[Candidate]:
    """Yield what the parser wants to come next."""
    wanted = _wanted(place.said)
    if place.quote in ("", "`"):
        yield from _named(_names(place, wanted, names=names), place)
    elif wanted == "a job name in quotes":
        yield from (_value(name, place) for name in _jobs(place, names=names))
    if words and not place.quote:
        phrases = _keywords(wanted)
        before = [_BEFORE[phrase] for phrase in phrases if phrase in _BEFORE]
        given = set(place.keywords)
        yield from _phrases([p for p in before if p.rstrip("(") not in given], place)
        yield from _phrases([_WRITTEN.get(phrase, phrase) for phrase in phrases], place)
        yield from _phrases(_TYPES if wanted == "a type" else (), place)
        if " ".join(place.keywords) in _OPTIONAL_IF:
            yield from _phrases([_IF_BY_VERB[place.keywords[0]]], place)


def _wanted(said: str) -> str:
    try:
        parse_script(said + _NOTHING_KNOWN)
    except UserError as error:
        return error.wanted
    return ""


def _required(said: str) -> list[str]:
    """Answer the word that has to come next, if the statement cannot end."""
    wanted = _wanted(said)
    return [] if "the end of the statement" in wanted else _keywords(wanted)[:1]


def _keywords(wanted: str) -> list[str]:
    return [phrase for phrase in re.split(", | or ", wanted) if _KEYWORDS.match(phrase)]


def _names(place: _Place, wanted: str, *, names: Names) -> Iterable[str]:
    """Answer the things of which one is to be named; a new one has no name yet."""
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
    """Answer the jobs that a statement takes: those of one kind, or all."""
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
    """Keep what begins as the word does or, if nothing does, what holds it."""
    wanted = written.lower()
    bare = [(candidate, candidate.label.lstrip("\\").lower()) for candidate in found]
    beginning = [candidate for candidate, label in bare if label.startswith(wanted)]
    return beginning or [candidate for candidate, label in bare if wanted in label]


def _unique(found: list[Candidate]) -> list[Candidate]:
    return list({candidate.text: candidate for candidate in reversed(found)}.values())[::-1]


def _lowered(candidate: Candidate) -> Candidate:
    """Write keywords as the word was begun; names and options keep their case."""
    if candidate.text != candidate.label or not candidate.text.isupper():
        return candidate
    lower = candidate.text.lower()
    return Candidate(
        text=lower, label=lower, meaning=candidate.meaning, replaced=candidate.replaced
    )


def _is_symbol(token: Token, symbol: str) -> bool:
    return token.kind is TokenKind.SYMBOL and token.text == symbol
