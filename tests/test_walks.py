"""Limits on the length of a walk: functions, files and package changes of two loads.

The maxima only decrease. A walk contains all functions of the product that any thread calls
from CREATE to SHOW JOBS, each function once. A package change is a call from one package into
another.
"""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import FrameType

import penstock
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import REGION, kinesis_client, new_stream

SOURCE = str(Path(penstock.__file__).parent)


@dataclass
class Walk:
    """The functions that were called, and the package changes."""

    functions: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    changes: set[tuple[str, str]] = field(default_factory=set)

    @property
    def lengths(self) -> tuple[int, int, int]:
        """Return the numbers of functions, files and package changes."""
        return len(self.functions), len(self.files), len(self.changes)

    def record(self, frame: FrameType, event: str, _: object) -> None:
        """Record one call."""
        if event != "call" or not frame.f_code.co_filename.startswith(SOURCE):
            return
        code = frame.f_code
        if code.co_name.startswith("<"):
            return
        name = f"{code.co_filename}:{code.co_qualname}"
        self.functions.add(name)
        self.files.add(code.co_filename)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(SOURCE):
            caller = caller.f_back
        if caller is not None and package(caller) != package(frame):
            self.changes.add((f"{caller.f_code.co_filename}:{caller.f_code.co_qualname}", name))


def package(frame: FrameType) -> str:
    """Return the package of a frame: the first folder below the product's."""
    return Path(frame.f_code.co_filename).relative_to(SOURCE).parts[0]


@contextmanager
def walking() -> Iterator[Walk]:
    """Record the calls of all threads that start inside the block."""
    walk = Walk()
    threading.setprofile(walk.record)
    sys.setprofile(walk.record)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


# Functions, files, package changes. The first load imports modules and is not counted.
FILE_MAX = (700, 92, 312)
RECORD_MAX = (760, 97, 350)


def test_the_walk_of_a_file_does_not_grow(tmp_path: Path) -> None:
    load_file(tmp_path / "first")

    with walking() as walk:
        load_file(tmp_path / "second")

    assert [found <= most for found, most in zip(walk.lengths, FILE_MAX, strict=True)] == (
        [True, True, True]
    ), walk.lengths


def load_file(folder: Path) -> None:
    """Load one file from CREATE JOB to SHOW JOBS."""
    write_rows(folder / "in" / "a.json", numbered(1))
    node = Node(folder / "home")
    node.sql(CREATE_TABLE)
    node.sql(create_job(folder / "in"))
    node.run()
    assert node.show("j")["rows_loaded"] == 1


def test_the_walk_of_a_record_does_not_grow(tmp_path: Path, own_kinesis: KinesisServer) -> None:
    load_record(tmp_path / "first", own_kinesis.endpoint)

    with walking() as walk:
        load_record(tmp_path / "second", own_kinesis.endpoint)

    assert [found <= most for found, most in zip(walk.lengths, RECORD_MAX, strict=True)] == (
        [True, True, True]
    ), walk.lengths


def load_record(folder: Path, endpoint: str) -> None:
    """Load one record from CREATE ROUTINE LOAD to SHOW JOBS."""
    with kinesis_client(endpoint) as client:
        stream = new_stream(client, shards=1)
        stream.put(json.dumps(numbered(1)[0]).encode())
        node = Node(folder, read_interval=timedelta(0))
        node.sql(CREATE_TABLE)
        node.sql(
            "CREATE ROUTINE LOAD l ON t PROPERTIES('format' = 'json') FROM KINESIS ("
            f"'aws.region' = '{REGION}', 'aws.endpoint' = '{endpoint}', "
            f"'kinesis_stream' = '{stream.name}', 'aws.access_key' = 'a', "
            "'aws.secret_key' = 'b', 'property.kinesis_default_pos' = 'TRIM_HORIZON')"
        )
        node.run()
    assert node.show("l")["rows_loaded"] == 1
