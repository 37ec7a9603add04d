"""Statements about secrets; values go in and never come out."""

from collections.abc import Sequence
from datetime import UTC, datetime

from penstock.catalog.catalog import Catalog
from penstock.catalog.secrets import SecretRecord
from penstock.control.lookup import find_secret, require_unused
from penstock.control.result import Cell, Result
from penstock.errors import Code, UserError
from penstock.model.job import JobDefinition, JobState
from penstock.model.options import print_options
from penstock.model.schema import quoted_name
from penstock.model.secrets import SecretReference, reference_of
from penstock.sql.statements import AlterSecret, CreateSecret, DropSecret
from penstock.vault import Vault

SECRET_COLUMNS = ("name", "keys", "used_by", "created_at", "changed_at")
WAREHOUSE = "warehouse"


def create_secret(statement: CreateSecret, *, catalog: Catalog, vault: Vault) -> Result:
    """Seal values and store them under a name."""
    name = statement.name
    if catalog.secret(name) is not None:
        if statement.if_not_exists:
            return Result(message=f"secret {name} exists already")
        raise UserError(
            f'secret "{name}" exists already',
            code=Code.ALREADY_EXISTS_ERR,
            hint=f"Change its values with ALTER SECRET {quoted_name(name)} (…).",
        )
    vault.store(name, dict(statement.values))
    return Result(message=f"secret {name} created")


def alter_secret(statement: AlterSecret, *, catalog: Catalog, vault: Vault) -> Result:
    """Add values to a secret, or replace those with the same keys."""
    record = find_secret(statement.name, catalog=catalog)
    vault.change(record.name, dict(statement.values))
    return Result(message=f"secret {record.name} altered")


def drop_secret(
    statement: DropSecret, *, catalog: Catalog, warehouse_secret: str = ""
) -> Result:
    """Forget a secret that nothing uses."""
    if catalog.secret(statement.name) is None and statement.if_exists:
        return Result(message=f"secret {statement.name} does not exist")
    record = find_secret(statement.name, catalog=catalog)
    require_unused(
        f'secret "{record.name}" is used by',
        _users_by_secret((record,), catalog=catalog)[record.name],
        instead="give other options with ALTER",
    )
    if record.name == warehouse_secret.lower():
        raise UserError(
            f'secret "{record.name}" is used by the warehouse',
            code=Code.STATE_ERR,
            hint="Change the setting warehouse_secret first.",
        )
    catalog.delete_secret(record.name)
    return Result(message=f"secret {record.name} dropped")


def show_secrets(*, catalog: Catalog, warehouse_secret: str = "") -> Result:
    """List the secrets: what they are called, what for and who uses them."""
    records = catalog.secrets()
    users_by_secret = _users_by_secret(records, catalog=catalog)
    rows: list[tuple[Cell, ...]] = []
    for record in records:
        users = [user.name for user in users_by_secret[record.name]]
        if record.name == warehouse_secret.lower():
            users = [*users, WAREHOUSE]
        times = (_instant(record.created_at), _instant(record.changed_at))
        rows.append((record.name, ", ".join(record.keys), ", ".join(users), *times))
    return Result(columns=SECRET_COLUMNS, rows=tuple(rows))


def references_of(definition: JobDefinition) -> frozenset[str]:
    """Answer the names of the secrets that a job's options refer to."""
    references = (reference_of(text) for _, text in print_options(definition.source))
    return frozenset(r.name for r in references if isinstance(r, SecretReference))


def _users_by_secret(
    records: Sequence[SecretRecord], *, catalog: Catalog
) -> dict[str, list[JobState]]:
    """Answer the jobs that refer to each secret, or own it; a stopped load needs it no more."""
    users_by_secret: dict[str, list[JobState]] = {record.name: [] for record in records}
    owner_by_secret = {record.name: record.job_id for record in records}
    for state in catalog.jobs():
        named = frozenset() if state.stopped else references_of(state.definition)
        for name, users in users_by_secret.items():
            if name in named or owner_by_secret[name] == state.id:
                users.append(state)
    return users_by_secret


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
