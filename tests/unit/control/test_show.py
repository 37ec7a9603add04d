"""The cells of SHOW ROUTINE LOAD."""

from dataclasses import replace
from datetime import timedelta

import pytest

from penstock.catalog.status import JobReport
from penstock.control.job_view import JobView
from penstock.control.result import Cell
from penstock.control.show import LOAD_COLUMNS, _load_row, job_properties, other_message
from penstock.model.codec import to_text
from penstock.model.epoch import ErrorWindow
from penstock.model.formats import PayloadFormat
from penstock.model.job import DesiredState, JobState, LoadColumn, LoadProperties
from penstock.model.job_kinds import RoutineProperties
from penstock.model.split import End, Horizon, Position, SplitProgress
from penstock.sources.kinesis.kind import KINESIS, KinesisOptions
from penstock.sources.kinesis.shards import ShardMemory, StreamMemory
from penstock.sources.registry import source_ref
from tests.contract.catalog.building import DEFINITION, START
from tests.error_values import assert_names
from tests.unit.supervisor.test_restart import CREATED

DAY = timedelta(days=1)
CLAUSES = LoadProperties(
    separator="|",
    columns=(
        LoadColumn(name="id"),
        LoadColumn(name="total", expression="a + b"),
        LoadColumn(name="a"),
    ),
    preceding_filter="a > 1",
    where="total < 9",
)


def shard(number: int, position: Position = Horizon()) -> SplitProgress:  # noqa: B008 - It is frozen.
    """Return a shard without children."""
    return SplitProgress(
        split=f"shard-{number}", floor=Horizon(), position=position, identity=str(number)
    )


def load(
    *shards: SplitProgress,
    name: str = "r",
    desired: DesiredState = DesiredState.RUN,
    clauses: LoadProperties = LoadProperties(),  # noqa: B008 - It is frozen.
    properties: RoutineProperties = RoutineProperties(),  # noqa: B008 - It is frozen.
) -> JobState:
    """Return a routine load with these shards."""
    definition = replace(
        DEFINITION,
        name=name,
        job_kind="ROUTINE_LOAD",
        source=source_ref(KINESIS, KinesisOptions(region="us-east-1", stream="orders")),
        properties=properties,
        load=clauses,
    )
    record = replace(CREATED.desired, state=desired)
    return replace(CREATED, definition=definition, progress=shards, desired=record)


def view(state: JobState, *known: ShardMemory, tasks_max: int | None = None) -> JobView:
    """Return the view of a load whose stream retains records for a day."""
    memory = to_text(StreamMemory(shards=known, retention=DAY))
    report = JobReport(memory=memory)
    return JobView(job=state, at=START, report=report, tasks_max=tasks_max)


def lagging(hours: float, *, polled: float) -> ShardMemory:
    """Return the memory of a shard by its lag at the last poll, both in hours."""
    return ShardMemory(
        shard="shard-0",
        lag=timedelta(hours=hours),
        at=START - timedelta(hours=polled),
    )


def test_the_clauses_of_a_load_are_shown_verbatim() -> None:
    shown = job_properties(view(load(clauses=CLAUSES)))

    assert {
        "columnToColumnExpr": "id, a, total = a + b",
        "precedingFilter": "a > 1",
        "whereExpr": "total < 9",
        "column_separator": "|",
        "line_delimiter": "\n",
    }.items() <= shown.items()


def test_an_unset_clause_is_a_star_and_an_unset_option_is_its_default() -> None:
    shown = job_properties(view(load()))

    unset = ("partitions", "columnToColumnExpr", "precedingFilter", "whereExpr", "delete")
    assert {shown[key] for key in (*unset, "sequence_col")} == {"*"}
    assert {
        "partial_columns": "false",
        "exec_mem_limit": "2147483648",
        "column_separator": "\t",
        "max_batch_interval": "60",
        "max_batch_size": "1073741824",
        "max_batch_rows": "20000000",
        "max_filter_ratio": "1.0",
        "lookup_max_bytes": "67108864",
    }.items() <= shown.items()


@pytest.mark.parametrize("format_", [PayloadFormat.JSON, PayloadFormat.TEXT])
def test_only_csv_loads_show_separators(format_: PayloadFormat) -> None:
    shown = job_properties(view(load(properties=RoutineProperties(format=format_))))

    assert shown["format"] == format_
    assert not {"column_separator", "line_delimiter"} & shown.keys()


@pytest.mark.parametrize(
    ("wanted", "at_once", "shards", "expected"),
    [
        (256, None, 3, 3),
        (2, None, 3, 2),
        (256, 2, 3, 2),
        (1000, None, 300, 256),
        (1000, 500, 300, 256),
        (5, 5, 0, 0),
    ],
)
def test_the_number_of_tasks_is_limited_by_option_node_shards_and_256(
    wanted: int, at_once: int | None, shards: int, expected: int
) -> None:
    finished = shard(999, End())
    state = load(
        *(shard(number) for number in range(shards)),
        finished,
        properties=RoutineProperties(tasks_max=wanted),
    )

    assert view(state, tasks_max=at_once).tasks == expected


def test_the_query_for_rejects_is_shown_while_the_window_has_errors() -> None:
    state = load(shard(0), name="it's")
    bad = replace(state, window=ErrorWindow(errors=1, rows=2, first="bad"))

    assert cell(state, "ErrorLogUrls") == ""
    assert cell(bad, "ErrorLogUrls") == "SELECT * FROM rejects('job' = 'it''s')"


def cell(state: JobState, column: str) -> Cell:
    """Return one cell of a load's row."""
    names = [one.name for one in LOAD_COLUMNS]
    return _load_row(view(state))[names.index(column)]


@pytest.mark.parametrize(
    ("known", "shown"),
    [
        (lagging(20, polled=1), "lags 20 h 0 min"),
        (lagging(0, polled=23), "may lag 23 h 0 min (last polled 23 h 0 min ago)"),
        (lagging(10, polled=10), "may lag 20 h 0 min (last polled 10 h 0 min ago)"),
    ],
)
@pytest.mark.parametrize("desired", [DesiredState.RUN, DesiredState.PAUSE])
def test_a_shard_that_may_lose_records_is_shown_whether_the_load_runs_or_not(
    known: ShardMemory, shown: str, desired: DesiredState
) -> None:
    message = other_message(view(load(shard(0), desired=desired), known))

    assert_names(str(message), "shard-0", shown, "1 d 0 h")


@pytest.mark.parametrize(
    ("state", "known"),
    [
        (load(shard(0)), lagging(9, polled=10)),
        (load(shard(0)), ShardMemory(shard="shard-0")),
        (load(shard(0, End())), lagging(0, polled=23)),
        (load(shard(0), desired=DesiredState.CLOSED), lagging(0, polled=23)),
        (load(replace(shard(0), placed=3)), lagging(0, polled=23)),
    ],
    ids=["in time", "never polled", "finished", "stopped", "moved by ALTER"],
)
def test_no_message_is_shown_for_other_shards(state: JobState, known: ShardMemory) -> None:
    assert other_message(view(state, known)) == ""
