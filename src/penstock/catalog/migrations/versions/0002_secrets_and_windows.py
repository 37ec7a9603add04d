"""Keep secrets, times of files, how far the file index is pruned, and counts of requests."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Add two relations and two columns; what is stored stays as it is."""
    _create_secrets()
    _create_file_windows()
    op.add_column("files", sa.Column("modified_at", _INSTANT))
    op.create_index("ix_files_modified_at", "files", ["job_id", "modified_at"])
    op.add_column("statuses", sa.Column("requests", sa.Text))


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
