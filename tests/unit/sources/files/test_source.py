"""A source of files: polls and offsets."""

from datetime import datetime, timedelta
from pathlib import Path

from penstock.clock import SystemClock
from penstock.model.split import After
from penstock.sources.files.kind import read_offset, write_offset
from penstock.sources.source import Source
from tests.contract.source_worlds import FilesWorld


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


def test_an_offset_with_a_colon_and_slashes_is_a_path() -> None:
    position = read_offset('{"fileName": "/f://x"}', uri="file:///in/*.json")

    assert position == After(value="/f://x")
    assert read_offset(write_offset(position), uri="file:///in/*.json") == position
