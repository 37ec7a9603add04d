"""Find the first place in a statement that may show the value of a secret.

The statement may be wrong or incomplete, so the search reads only its tokens. Everything from
the first possible secret value on is hidden. A secret value follows a secret key, or belongs
to CREATE SECRET or ALTER SECRET. A reference to a secret is not secret.

Invariant: ``visible_part`` and the tokens before ``first_secret`` contain no secret value.
"""

import re
from collections.abc import Sequence
from difflib import get_close_matches

from penstock.errors import UserError
from penstock.model.secrets import (
    is_secret_key,
    mentions_secret_key,
    reference_of,
    resembles_secret_key,
)
from penstock.sql.lexer import Token, TokenKind, read_script, tokenize

_SIMILARITY_MIN = 0.8
_KEYS_IN_ADDRESS = re.compile(r"://[^/]*@")
_KEY_KINDS = (TokenKind.TEXT, TokenKind.LITERAL, TokenKind.NAME, TokenKind.WORD)
_VALUE_KINDS = (TokenKind.TEXT, TokenKind.LITERAL, TokenKind.NUMBER)
_COMPARISONS = frozenset("=:<>!~")
_ENDS = frozenset(",);")
# Statements that start with these words set no values of a secret.
_SETS_NO_SECRET = frozenset(
    {"DESC", "DESCRIBE", "DROP", "EXPLAIN", "FROM", "SELECT", "SHOW", "WITH"}
)
_MODIFIERS = frozenset({"OR", "PERSISTENT", "REPLACE", "TEMP", "TEMPORARY"})


def may_contain_secret(text: str) -> bool:
    """Return whether statements may contain the value of a secret; True if unclear."""
    return visible_part(text) != text


def visible_part(text: str) -> str:
    """Return a script up to the first place that may show a secret, or the whole script."""
    try:
        script = read_script(text)
        tokens = tokenize(script)
    except UserError:
        # An escape sequence can hide a key from the search.
        return "" if "\\" in text or mentions_secret_key(text) else text
    ends = [0, *(token.end for token in tokens)]
    starts = [*(token.start for token in tokens), len(script.text)]
    secret = first_secret(tokens)
    for index, (end, start) in enumerate(zip(ends, starts, strict=True)):
        # The text between two tokens can be a comment with a secret.
        if index == secret < len(tokens) or mentions_secret_key(script.text[end:start]):
            return script.text[:end]
    return text


def first_secret(tokens: Sequence[Token]) -> int:
    """Return the index of the first token that may be a secret value.

    Return the number of tokens if there is none.
    """
    for index, token in enumerate(tokens):
        if token.kind is TokenKind.HINT and mentions_secret_key(token.text):
            return index
        if token.kind in _VALUE_KINDS and _KEYS_IN_ADDRESS.search(token.text):
            return index
        first = index == 0 or tokens[index - 1].is_symbol(";")
        body = _secret_body(tokens, index) if first else None
        value = _value_of_key(tokens, index) if body is None else body
        if value is not None:
            return value
    return len(tokens)


def _secret_body(tokens: Sequence[Token], index: int) -> int | None:
    """Return the index after the words CREATE SECRET; None for another statement."""
    following = (token.keyword for token in tokens[index + 1 :])
    for stop, word in enumerate(following, start=index + 2):
        if word not in _MODIFIERS:
            # The word SECRET may be misspelt.
            near = get_close_matches(word, ["SECRET", "SECRETS"], n=1, cutoff=_SIMILARITY_MIN)
            sets = near and tokens[index].keyword not in _SETS_NO_SECRET
            return stop if sets and stop < len(tokens) else None
    return None


def _value_of_key(tokens: Sequence[Token], index: int) -> int | None:
    """Return the index after the secret key at a token; None if no value follows."""
    token = tokens[index]
    stop = _path_stop(tokens, index)
    parts = tokens[index:stop:2]
    # The text of a literal includes its prefix and quotes, as in N'…'.
    key = ".".join(p.text[2:-1] if p.kind is TokenKind.LITERAL else p.text for p in parts)
    # Only keys of options are quoted; an unquoted token_count can be a column.
    if not (is_secret_key(key) or (token.kind is TokenKind.TEXT and resembles_secret_key(key))):
        return None
    value = stop
    while _symbol(tokens, value) in _COMPARISONS:
        value += 1
    if value > stop:
        return None if _is_reference(tokens, value) else stop
    if value == len(tokens):
        return None
    listed = index > 0 and _symbol(tokens, index - 1) in {"(", ","}
    bare = listed and token.kind is TokenKind.TEXT and _symbol(tokens, stop) not in _ENDS
    quoted = tokens[stop].kind in _VALUE_KINDS and tokens[stop - 1].keyword != "SECRET"
    return stop if bare or quoted else None


def _path_stop(tokens: Sequence[Token], index: int) -> int:
    """Return the index after the key or dotted name at a token."""
    while index < len(tokens) and tokens[index].kind in _KEY_KINDS:
        if _symbol(tokens, index + 1) != ".":
            return index + 1
        index += 2
    return index


def _is_reference(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a value is a reference to a secret and nothing else."""
    if index == len(tokens):
        return False
    token = tokens[index]
    if token.keyword == "SECRET" and _path_stop(tokens, index + 1) == index + 2:
        index += 1
    elif token.kind is not TokenKind.TEXT or reference_of(token.text) is None:
        return False
    return index + 1 == len(tokens) or _symbol(tokens, index + 1) in _ENDS


def _symbol(tokens: Sequence[Token], index: int) -> str:
    token = tokens[index] if index < len(tokens) else None
    return token.text if token and token.kind is TokenKind.SYMBOL else ""
