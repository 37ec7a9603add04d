"""The first revision. Later revisions start from catalogs that this one created."""

revision = "0004"
down_revision = None


def upgrade() -> None:
    """Do nothing: a new catalog is created from ``relations``, at the newest revision."""
