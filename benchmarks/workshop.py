"""What the measurements share: folders, one warm Spark, the product, two processes."""

import multiprocessing
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.product import Product
from benchmarks.rivals import PROCESSES
from penstock.spark.executor import SparkExecutor
from penstock.spark.session import SparkOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """Everything that is started once and stays warm."""

    root: Path
    product: Product
    spark: Any
    pool: Pool
    console: Console

    def fresh_folder(self, name: str) -> Path:
        """Answer a folder that holds nothing."""
        folder = self.root / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder


@contextmanager
def open_workshop(root: Path, console: Console) -> Iterator[Workshop]:
    """Start Spark once, for the product and for Spark's own stream alike."""
    from pyspark.sql import SparkSession

    console.print("starting Spark …", style="dim")
    options = SparkOptions(
        master="local[*,4]", scratch=root / "tmp", log_file=root / "logs" / "spark.log"
    )
    executor = SparkExecutor(options)
    # Asking for the parallelism starts Spark.
    if executor.parallelism != os.cpu_count():
        console.print(f"Spark runs {executor.parallelism} tasks at a time", style="yellow")
    product = Product(root / "home", executor=executor)
    try:
        with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
            yield Workshop(
                root=root,
                product=product,
                spark=SparkSession.builder.getOrCreate(),
                pool=pool,
                console=console,
            )
    finally:
        product.close()
        executor.stop()
