"""Show results and errors in the prompt; use a pager if they do not fit on the screen.

Invariant: a line of a statement is shown only if it contains no secret value.
"""

import io
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress

from penstock.cli.printing import is_grid, print_result
from penstock.control.result import Result
from penstock.errors import Code, PenstockError, UserError
from penstock.sql.lexer import line_of
from penstock.sql.masking import visible_part

TABLE = "table"
VERTICAL = "vertical"
LINE_CHARACTERS_MAX = 72

_INDENT = "    "
_ELLIPSIS = "…"
# less: keep colours, exit if one screen is enough, keep the screen, no tildes, and a prompt
# with help. -S chops long lines.
_LESS = "-RFX~ -Psspace and arrows move, q quits$"
# A table on a terminal has two empty lines, and three characters between columns.
_TABLE_LINES_MORE = 2
_PROMPT_LINES = 1


def page(text: str, *, chopped: bool) -> bool:
    """Show a text in the pager; chop or wrap long lines. Return False without a pager."""
    import click

    if os.environ.get("PAGER") == "":
        return False
    own_options = "LESS" not in os.environ
    if own_options:
        os.environ["LESS"] = f"-S {_LESS}" if chopped else _LESS
    try:
        # The pager handles Ctrl-C itself.
        with suppress(KeyboardInterrupt):
            click.echo_via_pager(text.removesuffix("\n"))
    except ValueError:
        # PAGER contains an unclosed quote.
        return False
    finally:
        if own_options:
            del os.environ["LESS"]
    return True


def error_text(error: PenstockError, *, script: str = "") -> str:
    """Return the code, message, detail, marked line of the script, and hint of an error."""
    lines = [f"error {error.code}: {error.message}"]
    lines += [f"  detail: {error.detail}"] if error.detail else []
    if isinstance(error, UserError) and error.line is not None and error.column is not None:
        lines += caret_lines(script, line=error.line, column=error.column)
    lines += [f"  hint: {error.hint}"] if error.hint else []
    if error.code is Code.INTERNAL_ERR:
        lines.append("  This is a bug in Penstock. Please report it with the logs.")
    return "".join(f"{line}\n" for line in lines)


def caret_lines(script: str, *, line: int, column: int) -> list[str]:
    """Return a line of a script with a caret below a column; nothing if a secret may show."""
    written = line_of(script, line)
    if not written or written != line_of(visible_part(script), line):
        return []
    from rich.cells import cell_len

    shown, at = _window(written, column - 1)
    return [f"{_INDENT}{shown}".rstrip(), f"{_INDENT}{' ' * cell_len(shown[:at])}^"]


def _window(line: str, at: int) -> tuple[str, int]:
    """Return the part of a long line around an index, and the index in that part."""
    shown = "".join(_visible(character) for character in line)
    start = max(0, min(at - LINE_CHARACTERS_MAX // 2, len(line) - LINE_CHARACTERS_MAX))
    end = start + LINE_CHARACTERS_MAX
    head = _ELLIPSIS if start else ""
    tail = _ELLIPSIS if end < len(line) else ""
    return f"{head}{shown[start:end]}{tail}", at - start + len(head)


def _visible(character: str) -> str:
    """Replace a control character by one visible character, so that columns do not move."""
    if character.isprintable():
        return character
    return " " if character.isspace() else "?"


def show_result(result: Result, *, output: str, seconds: float | None) -> None:
    """Print a result; use the pager for a table or vertical result that does not fit."""
    if output in (TABLE, VERTICAL):
        text = plain_text(result, output=output, seconds=seconds)
        if not fits(text, result, output=output, on=shutil.get_terminal_size()):
            if not result.rows:
                sys.stdout.write(text.splitlines()[-1] + "\n")
                return
            if page(text, chopped=is_grid(result, output)):
                return
    print_result(result, output=output, seconds=seconds)


def plain_text(result: Result, *, output: str, seconds: float | None) -> str:
    """Return a result as text without a limit of the width."""
    stream = io.StringIO()
    print_result(result, output=output, stream=stream, seconds=seconds)
    return stream.getvalue()


def fits(text: str, result: Result, *, output: str, on: os.terminal_size) -> bool:
    """Return whether a result and its text fit on the screen above the prompt."""
    from rich.cells import cell_len

    widths = [cell_len(line) for line in text.splitlines()]
    room = on.lines - _PROMPT_LINES
    if is_grid(result, output):
        needed = max(widths[:-1]) + len(result.names) + 1
        return needed <= on.columns and len(widths) + _TABLE_LINES_MORE <= room
    return sum(max(1, -(-width // on.columns)) for width in widths) <= room


def watched_text(results: Sequence[Result], *, output: str, on: os.terminal_size) -> str:
    """Return results to redraw in place; a short table that is too wide becomes vertical."""
    from rich.cells import cell_len

    texts = [plain_text(result, output=output, seconds=None) for result in results]
    for index, result in enumerate(results):
        width = max(map(cell_len, texts[index].splitlines()), default=0)
        if is_grid(result, output) and width > on.columns:
            vertical = plain_text(result, output=VERTICAL, seconds=None)
            if len(vertical.splitlines()) < on.lines - _PROMPT_LINES:
                texts[index] = vertical
    return "\n".join(texts)
