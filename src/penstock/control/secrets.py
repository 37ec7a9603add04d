"""Statements about secrets; values go in and never come out."""

from datetime import UTC, datetime

from penstock.catalog.catalog import Catalog
from penstock.catalog.secrets import users
from penstock.control.find import find_secret, require_unused
from penstock.control.result import Cell, Result
from penstock.errors import Code, UserError
from penstock.model.schema import quoted_name
from penstock.secrets.vault import Vault
from penstock.sql.statements import AlterSecret, CreateSecret, DropSecret

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
    if record.name == warehouse_secret.lower():
        raise UserError(
            f'secret "{record.name}" is used by the warehouse',
            code=Code.STATE_ERR,
            hint="Change the setting warehouse_secret first.",
        )
    require_unused(
        f'secret "{record.name}" is used by',
        catalog.delete_secret(record.name),
        instead="give other options with ALTER",
    )
    return Result(message=f"secret {record.name} dropped")


def show_secrets(*, catalog: Catalog, warehouse_secret: str = "") -> Result:
    """List the secrets: what they are called, what for and who uses them."""
    states = catalog.jobs()
    rows: list[tuple[Cell, ...]] = []
    for record in catalog.secrets():
        using = [user.name for user in users(record.name, states)]
        if record.name == warehouse_secret.lower():
            using = [*using, WAREHOUSE]
        times = (_instant(record.created_at), _instant(record.changed_at))
        rows.append((record.name, ", ".join(record.keys), ", ".join(using), *times))
    return Result(columns=SECRET_COLUMNS, rows=tuple(rows))


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
