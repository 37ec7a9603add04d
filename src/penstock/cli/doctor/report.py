"""Look at everything a node needs, and say what to type next; nothing is made or changed."""

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from penstock.app import App
from penstock.catalog.glance import catalog_path, stored_revision
from penstock.catalog.upgrade import HEAD
from penstock.cli.doctor.finding import Finding, Outcome, Subject
from penstock.cli.doctor.home import (
    check_catalog,
    check_clock,
    check_home,
    check_secrets,
    check_settings,
    check_warehouse,
)
from penstock.cli.doctor.jobs import WAIT_MAX, check_jobs, check_sources
from penstock.cli.doctor.machine import check_java, check_python, check_size, check_spark
from penstock.clock import SystemClock
from penstock.errors import PenstockError
from penstock.model.text import counted, lasted
from penstock.settings.settings import Settings, home_folder, load_settings

Check = Callable[[Subject], Iterator[Finding]]

CHECKS: dict[str, Check] = {
    "python": check_python,
    "java": check_java,
    "machine": check_size,
    "home": check_home,
    "settings": check_settings,
    "catalog": check_catalog,
    "warehouse": check_warehouse,
    "secrets": check_secrets,
    "sources": check_sources,
    "clock": check_clock,
    "spark": check_spark,
    "jobs": check_jobs,
}
MARKS = {Outcome.OK: "✓", Outcome.WARNING: "!", Outcome.PROBLEM: "✗"}
COLOURS = {Outcome.OK: "green", Outcome.WARNING: "yellow", Outcome.PROBLEM: "red"}
# What is said to somebody who watches of a check that may take its time.
PATIENCE = {
    "spark": "takes about 10 s to start",
    "sources": f"are asked, for {lasted(WAIT_MAX)} at most",
    "warehouse": "is tried, which takes about 15 s if a bucket does not answer",
}
NAME_WIDTH = max(map(len, CHECKS))
WIDTH_MIN = 40
CLEAR_LINE = "\x1b[K"


def open_subject(home: Path | None, *, quick: bool) -> Subject:
    """Answer the node to look at; its catalog is opened only if that changes nothing."""
    error: PenstockError | None = None
    try:
        settings = load_settings(home=home)
    except PenstockError as found:
        settings, error = Settings(home=home_folder(home)), found
    app, app_error = _opened(settings)
    return Subject(
        settings=settings,
        settings_error=error,
        app=app,
        app_error=app_error,
        quick=quick,
        clock=SystemClock(),
        environment=os.environ,
    )


def _opened(settings: Settings) -> tuple[App | None, str]:
    """Answer the App, or why there is none; no catalog yet is no error."""
    path = catalog_path(settings.catalog_url)
    try:
        if path is None or not path.is_file() or stored_revision(path) != HEAD:
            return None, ""
        return App(settings, command="doctor"), ""
    except Exception as error:  # noqa: BLE001 - Whoever looks for trouble must not fail on it.
        return None, str(error)


def _ignored(name: str) -> None:
    """Tell nobody."""


def examine(subject: Subject, *, begin: Callable[[str], None] = _ignored) -> Iterator[Finding]:
    """Do one check after the other; one that fails is itself a problem.

    ``begin`` hears the name of each before it is done.
    """
    for name, check in CHECKS.items():
        begin(name)
        try:
            yield from check(subject)
        except PenstockError as error:
            found = f"{error.message}. {error.detail}".rstrip(". ")
            yield Finding(check=name, outcome=Outcome.PROBLEM, found=found, advice=error.hint)
        except Exception as error:  # noqa: BLE001 - Whoever looks for trouble must not fail on it.
            told = f"{type(error).__name__}: {error}"
            yield Finding(check=name, outcome=Outcome.PROBLEM, found=told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How findings are written to a stream."""

    stream: TextIO
    pretty: bool
    width: int | None

    def write(self, findings: Iterable[Finding]) -> int:
        """Write findings as they come, and what they come to; answer the exit code."""
        outcomes = []
        for finding in findings:
            outcomes.append(finding.outcome)
            self._write_lines(finding)
            self.stream.flush()
        problems = outcomes.count(Outcome.PROBLEM)
        warnings = outcomes.count(Outcome.WARNING)
        said = counted(problems, "problem") if problems else "no problems"
        more = f", {counted(warnings, 'warning')}" if warnings else ""
        self.stream.write(f"{said}{more}\n")
        return 1 if problems else 0

    def begin(self, name: str) -> None:
        """Say to somebody who watches what takes so long."""
        if self.pretty:
            self.stream.write(f"· {name} {PATIENCE.get(name, '…')}\r")
            self.stream.flush()

    def _write_lines(self, finding: Finding) -> None:
        lines = finding_lines(finding, pretty=self.pretty, width=self.width)
        if not self.pretty:
            self.stream.writelines(f"{line}\n" for line in lines)
            return
        from rich.console import Console
        from rich.text import Text

        self.stream.write(CLEAR_LINE)
        text = Text("\n".join(lines))
        text.stylize(COLOURS[finding.outcome], 0, 1)
        Console(file=self.stream, soft_wrap=True).print(text, highlight=False)


def finding_lines(finding: Finding, *, pretty: bool, width: int | None) -> list[str]:
    """Write a finding in aligned lines, folded where there is a width to fold to."""
    mark = MARKS[finding.outcome] if pretty else f"{finding.outcome:<7}"
    head = f"{mark} {finding.check:<{NAME_WIDTH}}  "
    indent = " " * (len(mark) + NAME_WIDTH + 3)
    arrow = "→ " if pretty else "next: "
    lines = _folded(finding.found, head=head, indent=indent, width=width)
    if finding.advice:
        deeper = indent + " " * len(arrow)
        lines += _folded(finding.advice, head=indent + arrow, indent=deeper, width=width)
    return lines


def _folded(text: str, *, head: str, indent: str, width: int | None) -> list[str]:
    line = " ".join(text.split())
    if width is None:
        return [head + line]
    return textwrap.wrap(
        line,
        max(width, WIDTH_MIN),
        initial_indent=head,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def json_text(findings: Iterable[Finding]) -> tuple[str, int]:
    """Write findings as one array of objects, for programs; answer it with the exit code."""
    found = list(findings)
    rows = [
        {"check": f.check, "outcome": f.outcome, "found": f.found, "next": f.advice}
        for f in found
    ]
    failed = any(f.outcome is Outcome.PROBLEM for f in found)
    return json.dumps(rows, ensure_ascii=False) + "\n", int(failed)


def run_doctor(home: Path | None, *, quick: bool, output: str) -> int:
    """Look at a node, print what was found and answer the exit code."""
    subject = open_subject(home, quick=quick)
    try:
        if output == "json":
            text, code = json_text(examine(subject))
            sys.stdout.write(text)
            return code
        report = _terminal_report()
        return report.write(examine(subject, begin=report.begin))
    finally:
        if subject.app is not None:
            subject.app.close()


def _terminal_report() -> Report:
    stream = sys.stdout
    if not stream.isatty():
        return Report(stream=stream, pretty=False, width=None)
    utf8 = (stream.encoding or "").lower().replace("-", "") == "utf8"
    dumb = os.environ.get("TERM", "dumb") == "dumb"
    width = shutil.get_terminal_size().columns
    return Report(stream=stream, pretty=utf8 and not dumb, width=width)
