"""The memory of a stream is valid until a user moves the job's positions."""

from dataclasses import replace
from datetime import UTC, datetime

from penstock.model.codec import to_text
from penstock.model.split import After, End, Horizon, SplitProgress
from penstock.sources.kinesis.shards import ShardMemory, StreamMemory, load_memory

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
PARENT = SplitProgress(split="a", floor=Horizon(), position=End(), identity="1", placed=1)
CHILD = SplitProgress(
    split="b", floor=Horizon(), position=Horizon(), identity="2", parents=("a",)
)
MEMORY = StreamMemory(
    shards=(
        ShardMemory(shard="a", caught_up_at=AT, placed=1),
        ShardMemory(shard="b", caught_up_at=AT),
    ),
    created_at=AT,
    placed=1,
)


def test_the_memory_of_an_uncommitted_child_is_kept() -> None:
    found = load_memory(to_text(MEMORY), (PARENT,))

    assert found == MEMORY


def test_the_creation_time_is_kept_after_all_placed_shards_are_removed() -> None:
    found = load_memory(to_text(MEMORY), (CHILD,))

    assert found.created_at == AT


def test_a_move_removes_moved_shards_unknown_shards_and_the_creation_time() -> None:
    moved = replace(PARENT, position=After(value="7"), placed=5)

    found = load_memory(to_text(MEMORY), (moved,))

    assert found.shards == ()
    assert found.created_at is None


def test_a_move_keeps_the_memory_of_shards_that_were_not_moved() -> None:
    moved = replace(CHILD, position=After(value="7"), placed=5)

    found = load_memory(to_text(MEMORY), (PARENT, moved))

    assert [one.shard for one in found.shards] == ["a"]
    assert found.created_at is None


def test_a_moved_shard_is_not_assumed_to_be_closed() -> None:
    memory = replace(MEMORY, closed=("a", "b"))
    moved = replace(CHILD, position=After(value="7"), placed=5)

    found = load_memory(to_text(memory), (PARENT, moved))

    assert found.closed == ("a",)
