"""Parse the names of tables, columns, jobs and secrets, and lists of properties.

Names of tables and secrets are lower-cased, because Spark ignores case. Names of columns
and jobs keep their case. A name with anything but letters, digits and ``_`` needs backquotes.
"""

from unicodedata import category

from penstock.errors import Code
from penstock.model.secrets import SecretReference, is_secret_key, reference_text
from penstock.sql.lexer import BACKQUOTES, Token, TokenKind
from penstock.sql.reader import TokenReader

JOB_CHARACTERS_MAX = 64
TABLE_CHARACTERS_MAX = 128
SECRET_CHARACTERS_MAX = 128
DATABASE = "default"
VALUE_HINT = "A value must be a string in quotes, a number or a word."

_RESERVED_PREFIX = "inner_"


def plain_name(reader: TokenReader, what: str, *, after: str = "") -> str:
    """Parse a bare or backquoted name without further rules."""
    token = reader.peek()
    if not reader.at_name():
        raise reader.unexpected(what, after=after)
    reader.take()
    _check_characters(reader, token, what.removeprefix("a "))
    return token.text


def declared_name(reader: TokenReader, what: str, *, after: str = "") -> str:
    """Parse a name; raise with a hint for ``my-name`` without backquotes."""
    bare = reader.peek().kind is TokenKind.WORD
    name = plain_name(reader, what, after=after)
    if bare and reader.at_symbol("-") and reader.peek().start == reader.taken_end:
        raise reader.unexpected("the end of the name", hint=BACKQUOTES)
    return name


def database_name(reader: TokenReader, *, after: str) -> None:
    """Parse the name of the only database."""
    token = reader.peek()
    declared_name(reader, "a database name", after=after)
    _check_database(reader, token, hint=f"Write {DATABASE}, or omit the database.")


def table_name(reader: TokenReader, *, after: str) -> str:
    """Parse the name of a table, with or without its database."""
    hint = f"Write {DATABASE}.t, or just t."
    token = _qualified_name(reader, "a table name", after=after, hint=hint)
    name = token.text.lower()
    _check_length(reader, token, f'table name "{name}"', len(name), TABLE_CHARACTERS_MAX)
    return name


def job_name(reader: TokenReader, *, after: str) -> str:
    """Parse the name of a job."""
    token = reader.peek()
    declared_name(reader, "a job name", after=after)
    return _checked_job_name(reader, token)


def routine_load_name(reader: TokenReader, *, after: str) -> str:
    """Parse the name of a routine load, with or without its database."""
    hint = f"Write {DATABASE}.name, or just name."
    return _checked_job_name(
        reader, _qualified_name(reader, "a job name", after=after, hint=hint)
    )


def quoted_job_name(reader: TokenReader, *, after: str) -> str:
    """Parse the name of a job as a string in quotes."""
    token = reader.peek()
    reader.expect_text("a job name", after=after)
    _check_characters(reader, token, "job name")
    return _checked_job_name(reader, token)


def secret_name(reader: TokenReader, *, after: str) -> str:
    """Parse the name of a secret, which can be a string in quotes."""
    token = reader.peek()
    if token.kind is TokenKind.TEXT:
        reader.take()
        _check_characters(reader, token, "secret name")
    else:
        declared_name(reader, "a secret name", after=after)
    name = token.text.lower()
    _check_length(reader, token, "secret name", len(name), SECRET_CHARACTERS_MAX)
    return name


def is_secret_name(text: str) -> bool:
    """Return whether a string can be the stored name of a secret."""
    plain = all(category(character) != "Cc" for character in text)
    fits = len(text) <= SECRET_CHARACTERS_MAX and text == text.lower()
    return plain and fits and bool(text.strip())


def _qualified_name(reader: TokenReader, what: str, *, after: str, hint: str) -> Token:
    """Parse a name with or without its database; return the token of the name itself."""
    token = reader.peek()
    declared_name(reader, what, after=after)
    if reader.skip_symbol("."):
        _check_database(reader, token, hint=hint)
        token = reader.peek()
        declared_name(reader, what, after="the database")
    return token


def _checked_job_name(reader: TokenReader, token: Token) -> str:
    name = token.text
    _check_length(reader, token, f'job name "{name}"', len(name), JOB_CHARACTERS_MAX)
    if name.startswith(_RESERVED_PREFIX):
        message = f'job name "{name}" must not start with "{_RESERVED_PREFIX}"'
        raise reader.error(message, token=token)
    return name


def _check_characters(reader: TokenReader, token: Token, what: str) -> None:
    if not token.text.strip():
        raise reader.error(f"{what} must not be empty", token=token)
    control = next((one for one in token.text if category(one) == "Cc"), None)
    if control:
        message = f"{what} must not contain the control character U+{ord(control):04X}"
        raise reader.error(message, token=token)


def _check_length(
    reader: TokenReader, token: Token, what: str, characters: int, characters_max: int
) -> None:
    if characters > characters_max:
        message = f"{what} must have at most {characters_max} characters, not {characters}"
        raise reader.error(message, token=token)


def _check_database(reader: TokenReader, token: Token, *, hint: str) -> None:
    if token.text.lower() != DATABASE:
        error = reader.error(
            f'database "{token.text}" does not exist',
            token=token,
            code=Code.META_NOT_FOUND_ERR,
            hint=hint,
        )
        error.detail = f'The only database is "{DATABASE}". {error.detail}'
        raise error


def comment_clause(reader: TokenReader) -> str | None:
    """Parse COMMENT and its string; return None if the clause is missing."""
    return reader.expect_text("a comment", after="COMMENT") if reader.skip("COMMENT") else None


def parse_properties(reader: TokenReader, *, after: str) -> tuple[tuple[str, str], ...]:
    """Parse keys and values in parentheses; keep their order."""
    reader.expect_symbol("(", after=after)
    value_by_key: dict[str, str] = {}
    seen: set[str] = set()
    while not reader.at_symbol(")"):
        token = reader.peek()
        key = reader.expect_text("a key", after='"("' if not value_by_key else '","')
        if not key.strip():
            raise reader.error("a key must not be empty", token=token)
        # Options ignore case, so two keys that differ only in case collide.
        if key.lower() in seen:
            raise reader.error(f'key "{key}" is specified more than once', token=token)
        # A quote in a secret value ends the value early, so the next key can be a part of it.
        shown = "the key" if any(map(is_secret_key, seen)) else f'the key "{key}"'
        seen.add(key.lower())
        reader.expect_symbol("=", after=shown)
        value_by_key[key] = _property_value(reader, key)
        if not reader.skip_symbol(","):
            break
        if reader.at_symbol(")"):
            raise reader.unexpected("a key in quotes", after='","')
    reader.expect_symbol(")", after=f"the list after {after}")
    return tuple(value_by_key.items())


def _property_value(reader: TokenReader, key: str) -> str:
    if at_secret_reference(reader):
        reader.take()
        return reference_text(SecretReference(name=secret_name(reader, after="SECRET")))
    sign = "-" if reader.skip_symbol("-") else ""
    token = reader.peek()
    kinds = {TokenKind.NUMBER} if sign else {TokenKind.TEXT, TokenKind.NUMBER, TokenKind.WORD}
    if token.kind not in kinds:
        raise reader.unexpected("a value", after=f'"{key}" =', hint=VALUE_HINT)
    return sign + reader.take().text


def at_secret_reference(reader: TokenReader) -> bool:
    """Return whether the word SECRET and a name come next."""
    return reader.at("SECRET") and (reader.at_name(1) or reader.peek(1).kind is TokenKind.TEXT)
