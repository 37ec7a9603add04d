"""What is told about a job that stands still names the statements of its kind."""

from dataclasses import replace

import pytest

from penstock.cli.doctor.jobs import pause_finding
from penstock.epochs.takeover import behind
from penstock.errors import Code, UserError
from penstock.model.events import DesiredStateChanged, Event, apply
from penstock.model.job import DesiredState, JobState, Reason
from penstock.tables.chain import require_followed
from tests.contract.catalog.building import BEGINNING, DEFINITION, JOB, SECOND, created
from tests.error_values import assert_names, raises

LOAD = replace(DEFINITION, job_kind="ROUTINE_LOAD")


def load(reason: Reason) -> JobState:
    """Answer a routine load that is paused for a reason."""
    body = replace(created(), definition=LOAD)
    begun = apply(None, Event(job_id=JOB, number=1, at=BEGINNING, body=body))
    pause = DesiredStateChanged(state=DesiredState.PAUSE, reason=reason, generation=SECOND)
    return apply(begun, Event(job_id=JOB, number=2, at=BEGINNING, body=pause))


@pytest.mark.parametrize("code", [Code.MANUAL_PAUSE_ERR, Code.CATALOG_BEHIND_ERR])
def test_doctor_names_the_statement_that_resumes_a_routine_load(code: Code) -> None:
    state = load(Reason(code=code, message="it stands"))

    finding = pause_finding(state, penstock="penstock")

    assert "penstock sql -e 'RESUME ROUTINE LOAD FOR load_orders'" in finding.advice


def test_a_catalog_that_is_behind_names_the_statement_that_resumes_a_routine_load() -> None:
    state = load(Reason(code=Code.MANUAL_PAUSE_ERR, message="it stands"))

    error = behind(state, SECOND)

    assert_names(error.message, 'routine load "load_orders"')
    assert_names(error.hint, "RESUME ROUTINE LOAD FOR load_orders")


def test_a_table_that_was_set_back_names_the_statement_that_ends_a_routine_load() -> None:
    state = load(Reason(code=Code.MANUAL_PAUSE_ERR, message="it stands"))

    with raises(UserError, Code.TABLE_CHANGED_ERR, '"orders"', "0", "1") as refusal:
        require_followed(0, state=state)

    assert_names(refusal.value.hint, "STOP ROUTINE LOAD FOR load_orders")
