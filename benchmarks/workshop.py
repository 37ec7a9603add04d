"""What the measurements share: folders, the product on a warm Spark, and its warm rivals.

Spark's own stream has a Spark of its own, in another process: the product starts its JVM for
scheduling, not for computing, and a rival must not suffer from that.
"""

import multiprocessing
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.product import Product
from benchmarks.rivals import PROCESSES, start_plain_spark
from penstock.spark.executor import SparkExecutor
from penstock.spark.session import SparkOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """Everything that is started once and stays warm."""

    root: Path
    product: Product
    executor: SparkExecutor
    context: Any
    streaming: ProcessPoolExecutor
    by_hand: ProcessPoolExecutor
    console: Console

    def fresh_folder(self, name: str) -> Path:
        """Answer a folder that holds nothing."""
        folder = self.root / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder


@contextmanager
def open_workshop(root: Path, console: Console, *, computing: bool) -> Iterator[Workshop]:
    """Start everything that is to be warm, and end it again.

    ``computing`` is what the product finds out by itself: whether SELECTs run in its Spark.
    """
    from pyspark import SparkContext

    console.print("starting Spark, twice …", style="dim")
    scratch = root / "tmp"
    executor = SparkExecutor(
        SparkOptions(
            master="local[*,4]",
            scratch=scratch,
            log_file=root / "spark.log",
            computing=computing,
        )
    )
    # Asking for the parallelism starts Spark.
    console.print(f"{executor.parallelism} tasks run at a time", style="dim")
    product = Product(root / "home", executor=executor)
    spawn = multiprocessing.get_context("spawn")
    plain = (scratch / "plain",)
    try:
        with (
            ProcessPoolExecutor(1, spawn, start_plain_spark, plain) as streaming,
            ProcessPoolExecutor(PROCESSES, spawn) as by_hand,
        ):
            yield Workshop(
                root=root,
                product=product,
                executor=executor,
                context=SparkContext.getOrCreate(),
                streaming=streaming,
                by_hand=by_hand,
                console=console,
            )
    finally:
        product.close()
        executor.stop()
