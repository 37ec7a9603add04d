"""Show results on a screen of a size: as they are, through the pager, or cut to fit."""

import io
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.control.result import Result
from penstock.printing import print_result
from penstock.prompt.pager import page

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
