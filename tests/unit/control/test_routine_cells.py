"""What SHOW ROUTINE LOAD tells of a load, cell by cell."""

from dataclasses import replace
from datetime import timedelta

import pytest

from penstock.control.routine_show import (
    Heard,
    job_properties,
    other_message,
    rejects_query,
    task_number,
)
from penstock.model.epoch import ErrorWindow
from penstock.model.formats import PayloadFormat
from penstock.model.job import JobState, LoadColumn, LoadProperties, Wish
from penstock.model.job_kinds import RoutineProperties
from penstock.model.split import (
    End,
    Horizon,
    Lineage,
    Position,
    ShardReport,
    SplitProgress,
    StreamReport,
)
from penstock.sources.kinesis.options import KinesisOptions
from tests.contract.catalog.building import BEGINNING, DEFINITION
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
    """Answer a shard that nobody waits for."""
    lineage = Lineage(begins=str(number))
    return SplitProgress(
        split=f"shard-{number}", floor=Horizon(), position=position, lineage=lineage
    )


def load(
    *shards: SplitProgress,
    name: str = "r",
    wish: Wish = Wish.RUN,
    clauses: LoadProperties = LoadProperties(),  # noqa: B008 - It is frozen.
    properties: RoutineProperties = RoutineProperties(),  # noqa: B008 - It is frozen.
) -> JobState:
    """Answer a load with these shards."""
    definition = replace(
        DEFINITION,
        name=name,
        source=KinesisOptions(region="us-east-1", stream="orders"),
        properties=properties,
        load=clauses,
    )
    record = replace(CREATED.wish, wish=wish)
    return replace(CREATED, definition=definition, progress=shards, wish=record)


def heard(*reports: ShardReport, tasks_max: int | None = None) -> Heard:
    """Answer what is known of a load whose stream keeps records for a day."""
    return Heard(
        report=StreamReport(shards=reports, retention=DAY),
        said="",
        counts={},
        running=(),
        tasks_max=tasks_max,
        at=BEGINNING,
    )


def behind(hours: float, *, asked: float, number: int = 0) -> ShardReport:
    """Answer the report of a shard that was so far behind, that many hours ago."""
    return ShardReport(
        shard=f"shard-{number}",
        behind=timedelta(hours=hours),
        at=BEGINNING - timedelta(hours=asked),
    )


def test_the_clauses_of_a_load_are_told_as_they_were_written() -> None:
    told = job_properties(load(clauses=CLAUSES), heard())

    assert {
        "columnToColumnExpr": "id, a, total = a + b",
        "precedingFilter": "a > 1",
        "whereExpr": "total < 9",
        "column_separator": "|",
        "line_delimiter": "\n",
    }.items() <= told.items()


def test_what_was_not_given_is_a_star_or_its_default_as_a_plain_number() -> None:
    told = job_properties(load(), heard())

    unset = ("partitions", "columnToColumnExpr", "precedingFilter", "whereExpr", "delete")
    assert {told[key] for key in (*unset, "sequence_col")} == {"*"}
    assert {
        "partial_columns": "false",
        "exec_mem_limit": "2147483648",
        "column_separator": "\t",
        "max_batch_interval": "60",
        "max_batch_size": "1073741824",
        "max_batch_rows": "20000000",
        "max_filter_ratio": "1.0",
        "lookup_max_bytes": "67108864",
    }.items() <= told.items()


@pytest.mark.parametrize("format_", [PayloadFormat.JSON, PayloadFormat.TEXT])
def test_only_csv_has_separators(format_: PayloadFormat) -> None:
    told = job_properties(load(properties=RoutineProperties(format=format_)), heard())

    assert told["format"] == format_
    assert not {"column_separator", "line_delimiter"} & told.keys()


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
def test_tasks_are_as_many_as_wanted_as_shards_as_cores_and_never_more_than_256(
    wanted: int, at_once: int | None, shards: int, expected: int
) -> None:
    finished = shard(999, End())
    state = load(
        *(shard(number) for number in range(shards)),
        finished,
        properties=RoutineProperties(tasks_max=wanted),
    )

    assert task_number(state, heard(tasks_max=at_once)) == expected


def test_rejects_are_named_while_the_window_has_errors() -> None:
    state = load(name="it's")
    bad = replace(state, window=ErrorWindow(errors=1, rows=2, first="bad"))

    assert rejects_query(state) == ""
    assert rejects_query(bad) == "SELECT * FROM rejects('job' = 'it''s')"


@pytest.mark.parametrize(
    ("report", "told"),
    [
        (behind(20, asked=1), "is 20 h 0 min behind"),
        (behind(0, asked=23), "may be 23 h 0 min behind, for it was last asked 23 h 0 min ago"),
        (
            behind(10, asked=10),
            "may be 20 h 0 min behind, for it was last asked 10 h 0 min ago",
        ),
    ],
)
@pytest.mark.parametrize("wish", [Wish.RUN, Wish.PAUSE])
def test_a_shard_that_may_lose_records_is_told_whether_the_load_runs_or_not(
    report: ShardReport, told: str, wish: Wish
) -> None:
    message = other_message(load(shard(0), wish=wish), heard(report))

    assert message == (
        f"shard shard-0 {told}, and the stream keeps records for 1 d 0 h: what is older is lost"
    )


@pytest.mark.parametrize(
    ("state", "report"),
    [
        (load(shard(0)), behind(9, asked=10)),
        (load(shard(0)), ShardReport(shard="shard-0")),
        (load(shard(0, End())), behind(0, asked=23)),
        (load(shard(0), wish=Wish.CLOSED), behind(0, asked=23)),
    ],
    ids=["in time", "never heard", "finished", "stopped"],
)
def test_of_other_shards_nothing_is_told(state: JobState, report: ShardReport) -> None:
    assert other_message(state, heard(report)) == ""
