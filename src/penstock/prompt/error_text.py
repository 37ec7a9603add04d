"""What people are told of an error: its parts, and the place in what they wrote.

Invariant: a line of a statement is shown only as ``masked`` leaves it.
"""

from unicodedata import combining, east_asian_width

from penstock.errors import Code, PenstockError, UserError
from penstock.sql.masking import masked
from penstock.sql.script import line_of

LINE_CHARACTERS_MAX = 72

_INDENT = "    "
_CUT = "…"


def error_text(error: PenstockError, *, script: str = "") -> str:
    """Write code, message, detail, the line of the script with a caret, and hint."""
    lines = [f"error {error.code}: {error.message}"]
    lines += [f"  detail: {error.detail}"] if error.detail else []
    if isinstance(error, UserError) and error.line is not None and error.column is not None:
        lines += caret_lines(script, line=error.line, column=error.column)
    lines += [f"  hint: {error.hint}"] if error.hint else []
    if error.code is Code.INTERNAL_ERR:
        lines.append("  This is a defect of Penstock; please report it with the logs.")
    return "".join(f"{line}\n" for line in lines)


def caret_lines(script: str, *, line: int, column: int) -> list[str]:
    """Answer a line of a script and the caret below a column; none if it must not be seen."""
    written = line_of(script, line)
    if not written or written != line_of(masked(script), line):
        return []
    shown, at = _window(written, column - 1)
    before = sum(_cells(character) for character in shown[:at])
    return [f"{_INDENT}{shown}".rstrip(), f"{_INDENT}{' ' * before}^"]


def _window(line: str, at: int) -> tuple[str, int]:
    """Cut a long line around a place; answer it with the place in it."""
    shown = "".join(_visible(character) for character in line)
    begin = max(0, min(at - LINE_CHARACTERS_MAX // 2, len(line) - LINE_CHARACTERS_MAX))
    end = begin + LINE_CHARACTERS_MAX
    head = _CUT if begin else ""
    tail = _CUT if end < len(line) else ""
    return f"{head}{shown[begin:end]}{tail}", at - begin + len(head)


def _visible(character: str) -> str:
    """Write one character for one, so that columns stay, and none that a terminal obeys."""
    if character.isprintable():
        return character
    return " " if character.isspace() else "?"


def _cells(character: str) -> int:
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in ("F", "W") else 1
