"""Values stored by a newer version are refused by name, never misread."""

from dataclasses import replace

from penstock.control.job_view import JobView
from penstock.errors import Code, InvariantError
from penstock.model.codec import from_text, to_text
from penstock.model.epoch import Attachment
from penstock.model.events import Event, JobCreated, apply
from penstock.model.job import Desired, DesiredState, JobDefinition, JobState, Reason, SourceRef
from penstock.supervisor.restart import resume_at
from tests.contract.catalog.building import DEFINITION, JOB, START, commit, created
from tests.error_values import raises

PAUSED = Desired(
    state=DesiredState.PAUSE,
    reason=Reason(code=Code.STORAGE_ERR, message="it failed"),
    event=1,
    changed_at=START,
)


def with_unknown_kind(text: str, kind: str) -> str:
    """Return a stored text with the name of one kind replaced by an unknown name."""
    written = f'"is":"{kind}"'
    assert written in text
    return text.replace(written, '"is":"Pulsar"')


def test_t13_a_position_of_an_unknown_kind_in_an_attachment_is_refused() -> None:
    text = to_text(commit(2, "a"))

    with raises(InvariantError, Code.INTERNAL_ERR, "stored", '"Pulsar"'):
        from_text(Attachment, with_unknown_kind(text, "After"))


def test_t13_a_source_of_an_unknown_kind_in_a_definition_is_refused() -> None:
    source = SourceRef(kind="PULSAR", options=())
    state = stored(replace(DEFINITION, source=source))

    with raises(InvariantError, Code.INTERNAL_ERR, "source", '"PULSAR"'):
        _ = JobView(job=state, at=START).position


def test_t13_a_job_of_an_unknown_kind_is_refused() -> None:
    state = stored(replace(DEFINITION, job_kind="PULSAR"))

    with raises(InvariantError, Code.INTERNAL_ERR, "job", '"PULSAR"'):
        resume_at(replace(state, desired=PAUSED))


def stored(definition: JobDefinition) -> JobState:
    """Return a job with this definition as it is read back."""
    text = to_text(replace(created(), definition=definition))
    body = from_text(JobCreated, text)
    return apply(None, Event(job_id=JOB, number=1, at=START, body=body))
