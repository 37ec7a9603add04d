"""The ledger stays bounded and counts every attempt once."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta

import pytest
from sqlalchemy import Connection

from penstock.catalog import ledger
from penstock.catalog.catalog import Catalog
from penstock.catalog.database import Database
from penstock.catalog.upgrade import upgrade
from penstock.clock import SystemClock
from penstock.model.epoch import CommitKind, Statistics
from penstock.model.events import Committed, EpochStarted, Event, Outcome
from tests.contract.catalog.building import JOB, START, commit, create_job, started


@pytest.fixture
def database() -> Database:
    database = Database("sqlite://", clock=SystemClock(), lock_wait=timedelta(seconds=1))
    upgrade(database)
    create_job(Catalog(database))
    return database


def record(connection: Connection, bodies: Sequence[Committed | EpochStarted]) -> None:
    """Record events in the ledger, one every six hours."""
    events = [
        Event(job_id=JOB, number=number, at=START + timedelta(hours=6 * number), body=body)
        for number, body in enumerate(bodies, start=2)
    ]
    ledger.record(connection, events)


def committed(number: int) -> Committed:
    """Return the event of a commit that read as many rows as its number."""
    attachment = replace(commit(number, "a"), statistics=Statistics(rows_read=number))
    return Committed(attachment=attachment, table_version=number)


def test_older_attempts_are_added_up_by_day(database: Database) -> None:
    with database.write() as connection:
        record(connection, [committed(number) for number in range(2, 10)])

        ledger.fold(connection, JOB, keep=3)

        days = [day for day in ledger.days(connection, JOB) if day.kind is CommitKind.EPOCH]
        assert [(day.day, day.attempts, day.statistics.rows_read) for day in days] == [
            (date(2026, 3, 2), 4, 3 + 4 + 5 + 2),
            (date(2026, 3, 3), 1, 6),
        ]
        assert len(ledger.newest_entries(connection, JOB, newest=100)) == 3


def test_counts_stay_the_same_however_often_attempts_are_folded(database: Database) -> None:
    with database.write() as connection:
        record(connection, [committed(number) for number in range(2, 10)])
        before = ledger.counts(connection, JOB, kind=None)

        ledger.fold(connection, JOB, keep=5)
        ledger.fold(connection, JOB, keep=5)
        ledger.fold(connection, JOB, keep=2)

        assert ledger.counts(connection, JOB, kind=None) == before == {Outcome.COMMITTED: 9}
        epochs = ledger.counts(connection, JOB, kind=CommitKind.EPOCH)
        assert epochs == {Outcome.COMMITTED: 8}
        assert sum(day.attempts for day in ledger.days(connection, JOB)) == 7


def test_an_attempt_that_has_not_ended_is_not_folded(database: Database) -> None:
    with database.write() as connection:
        record(connection, [started(1), committed(3), committed(4), committed(5)])

        ledger.fold(connection, JOB, keep=1)

        kept = ledger.newest_entries(connection, JOB, newest=100)
        assert [entry.outcome for entry in kept] == [Outcome.STARTED, Outcome.COMMITTED]
