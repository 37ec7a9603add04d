"""What the progress display says."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console

from penstock.clock import SystemClock
from penstock.errors import Code
from penstock.model.job import Reason, Wish
from penstock.progress_display import LiveDisplay, Tally, reason_words
from penstock.supervisor.supervisor import JobLook
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

WHY = "file /in/0.json, line 1: expected BIGINT, found a text that is rather long to be read"


def paused_look(node: Node, folder: Path, *, resumes_at: datetime | None) -> JobLook:
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    state = node.job("j")
    reason = Reason(code=Code.GET_REMOTE_DATA_ERROR, message=WHY)
    wish = replace(state.wish, wish=Wish.PAUSE, reason=reason)
    return JobLook(
        state=replace(state, wish=wish),
        progress=None,
        last_words=None,
        resumes_at=resumes_at,
        caught_up=False,
    )


def test_a_reason_has_the_whole_width_of_a_narrow_terminal(node: Node, folder: Path) -> None:
    look = paused_look(node, folder, resumes_at=None)
    console = Console(width=80, record=True, quiet=False)

    with console.capture() as captured:
        console.print(LiveDisplay(Tally(SystemClock()), None)._table([look]))

    text = " ".join(captured.get().split())
    assert f"j: GET_REMOTE_DATA_ERROR: {WHY}" in text
    assert "PAUSED" in text


def test_a_pause_that_heals_tells_when_it_resumes(node: Node, folder: Path) -> None:
    due = datetime(2026, 1, 1, 10, 20, 30, tzinfo=UTC) + timedelta(seconds=10)

    look = paused_look(node, folder, resumes_at=due)

    assert reason_words(look).endswith("(resumes at 10:20:40)")
