"""Fake tables in memory, beyond the contract of all tables: faults of commits."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.errors import CommitOutcomeUnknownError
from penstock.model.epoch import Attachment
from penstock.testing.memory_tables import Fault, MemoryTables
from tests.contract.table_building import COLUMNS, JOB, OTHER_JOB, attachment, data_file


def late_once(_job_id: str, attachment: Attachment) -> Fault:
    return Fault.LATE if attachment.attempt_id == "late" else Fault.NONE


def always_lost(_job_id: str, _attachment: Attachment) -> Fault:
    return Fault.LOST_RESPONSE


def opened(tables: MemoryTables) -> str:
    return tables.create("orders", COLUMNS, location=None, comment="").location


def test_a_commit_with_a_lost_response_is_in_the_table() -> None:
    tables = MemoryTables(always_lost)
    location = opened(tables)

    with pytest.raises(CommitOutcomeUnknownError):
        tables.open(location).commit(attachment(1), [])

    assert tables.open(location).newest_number(JOB) == 1


def test_a_late_commit_succeeds_if_no_other_commit_was_first() -> None:
    tables = MemoryTables(late_once)
    location = opened(tables)
    with pytest.raises(CommitOutcomeUnknownError):
        tables.open(location).commit(attachment(1, attempt_id="late"), [])
    assert tables.open(location).newest_number(JOB) == 0

    committed = tables.apply_late_writes()

    assert committed == 1
    assert tables.open(location).newest_number(JOB) == 1


def test_a_late_commit_fails_after_a_commit_of_another_writer() -> None:
    tables = MemoryTables(late_once)
    location = opened(tables)
    with pytest.raises(CommitOutcomeUnknownError):
        tables.open(location).commit(attachment(1, attempt_id="late"), [])
    tables.foreign_commit(location)

    committed = tables.apply_late_writes()

    assert committed == 0
    assert tables.open(location).newest_number(JOB) == 0


def test_only_one_of_two_late_commits_succeeds() -> None:
    tables = MemoryTables(late_once)
    location = opened(tables)
    for job_id in (JOB, OTHER_JOB):
        with pytest.raises(CommitOutcomeUnknownError):
            tables.open(location).commit(attachment(1, job_id=job_id, attempt_id="late"), [])

    assert tables.apply_late_writes() == 1
    assert tables.apply_late_writes() == 0


def test_rows_are_returned_in_the_order_of_commits() -> None:
    tables = MemoryTables()
    location = opened(tables)
    tables.register_rows("b", [{"id": 2}])
    tables.register_rows("a", [{"id": 1}])
    tables.register_rows("orphan", [{"id": 3}])

    tables.open(location).commit(attachment(1), [data_file("a")])
    tables.open(location).commit(attachment(2), [data_file("b")])

    assert tables.rows(location) == [{"id": 1}, {"id": 2}]


def test_only_one_of_many_threads_commits_a_number() -> None:
    tables = MemoryTables()
    location = opened(tables)
    handles = [tables.open(location) for _ in range(20)]

    def commit(index: int) -> int:
        try:
            handles[index].commit(attachment(1, attempt_id=f"{index}"), [])
        except CommitOutcomeUnknownError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        committed = sum(pool.map(commit, range(20)))

    assert committed == 1
    assert len(tables.open(location).chain_after(JOB, 0)) == 1


def test_a_late_keyed_commit_fails_after_a_commit_of_another_writer() -> None:
    tables = MemoryTables(late_once)
    location = opened(tables)
    tables.register_rows("staged", [{"id": 1}])
    with pytest.raises(CommitOutcomeUnknownError):
        tables.open(location).commit_keyed(
            attachment(1, attempt_id="late"), [data_file("staged")], key=("id",)
        )
    tables.foreign_commit(location, [{"id": 2}])

    committed = tables.apply_late_writes()

    assert committed == 0
    assert tables.rows(location) == [{"id": 2}]


def test_an_older_version_has_the_rows_before_a_keyed_commit() -> None:
    tables = MemoryTables()
    location = opened(tables)
    tables.foreign_commit(location, [{"id": 1}, {"id": 2}])
    tables.register_rows("staged", [{"id": 2}])

    tables.open(location).commit_keyed(attachment(1), [data_file("staged")], key=())

    handle = tables.open(location)
    assert (handle.at(1).detail().rows, handle.detail().files) == (2, 1)
