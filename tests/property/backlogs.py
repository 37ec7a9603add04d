"""Random copies of the backlog of one job."""

from datetime import timedelta

from hypothesis import strategies as st

from penstock.model.backlog import Backlog, SplitBacklog
from penstock.model.split import At
from tests.contract.catalog.building import START

names = st.sampled_from(["a", "b", "c"])
# Copies of the record of one job: those of the same ``armed`` have the same boundaries.
finishes = st.none() | st.integers(1, 5)


def _split(name: str, finished: int | None, lags: int, *, gone: bool) -> SplitBacklog:
    at = None if finished is None else START + timedelta(seconds=finished)
    boundary = At(value="5")
    return SplitBacklog(
        split=name,
        boundary=boundary,
        finished_at=at,
        epoch=finished or 0,
        lag_changes=lags,
        gone=gone,
    )


splits = st.builds(_split, names, finishes, st.integers(0, 3), gone=st.booleans())
records = st.builds(
    lambda armed, found: Backlog(
        armed=armed,
        fixed_at=START + timedelta(seconds=armed),
        splits=tuple(sorted(found, key=lambda split: split.split)),
    ),
    st.integers(0, 2),
    st.lists(splits, unique_by=lambda split: split.split, max_size=3),
)
