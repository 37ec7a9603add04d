"""On what the tests of this folder run: with or without Spark, on this machine or a bucket."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from tests.crash.harness import IN_PROCESS, SPARK, Home
from tests.crash.places import BucketPlace, LocalPlace, Place
from tests.servers.buckets import S3Server, create_bucket


class Variant(StrEnum):
    """An executor and a place."""

    FILE = "in-process-file"
    S3 = "in-process-s3"
    SPARK_FILE = "spark-file"
    SPARK_S3 = "spark-s3"


# Spark takes ten seconds where a process without it takes one, so it gets a sample.
WITHOUT_SPARK = (Variant.FILE, Variant.S3)
ON_SPARK = (Variant.SPARK_FILE, Variant.SPARK_S3)
ON_BUCKETS = (Variant.S3, Variant.SPARK_S3)


def open_home(variant: Variant, root: Path, *, server: Callable[[], S3Server]) -> Home:
    """Open an empty home; the server is asked for only where a bucket is needed."""
    place: Place = LocalPlace(root / "in")
    if variant in ON_BUCKETS:
        place = BucketPlace(create_bucket(server()))
    return Home(root, place, command=SPARK if variant in ON_SPARK else IN_PROCESS)
