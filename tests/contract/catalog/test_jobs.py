"""Jobs in every store of the catalog."""

from dataclasses import replace
from datetime import timedelta
from functools import reduce

import pytest

from penstock.catalog.catalog import Catalog
from penstock.catalog.database import GenerationChangedError, JobDroppedError
from penstock.errors import Code, UserError
from penstock.model.job import Status, StatusCode
from penstock.model.split import Horizon
from tests.contract.catalog.building import (
    DEFINITION,
    FIRST,
    JOB,
    PAUSED,
    START,
    MovableClock,
    apply,
    commit,
    create_job,
    created,
    modified,
    progress,
    started,
)
from tests.error_values import raises


def test_a_new_job_is_found_by_name_and_by_id(catalog: Catalog) -> None:
    state = create_job(catalog)

    assert catalog.job("load_orders") == state
    assert catalog.job_by_id(JOB) == state
    assert state.definition == DEFINITION
    assert (state.number, state.progress) == (1, progress(Horizon()))


def test_a_missing_job_is_not_found(catalog: Catalog) -> None:
    assert catalog.job("load_orders") is None
    assert catalog.job_by_id(JOB) is None
    assert catalog.jobs() == ()


def test_jobs_are_listed_by_name(catalog: Catalog) -> None:
    create_job(catalog, "b", "job-1")
    create_job(catalog, "c", "job-2")
    create_job(catalog, "a", "job-3")

    assert [state.name for state in catalog.jobs()] == ["a", "b", "c"]


def test_an_existing_name_is_refused_and_nothing_is_stored(catalog: Catalog) -> None:
    create_job(catalog)

    with raises(UserError, Code.ALREADY_EXISTS_ERR, '"load_orders"') as refusal:
        create_job(catalog, job_id="job-2")

    assert refusal.value.code is Code.ALREADY_EXISTS_ERR
    assert catalog.job_by_id("job-2") is None
    assert catalog.events("job-2") == ()


def test_a_job_needs_a_registered_table(catalog: Catalog) -> None:
    with raises(UserError, Code.META_NOT_FOUND_ERR, '"orders"') as refusal:
        catalog.create_job(JOB, created())

    assert refusal.value.code is Code.META_NOT_FOUND_ERR
    assert catalog.jobs() == ()


def test_events_are_numbered_and_have_the_time_of_the_catalog(
    catalog: Catalog, clock: MovableClock
) -> None:
    create_job(catalog)
    clock.move(seconds=5)

    catalog.append(JOB, started(1), modified(4), expected=FIRST)

    found = catalog.events(JOB)
    assert [event.number for event in found] == [1, 2, 3]
    assert [event.body for event in found[1:]] == [
        started(1),
        modified(4),
    ]
    assert [event.at for event in found[1:]] == [START + timedelta(seconds=5)] * 2
    assert catalog.events(JOB, newest=1) == found[2:]


def test_an_event_under_an_older_generation_is_refused(catalog: Catalog) -> None:
    create_job(catalog)
    before = catalog.append(JOB, PAUSED, expected=FIRST)

    with raises(GenerationChangedError, Code.LEASE_LOST_ERR, "generation 2", "1"):
        catalog.append(JOB, started(1), expected=FIRST)

    assert catalog.job_by_id(JOB) == before
    assert len(catalog.events(JOB)) == 2


def test_an_equal_generation_number_with_another_id_is_refused(catalog: Catalog) -> None:
    create_job(catalog)

    with pytest.raises(GenerationChangedError):
        catalog.append(JOB, started(1), expected=replace(FIRST, id="another"))

    assert len(catalog.events(JOB)) == 1


def test_an_event_without_an_expected_generation_is_always_stored(catalog: Catalog) -> None:
    create_job(catalog)
    catalog.append(JOB, PAUSED, expected=None)

    state = catalog.append(JOB, modified(7), expected=None)

    assert (state.notices, state.event_number) == ((("files_modified", 7),), 3)


def test_nothing_is_stored_for_a_dropped_job(catalog: Catalog) -> None:
    create_job(catalog)
    apply(catalog, commit(2, "a"))
    catalog.set_status(JOB, Status(code=StatusCode.IDLE))
    catalog.delete_job(JOB)

    catalog.delete_job(JOB)
    with raises(JobDroppedError, Code.LEASE_LOST_ERR, '"job-1"'):
        catalog.append(JOB, started(1), expected=None)
    with pytest.raises(JobDroppedError):
        apply(catalog, commit(3, "b"))

    assert catalog.events(JOB) == ()
    assert catalog.ledger(JOB) == ()
    assert catalog.ledger_counts(JOB) == {}
    assert (catalog.files_of(JOB).count(), catalog.reports(), catalog.leases()) == (0, {}, {})


def test_the_journal_is_truncated_automatically(catalog: Catalog) -> None:
    create_job(catalog)
    seen = [modified(count) for count in range(300)]

    state = reduce(lambda _, __: catalog.append(JOB, *seen, expected=None), range(8), None)

    kept = catalog.events(JOB, newest=10_000)
    assert 1_000 <= len(kept) <= 2_100
    assert kept[-1].number == 2_401
    assert catalog.job_by_id(JOB) == state
