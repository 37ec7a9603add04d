"""No secret appears in output, in files, in Spark or in buckets.

Every operation with a secret runs once, with values that occur nowhere else. Then everything
that the processes wrote is searched for these values.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest

from penstock.errors import UserError
from penstock.model.job import JobState
from penstock.settings.settings import KEY_FILE
from penstock.sql.parser import parse_script
from penstock.sql.statements import Statement
from tests.integration.canary import (
    Canaries,
    FileCollector,
    Piece,
    bucket_pieces,
    folder_pieces,
    leaks,
)
from tests.integration.canary_drive import LOADING, drive
from tests.integration.canary_lake import ROWS, open_lake
from tests.integration.canary_sandbox import Sandbox
from tests.servers.moto import MotoServer

# The fixture takes one minute on an idle machine, within the first test.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.xdist_group("canaries"),
    pytest.mark.timeout(600),
]


@dataclass(frozen=True, kw_only=True)
class Driven:
    """The sandbox after all operations, and the collected files."""

    sandbox: Sandbox
    collected: Path
    jobs: dict[str, JobState]

    def leaks(self, pieces: Iterable[Piece]) -> list[str]:
        """Return which secrets appear where; a key file is allowed to contain its key."""
        found = leaks(pieces, self.sandbox.lake.canaries)
        return [leak for leak in found if not _is_key_in_its_file(leak)]


def _is_key_in_its_file(leak: str) -> bool:
    name, _, place = leak.partition(": ")
    return name in ("key in a file", "other key") and KEY_FILE in Path(place).name


@pytest.fixture(scope="module")
def driven(moto: MotoServer) -> Iterator[Driven]:
    """All operations with secrets, run once."""
    with ExitStack() as stack:
        # The path of a Unix socket must be short.
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pst-")))
        lake = stack.enter_context(open_lake(root / "lake", moto=moto, canaries=Canaries()))
        sandbox = Sandbox(root, lake)
        stack.callback(sandbox.close)
        with FileCollector(*sandbox.written, into=root / "collected"):
            jobs = drive(sandbox)
        yield Driven(sandbox=sandbox, collected=root / "collected", jobs=jobs)


def places(pieces: Iterable[Piece]) -> str:
    return "\n".join(piece.place for piece in pieces)


def contents(pieces: Iterable[Piece]) -> bytes:
    return b"\n".join(piece.content for piece in pieces)


def test_every_statement_was_run(driven: Driven) -> None:
    kinds = {kind for script in driven.sandbox.captured.scripts for kind in kinds_in(script)}

    assert kinds == set(get_args(Statement))


def kinds_in(script: str) -> list[type]:
    with suppress(UserError):
        return [type(parsed.statement) for parsed in parse_script(script)]
    return []


def test_the_secrets_were_used(driven: Driven) -> None:
    loaded = {name: driven.jobs[name].cumulative.rows_loaded for name in LOADING}

    assert loaded == dict.fromkeys(LOADING, len(ROWS))


def test_no_secret_is_printed(driven: Driven) -> None:
    outputs = driven.sandbox.captured.outputs

    assert not driven.leaks(outputs)
    assert "run --until-caught-up --verbose" in places(outputs)
    assert "the history" in places(outputs)


def test_no_secret_is_in_a_home(driven: Driven) -> None:
    files = list(folder_pieces(driven.sandbox.home, driven.sandbox.keyed))

    assert not driven.leaks(files)
    assert f"{driven.sandbox.home}/history" in places(files)
    assert f"{driven.sandbox.home}/catalog.db" in places(files)
    assert "-spark.log" in places(files)


def test_no_secret_is_in_a_file_even_a_short_lived_file(driven: Driven) -> None:
    files = list(folder_pieces(*driven.sandbox.written, driven.collected))

    assert not driven.leaks(files)
    # SELECTs over tables write files of the driver; tasks are sent inside their job.
    assert "snapshot" in places(folder_pieces(driven.collected))
    assert ".jsonl" not in places(folder_pieces(driven.collected, driven.sandbox.keyed / "tmp"))


def test_no_secret_is_in_the_event_log_of_spark(driven: Driven) -> None:
    files = list(folder_pieces(driven.sandbox.root / "events"))

    assert not driven.leaks(files)
    assert b"SparkListenerEnvironmentUpdate" in contents(files)
    assert b"ValueError: not this one" in contents(files)


def test_no_secret_is_on_a_page_of_the_spark_ui(driven: Driven) -> None:
    pages = driven.sandbox.captured.spark_pages

    assert not driven.leaks(pages)
    assert not [page.place for page in pages if not page.place.startswith("200 ")]
    assert b"ValueError: not this one" in contents(pages)


def test_no_secret_is_on_a_command_line(driven: Driven) -> None:
    lines = driven.sandbox.captured.command_lines

    assert not driven.leaks(lines)
    assert "command line of java" in places(lines)
    assert b"pyspark.daemon" in contents(lines)
    assert "counters of the JVM" in places(lines)


def test_no_secret_is_in_a_bucket(driven: Driven) -> None:
    lake = driven.sandbox.lake

    objects = [*bucket_pieces(lake.bucket), *bucket_pieces(lake.open_bucket)]

    assert not driven.leaks(objects)
    kinds = ("_delta_log/", "_penstock/", "_rejects/", ".parquet")
    assert [kind for kind in kinds if kind in places(objects)] == list(kinds)
