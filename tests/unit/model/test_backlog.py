"""A split leaves the backlog only at its own boundary; the lag rule has two marks."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from penstock.model.backlog import (
    Backlog,
    Findings,
    LagMarks,
    LagUnit,
    SplitBacklog,
    fix_boundaries,
    merge,
    newly_finished,
    review,
)
from penstock.model.split import Amount, At, End, Horizon, Position, SplitProgress
from tests.contract.catalog.building import START

LATER = START + timedelta(minutes=1)
MARKS = LagMarks(unit=LagUnit.ROWS, high=100, low=10)


def found(
    positions: Mapping[str, int | None],
    *,
    epoch: int = 0,
    unknown: tuple[str, ...] = (),
    rows: Mapping[str, int] | None = None,
) -> Findings:
    """Return findings of splits at these positions; None is the end of a split.

    The source knows nothing about the ``unknown`` splits.
    """

    def passed(split: str, boundary: Position) -> bool:
        position = positions[split]
        assert isinstance(boundary, At)
        return split not in unknown and position is not None and position >= int(boundary.value)

    return Findings(
        progress=tuple(
            SplitProgress(
                split=split,
                floor=Horizon(),
                position=End() if position is None else At(value=str(position)),
            )
            for split, position in positions.items()
        ),
        passed=passed,
        remaining={split: Amount(rows=amount) for split, amount in (rows or {}).items()},
        at=LATER,
        epoch=epoch,
    )


def heads(**rows: int) -> dict[str, Position]:
    """Return the heads of splits."""
    return {split: At(value=str(row)) for split, row in rows.items()}


def waiting(*splits: str) -> Backlog:
    """Return a record with a boundary at row 5 in each split."""
    boundaries = tuple(SplitBacklog(split=split, boundary=At(value="5")) for split in splits)
    return Backlog(armed=1, fixed_at=START, splits=boundaries)


def open_splits(record: Backlog) -> list[str]:
    """Return the splits that have not reached their boundaries."""
    return [split.split for split in record.splits if split.open]


def test_boundaries_are_fixed_at_the_heads() -> None:
    record = fix_boundaries(Backlog(), heads(a=3, b=4), found({"a": 0, "b": 0}))

    boundaries = {split.split: split.boundary for split in record.splits}
    assert boundaries == heads(a=3, b=4)
    assert (record.armed, record.fixed_at, record.cause) == (1, LATER, "boundary")


def test_t62_a_split_with_an_empty_range_gets_no_boundary() -> None:
    record = fix_boundaries(Backlog(), heads(a=3, b=4), found({"a": 3, "b": 0}))

    assert [split.split for split in record.splits] == ["b"]


def test_t62_a_job_without_splits_has_no_backlog() -> None:
    record = fix_boundaries(Backlog(), {}, found({}))

    assert (record.armed, record.splits, record.cause) == (1, (), "")
    assert review(record, found({}), marks=None) == record


def test_boundaries_that_are_fixed_again_forget_the_old_ones() -> None:
    before = review(waiting("a", "b"), found({"a": 5, "b": 0}, epoch=1), marks=None)

    record = fix_boundaries(before, heads(a=9, b=9), found({"a": 5, "b": 0}))

    assert (record.armed, open_splits(record)) == (2, ["a", "b"])
    assert {split.boundary for split in record.splits} == {At(value="9")}


def test_boundaries_that_are_fixed_again_keep_the_lag_of_a_split() -> None:
    before = replace(waiting(), splits=(SplitBacklog(split="a", lag_changes=3),))

    record = fix_boundaries(before, heads(a=5), found({"a": 5}))

    assert record.splits == (SplitBacklog(split="a", lag_changes=3),)
    assert record.cause == "lag"


def test_t60_a_split_is_finished_only_at_its_own_boundary() -> None:
    record = review(waiting("a", "b"), found({"a": 5, "b": 4}, epoch=7), marks=None)

    assert open_splits(record) == ["b"]
    assert record.cause == "boundary"
    assert (record.splits[0].finished_at, record.splits[0].epoch) == (LATER, 7)
    assert not record.splits[0].gone


def test_t60_a_split_of_which_nothing_is_known_is_not_finished() -> None:
    record = review(waiting("a", "b"), found({"a": 9, "b": 9}, unknown=("b",)), marks=None)

    assert open_splits(record) == ["b"]


def test_t59_a_split_that_was_read_to_its_end_leaves_the_backlog() -> None:
    record = review(waiting("a", "b"), found({"a": None, "b": 0}, epoch=3), marks=None)

    assert open_splits(record) == ["b"]
    assert (record.splits[0].epoch, record.splits[0].gone) == (3, False)


def test_t59_a_job_whose_splits_have_all_ended_has_no_backlog() -> None:
    record = review(waiting("a"), found({"a": None}), marks=None)

    assert record.cause == ""


def test_t62_a_split_that_was_removed_leaves_the_backlog() -> None:
    record = review(waiting("a", "b"), found({"b": 0}), marks=None)

    assert open_splits(record) == ["b"]
    assert (record.splits[0].finished_at, record.splits[0].gone) == (LATER, True)


def test_a_split_found_later_gets_no_boundary() -> None:
    record = review(waiting("a"), found({"a": 0, "new": 0}), marks=None)

    assert [split.split for split in record.splits] == ["a"]


def test_a_split_found_later_enters_by_its_lag() -> None:
    lags = found({"a": 5, "new": 0}, rows={"new": 101})

    record = review(waiting("a"), lags, marks=MARKS)

    assert record.cause == "lag"
    assert record.splits[1] == SplitBacklog(split="new", lag_changes=1)


def test_a_finished_split_keeps_its_first_time_and_epoch() -> None:
    first = review(waiting("a"), found({"a": 5}, epoch=1), marks=None)
    later = replace(found({"a": 6}, epoch=2), at=LATER + timedelta(minutes=1))

    assert review(first, later, marks=None) == first


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((100,), [False]),
        ((101,), [True]),
        ((101, 11, 100, 10), [True, True, True, True]),
        ((101, 9), [True, False]),
        ((101, 9, 11, 100), [True, False, False, False]),
    ],
)
def test_a_split_enters_above_the_high_mark_and_leaves_below_the_low_mark(
    rows: tuple[int, ...], expected: list[bool]
) -> None:
    record, seen = Backlog(), []

    for amount in rows:
        record = review(record, found({"a": 0}, rows={"a": amount}), marks=MARKS)
        seen.append(record.cause == "lag")

    assert seen == expected


@pytest.mark.parametrize("lagging", [True, False])
def test_an_amount_that_the_source_cannot_measure_changes_no_lag(*, lagging: bool) -> None:
    assert MARKS.lagging(Amount(size_bytes=10**9), before=lagging) is lagging


@pytest.mark.parametrize(
    ("unit", "amount"),
    [
        (LagUnit.ROWS, Amount(rows=60)),
        (LagUnit.BYTES, Amount(size_bytes=60)),
        (LagUnit.TIME, Amount(lag=timedelta(minutes=1))),
    ],
)
def test_a_mark_is_compared_with_the_amount_of_its_unit(unit: LagUnit, amount: Amount) -> None:
    assert unit.of(amount) == 60
    assert LagMarks(unit=unit, high=59, low=1).lagging(amount, before=False)
    assert not LagMarks(unit=unit, high=60, low=1).lagging(amount, before=False)


def test_a_lagging_split_leaves_if_the_rule_is_removed() -> None:
    before = Backlog(splits=(SplitBacklog(split="a", lag_changes=1),))

    assert review(before, found({"a": 0}, rows={"a": 101}), marks=None).cause == ""


def test_t62_a_lagging_split_leaves_if_it_was_removed() -> None:
    before = Backlog(splits=(SplitBacklog(split="a", lag_changes=1),))

    assert review(before, found({}), marks=MARKS).cause == ""


def test_only_splits_that_were_not_finished_before_are_newly_finished() -> None:
    first = review(waiting("a", "b"), found({"a": 5, "b": 0}, epoch=1), marks=None)
    second = review(first, found({"a": 5, "b": 5}, epoch=2), marks=None)

    assert [split.split for split in newly_finished(waiting("a", "b"), first)] == ["a"]
    assert [split.split for split in newly_finished(first, second)] == ["b"]
    assert newly_finished(second, second) == ()


def test_a_split_that_reaches_a_boundary_that_was_fixed_again_is_newly_finished() -> None:
    first = review(waiting("a"), found({"a": 5}, epoch=1), marks=None)
    fixed = fix_boundaries(first, heads(a=9), found({"a": 5}))
    second = review(fixed, found({"a": 9}, epoch=2), marks=None)

    assert newly_finished(first, fixed) == ()
    assert [split.epoch for split in newly_finished(first, second)] == [2]


def test_the_copy_with_newer_boundaries_replaces_the_older_copy() -> None:
    older = review(waiting("a"), found({"a": 5}, epoch=1), marks=None)
    newer = replace(waiting("a"), armed=2)

    assert merge(older, newer) == merge(newer, older) == newer


def test_a_split_that_one_copy_finished_is_finished() -> None:
    copy = waiting("a", "b")
    one = review(copy, found({"a": 5, "b": 0}, epoch=1), marks=None)
    other = review(copy, found({"a": 0, "b": 5}, epoch=1), marks=None)

    assert open_splits(merge(one, other)) == []
    assert merge(one, copy) == merge(copy, one) == one


def test_a_record_with_older_boundaries_finishes_nothing_again() -> None:
    first = review(waiting("a"), found({"a": 5}, epoch=1), marks=None)
    fixed = fix_boundaries(first, heads(a=9), found({"a": 5}))

    assert newly_finished(fixed, first) == ()
