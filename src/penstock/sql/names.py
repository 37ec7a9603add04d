"""Parse the names of tables, columns, jobs and secrets, and lists of properties.

Names of tables, flows and secrets are lower-cased, because Spark ignores case. Names of
columns and other jobs keep their case. A name with anything but letters, digits and ``_``
needs backquotes.
"""

from collections.abc import Sequence
from unicodedata import category

from penstock.errors import Code, UserError
from penstock.model.secrets import SecretReference, is_secret_key, reference_text
from penstock.sql.lexer import BACKQUOTES, Token, TokenKind
from penstock.sql.reader import TokenReader

JOB_CHARACTERS_MAX = 64
TABLE_CHARACTERS_MAX = 128
SECRET_CHARACTERS_MAX = 128
DATABASE = "default"
VALUE_HINT = "A value must be a string in quotes, a number or a word."

_RESERVED_PREFIX = "inner_"
_BOOLEANS = ("TRUE", "FALSE")


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


def flow_name(reader: TokenReader, *, after: str) -> str:
    """Parse the name of a flow, with or without its database."""
    return routine_load_name(reader, after=after).lower()


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


def partition_names(reader: TokenReader, *, place: str) -> tuple[Token, ...]:
    """Parse BY and names in parentheses; refuse the types and functions that Spark allows."""
    reader.expect("BY", after="PARTITIONED")
    reader.expect_symbol("(", after="PARTITIONED BY")
    names: list[Token] = []
    while not names or reader.skip_symbol(","):
        token = reader.peek()
        plain_name(reader, "a column name", after='","' if names else '"("')
        _check_plain(reader, token, place=place)
        names.append(token)
    reader.expect_symbol(")", after=f'the partition column "{names[-1].text}"')
    return tuple(names)


def _check_plain(reader: TokenReader, token: Token, *, place: str) -> None:
    if reader.at_name():
        raise reader.unsupported(
            "a type in PARTITIONED BY",
            place=place,
            token=token,
            hint="Declare the column in the column list; write only its name here.",
        )
    if reader.at_symbol("(") or reader.at_symbol("."):
        part = "(…)" if reader.at_symbol("(") else ".…"
        raise reader.unsupported(
            f"{token.text}{part} in PARTITIONED BY",
            place=place,
            token=token,
            hint="Partition by a column that contains the value itself.",
        )


def skip_if_not_exists(reader: TokenReader) -> bool:
    """Take IF NOT EXISTS, or IF ! EXISTS as in Spark; return whether it was there."""
    if reader.at("IF") and reader.at_symbol("!", 1) and reader.peek(2).keyword == "EXISTS":
        for _ in ("IF", "!", "EXISTS"):
            reader.take()
        return True
    return reader.skip("IF", "NOT", "EXISTS")


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
        # A quote in a secret value ends the value early. So the next key can be a part of the
        # value, and is not quoted.
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


def parse_options(
    reader: TokenReader, *, after: str, given: Sequence[tuple[str, str]] = ()
) -> tuple[tuple[str, str], ...]:
    """Parse keys and values in parentheses as in TBLPROPERTIES of Spark.

    A key is a string or a name with dots, and ``=`` is optional. ``given`` are the options of
    another clause: a key that is in both clauses must have the same value.
    """
    opening = reader.peek()
    reader.expect_symbol("(", after=after)
    if reader.at_symbol(")"):
        raise reader.error(f"{after} must contain at least one key", token=opening)
    option_by_key = {key.lower(): (key, value) for key, value in given}
    seen: set[str] = set()
    while not seen or reader.skip_symbol(","):
        token = reader.peek()
        key, value = _option(reader, after='","' if seen else '"("')
        if not key.strip():
            raise reader.error("a key must not be empty", token=token)
        if key.lower() in seen:
            quoted = f'key "{key}"' if reader.visible(token) else "a key"
            raise reader.error(f"{quoted} is specified more than once", token=token)
        _, other = option_by_key.setdefault(key.lower(), (key, value))
        if other != value:
            raise _conflict(reader, token, key, values=(other, value))
        seen.add(key.lower())
    if not reader.skip_symbol(")"):
        raise reader.unexpected('"," or ")"', after="the value")
    return tuple(option_by_key.values())


def _conflict(
    reader: TokenReader, token: Token, key: str, *, values: tuple[str, str]
) -> UserError:
    option = f'option "{key}"' if reader.visible(token) else "an option"
    quoted = f': "{values[0]}" and "{values[1]}"' if reader.visible(reader.previous) else ""
    return reader.error(
        f"{option} has two different values{quoted}",
        token=token,
        code=Code.OPTION_ERR,
        hint="Specify the option once, in WITH or in TBLPROPERTIES.",
    )


def _option(reader: TokenReader, *, after: str) -> tuple[str, str]:
    """Parse a key and its value; adjacent strings are one string, as in Spark."""
    texts: list[str] = []
    while reader.peek().kind is TokenKind.TEXT:
        texts.append(reader.take().text)
    if not texts:
        texts = [plain_name(reader, "a key", after=after)]
        while reader.skip_symbol("."):
            texts += [".", plain_name(reader, "a name", after='"."')]
        texts = ["".join(texts)]
    if reader.skip_symbol("="):
        # Spark also accepts ==.
        reader.skip_symbol("=")
        return "".join(texts), _option_value(reader, after='"="')
    key, *value = texts
    if value:
        return key, "".join(value)
    token = reader.peek()
    if token.kind not in (TokenKind.TEXT, TokenKind.NUMBER) and not reader.at_any(_BOOLEANS):
        raise reader.unexpected('"="', after="the key")
    return key, _option_value(reader, after="the key")


def _option_value(reader: TokenReader, *, after: str) -> str:
    if at_secret_reference(reader):
        reader.take()
        return reference_text(SecretReference(name=secret_name(reader, after="SECRET")))
    if reader.peek().kind is TokenKind.TEXT:
        return joined_text(reader, "a value", after=after)
    sign = "-" if reader.skip_symbol("-") else ""
    point = "." if reader.skip_symbol(".") else ""
    token = reader.peek()
    kinds = {TokenKind.NUMBER} if sign or point else {TokenKind.NUMBER, TokenKind.WORD}
    if token.kind not in kinds:
        raise reader.unexpected("a value", after=after, hint=VALUE_HINT)
    text = reader.take().text
    return sign + point + (text.lower() if token.keyword in _BOOLEANS else text)


def joined_text(reader: TokenReader, what: str, *, after: str) -> str:
    """Parse a string in quotes, or adjacent strings, which Spark joins."""
    text = reader.expect_text(what, after=after)
    while reader.peek().kind is TokenKind.TEXT:
        text += reader.take().text
    return text
