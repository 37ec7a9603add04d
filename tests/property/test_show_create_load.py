"""SHOW CREATE ROUTINE LOAD, read again, is the same load, from where it stands."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any, get_type_hints

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.clauses import FUNCTION, statement_of_load
from penstock.model.job import JobDefinition, JobState, LoadColumn, LoadProperties
from penstock.model.job_kinds import RoutineProperties
from penstock.model.options import Rule, option_fields, parse_options, plain_options, rule_of
from penstock.model.split import (
    After,
    At,
    AtTime,
    End,
    Horizon,
    Lineage,
    Position,
    SplitProgress,
)
from penstock.sources.kinesis.options import KinesisOptions
from penstock.sources.kinesis.start import POSITIONS, read_positions
from penstock.sql.formatter import format_statement
from penstock.sql.parser import parse_script
from penstock.sql.statements import CreateRoutineLoad
from tests.contract.catalog.building import DEFINITION
from tests.property.reflection import values_of
from tests.unit.supervisor.test_restart import CREATED

SEQUENCES = st.integers(0, 10**56).map(str)
# No statement holds what is no character, nor the one that ends texts elsewhere.
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
POSITION: st.SearchStrategy[Position] = st.one_of(
    st.just(Horizon()),
    st.just(End()),
    st.builds(AtTime, at=values_of(AtTime).map(lambda found: found.at)),
    st.builds(At, value=SEQUENCES),
    st.builds(After, value=SEQUENCES, sub=st.none() | st.integers(0, 10**6)),
)
EXPRESSIONS = st.sampled_from(
    ["id + 1", "upper(note)", "CASE WHEN a THEN 1 ELSE 2 END", "`odd name`", "a IN (1, 2)"]
)


REFERENCES = st.sampled_from(["", "secret:mine", "env:KEY", "file:/run/key"])
YEARS = timedelta(days=3650)


def values(hint: object, rule: Rule) -> st.SearchStrategy[Any]:
    """Answer values of an option, by what is declared of it."""
    if rule.secret:
        return REFERENCES
    if hint is str:
        return st.text(CHARACTERS, max_size=5)
    if hint is int:
        return st.integers(rule.at_least, rule.at_most or 10**12)
    if hint is float:
        return st.floats(rule.at_least, rule.at_most)
    if hint is timedelta:
        return st.timedeltas(rule.at_least, YEARS)
    return values_of(hint)


def options(kind: type) -> st.SearchStrategy[Any]:
    """Answer values of a class of options; each of them is drawn."""
    hints = get_type_hints(kind)
    drawn = {f.name: values(hints[f.name], rule_of(f)) for f in option_fields(kind)}
    return st.builds(kind, **drawn)


@st.composite
def clauses(draw: st.DrawFn) -> LoadProperties:
    plain = draw(st.lists(NAMES, min_size=1, max_size=3, unique_by=str.lower))
    made = draw(st.lists(NAMES, max_size=2, unique_by=str.lower))
    columns = [LoadColumn(name=name) for name in plain]
    columns += [LoadColumn(name=name, expression=draw(EXPRESSIONS)) for name in made]
    return LoadProperties(
        separator=draw(st.none() | st.text(CHARACTERS, min_size=1, max_size=3)),
        columns=draw(st.none() | st.just(tuple(columns))),
        preceding_filter=draw(st.none() | EXPRESSIONS),
        where=draw(st.none() | EXPRESSIONS),
    )


@st.composite
def states(draw: st.DrawFn) -> JobState:
    positions = draw(st.lists(POSITION, min_size=1, max_size=4))
    progress = tuple(
        SplitProgress(
            split=f"shardId-{number:012d}",
            floor=Horizon(),
            position=position,
            lineage=Lineage(begins=str(number)),
        )
        for number, position in enumerate(positions)
    )
    definition: JobDefinition = replace(
        DEFINITION,
        comment=draw(st.text(CHARACTERS, max_size=5)),
        function=FUNCTION,
        source=draw(options(KinesisOptions)),
        properties=draw(options(RoutineProperties)),
        load=draw(clauses()),
    )
    return replace(CREATED, definition=definition, progress=progress)


@settings(deadline=None, max_examples=300)
@given(state=states())
def test_t17_a_load_that_is_shown_and_read_again_is_the_same(state: JobState) -> None:
    text = format_statement(statement_of_load(state))

    (parsed,) = parse_script(text)

    read = parsed.statement
    assert isinstance(read, CreateRoutineLoad)
    given = dict(read.options)
    positions = read_positions(given.pop(POSITIONS), zone="UTC")
    definition = state.definition
    assert (read.name, read.table) == (definition.name, definition.table.name)
    assert (read.load, read.comment) == (definition.load, definition.comment)
    assert parse_options(KinesisOptions, given.items(), what="") == definition.source
    assert parse_options(RoutineProperties, read.properties, what="") == definition.properties
    assert positions == {split.split: split.position for split in state.progress}
    assert json.loads(dict(read.options)[POSITIONS]).keys() == positions.keys()


@settings(deadline=None, max_examples=100)
@given(properties=options(RoutineProperties))
def test_t26_options_without_units_are_read_as_the_same(properties: RoutineProperties) -> None:
    read = parse_options(RoutineProperties, plain_options(properties), what="")

    assert read == properties
