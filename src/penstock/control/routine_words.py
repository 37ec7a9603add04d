"""A routine load back into the statement that makes it."""

from penstock.model.job import JobState
from penstock.model.options import print_options
from penstock.model.routine import LoadProperties
from penstock.sources.kinesis.start import POSITIONS, write_positions
from penstock.sql.statements import CreateRoutineLoad


def statement_of_load(state: JobState) -> CreateRoutineLoad:
    """Answer the statement that creates the same load, from where this one stands."""
    definition = state.definition
    return CreateRoutineLoad(
        name=definition.name,
        table=definition.table.name,
        load=definition.load or LoadProperties(),
        properties=print_options(definition.properties),
        source=definition.function,
        options=(
            *print_options(definition.source),
            (POSITIONS, write_positions(state.progress)),
        ),
        comment=definition.comment,
    )
