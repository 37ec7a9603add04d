"""The source of table logs: order, plans, boundaries, and commits that cannot be read."""

from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from deltalake import Field
from deltalake.schema import PrimitiveType
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Code, InvariantError, UserError
from penstock.model.codec import to_text
from penstock.model.epoch import EpochPlan
from penstock.model.schema import Column, Primitive
from penstock.model.split import At, Note, ReadCounts, SplitRead, position_text
from penstock.sources.source import Source
from penstock.sources.table_log.kind import FileResult, Rewrites
from penstock.sources.table_log.source import TableLogSource
from penstock.tables.chain import log_entry
from penstock.tables.schema import schema_text
from tests.contract.table_building import attachment, data_file
from tests.error_values import raises
from tests.unit.sources.table_log.building import (
    COLUMNS,
    NO_LIMIT,
    StreamingJob,
    Table,
    positions,
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def caught_up(source: Source) -> bool:
    return all(source.passed(split, head) for split, head in source.heads().items())


def test_a_snapshot_is_read_in_the_order_of_event_time(table: Table, tmp_path: Path) -> None:
    table.append_each(3, 1, 2)
    job = StreamingJob(tmp_path, table.stream())

    plan = job.plan(job.polled())

    assert job.ids(plan) == [1, 2, 3]
    assert positions(plan.progress) == ["LOG 4.0"]


def test_the_log_is_read_in_its_own_order(table: Table, tmp_path: Path) -> None:
    job = StreamingJob(tmp_path, table.stream())
    table.append_each(3, 1, 2)

    plan = job.plan(job.polled())

    assert job.ids(plan) == [3, 1, 2]
    assert [read.id for read in plan.reads] == ["s1:1.0", "s1:2.0", "s1:3.0"]


def test_files_without_statistics_are_first_in_a_snapshot(table: Table, tmp_path: Path) -> None:
    table.append_at(1)
    table.tables.open(table.ref.location).commit(attachment(1), [data_file("z.parquet")])
    job = StreamingJob(tmp_path, table.stream())

    plan = job.plan(job.polled())

    assert plan.reads[0].shown == "z.parquet"
    assert [read.size_bytes > 0 for read in plan.reads] == [True, True]


def test_without_an_event_time_a_snapshot_is_read_by_path(table: Table, tmp_path: Path) -> None:
    table.append_each(3, 1, 2)
    job = StreamingJob(tmp_path, table.stream(event_time=None))

    plan = job.plan(job.polled())

    paths = [read.shown for read in plan.reads]
    assert paths == sorted(paths)


def test_the_log_follows_the_snapshot(table: Table, tmp_path: Path) -> None:
    table.append_each(2, 1)
    job = StreamingJob(tmp_path, table.stream())
    table.append_each(0, 9)

    plan = job.plan(job.polled())

    assert job.ids(plan) == [1, 2, 0, 9]
    assert [str(read.begin) for read in plan.reads][:3] == [
        str(At(value=text)) for text in ("SNAPSHOT 2.0", "SNAPSHOT 2.1", "LOG 3.0")
    ]


def test_a_replay_of_a_snapshot_ignores_later_commits(table: Table, tmp_path: Path) -> None:
    table.append_each(2, 1)
    job = StreamingJob(tmp_path, table.stream())
    before = job.plan(job.polled(), replace(NO_LIMIT, items=2))
    table.append_at(0)
    table.delta.optimize.compact()

    after = job.plan(job.polled(), replace(NO_LIMIT, items=2))

    assert after.reads == before.reads


def test_the_table_with_the_lowest_event_time_is_next(tmp_path: Path) -> None:
    left, right = Table(tmp_path, "left"), Table(tmp_path, "right")
    left.append_each(5, 1, 4)
    right.append_each(2, 6, 3)
    job = StreamingJob(tmp_path, left.stream("s1"), right.stream("s2"))

    plan = job.plan(job.polled())

    assert job.ids(plan) == [1, 2, 3, 4, 5, 6]
    assert positions(plan.progress) == ["LOG 4.0", "LOG 4.0"]


def test_a_plan_stops_inside_a_commit(tmp_path: Path) -> None:
    table = Table(tmp_path, partition_by=("id",))
    job = StreamingJob(tmp_path, table.stream())
    table.append_at(1, 2, 3)
    source = job.polled()

    plan = job.plan(source, replace(NO_LIMIT, items=2))

    assert positions(plan.progress) == ["LOG 1.2"]
    assert source.waiting().items == 1


def test_no_plan_follows_a_plan_that_was_not_committed(table: Table, tmp_path: Path) -> None:
    table.append_each(1, 2)
    job = StreamingJob(tmp_path, table.stream())
    source = job.polled()
    job.plan(source, replace(NO_LIMIT, items=1))

    again = source.plan(job.progress, limits=NO_LIMIT)

    assert again is None


def test_a_compaction_is_invisible(table: Table, tmp_path: Path) -> None:
    table.append_each(1, 2)
    job = StreamingJob(tmp_path, table.stream())
    source = job.open()
    job.load(source)
    table.delta.optimize.compact()
    table.append_at(3)

    job.poll(source)

    assert job.ids(job.plan(source)) == [3]


def test_a_boundary_is_passed_over_commits_without_rows(table: Table, tmp_path: Path) -> None:
    table.append_each(1, 2)
    job = StreamingJob(tmp_path, table.stream())
    source = job.open()
    job.load(source)
    table.delta.optimize.compact()

    job.poll(source)

    assert caught_up(source)
    assert source.heads() == {"s1": At(value="LOG 4.0")}
    assert source.plan(job.progress, limits=NO_LIMIT) is None


def test_a_plan_moves_every_table_over_commits_without_rows(tmp_path: Path) -> None:
    left, right = Table(tmp_path, "left"), Table(tmp_path, "right")
    job = StreamingJob(tmp_path, left.stream("s1"), right.stream("s2"))
    left.append_at(1)
    right.write_entry({"commitInfo": {"timestamp": 0}})

    plan = job.plan(job.polled())

    assert positions(plan.progress) == ["LOG 2.0", "LOG 2.0"]


def test_a_boundary_is_not_passed_inside_a_snapshot(table: Table, tmp_path: Path) -> None:
    table.append_each(1, 2)
    job = StreamingJob(tmp_path, table.stream())
    source = job.polled()

    passed = source.passed("s1", At(value="LOG 1.0"))

    assert not passed
    assert not caught_up(source)


def test_the_remaining_amount_is_reported_for_each_table(table: Table, tmp_path: Path) -> None:
    job = StreamingJob(tmp_path, table.stream())
    table.append_at(1, 2)
    table.append_at(3)

    (status,) = job.polled().statuses()

    assert (status.remaining.items, status.remaining.rows) == (2, 3)
    assert (status.remaining.size_bytes or 0) > 0
    assert status.remaining.lag is not None


def test_a_deletion_is_refused_with_its_version_and_operation(
    table: Table, tmp_path: Path
) -> None:
    table.append_at(1, 2)
    job = StreamingJob(tmp_path, table.stream(), starting="latest")
    table.delta.delete("id = 1")

    with raises(UserError, Code.SOURCE_REWRITTEN_ERR, "events", 2, "DELETE", hint=("skip",)):
        job.polled()


def test_rows_before_a_deletion_are_read_first(table: Table, tmp_path: Path) -> None:
    table.append_at(1, 2)
    job = StreamingJob(tmp_path, table.stream())
    table.delta.delete("id = 1")
    source = job.open()

    job.load(source)

    assert not caught_up(source)
    with raises(UserError, Code.SOURCE_REWRITTEN_ERR, 2):
        job.poll(source)


def test_a_deletion_is_skipped_as_a_whole_on_request(table: Table, tmp_path: Path) -> None:
    table.append_at(1, 2)
    job = StreamingJob(tmp_path, table.stream(), starting="latest", rewrites=Rewrites.SKIP)
    table.delta.delete("id = 1")
    table.append_at(3)

    plan = job.plan(job.polled())

    assert job.ids(plan) == [3]


def test_a_cleaned_log_is_reported_with_the_version(table: Table, tmp_path: Path) -> None:
    job = StreamingJob(tmp_path, table.stream())
    table.append_each(1, 2, 3)
    table.clean_log(1)

    with raises(UserError, Code.CANNOT_RESUME_ERR, "events", 1):
        job.polled()


def test_a_log_that_is_cleaned_between_two_polls_is_noticed(
    table: Table, tmp_path: Path
) -> None:
    job = StreamingJob(tmp_path, table.stream())
    source = job.polled()
    table.append_each(1, 2, 3)
    table.clean_log(2)
    job.clock.move(minutes=2)
    job.poll(source)

    with raises(UserError, Code.CANNOT_RESUME_ERR, "events", 1):
        job.poll(source)


def test_a_cleaned_log_does_not_stop_a_reader_at_its_head(table: Table, tmp_path: Path) -> None:
    table.append_each(1, 2, 3)
    job = StreamingJob(tmp_path, table.stream(), starting="latest")
    source = job.polled()
    table.append_at(4)
    table.clean_log(3)

    job.poll(source)

    assert job.ids(job.plan(source)) == [4]


@pytest.mark.parametrize("cleaned", [0, 2])
def test_a_snapshot_that_is_gone_is_reported_with_the_version(
    cleaned: int, table: Table, tmp_path: Path
) -> None:
    table.append_each(1, 2)
    job = StreamingJob(tmp_path, table.stream())
    table.append_each(3, 4)
    table.clean_log(cleaned)

    with raises(UserError, Code.CANNOT_RESUME_ERR, "events", 2):
        job.polled()


def replaced(table: Table, tmp_path: Path, *, commits: int) -> None:
    rmtree(table.path)
    Table(tmp_path).append_each(*range(commits))


@pytest.mark.parametrize("commits", [0, 5])
def test_another_table_at_the_location_is_refused(
    commits: int, table: Table, tmp_path: Path
) -> None:
    job = StreamingJob(tmp_path, table.stream())
    replaced(table, tmp_path, commits=commits)

    with raises(UserError, Code.TABLE_CHANGED_ERR, "events", table.ref.id):
        job.polled()


@pytest.mark.parametrize("commits", [0, 5])
def test_a_running_source_notices_that_its_table_was_replaced(
    commits: int, table: Table, tmp_path: Path
) -> None:
    job = StreamingJob(tmp_path, table.stream())
    source = job.polled()
    replaced(table, tmp_path, commits=commits)
    job.clock.move(minutes=2)

    with raises(UserError, Code.TABLE_CHANGED_ERR, "events", table.ref.id):
        job.poll(source)


def test_a_table_that_lost_versions_is_refused(table: Table, tmp_path: Path) -> None:
    table.append_each(1, 2)
    job = StreamingJob(tmp_path, table.stream(), starting="latest")
    (table.path / "_delta_log" / f"{2:020d}.json").unlink()

    with raises(UserError, Code.TABLE_CHANGED_ERR, "events", 1, 2):
        job.polled()


def metadata(table: Table, *columns: Column) -> dict[str, Any]:
    schema = schema_text(columns)
    return {"metaData": {"id": table.ref.id, "schemaString": schema, "partitionColumns": []}}


@pytest.mark.parametrize(
    ("columns", "value"),
    [
        (COLUMNS[1:], "id"),
        ((Column(name="id", type=Primitive.STRING), COLUMNS[1]), "STRING"),
    ],
)
def test_a_used_column_that_is_dropped_or_changed_is_refused(
    columns: tuple[Column, ...], value: str, table: Table, tmp_path: Path
) -> None:
    job = StreamingJob(tmp_path, table.stream())
    source = job.polled()
    table.write_entry(metadata(table, *columns))

    with raises(UserError, Code.TABLE_CHANGED_ERR, "events", "id", value):
        job.poll(source)


def test_the_head_after_a_recheck_is_the_newest_version_of_a_long_log(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.sources.table_log.source._ENTRIES_MAX", 2)
    job = StreamingJob(tmp_path, table.stream())
    source = job.polled()
    table.append_each(1, 2, 3, 4, 5)

    source.recheck()
    job.poll(source)

    (head,) = source.heads().values()
    assert position_text(head) == "AT LOG 6.0"


def test_new_columns_are_allowed(table: Table, tmp_path: Path) -> None:
    job = StreamingJob(tmp_path, table.stream())
    source = job.polled()
    table.delta.alter.add_columns([Field("note", PrimitiveType("string"))])
    table.append_at(1)

    job.poll(source)

    assert job.ids(job.plan(source)) == [1]


def test_a_column_can_be_newer_than_the_start(table: Table, tmp_path: Path) -> None:
    table.append_at(1)
    table.delta.alter.add_columns([Field("note", PrimitiveType("string"))])
    note = Column(name="note", type=Primitive.STRING)
    stream = replace(table.stream(), columns=(*COLUMNS, note))

    job = StreamingJob(tmp_path, stream, starting="version 0")

    _, rows = job.read(job.plan(job.polled()).reads, "note", "id")
    assert rows == [{"note": None, "id": 1}]


def note_of(read: SplitRead, *, rows: int) -> Note:
    result = FileResult(rows=rows, low_ms=None, high_ms=None)
    end = read.end or read.begin
    return Note(read=read.id, end=end, counts=ReadCounts(), result=to_text(result))


@pytest.mark.parametrize("rows", [[], [1], [2, 2]])
def test_t52_an_epoch_that_did_not_read_each_file_once_is_refused(
    rows: list[int], table: Table, tmp_path: Path
) -> None:
    table.append_at(1, 2)
    job = StreamingJob(tmp_path, table.stream())
    source = job.polled()
    plan = job.plan(source)

    with pytest.raises(InvariantError):
        source.advance(plan, [note_of(plan.reads[0], rows=count) for count in rows])


def test_t52_the_progress_after_an_epoch_is_the_end_of_its_plan(
    table: Table, tmp_path: Path
) -> None:
    table.append_at(1, 2)
    job = StreamingJob(tmp_path, table.stream())
    source = job.polled()
    plan = job.plan(source)

    notes, _ = job.read(plan.reads)

    assert source.advance(plan, notes) == plan.progress


reads_of_some_tables = st.lists(
    st.tuples(st.sampled_from(["s1", "s2", "s3"]), st.integers(0, 10**9)), min_size=1
).map(
    lambda files: tuple(
        SplitRead(id=str(at), split=split, begin=At(value="LOG 1.0"), size_bytes=size)
        for at, (split, size) in enumerate(files)
    )
)


@pytest.fixture(scope="module")
def any_source(tmp_path_factory: pytest.TempPathFactory) -> TableLogSource:
    folder = tmp_path_factory.mktemp("any")
    source = StreamingJob(folder, Table(folder).stream()).open()
    assert isinstance(source, TableLogSource)
    return source


@given(reads=reads_of_some_tables, tasks=st.integers(1, 8))
def test_each_file_is_in_one_task_and_no_task_is_empty(
    reads: tuple[SplitRead, ...], tasks: int, any_source: TableLogSource
) -> None:
    groups = any_source.distribute(EpochPlan(reads=reads, progress=()), tasks=tasks, needed=())

    assert sorted(read.id for group in groups for read in group) == sorted(r.id for r in reads)
    assert all(groups)
    assert len(groups) <= tasks


@given(reads=reads_of_some_tables, tasks=st.integers(3, 8))
def test_a_task_reads_one_table_if_there_are_enough_tasks(
    reads: tuple[SplitRead, ...], tasks: int, any_source: TableLogSource
) -> None:
    groups = any_source.distribute(EpochPlan(reads=reads, progress=()), tasks=tasks, needed=())

    assert all(len({read.split for read in group}) == 1 for group in groups)
    assert len(groups) == min(tasks, len(reads))


def test_a_poll_reads_the_log_after_the_entries_that_were_read_ahead(
    table: Table, tmp_path: Path
) -> None:
    job = StreamingJob(tmp_path, table.stream())
    table.append_at(1)
    source = job.polled()
    planned = job.plan(source)
    table.append_at(2)
    source.prepare(planned.progress, report=lambda _: None)
    table.append_at(3)

    job.poll(source)

    assert [position_text(head) for head in source.heads().values()] == ["AT LOG 4.0"]


def test_a_table_restored_after_its_log_was_read_ahead_is_refused(
    table: Table, tmp_path: Path
) -> None:
    job = StreamingJob(tmp_path, table.stream())
    table.append_at(1)
    source = job.polled()
    planned = job.plan(source)
    table.append_at(2)
    source.prepare(planned.progress, report=lambda _: None)
    (table.path / log_entry(2)).unlink()
    (table.path / log_entry(1)).touch()

    with raises(UserError, Code.TABLE_CHANGED_ERR, "events", 1, 2):
        job.poll(source)
