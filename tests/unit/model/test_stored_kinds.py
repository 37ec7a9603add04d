"""What was stored by a version that knew more is refused by name, and not misread."""

import pytest

from penstock.errors import InvariantError
from penstock.model.codec import from_text, to_text
from penstock.model.epoch import Attachment
from penstock.model.events import JobCreated
from tests.contract.catalog.building import commit, created


def of_another_kind(text: str, kind: str) -> str:
    """Answer a stored text in which one kind has another name."""
    written = f'"is":"{kind}"'
    assert written in text
    return text.replace(written, '"is":"Pulsar"')


def test_t13_a_position_of_an_unknown_kind_in_an_attachment_is_refused() -> None:
    text = to_text(commit(2, "a"))

    with pytest.raises(InvariantError, match='stored value has the unknown kind "Pulsar"'):
        from_text(Attachment, of_another_kind(text, "After"))


def test_t13_a_source_of_an_unknown_kind_in_a_definition_is_refused() -> None:
    text = to_text(created())

    with pytest.raises(InvariantError, match='stored value has the unknown kind "Pulsar"'):
        from_text(JobCreated, of_another_kind(text, "FilesOptions"))
