"""Traps of progress: what a restart, a cut journal or a replay could lose or bring back.

A restart keeps nothing in memory. Every test looks at the position as well as at the counts.
"""

from dataclasses import fields
from pathlib import Path

import pytest

from penstock.control.result import Cell
from penstock.crashpoints import CrashPoint
from penstock.model.codec import to_text
from penstock.model.epoch import CommitKind, Statistics
from penstock.model.events import Committed, apply
from penstock.model.job import DesiredState, JobState
from tests.integration.driving import (
    MovedClock,
    attempts,
    crash_at,
    crash_inside,
    supervised,
)
from tests.mirrored_node import OpenNode
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

ON_BUCKETS_TOO = True

ONE_FILE = [("s3.max_batch_files", "1")]


def folded(node: Node, *, backwards: bool = False) -> JobState:
    """Fold the job's journal from its beginning, the rest of it backwards if asked."""
    first, *rest = node.catalog.events(node.job("j").id)
    state = apply(None, first)
    for event in reversed(rest) if backwards else rest:
        state = apply(state, event)
    return state


def remembered(node: Node) -> dict[str, Cell]:
    """Answer what SHOW JOBS tells of the job, but for what it did in the last hour."""
    return {name: cell for name, cell in node.show("j").items() if name != "requests_per_hour"}


@pytest.fixture
def loaded(node: Node, folder: Path) -> Node:
    """A node whose job has loaded three files in three epochs."""
    for number, name in enumerate("abc"):
        write_rows(folder / f"{name}.json", numbered(number))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=ONE_FILE)}")
    node.run()
    return node


def test_t1_the_position_survives_when_the_journal_is_cut(loaded: Node, folder: Path) -> None:
    before = loaded.show("j")
    loaded.catalog.truncate_events(loaded.job("j").id, keep=0)

    node = loaded.restart()

    assert node.catalog.events(node.job("j").id) == ()
    assert node.show("j") == before
    assert before["position"] == str(folder / "c.json")


def test_t1_the_next_epoch_begins_behind_the_restored_position(
    loaded: Node, folder: Path
) -> None:
    loaded.catalog.truncate_events(loaded.job("j").id, keep=0)
    node = loaded.restart()
    write_rows(folder / "d.json", numbered(3))

    node.run()

    assert node.rows("t") == numbered(0, 1, 2, 3)
    assert attempts(node)[-1] == (4, 1, "COMMITTED")
    assert node.show("j")["position"] == str(folder / "d.json")


def test_t2_every_statistic_survives_a_cut_journal_and_a_restart(
    node: Node, folder: Path
) -> None:
    good = '{"id": 1, "note": "x"}\n\n \n{"id": 2, "note": "y"}\n'
    (folder / "a.json").write_text(good + 'null\n{"id": 3000000000000, "note": "z"}\n')
    properties = [("session.enable_insert_strict", "false")]
    table = CREATE_TABLE.replace("BIGINT", "INT")
    node.sql(f"{table}; {create_job(folder, properties=properties)}")
    node.run()
    before = node.job("j").cumulative
    node.catalog.truncate_events(node.job("j").id, keep=0)

    node = node.restart()

    counted = {f.name: getattr(before, f.name) for f in fields(Statistics)}
    assert node.job("j").cumulative == before
    of_streams = ["rows_foreign", "records_read"]
    assert [name for name, count in counted.items() if not count] == of_streams
    assert counted["rows_read"] == 6
    assert counted["rows_skipped"] == 2
    assert counted["bytes_read"] == (folder / "a.json").stat().st_size
    assert node.show("j")["position"] == str(folder / "a.json")


def test_t4_commits_replayed_after_alter_do_not_bring_the_old_position_back(
    loaded: Node, folder: Path
) -> None:
    offset = f'{{"fileName": "{folder}/a.json"}}'
    loaded.sql(f"PAUSE JOB j; ALTER JOB j PROPERTIES('offset' = '{offset}')")
    altered = loaded.job("j")
    assert loaded.tables is not None
    chain = loaded.tables.open(altered.definition.table.location).chain_after(altered.id, 0)

    for commit in reversed(chain):
        loaded.catalog.apply_commit(
            altered.id, commit.attachment, table_version=1, commit_seconds=None
        )

    assert loaded.job("j") == altered
    assert loaded.show("j")["position"] == str(folder / "a.json")
    assert loaded.catalog.files_of(altered.id).count() == 1


def test_t4_the_journal_folds_to_the_same_state_in_any_order(
    loaded: Node, folder: Path
) -> None:
    offset = f'{{"fileName": "{folder}/a.json"}}'
    loaded.sql(f"PAUSE JOB j; ALTER JOB j PROPERTIES('offset' = '{offset}')")

    state = folded(loaded, backwards=True)

    assert state == loaded.job("j")
    assert state.progress[0].position == state.progress[0].floor


def test_t5_a_newer_snapshot_wins_over_an_older_commit_in_the_journal(
    loaded: Node, folder: Path
) -> None:
    newest = loaded.job("j")
    older = [
        event
        for event in loaded.catalog.events(newest.id)
        if isinstance(event.body, Committed) and event.body.attachment.number < newest.number
    ]

    state = newest
    for event in older:
        state = apply(state, event)

    assert len(older) == 3
    assert state == newest
    assert state.progress[0].position == newest.progress[0].position
    assert loaded.show("j")["position"] == str(folder / "c.json")


def test_t6_a_snapshot_of_a_replayed_copy_is_the_live_one_byte_by_byte(loaded: Node) -> None:
    loaded.sql("PAUSE JOB j; ALTER JOB j PROPERTIES('max_interval' = '3s')")

    replayed = folded(loaded)

    assert to_text(replayed) == to_text(loaded.job("j"))


def test_t7_a_waiting_job_shows_its_position_after_a_restart(loaded: Node) -> None:
    before = loaded.show("j")

    after = loaded.restart().show("j")

    assert after == before
    assert after["state"] == "PENDING"


def test_t7_a_paused_job_shows_its_position_after_a_restart_and_goes_on_from_there(
    loaded: Node, folder: Path
) -> None:
    loaded.sql("PAUSE JOB j")
    before = loaded.show("j")
    write_rows(folder / "d.json", numbered(3))

    node = loaded.restart()

    assert node.show("j") == before
    assert before["state"] == "PAUSED"
    node.sql("RESUME JOB j")
    node.run()
    assert node.rows("t") == numbered(0, 1, 2, 3)
    assert node.show("j")["position"] == str(folder / "d.json")


def test_t7_a_job_paused_by_bad_rows_shows_its_position_after_a_restart_and_goes_on(
    loaded: Node, folder: Path
) -> None:
    (folder / "d.json").write_text("null\n")
    loaded.run()
    before = loaded.show("j")

    node = loaded.restart()

    assert node.show("j") == before
    assert before["position"] == str(folder / "c.json")
    write_rows(folder / "d.json", numbered(3))
    node.sql("RESUME JOB j")
    node.run()
    assert node.rows("t") == numbered(0, 1, 2, 3)


def test_t7_a_job_whose_process_died_while_it_ran_shows_its_position_and_goes_on(
    loaded: Node, folder: Path
) -> None:
    write_rows(folder / "d.json", numbered(3))
    crash_at(loaded, CrashPoint.EPOCH_STARTED)
    before = loaded.show("j")

    node = loaded.restart()

    assert node.show("j") == before
    assert before["state"] == "RUNNING"
    assert before["position"] == str(folder / "c.json")
    node.run()
    assert node.rows("t") == numbered(0, 1, 2, 3)
    assert attempts(node)[-2:] == [(4, 1, "CANCELLED"), (5, 1, "COMMITTED")]


def test_t7_a_job_that_was_being_dropped_shows_its_position_after_a_restart(
    loaded: Node, folder: Path
) -> None:
    crash_inside(loaded, "DROP JOB j", CrashPoint.DESIRED_STATE_STORED)
    before = loaded.show("j")

    node = loaded.restart()

    assert node.show("j") == before
    assert before["state"] == "DROPPING"
    assert before["position"] == str(folder / "c.json")
    node.sql("DROP JOB j")
    assert node.sql("SHOW JOBS") == []


@pytest.mark.parametrize(
    "point", [CrashPoint.TABLE_COMMITTED, CrashPoint.CATALOG_APPLIED, CrashPoint.COPY_WRITTEN]
)
def test_t10_the_position_is_restored_from_the_table_and_not_only_the_counts(
    loaded: Node, folder: Path, point: CrashPoint
) -> None:
    write_rows(folder / "d.json", numbered(3))
    crash_at(loaded, point)
    node = loaded.restart()

    node.run()

    state = node.job("j")
    assert node.rows("t") == numbered(0, 1, 2, 3)
    assert state.cumulative.rows_loaded == 4
    assert state.cumulative.files_read == 4
    assert node.show("j")["position"] == str(folder / "d.json")
    assert node.catalog.files_of(state.id).count() == 4


def test_t10_what_the_catalog_restored_is_what_the_table_says(
    loaded: Node, folder: Path
) -> None:
    write_rows(folder / "d.json", numbered(3))
    crash_at(loaded, CrashPoint.TABLE_COMMITTED)
    behind = loaded.job("j").progress
    node = loaded.restart()

    node.run()

    state = node.job("j")
    assert node.tables is not None
    handle = node.tables.open(state.definition.table.location)
    chain = [commit.attachment for commit in handle.chain_after(state.id, 0)]
    epochs = [commit for commit in chain if commit.kind is CommitKind.EPOCH]
    assert behind != epochs[-1].progress
    assert state.progress == epochs[-1].progress == chain[-1].progress
    assert state.cumulative == epochs[-1].cumulative == chain[-1].cumulative


def test_t36_bad_rows_keep_the_job_paused_with_its_reason_beyond_every_back_off(
    open_node: OpenNode, folder: Path
) -> None:
    clock = MovedClock()
    node = open_node(clock=clock)
    write_rows(folder / "a.json", numbered(1))
    (folder / "b.json").write_text('{"id": "not a number"}\n')
    properties = [*ONE_FILE, ("max_interval", "7s"), ("__team", "sales")]
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=properties)}")
    node.run()
    before = remembered(node)
    node.catalog.truncate_events(node.job("j").id, keep=0)
    definition = node.job("j").definition

    node = node.restart()
    clock.move(days=30)
    with supervised(node) as supervisor:
        looks = [supervisor.round() for _ in range(5)]

    assert all(look.paused_for_good for (look,) in looks)
    assert remembered(node) == before
    assert str(before["reason"]).startswith("TOO_MANY_FAILURE_ROWS_ERR: ")
    assert before["position"] == str(folder / "a.json")
    assert node.job("j").definition == definition


def test_t37_an_offset_given_at_create_is_not_executed_again_by_a_restart(
    node: Node, folder: Path
) -> None:
    for number, name in enumerate("abc"):
        write_rows(folder / f"{name}.json", numbered(number))
    offset = ("offset", f'{{"fileName": "{folder}/a.json"}}')
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=[offset])}")
    node.run()
    node.sql("PAUSE JOB j")
    before = node.show("j")

    node = node.restart()

    assert node.show("j") == before
    assert before["position"] == str(folder / "c.json")
    node.sql("RESUME JOB j")
    node.run()
    assert node.rows("t") == numbered(1, 2)
    assert node.show("j")["rows_loaded"] == 2
    assert node.show("j")["position"] == str(folder / "c.json")


@pytest.mark.parametrize(
    "point", [CrashPoint.DESIRED_STATE_STORED, CrashPoint.STATEMENT_APPLIED]
)
def test_t38_a_manual_pause_holds_beyond_every_back_off(
    open_node: OpenNode, folder: Path, point: CrashPoint
) -> None:
    clock = MovedClock()
    node = open_node(clock=clock)
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    node.run()
    crash_inside(node, "PAUSE JOB j", point)
    before = remembered(node)

    node = node.restart()
    clock.move(days=30)
    write_rows(folder / "b.json", numbered(2))
    looks = node.run()

    assert all(look.left_out for look in looks)
    assert remembered(node) == before
    assert before["reason"] == "MANUAL_PAUSE_ERR: paused by PAUSE JOB"
    assert before["position"] == str(folder / "a.json")
    assert node.rows("t") == numbered(1)


@pytest.mark.of_local_files("an object without bytes is no file")
def test_t43_an_epoch_without_rows_does_not_count_as_caught_up(
    node: Node, folder: Path
) -> None:
    (folder / "a.json").touch()
    (folder / "b.json").write_text("\n\n")
    write_rows(folder / "c.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=ONE_FILE)}")

    node.run()

    assert node.rows("t") == numbered(1)
    rows = [row["rows"] for row in node.sql("SHOW EPOCHS FOR j") if row["kind"] == "epoch"]
    assert rows == [0, 0, 1]
    assert node.show("j")["position"] == str(folder / "c.json")
    assert node.show("j")["files_loaded"] == 3


def test_t43_an_aborted_epoch_moves_nothing(loaded: Node, folder: Path) -> None:
    before = loaded.job("j")
    (folder / "d.json").write_text('{"id": 1}\nnull\n')

    loaded.run()

    after = loaded.job("j")
    assert after.desired.state is DesiredState.PAUSE
    assert attempts(loaded)[-1] == (4, 1, "FAILED")
    assert (after.progress, after.cumulative) == (before.progress, before.cumulative)
    assert loaded.rows("t") == numbered(0, 1, 2)


def test_t43_epochs_count_on_over_an_aborted_one(loaded: Node, folder: Path) -> None:
    (folder / "d.json").write_text("null\n")
    loaded.run()
    write_rows(folder / "d.json", numbered(3))
    node = loaded.restart()
    node.sql("RESUME JOB j")

    node.run()

    assert attempts(node)[-2:] == [(4, 1, "FAILED"), (5, 1, "COMMITTED")]
    assert node.show("j")["position"] == str(folder / "d.json")
    assert node.rows("t") == numbered(0, 1, 2, 3)
