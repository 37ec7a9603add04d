"""When a run in the foreground ends."""

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.cli.display import PlainDisplay, Tally
from penstock.cli.run import Ending, Request, _rounds
from tests.integration.driving import MovedClock
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

UNTIL_CAUGHT_UP = Request(names=(), until_caught_up=True, timeout=timedelta(minutes=1))


class RepairingClock(MovedClock):
    """A clock whose first wait in the main thread restores the catalog."""

    def __init__(self, catalog: Path) -> None:
        super().__init__()
        self._catalog = catalog

    def remove_catalog(self) -> None:
        """Replace the catalog by a folder."""
        self._catalog.rename(self._catalog.with_name("away"))
        self._catalog.mkdir()

    def wait(self, event: threading.Event, timeout: timedelta) -> bool:
        if threading.current_thread() is threading.main_thread() and self._catalog.is_dir():
            self._catalog.rmdir()
            self._catalog.with_name("away").rename(self._catalog)
        return super().wait(event, timeout)


def test_a_run_is_not_caught_up_while_the_catalog_is_unreachable(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = RepairingClock(tmp_path / "home" / "catalog.db")
    node = Node(tmp_path / "home", clock=clock)
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    supervisor = node.supervisor()
    supervisor.start(sole_process=True)
    node.catalog.close()
    clock.remove_catalog()

    ending, reports = _rounds(
        supervisor,
        UNTIL_CAUGHT_UP,
        clock=clock,
        display=PlainDisplay(Tally(clock), clock),
        stop=threading.Event(),
    )
    supervisor.stop()

    assert ending is Ending.CAUGHT_UP
    assert [report.caught_up for report in reports] == [True]
    assert node.rows("t") == numbered(1)
    assert "warning CATALOG_ERR: catalog " in capsys.readouterr().err


def test_a_run_without_an_end_condition_ends_at_its_timeout(tmp_path: Path) -> None:
    clock = MovedClock()
    node = Node(tmp_path / "home", clock=clock)
    supervisor = node.supervisor(until_caught_up=False)

    ending, reports = _rounds(
        supervisor,
        Request(names=(), until_caught_up=False, timeout=timedelta(0)),
        clock=clock,
        display=PlainDisplay(Tally(clock), clock),
        stop=threading.Event(),
    )

    assert (ending, reports) == (Ending.TIMED_OUT, ())
