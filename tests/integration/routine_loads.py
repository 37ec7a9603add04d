"""Routine loads of streams: the statements that make them, and what they have loaded."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock.errors import UserError
from penstock.sources.kinesis.client import CLIENTS
from tests.integration.driving import MovedClock
from tests.mirrored_node import OpenNode
from tests.node import Node
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import REGION, StreamUnderTest, new_stream

CREATE_TABLE = "CREATE TABLE t (id BIGINT NOT NULL, note STRING)"
FIRST = "shardId-000000000000"
LOW, HIGH = 0, 2**128 - 1
BLINK = timedelta(milliseconds=1)


@pytest.fixture
def server(kinesis_of_module: KinesisServer) -> Iterator[KinesisServer]:
    """A Kinesis of this project as new, and no client of it left behind."""
    kinesis_of_module.control.reset()
    yield kinesis_of_module
    close_clients()


@pytest.fixture
def stream(server: KinesisServer, client_of_module: Any) -> StreamUnderTest:  # noqa: ARG001 - It is as new.
    """A stream of one shard."""
    return new_stream(client_of_module)


@pytest.fixture
def loads(open_node: OpenNode) -> Node:
    """A Penstock with a table, that waits for nothing longer than a blink."""
    node = open_node(clock=MovedClock(), read_interval=BLINK)
    node.sql(CREATE_TABLE)
    return node


def close_clients() -> None:
    """Leave no client of the product behind."""
    CLIENTS.close()


def create(
    stream: StreamUnderTest,
    *,
    name: str = "r",
    clauses: str = "",
    properties: Mapping[str, str] | None = None,
    **options: str,
) -> str:
    """Answer a CREATE ROUTINE LOAD of JSON records, from the horizon if nothing else is said.

    In the names of options ``__`` stands for a dot; an empty one is left out.
    """
    given = {"format": "json", **(properties or {})}
    source = {
        "aws.region": REGION,
        "kinesis_stream": stream.name,
        "aws.endpoint": str(stream.client.meta.endpoint_url),
        "aws.access_key": "mine",
        "aws.secret_key": "mine",
        **({} if _says_where(options) else {"property.kinesis_default_pos": "TRIM_HORIZON"}),
        **{key.replace("__", "."): value for key, value in options.items()},
    }
    return (
        f"CREATE ROUTINE LOAD {name} ON t {clauses} PROPERTIES({_pairs(given)}) "
        f"FROM KINESIS({_pairs(source)})"
    )


def _says_where(options: Mapping[str, str]) -> bool:
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
    """Write numbered records of one key; answer their sequence numbers."""
    return [stream.put(row(number, key), key=key, hash_key=hash_key) for number in numbers]


def row(number: int, note: str = "k") -> bytes:
    """Answer a record that fits the table."""
    return json.dumps({"id": number, "note": note}).encode()


def ids(node: Node, table: str = "t") -> list[int]:
    """Answer the numbers in a table, in the order in which they were committed."""
    return [found["id"] for found in loaded(node, table)]


def by_key(node: Node) -> dict[str, list[int]]:
    """Answer the numbers of every key, in the order in which they were committed."""
    found: dict[str, list[int]] = {}
    for one in loaded(node):
        found.setdefault(one["note"], []).append(one["id"])
    return found


def loaded(node: Node, table: str = "t") -> list[dict[str, Any]]:
    """Answer the rows of a table, in the order of its commits and of their files."""
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
    """Answer a load's row of SHOW ROUTINE LOAD, with its JSON read."""
    (found,) = node.sql(f"SHOW {'ALL ' if all_ else ''}ROUTINE LOAD FOR {name}")
    return {
        column: json.loads(str(cell)) if str(cell).startswith("{") else cell
        for column, cell in found.items()
    }


def statistic(node: Node, name: str = "r") -> dict[str, int]:
    """Answer the counters of a load; they add up."""
    told: dict[str, int] = shown(node, name)["Statistic"]
    assert told["totalRows"] == (
        told["loadedRows"] + told["errorRows"] + told["unselectedRows"] + told["skippedRows"]
    )
    return told


def shards(node: Node, name: str = "r") -> dict[str, tuple[str, str]]:
    """Answer state and position of the shards of a load, by the end of their names."""
    return {
        str(one["shard"])[-1]: (str(one["state"]), str(one["position"]))
        for one in node.sql(f"SHOW SHARDS FOR {name}")
    }


def refusal(node: Node, sql: str) -> str:
    """Answer with which code and message a statement is refused."""
    with pytest.raises(UserError) as refused:
        node.sql(sql)
    return f"{refused.value.code}: {refused.value.message}"


def times_in(told: str) -> list[datetime]:
    """Answer the times that a message names."""
    return [
        datetime.fromisoformat(f"{found}+00:00")
        for found in re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?= UTC)", told)
    ]


def altered(node: Node, clauses: str, *, name: str = "r") -> None:
    """Pause a load, alter it, and let it run again."""
    node.sql(f"PAUSE ROUTINE LOAD FOR {name}")
    node.sql(f"ALTER ROUTINE LOAD FOR {name} {clauses}")
    node.sql(f"RESUME ROUTINE LOAD FOR {name}")
