"""Read a list of properties: ``("key" = "value", …)``."""

from penstock.sql.lexer import TokenKind
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
        seen.add(key.lower())
        reader.expect_symbol("=", after=f'the key "{key}"')
        value_by_key[key] = _value(reader, key)
        if not reader.skip_symbol(","):
            break
        if reader.at_symbol(")"):
            raise reader.unexpected("a key in quotes", after='","')
    reader.expect_symbol(")", after=f"the list after {after}")
    return tuple(value_by_key.items())


def _value(reader: TokenReader, key: str) -> str:
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
