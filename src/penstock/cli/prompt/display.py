"""Show results and errors in the prompt, through a pager if they are long.

Invariant: a line of a statement is shown only as ``masked`` leaves it.
"""

import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from unicodedata import combining, east_asian_width

from penstock.cli.printing import print_result
from penstock.control.result import Result
from penstock.errors import Code, PenstockError, UserError
from penstock.sql.lexer import line_of
from penstock.sql.masking import masked

_LESS_OPTIONS = "RFX"
_CHOPPING = "S"
# A prompt that says how to get out, and no tildes below the last line.
_LESS_MANNERS = ("-Psspace and arrows move, q ends", "-~")


def page(text: str, *, chopped: bool) -> bool:
    """Show a text, long lines chopped or wrapped; answer whether there was a pager for it."""
    command = pager_command(os.environ, chopped=chopped)
    if not command:
        return False
    options = _LESS_OPTIONS + (_CHOPPING if chopped else "")
    try:
        process = subprocess.Popen(  # noqa: S603 - The user's own choice.
            command,
            stdin=subprocess.PIPE,
            env={"LESS": options, **os.environ},
            encoding="utf-8",
            errors="replace",
        )
    except OSError:
        return False
    with _interrupts_left_to_it():
        # A pager that was left early does not read to the end.
        with suppress(BrokenPipeError):
            process.communicate(text)
        process.wait()
    return True


def pager_command(environment: Mapping[str, str], *, chopped: bool) -> list[str]:
    """Answer the command that the user wants as pager; none if PAGER is set to nothing."""
    chosen = environment.get("PAGER")
    if chosen is None:
        options = _LESS_OPTIONS + (_CHOPPING if chopped else "")
        return ["less", f"-{options}", *_LESS_MANNERS]
    try:
        return shlex.split(chosen)
    except ValueError:
        return []


@contextmanager
def _interrupts_left_to_it() -> Iterator[None]:
    """Ignore Ctrl-C, which the pager sees, too."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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


TABLE = "table"
VERTICAL = "vertical"

# A table on a terminal has two empty lines, and three characters between columns.
_TABLE_LINES_MORE = 2
_PROMPT_LINES = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """How much fits on the terminal."""

    columns: int
    lines: int


def screen() -> Screen:
    """Answer the size of the terminal."""
    size = shutil.get_terminal_size()
    return Screen(columns=size.columns, lines=size.lines)


def show_result(result: Result, *, output: str, seconds: float | None) -> None:
    """Print a result; people's formats go through the pager when they do not fit."""
    if output in (TABLE, VERTICAL):
        text = plain_text(result, output=output, seconds=seconds)
        if not fits(text, result, output=output, on=screen()):
            if not result.rows:
                sys.stdout.write(text.splitlines()[-1] + "\n")
                return
            if page(text, chopped=_is_grid(result, output)):
                return
    print_result(result, output=output, seconds=seconds)


def plain_text(result: Result, *, output: str, seconds: float | None) -> str:
    """Write a result as if nothing limited its width."""
    stream = io.StringIO()
    print_result(result, output=output, stream=stream, seconds=seconds)
    return stream.getvalue()


def fits(text: str, result: Result, *, output: str, on: Screen) -> bool:
    """Tell whether a result, written plainly, fits on the screen above the prompt."""
    from rich.cells import cell_len

    widths = [cell_len(line) for line in text.splitlines()]
    room = on.lines - _PROMPT_LINES
    if _is_grid(result, output):
        needed = max(widths[:-1]) + len(result.columns) + 1
        return needed <= on.columns and len(widths) + _TABLE_LINES_MORE <= room
    return sum(max(1, -(-width // on.columns)) for width in widths) <= room


def watched_text(results: Sequence[Result], *, output: str, on: Screen) -> str:
    """Write results to be drawn in place: vertically where a table is too wide but short."""
    texts = [plain_text(result, output=output, seconds=None) for result in results]
    for index, result in enumerate(results):
        if not _is_grid(result, output) or _narrow(texts[index], on):
            continue
        vertical = plain_text(result, output=VERTICAL, seconds=None)
        if len(vertical.splitlines()) < on.lines - _PROMPT_LINES:
            texts[index] = vertical
    return "\n".join(texts)


def _narrow(text: str, on: Screen) -> bool:
    from rich.cells import cell_len

    return all(cell_len(line) <= on.columns for line in text.splitlines())


def _is_grid(result: Result, output: str) -> bool:
    """Tell whether a result is printed in columns beside each other."""
    return output == TABLE and bool(result.columns) and result.columns[-1] != "create_statement"
