"""Tables get a watermark: the column with the event time, and the delay in milliseconds."""

from alembic import op
from sqlalchemy import BigInteger, Column, Text

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the columns of the watermark. Existing tables have no watermark."""
    op.add_column("tables", Column("watermark_column", Text))
    delay = Column("watermark_delay_ms", BigInteger, nullable=False, server_default="0")
    op.add_column("tables", delay)
