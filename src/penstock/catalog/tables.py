"""Tables as rows: which Delta tables are known, by name.

Invariant: a table that a job loads stays registered.
"""

from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.engine import RowMapping
from sqlalchemy.exc import IntegrityError

from penstock.catalog import relations
from penstock.errors import Code, UserError

_tables = relations.tables


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecord:
    """A Delta table that statements may name; a managed one is deleted with its name."""

    name: str
    id: str
    location: str
    managed: bool
    comment: str
    created_at: datetime


def create(connection: Connection, record: TableRecord) -> None:
    """Register a table; refuse a name that is taken."""
    try:
        connection.execute(insert(_tables), asdict(record))
    except IntegrityError as error:
        raise UserError(
            f'table "{record.name}" already exists',
            code=Code.ALREADY_EXISTS_ERR,
            hint="Choose another name, or drop that table first.",
        ) from error


def by_name(connection: Connection, name: str) -> TableRecord | None:
    """Answer the table with this name."""
    named = connection.execute(select(_tables).where(_tables.c.name == name))
    row = named.mappings().one_or_none()
    return None if row is None else _record(row)


def all_tables(connection: Connection) -> tuple[TableRecord, ...]:
    """Answer all tables by name."""
    rows = connection.execute(select(_tables).order_by(_tables.c.name))
    return tuple(_record(row) for row in rows.mappings())


def remove(connection: Connection, name: str) -> None:
    """Forget a table, unless a job loads it; gone already is fine."""
    by_its_name = select(_tables.c.id).where(_tables.c.name == name).with_for_update()
    table_id = connection.scalar(by_its_name)
    jobs = relations.jobs
    users = select(jobs.c.name).where(jobs.c.table_id == table_id).order_by(jobs.c.name)
    names = connection.scalars(users).all()
    if names:
        quoted = ", ".join(f'"{job}"' for job in names)
        raise UserError(
            f'table "{name}" is loaded by the job{"s" if len(names) > 1 else ""} {quoted}',
            code=Code.STATE_ERR,
            hint=f"End {'these jobs' if len(names) > 1 else 'this job'} first.",
        )
    connection.execute(delete(_tables).where(_tables.c.name == name))


def _record(row: RowMapping) -> TableRecord:
    return TableRecord(**row)
