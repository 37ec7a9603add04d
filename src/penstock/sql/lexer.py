r"""Split a script into tokens, each with its line and column.

The tokenizer is sqlglot's tokenizer for Spark, without keywords. A table can therefore be
called ``events``. A comment starts with ``--``, or is in ``/* */``, which can be nested. A
string is in single or double quotes; inside it, a doubled quote is one quote. Escapes work as
in Spark. ``\n \t \r \b \Z \\``, ``\uXXXX``, ``\UXXXXXXXX`` and three octal digits are one
character. ``\%`` and ``\_`` stay as written. Any other ``\x`` is ``x``. A raw string ``r'…'``
has no escapes. A name is bare, or in backquotes; inside them, a doubled backquote is one
backquote.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token as FoundToken
from sqlglot.tokenizer_core import TokenType

from penstock.errors import Code, UserError

# Tokenizing takes two to six microseconds per character. A longer script is probably a mistake.
SCRIPT_CHARACTERS_MAX = 1_000_000

_BYTE_ORDER_MARK = "\ufeff"
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The text of a script; ``line_starts`` contains the offset of each line."""

    text: str
    line_starts: tuple[int, ...]

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and column of an offset, both counted from 1."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def error(
        self, message: str, *, offset: int, code: Code = Code.SYNTAX_ERR, hint: str = ""
    ) -> UserError:
        """Return an error about the text at an offset; the detail is the line and column."""
        line, column = self.position(offset)
        return UserError(message, code=code, hint=hint).at(line=line, column=column)


def read_script(text: str) -> Script:
    """Return a script; raise UserError if the text is too long or is not valid Unicode."""
    text = text.removeprefix(_BYTE_ORDER_MARK)
    if len(text) > SCRIPT_CHARACTERS_MAX:
        raise UserError(
            f"the script must have at most {SCRIPT_CHARACTERS_MAX} characters, not {len(text)}",
            code=Code.SYNTAX_ERR,
            hint="Split the script and run the parts one by one.",
        )
    starts = (0, *(line_break.end() for line_break in _LINE_BREAK.finditer(text)))
    script = Script(text=text, line_starts=starts)
    if surrogate := _SURROGATE.search(text):
        raise script.error(
            f"{character_name(surrogate.group())} is an unpaired surrogate, not a character",
            offset=surrogate.start(),
            hint="Save the script as UTF-8.",
        )
    return script


def line_of(text: str, number: int) -> str:
    """Return a line of a script, counted from 1; empty if there is no such line."""
    lines = _LINE_BREAK.split(text.removeprefix(_BYTE_ORDER_MARK))
    return lines[number - 1] if number <= len(lines) else ""


def character_name(character: str) -> str:
    """Return a character in quotes, or its code point if it is not printable."""
    return f'"{character}"' if character.isprintable() else f"U+{ord(character):04X}"


SHOWN_CHARACTERS_MAX = 64
BACKQUOTES = "Enclose a name with special characters in backquotes: `my-name`."

_COMMENT_MARK = re.compile(r"/\*|\*/")
_NUMBER = re.compile(r"\d+(\.\d*)?(e[+-]?\d+)?(l|s|y|d|f|bd)?\Z", re.ASCII | re.IGNORECASE)
_OPENING = re.compile(r"[nrx]?['\"]|`", re.IGNORECASE)
_WORD = re.compile(r"\w+")

_COMMENT_HINT = "A comment starts with -- or /*."


class TokenKind(StrEnum):
    """The kind of a token."""

    WORD = "word"
    NAME = "name"
    TEXT = "text"
    NUMBER = "number"
    LITERAL = "literal"
    HINT = "hint"
    SYMBOL = "symbol"
    END = "end"


_SHOWN_BY_KIND = {
    TokenKind.TEXT: "a string",
    TokenKind.LITERAL: "a literal",
    TokenKind.HINT: "a hint",
    TokenKind.END: "the end of the statement",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A piece of a script; ``text`` has no quotes, and its escapes are replaced."""

    kind: TokenKind
    text: str
    start: int
    end: int

    @property
    def keyword(self) -> str:
        """The word in upper case; empty for anything that is not a bare word."""
        # The upper case of some other letters, such as a long s, is an ASCII letter.
        bare = self.kind is TokenKind.WORD and self.text.isascii()
        return self.text.upper() if bare else ""

    def is_symbol(self, symbol: str) -> bool:
        """Return whether the token is a symbol."""
        return self.kind is TokenKind.SYMBOL and self.text == symbol

    @property
    def shown(self) -> str:
        """The token as messages show it; strings are omitted, because they may be secret."""
        ellipsis = "…" if len(self.text) > SHOWN_CHARACTERS_MAX else ""
        quoted = f'"{self.text[:SHOWN_CHARACTERS_MAX]}{ellipsis}"'
        return _SHOWN_BY_KIND.get(self.kind, quoted)


class _Tokenizer(Spark.Tokenizer):
    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        "SELECT": TokenType.SELECT,
        "/*+": TokenType.HINT,
    }
    STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']


def tokenize(script: Script) -> tuple[Token, ...]:
    """Return the tokens of a script, without comments and white space."""
    tokenizer = _Tokenizer(dialect="spark")
    try:
        found = tokenizer.tokenize(script.text)
    except TokenError as error:
        ends = [token.end + 1 for token in tokenizer.tokens]
        raise _unfinished(script, _skip_space(script, ends[-1] if ends else 0)) from error
    tokens: list[Token] = []
    end = 0
    for token in found:
        # A hint starts like a comment, so _check_space would skip the hint.
        if token.token_type != TokenType.HINT:
            _check_space(script, end, token.start)
        end = token.end + 1
        tokens.append(_token(script, token))
    _check_space(script, end, len(script.text))
    return tuple(tokens)


def _unfinished(script: Script, offset: int) -> UserError:
    opening = _OPENING.match(script.text, offset)
    if not opening:
        return _misplaced(script, offset, hint=_COMMENT_HINT)
    quote = opening.group()[-1]
    if opening.group() in ("x'", "X'") and quote in script.text[opening.end() :]:
        return script.error("X'…' must contain only hexadecimal digits", offset=offset)
    return script.error(
        f"the {'name' if quote == '`' else 'string'} is not closed",
        offset=offset,
        hint=f"Close it with {quote}. To include {quote}, write {quote}{quote}.",
    )


def _misplaced(script: Script, offset: int, *, hint: str) -> UserError:
    found = script.text[offset : offset + 1]
    shown = character_name(found) if found else "end of the script"
    return script.error(f"unexpected {shown}", offset=offset, hint=hint)


def _check_space(script: Script, start: int, end: int) -> None:
    # The tokenizer also skips {# … #} as a comment and does not nest /*/*. The skipped text is
    # therefore checked again.
    stop = _skip_space(script, start)
    if stop != end:
        raise _misplaced(script, min(stop, end), hint=_COMMENT_HINT)


def _skip_space(script: Script, offset: int) -> int:
    text = script.text
    while offset < len(text):
        if text[offset].isspace():
            offset += 1
        elif text.startswith("--", offset):
            line_break = _LINE_BREAK.search(text, offset)
            offset = line_break.start() if line_break else len(text)
        elif text.startswith("/*", offset):
            offset = _end_of_comment(script, offset)
        else:
            break
    return offset


def _end_of_comment(script: Script, offset: int) -> int:
    depth = 0
    for mark in _COMMENT_MARK.finditer(script.text, offset):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    raise script.error("the comment is not closed", offset=offset, hint="Close it with */.")


def _token(script: Script, found: FoundToken) -> Token:
    start, end = found.start, found.end + 1
    written = script.text[start:end]
    match found.token_type:
        case TokenType.STRING | TokenType.RAW_STRING:
            kind, text = TokenKind.TEXT, found.text
        case TokenType.IDENTIFIER if written.startswith("`"):
            kind, text = TokenKind.NAME, found.text
        case TokenType.HEX_STRING | TokenType.NATIONAL_STRING:
            kind, text = TokenKind.LITERAL, written
        case TokenType.HINT:
            kind, text = TokenKind.HINT, written
        case _:
            kind, text = _plain_kind(script, start, end), written
    if "\0" in text:
        raise script.error("a string or name must not contain U+0000", offset=start)
    return Token(kind=kind, text=text, start=start, end=end)


def _plain_kind(script: Script, start: int, end: int) -> TokenKind:
    written = script.text[start:end]
    if _NUMBER.match(written):
        return TokenKind.NUMBER
    word = _WORD.match(written)
    if word and word.end() == len(written):
        return TokenKind.WORD
    if len(written) == 1 and written.isascii() and written.isprintable():
        return TokenKind.SYMBOL
    offset = start + (word.end() if word else 0)
    raise _misplaced(script, offset, hint=BACKQUOTES)
