"""Read the tokens of one statement from left to right; report unexpected tokens."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from penstock.errors import Code, UserError
from penstock.sql.lexer import Script, Token, TokenKind
from penstock.sql.masking import first_secret

# Symbols that messages can quote even after a secret.
_STRUCTURE = "(),;:="


class TokenReader:
    """The tokens of one statement and the current position."""

    def __init__(self, script: Script, tokens: Sequence[Token]) -> None:
        self.script = script
        self._tokens = tokens
        self._index = 0
        last = tokens[-1].end if tokens else 0
        self._end = Token(kind=TokenKind.END, text="", start=last, end=last)

    def peek(self, distance: int = 0) -> Token:
        """Return a token ahead without taking it; END after the last token."""
        index = self._index + distance
        return self._tokens[index] if index < len(self._tokens) else self._end

    def fork(self) -> "TokenReader":
        """Return another reader at the same position."""
        other = TokenReader(self.script, self._tokens)
        other._index = self._index
        return other

    def take(self) -> Token:
        """Take the next token."""
        token = self.peek()
        self._index += 1
        return token

    @property
    def ended(self) -> bool:
        """Whether every token was taken."""
        return self._index >= len(self._tokens)

    @property
    def previous(self) -> Token:
        """The token taken last."""
        return self._tokens[self._index - 1]

    @property
    def taken_end(self) -> int:
        """The offset after the token taken last."""
        return self.previous.end

    @property
    def head(self) -> str:
        """The words taken so far, for the ``after`` of a message."""
        return " ".join(token.keyword for token in self._tokens[: self._index])

    def at(self, *keywords: str) -> bool:
        """Return whether these words come next."""
        return all(self.peek(index).keyword == word for index, word in enumerate(keywords))

    def at_any(self, keywords: Iterable[str]) -> bool:
        """Return whether one of these words comes next."""
        return self.peek().keyword in keywords

    def skip(self, *keywords: str) -> bool:
        """Take these words if they come next; return whether they did."""
        found = self.at(*keywords)
        if found:
            self._index += len(keywords)
        return found

    def expect(self, keyword: str, *, after: str) -> None:
        """Take a word; raise if another token comes next."""
        if not self.skip(keyword):
            raise self.unexpected(keyword, after=after)

    def at_symbol(self, symbol: str, distance: int = 0) -> bool:
        """Return whether a symbol comes next, or at a distance."""
        return self.peek(distance).is_symbol(symbol)

    def skip_symbol(self, symbol: str) -> bool:
        """Take a symbol if it comes next; return whether it did."""
        found = self.at_symbol(symbol)
        if found:
            self._index += 1
        return found

    def expect_symbol(self, symbol: str, *, after: str, hint: str = "") -> None:
        """Take a symbol; raise if another token comes next."""
        if not self.skip_symbol(symbol):
            raise self.unexpected(f'"{symbol}"', after=after, hint=hint)

    def at_name(self, distance: int = 0) -> bool:
        """Return whether a possible name comes next, or at a distance."""
        return self.peek(distance).kind in (TokenKind.WORD, TokenKind.NAME)

    def expect_text(self, what: str, *, after: str) -> str:
        """Take a string in quotes; raise if another token comes next."""
        if self.peek().kind is not TokenKind.TEXT:
            raise self.unexpected(f"{what} in quotes", after=after)
        return self.take().text

    def error(
        self,
        message: str,
        *,
        token: Token | None = None,
        code: Code = Code.SYNTAX_ERR,
        hint: str = "",
    ) -> UserError:
        """Return an error about a token, by default the next token."""
        offset = (token or self.peek()).start
        return self.script.error(message, offset=offset, code=code, hint=hint)

    def unexpected(
        self, expected: str, *, after: str = "", hint: str = "", choices: Iterable[str] = ()
    ) -> UserError:
        """Return an error about the next token that suggests the nearest choice."""
        where = f" after {after}" if after else ""
        near = get_close_matches(self.peek().keyword, list(choices), n=1)
        did_you_mean = f"Did you mean {near[0]}? " if near else ""
        token = self.peek()
        harmless = token is self._end or any(map(token.is_symbol, _STRUCTURE))
        found = token.shown if harmless or self.visible(token) else "hidden text"
        error = self.error(
            f"expected {expected}{where}, found {found}", hint=f"{did_you_mean}{hint}".rstrip()
        )
        error.expected = expected
        return error

    def visible(self, token: Token) -> bool:
        """Return whether a message can quote a token: no part of a secret is quoted."""
        hidden = self._tokens[first_secret(self._tokens) :]
        return not hidden or token.start < hidden[0].start

    def unsupported(
        self, construct: str, *, place: str = "", token: Token | None = None, hint: str = ""
    ) -> UserError:
        """Return an error about a known construct that is not supported."""
        where = f" in {place}" if place else ""
        message = f"{construct} is not supported yet{where}"
        return self.error(message, token=token, code=Code.NOT_SUPPORTED_ERR, hint=hint)


def words(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


def either(*choices: str) -> str:
    """Return choices as one text: ``a, b or c``."""
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last
