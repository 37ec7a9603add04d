"""Read the statements about secrets.

Invariant: no message quotes a value. A key is quoted only where ``=`` follows it, for what
stands alone may be a value in the wrong place.
"""

from penstock.model.secrets import SecretReference, is_mask, reference_of
from penstock.sql.lexer import TokenKind
from penstock.sql.names import plain_name, secret_name
from penstock.sql.properties import at_secret_reference
from penstock.sql.reader import TokenReader
from penstock.sql.statements import AlterSecret, CreateSecret, DropSecret, Properties

_VALUE_HINT = "A value stands in quotes, or is a number or word."
_NESTED_HINT = "Give the value itself, or 'env:VARIABLE', or 'file:/path'."


def parse_create_secret(reader: TokenReader) -> CreateSecret:
    """Take what follows CREATE SECRET."""
    if_not_exists = reader.skip("IF", "NOT", "EXISTS")
    name = secret_name(reader, after="IF NOT EXISTS" if if_not_exists else "CREATE SECRET")
    return CreateSecret(name=name, values=_values(reader), if_not_exists=if_not_exists)


def parse_alter_secret(reader: TokenReader) -> AlterSecret:
    """Take what follows ALTER SECRET."""
    name = secret_name(reader, after="ALTER SECRET")
    return AlterSecret(name=name, values=_values(reader))


def parse_drop_secret(reader: TokenReader) -> DropSecret:
    """Take what follows DROP SECRET."""
    if_exists = reader.skip("IF", "EXISTS")
    name = secret_name(reader, after="IF EXISTS" if if_exists else "DROP SECRET")
    return DropSecret(name=name, if_exists=if_exists)


def _values(reader: TokenReader) -> Properties:
    """Take keys and values in parentheses; keys do not tell cases apart."""
    first = reader.look()
    hint = "Write CREATE SECRET name (s3.access_key = '…', s3.secret_key = '…')."
    if not reader.skip_symbol("("):
        raise reader.unexpected('"("', after="the secret name", hint=hint)
    if reader.at_symbol(")"):
        raise reader.error("a secret must have at least one value", token=first, hint=hint)
    value_by_key: dict[str, str] = {}
    while not value_by_key or reader.skip_symbol(","):
        token = reader.look()
        key = _key(reader, after='","' if value_by_key else '"("')
        if not reader.skip_symbol("="):
            raise reader.unexpected('"="', after="the key", hint=_VALUE_HINT)
        if not key.strip():
            raise reader.error("a key must not be empty", token=token)
        if key in value_by_key:
            raise reader.error(f'key "{key}" is given twice', token=token)
        value_by_key[key] = _value(reader, key)
    if not reader.skip_symbol(")"):
        raise reader.unexpected('"," or ")"', after="the value", hint=_VALUE_HINT)
    return tuple(value_by_key.items())


def _key(reader: TokenReader, *, after: str) -> str:
    """Take a key: a text in quotes, or a name that may have dots."""
    if reader.look().kind is TokenKind.TEXT:
        return reader.take().text.lower()
    parts = [plain_name(reader, "a key", after=after)]
    while reader.skip_symbol("."):
        parts.append(plain_name(reader, "a name", after='"."'))
    return ".".join(parts).lower()


def _value(reader: TokenReader, key: str) -> str:
    token = reader.look()
    if at_secret_reference(reader):
        raise reader.error("a secret must not refer to a secret", hint=_NESTED_HINT)
    if token.kind not in (TokenKind.TEXT, TokenKind.NUMBER, TokenKind.WORD):
        raise reader.unexpected("a value", after=f'"{key}" =', hint=_VALUE_HINT)
    value = reader.take().text
    if not value:
        raise reader.error(f'value of "{key}" must not be empty', token=token)
    if is_mask(value):
        raise reader.error(
            f'value of "{key}" must not be {value}, which stands where a value was hidden',
            token=token,
            hint="Type the value anew, or give 'env:VARIABLE' or 'file:/path'.",
        )
    if isinstance(reference_of(value), SecretReference):
        raise reader.error(
            "a secret must not refer to a secret", token=token, hint=_NESTED_HINT
        )
    return value
