"""The epoch protocol loads every row exactly once in random and in chosen histories."""

import pytest
from hypothesis import HealthCheck, settings

from penstock.errors import PenstockError
from tests.property.protocol.histories import HISTORIES, History, play
from tests.property.protocol.machine import ProtocolMachine
from tests.property.protocol.mutations import MUTATIONS, Mutation

TestProtocol = ProtocolMachine.TestCase
TestProtocol.settings = settings(
    max_examples=500,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_the_protocol_survives_this_history(history: History) -> None:
    play(history)


def survives(history: History) -> bool:
    try:
        play(history)
    except (AssertionError, PenstockError):
        return False
    return True


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_wrong_protocol_does_not_survive_all_histories(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)

    survived = all(survives(history) for history in HISTORIES)

    assert not survived
