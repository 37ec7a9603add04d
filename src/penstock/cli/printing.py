"""Print the result of a statement as table or vertical text, as JSON or as CSV."""

import csv
import json
import sys
from itertools import chain, count
from typing import Literal, TextIO

from penstock.control.result import Cell, Result


def print_result(
    result: Result, *, output: str, stream: TextIO | None = None, seconds: float | None = None
) -> None:
    """Print a result; the formats table and vertical also print the duration."""
    stream = stream or sys.stdout
    match output:
        case "json":
            _print_json(result, stream)
        case "csv":
            _print_csv(result, stream)
        case "vertical":
            _print_vertical(result, stream)
            _print_ending(result, stream, seconds)
        case _ if is_grid(result, output):
            _print_grid(result, stream)
            _print_ending(result, stream, seconds)
        case _:
            # CREATE statements are printed without a table, so that users can copy them.
            stream.writelines(f"{_text(row[-1])};\n" for row in result.rows)
            if seconds is not None or not result.names:
                _print_ending(result, stream, seconds)


def is_grid(result: Result, output: str) -> bool:
    """Return whether a result is printed as a table with columns."""
    return output == "table" and bool(result.names) and result.names[-1] != "create_statement"


def _print_json(result: Result, stream: TextIO) -> None:
    keys = _distinct(result.names)
    rows = [dict(zip(keys, row, strict=True)) for row in result.rows]
    shown = rows if result.names else [{"message": result.message}]
    stream.write(json.dumps(shown, ensure_ascii=False) + "\n")


def _distinct(names: tuple[str, ...]) -> list[str]:
    """Add numbers to repeated names, because the keys of a JSON object are distinct."""
    keys: list[str] = []
    for name in names:
        further = (f"{name}_{number}" for number in count(2))
        keys.append(next(key for key in chain([name], further) if key not in keys))
    return keys


def _print_csv(result: Result, stream: TextIO) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    if not result.names:
        writer.writerows([["message"], [result.message]])
        return
    writer.writerow(result.names)
    writer.writerows([[_text(cell) for cell in row] for row in result.rows])


def _print_vertical(result: Result, stream: TextIO) -> None:
    width = max((len(name) for name in result.names), default=0)
    for number, row in enumerate(result.rows, start=1):
        stream.write(f"{'*' * 12} {number}. row {'*' * 12}\n")
        for name, cell in zip(result.names, row, strict=True):
            stream.write(f"{name:>{width}}: {_text(cell)}\n")


def _print_grid(result: Result, stream: TextIO) -> None:
    if not stream.isatty():
        _print_aligned(result, stream)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(result.names):
        justify: Literal["left", "right"] = "right" if _numeric(result, index) else "left"
        table.add_column(name, justify=justify, overflow="fold")
    for row in result.rows:
        table.add_row(*(Text(_line(cell)) for cell in row))
    Console(file=stream).print(table)


def _print_aligned(result: Result, stream: TextIO) -> None:
    """Print aligned columns without wrapping, for a pipe or a file."""
    lines = [result.names, *(tuple(_line(cell) for cell in row) for row in result.rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(result.names))]
    lines.insert(1, tuple("-" * width for width in widths))
    for line in lines:
        cells = [
            cell.rjust(width) if _numeric(result, index) else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        stream.write("  ".join(cells).rstrip() + "\n")


def _numeric(result: Result, index: int) -> bool:
    cells = (row[index] for row in result.rows)
    return any(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells)


def _line(cell: Cell) -> str:
    return " ".join(_text(cell).splitlines())


def _text(cell: Cell) -> str:
    if isinstance(cell, bool):
        return str(cell).lower()
    return "" if cell is None else str(cell)


def _print_ending(result: Result, stream: TextIO, seconds: float | None) -> None:
    """Print the message or the number of rows, and the duration."""
    if not result.names:
        took = "" if seconds is None else f" ({seconds:.2f} s)"
        stream.write(f"{result.message}{took}\n")
        return
    took = "" if seconds is None else f", {seconds:.2f} s"
    rows = "1 row" if len(result.rows) == 1 else f"{len(result.rows)} rows"
    stream.write(f"{rows}{took}\n")
