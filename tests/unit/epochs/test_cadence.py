"""An epoch is due when its limits are full, or an interval after the last epoch."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from penstock.epochs.cadence import Wakes, due_at
from penstock.model.job_kinds import STREAMING_TABLE, StreamingTableProperties
from penstock.model.split import Amount
from tests.contract.catalog.building import DEFINITION, START

INTERVAL = timedelta(seconds=10)
STREAMING = replace(
    DEFINITION,
    job_kind=STREAMING_TABLE.name,
    properties=StreamingTableProperties(
        checkpoint_interval=INTERVAL, epoch_files_max=3, epoch_bytes_max=1_000
    ),
)


def test_the_first_epoch_of_a_run_is_due_at_once() -> None:
    assert due_at(STREAMING, last=None, waiting=Amount(items=1, size_bytes=1)) is None


def test_the_next_epoch_is_due_an_interval_after_the_last_one() -> None:
    waiting = Amount(items=1, size_bytes=1)

    assert due_at(STREAMING, last=START, waiting=waiting) == START + INTERVAL


@pytest.mark.parametrize("waiting", [Amount(items=3, size_bytes=1), Amount(size_bytes=1_000)])
def test_an_epoch_with_full_limits_is_due_at_once(waiting: Amount) -> None:
    assert due_at(STREAMING, last=START, waiting=waiting) is None


def test_a_load_never_waits_between_epochs() -> None:
    assert due_at(DEFINITION, last=START, waiting=Amount(items=1, size_bytes=1)) == START


def test_a_commit_wakes_only_the_loops_that_read_the_table() -> None:
    wakes, reader, other = Wakes(), threading.Event(), threading.Event()

    with wakes.registered(["file:///a", "file:///b"], reader), wakes.registered([], other):
        wakes.wake("file:///b")

    assert (reader.is_set(), other.is_set()) == (True, False)


def test_a_loop_that_has_ended_is_not_woken() -> None:
    wakes, ended = Wakes(), threading.Event()

    with wakes.registered(["file:///a"], ended):
        pass
    wakes.wake("file:///a")

    assert not ended.is_set()
