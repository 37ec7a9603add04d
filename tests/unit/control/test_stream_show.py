"""SHOW CHECKPOINTS without a query that runs."""

from dataclasses import replace
from datetime import timedelta

from penstock.catalog.catalog import Catalog
from penstock.catalog.database import Database
from penstock.catalog.upgrade import upgrade
from penstock.control.stream_show import show_checkpoints
from penstock.model.job import StreamingQuery
from penstock.model.job_kinds import OutputMode
from penstock.sql.statements import ShowCheckpoints
from tests.contract.catalog.building import (
    DEFINITION,
    JOB,
    TABLE,
    MovableClock,
    apply,
    commit,
    created,
)
from tests.unit.control.services import services

QUERY = StreamingQuery(
    text="",
    views=(),
    outputs=(),
    lookups=(),
    output=OutputMode.APPEND,
    key=(),
    parallelism=1,
    operators=(),
)


def test_an_epoch_without_reads_started_before_it_was_planned() -> None:
    database = Database("sqlite://", clock=MovableClock(), lock_wait=timedelta(seconds=1))
    upgrade(database)
    catalog = Catalog(database)
    body = replace(created(), definition=replace(DEFINITION, streaming=QUERY))
    catalog.create_table(TABLE)
    catalog.create_job(JOB, body)
    # Planned for 0.25 s, run for 1.5 s and committed for 0.125 s; stored at 12:30:15.
    apply(catalog, commit(2, "a"))

    statement = ShowCheckpoints(name=DEFINITION.name)
    result = show_checkpoints(statement, services=services(catalog))

    (row,) = (dict(zip(result.names, row, strict=True)) for row in result.rows)
    assert (row["started"], row["duration"]) == ("2026-03-01 12:30:13", 1.875)
