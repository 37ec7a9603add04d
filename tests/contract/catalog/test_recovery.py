"""Recovery by a new process, and concurrent processes, in every store of the catalog."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import reduce

import pytest

from penstock.catalog.catalog import Catalog
from penstock.catalog.database import GenerationChangedError
from penstock.model import events as journal
from penstock.model.codec import to_text
from penstock.model.epoch import Generation, Statistics
from penstock.model.events import DefinitionChanged, Event, GenerationRaised
from penstock.model.job import DesiredState, JobState
from penstock.model.split import After
from tests.contract.catalog.building import (
    COUNTED,
    DEFINITION,
    FIRST,
    JOB,
    PAUSED,
    SECOND,
    SqliteStore,
    apply,
    commit,
    create_job,
    modified,
    move,
    progress,
    started,
)


def reopened(store: SqliteStore) -> JobState:
    """Return the job as a new process reads it."""
    state = store.open().job(DEFINITION.name)
    assert state is not None
    return state


def replayed(events: tuple[Event, ...]) -> JobState:
    """Return the state after applying all events."""
    first = journal.apply(None, events[0])
    return reduce(journal.apply, events[1:], first)


def test_t1_progress_survives_when_the_journal_is_truncated(store: SqliteStore) -> None:
    catalog = store.open()
    create_job(catalog)
    apply(catalog, commit(2, "a"))
    before = apply(catalog, commit(3, "b", cumulative=COUNTED))

    catalog.truncate_events(JOB, keep=0)

    assert store.open().events(JOB) == ()
    assert reopened(store) == before
    assert reopened(store).progress == progress(After(value="b"))
    assert apply(store.open(), commit(4, "c")).event_number == before.event_number + 1


def test_t2_every_statistic_survives(store: SqliteStore) -> None:
    create_job(store.open())

    apply(store.open(), commit(2, "a", statistics=COUNTED, cumulative=COUNTED + COUNTED))

    assert reopened(store).cumulative == COUNTED + COUNTED
    assert store.open().ledger(JOB)[-1].statistics == COUNTED
    assert reopened(store).progress == progress(After(value="a"))
    assert 0 not in [getattr(reopened(store).cumulative, f.name) for f in fields(Statistics)]


def test_t3_an_altered_position_survives(store: SqliteStore) -> None:
    create_job(store.open())
    apply(store.open(), commit(2, "a", "b", "c"))

    apply(store.open(), move(3, After(value="a")))

    assert reopened(store).progress == progress(After(value="a"), floor=After(value="a"))
    assert store.open().files_of(JOB).known(["a", "b", "z"]) == {"a": "v1"}


def test_t4_an_older_commit_after_an_alter_changes_nothing(store: SqliteStore) -> None:
    catalog = store.open()
    create_job(catalog)
    apply(catalog, commit(2, "c"))
    altered = apply(catalog, move(3, After(value="a")))

    assert apply(catalog, commit(2, "c")) == altered

    assert reopened(store) == altered
    assert reopened(store).progress == progress(After(value="a"), floor=After(value="a"))
    assert catalog.files_of(JOB).count() == 0


def test_t5_an_older_commit_in_the_journal_does_not_win(store: SqliteStore) -> None:
    catalog = store.open()
    create_job(catalog)
    apply(catalog, commit(2, "a"))
    newest = apply(catalog, commit(3, "b"))
    older = journal.Committed(attachment=commit(2, "a"), table_version=2)

    catalog.append(JOB, older, expected=None)

    assert reopened(store).progress == newest.progress == progress(After(value="b"))
    assert (reopened(store).number, reopened(store).cumulative) == (3, newest.cumulative)


def test_t6_a_replayed_snapshot_equals_the_live_one_byte_for_byte(store: SqliteStore) -> None:
    catalog = store.open()
    create_job(catalog)
    catalog.append(JOB, started(1), expected=FIRST)
    apply(catalog, commit(2, "a"))
    apply(catalog, move(3, After(value="0")))
    catalog.append(JOB, PAUSED, expected=FIRST)
    altered = DefinitionChanged(definition=replace(DEFINITION, revision=2, comment="new"))
    live = catalog.append(JOB, altered, expected=SECOND)

    from_scratch = replayed(store.open().events(JOB))

    assert to_text(from_scratch) == to_text(live) == to_text(reopened(store))
    assert from_scratch.progress == progress(After(value="0"), floor=After(value="0"))


@pytest.mark.parametrize("desired", list(DesiredState))
def test_t7_a_job_is_restored_in_every_state(store: SqliteStore, desired: DesiredState) -> None:
    catalog = store.open()
    create_job(catalog)
    apply(catalog, commit(2, "a", cumulative=COUNTED))

    live = catalog.append(JOB, replace(PAUSED, state=desired), expected=FIRST)

    assert to_text(reopened(store)) == to_text(live)
    assert reopened(store).desired.state is desired
    assert reopened(store).progress == progress(After(value="a"))
    assert reopened(store).cumulative == COUNTED


def test_no_event_is_lost_when_two_processes_append_at_once(store: SqliteStore) -> None:
    create_job(store.open())
    barrier = threading.Barrier(4)

    def append_many(catalog: Catalog) -> None:
        barrier.wait()
        for count in range(25):
            catalog.append(JOB, modified(count), expected=FIRST)

    one, other = store.open(), store.open()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(append_many, (one, one, other, other)))

    found = store.open().events(JOB)
    assert [event.number for event in found] == list(range(1, 102))
    assert replayed(found) == reopened(store)


def test_exactly_one_of_many_processes_raises_the_generation(store: SqliteStore) -> None:
    create_job(store.open())
    barrier = threading.Barrier(4)

    def raise_generation(number: int) -> bool:
        catalog = store.open()
        barrier.wait()
        mine = Generation(number=2, id=f"process {number}")
        try:
            catalog.append(JOB, GenerationRaised(generation=mine, cause="x"), expected=FIRST)
        except GenerationChangedError:
            return False
        return reopened(store).generation == mine

    with ThreadPoolExecutor(4) as threads:
        won = list(threads.map(raise_generation, range(4)))

    assert sorted(won) == [False, False, False, True]
