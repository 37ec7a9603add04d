"""What a Python worker of Spark does once in its life."""

import gc
import threading

_frozen = threading.Event()


def freeze_once() -> None:
    """Spare a reused worker the full collection that pyspark runs after every task."""
    if not _frozen.is_set():
        _frozen.set()
        gc.collect()
        gc.freeze()
