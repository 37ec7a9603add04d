"""Routine loads of streams: their statements, and the rows they have loaded."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock.control.result import Cell
from penstock.errors import UserError
from penstock.sources.kinesis.client import CLIENTS
from tests.integration.driving import MovedClock, pause_reason
from tests.mirrored_node import OpenNode
from tests.node import Node
from tests.servers.kinesis.control_client import KinesisControl
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import REGION, StreamUnderTest, new_stream

CREATE_TABLE = "CREATE TABLE t (id BIGINT NOT NULL, note STRING)"
FIRST = "shardId-000000000000"
LOW, HIGH = 0, 2**128 - 1
READ_INTERVAL = timedelta(milliseconds=1)


@pytest.fixture
def server(changed_kinesis: KinesisServer) -> Iterator[KinesisServer]:
    """The project's own Kinesis server in its initial state, without open clients."""
    changed_kinesis.control.reset()
    yield changed_kinesis
    close_clients()


@pytest.fixture
def stream(server: KinesisServer, changed_client: Any) -> StreamUnderTest:  # noqa: ARG001 - Resets the server.
    """A stream of one shard."""
    return new_stream(changed_client)


@pytest.fixture
def loads(open_node: OpenNode) -> Node:
    """A node with a table; all its waits are short."""
    node = open_node(clock=MovedClock(), read_interval=READ_INTERVAL)
    node.sql(CREATE_TABLE)
    return node


@pytest.fixture
def load(loads: Node, server: KinesisServer, stream: StreamUnderTest) -> "Load":
    """A node with a table, and a stream that can be loaded."""
    return Load(node=loads, stream=stream, server=server)


def close_clients() -> None:
    """Close all Kinesis clients of the product."""
    CLIENTS.close()


def create(
    stream: StreamUnderTest,
    *,
    name: str = "r",
    clauses: str = "",
    properties: Mapping[str, str] | None = None,
    **options: str,
) -> str:
    """Return a CREATE ROUTINE LOAD of JSON records, by default from the trim horizon.

    ``__`` in option names is replaced by a dot; options with an empty value are omitted.
    """
    given = {"format": "json", **(properties or {})}
    source = {
        "aws.region": REGION,
        "kinesis_stream": stream.name,
        "aws.endpoint": str(stream.client.meta.endpoint_url),
        "aws.access_key": "mine",
        "aws.secret_key": "mine",
        **({} if _has_start(options) else {"property.kinesis_default_pos": "TRIM_HORIZON"}),
        **{key.replace("__", "."): value for key, value in options.items()},
    }
    return (
        f"CREATE ROUTINE LOAD {name} ON t {clauses} PROPERTIES({_pairs(given)}) "
        f"FROM KINESIS({_pairs(source)})"
    )


def _has_start(options: Mapping[str, str]) -> bool:
    return any("_pos" in key or "timestamp" in key for key in options)


def _pairs(given: Mapping[str, str]) -> str:
    return ", ".join(
        f"'{key}' = '{value.replace(chr(39), chr(39) * 2)}'"
        for key, value in given.items()
        if value
    )


def put(
    stream: StreamUnderTest, *numbers: int, key: str = "k", hash_key: int | None = None
) -> list[str]:
    """Write numbered records of one key; return their sequence numbers."""
    return [stream.put(row(number, key), key=key, hash_key=hash_key) for number in numbers]


def row(number: int, note: str = "k") -> bytes:
    """Return a record that fits the table."""
    return json.dumps({"id": number, "note": note}).encode()


def ids(node: Node, table: str = "t") -> list[int]:
    """Return the numbers in a table, in commit order."""
    return [found["id"] for found in loaded(node, table)]


def loaded(node: Node, table: str = "t") -> list[dict[str, Any]]:
    """Return the rows of a table, in the order of its commits and of their files."""
    record = node.catalog.table(table)
    assert record is not None
    root = Path(record.location)
    entries = [
        json.loads(line)
        for log in sorted((root / "_delta_log").glob("*.json"))
        for line in log.read_text().splitlines()
    ]
    files = [root / entry["add"]["path"] for entry in entries if "add" in entry]
    return [found for file in files for found in pq.ParquetFile(file).read().to_pylist()]


def shown(node: Node, name: str = "r", *, all_: bool = False) -> dict[str, Any]:
    """Return a load's row of SHOW ROUTINE LOAD, with parsed JSON."""
    (found,) = node.sql(f"SHOW {'ALL ' if all_ else ''}ROUTINE LOAD FOR {name}")
    return {
        column: json.loads(str(cell)) if str(cell).startswith("{") else cell
        for column, cell in found.items()
    }


def values_in(message: str) -> list[str]:
    """Return the code of a message, and the names and numbers in it."""
    code, _, rest = message.partition(": ")
    found = re.finditer(r'"([^"]*)"|(shardId-\d+|(?<![\w.-])\d+(?:\.\d+)?(?![\w-]))', rest)
    return [code, *(one.group(1) or one.group(2) for one in found)]


def times_in(message: str) -> list[datetime]:
    """Return the times that a message names."""
    return [
        datetime.fromisoformat(f"{found}+00:00")
        for found in re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?= UTC)", message)
    ]


@dataclass(frozen=True, kw_only=True)
class Load:
    """The routine load r of a stream, on a node that can be restarted."""

    node: Node
    stream: StreamUnderTest
    server: KinesisServer

    @property
    def control(self) -> KinesisControl:
        """The interface that controls the server's behaviour."""
        return self.server.control

    @property
    def clock(self) -> MovedClock:
        """The clock of the node."""
        assert isinstance(self.node.clock, MovedClock)
        return self.node.clock

    def statement(self, **how: Any) -> str:
        """Return a CREATE ROUTINE LOAD of the stream."""
        return create(self.stream, **how)

    def create(self, *, stream: StreamUnderTest | None = None, **how: Any) -> None:
        """Create the load, by default of the test's stream."""
        self.sql(create(stream or self.stream, **how))

    def put_and_load(self, *numbers: int, **how: Any) -> None:
        """Put records, create the load, and load the records."""
        self.put(*numbers)
        self.create(**how)
        self.run()

    def sql(self, text: str) -> list[dict[str, Cell]]:
        return self.node.sql(text)

    def run(self) -> None:
        """Load all records of the stream."""
        self.node.run()

    def restart(self) -> "Load":
        """Return the same load with no state in memory."""
        return replace(self, node=self.node.restart())

    def put(self, *numbers: int, key: str = "k", hash_key: int | None = None) -> list[str]:
        return put(self.stream, *numbers, key=key, hash_key=hash_key)

    def alter(self, clauses: str) -> None:
        """Pause the load, alter it, and resume it."""
        self.sql("PAUSE ROUTINE LOAD FOR r")
        self.sql(f"ALTER ROUTINE LOAD FOR r {clauses}")
        self.sql("RESUME ROUTINE LOAD FOR r")

    def ids(self) -> list[int]:
        return ids(self.node)

    def by_key(self) -> dict[str, list[int]]:
        """Return the numbers of every key, in commit order."""
        found: dict[str, list[int]] = {}
        for one in self.loaded():
            found.setdefault(one["note"], []).append(one["id"])
        return found

    def loaded(self) -> list[dict[str, Any]]:
        return loaded(self.node)

    def shown(self, *, all_: bool = False) -> dict[str, Any]:
        return shown(self.node, all_=all_)

    def create_text(self) -> str:
        """Return the output of SHOW CREATE."""
        return str(self.sql("SHOW CREATE ROUTINE LOAD FOR r")[0]["CreateStmt"])

    def statistic(self) -> dict[str, int]:
        """Return the counters of the load; check that their sum is correct."""
        statistic: dict[str, int] = self.shown()["Statistic"]
        parts = ("loadedRows", "errorRows", "unselectedRows", "skippedRows")
        assert statistic["totalRows"] == sum(statistic[part] for part in parts)
        return statistic

    def shards(self) -> dict[str, tuple[str, str]]:
        """Return state and position of the shards, by the last digits of their names."""
        return {
            str(one["shard"])[-1]: (str(one["state"]), str(one["position"]))
            for one in self.sql("SHOW SHARDS FOR r")
        }

    def refusal(self, sql: str) -> list[str]:
        """Return the error code of a refused statement, and the values in its message."""
        with pytest.raises(UserError) as refused:
            self.sql(sql)
        return values_in(f"{refused.value.code}: {refused.value.message}")

    def reason(self) -> list[str]:
        """Return the code of the pause reason, and the values in it."""
        assert self.shown()["State"] == "PAUSED"
        return values_in(self.shown()["ReasonOfStateChanged"])

    def pause_reason(self) -> str:
        """Run the load until its immediate resume has failed too; return the pause reason."""
        return pause_reason(self.node, "r")

    def pass_time(self) -> None:
        """Move the clock far enough for every automatic resume."""
        self.clock.move(minutes=10)
