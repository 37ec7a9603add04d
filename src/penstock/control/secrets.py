"""Statements about secrets; no statement returns the values."""

from penstock.catalog.secrets import users
from penstock.control.execute import Services
from penstock.control.find import find_secret, require_unused
from penstock.control.result import Cell, Result, result_columns
from penstock.errors import Code, UserError
from penstock.model.text import format_instant, quoted_name
from penstock.sql.statements import AlterSecret, CreateSecret, DropSecret, ShowSecrets

SECRET_COLUMNS = result_columns(
    "name, keys, used_by, created_at TIMESTAMP, changed_at TIMESTAMP"
)
WAREHOUSE = "warehouse"


def create_secret(statement: CreateSecret, *, services: Services) -> Result:
    """Seal values and store them under a name."""
    catalog, vault = services.catalog, services.vault
    name = statement.name
    if catalog.secret(name) is not None:
        if statement.if_not_exists:
            return Result(message=f"secret {name} already exists")
        raise UserError(
            f'secret "{name}" already exists',
            code=Code.ALREADY_EXISTS_ERR,
            hint=f"Change its values with ALTER SECRET {quoted_name(name)} (…).",
        )
    vault.store(name, dict(statement.values))
    return Result(message=f"secret {name} created")


def alter_secret(statement: AlterSecret, *, services: Services) -> Result:
    """Add values to a secret, or replace values with the same keys."""
    catalog, vault = services.catalog, services.vault
    record = find_secret(statement.name, catalog=catalog)
    vault.change(record.name, dict(statement.values))
    return Result(message=f"secret {record.name} altered")


def drop_secret(statement: DropSecret, *, services: Services) -> Result:
    """Delete a secret that no job and no setting uses."""
    catalog = services.catalog
    if catalog.secret(statement.name) is None and statement.if_exists:
        return Result(message=f"secret {statement.name} does not exist")
    record = find_secret(statement.name, catalog=catalog)
    if record.name == services.warehouse_secret.lower():
        raise UserError(
            f'secret "{record.name}" is used by the warehouse',
            code=Code.STATE_ERR,
            hint="Change the setting warehouse_secret first.",
        )
    require_unused(
        f'secret "{record.name}" is used by',
        catalog.delete_secret(record.name),
        instead="set other options with ALTER",
    )
    return Result(message=f"secret {record.name} dropped")


def show_secrets(statement: ShowSecrets, *, services: Services) -> Result:
    """List the secrets: their names, their keys, and the jobs that use them."""
    del statement
    catalog = services.catalog
    states = catalog.jobs()
    rows: list[tuple[Cell, ...]] = []
    for record in catalog.secrets():
        using = [user.name for user in users(record.name, states)]
        if record.name == services.warehouse_secret.lower():
            using = [*using, WAREHOUSE]
        times = (format_instant(record.created_at), format_instant(record.changed_at))
        rows.append((record.name, ", ".join(record.keys), ", ".join(using), *times))
    return Result(columns=SECRET_COLUMNS, rows=tuple(rows))
