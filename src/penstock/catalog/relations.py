"""The relations of the catalog.

A new catalog is created from these relations. A change requires a migration of stored catalogs.
"""

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    ForeignKey,
    Index,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.engine import Dialect


class Instant(TypeDecorator[datetime]):
    """An aware instant in UTC; SQLite stores no time zone, so reading adds it."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - The signature is SQLAlchemy's.
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - The signature is SQLAlchemy's.
        return None if value is None else value.replace(tzinfo=UTC)


# Keys are compared by their UTF-8 bytes, as in listings. SQLite does so by default.
_BYTES_ORDER = Text().with_variant(Text(collation="C"), "postgresql")

metadata = MetaData()

tables = Table(
    "tables",
    metadata,
    Column("name", Text, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("location", Text, nullable=False),
    Column("managed", Boolean, nullable=False),
    Column("comment", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("watermark_column", Text),
    Column("watermark_delay_ms", BigInteger, nullable=False, server_default="0"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("table_id", Text, ForeignKey("tables.id"), nullable=False, index=True),
    Column("snapshot", Text, nullable=False),
)


def _of_job() -> Column[str]:
    return Column("job_id", Text, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)


events = Table(
    "events",
    metadata,
    _of_job(),
    Column("number", BigInteger, primary_key=True),
    Column("event", Text, nullable=False),
)

ledger = Table(
    "ledger",
    metadata,
    _of_job(),
    Column("attempt_id", Text, primary_key=True),
    Column("ordinal", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("number", BigInteger),
    Column("epoch", BigInteger, nullable=False),
    Column("entry", Text, nullable=False),
    UniqueConstraint("job_id", "ordinal"),
    Index("ix_ledger_outcome", "job_id", "outcome", "kind"),
)

ledger_days = Table(
    "ledger_days",
    metadata,
    _of_job(),
    Column("day", String(10), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("outcome", String(16), primary_key=True),
    Column("attempts", BigInteger, nullable=False),
    Column("statistics", Text, nullable=False),
)

files = Table(
    "files",
    metadata,
    _of_job(),
    Column("key", _BYTES_ORDER, primary_key=True),
    Column("etag", Text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("modified_at", Instant),
    Index("ix_files_modified_at", "job_id", "modified_at"),
    sqlite_with_rowid=False,
)

file_windows = Table(
    "file_windows",
    metadata,
    _of_job(),
    Column("pruned_before", Instant, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    _of_job(),
    Column("node_id", Text, nullable=False),
    Column("expires_at", Instant, nullable=False),
)

statuses = Table(
    "statuses",
    metadata,
    _of_job(),
    Column("text", Text, nullable=False),
    Column("requests", Text),
    # State of the job's source, in the format of its kind.
    Column("memory", Text),
)

secrets = Table(
    "secrets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value_by_key", Text, nullable=False),
    Column("key_id", String(32), nullable=False),
    Column("job_id", Text, ForeignKey("jobs.id", ondelete="CASCADE"), index=True),
    Column("created_at", Instant, nullable=False),
    Column("changed_at", Instant, nullable=False),
)
