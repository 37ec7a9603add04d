"""The file index of every store: the newest key of a prefix, and what pruning forgets."""

import sqlite3
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text

from penstock.catalog.catalog import Catalog
from penstock.catalog.items import JobFiles
from penstock.model.split import After, Horizon
from tests.contract.catalog.building import (
    BEGINNING,
    JOB,
    MovableClock,
    SqliteStore,
    apply,
    commit,
    create_job,
    files,
    move,
)

OTHER = "job-2"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def index(catalog: Catalog) -> JobFiles:
    create_job(catalog)
    return catalog.files_of(JOB)


def load(catalog: Catalog, *keys: str, written_at: datetime = BEGINNING) -> None:
    """Commit files that were written at a time."""
    state = catalog.job_by_id(JOB)
    assert state is not None
    written = tuple(replace(file, modified_at=written_at) for file in files(*keys))
    apply(catalog, commit(state.number + 1, *keys, items=written))


def known(index: JobFiles) -> set[str]:
    """Answer which of the files that tests load are known."""
    return set(index.known(["a", "b", "c", "d/1", "d/2", "e/1"]))


@pytest.mark.parametrize(
    ("prefix", "newest"),
    [
        ("a/", "a/é"),
        ("a-b/", "a-b/9"),
        ("a0/", "a0/1"),
        ("a/b/", "a/b/2"),
        ("b/", ""),
        ("", "a0/1"),
    ],
)
def test_the_newest_key_is_that_of_the_folder_and_of_no_neighbour(
    index: JobFiles, catalog: Catalog, prefix: str, newest: str
) -> None:
    load(catalog, "a", "a-b/9", "a-b0", "a.", "a/1", "a/b/2", "a/é", "a0", "a0/1")

    assert index.newest(prefix) == newest


def test_nothing_is_newest_where_nothing_was_loaded(index: JobFiles) -> None:
    assert (index.newest(""), index.newest("a/")) == ("", "")


def test_a_key_that_is_the_folder_itself_is_its_newest_only_if_nothing_lies_in_it(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "a/")
    alone = index.newest("a/")

    load(catalog, "a/1")

    assert (alone, index.newest("a/")) == ("a/", "a/1")


@pytest.mark.parametrize("prefix", ["", "in/"])
def test_the_newest_key_is_found_by_bytes_not_by_utf_16_units(
    index: JobFiles, catalog: Catalog, prefix: str
) -> None:
    load(catalog, *(prefix + name for name in ("z", "\ue000", "\uff5e", "\U0001f600")))

    assert index.newest(prefix) == f"{prefix}\U0001f600"


@pytest.mark.parametrize("name", ["\U0010ffff", "\U0010ffff" * 3, "\U0010ffff/1"])
@pytest.mark.parametrize("prefix", ["", "in/"])
def test_the_largest_of_all_characters_is_no_bound(
    index: JobFiles, catalog: Catalog, prefix: str, name: str
) -> None:
    load(catalog, f"{prefix}a", prefix + name)

    assert index.newest(prefix) == prefix + name


def test_a_folder_may_be_called_by_the_largest_character(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "\U0010ffff/1", "\U0010ffff/2", "\U0010ffff0")

    assert index.newest("\U0010ffff/") == "\U0010ffff/2"


@pytest.mark.parametrize("name", ["a%", "a_", "A", "a'", "a\\"])
def test_no_character_of_a_prefix_has_a_meaning(
    index: JobFiles, catalog: Catalog, name: str
) -> None:
    load(catalog, "a/1", "ab/2", f"{name}/0")

    assert index.newest(f"{name}/") == f"{name}/0"


def test_the_newest_key_goes_back_with_the_position(index: JobFiles, catalog: Catalog) -> None:
    load(catalog, "d/1", "d/2", "e/1")

    apply(catalog, move(3, After(value="d/1")))

    assert (index.newest("d/"), index.newest("e/"), index.newest("")) == ("d/1", "", "d/1")


def test_the_newest_key_is_that_of_the_job_alone(index: JobFiles, catalog: Catalog) -> None:
    load(catalog, "a")
    create_job(catalog, "other", OTHER)

    apply(catalog, commit(2, "b", job_id=OTHER))

    assert (index.newest(""), catalog.files_of(OTHER).newest("")) == ("a", "b")


def test_pruning_forgets_what_was_written_before_a_time(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "a", written_at=BEGINNING - MINUTE)
    load(catalog, "b", written_at=BEGINNING)
    load(catalog, "c", written_at=BEGINNING + MINUTE)

    index.prune(BEGINNING, prefixes=[""])

    assert known(index) == {"b", "c"}
    assert index.pruned_before == BEGINNING


def test_pruning_keeps_the_newest_file_of_each_prefix(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "a", "b", "d/1", "d/2", "e/1")

    index.prune(BEGINNING + MINUTE, prefixes=["d/", "e/", "f/"])

    assert known(index) == {"d/2", "e/1"}


def test_pruning_keeps_what_is_newest_now_not_what_was_when_somebody_looked(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "a")
    looked = index.newest("")
    load(catalog, "b")

    index.prune(BEGINNING + MINUTE, prefixes=[""])

    assert (looked, index.newest(""), known(index)) == ("a", "b", {"b"})


def test_pruning_an_index_without_files_remembers_the_time(index: JobFiles) -> None:
    index.prune(BEGINNING, prefixes=["", "a/"])

    assert (index.pruned_before, index.count()) == (BEGINNING, 0)


def test_nothing_was_pruned_before_the_first_time(index: JobFiles, catalog: Catalog) -> None:
    load(catalog, "a")

    assert index.pruned_before is None


def test_the_time_of_pruning_goes_forth_and_never_back(index: JobFiles) -> None:
    times = []
    for minutes in (5, 9, 1, 9, 10):
        index.prune(BEGINNING + minutes * MINUTE, prefixes=[""])
        times.append(index.pruned_before)

    assert times == [BEGINNING + minutes * MINUTE for minutes in (5, 9, 9, 9, 10)]


def test_an_earlier_time_forgets_what_was_written_before_it_and_no_more(
    index: JobFiles, catalog: Catalog
) -> None:
    index.prune(BEGINNING + 9 * MINUTE, prefixes=[""])
    load(catalog, "a", written_at=BEGINNING)
    load(catalog, "b", written_at=BEGINNING + 5 * MINUTE)
    load(catalog, "c", written_at=BEGINNING)

    index.prune(BEGINNING + 3 * MINUTE, prefixes=[""])

    assert known(index) == {"b", "c"}


def test_times_are_compared_to_the_microsecond(index: JobFiles, catalog: Catalog) -> None:
    instant = BEGINNING.replace(microsecond=999_999)
    load(catalog, "a", written_at=instant)
    load(catalog, "b", written_at=instant.replace(microsecond=0))
    load(catalog, "c", written_at=instant)

    index.prune(instant, prefixes=[""])

    assert known(index) == {"a", "c"}
    assert index.pruned_before == instant


def test_files_whose_time_is_not_known_are_never_forgotten(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "a", "b")
    with catalog._database.write() as connection:
        # A catalog that was written by an earlier version knows no times.
        connection.execute(text("UPDATE files SET modified_at = NULL WHERE key = 'a'"))

    index.prune(BEGINNING + timedelta(days=10_000), prefixes=[])

    assert known(index) == {"a"}


def test_pruning_touches_no_other_job(index: JobFiles, catalog: Catalog) -> None:
    load(catalog, "a", "b")
    create_job(catalog, "other", OTHER)
    apply(catalog, commit(2, "a", "b", job_id=OTHER))

    index.prune(BEGINNING + MINUTE, prefixes=[])

    other = catalog.files_of(OTHER)
    assert (known(index), known(other)) == (set(), {"a", "b"})
    assert other.pruned_before is None


@pytest.mark.parametrize("floor", [Horizon(), After(value="a")])
def test_moving_the_position_does_not_take_the_time_of_pruning_back(
    index: JobFiles, catalog: Catalog, floor: Horizon | After
) -> None:
    load(catalog, "a", "b")
    index.prune(BEGINNING + MINUTE, prefixes=[""])

    apply(catalog, move(3, floor))

    assert (index.pruned_before, known(index)) == (BEGINNING + MINUTE, set())


def test_what_was_pruned_may_be_loaded_and_known_again(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "a", "b")
    index.prune(BEGINNING + MINUTE, prefixes=[""])

    load(catalog, "a", written_at=BEGINNING + 2 * MINUTE)

    assert known(index) == {"a", "b"}


def test_pruning_outlives_the_process(store: SqliteStore, clock: MovableClock) -> None:
    catalog = store.open()
    create_job(catalog)
    load(catalog, "a", "b")
    catalog.files_of(JOB).prune(clock.now() + MINUTE, prefixes=[""])

    index = store.open().files_of(JOB)

    assert (index.pruned_before, known(index)) == (clock.now() + MINUTE, {"b"})


def test_files_and_the_time_of_pruning_go_with_the_job(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "a", "b")
    index.prune(BEGINNING + MINUTE, prefixes=[""])

    catalog.delete_job(JOB)
    create_job(catalog)

    assert (index.pruned_before, index.newest(""), known(index)) == (None, "", set())


def test_a_commit_that_is_replayed_does_not_bring_pruned_files_back(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "a", "b")
    index.prune(BEGINNING + MINUTE, prefixes=[""])

    apply(catalog, commit(2, "a", "b"))

    assert known(index) == {"b"}


def test_more_files_may_be_asked_for_than_a_statement_takes_values(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "a", "b")
    with catalog._database.read() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        # So many does SQLite allow unless somebody built it otherwise.
        driver.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32_766)

    found = index.known(["a", *(f"key-{number}" for number in range(40_000)), "b"])

    assert found == {"a": "v1", "b": "v1"}
