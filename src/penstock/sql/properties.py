"""Read a list of properties: ``("key" = "value", …)``; SECRET 'n' is a value, too."""

from penstock.model.secrets import SecretReference, is_secret_key, reference_text
from penstock.sql.lexer import TokenKind
from penstock.sql.names import secret_name
from penstock.sql.reader import TokenReader


def parse_properties(reader: TokenReader, *, after: str) -> tuple[tuple[str, str], ...]:
    """Take keys and values in parentheses, in written order."""
    reader.expect_symbol("(", after=after)
    value_by_key: dict[str, str] = {}
    seen: set[str] = set()
    while not reader.at_symbol(")"):
        token = reader.look()
        key = reader.expect_text("a key", after='"("' if not value_by_key else '","')
        if not key.strip():
            raise reader.error("a key must not be empty", token=token)
        # Options are found whatever their case, so two keys that differ only there collide.
        if key.lower() in seen:
            raise reader.error(f'key "{key}" is given twice', token=token)
        # Behind a secret, what looks like a key may be the rest of a value with a quote in it.
        told = "the key" if any(map(is_secret_key, seen)) else f'the key "{key}"'
        seen.add(key.lower())
        reader.expect_symbol("=", after=told)
        value_by_key[key] = _value(reader, key)
        if not reader.skip_symbol(","):
            break
        if reader.at_symbol(")"):
            raise reader.unexpected("a key in quotes", after='","')
    reader.expect_symbol(")", after=f"the list after {after}")
    return tuple(value_by_key.items())


def _value(reader: TokenReader, key: str) -> str:
    if at_secret_reference(reader):
        reader.take()
        return reference_text(SecretReference(name=secret_name(reader, after="SECRET")))
    sign = "-" if reader.skip_symbol("-") else ""
    token = reader.look()
    kinds = {TokenKind.NUMBER} if sign else {TokenKind.TEXT, TokenKind.NUMBER, TokenKind.WORD}
    if token.kind not in kinds:
        raise reader.unexpected(
            "a value",
            after=f'"{key}" =',
            hint="A value stands in quotes, or is a number or word.",
        )
    return sign + reader.take().text


def at_secret_reference(reader: TokenReader) -> bool:
    """Tell whether SECRET and a name come next, not the mere word."""
    return reader.at("SECRET") and (reader.at_name(1) or reader.look(1).kind is TokenKind.TEXT)
