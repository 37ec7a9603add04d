"""Histories at random."""

from datetime import timedelta

from hypothesis import strategies as st

from penstock.model.files import LateFiles, ModifiedFiles
from tests.property.audit.bucket import Order
from tests.property.audit.steps import (
    DISK,
    PLACES,
    Backup,
    Change,
    Crash,
    Delete,
    Ending,
    History,
    Load,
    Look,
    Move,
    Outcome,
    Place,
    Put,
    Restore,
    Round,
    Rules,
    SetClock,
    Setup,
    Step,
    Wait,
)

STEPS_MAX = 24
AGES = st.sampled_from([0, 0, 0, 5, 15, 60, 600, -30])
RULES = st.builds(
    Rules,
    late_files=st.sampled_from(LateFiles),
    late_window=st.sampled_from([None, timedelta(minutes=10), timedelta(minutes=60)]),
    modified_files=st.sampled_from([ModifiedFiles.IGNORE, *ModifiedFiles]),
)


def setups(place: Place, order: Order) -> st.SearchStrategy[Setup]:
    """Setups in a place whose server lists in an order."""
    return st.builds(
        Setup,
        place=st.just(place),
        order=st.just(order),
        # Only a bucket that keeps the order may be said to keep it.
        ordered_listing=st.sampled_from(
            [False, order is Order.BYTES and place is not DISK],
        ),
        audit_interval=st.sampled_from([timedelta(seconds=1), timedelta(minutes=20)]),
        window_files=st.integers(2, 5),
        lookup_files=st.integers(1, 3),
        rules=RULES,
        puts_back=st.booleans(),
        ending=st.sampled_from(Ending),
    )


def steps(place: Place) -> st.SearchStrategy[Step]:
    """One thing that may happen in a place."""
    keys = st.sampled_from(place.keys)
    strangers = st.sampled_from(place.strangers)
    puts = st.builds(Put, keys, AGES)
    touches = puts | puts | st.builds(Delete, keys)
    files_max = st.sampled_from([1, 2, 100])
    looks = st.builds(
        Look,
        st.none() | st.integers(0, 4),
        st.lists(touches, max_size=3).map(tuple),
        st.sampled_from([False, False, True]),
    )
    return st.one_of(
        puts,
        puts,
        puts,
        st.builds(Put, keys | strangers, AGES, st.integers(0, 1)),
        st.builds(Delete, keys),
        st.builds(Look),
        looks,
        st.builds(Load, files_max),
        st.builds(Load, files_max, st.sampled_from(Outcome)),
        st.builds(Round, files_max),
        st.builds(Round, files_max),
        st.builds(Crash),
        st.builds(Move, st.none() | keys | strangers),
        st.builds(Wait, st.sampled_from([1, 6, 15, 70])),
        st.builds(SetClock, st.sampled_from([-60, -10, 30])),
        st.builds(Change, RULES),
        st.builds(Backup),
        st.builds(Restore),
    )


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Any history."""
    place = draw(st.sampled_from(PLACES))
    order = Order.BYTES if place is DISK else draw(st.sampled_from(Order))
    setup = draw(setups(place, order))
    first = draw(st.lists(st.builds(Put, st.sampled_from(place.keys), AGES), max_size=5))
    taken = draw(st.lists(steps(place), max_size=STEPS_MAX))
    return History(setup=setup, steps=(*first, *taken))
