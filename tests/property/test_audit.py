"""Every file is loaded once, in every order of arrival and every order of listing."""

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings

from penstock.sources.files.globs import files_glob
from penstock.storage.uris import parse_uri
from tests.contract.catalog.building import JOB
from tests.property.audit.histories import histories
from tests.property.audit.mutations import HISTORY_BY_MUTATION, Mutation
from tests.property.audit.named_histories import HISTORY_BY_NAME
from tests.property.audit.steps import (
    PLACES,
    TWO_FOLDERS,
    History,
    Place,
    Put,
    Round,
    Rules,
    Setup,
    Wait,
)
from tests.property.audit.world import open_world, play


@settings(max_examples=700, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories())
def test_every_file_is_loaded_once(history: History) -> None:
    play(history)


@pytest.mark.parametrize("name", HISTORY_BY_NAME)
def test_every_file_of_this_history_is_loaded_once(name: str) -> None:
    play(HISTORY_BY_NAME[name])


@pytest.mark.parametrize("mutation", HISTORY_BY_MUTATION, ids=lambda given: given.__name__)
def test_a_wrong_source_does_not_survive_its_history(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)

    with pytest.raises(AssertionError):
        play(HISTORY_BY_MUTATION[mutation])


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.uri)
def test_the_places_of_the_histories_match_their_patterns(place: Place) -> None:
    glob = files_glob(parse_uri(place.uri))

    assert glob.prefixes == place.prefixes
    assert all(map(glob.matches, place.keys))
    assert not any(map(glob.matches, place.other_keys))


def test_an_idle_poll_between_audits_sends_one_request_per_prefix() -> None:
    setup = Setup(place=TWO_FOLDERS, ordered_listing=True)
    with open_world(setup) as world:
        world.run_steps([*map(Put, TWO_FOLDERS.keys), Round(), Round()])

        world.poll()

    store = world.bucket.stores[-1]
    requests = [(one.prefix, one.after, one.returned) for one in store.list_requests]
    assert requests == [("a/", "a/3.json", []), ("b/c/", "b/c/3.json", [])]
    assert store.requests == 2


def test_an_audit_prunes_files_older_than_the_window() -> None:
    setup = Setup(place=TWO_FOLDERS, rules=Rules(late_window=timedelta(minutes=10)))
    with open_world(setup) as world:
        world.run_steps([*map(Put, TWO_FOLDERS.keys), Round(), Round(), Wait(15)])

        world.run_step(Round())

        known = world.catalog.files_of(JOB).known(TWO_FOLDERS.keys)
    assert known.keys() == {"a/3.json", "b/c/3.json"}
