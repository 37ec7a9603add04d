"""Shared resources of the measurements: folders, the product with its Spark, and baselines.

Spark's own stream runs in another process with its own Spark. The product tunes its JVM for
scheduling, not for computing. This tuning would slow the baseline down.
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

from benchmarks.baselines import PROCESSES, start_plain_spark
from benchmarks.product import Product
from penstock.spark.executor import SparkExecutor
from penstock.spark.session import SparkOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The processes that are started once and reused by all measurements."""

    root: Path
    product: Product
    executor: SparkExecutor
    context: Any
    streaming: ProcessPoolExecutor
    by_hand: ProcessPoolExecutor
    console: Console

    def fresh_folder(self, name: str) -> Path:
        """Return an empty folder."""
        folder = self.root / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder


@contextmanager
def open_environment(root: Path, console: Console, *, computing: bool) -> Iterator[Environment]:
    """Start the processes, yield the environment, and stop the processes.

    ``computing`` states whether SELECTs run in Spark, which the product detects by itself.
    """
    from pyspark import SparkContext

    console.print("starting Spark twice …", style="dim")
    scratch = root / "tmp"
    executor = SparkExecutor(
        SparkOptions(
            master="local[*,4]",
            scratch=scratch,
            log_file=root / "spark.log",
            computing=computing,
        )
    )
    # Reading the parallelism starts Spark.
    console.print(f"{executor.parallelism} tasks run in parallel", style="dim")
    product = Product(root / "home", executor=executor)
    spawn = multiprocessing.get_context("spawn")
    plain = (scratch / "plain",)
    try:
        with (
            ProcessPoolExecutor(1, spawn, start_plain_spark, plain) as streaming,
            ProcessPoolExecutor(PROCESSES, spawn) as by_hand,
        ):
            yield Environment(
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
