"""What one task does: read its parts, fit every row to the table, write Parquet.

It runs inside a Spark task, or in the test process, from the plan alone. A mistake in the data
or a file that is no longer the one listed is an answer, not a crash: running the task again
would find the same, so the epoch decides. Everything else is raised and the task is retried.
"""

import json
from dataclasses import dataclass

from penstock.crashpoints import CrashPoint, reached
from penstock.engine.output import TaskOutput
from penstock.engine.share import open_share
from penstock.engine.task_plan import TaskPlan
from penstock.errors import Code, ExternalError, PenstockError, UserError
from penstock.model.codec import from_data, from_text, to_text
from penstock.model.epoch import Ack


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a task could not load its part; trying the same task again would not help."""

    kind: str
    code: Code
    message: str
    detail: str
    hint: str
    # How often a bucket was asked in vain.
    requests: int = 0


TaskResult = Ack | Refusal


def refused(error: PenstockError, *, requests: int = 0) -> Refusal:
    """Write an error down as a task's answer."""
    return Refusal(
        kind="user" if isinstance(error, UserError) else "external",
        code=error.code,
        message=error.message,
        detail=error.detail,
        hint=error.hint,
        requests=requests,
    )


def requests_of(result: TaskResult) -> int:
    """Count the requests that a task has sent to the source."""
    if isinstance(result, Refusal):
        return result.requests
    return sum(note.requests for note in result.notes)


def error_of(refusal: Refusal) -> PenstockError:
    """Turn a task's answer back into the error it stands for."""
    kind = UserError if refusal.kind == "user" else ExternalError
    return kind(refusal.message, code=refusal.code, detail=refusal.detail, hint=refusal.hint)


def result_of(text: str) -> TaskResult:
    """Read a task's answer."""
    data = json.loads(text)
    kind: type[Ack] | type[Refusal] = Refusal if data["is"] == "Refusal" else Ack
    return from_data(kind, data)


def run_task_text(text: str, try_id: str) -> str:
    """Do the work of a task given as text, and answer with text."""
    return to_text(run_task(from_text(TaskPlan, text), try_id=try_id))


def run_task(plan: TaskPlan, *, try_id: str) -> TaskResult:
    """Load the task's part into Parquet files that nobody can see yet."""
    output = TaskOutput(plan, try_id=try_id)
    reader = open_share(plan, output.rejects)
    try:
        for arrived in reader.blocks():
            output.write(arrived.batch, place_of=arrived.place_of)
        ack = output.close(tuple(reader.notes))
    except (UserError, ExternalError) as error:
        output.abort()
        return refused(error, requests=reader.requests)
    except BaseException:
        output.abort()
        raise
    reached(CrashPoint.TASK_WRITTEN)
    return ack
