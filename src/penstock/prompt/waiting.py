"""Wait for a statement so that Ctrl-C ends the wait.

The statement runs in a thread of its own and is not interrupted half-way: whatever it does to
catalog and tables, it does to its end.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


def wait_for(work: Callable[[], _T]) -> _T:
    """Do some work and answer what it answers; KeyboardInterrupt leaves it to itself."""
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - It is raised where it is waited for.
            future.set_exception(error)

    threading.Thread(target=run, name="statement", daemon=True).start()
    return future.result()
