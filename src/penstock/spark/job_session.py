"""Run the SELECT of one job, epoch after epoch, in a session that is kept between them.

Nothing but paths and the names of functions travels in closures. What a task shall read lies in
a file that is replaced for every epoch, so the frame that reads it stays the same.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import InvariantError
from penstock.model.codec import from_text, to_text
from penstock.model.query import Lookup, QueryRun
from penstock.spark.plan_check import check_plan
from penstock.spark.query_session import QuerySession, name_view
from penstock.spark.worker import freeze_once

Batches = Iterator[pa.RecordBatch]
ReadHalf = Callable[[str, str, Callable[[str], None]], Batches]
WriteHalf = Callable[[str, str, Batches, Callable[[], str]], str]
ReadLookup = Callable[[Lookup], Batches]
_ANSWER = pa.schema([("answer", pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves:
    """The functions that run inside tasks; all of them can be imported by name."""

    read: ReadHalf
    write: WriteHalf
    read_lookup: ReadLookup


class JobSession:
    """The session of one job, with the frames that may be used again."""

    def __init__(self, root: Any, run: QueryRun, *, folder: Path, halves: Halves) -> None:  # noqa: ANN401
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._halves = halves
        self._query = run.query
        self._session = QuerySession(root, run.query)
        self._reader_by_tasks: dict[int, Any] = {}
        self._frame_by_tasks: dict[int, Any] = {}
        self._lookups: tuple[Lookup, ...] = ()

    def serves(self, run: QueryRun) -> bool:
        """Tell whether this session was made for such a SELECT."""
        return run.query == self._query

    def answers(self, run: QueryRun, tasks: Sequence[str]) -> list[str]:
        """Run the SELECT over the tasks' shares and answer what the writers said."""
        _replace(self._folder / "tasks", json.dumps(list(tasks)))
        self._name_lookups(run.lookups)
        rows = self._frame(run, len(tasks)).collect()
        return [str(row[0]) for row in rows]

    def _frame(self, run: QueryRun, tasks: int) -> Any:  # noqa: ANN401 - A DataFrame.
        if tasks in self._frame_by_tasks:
            return self._frame_by_tasks[tasks]
        name_view(self._reader(run, tasks), run.query.view)
        select, _ = self._session.select(run.query.text)
        writer = writer_function(str(self._folder), self._halves.write)
        frame = select.mapInArrow(writer, "answer STRING")
        findings = check_plan(frame, text=run.query.text)
        unread = set(findings.needed) - set(run.needed)
        if unread:
            raise InvariantError(
                f"the SELECT looks at {', '.join(sorted(unread))}, which is not read",
                hint="ALTER the job with the same INSERT, so that it is looked at anew.",
            )
        if run.reusable:
            self._frame_by_tasks[tasks] = frame
        return frame

    def _reader(self, run: QueryRun, tasks: int) -> Any:  # noqa: ANN401
        if tasks not in self._reader_by_tasks:
            read = source_function(str(self._folder), self._halves.read)
            frame = self._session.reader(run.query.columns, read, tasks=tasks)
            self._reader_by_tasks[tasks] = frame
        return self._reader_by_tasks[tasks]

    def _name_lookups(self, lookups: tuple[Lookup, ...]) -> None:
        if lookups == self._lookups:
            return
        for number, lookup in enumerate(lookups):
            path = self._folder / f"lookup-{number}"
            _replace(path, to_text(lookup))
            read = lookup_function(str(path), self._halves.read_lookup)
            frame = self._session.reader(lookup.columns, read, tasks=1)
            name_view(frame.hint("broadcast"), lookup.table.name)
        self._lookups = lookups


def source_function(folder: str, read: ReadHalf) -> Callable[[Batches], Batches]:
    """Answer the function by which the plan knows the source."""

    def read_source(batches: Batches) -> Batches:
        return _read(folder, read, batches)

    return read_source


def lookup_function(path: str, read: ReadLookup) -> Callable[[Batches], Batches]:
    """Answer the function by which the plan knows a joined table."""

    def read_lookup(batches: Batches) -> Batches:
        for _ in batches:
            yield from read(from_text(Lookup, Path(path).read_text("utf-8")))

    return read_lookup


def writer_function(folder: str, write: WriteHalf) -> Callable[[Batches], Batches]:
    """Answer the function that ends the plan."""

    def write_share(batches: Batches) -> Batches:
        return _write(folder, write, batches)

    return write_share


def _read(folder: str, read: ReadHalf, batches: Batches) -> Batches:
    task, try_id = _whoami()
    for _ in batches:
        leave = partial(_replace, _report_path(folder, try_id))
        yield from read(_task_text(folder, task), try_id, leave)
    freeze_once()


def _write(folder: str, write: WriteHalf, batches: Batches) -> Batches:
    task, try_id = _whoami()
    path = _report_path(folder, try_id)
    try:
        answer = write(_task_text(folder, task), try_id, batches, partial(_report, path))
    finally:
        path.unlink(missing_ok=True)
    yield pa.RecordBatch.from_pylist([{"answer": answer}], schema=_ANSWER)
    freeze_once()


def _whoami() -> tuple[int, str]:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("not inside a Spark task")
    return context.partitionId(), str(context.taskAttemptId())


def _task_text(folder: str, task: int) -> str:
    tasks: list[str] = json.loads((Path(folder) / "tasks").read_text("utf-8"))
    return tasks[task]


def _report_path(folder: str, try_id: str) -> Path:
    return Path(folder) / f"report-{try_id}"


def _report(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError as error:
        raise RuntimeError("the reading half left no report") from error


def _replace(path: Path, text: str) -> None:
    """Write a file so that whoever reads it sees the old text or all of the new one."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    beside.write_text(text, "utf-8")
    beside.replace(path)
