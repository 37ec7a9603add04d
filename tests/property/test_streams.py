"""Every record of a stream is loaded once and in order in all tested histories."""

import pytest
from hypothesis import HealthCheck, given, settings

from tests.property.streams.histories import histories
from tests.property.streams.mutations import HISTORY_BY_MUTATION, Mutation
from tests.property.streams.steps import History
from tests.property.streams.world import run_history


@pytest.mark.timeout(900)
@settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories())
def test_every_record_is_loaded_once_and_in_order(history: History) -> None:
    run_history(history)


@pytest.mark.parametrize("mutation", HISTORY_BY_MUTATION, ids=lambda given: given.__name__)
def test_a_history_detects_every_wrong_source(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = HISTORY_BY_MUTATION[mutation]
    run_history(history)
    mutation(monkeypatch)

    with pytest.raises(AssertionError):
        run_history(history)
