"""Statements about secrets: stored values, results and errors."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from penstock.catalog.catalog import Catalog, open_catalog
from penstock.control.execute import execute
from penstock.control.result import Result
from penstock.errors import Code, UserError
from penstock.secrets.sealing import VARIABLE
from penstock.secrets.vault import Vault
from penstock.sources.files.kind import FILES, FileFormat, FilesOptions
from penstock.sources.registry import source_ref
from penstock.sql.statements import (
    AlterSecret,
    CreateSecret,
    DropSecret,
    ShowSecrets,
    Statement,
)
from penstock.storage.options import StoreOptions
from tests.contract.catalog.building import DEFINITION, JOB, TABLE, MovableClock, created
from tests.error_values import assert_names, raises
from tests.unit.control.services import services

OPTION = "s3.secret_key"
REFERENCE = "secret:Lake"
WAREHOUSE = "Lake"
OTHER = "other"
LAKE = CreateSecret(name="lake", values=(("s3.access_key", "AKIA"), (OPTION, "wJalr")))
USING = replace(
    DEFINITION,
    source=source_ref(
        FILES,
        FilesOptions(
            uri="s3://lake/in/",
            format=FileFormat.JSON,
            store=StoreOptions(access_key=REFERENCE, secret_key=REFERENCE),
        ),
    ),
)


@dataclass
class Session:
    """A catalog and a vault to run statements about secrets with."""

    catalog: Catalog
    vault: Vault
    clock: MovableClock

    def run(self, statement: Statement, *, warehouse_secret: str = "") -> Result:
        used = services(self.catalog, vault=self.vault, warehouse_secret=warehouse_secret)
        return execute(statement, services=used)

    def create_job(self, name: str, job_id: str) -> None:
        body = created(name, job_id)
        definition = replace(USING, name=name)
        self.catalog.create_job(job_id, replace(body, definition=definition))


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.delenv(VARIABLE, raising=False)
    clock = MovableClock()
    catalog = open_catalog("sqlite://", clock=clock)
    catalog.create_table(TABLE)
    yield Session(catalog, Vault(catalog, key_file=tmp_path / "secret.key"), clock)
    catalog.close()


def test_a_secret_is_listed_without_its_values(session: Session) -> None:
    session.run(LAKE)
    session.clock.move(minutes=1)
    alter = AlterSecret(name="lake", values=(("other", "x"),))
    session.run(alter)

    result = session.run(ShowSecrets())

    assert result.names == ("name", "keys", "used_by", "created_at", "changed_at")
    keys = "s3.access_key, s3.secret_key, other"
    assert result.rows == (("lake", keys, "", "2026-03-01 12:30:15", "2026-03-01 12:31:15"),)


def test_an_altered_secret_reveals_its_new_value(session: Session) -> None:
    session.run(LAKE)

    alter = AlterSecret(name="lake", values=((OPTION, "new"),))
    result = session.run(alter)

    assert result == Result(message="secret lake altered")
    assert session.vault.reveal("secret:lake", option=OPTION) == "new"
    assert session.vault.reveal("secret:lake", option="s3.access_key") == "AKIA"


def test_a_secret_cannot_be_created_twice(session: Session) -> None:
    assert session.run(LAKE) == Result(message="secret lake created")

    with raises(UserError, Code.ALREADY_EXISTS_ERR, '"lake"') as refusal:
        session.run(LAKE)
    again = session.run(replace(LAKE, values=((OPTION, "other"),), if_not_exists=True))

    assert refusal.value.code is Code.ALREADY_EXISTS_ERR
    assert again == Result(message="secret lake already exists")
    assert session.vault.reveal("secret:lake", option=OPTION) == "wJalr"


def test_an_unused_secret_can_be_dropped(session: Session) -> None:
    session.run(LAKE)

    drop = DropSecret(name="lake", if_exists=True)
    first = session.run(drop, warehouse_secret=OTHER)
    second = session.run(drop)

    assert first == Result(message="secret lake dropped")
    assert second == Result(message="secret lake does not exist")


def test_the_hint_for_a_missing_secret_lists_the_existing_secrets(session: Session) -> None:
    session.run(LAKE)

    with raises(UserError, Code.META_NOT_FOUND_ERR, '"sea"') as refusal:
        session.run(DropSecret(name="sea"))

    assert refusal.value.code is Code.META_NOT_FOUND_ERR
    assert_names(refusal.value.hint, "lake")


def test_a_secret_that_jobs_use_cannot_be_dropped(session: Session) -> None:
    session.run(LAKE)
    session.create_job("b", "job-1")
    session.create_job("a", "job-2")

    with raises(UserError, Code.STATE_ERR, '"a"', '"b"') as refusal:
        session.run(DropSecret(name="lake"))

    assert refusal.value.code is Code.STATE_ERR
    assert session.run(ShowSecrets()).rows[0][2] == "a, b"


def test_the_secret_of_the_warehouse_cannot_be_dropped(session: Session) -> None:
    session.run(LAKE)

    with raises(UserError, Code.STATE_ERR, '"lake"', "warehouse") as refusal:
        session.run(DropSecret(name="lake"), warehouse_secret=WAREHOUSE)

    assert refusal.value.code is Code.STATE_ERR
    shown = session.run(ShowSecrets(), warehouse_secret=WAREHOUSE)
    assert shown.rows[0][2] == "warehouse"


def test_a_secret_that_a_job_owns_but_does_not_use_can_be_dropped(session: Session) -> None:
    own = session.vault.sealed_secret("own", {OPTION: "x"}, job_id=JOB)
    session.catalog.create_job(JOB, created(), secrets_owned=(own,))
    assert session.run(ShowSecrets()).rows[0][2] == ""

    result = session.run(DropSecret(name="own"))

    assert result == Result(message="secret own dropped")


def test_references_are_found_among_the_options_of_a_source() -> None:
    assert USING.keys_by_secret == {"lake": frozenset({"s3.access_key", "s3.secret_key"})}
    assert DEFINITION.keys_by_secret == {}
