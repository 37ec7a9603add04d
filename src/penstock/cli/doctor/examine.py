"""Check everything that a node needs, suggest the next command, and change nothing."""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from penstock.app import App
from penstock.catalog.summary import catalog_path, stored_revision
from penstock.catalog.upgrade import HEAD
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
from penstock.cli.doctor.report import Finding, Report, Subject, failure, json_text, problem
from penstock.clock import SystemClock
from penstock.errors import PenstockError
from penstock.model.text import format_duration
from penstock.settings.settings import Settings, home_folder, load_settings

CHECKS: dict[str, Callable[[Subject], Iterable[Finding]]] = {
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
# Shown on a terminal while a slow check runs.
WAIT_BY_CHECK = {
    "spark": "takes about 10 s to start",
    "sources": f"have {format_duration(WAIT_MAX)} to respond",
    "warehouse": "takes about 15 s if a bucket does not respond",
}


def run_doctor(home: Path | None, *, quick: bool, output: str) -> int:
    """Check a node, print the findings and return the exit code."""
    subject = open_subject(home, quick=quick)
    try:
        if output == "json":
            text, code = json_text(examine(subject))
            sys.stdout.write(text)
            return code
        report = Report.for_terminal()
        return report.write(examine(subject, on_start=report.show_running))
    finally:
        if subject.app is not None:
            subject.app.close()


def open_subject(home: Path | None, *, quick: bool) -> Subject:
    """Return the node of a home; open its catalog only if no upgrade is necessary."""
    settings_error: PenstockError | None = None
    try:
        settings = load_settings(home=home)
    except PenstockError as error:
        settings, settings_error = Settings(home=home_folder(home)), error
    app, app_error = None, ""
    try:
        path = catalog_path(settings.catalog_url)
        if path is not None and path.is_file() and stored_revision(path) == HEAD:
            app = App(settings, command="doctor")
    except Exception as error:  # noqa: BLE001 - Any error is a finding.
        app_error = str(error)
    return Subject(
        settings=settings,
        settings_error=settings_error,
        app=app,
        app_error=app_error,
        quick=quick,
        clock=SystemClock(),
    )


def examine(
    subject: Subject, *, on_start: Callable[[str], None] = lambda _: None
) -> Iterator[Finding]:
    """Run all checks in order; a check that raises is a problem.

    ``on_start`` is called with a line for the terminal before each check.
    """
    for name, check in CHECKS.items():
        on_start(f"{name} {WAIT_BY_CHECK.get(name, '…')}")
        try:
            yield from check(subject)
        except PenstockError as error:
            yield failure(name, error)
        except Exception as error:  # noqa: BLE001 - Any error is a finding.
            yield problem(name, f"{type(error).__name__}: {error}")
