"""Secrets as rows: encrypted values by name of the option, and the id of the encryption key.

Invariant: all values of a secret were encrypted with the one key whose id is in its row. A
secret that a job refers to exists, unless the job was stopped.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.engine import RowMapping
from sqlalchemy.exc import IntegrityError

from penstock.catalog import relations
from penstock.errors import Code, UserError
from penstock.model.job import JobDefinition, JobState
from penstock.model.secrets import SealedSecret, SecretRecord
from penstock.model.text import quoted_name

_secrets = relations.secrets


def create(connection: Connection, secret: SealedSecret, *, at: datetime) -> None:
    """Store a secret; raise UserError if the name exists."""
    row = {
        "name": secret.name,
        "value_by_key": json.dumps(dict(secret.value_by_key)),
        "key_id": secret.key_id,
        "job_id": secret.job_id,
        "created_at": at,
        "changed_at": at,
    }
    try:
        connection.execute(insert(_secrets), row)
    except IntegrityError as error:
        if secret.job_id is not None:
            # The name of a job's own secret is generated and unique, so the job must be
            # missing.
            raise
        raise UserError(
            f'secret "{secret.name}" already exists',
            code=Code.ALREADY_EXISTS_ERR,
            hint="Change the secret with ALTER SECRET, or choose another name.",
        ) from error


def put(connection: Connection, secret: SealedSecret, *, at: datetime) -> None:
    """Store a job's own secret, or add its values to the existing one."""
    known = by_name(connection, secret.name)
    if known is None or known.job_id != secret.job_id:
        create(connection, secret, at=at)
    else:
        change(connection, secret.name, secret.value_by_key, key_id=secret.key_id, at=at)


def change(
    connection: Connection,
    name: str,
    value_by_key: Mapping[str, str],
    *,
    key_id: str,
    at: datetime,
) -> None:
    """Add values to a secret, or replace those with the same keys; keep the others."""
    record = by_name(connection, name, locked=True)
    if record is None:
        raise UserError(
            f'secret "{name}" does not exist',
            code=Code.META_NOT_FOUND_ERR,
            hint="Create the secret with CREATE SECRET.",
        )
    kept = {key: v for key, v in record.value_by_key.items() if key not in value_by_key}
    if kept and record.key_id != key_id:
        raise UserError(
            f'secret "{name}" was encrypted with the key {record.key_id}, '
            f"but this node has {key_id}",
            code=Code.SETTINGS_ERR,
            hint=f"Restore that key, or set all values at once: {', '.join(record.keys)}.",
        )
    merged = {**record.value_by_key, **value_by_key}
    _update(connection, name, value_by_key=json.dumps(merged), key_id=key_id, changed_at=at)


def users(name: str, states: Iterable[JobState]) -> tuple[JobState, ...]:
    """Return the jobs that refer to a secret; a stopped job no longer needs its secrets."""
    return tuple(s for s in states if not s.stopped and name in s.definition.keys_by_secret)


def require_known(connection: Connection, definition: JobDefinition) -> None:
    """Raise UserError if a definition refers to a secret that does not exist."""
    for name in sorted(definition.keys_by_secret):
        if by_name(connection, name) is None:
            raise UserError(
                f'secret "{name}" does not exist',
                code=Code.META_NOT_FOUND_ERR,
                detail=f"The secret was dropped before the {definition.kind.noun} was stored.",
                hint=f"Use CREATE SECRET {quoted_name(name)} (…), then try again.",
            )


def trim(
    connection: Connection, job_id: str, *, states: Iterable[JobState], at: datetime
) -> None:
    """Delete the values of a job's own secrets that no job refers to."""
    states = tuple(states)
    for record in _owned(connection, job_id):
        used = [s.definition.keys_by_secret[record.name] for s in users(record.name, states)]
        keys = frozenset().union(*used)
        kept = {key: value for key, value in record.value_by_key.items() if key in keys}
        if not kept:
            remove(connection, record.name)
        elif kept != record.value_by_key:
            _update(connection, record.name, value_by_key=json.dumps(kept), changed_at=at)


def clear_owner(connection: Connection, job_id: str, *, states: Iterable[JobState]) -> None:
    """Remove the owner of a job's own secrets if other jobs refer to them."""
    others = [state for state in states if state.id != job_id]
    for record in _owned(connection, job_id):
        if users(record.name, others):
            _update(connection, record.name, job_id=None)


def _update(connection: Connection, name: str, **columns: object) -> None:
    connection.execute(update(_secrets).where(_secrets.c.name == name), columns)


def _owned(connection: Connection, job_id: str) -> tuple[SecretRecord, ...]:
    rows = connection.execute(select(_secrets).where(_secrets.c.job_id == job_id))
    return tuple(_record(row) for row in rows.mappings())


def by_name(connection: Connection, name: str, *, locked: bool = False) -> SecretRecord | None:
    """Return the secret with this name; lock its row if this transaction will change it."""
    named = select(_secrets).where(_secrets.c.name == name)
    rows = connection.execute(named.with_for_update() if locked else named)
    row = rows.mappings().one_or_none()
    return None if row is None else _record(row)


def all_secrets(connection: Connection) -> tuple[SecretRecord, ...]:
    """Return all secrets by name."""
    rows = connection.execute(select(_secrets).order_by(_secrets.c.name))
    return tuple(_record(row) for row in rows.mappings())


def remove(connection: Connection, name: str) -> None:
    """Delete a secret, if it exists."""
    connection.execute(delete(_secrets).where(_secrets.c.name == name))


def _record(row: RowMapping) -> SecretRecord:
    return SecretRecord(**{**row, "value_by_key": json.loads(row["value_by_key"])})
