"""The file index of every store: the newest key of a prefix, and pruning."""

import sqlite3
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text

from penstock.catalog.catalog import Catalog
from penstock.catalog.items import JobFiles
from penstock.model.split import After, Horizon
from tests.contract.catalog.building import (
    JOB,
    START,
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


def load(catalog: Catalog, *keys: str, written_at: datetime = START) -> None:
    """Commit files with this modification time."""
    state = catalog.job_by_id(JOB)
    assert state is not None
    written = tuple(replace(file, modified_at=written_at) for file in files(*keys))
    apply(catalog, commit(state.number + 1, *keys, items=written))


def known(index: JobFiles) -> set[str]:
    """Return the files in the index, among the files that tests load."""
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
def test_the_newest_key_is_the_greatest_key_of_the_folder_alone(
    index: JobFiles, catalog: Catalog, prefix: str, newest: str
) -> None:
    load(catalog, "a", "a-b/9", "a-b0", "a.", "a/1", "a/b/2", "a/é", "a0", "a0/1")

    assert index.newest(prefix) == newest


def test_there_is_no_newest_key_without_loaded_files(index: JobFiles) -> None:
    assert (index.newest(""), index.newest("a/")) == ("", "")


def test_the_key_of_a_folder_itself_is_newest_only_if_the_folder_is_empty(
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
def test_a_key_with_the_largest_character_is_found(
    index: JobFiles, catalog: Catalog, prefix: str, name: str
) -> None:
    load(catalog, f"{prefix}a", prefix + name)

    assert index.newest(prefix) == prefix + name


def test_the_name_of_a_folder_can_be_the_largest_character(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "\U0010ffff/1", "\U0010ffff/2", "\U0010ffff0")

    assert index.newest("\U0010ffff/") == "\U0010ffff/2"


@pytest.mark.parametrize("name", ["a%", "a_", "A", "a'", "a\\"])
def test_no_character_of_a_prefix_is_special(
    index: JobFiles, catalog: Catalog, name: str
) -> None:
    load(catalog, "a/1", "ab/2", f"{name}/0")

    assert index.newest(f"{name}/") == f"{name}/0"


def test_a_move_to_an_earlier_position_resets_the_newest_key(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "d/1", "d/2", "e/1")

    apply(catalog, move(3, After(value="d/1")))

    assert (index.newest("d/"), index.newest("e/"), index.newest("")) == ("d/1", "", "d/1")


def test_the_newest_key_ignores_the_files_of_other_jobs(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "a")
    create_job(catalog, "other", OTHER)

    apply(catalog, commit(2, "b", job_id=OTHER))

    assert (index.newest(""), catalog.files_of(OTHER).newest("")) == ("a", "b")


def test_pruning_removes_files_written_before_a_time(index: JobFiles, catalog: Catalog) -> None:
    load(catalog, "a", written_at=START - MINUTE)
    load(catalog, "b", written_at=START)
    load(catalog, "c", written_at=START + MINUTE)

    index.prune(START, prefixes=[""])

    assert known(index) == {"b", "c"}
    assert index.pruned_before == START


def test_pruning_keeps_the_newest_file_of_each_prefix(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "a", "b", "d/1", "d/2", "e/1")

    index.prune(START + MINUTE, prefixes=["d/", "e/", "f/"])

    assert known(index) == {"d/2", "e/1"}


def test_pruning_keeps_the_file_that_is_newest_at_that_moment(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "a")
    before = index.newest("")
    load(catalog, "b")

    index.prune(START + MINUTE, prefixes=[""])

    assert (before, index.newest(""), known(index)) == ("a", "b", {"b"})


def test_pruning_an_index_without_files_stores_the_time(index: JobFiles) -> None:
    index.prune(START, prefixes=["", "a/"])

    assert (index.pruned_before, index.count()) == (START, 0)


def test_the_time_of_pruning_is_none_before_the_first_pruning(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "a")

    assert index.pruned_before is None


def test_the_time_of_pruning_never_decreases(index: JobFiles) -> None:
    times = []
    for minutes in (5, 9, 1, 9, 10):
        index.prune(START + minutes * MINUTE, prefixes=[""])
        times.append(index.pruned_before)

    assert times == [START + minutes * MINUTE for minutes in (5, 9, 9, 9, 10)]


def test_pruning_with_an_earlier_time_removes_only_older_files(
    index: JobFiles, catalog: Catalog
) -> None:
    index.prune(START + 9 * MINUTE, prefixes=[""])
    load(catalog, "a", written_at=START)
    load(catalog, "b", written_at=START + 5 * MINUTE)
    load(catalog, "c", written_at=START)

    index.prune(START + 3 * MINUTE, prefixes=[""])

    assert known(index) == {"b", "c"}


def test_times_are_compared_to_the_microsecond(index: JobFiles, catalog: Catalog) -> None:
    instant = START.replace(microsecond=999_999)
    load(catalog, "a", written_at=instant)
    load(catalog, "b", written_at=instant.replace(microsecond=0))
    load(catalog, "c", written_at=instant)

    index.prune(instant, prefixes=[""])

    assert known(index) == {"a", "c"}
    assert index.pruned_before == instant


def test_files_without_a_time_are_never_pruned(index: JobFiles, catalog: Catalog) -> None:
    load(catalog, "a", "b")
    with catalog._database.write() as connection:
        # Earlier versions stored no times.
        connection.execute(text("UPDATE files SET modified_at = NULL WHERE key = 'a'"))

    index.prune(START + timedelta(days=10_000), prefixes=[])

    assert known(index) == {"a"}


def test_pruning_changes_no_other_job(index: JobFiles, catalog: Catalog) -> None:
    load(catalog, "a", "b")
    create_job(catalog, "other", OTHER)
    apply(catalog, commit(2, "a", "b", job_id=OTHER))

    index.prune(START + MINUTE, prefixes=[])

    other = catalog.files_of(OTHER)
    assert (known(index), known(other)) == (set(), {"a", "b"})
    assert other.pruned_before is None


@pytest.mark.parametrize("floor", [Horizon(), After(value="a")])
def test_a_move_of_the_position_keeps_the_time_of_pruning(
    index: JobFiles, catalog: Catalog, floor: Horizon | After
) -> None:
    load(catalog, "a", "b")
    index.prune(START + MINUTE, prefixes=[""])

    apply(catalog, move(3, floor))

    assert (index.pruned_before, known(index)) == (START + MINUTE, set())


def test_a_pruned_file_can_be_loaded_again(index: JobFiles, catalog: Catalog) -> None:
    load(catalog, "a", "b")
    index.prune(START + MINUTE, prefixes=[""])

    load(catalog, "a", written_at=START + 2 * MINUTE)

    assert known(index) == {"a", "b"}


def test_pruning_survives_a_restart(store: SqliteStore, clock: MovableClock) -> None:
    catalog = store.open()
    create_job(catalog)
    load(catalog, "a", "b")
    catalog.files_of(JOB).prune(clock.now() + MINUTE, prefixes=[""])

    index = store.open().files_of(JOB)

    assert (index.pruned_before, known(index)) == (clock.now() + MINUTE, {"b"})


def test_deleting_a_job_deletes_its_files_and_time_of_pruning(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "a", "b")
    index.prune(START + MINUTE, prefixes=[""])

    catalog.delete_job(JOB)
    create_job(catalog)

    assert (index.pruned_before, index.newest(""), known(index)) == (None, "", set())


def test_a_replayed_commit_does_not_restore_pruned_files(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "a", "b")
    index.prune(START + MINUTE, prefixes=[""])

    apply(catalog, commit(2, "a", "b"))

    assert known(index) == {"b"}


def test_a_lookup_can_have_more_keys_than_a_statement_has_parameters(
    index: JobFiles, catalog: Catalog
) -> None:
    load(catalog, "a", "b")
    with catalog._database.read() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        # The default limit of SQLite.
        driver.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32_766)

    found = index.known(["a", *(f"key-{number}" for number in range(40_000)), "b"])

    assert found == {"a": "v1", "b": "v1"}
