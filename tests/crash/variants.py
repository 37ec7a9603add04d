"""Variants of the tests: with or without Spark, on this machine or on a bucket."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from penstock.crashpoints import CrashPoint
from tests.crash.harness import Home
from tests.crash.places import BucketPlace, LocalPlace, Place
from tests.crash.processes import IN_PROCESS, SPARK
from tests.servers.buckets import Bucket


class Variant(StrEnum):
    """An executor and a place."""

    FILE = "in-process-file"
    S3 = "in-process-s3"
    SPARK_FILE = "spark-file"
    SPARK_S3 = "spark-s3"


# Spark needs ten seconds and a process without Spark one, so only some tests use Spark.
WITHOUT_SPARK = (Variant.FILE, Variant.S3)
ON_SPARK = (Variant.SPARK_FILE, Variant.SPARK_S3)
ON_BUCKETS = (Variant.S3, Variant.SPARK_S3)


def without_spark(points: Iterable[CrashPoint]) -> list[tuple[Variant, CrashPoint]]:
    """Return each point with each variant without Spark."""
    return [(variant, point) for point in points for variant in WITHOUT_SPARK]


@contextmanager
def opened_home(
    variant: Variant, root: Path, *, bucket: Callable[[], Bucket]
) -> Iterator[Home]:
    """Yield an empty home; the shared bucket is requested only if the variant needs it."""
    command = SPARK if variant in ON_SPARK else IN_PROCESS
    if variant not in ON_BUCKETS:
        with opened(root, LocalPlace(root / "in"), command=command) as home:
            yield home
        return
    place = BucketPlace(bucket(), prefix=f"{uuid.uuid4().hex}/")
    with opened(root, place, command=command) as home:
        home.successor = command
        yield home


@contextmanager
def opened(
    root: Path, place: Place, *, command: tuple[str, ...] = IN_PROCESS
) -> Iterator[Home]:
    """Yield an empty home at a place; kill its processes at the end."""
    home = Home(root, place, command=command)
    try:
        yield home
    finally:
        home.close()
