"""Print what a statement answered, for people or for programs."""

import csv
import json
import sys
from itertools import chain, count
from typing import Literal, TextIO

from penstock.control.result import Cell, Result


def print_result(
    result: Result, *, output: str, stream: TextIO | None = None, seconds: float | None = None
) -> None:
    """Print a result as table, vertical, json or csv; people are told how long it took."""
    stream = stream or sys.stdout
    match output:
        case "json":
            _print_json(result, stream)
        case "csv":
            _print_csv(result, stream)
        case "vertical":
            _print_vertical(result, stream)
            stream.write(_ending(result, seconds, output=output))
        case _:
            _print_table(result, stream)
            stream.write(_ending(result, seconds, output=output))


def _print_json(result: Result, stream: TextIO) -> None:
    keys = _distinct(result.columns)
    rows = [dict(zip(keys, row, strict=True)) for row in result.rows]
    answer = rows if result.columns else [{"message": result.message}]
    stream.write(json.dumps(answer, ensure_ascii=False) + "\n")


def _distinct(names: tuple[str, ...]) -> list[str]:
    """Give a name that comes again a number, for an object has no two equal keys."""
    keys: list[str] = []
    for name in names:
        further = (f"{name}_{number}" for number in count(2))
        keys.append(next(key for key in chain([name], further) if key not in keys))
    return keys


def _print_csv(result: Result, stream: TextIO) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    if not result.columns:
        writer.writerows([["message"], [result.message]])
        return
    writer.writerow(result.columns)
    writer.writerows([[_text(cell) for cell in row] for row in result.rows])


def _print_vertical(result: Result, stream: TextIO) -> None:
    if not result.columns:
        return
    width = max(len(name) for name in result.columns)
    for number, row in enumerate(result.rows, start=1):
        stream.write(f"{'*' * 12} {number}. row {'*' * 12}\n")
        for name, cell in zip(result.columns, row, strict=True):
            stream.write(f"{name:>{width}}: {_text(cell)}\n")


def _print_table(result: Result, stream: TextIO) -> None:
    if not result.columns:
        return
    if _holds_texts(result):
        _print_texts(result, stream)
        return
    if not stream.isatty():
        _print_aligned(result, stream)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(result.columns):
        justify: Literal["left", "right"] = "right" if _numeric(result, index) else "left"
        table.add_column(name, justify=justify, overflow="fold")
    for row in result.rows:
        table.add_row(*(Text(_line(cell)) for cell in row))
    Console(file=stream).print(table)


def _print_aligned(result: Result, stream: TextIO) -> None:
    """Print the columns for a pipe, where no line is folded."""
    lines = [result.columns, *(tuple(_line(cell) for cell in row) for row in result.rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(result.columns))]
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


def _print_texts(result: Result, stream: TextIO) -> None:
    """Print texts of several lines bare, so that they can be copied."""
    for row in result.rows:
        stream.write(f"{_text(row[-1])};\n")


def _line(cell: Cell) -> str:
    """Write a cell in one line."""
    return " ".join(_text(cell).splitlines())


def _text(cell: Cell) -> str:
    if isinstance(cell, bool):
        return str(cell).lower()
    return "" if cell is None else str(cell)


def _holds_texts(result: Result) -> bool:
    return result.columns[-1:] == ("create_statement",)


def _ending(result: Result, seconds: float | None, *, output: str) -> str:
    """Write the last line: what was done or how many rows there are, and how long it took."""
    if not result.columns:
        took = "" if seconds is None else f" ({seconds:.2f} s)"
        return f"{result.message}{took}\n"
    if seconds is None and output == "table" and _holds_texts(result):
        return ""
    rows = "1 row" if len(result.rows) == 1 else f"{len(result.rows)} rows"
    return f"{rows}\n" if seconds is None else f"{rows}, {seconds:.2f} s\n"
