"""Every record of a stream is loaded once and in order, whatever happens to stream and load."""

import pytest
from hypothesis import HealthCheck, given, settings

from tests.property.streams.histories import histories
from tests.property.streams.mutations import HISTORY_BY_MUTATION, Mutation
from tests.property.streams.steps import History
from tests.property.streams.world import play


@pytest.mark.timeout(900)
@settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories())
def test_every_record_is_loaded_once_and_in_order(history: History) -> None:
    play(history)


@pytest.mark.parametrize("mutation", HISTORY_BY_MUTATION, ids=lambda given: given.__name__)
def test_a_wrong_source_does_not_survive_its_history(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = HISTORY_BY_MUTATION[mutation]
    play(history)
    mutation(monkeypatch)

    with pytest.raises(AssertionError):
        play(history)
