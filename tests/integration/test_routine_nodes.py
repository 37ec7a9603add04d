"""The node that runs a routine load, and the display of a run."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from penstock.cli.display import (
    LiveDisplay,
    ShownJob,
    Tally,
    lag_text,
    shown_jobs,
    summary_lines,
)
from penstock.epochs.progress import Progress, Step
from penstock.model.epoch import Statistics
from penstock.model.split import Amount
from penstock.supervisor.supervisor import RunnerReport
from tests.error_values import assert_names
from tests.integration.driving import MovedClock
from tests.integration.routine_loads import Load
from tests.node import Node

pytestmark = pytest.mark.integration

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
UNKNOWN = Amount(complete=False)


def test_a_node_without_the_library_does_not_run_a_load_and_reports_it(load: Load) -> None:
    load.put(1)
    load.create()
    supervisor = load.node.supervisor()
    supervisor._parts = replace(supervisor._parts, capabilities=frozenset())
    supervisor.start(sole_process=True)

    reports = [report for _ in range(3) for report in supervisor.round()]
    supervisor.stop()

    assert [report.progress for report in reports] == [None, None, None]
    shown = load.shown()
    assert shown["State"] == "NEED_SCHEDULE"
    assert_names(str(shown["OtherMsg"]), "node-1", "library boto3")
    load.run()
    assert load.ids() == [1]


def shown_job(node: Node, waiting: Amount = UNKNOWN) -> ShownJob:
    """Return the load as a run shows it; its runner has been loading since noon."""
    report = RunnerReport(
        state=node.job("r"),
        lease=None,
        progress=Progress(step=Step.LOADING, since=NOON, waiting=waiting),
        last_exit=None,
        resumes_at=None,
        caught_up=False,
    )
    return shown_jobs([report], at=NOON)[0]


def test_a_run_shows_records_and_lag_of_a_load(load: Load) -> None:
    load.create()
    clock = MovedClock()
    tally = Tally(clock)
    tally.update([shown_job(load.node)])
    report = shown_job(load.node, replace(UNKNOWN, items=1, lag=timedelta(seconds=75)))
    total = Statistics(records_read=1200, rows_loaded=1199, rows_rejected=1)
    job = replace(report.view.job, cumulative=total)
    report = replace(report, view=replace(report.view, job=job))

    (line,) = summary_lines([report], tally)

    assert "loaded 1,200 records, 1,199 rows (1 rejected) in this run" in line
    assert lag_text(report) == "1 min 15 s"


@pytest.mark.parametrize(
    ("waiting", "text"),
    [
        (Amount(items=0, complete=True), "0 s"),
        (UNKNOWN, "?"),
        (Amount(items=1, complete=True), "?"),
        (replace(UNKNOWN, lag=timedelta(milliseconds=1)), "0 s"),
    ],
)
def test_an_unknown_lag_is_not_shown_as_zero(load: Load, waiting: Amount, text: str) -> None:
    load.create()

    assert lag_text(shown_job(load.node, waiting)) == text


def test_the_table_of_a_run_has_columns_for_streams(load: Load) -> None:
    from rich.console import Console
    from rich.live import Live

    load.create()
    clock = MovedClock()
    console = Console(width=100)
    display = LiveDisplay(Tally(clock), clock, Live(console=console))
    lagging = replace(UNKNOWN, lag=timedelta(seconds=3))

    with console.capture() as captured:
        console.print(display.drawn([shown_job(load.node, lagging)], width=100))

    head, _, row = captured.get().splitlines()[:3]
    assert head.split() == ["job", "state", "step", "records", "rows", "lag", "rows/s"]
    assert row.split()[-3:] == ["3", "s", "0"]
