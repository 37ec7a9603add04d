"""DROP TABLE of tables that jobs join."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from penstock.catalog.catalog import Catalog, TableRecord, open_catalog
from penstock.control.execute import execute
from penstock.control.result import Result
from penstock.errors import Code, UserError
from penstock.model.events import DesiredStateChanged
from penstock.model.job import DesiredState, LoadProperties, SparkQuery, TableRef
from penstock.sql.statements import DropTable
from tests.contract.catalog.building import (
    DEFINITION,
    FIRST,
    JOB,
    TABLE,
    MovableClock,
    created,
)
from tests.error_values import assert_names, raises
from tests.unit.control.services import services

NAMES = TableRecord(
    name="names",
    id="table-2",
    location="file:///warehouse/names",
    managed=False,
    comment="",
    created_at=TABLE.created_at,
)
QUERY = SparkQuery(
    text="",
    view="kinesis",
    view_columns=(),
    needed=(),
    outputs=(),
    lookups=(TableRef(name=NAMES.name, id=NAMES.id, location=NAMES.location),),
    operators=(),
    row_wise=True,
    reusable=False,
)
LOAD = replace(DEFINITION, job_kind="ROUTINE_LOAD", load=LoadProperties(), query=QUERY)


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    """A catalog with a routine load that joins a table."""
    opened = open_catalog("sqlite://", clock=MovableClock())
    opened.create_table(TABLE)
    opened.create_table(NAMES)
    opened.create_job(JOB, replace(created(), definition=LOAD))
    yield opened
    opened.close()


def test_a_table_that_a_load_joins_cannot_be_dropped(catalog: Catalog) -> None:
    with raises(UserError, Code.STATE_ERR, '"load_orders"') as refusal:
        execute(DropTable(name="names"), services=services(catalog))

    assert_names(
        refusal.value.hint, "STOP ROUTINE LOAD FOR load_orders", "ALTER", "INSERT", "WHERE"
    )


def test_a_table_that_a_stopped_load_joined_can_be_dropped(catalog: Catalog) -> None:
    stopped = DesiredStateChanged(state=DesiredState.CLOSED, reason=None, generation=FIRST)
    catalog.append(JOB, stopped, expected=None)

    result = execute(DropTable(name="names"), services=services(catalog))

    assert result == Result(
        message=f"table names dropped; its files remain at {NAMES.location}"
    )
