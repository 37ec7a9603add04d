"""Create the relations."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = None

_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create tables, jobs and what belongs to a job."""
    _create_tables_and_jobs()
    _create_journal()
    _create_ledger()
    _create_files()
    _create_volatile()
    _create_secrets()
    _create_file_windows()


def _create_tables_and_jobs() -> None:
    op.create_table(
        "tables",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("location", sa.Text, nullable=False),
        sa.Column("managed", sa.Boolean, nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("name"),
        sa.UniqueConstraint("id"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("table_id", sa.Text, nullable=False),
        sa.Column("snapshot", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
        sa.ForeignKeyConstraint(["table_id"], ["tables.id"]),
    )
    op.create_index("ix_jobs_table_id", "jobs", ["table_id"])


def _create_journal() -> None:
    op.create_table(
        "events",
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "number"),
        _of_job(),
    )


def _create_ledger() -> None:
    op.create_table(
        "ledger",
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("attempt_id", sa.Text, nullable=False),
        sa.Column("ordinal", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("number", sa.BigInteger),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("entry", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "attempt_id"),
        sa.UniqueConstraint("job_id", "ordinal"),
        _of_job(),
    )
    op.create_index("ix_ledger_outcome", "ledger", ["job_id", "outcome", "kind"])
    op.create_table(
        "ledger_days",
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("day", sa.String(10), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("attempts", sa.BigInteger, nullable=False),
        sa.Column("statistics", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "day", "kind", "outcome"),
        _of_job(),
    )


def _create_files() -> None:
    bytes_order = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "files",
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("key", bytes_order, nullable=False),
        sa.Column("etag", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("modified_at", _INSTANT),
        sa.PrimaryKeyConstraint("job_id", "key"),
        _of_job(),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_files_modified_at", "files", ["job_id", "modified_at"])


def _create_volatile() -> None:
    op.create_table(
        "leases",
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("node_id", sa.Text, nullable=False),
        sa.Column("expires_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
        _of_job(),
    )
    op.create_table(
        "statuses",
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("requests", sa.Text),
        sa.Column("memory", sa.Text),
        sa.PrimaryKeyConstraint("job_id"),
        _of_job(),
    )


def _create_secrets() -> None:
    op.create_table(
        "secrets",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value_by_key", sa.Text, nullable=False),
        sa.Column("key_id", sa.String(32), nullable=False),
        sa.Column("job_id", sa.Text),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("changed_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("name"),
        _of_job(),
    )
    op.create_index("ix_secrets_job_id", "secrets", ["job_id"])


def _create_file_windows() -> None:
    op.create_table(
        "file_windows",
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("pruned_before", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
        _of_job(),
    )


def _of_job() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE")
