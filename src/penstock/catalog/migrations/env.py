"""Run the migrations on the connection, and in the transaction, that the catalog gives."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
