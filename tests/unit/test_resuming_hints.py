"""Hints about a paused job name the statements of its kind."""

from dataclasses import replace

import pytest

from penstock.cli.doctor.jobs import pause_finding
from penstock.epochs.takeover import stale_catalog
from penstock.errors import Code, UserError
from penstock.model.events import DesiredStateChanged, Event, apply
from penstock.model.job import DesiredState, JobState, Reason
from penstock.tables.chain import require_no_rollback
from tests.contract.catalog.building import DEFINITION, JOB, SECOND, START, created
from tests.error_values import assert_names, raises

LOAD = replace(DEFINITION, job_kind="ROUTINE_LOAD")


def load(reason: Reason) -> JobState:
    """Return a routine load that is paused for a reason."""
    body = replace(created(), definition=LOAD)
    started = apply(None, Event(job_id=JOB, number=1, at=START, body=body))
    pause = DesiredStateChanged(state=DesiredState.PAUSE, reason=reason, generation=SECOND)
    return apply(started, Event(job_id=JOB, number=2, at=START, body=pause))


@pytest.mark.parametrize("code", [Code.MANUAL_PAUSE_ERR, Code.CATALOG_BEHIND_ERR])
def test_doctor_names_the_statement_that_resumes_a_routine_load(code: Code) -> None:
    state = load(Reason(code=code, message="paused"))

    finding = pause_finding(state, penstock="penstock")

    assert "penstock sql -e 'RESUME ROUTINE LOAD FOR load_orders'" in finding.advice


def test_a_stale_catalog_names_the_statement_that_resumes_a_routine_load() -> None:
    state = load(Reason(code=Code.MANUAL_PAUSE_ERR, message="paused"))

    error = stale_catalog(state, SECOND)

    assert_names(error.message, 'routine load "load_orders"')
    assert_names(error.hint, "RESUME ROUTINE LOAD FOR load_orders")


def test_a_restored_table_names_the_statement_that_stops_a_routine_load() -> None:
    state = load(Reason(code=Code.MANUAL_PAUSE_ERR, message="paused"))

    with raises(UserError, Code.TABLE_CHANGED_ERR, '"orders"', "0", "1") as refusal:
        require_no_rollback(0, state=state)

    assert_names(refusal.value.hint, "STOP ROUTINE LOAD FOR load_orders")
