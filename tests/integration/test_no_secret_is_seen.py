"""No secret is seen anywhere: not in what is said, kept, told to Spark, or left behind.

Everything that can be done with a secret is done once, with values that occur nowhere else.
Then all that the processes wrote and told is searched for these values.
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
    Keeper,
    Piece,
    bucket_pieces,
    folder_pieces,
    leaks,
)
from tests.integration.canary_drive import LOADING, drive
from tests.integration.canary_ground import Ground
from tests.integration.canary_lake import ROWS, open_lake
from tests.servers.moto import MotoServer

# One minute on a machine of its own; all of it is the first test's.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.xdist_group("canaries"),
    pytest.mark.timeout(600),
]


@dataclass(frozen=True, kw_only=True)
class Driven:
    """What was done, and where all that is left of it can be found."""

    ground: Ground
    kept: Path
    jobs: dict[str, JobState]

    def leaks(self, pieces: Iterable[Piece]) -> list[str]:
        """Answer which secrets are seen where; only a key file holds its key."""
        found = leaks(pieces, self.ground.lake.canaries)
        return [leak for leak in found if not _is_key_in_its_file(leak)]


def _is_key_in_its_file(leak: str) -> bool:
    name, _, place = leak.partition(": ")
    return name in ("key in a file", "other key") and KEY_FILE in Path(place).name


@pytest.fixture(scope="module")
def driven(moto: MotoServer) -> Iterator[Driven]:
    """Everything that can be done with a secret, done once."""
    with ExitStack() as stack:
        # The path of a Unix socket must be short.
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pst-")))
        lake = stack.enter_context(open_lake(root / "lake", moto=moto, canaries=Canaries()))
        ground = Ground(root, lake)
        stack.callback(ground.close)
        with Keeper(*ground.written, into=root / "kept"):
            jobs = drive(ground)
        yield Driven(ground=ground, kept=root / "kept", jobs=jobs)


def places(pieces: Iterable[Piece]) -> str:
    return "\n".join(piece.place for piece in pieces)


def contents(pieces: Iterable[Piece]) -> bytes:
    return b"\n".join(piece.content for piece in pieces)


def test_every_statement_was_driven(driven: Driven) -> None:
    kinds = {kind for script in driven.ground.heard.scripts for kind in kinds_in(script)}

    assert kinds == set(get_args(Statement))


def kinds_in(script: str) -> list[type]:
    with suppress(UserError):
        return [type(parsed.statement) for parsed in parse_script(script)]
    return []


def test_the_secrets_were_used(driven: Driven) -> None:
    loaded = {name: driven.jobs[name].cumulative.rows_loaded for name in LOADING}

    assert loaded == dict.fromkeys(LOADING, len(ROWS))


def test_no_secret_is_said(driven: Driven) -> None:
    said = driven.ground.heard.said

    assert not driven.leaks(said)
    assert "run --until-caught-up --verbose" in places(said)
    assert "the history" in places(said)


def test_no_secret_is_in_a_home(driven: Driven) -> None:
    files = list(folder_pieces(driven.ground.home, driven.ground.keyed))

    assert not driven.leaks(files)
    assert f"{driven.ground.home}/history" in places(files)
    assert f"{driven.ground.home}/catalog.db" in places(files)
    assert "-spark.log" in places(files)


def test_no_secret_is_in_a_file_however_short_it_lived(driven: Driven) -> None:
    files = list(folder_pieces(*driven.ground.written, driven.kept))

    assert not driven.leaks(files)
    # What SELECTs over tables read lies in files of the driver; tasks travel with their job.
    assert "snapshot" in places(folder_pieces(driven.kept))
    assert ".jsonl" not in places(folder_pieces(driven.kept, driven.ground.keyed / "tmp"))


def test_no_secret_is_in_sparks_event_log(driven: Driven) -> None:
    files = list(folder_pieces(driven.ground.root / "events"))

    assert not driven.leaks(files)
    assert b"SparkListenerEnvironmentUpdate" in contents(files)
    assert b"ValueError: not this one" in contents(files)


def test_no_secret_is_on_a_page_of_spark(driven: Driven) -> None:
    pages = driven.ground.heard.told_by_spark

    assert not driven.leaks(pages)
    assert not [page.place for page in pages if not page.place.startswith("200 ")]
    assert b"ValueError: not this one" in contents(pages)


def test_no_secret_is_on_a_command_line(driven: Driven) -> None:
    lines = driven.ground.heard.command_lines

    assert not driven.leaks(lines)
    assert "command line of java" in places(lines)
    assert b"pyspark.daemon" in contents(lines)
    assert "counters of the JVM" in places(lines)


def test_no_secret_is_in_a_bucket(driven: Driven) -> None:
    lake = driven.ground.lake

    objects = [*bucket_pieces(lake.bucket), *bucket_pieces(lake.open_bucket)]

    assert not driven.leaks(objects)
    kinds = ("_delta_log/", "_penstock/", "_rejects/", ".parquet")
    assert [kind for kind in kinds if kind in places(objects)] == list(kinds)
