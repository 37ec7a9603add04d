"""SHOW CREATE ROUTINE LOAD prints the same load with its current positions."""

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.clauses import statement_of
from penstock.model.events import Event, apply
from penstock.model.job import JobDefinition, JobState, LoadColumn, LoadProperties
from penstock.model.job_kinds import RoutineProperties
from penstock.model.options import parse_options, plain_options
from penstock.model.split import (
    After,
    At,
    AtTime,
    End,
    Horizon,
    Position,
    SplitProgress,
)
from penstock.sources.kinesis.kind import KINESIS, KinesisOptions
from penstock.sources.kinesis.start import POSITIONS, read_positions
from penstock.sources.registry import source_ref
from penstock.sources.source import ShowRequest
from penstock.sql.formatter import format_statement
from penstock.sql.parser import parse_script
from penstock.sql.statements import CreateJob, RoutineBody
from tests.contract.catalog.building import DEFINITION, JOB, START, created
from tests.property.reflection import CHARACTERS, options_of, values_of

CREATED = apply(None, Event(job_id=JOB, number=1, at=START, body=created()))
SEQUENCES = st.integers(0, 10**56).map(str)
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


@st.composite
def clauses(draw: st.DrawFn) -> LoadProperties:
    plain = draw(st.lists(NAMES, min_size=1, max_size=3, unique_by=str.lower))
    computed = draw(st.lists(NAMES, max_size=2, unique_by=str.lower))
    columns = [LoadColumn(name=name) for name in plain]
    columns += [LoadColumn(name=name, expression=draw(EXPRESSIONS)) for name in computed]
    return LoadProperties(
        separator=draw(st.none() | st.text(CHARACTERS, min_size=1, max_size=3)),
        columns=draw(st.none() | st.just(tuple(columns))),
        preceding_filter=draw(st.none() | EXPRESSIONS),
        where=draw(st.none() | EXPRESSIONS),
    )


@st.composite
def states(draw: st.DrawFn, source: st.SearchStrategy[KinesisOptions]) -> JobState:
    positions = draw(st.lists(POSITION, min_size=1, max_size=4))
    progress = tuple(
        SplitProgress(
            split=f"shardId-{number:012d}",
            floor=Horizon(),
            position=position,
            identity=str(number),
        )
        for number, position in enumerate(positions)
    )
    definition: JobDefinition = replace(
        DEFINITION,
        comment=draw(st.text(CHARACTERS, max_size=5)),
        function="KINESIS",
        job_kind="ROUTINE_LOAD",
        source=source_ref(KINESIS, draw(source)),
        properties=draw(options_of(RoutineProperties)),
        load=draw(clauses()),
        metadata=(),
    )
    return replace(CREATED, definition=definition, progress=progress)


@settings(deadline=None, max_examples=300)
@given(data=st.data(), source=options_of(KinesisOptions))
def test_t17_show_create_routine_load_defines_the_same_load(
    data: st.DataObject, source: KinesisOptions
) -> None:
    state = data.draw(states(st.just(source)))
    shown = KINESIS.show(ShowRequest(state=state, memory="", at=START))
    text = format_statement(statement_of(state, start=shown.start))

    (parsed,) = parse_script(text)

    read = parsed.statement
    assert isinstance(read, CreateJob)
    body = read.body
    assert isinstance(body, RoutineBody)
    assert body.source is not None
    given = dict(body.source.options)
    positions = read_positions(given.pop(POSITIONS), zone="UTC")
    definition = state.definition
    assert (read.name, body.table) == (definition.name, definition.table.name)
    assert (body.load, read.comment) == (definition.load, definition.comment)
    assert parse_options(KinesisOptions, given.items(), what="") == source
    assert parse_options(RoutineProperties, read.properties, what="") == definition.properties
    assert positions == {split.split: split.position for split in state.progress}
    assert json.loads(dict(body.source.options)[POSITIONS]).keys() == positions.keys()


@settings(deadline=None, max_examples=100)
@given(properties=options_of(RoutineProperties))
def test_t26_options_without_units_have_the_same_values(properties: RoutineProperties) -> None:
    read = parse_options(RoutineProperties, plain_options(properties), what="")

    assert read == properties
