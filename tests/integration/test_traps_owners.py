"""Traps of ownership: who was overtaken or paused commits nothing more."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.model.epoch import CommitKind
from penstock.tables.chain import next_generation
from tests.integration.driving import (
    Gate,
    attempts,
    looks_until,
    rounds_until,
    stopped,
    supervised,
)
from tests.mirrored_node import OpenNode
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

ON_BUCKETS_TOO = True


def test_t39_a_late_commit_of_an_older_owner_is_refused(
    open_node: OpenNode, folder: Path
) -> None:
    gate = Gate()
    old = open_node(work=gate)
    new = open_node(node_id="node-2")
    write_rows(folder / "a.json", numbered(1))
    old.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    with supervised(old) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())
        write_rows(folder / "b.json", numbered(2))
        new.run()

        gate.opened.set()
        looks_until(supervisor, stopped)
        (look,) = supervisor.round()

    assert look.last_words is not None
    assert look.last_words.ending == "lost"
    assert new.rows("t") == numbered(1, 2)
    assert new.show("j")["rows_loaded"] == 2
    assert new.show("j")["position"] == str(folder / "b.json")
    assert attempts(new) == [(1, 1, "CANCELLED"), (2, 1, "COMMITTED")]


def test_t39_the_table_holds_only_commits_of_the_newer_owner(
    open_node: OpenNode, folder: Path
) -> None:
    gate = Gate()
    old = open_node(work=gate)
    new = open_node(node_id="node-2")
    write_rows(folder / "a.json", numbered(1))
    old.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    with supervised(old) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())
        overtaken = old.job("j").generation
        new.run()

        gate.opened.set()
        looks_until(supervisor, stopped)

    state = new.job("j")
    assert new.tables is not None
    chain = new.tables.open(state.definition.table.location).chain_after(state.id, 0)
    epochs = [c.attachment for c in chain if c.attachment.kind is CommitKind.EPOCH]
    assert [c.attachment.number for c in chain] == list(range(1, len(chain) + 1))
    assert [epoch.generation.number > overtaken.number for epoch in epochs] == [True]
    assert state.progress == epochs[-1].progress


def test_t44_rows_of_an_epoch_that_pause_met_are_not_visible(
    open_node: OpenNode, folder: Path
) -> None:
    gate = Gate()
    node = open_node(work=gate)
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())

        node.sql("PAUSE JOB j")

        before = node.rows("t")
        gate.opened.set()
        looks_until(supervisor, stopped)
    assert (before, node.rows("t")) == ([], [])
    assert node.show("j")["state"] == "PAUSED"
    assert node.show("j")["position"] == "beginning"
    assert node.show("j")["rows_loaded"] == 0
    assert attempts(node) == [(1, 1, "CANCELLED")]


def test_t44_after_resume_each_row_of_the_interrupted_epoch_is_there_once(
    open_node: OpenNode, folder: Path
) -> None:
    gate = Gate()
    node = open_node(work=gate)
    write_rows(folder / "a.json", numbered(1))
    write_rows(folder / "b.json", numbered(2))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())
        node.sql("PAUSE JOB j")
        gate.opened.set()
        rounds_until(supervisor, lambda looks: looks[0].last_words is not None)

    node.sql("RESUME JOB j")
    node.run()

    assert node.rows("t") == numbered(1, 2)
    assert node.show("j")["rows_loaded"] == 2
    assert node.show("j")["position"] == str(folder / "b.json")
    assert attempts(node) == [(1, 1, "CANCELLED"), (2, 1, "COMMITTED")]


def owned_by_somebody_else(node: Node) -> None:
    """Let another node hold the lease of the job."""
    state = node.job("j")
    node.catalog.take_lease(
        state.id,
        node_id="somebody else",
        duration=timedelta(hours=1),
        expected=state.generation,
        generation=next_generation(state.generation),
    )


def test_a_run_until_caught_up_ends_beside_another_owner(node: Node, folder: Path) -> None:
    write_rows(folder / "a.json", numbered(1, 2))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    node.run()
    owned_by_somebody_else(node)

    (look,) = node.supervisor().round()

    assert look.caught_up
    assert look.state.cumulative.rows_loaded == 2


@pytest.mark.of_local_files("a prefix without objects is nothing wrong")
def test_what_is_wrong_with_the_job_of_another_owner_does_not_end_a_run(
    node: Node, folder: Path
) -> None:
    write_rows(folder / "a.json", numbered(1, 2))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    owned_by_somebody_else(node)
    shutil.rmtree(folder)

    (look,) = node.supervisor().round()

    assert not look.caught_up
