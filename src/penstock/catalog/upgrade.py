"""Create the relations of a catalog, or migrate those of an older revision.

Alembic is imported only to migrate, because its import takes longer than a SHOW statement.
"""

from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    insert,
    inspect,
    select,
)

from penstock.catalog import relations
from penstock.catalog.database import Database, Place
from penstock.errors import Code, UserError

REVISIONS = ("0004", "0005")
HEAD = REVISIONS[-1]
# Revisions whose stored jobs this version cannot read.
RETIRED = ("0001", "0002", "0003")

_alembic_version = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def upgrade(database: Database) -> None:
    """Create the relations, or migrate them to this version's revision."""
    with database.read() as connection:
        stored = _stored_revision(connection, database.place)
    if stored == HEAD:
        return
    with database.write() as connection:
        # Another process may have created or migrated the catalog in the meantime.
        stored = _stored_revision(connection, database.place)
        if stored is None:
            _create(connection)
        elif stored != HEAD:
            _migrate(connection)


def _stored_revision(connection: Connection, place: Place) -> str | None:
    names = inspect(connection).get_table_names()
    if _alembic_version.name in names:
        stored = connection.scalar(select(_alembic_version.c.version_num))
    elif names:
        raise UserError(
            f"database {place} is not a Penstock catalog",
            code=Code.CATALOG_ERR,
            detail=f"The database contains other relations, such as {names[0]}.",
            hint="Choose another home.",
        )
    else:
        stored = None
    if stored in RETIRED:
        raise UserError(
            f"catalog {place} has revision {stored}, which this version cannot read",
            code=Code.CATALOG_ERR,
            detail=f"The stored format of jobs changed in revision {REVISIONS[0]}.",
            hint=(
                "Choose another home, and create the tables and jobs again at new locations. "
                "The jobs load their sources again. The tables of this home keep their rows."
            ),
        )
    if stored is not None and stored not in REVISIONS:
        raise UserError(
            f"catalog {place} has revision {stored}, but this version supports at most {HEAD}",
            code=Code.CATALOG_ERR,
            hint="Upgrade Penstock. A newer version has written this catalog.",
        )
    return stored


def _create(connection: Connection) -> None:
    relations.metadata.create_all(connection, checkfirst=False)
    _alembic_version.create(connection)
    connection.execute(insert(_alembic_version).values(version_num=HEAD))


def _migrate(connection: Connection, *, to: str = HEAD) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    folder = Path(__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, to)
