"""Keep what jobs last heard about the shards of their streams."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add a column; what is stored stays as it is."""
    op.add_column("statuses", sa.Column("report", sa.Text))
