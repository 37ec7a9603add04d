"""Random histories."""

from datetime import timedelta
from functools import partial
from itertools import chain

from hypothesis import strategies as st

from penstock.sources.files.kind import LateFiles, ModifiedFiles
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
    Move,
    Outcome,
    Place,
    Poll,
    Put,
    Restore,
    Round,
    Rules,
    SetClock,
    Setup,
    Step,
    Wait,
)

SCENES_MAX = 12
AGES = st.sampled_from([0, 0, 0, 5, 15, 60, 600, -30])
RULES = st.builds(
    Rules,
    late_files=st.sampled_from([LateFiles.LOAD, *LateFiles]),
    late_window=st.sampled_from([None, timedelta(minutes=10), timedelta(minutes=60)]),
    modified_files=st.sampled_from([ModifiedFiles.IGNORE, *ModifiedFiles]),
)
FILES_MAX = st.sampled_from([1, 2, 100])
FAILURES = st.sampled_from([Outcome.FAILED, Outcome.FAILED, *Outcome])


def setups(place: Place, order: Order) -> st.SearchStrategy[Setup]:
    """Return setups in a place whose server lists in an order."""
    # ordered_listing is allowed only for a bucket that lists in byte order.
    may_be_ordered = order is Order.BYTES and place is not DISK
    return st.builds(
        Setup,
        place=st.just(place),
        order=st.just(order),
        ordered_listing=st.sampled_from([may_be_ordered, may_be_ordered, False]),
        audit_interval=st.sampled_from([timedelta(seconds=1), timedelta(minutes=20)]),
        window_files=st.sampled_from([2, 2, 3, 5]),
        lookup_files=st.integers(1, 3),
        rules=RULES,
        puts_back=st.booleans(),
        ending=st.sampled_from(Ending),
    )


def scenes(place: Place) -> st.SearchStrategy[list[Step]]:
    """Return a few steps that belong together."""
    keys = st.sampled_from(place.keys)
    puts = st.builds(Put, keys, AGES)
    touches = puts | st.builds(Delete, keys)
    rounds = st.builds(Round, FILES_MAX)
    polls = st.builds(
        Poll, st.none() | st.integers(0, 4), st.lists(touches, max_size=3).map(tuple)
    )
    takeovers = st.builds(partial(Poll, taken_over=True))
    odd = st.builds(Put, keys | st.sampled_from(place.other_keys), AGES, st.integers(0, 1))
    moves = st.builds(Move, st.none() | keys | st.sampled_from(place.other_keys))
    times = st.builds(Wait, st.sampled_from([1, 15, 70])) | st.builds(
        SetClock, st.sampled_from([-60, -20, 30])
    )
    return st.one_of(
        st.lists(puts, min_size=1, max_size=4),
        st.tuples(puts, rounds).map(list),
        st.tuples(puts, rounds, rounds).map(list),
        st.tuples(odd | touches).map(list),
        st.tuples(polls, st.builds(Load, FILES_MAX)).map(list),
        st.tuples(puts, takeovers).map(list),
        st.tuples(st.builds(Load, FILES_MAX, st.sampled_from(Outcome))).map(list),
        st.tuples(st.builds(Load, st.just(1)), st.builds(Load, FILES_MAX, FAILURES)).map(list),
        st.tuples(times, rounds).map(list),
        st.tuples(times).map(list),
        st.tuples(moves | st.builds(Change, RULES) | st.builds(Crash)).map(list),
        st.tuples(st.builds(Backup) | st.builds(Restore)).map(list),
    )


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Draw a history; most start with more files than a poll keeps."""
    place = draw(st.sampled_from(PLACES))
    orders = [Order.BYTES] if place is DISK else [Order.BYTES, *Order]
    setup = draw(setups(place, draw(st.sampled_from(orders))))
    first = draw(st.lists(st.builds(Put, st.sampled_from(place.keys), AGES), max_size=8))
    following = draw(st.lists(scenes(place), max_size=SCENES_MAX))
    return History(setup=setup, steps=(*first, *chain.from_iterable(following)))
