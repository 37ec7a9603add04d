"""Jobs of every kind, each with a source and the statements of its kind.

To add a kind to the lifecycle suite, add a class here and name it in ``_opened``. The job is
called j and loads the table t. Items have numbers: an item is a file or a record with one row.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.control.result import Cell
from penstock.errors import Code, UserError
from penstock.model.epoch import Attachment, CommitKind
from penstock.model.job import JobState
from penstock.supervisor.supervisor import RunnerReport
from tests.integration.driving import MovedClock
from tests.integration.routine_loads import (
    CREATE_TABLE,
    FIRST,
    READ_INTERVAL,
    close_clients,
    create,
    row,
)
from tests.mirrored_node import OpenNode, open_local, open_mirrored
from tests.node import Node, create_job, numbered, write_rows
from tests.servers.kinesis_clients import StreamUnderTest, kinesis_client, new_stream

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


class StillClock(MovedClock):
    """A clock that moves only when the test moves it."""

    def now(self) -> datetime:
        return NOON + self._moved


class World:
    """A job of one kind, on a node that can be restarted."""

    pause: ClassVar[str]
    resume: ClassVar[str]
    drop: ClassVar[str]
    altering: ClassVar[str]
    show_create: ClassVar[str]
    interval_key: ClassVar[str]
    # The option for the number of items in an epoch.
    batch_key: ClassVar[str]
    # Error codes of statements about a dropped job, and of a second RESUME.
    dropped_code: ClassVar[Code]
    resumed_code: ClassVar[Code | None]
    # The states of a waiting job and of a dropped job.
    waiting: ClassVar[str]
    dropped: ClassVar[str]
    # Whether an epoch with bad rows is committed before the job is paused.
    commits_bad_rows: ClassVar[bool] = True
    # Whether automatic resumes stop after ten attempts.
    resumes_end: ClassVar[bool] = False
    # Whether the catalog stores every item.
    stores_items: ClassVar[bool] = False
    # Statistics that are always zero.
    uncounted: ClassVar[list[str]] = []
    # Properties that prevent bad rows from pausing the job.
    lenient: ClassVar[dict[str, str]] = {}
    # Whether a job created from SHOW CREATE continues from the first job's position.
    shown_with_position: ClassVar[bool] = True
    interval_default: ClassVar[str]

    def __init__(self, open_node: OpenNode, clock: MovedClock | None = None) -> None:
        self.clock = clock or MovedClock()
        self._open = open_node
        self.node = self.open()
        self.node.sql(CREATE_TABLE)

    def open(self, **parts: Any) -> Node:
        """Open the home once more, as another process would."""
        return self._open(clock=self.clock, read_interval=READ_INTERVAL, **parts)

    def restart(self) -> None:
        """Open a new node, so that no state in memory remains."""
        self.node = self.node.restart()

    def sql(self, *statements: str) -> list[dict[str, Cell]]:
        return self.node.sql("; ".join(statements))

    def run(self) -> tuple[RunnerReport, ...]:
        return self.node.run()

    def put(self, *numbers: int) -> None:
        """Add items to the source."""
        raise NotImplementedError

    def put_bad(self, number: int) -> None:
        """Add an item that cannot be loaded."""
        raise NotImplementedError

    def put_mixed(self) -> int:
        """Add two good rows, a bad row, a misfit and two blank rows; return their bytes."""
        raise NotImplementedError

    def lose_source(self) -> None:
        """Delete the source."""
        raise NotImplementedError

    def statement(self, properties: Mapping[str, str], after: int | None, how: str) -> str:
        """Return a CREATE statement; ``after``: skip items up to this number."""
        raise NotImplementedError

    def create(self, **properties: str) -> dict[str, Cell]:
        """Create the job; ``batch`` and ``interval`` are replaced by the option names of its
        kind.
        """
        return self.create_after(None, how="", **properties)

    def create_after(
        self, number: int | None, *, how: str = "", **properties: str
    ) -> dict[str, Cell]:
        """Create the job for the items after a number."""
        self.sql(self.statement(self.named(properties), number, how))
        return self.show()

    def named(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return properties with the option names of this kind."""
        names = {"batch": self.batch_key, "interval": self.interval_key}
        return {names.get(key, key): value for key, value in properties.items()}

    def alter(self, **properties: str) -> str:
        """Return an ALTER of properties."""
        return f"{self.altering} PROPERTIES({_pairs(self.named(properties))})"

    def move(self, number: int, **properties: str) -> str:
        """Return an ALTER that moves the position to the end of an item."""
        raise NotImplementedError

    def limits(self) -> tuple[timedelta, int | None]:
        """Return the interval of the job, and the number of items per epoch."""
        properties = self.job.definition.properties
        limits = properties.limits
        return getattr(properties, self.interval_key), limits.items or limits.records

    def position(self, number: int | None) -> str:
        """Return the position after an item as SHOW JOBS prints it; None: before all items."""
        raise NotImplementedError

    def refusal(self, statement: str) -> Code | None:
        """Return the error code of a statement, or None if it succeeds."""
        try:
            self.sql(statement)
        except UserError as error:
            return error.code
        return None

    def numbers(self) -> list[int]:
        """Return the numbers of all rows in the table."""
        return sorted(found["id"] for found in self.node.rows("t"))

    def show(self) -> dict[str, Cell]:
        """Return the job's row of SHOW JOBS."""
        return self.node.show("j")

    def remembered(self) -> dict[str, Cell]:
        """Return the job's row of SHOW JOBS without the counters of the last hour."""
        return {name: cell for name, cell in self.show().items() if name != "requests_per_hour"}

    def state_shown(self) -> str:
        """Return the state of the job, even if it was dropped."""
        raise NotImplementedError

    def create_text(self) -> str:
        """Return the output of SHOW CREATE."""
        ((*_, text),) = [row.values() for row in self.sql(self.show_create)]
        return str(text)

    @property
    def job(self) -> JobState:
        """The job's state in the catalog."""
        return self.node.job("j")

    def cut_journal(self) -> None:
        self.node.catalog.truncate_events(self.job.id, keep=0)

    def epochs(self, column: str) -> list[Cell]:
        """Return a column of SHOW EPOCHS, without other rows."""
        found = self.sql("SHOW EPOCHS FOR j")
        return [row[column] for row in found if row["kind"] == "epoch"]

    def chain(self) -> list[Attachment]:
        """Return the job's commits in the table's log."""
        assert self.node.tables is not None
        state = self.job
        handle = self.node.tables.open(state.definition.table.location)
        return [commit.attachment for commit in handle.chain_after(state.id, 0)]

    def committed_epochs(self) -> list[Attachment]:
        return [one for one in self.chain() if one.kind is CommitKind.EPOCH]

    def items_stored(self) -> int:
        return self.node.catalog.files_of(self.job.id).count()


class FilesWorld(World):
    """A streaming job over a folder."""

    pause = "PAUSE JOB j"
    resume = "RESUME JOB j"
    drop = "DROP JOB j"
    altering = "ALTER JOB j"
    show_create = "SHOW CREATE JOB j"
    interval_key = "max_interval"
    batch_key = "s3.max_batch_files"
    dropped_code = Code.META_NOT_FOUND_ERR
    resumed_code = Code.STATE_ERR
    waiting, dropped = "PENDING", ""
    commits_bad_rows = False
    resumes_end = True
    stores_items = True
    shown_with_position = False
    uncounted: ClassVar[list[str]] = ["rows_foreign", "rows_late", "records_read"]
    lenient: ClassVar[dict[str, str]] = {"session.enable_insert_strict": "false"}
    interval_default = "10s"

    def __init__(self, open_node: OpenNode, folder: Path) -> None:
        super().__init__(open_node)
        self.folder = folder
        folder.mkdir()

    def path(self, number: int) -> Path:
        return self.folder / f"{number:03}.json"

    def put(self, *numbers: int) -> None:
        for number in numbers:
            write_rows(self.path(number), numbered(number))

    def put_bad(self, number: int) -> None:
        self.path(number).write_text('{"id": "not a number"}\nnull\n')

    def put_mixed(self) -> int:
        good = '{"id": 1, "note": "x"}\n\n{"id": 2, "note": "y"}\n'
        return self.path(1).write_text(good + ' \nnull\n{"note": "misfit"}\n')

    def lose_source(self) -> None:
        shutil.rmtree(self.folder)

    def statement(self, properties: Mapping[str, str], after: int | None, how: str) -> str:
        del how
        start = {} if after is None else {"offset": self._offset(after)}
        given = {**properties, **start}
        schema = "id BIGINT, note STRING"
        return create_job(self.folder, properties=list(given.items()), schema=schema)

    def _offset(self, number: int) -> str:
        return json.dumps({"fileName": str(self.path(number))})

    def move(self, number: int, **properties: str) -> str:
        return self.alter(**properties, offset=self._offset(number))

    def numbers(self) -> list[int]:
        rows = self.node.rows("t")
        assert rows == [row for found in rows for row in numbered(found["id"])]
        return super().numbers()

    def position(self, number: int | None) -> str:
        return "start" if number is None else str(self.path(number))

    def state_shown(self) -> str:
        return next((str(one["state"]) for one in self.sql("SHOW JOBS")), "")


class RoutineWorld(World):
    """A routine load."""

    pause = "PAUSE ROUTINE LOAD FOR j"
    resume = "RESUME ROUTINE LOAD FOR j"
    drop = "STOP ROUTINE LOAD FOR j"
    altering = "ALTER ROUTINE LOAD FOR j"
    show_create = "SHOW CREATE ROUTINE LOAD FOR j"
    interval_key = "max_batch_interval"
    batch_key = "max_batch_rows"
    dropped_code = Code.STATE_ERR
    resumed_code = None
    waiting, dropped = "NEED_SCHEDULE", "STOPPED"
    interval_default = "60s"

    def state_shown(self) -> str:
        return str(self.sql("SHOW ALL ROUTINE LOAD FOR j")[0]["State"])


class KinesisWorld(RoutineWorld):
    """A routine load from a stream of one shard."""

    uncounted: ClassVar[list[str]] = ["rows_foreign", "rows_late", "files_read"]
    lenient: ClassVar[dict[str, str]] = {"max_error_number": "9"}

    def __init__(self, open_node: OpenNode, stream: StreamUnderTest) -> None:
        super().__init__(open_node)
        self.stream = stream
        self.sequence_by_number: dict[int, str] = {}

    def put(self, *numbers: int) -> None:
        for number in numbers:
            self.sequence_by_number[number] = self.stream.put(row(number))

    def put_bad(self, number: int) -> None:
        self.sequence_by_number[number] = self.stream.put(b"nonsense")

    def put_mixed(self) -> int:
        records = [row(1), row(2), b"", b"", b"null", b'{"note": "misfit"}']
        self.sequence_by_number[1] = self.stream.put_all(*records)[-1]
        return sum(map(len, records))

    def lose_source(self) -> None:
        self.stream.delete()

    def statement(self, properties: Mapping[str, str], after: int | None, how: str) -> str:
        start = self._start(after, how)
        return create(self.stream, name="j", properties=properties, **start)

    def _start(self, after: int | None, how: str) -> dict[str, str]:
        if after is None:
            return {}
        number = self.sequence_by_number[after + 1]
        match how:
            case "by shard":
                return {"kinesis_shards": FIRST, "kinesis_shards_pos": number}
            case "by default":
                return {"property.kinesis_default_pos": number}
            case _:
                return {"property.kinesis_positions": json.dumps({FIRST: f"AT {number}"})}

    def move(self, number: int, **properties: str) -> str:
        position = json.dumps({FIRST: f"AFTER {self.sequence_by_number[number]}"})
        words = self.alter(**properties) if properties else self.altering
        return f"{words} FROM KINESIS('property.kinesis_positions' = '{position}')"

    def position(self, number: int | None) -> str:
        found = self.sequence_by_number.get(number or 0)
        return f"{FIRST} AFTER {found}" if found else f"{FIRST} TRIM_HORIZON"


class DatagenWorld(RoutineWorld):
    """A routine load of generated rows; one row is due every second, in order."""

    def __init__(self, open_node: OpenNode) -> None:
        super().__init__(open_node, StillClock())

    def put(self, *numbers: int) -> None:
        for number in numbers:
            assert number == (self.clock.now() - NOON).total_seconds() + 1
            self.clock.move(seconds=1)

    def statement(self, properties: Mapping[str, str], after: int | None, how: str) -> str:
        del how
        start = json.dumps({"start": NOON.isoformat(), "0": after or 0})
        source = {
            "rows_per_second": "1",
            "fields.id.kind": "sequence",
            "fields.id.start": "1",
            "datagen_positions": start,
        }
        clause = f"PROPERTIES({_pairs(properties)})" if properties else ""
        return f"CREATE ROUTINE LOAD j ON t {clause} FROM DATAGEN({_pairs(source)})"

    def position(self, number: int | None) -> str:
        return f"split 0 AT {number or 0}"


def _pairs(given: Mapping[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in given.items())


FILES, S3, DATAGEN = "files", "s3", "datagen"
KINESIS, KINESIS_LOCAL = "kinesis", "kinesis_local"
EVERY = [FILES, S3, KINESIS, DATAGEN]
# Kinds for which the test can move the clock and add bad rows.
STORED = [FILES, S3, KINESIS]
# One name for every source kind.
KINDS = [FILES, KINESIS, DATAGEN]


def of(*names: str) -> pytest.MarkDecorator:
    """Run a test only for these kinds."""
    return pytest.mark.parametrize("world", names, indirect=True)


@pytest.fixture(params=EVERY)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A job of every kind, or of the kinds that the test names."""
    with ExitStack() as stack:
        open_one = open_local(tmp_path)
        if request.param == S3:
            open_one = open_mirrored(tmp_path, request.getfixturevalue("shared_bucket"))

        def open_node(**parts: Any) -> Node:
            node = open_one(**parts)
            stack.callback(node.catalog.close)
            return node

        yield stack.enter_context(_opened(request, open_node, tmp_path))


@contextmanager
def _opened(
    request: pytest.FixtureRequest, open_node: OpenNode, tmp_path: Path
) -> Iterator[World]:
    match request.param:
        case "kinesis":
            request.getfixturevalue("changed_kinesis").control.reset()
            client = request.getfixturevalue("changed_client")
            yield KinesisWorld(open_node, new_stream(client))
            close_clients()
        case "kinesis_local":
            server = request.getfixturevalue("kinesis_local")
            with kinesis_client(server.endpoint) as client:
                yield KinesisWorld(open_node, new_stream(client))
            close_clients()
        case "datagen":
            yield DatagenWorld(open_node)
        case _:
            yield FilesWorld(open_node, tmp_path / "in")
