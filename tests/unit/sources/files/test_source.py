"""A source of files: polls and offsets."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import SystemClock
from penstock.model.split import After
from penstock.sources.files import source as files
from penstock.sources.files.globs import list_all
from penstock.sources.files.kind import read_offset, write_offset
from penstock.sources.source import Source
from tests.contract.source_worlds import FilesWorld
from tests.contract.test_sources import EVERYTHING


class ClockSetBack(SystemClock):
    """A clock that is set back."""

    def __init__(self) -> None:
        self.back = timedelta(0)

    def now(self) -> datetime:
        return super().now() - self.back


def poll(source: Source, world: FilesWorld) -> None:
    source.poll(world.job.state().progress, report=lambda _seen: None)


def test_a_source_stays_caught_up_when_the_clock_is_set_back(tmp_path: Path) -> None:
    world, clock = FilesWorld(tmp_path), ClockSetBack()
    world.job.clock = clock
    source = world.job.open()
    poll(source, world)
    heads = source.heads()

    clock.back = timedelta(hours=1)
    poll(source, world)

    assert all(source.passed(split, head) for split, head in heads.items())


def test_the_poll_after_an_epoch_uses_the_listing_of_that_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, listings = FilesWorld(tmp_path), Counted()
    monkeypatch.setattr(files, "list_all", listings)
    world.put("a")
    source = world.job.open()
    poll(source, world)
    planned = source.plan(world.job.state().progress, limits=EVERYTHING)
    assert planned is not None
    world.put("b")

    source.prepare(planned.progress, report=lambda _: None)
    world.job.commit(planned, by=source)
    due = source.poll_due(timedelta(days=1))
    poll(source, world)

    assert (due, source.poll_due(timedelta(0))) == (True, False)
    assert listings.count == 2
    assert source.waiting().items == 1


class Counted:
    """Lists files, and counts the listings."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.count += 1
        return list_all(*given, **named)


def test_an_offset_with_a_colon_and_slashes_is_a_path() -> None:
    position = read_offset('{"fileName": "/f://x"}', uri="file:///in/*.json")

    assert position == After(value="/f://x")
    assert read_offset(write_offset(position), uri="file:///in/*.json") == position
