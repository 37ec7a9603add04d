"""Read the tokens of one statement from left to right, and say what was expected instead."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from penstock.errors import Code, UserError
from penstock.sql.lexer import Script, Token, TokenKind
from penstock.sql.masking import secret_tokens


class TokenReader:
    """The tokens of one statement and the place reached in them."""

    def __init__(self, script: Script, tokens: Sequence[Token]) -> None:
        self.script = script
        self._tokens = tokens
        self._index = 0
        last = tokens[-1].end if tokens else 0
        self._end = Token(kind=TokenKind.END, text="", start=last, end=last)

    def look(self, distance: int = 0) -> Token:
        """Return a token ahead without taking it; beyond the last one is the end."""
        index = self._index + distance
        return self._tokens[index] if index < len(self._tokens) else self._end

    def fork(self) -> "TokenReader":
        """Return a reader at the same place, to look ahead with."""
        other = TokenReader(self.script, self._tokens)
        other._index = self._index
        return other

    def take(self) -> Token:
        """Take the next token."""
        token = self.look()
        self._index += 1
        return token

    @property
    def ended(self) -> bool:
        """Whether every token was taken."""
        return self._index >= len(self._tokens)

    @property
    def taken_end(self) -> int:
        """The offset behind the token taken last."""
        return self._tokens[self._index - 1].end

    def at(self, *keywords: str) -> bool:
        """Tell whether exactly these words come next."""
        return all(self.look(index).keyword == word for index, word in enumerate(keywords))

    def at_any(self, keywords: Iterable[str]) -> bool:
        """Tell whether one of these words comes next."""
        return self.look().keyword in keywords

    def skip(self, *keywords: str) -> bool:
        """Take these words if they come next, and tell whether they did."""
        found = self.at(*keywords)
        if found:
            self._index += len(keywords)
        return found

    def expect(self, keyword: str, *, after: str) -> None:
        """Take a word that must come next."""
        if not self.skip(keyword):
            raise self.unexpected(keyword, after=after)

    def at_symbol(self, symbol: str, distance: int = 0) -> bool:
        """Tell whether a symbol comes next, or at a distance."""
        token = self.look(distance)
        return token.kind is TokenKind.SYMBOL and token.text == symbol

    def skip_symbol(self, symbol: str) -> bool:
        """Take a symbol if it comes next, and tell whether it did."""
        found = self.at_symbol(symbol)
        if found:
            self._index += 1
        return found

    def expect_symbol(self, symbol: str, *, after: str) -> None:
        """Take a symbol that must come next."""
        if not self.skip_symbol(symbol):
            raise self.unexpected(f'"{symbol}"', after=after)

    def at_name(self, distance: int = 0) -> bool:
        """Tell whether something that can be a name comes next, or at a distance."""
        return self.look(distance).kind in (TokenKind.WORD, TokenKind.NAME)

    def expect_text(self, what: str, *, after: str) -> str:
        """Take a text in quotes that must come next."""
        if self.look().kind is not TokenKind.TEXT:
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
        """Build the error about a token, the next one unless given."""
        offset = (token or self.look()).start
        return self.script.error(message, offset=offset, code=code, hint=hint)

    def unexpected(
        self, wanted: str, *, after: str = "", hint: str = "", choices: Iterable[str] = ()
    ) -> UserError:
        """Build the error that something else was expected; the nearest choice is suggested."""
        where = f" after {after}" if after else ""
        near = get_close_matches(self.look().keyword, list(choices), n=1)
        hints = [f"Did you mean {near[0]}?"] if near else []
        error = self.error(
            f"expected {wanted}{where}, found {self._shown(self.look())}",
            hint=" ".join([*hints, hint] if hint else hints),
        )
        error.wanted = wanted
        return error

    def _shown(self, token: Token) -> str:
        return "a text" if token in secret_tokens(self._tokens) else token.shown

    def unsupported(
        self, construct: str, *, place: str = "", token: Token | None = None, hint: str = ""
    ) -> UserError:
        """Build the error that a construct is known but cannot be used yet."""
        where = f" in {place}" if place else ""
        message = f"{construct} is not supported yet{where}"
        return self.error(message, token=token, code=Code.NOT_SUPPORTED_ERR, hint=hint)


def words(text: str) -> frozenset[str]:
    """Write a set of keywords as one text."""
    return frozenset(text.split())


def either(*choices: str) -> str:
    """Write choices as one text: ``a, b or c``."""
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last
