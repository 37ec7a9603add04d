"""Encrypted secrets in every store of the catalog."""

from dataclasses import replace
from datetime import timedelta

import pytest

from penstock.catalog.catalog import Catalog
from penstock.errors import Code, InvariantError, UserError
from penstock.model.events import DefinitionChanged, DesiredStateChanged, JobCreated
from penstock.model.job import DesiredState, JobDefinition
from penstock.model.secrets import SealedSecret, SecretRecord
from penstock.sources.files.kind import FILES, FileFormat, FilesOptions
from penstock.sources.registry import source_ref
from penstock.storage.options import StoreOptions
from tests.contract.catalog.building import (
    DEFINITION,
    FIRST,
    JOB,
    START,
    TABLE,
    MovableClock,
    SqliteStore,
    create_job,
    created,
)
from tests.error_values import raises

LAKE = SealedSecret(name="lake", value_by_key={"b": "sealed b", "a": "sealed é"}, key_id="k1")
OWNED = SealedSecret(name="own", value_by_key={"a": "sealed"}, key_id="k1", job_id=JOB)
BOTH_KEYS = {"s3.access_key": "sealed a", "s3.secret_key": "sealed b"}


def using(access: str, secret: str) -> JobDefinition:
    """Return a later revision of a job whose keys come from these secrets."""
    store = StoreOptions(access_key=f"secret:{access}", secret_key=f"secret:{secret}")
    options = FilesOptions(uri="s3://lake/in/", format=FileFormat.JSON, store=store)
    return replace(DEFINITION, source=source_ref(FILES, options), revision=2)


def created_with(definition: JobDefinition, job_id: str = JOB) -> JobCreated:
    """Return the first event of a job with this definition."""
    return replace(created(job_id=job_id), definition=definition)


def test_a_secret_is_stored_with_every_field(store: SqliteStore) -> None:
    store.open().create_secret(LAKE)
    store.open().create_secret(replace(LAKE, name="azure"))

    expected = SecretRecord(
        name="lake",
        value_by_key={"b": "sealed b", "a": "sealed é"},
        key_id="k1",
        job_id=None,
        created_at=START,
        changed_at=START,
    )
    assert store.open().secret("lake") == expected
    assert store.open().secrets() == (replace(expected, name="azure"), expected)
    assert expected.keys == ("b", "a")


def test_a_missing_secret_is_not_found(catalog: Catalog) -> None:
    assert catalog.secret("lake") is None
    assert catalog.secrets() == ()


def test_an_existing_secret_name_is_refused(catalog: Catalog) -> None:
    catalog.create_secret(LAKE)

    with raises(UserError, Code.ALREADY_EXISTS_ERR, '"lake"') as refusal:
        catalog.create_secret(replace(LAKE, value_by_key={"a": "other"}))

    assert refusal.value.code is Code.ALREADY_EXISTS_ERR
    assert [record.value_by_key for record in catalog.secrets()] == [LAKE.value_by_key]


def test_a_change_adds_and_replaces_values(store: SqliteStore, clock: MovableClock) -> None:
    store.open().create_secret(LAKE)
    clock.move(minutes=1)

    store.open().change_secret("lake", {"a": "new", "c": "more"}, key_id="k1")

    record = store.open().secret("lake")
    assert record is not None
    assert record.value_by_key == {"b": "sealed b", "a": "new", "c": "more"}
    assert record.created_at == START
    assert record.changed_at == START + timedelta(minutes=1)


def test_values_of_two_keys_are_never_mixed(catalog: Catalog) -> None:
    catalog.create_secret(LAKE)

    with raises(UserError, Code.SETTINGS_ERR, "k1", "k2"):
        catalog.change_secret("lake", {"a": "new"}, key_id="k2")
    catalog.change_secret("lake", {"a": "new", "b": "new"}, key_id="k2")

    record = catalog.secret("lake")
    assert record is not None
    assert (record.value_by_key, record.key_id) == ({"b": "new", "a": "new"}, "k2")


def test_a_change_of_a_missing_secret_is_refused(catalog: Catalog) -> None:
    with raises(UserError, Code.META_NOT_FOUND_ERR, '"lake"') as refusal:
        catalog.change_secret("lake", {"a": "new"}, key_id="k1")

    assert refusal.value.code is Code.META_NOT_FOUND_ERR


def test_a_deleted_secret_is_not_found(catalog: Catalog) -> None:
    catalog.create_secret(LAKE)

    catalog.delete_secret("lake")
    catalog.delete_secret("lake")

    assert catalog.secrets() == ()


def test_a_secret_of_a_job_is_created_and_deleted_with_the_job(catalog: Catalog) -> None:
    catalog.create_table(TABLE)
    catalog.create_secret(LAKE)
    catalog.create_job(JOB, created(), secrets_owned=(OWNED,))
    assert [record.name for record in catalog.secrets()] == ["lake", "own"]

    catalog.delete_job(JOB)

    assert [record.name for record in catalog.secrets()] == ["lake"]


def test_a_job_whose_secret_cannot_be_stored_is_not_created(catalog: Catalog) -> None:
    catalog.create_table(TABLE)

    with pytest.raises(InvariantError):
        catalog.create_job(JOB, created(), secrets_owned=(replace(OWNED, job_id="no job"),))

    assert catalog.jobs() == ()
    assert catalog.secrets() == ()


def test_a_secret_survives_a_job_that_does_not_own_it(catalog: Catalog) -> None:
    create_job(catalog)
    catalog.create_secret(LAKE)

    catalog.delete_job(JOB)

    assert catalog.secret("lake") is not None


def test_a_secret_that_a_job_refers_to_is_not_deleted(catalog: Catalog) -> None:
    catalog.create_table(TABLE)
    catalog.create_secret(LAKE)
    catalog.create_job(JOB, created_with(using("lake", "lake")))

    users = catalog.delete_secret("lake")

    assert [state.name for state in users] == ["load_orders"]
    assert catalog.secret("lake") is not None


def test_a_secret_that_only_a_stopped_load_refers_to_is_deleted(catalog: Catalog) -> None:
    catalog.create_table(TABLE)
    catalog.create_secret(LAKE)
    load = replace(using("lake", "lake"), job_kind="ROUTINE_LOAD")
    catalog.create_job(JOB, created_with(load))
    stopped = DesiredStateChanged(state=DesiredState.CLOSED, reason=None, generation=FIRST)
    catalog.append(JOB, stopped, expected=None)

    assert catalog.delete_secret("lake") == ()

    assert catalog.secret("lake") is None


def test_a_new_job_is_refused_if_its_secret_was_deleted(store: SqliteStore) -> None:
    store.open().create_table(TABLE)
    store.open().create_secret(LAKE)
    store.open().delete_secret("lake")

    with raises(UserError, Code.META_NOT_FOUND_ERR, '"lake"') as refusal:
        store.open().create_job(JOB, created_with(using("lake", "lake")))

    assert refusal.value.code is Code.META_NOT_FOUND_ERR
    assert store.open().jobs() == ()


def test_a_changed_job_is_refused_if_its_secret_does_not_exist(catalog: Catalog) -> None:
    before = create_job(catalog)
    body = DefinitionChanged(definition=using("lake", "lake"))

    with raises(UserError, Code.META_NOT_FOUND_ERR, '"lake"'):
        catalog.append(JOB, body, expected=None)

    assert catalog.job_by_id(JOB) == before


def test_a_job_loses_its_own_secret_when_it_refers_to_another(catalog: Catalog) -> None:
    catalog.create_table(TABLE)
    catalog.create_secret(LAKE)
    owned = replace(OWNED, value_by_key=BOTH_KEYS)
    catalog.create_job(JOB, created_with(using("own", "own")), secrets_owned=(owned,))

    changed = replace(using("lake", "lake"), revision=3)
    catalog.append(JOB, DefinitionChanged(definition=changed), expected=None)

    assert [record.name for record in catalog.secrets()] == ["lake"]


def test_a_job_keeps_only_the_values_of_its_secret_that_it_refers_to(
    catalog: Catalog, clock: MovableClock
) -> None:
    catalog.create_table(TABLE)
    catalog.create_secret(LAKE)
    owned = replace(OWNED, value_by_key=BOTH_KEYS)
    catalog.create_job(JOB, created_with(using("own", "own")), secrets_owned=(owned,))
    clock.move(minutes=1)

    changed = replace(using("lake", "own"), revision=3)
    catalog.append(JOB, DefinitionChanged(definition=changed), expected=None)

    record = catalog.secret("own")
    assert record is not None
    assert record.value_by_key == {"s3.secret_key": "sealed b"}
    assert record.changed_at == START + timedelta(minutes=1)


def test_a_secret_survives_its_job_if_another_job_refers_to_it(
    catalog: Catalog,
) -> None:
    catalog.create_table(TABLE)
    owned = replace(OWNED, value_by_key=BOTH_KEYS)
    catalog.create_job(JOB, created_with(using("own", "own")), secrets_owned=(owned,))
    other = replace(using("own", "own"), name="other")
    catalog.create_job("job-2", created_with(other, "job-2"))

    catalog.delete_job(JOB)

    record = catalog.secret("own")
    assert record is not None
    assert (record.value_by_key, record.job_id) == (BOTH_KEYS, None)
