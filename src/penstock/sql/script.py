"""The text of a script, with the line and column of every place in it."""

import re
from bisect import bisect_right
from dataclasses import dataclass

from penstock.errors import Code, UserError

# Reading a script costs two to six microseconds per character; a longer one is an accident.
SCRIPT_CHARACTERS_MAX = 1_000_000

_BYTE_ORDER_MARK = "\ufeff"
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in a script as editors count it: from line 1, column 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A text to parse; ``line_starts`` are the offsets at which its lines begin."""

    text: str
    line_starts: tuple[int, ...]

    def position(self, offset: int) -> Position:
        """Tell the line and column of an offset."""
        line = bisect_right(self.line_starts, offset)
        return Position(line=line, column=offset - self.line_starts[line - 1] + 1)

    def error(
        self, message: str, *, offset: int, code: Code = Code.SYNTAX_ERR, hint: str = ""
    ) -> UserError:
        """Build the error about the text at an offset; its detail is the position."""
        place = self.position(offset)
        error = UserError(message, code=code, hint=hint)
        return error.at(line=place.line, column=place.column)


def read_script(text: str) -> Script:
    """Take a text as a script; one that could be neither stored nor read in time is refused."""
    text = text.removeprefix(_BYTE_ORDER_MARK)
    if len(text) > SCRIPT_CHARACTERS_MAX:
        raise UserError(
            f"a script has at most {SCRIPT_CHARACTERS_MAX} characters, this one {len(text)}",
            code=Code.SYNTAX_ERR,
            hint="Send the statements one by one.",
        )
    starts = (0, *(line_break.end() for line_break in _LINE_BREAK.finditer(text)))
    script = Script(text=text, line_starts=starts)
    if surrogate := _SURROGATE.search(text):
        raise script.error(
            f"{character_name(surrogate.group())} is half a character and cannot be stored",
            offset=surrogate.start(),
            hint="Save the script as UTF-8.",
        )
    return script


def line_of(text: str, number: int) -> str:
    """Answer a line of a script, counted from 1; empty where there is none."""
    lines = _LINE_BREAK.split(text.removeprefix(_BYTE_ORDER_MARK))
    return lines[number - 1] if number <= len(lines) else ""


def character_name(character: str) -> str:
    """Write a character so that it can be seen in a message."""
    return f'"{character}"' if character.isprintable() else f"U+{ord(character):04X}"
