"""Every field of every stored class survives a round trip through the codec."""

from dataclasses import Field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import Code, InvariantError
from penstock.model.codec import encode, from_data, from_text, to_text
from penstock.model.epoch import Attachment
from penstock.model.events import Event
from penstock.model.job import JobState
from penstock.model.job_kinds import JOB_KINDS
from penstock.model.ledger import LedgerEntry
from penstock.model.options import parse_options, print_options
from penstock.sources.registry import source_kinds
from tests.error_values import raises
from tests.property.reflection import fields_of, options_of, reachable, values_of

STORED = reachable(Event, JobState, Attachment, LedgerEntry)
FIELDS = [
    pytest.param(kind, f, id=f"{kind.__name__}.{f.name}") for kind, f in fields_of(STORED)
]
# Sources and properties are stored as option texts.
OPTIONS = (
    *(kind.options for kind in source_kinds()),
    *(kind.properties for kind in JOB_KINDS.values()),
)
# The origins of values, which are not stored.
NOT_STORED = {
    "KinesisOptions.origins",
    "StoreOptions.origins",
    # The key of the stored option is the spelling.
    "JobProperties.spelled",
    "RoutineProperties.spelled",
    "StreamingTableProperties.spelled",
}

quick = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize("kind", STORED)
@given(data=st.data())
@quick
def test_a_value_survives_a_round_trip_through_the_codec(
    kind: type, data: st.DataObject
) -> None:
    value = data.draw(values_of(kind))

    text = to_text(value)
    back: object = from_text(kind, text)

    assert back == value
    assert to_text(back) == text


@pytest.mark.parametrize(("kind", "f"), FIELDS)
@given(data=st.data())
@settings(quick, max_examples=5)
def test_no_field_is_omitted(kind: type, f: Field[Any], data: st.DataObject) -> None:
    one = data.draw(values_of(kind))

    other = replace(one, **{f.name: "a text that is longer than any drawn one"})

    assert to_text(other) != to_text(one)


def test_a_field_is_omitted_from_storage_only_if_listed_here() -> None:
    transient = {f.name for _, f in fields_of(STORED) if f.metadata.get("transient")}
    declared = {"option", "group", "prefix"}
    not_stored = {
        f"{kind.__name__}.{f.name}"
        for kind, f in fields_of(reachable(*OPTIONS))
        if not declared & f.metadata.keys()
    }

    assert transient == set()
    assert not_stored == NOT_STORED


@pytest.mark.parametrize("kind", OPTIONS)
@given(data=st.data())
@quick
def test_options_survive_a_round_trip_through_text(kind: type, data: st.DataObject) -> None:
    value = data.draw(options_of(kind))

    back: object = parse_options(kind, print_options(value), what="a test")

    assert back == value


def test_classes_that_contain_progress_are_stored() -> None:
    names = {kind.__name__ for kind in STORED}

    assert {"SplitProgress", "After", "Statistics", "Desired", "Column", "Struct"} <= names


@pytest.mark.parametrize("kind", STORED)
@given(data=st.data())
@settings(quick, max_examples=3)
def test_a_field_of_a_newer_version_is_refused(kind: type, data: st.DataObject) -> None:
    written = encode(data.draw(values_of(kind)))

    with raises(InvariantError, Code.INTERNAL_ERR, "colour"):
        from_data(kind, {**written, "colour": "green"})
