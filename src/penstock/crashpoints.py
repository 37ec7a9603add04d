"""Named points where a test can kill or stop the process.

In production, a crash point costs one lookup. A test process sets ``PENSTOCK_CRASH_AT`` to
``name[:action[:count]]``. The action happens when the point is reached for the count-th time
(default 1). The process is killed (``kill``, the default) or stopped (``stop``). Tests inside
one process install a handler for their own thread instead.
"""

import os
import signal
import threading
from collections.abc import Callable
from enum import StrEnum


class CrashPoint(StrEnum):
    """The crash points, each between two durable effects."""

    EPOCH_STARTED = "epoch-started"
    RUN_FINISHED = "run-finished"
    COMMIT_CHECKED = "commit-checked"
    TABLE_COMMITTED = "table-committed"
    CATALOG_APPLIED = "catalog-applied"
    COPY_WRITTEN = "copy-written"
    REJECTS_COMMITTED = "rejects-committed"
    ATTEMPT_ENDED = "attempt-ended"
    PAUSE_STORED = "pause-stored"
    LEASE_TAKEN = "lease-taken"
    RECOVERY_FENCED = "recovery-fenced"
    RECOVERY_APPLIED = "recovery-applied"
    ATTEMPTS_CANCELLED = "attempts-cancelled"
    CHAIN_EXTENDED = "chain-extended"
    DESIRED_STATE_STORED = "desired-stored"
    STATEMENT_COMMITTED = "statement-committed"
    STATEMENT_APPLIED = "statement-applied"
    OPENING_COMMITTED = "opening-committed"
    CLOSING_COMMITTED = "closing-committed"
    TABLE_CREATED = "table-created"
    TABLE_FORGOTTEN = "table-forgotten"
    TASK_READ = "task-read"
    TASK_WRITTEN = "task-written"
    BATCH_OPENED = "batch-opened"
    PLAN_WRITTEN = "plan-written"
    BATCH_COLLECTED = "batch-collected"
    BATCH_SETTLED = "batch-settled"
    COMMIT_RECORDED = "commit-recorded"
    BATCH_RETURNED = "batch-returned"
    BATCH_REPLAYED = "batch-replayed"
    BACKLOG_STORED = "backlog-stored"


_handlers = threading.local()
_lock = threading.Lock()
_passed: dict[str, int] = {}


def reached(point: CrashPoint) -> None:
    """Report a crash point; a test can kill or stop the process here."""
    handler: Callable[[CrashPoint], None] | None = getattr(_handlers, "handler", None)
    if handler is not None:
        handler(point)
    request = os.environ.get("PENSTOCK_CRASH_AT")
    if request is not None:
        _act(point, request)


def handle_in_this_thread(handler: Callable[[CrashPoint], None] | None) -> None:
    """Call a handler at every crash point that this thread reaches."""
    _handlers.handler = handler


def _act(point: CrashPoint, request: str) -> None:
    name, _, rest = request.partition(":")
    action, _, count = rest.partition(":")
    if name != point:
        return
    with _lock:
        _passed[name] = _passed.get(name, 0) + 1
        due = _passed[name] == int(count or 1)
    if due:
        # Signal this thread, which would keep running if another thread got the signal.
        number = signal.SIGSTOP if action == "stop" else signal.SIGKILL
        signal.pthread_kill(threading.get_ident(), number)
