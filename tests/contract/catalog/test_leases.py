"""Leases of jobs in every store of the catalog."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from penstock.catalog.catalog import Catalog, Lease
from penstock.catalog.database import GenerationChangedError, JobDroppedError, LeaseHeldError
from penstock.errors import Code, InvariantError, LeaseLostError
from penstock.model.epoch import Generation
from penstock.model.events import GenerationRaised
from penstock.model.job import JobState
from tests.contract.catalog.building import (
    FIRST,
    JOB,
    PAUSED,
    SECOND,
    START,
    MovableClock,
    SqliteStore,
    create_job,
)
from tests.error_values import raises

DURATION = timedelta(seconds=15)
THIRD = Generation(number=3, id="third")


def acquire(
    catalog: Catalog,
    node_id: str,
    *,
    expected: Generation = FIRST,
    generation: Generation = SECOND,
) -> JobState:
    """Acquire the lease of the job for 15 s."""
    return catalog.acquire_lease(
        JOB, node_id=node_id, duration=DURATION, expected=expected, generation=generation
    )


def stored(catalog: Catalog) -> JobState:
    """Return the stored state of the job."""
    state = catalog.job_by_id(JOB)
    assert state is not None
    return state


def test_a_lease_raises_the_generation_and_lasts_for_the_requested_time(
    catalog: Catalog,
) -> None:
    create_job(catalog)

    state = acquire(catalog, "one")

    assert state.generation == SECOND
    assert catalog.events(JOB)[-1].body == GenerationRaised(generation=SECOND, cause="lease")
    expected = Lease(node_id="one", expires_at=START + DURATION, live=True)
    assert catalog.leases() == {JOB: expected}


def test_a_live_lease_of_another_node_is_respected(catalog: Catalog) -> None:
    create_job(catalog)
    acquire(catalog, "one")

    with raises(LeaseHeldError, Code.LEASE_LOST_ERR, '"one"'):
        acquire(catalog, "two", expected=SECOND, generation=THIRD)

    assert catalog.leases()[JOB].node_id == "one"
    assert stored(catalog).generation == SECOND


def test_an_expired_lease_can_be_acquired_by_another_node(
    catalog: Catalog, clock: MovableClock
) -> None:
    create_job(catalog)
    acquire(catalog, "one")
    clock.move(seconds=15)

    state = acquire(catalog, "two", expected=SECOND, generation=THIRD)

    assert state.generation == THIRD
    assert catalog.leases()[JOB] == Lease(
        node_id="two", expires_at=START + 2 * DURATION, live=True
    )


def test_a_node_can_acquire_its_own_lease_again(catalog: Catalog) -> None:
    create_job(catalog)
    acquire(catalog, "one")

    assert acquire(catalog, "one", expected=SECOND, generation=THIRD).generation == THIRD


def test_a_lease_under_an_older_generation_is_refused(catalog: Catalog) -> None:
    create_job(catalog)
    acquire(catalog, "one")
    catalog.release_lease(JOB, "one")

    with pytest.raises(GenerationChangedError):
        acquire(catalog, "two", expected=FIRST, generation=THIRD)

    assert catalog.leases() == {}


def test_a_lease_needs_a_newer_generation(catalog: Catalog) -> None:
    create_job(catalog)

    with raises(InvariantError, Code.INTERNAL_ERR, "generation", "1"):
        acquire(catalog, "one", generation=replace(FIRST, id="another"))

    assert catalog.leases() == {}


def test_a_paused_job_is_not_leased(catalog: Catalog) -> None:
    create_job(catalog)
    catalog.append(JOB, PAUSED, expected=FIRST)

    with raises(LeaseLostError, Code.LEASE_LOST_ERR, '"load_orders"', "PAUSE"):
        acquire(catalog, "one", expected=SECOND, generation=THIRD)

    assert catalog.leases() == {}


def test_a_dropped_job_is_not_leased(catalog: Catalog) -> None:
    with pytest.raises(JobDroppedError):
        acquire(catalog, "one")


def test_a_live_lease_is_extended(catalog: Catalog, clock: MovableClock) -> None:
    create_job(catalog)
    acquire(catalog, "one")
    clock.move(seconds=14)

    assert catalog.renew_leases("two", DURATION) == frozenset()
    assert catalog.renew_leases("one", DURATION) == {JOB}

    assert catalog.leases()[JOB].expires_at == START + timedelta(seconds=29)


def test_an_expired_lease_is_not_renewed(catalog: Catalog, clock: MovableClock) -> None:
    create_job(catalog)
    acquire(catalog, "one")
    clock.move(seconds=15)

    assert catalog.renew_leases("one", DURATION) == frozenset()

    assert catalog.leases() == {
        JOB: Lease(node_id="one", expires_at=START + DURATION, live=False)
    }


def test_only_the_holder_releases_a_lease(catalog: Catalog) -> None:
    create_job(catalog)
    acquire(catalog, "one")

    catalog.release_lease(JOB, "two")
    assert catalog.leases()[JOB].live

    catalog.release_lease(JOB, "one")
    assert catalog.leases() == {}


def test_leases_of_ended_nodes_are_deleted(catalog: Catalog) -> None:
    create_job(catalog)
    create_job(catalog, "other", "job-2")
    acquire(catalog, "one")
    catalog.acquire_lease(
        "job-2", node_id="two", duration=DURATION, expected=FIRST, generation=SECOND
    )

    catalog.delete_leases_of_other_nodes("two")

    assert catalog.leases().keys() == {"job-2"}


def test_deleting_a_job_deletes_its_lease(catalog: Catalog) -> None:
    create_job(catalog)
    acquire(catalog, "one")

    catalog.delete_job(JOB)

    assert catalog.leases() == {}
    assert catalog.renew_leases("one", DURATION) == frozenset()


def test_exactly_one_of_many_nodes_gets_the_lease(store: SqliteStore) -> None:
    create_job(store.open())
    barrier = threading.Barrier(4)

    def try_to_acquire(node_id: str) -> str | None:
        catalog = store.open()
        barrier.wait()
        try:
            acquire(catalog, node_id, generation=Generation(number=2, id=node_id))
        except LeaseLostError:
            return None
        return node_id

    with ThreadPoolExecutor(4) as threads:
        winners = [node for node in threads.map(try_to_acquire, "abcd") if node]

    assert winners == [store.open().leases()[JOB].node_id]
    assert stored(store.open()).generation.id == winners[0]
