"""Which node runs a routine load, and what a run shows of it."""

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


def test_a_node_without_the_library_leaves_a_load_alone_and_says_so(load: Load) -> None:
    load.put(1)
    load.create()
    supervisor = load.node.supervisor()
    supervisor._parts = replace(supervisor._parts, capabilities=frozenset())
    supervisor.start(sole_process=True)

    looks = [look for _ in range(3) for look in supervisor.round()]
    supervisor.stop()

    assert [look.progress for look in looks] == [None, None, None]
    told = load.shown()
    assert told["State"] == "NEED_SCHEDULE"
    assert_names(str(told["OtherMsg"]), "node-1", "capability boto3")
    load.run()
    assert load.ids() == [1]


def look_at(node: Node, waiting: Amount = UNKNOWN) -> ShownJob:
    """Return the load, whose runner has been loading since noon."""
    report = RunnerReport(
        state=node.job("r"),
        lease=None,
        progress=Progress(step=Step.LOADING, since=NOON, waiting=waiting),
        last_words=None,
        resumes_at=None,
        caught_up=False,
    )
    return shown_jobs([report], at=NOON)[0]


def test_a_run_shows_records_and_how_far_a_load_is_behind(load: Load) -> None:
    load.create()
    clock = MovedClock()
    tally = Tally(clock)
    tally.update([look_at(load.node)])
    look = look_at(load.node, replace(UNKNOWN, items=1, lag=timedelta(seconds=75)))
    total = Statistics(records_read=1200, rows_loaded=1199, rows_rejected=1)
    job = replace(look.view.job, cumulative=total)
    look = replace(look, view=replace(look.view, job=job))

    (line,) = summary_lines([look], tally)

    assert "loaded 1,200 records, 1,199 rows (1 rejected) in this run" in line
    assert lag_text(look) == "1 min 15 s"


@pytest.mark.parametrize(
    ("waiting", "text"),
    [
        (Amount(items=0, complete=True), "0 s"),
        (UNKNOWN, "?"),
        (Amount(items=1, complete=True), "?"),
        (replace(UNKNOWN, lag=timedelta(milliseconds=1)), "0 s"),
    ],
)
def test_a_lag_that_nobody_knows_is_not_called_none(
    load: Load, waiting: Amount, text: str
) -> None:
    load.create()

    assert lag_text(look_at(load.node, waiting)) == text


def test_the_table_of_a_run_has_columns_for_streams(load: Load) -> None:
    from rich.console import Console
    from rich.live import Live

    load.create()
    clock = MovedClock()
    console = Console(width=100)
    display = LiveDisplay(Tally(clock), clock, Live(console=console))
    lagging = replace(UNKNOWN, lag=timedelta(seconds=3))

    with console.capture() as captured:
        console.print(display.drawn([look_at(load.node, lagging)], width=100))

    head, _, row = captured.get().splitlines()[:3]
    assert head.split() == ["job", "state", "step", "records", "rows", "lag", "rows/s"]
    assert row.split()[-3:] == ["3", "s", "0"]
