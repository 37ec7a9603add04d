"""Run the migrations on the catalog's connection, in the current transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
