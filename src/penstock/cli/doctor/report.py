"""The subject of the checks, their findings, and the printed report."""

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.model.text import format_count
from penstock.settings.settings import Settings

if TYPE_CHECKING:
    from penstock.app import App

NAME_WIDTH = len("warehouse")
WIDTH_MIN = 40


class Outcome(StrEnum):
    """Result of a check."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


MARKS = {Outcome.OK: "✓", Outcome.WARNING: "!", Outcome.PROBLEM: "✗"}
COLOURS = {Outcome.OK: "green", Outcome.WARNING: "yellow", Outcome.PROBLEM: "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the report: the check, its result, and the next command."""

    check: str
    found: str
    outcome: Outcome = Outcome.OK
    advice: str = ""


def ok(check: str, found: str, *, advice: str = "") -> Finding:
    """Return a finding that needs no action."""
    return Finding(check=check, found=found, advice=advice)


def warning(check: str, found: str, *, advice: str) -> Finding:
    """Return a finding that may become a problem."""
    return Finding(check=check, outcome=Outcome.WARNING, found=found, advice=advice)


def problem(check: str, found: str, *, advice: str = "") -> Finding:
    """Return a finding that prevents the node or a job from working."""
    return Finding(check=check, outcome=Outcome.PROBLEM, found=found, advice=advice)


def failure(check: str, error: PenstockError, *, about: str = "") -> Finding:
    """Return an error as a problem."""
    text = f"{about}{error.message}. {error.detail}".rstrip(". ")
    return problem(check, text, advice=error.hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The node to check."""

    # The default settings if the settings cannot be read.
    settings: Settings
    settings_error: PenstockError | None
    # None if there is no catalog, or it needs an upgrade, or it cannot be opened.
    app: "App | None"
    app_error: str
    quick: bool
    clock: Clock

    @property
    def home(self) -> Path:
        """Home of the node, which need not exist."""
        return self.settings.home


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Writer of findings to a stream."""

    stream: TextIO
    pretty: bool
    width: int | None

    @staticmethod
    def for_terminal() -> "Report":
        """Return the report for standard output."""
        stream = sys.stdout
        if not stream.isatty():
            return Report(stream=stream, pretty=False, width=None)
        utf8 = (stream.encoding or "").lower().replace("-", "") == "utf8"
        dumb = os.environ.get("TERM", "dumb") == "dumb"
        width = shutil.get_terminal_size().columns
        return Report(stream=stream, pretty=utf8 and not dumb, width=width)

    def write(self, findings: Iterable[Finding]) -> int:
        """Write each finding at once, then the number of problems; return the exit code."""
        outcomes = []
        for finding in findings:
            outcomes.append(finding.outcome)
            self._write_lines(finding)
            self.stream.flush()
        problems = outcomes.count(Outcome.PROBLEM)
        warnings = outcomes.count(Outcome.WARNING)
        first = format_count(problems, "problem") if problems else "no problems"
        more = f", {format_count(warnings, 'warning')}" if warnings else ""
        self.stream.write(f"{first}{more}\n")
        return 1 if problems else 0

    def show_running(self, line: str) -> None:
        """Show which check runs; the next finding overwrites the line."""
        if self.pretty:
            self.stream.write(f"· {line}\r")
            self.stream.flush()

    def _write_lines(self, finding: Finding) -> None:
        lines = finding_lines(finding, pretty=self.pretty, width=self.width)
        if not self.pretty:
            self.stream.writelines(f"{line}\n" for line in lines)
            return
        from rich.console import Console
        from rich.text import Text

        self.stream.write("\x1b[K")  # Clears the line of show_running().
        text = Text("\n".join(lines))
        text.stylize(COLOURS[finding.outcome], 0, 1)
        Console(file=self.stream, soft_wrap=True).print(text, highlight=False)


def finding_lines(finding: Finding, *, pretty: bool, width: int | None) -> list[str]:
    """Return a finding as aligned lines, wrapped if there is a width."""
    mark = MARKS[finding.outcome] if pretty else f"{finding.outcome:<7}"
    head = f"{mark} {finding.check:<{NAME_WIDTH}}  "
    indent = " " * (len(mark) + NAME_WIDTH + 3)
    arrow = "→ " if pretty else "next: "
    lines = _wrapped(finding.found, head=head, indent=indent, width=width)
    if finding.advice:
        deeper = indent + " " * len(arrow)
        lines += _wrapped(finding.advice, head=indent + arrow, indent=deeper, width=width)
    return lines


def _wrapped(text: str, *, head: str, indent: str, width: int | None) -> list[str]:
    lines = textwrap.wrap(
        " ".join(text.split()),
        sys.maxsize if width is None else max(width, WIDTH_MIN),
        initial_indent=head,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines or [head]


def json_text(findings: Iterable[Finding]) -> tuple[str, int]:
    """Return findings as a JSON array of objects, and the exit code."""
    found = list(findings)
    rows = [
        {"check": f.check, "outcome": f.outcome, "found": f.found, "next": f.advice}
        for f in found
    ]
    failed = any(f.outcome is Outcome.PROBLEM for f in found)
    return json.dumps(rows, ensure_ascii=False) + "\n", int(failed)
