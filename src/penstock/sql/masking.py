"""Take secret values out of statements, before anyone but the parser sees them.

A statement may be wrong or unfinished, so what is a value is told by its place among the
tokens, and in doubt more is hidden than needed. Secret is what stands behind a secret key, and
whatever CREATE SECRET and ALTER SECRET give. References to secrets are no secrets.

Invariant: a value behind a secret key is no part of what ``masked`` answers, nor is a token
that holds it left out of ``secret_tokens``.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from penstock.errors import UserError
from penstock.model.secrets import (
    MASKED,
    is_secret_key,
    mentions_secret_key,
    reference_of,
    resembles_secret_key,
)
from penstock.sql.lexer import Script, Token, TokenKind, read_script, tokenize

MASK = f"'{MASKED}'"

_ALIKE = 0.8
_KEYS_IN_ADDRESS = re.compile(r"://[^/]*@")
_KEY_KINDS = (TokenKind.TEXT, TokenKind.LITERAL, TokenKind.NAME, TokenKind.WORD)
_VALUE_KINDS = (TokenKind.TEXT, TokenKind.LITERAL, TokenKind.NUMBER)
_COMPARISONS = frozenset("=:<>!~")
_ENDS = frozenset(",);")
# A statement that begins so holds no value, and what it does hold is worth showing.
_LOOKING = frozenset({"DESC", "DESCRIBE", "EXPLAIN", "FROM", "SELECT", "SHOW", "WITH"})
_MODIFIERS = frozenset(
    {"EXISTS", "IF", "NOT", "OR", "PERSISTENT", "REPLACE", "TEMP", "TEMPORARY"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Value:
    """The tokens of a value: from one index up to another."""

    begin: int
    stop: int


def masked(text: str) -> str:
    """Write statements with ``'***'`` for every secret value; nothing if that cannot be."""
    try:
        script = read_script(text)
        tokens = tokenize(script)
    except UserError:
        # An escape may hide a key.
        return "" if "\\" in text or mentions_secret_key(text) else text
    values = tuple(_values(tokens))
    spaces = tuple(_spaces(script, tokens))
    if not values and not any(map(mentions_secret_key, (*spaces, *(t.text for t in tokens)))):
        return text
    return _written(script, tokens, values=values, spaces=spaces)


def secret_tokens(tokens: Sequence[Token]) -> frozenset[Token]:
    """Answer the tokens of a statement that no message may quote."""
    return frozenset(
        token for value in _values(tokens) for token in tokens[value.begin : value.stop]
    )


def _spaces(script: Script, tokens: Sequence[Token]) -> Iterator[str]:
    """Yield what stands before every token and behind the last one."""
    end = 0
    for token in tokens:
        yield script.text[end : token.start]
        end = token.end
    yield script.text[end:]


def _written(
    script: Script, tokens: Sequence[Token], *, values: Sequence[_Value], spaces: Sequence[str]
) -> str:
    """Write the tokens without the comments between them, for they may hold secrets, too."""
    begins = {value.begin for value in values}
    hidden = {index for value in values for index in range(value.begin, value.stop)}
    parts: list[str] = []
    for index, token in enumerate(tokens):
        if index not in hidden or index in begins:
            parts.append(_blank(spaces[index]))
            parts.append(MASK if index in hidden else script.text[token.start : token.end])
    return "".join([*parts, _blank(spaces[-1])])


def _blank(space: str) -> str:
    """Leave comments out, and line ends where they are."""
    if not space.strip():
        return space
    return "\n" * space.count("\n") or " "


def _values(tokens: Sequence[Token]) -> Iterator[_Value]:
    """Yield the secret values of statements, from left to right."""
    index = 0
    begins = True
    while index < len(tokens):
        body = _secret_body(tokens, index) if begins else None
        if body is not None:
            found, index = _body_values(tokens, body)
            yield from found
            continue
        begins = _is(tokens, index, ";")
        value = _value_behind(tokens, index)
        if value is None:
            index += 1
        else:
            if not _is_reference(tokens[value.begin : value.stop]):
                yield value
            index = value.stop


def _secret_body(tokens: Sequence[Token], index: int) -> int | None:
    """Answer where the values of CREATE SECRET begin; None for any other statement."""
    if tokens[index].keyword in _LOOKING:
        return None
    index = _skip_modifiers(tokens, index + 1)
    word = tokens[index].keyword if index < len(tokens) else ""
    # A secret in a misspelt statement is one, too.
    if not get_close_matches(word, ["SECRET", "SECRETS"], n=1, cutoff=_ALIKE):
        return None
    index = _skip_modifiers(tokens, index + 1)
    return _path_stop(tokens, index)


def _skip_modifiers(tokens: Sequence[Token], index: int) -> int:
    while index < len(tokens) and tokens[index].keyword in _MODIFIERS:
        index += 1
    return index


def _body_values(tokens: Sequence[Token], index: int) -> tuple[list[_Value], int]:
    """Answer the values of a CREATE SECRET behind its name, and where the next begins."""
    values: list[_Value] = []
    depth = 0
    while index < len(tokens) and not (depth == 0 and _is(tokens, index, ";")):
        if _is(tokens, index, "(", ")", ","):
            depth = max(0, depth + _is(tokens, index, "(") - _is(tokens, index, ")"))
            index += 1
            continue
        equals = _path_stop(tokens, index)
        if depth == 1 and _is(tokens, equals, "="):
            index = equals + 1
        stop = index
        while stop < len(tokens) and not _is(tokens, stop, "(", ")", ",", ";"):
            stop += 1
        # An unquoted value may hold a semicolon.
        stop += depth > 0 and _is(tokens, stop, ";")
        if stop > index and not _is_text_reference(tokens[index:stop]):
            values.append(_Value(begin=index, stop=stop))
        index = stop
    return values, index


def _value_behind(tokens: Sequence[Token], index: int) -> _Value | None:
    """Answer the value behind the key that begins here, if it is a secret one."""
    token = tokens[index]
    if token.kind is TokenKind.HINT:
        secret = mentions_secret_key(token.text)
        return _Value(begin=index, stop=index + 1) if secret else None
    if token.kind in _VALUE_KINDS and _KEYS_IN_ADDRESS.search(token.text):
        return _Value(begin=index, stop=index + 1)
    stop = _path_stop(tokens, index)
    key = ".".join(_meaning(part) for part in tokens[index:stop:2])
    # Only keys of options stand in quotes; a column may be called token without harm.
    optional = token.kind is TokenKind.TEXT and resembles_secret_key(key)
    if not (optional or is_secret_key(key)):
        return None
    begin = stop
    while begin < len(tokens) and _is(tokens, begin, *_COMPARISONS):
        begin += 1
    listed = index > 0 and _is(tokens, index - 1, "(", ",")
    if listed and begin > stop:
        # Also behind a stray comma: what is no key there may be the value.
        end = _listed_stop(tokens, begin)
        return _Value(begin=begin, stop=end) if end > begin else None
    if begin == len(tokens) or _is(tokens, begin, *_ENDS):
        return None
    if listed and token.kind is TokenKind.TEXT:
        return _Value(begin=begin, stop=_listed_stop(tokens, begin))
    quoted = tokens[begin].kind in _VALUE_KINDS and tokens[stop - 1].keyword != "SECRET"
    if begin > stop or quoted:
        return _Value(begin=begin, stop=_expression_stop(tokens, begin))
    return None


def _meaning(token: Token) -> str:
    """Answer the text inside N'…'."""
    return token.text[2:-1] if token.kind is TokenKind.LITERAL else token.text


def _path_stop(tokens: Sequence[Token], index: int) -> int:
    """Answer where the key or dotted name ends that begins here; here if none does."""
    if index >= len(tokens) or tokens[index].kind not in _KEY_KINDS:
        return index
    index += 1
    while (
        _is(tokens, index, ".")
        and index + 1 < len(tokens)
        and tokens[index + 1].kind in _KEY_KINDS
    ):
        index += 2
    return index


def _listed_stop(tokens: Sequence[Token], begin: int) -> int:
    """Answer where the value of a list ends: before the next key, or with the list."""
    depth = 0
    index = begin
    while index < len(tokens):
        if depth == 0 and _is(tokens, index, ","):
            equals = _path_stop(tokens, index + 1)
            if equals > index + 1 and _is(tokens, equals, "="):
                break
        if depth == 0 and _is(tokens, index, ")") and not _is_inside(tokens, index):
            break
        depth = max(0, depth + _is(tokens, index, "(") - _is(tokens, index, ")"))
        index += 1
    return index


def _is_inside(tokens: Sequence[Token], index: int) -> bool:
    """Tell whether an unquoted value goes on around a symbol."""
    before = tokens[index - 1]
    if before.kind is TokenKind.TEXT or not _is_adjacent(tokens, index):
        return False
    return (
        index + 1 < len(tokens)
        and _is_adjacent(tokens, index + 1)
        and tokens[index + 1].kind in (TokenKind.WORD, TokenKind.NUMBER)
    )


def _expression_stop(tokens: Sequence[Token], begin: int) -> int:
    """Answer where a value ends that stands in an expression."""
    index = begin
    goes_on = True
    while index < len(tokens) and not _is(tokens, index, *_ENDS):
        token = tokens[index]
        symbol = token.kind is TokenKind.SYMBOL
        if not (goes_on or symbol or token.kind in _VALUE_KINDS or _is_adjacent(tokens, index)):
            break
        # Behind an operator stands its second operand, behind a parenthesis maybe nothing.
        goes_on = symbol and token.text != "("
        index = _balanced_stop(tokens, index)
    return index


def _balanced_stop(tokens: Sequence[Token], index: int) -> int:
    """Answer where one token, or all that stands in parentheses, ends."""
    depth = 0
    while index < len(tokens):
        depth += _is(tokens, index, "(") - _is(tokens, index, ")")
        index += 1
        if depth <= 0:
            break
    return index


def _is_adjacent(tokens: Sequence[Token], index: int) -> bool:
    return tokens[index - 1].end == tokens[index].start


def _is(tokens: Sequence[Token], index: int, *symbols: str) -> bool:
    if index >= len(tokens):
        return False
    return tokens[index].kind is TokenKind.SYMBOL and tokens[index].text in symbols


def _is_reference(value: Sequence[Token]) -> bool:
    named = len(value) == 2 and value[0].keyword == "SECRET" and value[1].kind in _KEY_KINDS  # noqa: PLR2004 - The word and the name.
    return named or _is_text_reference(value)


def _is_text_reference(value: Sequence[Token]) -> bool:
    first = value[0]
    text = len(value) == 1 and first.kind is TokenKind.TEXT
    return text and reference_of(first.text) is not None
