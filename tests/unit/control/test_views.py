"""The rows of jobs(…) and tasks(…) for a catalog."""

import json
from datetime import timedelta
from typing import Any

import pytest

from penstock.catalog import ledger
from penstock.catalog.catalog import Catalog
from penstock.catalog.database import Database
from penstock.catalog.upgrade import upgrade
from penstock.control.views import View, jobs_view, tasks_view
from penstock.errors import Code
from penstock.model.epoch import Statistics
from penstock.model.events import EpochEnded, EpochStarted, Outcome
from penstock.model.job import Reason
from penstock.model.split import After
from tests.contract.catalog.building import (
    JOB,
    PAUSED,
    MovableClock,
    apply,
    commit,
    create_job,
    move,
    started,
)

COUNTED = Statistics(
    rows_read=10, rows_rejected=2, files_read=3, bytes_read=400, bytes_written=50
)
COUNTS = ("SucceedTaskCount", "FailedTaskCount", "CanceledTaskCount")


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def database(clock: MovableClock) -> Database:
    database = Database("sqlite://", clock=clock, lock_wait=timedelta(seconds=1))
    upgrade(database)
    return database


@pytest.fixture
def catalog(database: Database) -> Catalog:
    catalog = Catalog(database)
    create_job(catalog)
    return catalog


def dicts(view: View) -> list[dict[str, Any]]:
    """Return the rows of a view by column."""
    names = [column.name for column in view.columns]
    return [dict(zip(names, row, strict=True)) for row in view.rows]


def jobs(catalog: Catalog) -> list[dict[str, Any]]:
    """Return the rows of jobs by column."""
    return dicts(jobs_view(catalog, clock=MovableClock()))


def tasks(catalog: Catalog) -> list[dict[str, Any]]:
    """Return the rows of tasks by column."""
    return dicts(tasks_view(catalog))


def job(catalog: Catalog) -> dict[str, Any]:
    """Return the only row of jobs."""
    (row,) = jobs(catalog)
    return row


def start(catalog: Catalog, epoch: int, attempt: int = 1) -> EpochStarted:
    """Start an attempt."""
    body = started(epoch, attempt)
    catalog.append(JOB, body, expected=None)
    return body


def fail(catalog: Catalog, attempt: EpochStarted) -> None:
    """End an attempt with a failure."""
    ended = EpochEnded(
        attempt_id=attempt.attempt_id,
        epoch=attempt.epoch,
        attempt=attempt.attempt,
        outcome=Outcome.FAILED,
        reason=Reason(code=Code.STORAGE_ERR, message="it is gone"),
    )
    catalog.append(JOB, ended, expected=None)


def succeed(catalog: Catalog, number: int) -> None:
    """Commit one epoch of ten rows."""
    start(catalog, number - 1)
    cumulative = sum([COUNTED] * (number - 1), Statistics())
    attachment = commit(number, f"/in/{number}", statistics=COUNTED, cumulative=cumulative)
    apply(catalog, attachment)


def test_a_new_job_has_no_rows_and_no_tasks(catalog: Catalog) -> None:
    assert job(catalog) == {
        "Id": JOB,
        "Name": "load_orders",
        "Definer": "",
        "ExecuteType": "STREAMING",
        "RecurringStrategy": "",
        "Status": "PENDING",
        "ExecuteSql": "INSERT INTO orders (id, price) SELECT id, price FROM FILES(...)",
        "CreateTime": "2026-03-01 12:30:15",
        "SucceedTaskCount": 0,
        "FailedTaskCount": 0,
        "CanceledTaskCount": 0,
        "Comment": "day and night",
        "Properties": '{"max_interval": "3s", "team": "sales"}',
        "CurrentOffset": "",
        "EndOffset": "",
        "LoadStatistic": (
            '{"scannedRows": 0, "loadBytes": 0, "fileNumber": 0, "fileSize": 0, '
            '"filteredRows": 0}'
        ),
        "ErrorMsg": "",
        "JobRuntimeMsg": "",
        "Lag": "",
        "LastTaskSuccessTime": "",
        "in_backlog": False,
        "backlog_cause": "",
        "backlog_eta": None,
        "interval": "3s",
        "next_epoch_at": None,
    }
    assert tasks(catalog) == []


def test_a_job_shows_its_counters_and_why_it_is_paused(catalog: Catalog) -> None:
    succeed(catalog, 2)
    catalog.append(JOB, PAUSED, expected=None)

    row = job(catalog)

    assert (row["Status"], row["SucceedTaskCount"]) == ("PAUSED", 1)
    assert row["CurrentOffset"] == row["EndOffset"] == '{"fileName": "/in/2"}'
    assert row["LoadStatistic"] == (
        '{"scannedRows": 10, "loadBytes": 50, "fileNumber": 3, "fileSize": 400, '
        '"filteredRows": 2}'
    )
    assert row["ErrorMsg"] == '{"code": "MANUAL_PAUSE_ERR", "msg": "paused by a user"}'
    assert row["LastTaskSuccessTime"] == "2026-03-01 12:32:15"


def test_t43_the_end_offset_is_never_before_the_current_offset(catalog: Catalog) -> None:
    succeed(catalog, 2)
    apply(catalog, move(3, After(value="/in/1")))
    back = job(catalog)
    apply(catalog, move(4, After(value="/in/7")))
    ahead = job(catalog)

    assert (back["CurrentOffset"], back["EndOffset"]) == (
        '{"fileName": "/in/1"}',
        '{"fileName": "/in/2"}',
    )
    assert ahead["CurrentOffset"] == ahead["EndOffset"] == '{"fileName": "/in/7"}'


def test_a_task_is_an_attempt_of_an_epoch(catalog: Catalog, clock: MovableClock) -> None:
    start(catalog, 1)
    clock.move(seconds=5)
    apply(catalog, commit(2, "/in/2", statistics=COUNTED))

    assert tasks(catalog) == [
        {
            "TaskId": "attempt-2",
            "JobId": JOB,
            "JobName": "load_orders",
            "Label": "job-1_attempt-2",
            "Status": "SUCCESS",
            "ErrorMsg": None,
            # The attempt started 0.25 s before its start was stored.
            "CreateTime": "2026-03-01 12:30:14",
            "StartTime": "2026-03-01 12:30:14",
            "FinishTime": "2026-03-01 12:30:20",
            "TrackingUrl": None,
            "LoadStatistic": (
                '{"ScannedRows": 10, "LoadBytes": 50, "FileNumber": 3, "FileSize": 400, '
                '"FilteredRows": 2, "TaskNumber": 1, "Unfinished backends": {}, '
                '"All backends": {}}'
            ),
            "User": "",
            "FirstErrorMsg": None,
            "RunningOffset": '{"startFileName": "", "endFileName": "/in/2"}',
        }
    ]


def test_tasks_are_listed_newest_first_with_their_outcomes(
    catalog: Catalog, clock: MovableClock
) -> None:
    succeed(catalog, 2)
    clock.move(seconds=1)
    fail(catalog, start(catalog, 2, attempt=2))
    clock.move(seconds=1)
    start(catalog, 3)

    found = tasks(catalog)

    assert [(task["Status"], task["ErrorMsg"]) for task in found] == [
        ("RUNNING", None),
        ("FAILED", "STORAGE_ERR: it is gone"),
        ("SUCCESS", None),
    ]
    assert [task["FinishTime"] for task in found] == [
        None,
        "2026-03-01 12:30:16",
        "2026-03-01 12:30:15",
    ]


def test_a_committed_task_starts_where_the_previous_commit_ended(catalog: Catalog) -> None:
    succeed(catalog, 2)
    apply(catalog, move(3, After(value="/in/0")))
    apply(catalog, commit(4, "/in/4"))

    ranges = [task["RunningOffset"] for task in tasks(catalog)]

    assert ranges == [
        '{"startFileName": "/in/0", "endFileName": "/in/4"}',
        '{"startFileName": "", "endFileName": "/in/2"}',
    ]


def test_an_attempt_that_a_pause_interrupted_counts_as_cancelled(catalog: Catalog) -> None:
    start(catalog, 1)
    catalog.append(JOB, PAUSED, expected=None)

    (task,) = tasks(catalog)

    assert task["Status"] == "CANCELED"
    assert [job(catalog)[count] for count in COUNTS] == [0, 0, 1]


def test_folded_tasks_are_one_row_with_their_number(
    catalog: Catalog, database: Database
) -> None:
    for number in range(2, 7):
        succeed(catalog, number)
    fail(catalog, start(catalog, 6, attempt=2))
    before = sums(catalog)

    with database.write() as connection:
        ledger.fold(connection, JOB, keep=2)

    *_, day = tasks(catalog)
    assert len(tasks(catalog)) == 3
    assert (day["TaskId"], day["Status"]) == (None, "SUCCESS")
    assert day["CreateTime"] == "2026-03-01 00:00:00"
    assert before == sums(catalog) == {"TaskNumber": 6, "ScannedRows": 50}
    assert [job(catalog)[count] for count in COUNTS] == [5, 1, 0]


def sums(catalog: Catalog) -> dict[str, int]:
    """Return the sums of two counters over all tasks."""
    counted = [json.loads(task["LoadStatistic"] or "") for task in tasks(catalog)]
    return {key: sum(one[key] for one in counted) for key in ("TaskNumber", "ScannedRows")}


def test_jobs_are_listed_by_name_and_tasks_of_all_jobs_together(
    catalog: Catalog, clock: MovableClock
) -> None:
    create_job(catalog, "another", "job-2")
    clock.move(seconds=1)
    apply(catalog, commit(2, "/in/2", job_id="job-2"))
    clock.move(seconds=1)
    succeed(catalog, 2)

    assert [row["Name"] for row in jobs(catalog)] == ["another", "load_orders"]
    assert [task["JobId"] for task in tasks(catalog)] == [JOB, "job-2"]
