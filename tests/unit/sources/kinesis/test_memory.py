"""What a job remembers of its stream holds until a person moves the job."""

from dataclasses import replace
from datetime import UTC, datetime

from penstock.model.codec import to_text
from penstock.model.split import After, End, Horizon, SplitProgress
from penstock.sources.kinesis.shards import ShardMemory, StreamMemory, remembered

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


def test_a_child_that_no_commit_knows_yet_stays_remembered() -> None:
    found = remembered(to_text(MEMORY), (PARENT,))

    assert found == MEMORY


def test_the_stream_stays_known_when_every_placed_shard_was_forgotten() -> None:
    found = remembered(to_text(MEMORY), (CHILD,))

    assert found.created_at == AT


def test_a_move_makes_moved_and_unknown_shards_and_the_stream_obsolete() -> None:
    moved = replace(PARENT, position=After(value="7"), placed=5)

    found = remembered(to_text(MEMORY), (moved,))

    assert found.shards == ()
    assert found.created_at is None


def test_a_move_leaves_the_memory_of_shards_that_stayed() -> None:
    moved = replace(CHILD, position=After(value="7"), placed=5)

    found = remembered(to_text(MEMORY), (PARENT, moved))

    assert [one.shard for one in found.shards] == ["a"]
    assert found.created_at is None


def test_a_shard_that_was_placed_later_is_not_known_to_be_closed() -> None:
    memory = replace(MEMORY, closed=("a", "b"))
    moved = replace(CHILD, position=After(value="7"), placed=5)

    found = remembered(to_text(memory), (PARENT, moved))

    assert found.closed == ("a",)
