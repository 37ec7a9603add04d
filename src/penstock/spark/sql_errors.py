"""Convert Spark's errors to Penstock's, with the place in the SELECT, without Java stacks."""

import re
from typing import Any

from penstock.errors import Code, ExternalError, PenstockError, SelectError, UserError
from penstock.model.text import quoted_name

_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: [0-9A-Z]{5}.*", re.DOTALL)
_POSITION = re.compile(r"\(?line (\d+),? pos(?:ition)? (\d+)\)?")
# Users of Penstock cannot follow this advice.
_ADVICE = re.compile(r'\s*If necessary,? set "?spark[\w.]*"? to [^.]*\.?')
_RAISED = re.compile(r"(?!SQLSTATE)[A-Za-z_][\w.]*: ")
_DATA_ERROR = "22"
_SYNTAX_ERROR = "42601"
_OWN_ERROR = re.compile(r"^penstock\.errors\.\w+: (.+)$", re.MULTILINE)
# The first line of a Java error that py4j did not convert, and its causes.
_CALLING = "An error occurred while calling "
_CAUSE = re.compile(r"^(?:Caused by)?: [\w.$]+: (.+)$", re.MULTILINE)


def convert_job_error(error: Exception, *, log_file: object) -> PenstockError:
    """Convert an error of a job's SELECT."""
    state = _called(error, "getSqlState") or ""
    place = _place(error)
    if state.startswith(_DATA_ERROR):
        return UserError(
            message_of(error),
            code=Code.TOO_MANY_FAILURE_ROWS_ERR,
            detail=f"{place and f'In the SELECT, {place}. '}The epoch was not committed.",
            hint="Fix the value, or use functions such as try_cast in the SELECT.",
        )
    if state.startswith(("42", "0A", "21")):
        return UserError(message_of(error), code=Code.TYPE_ERR, detail=place)
    return ExternalError(
        f"Spark could not run the epoch: {message_of(error)}",
        code=Code.SPARK_ERR,
        hint=f"See {log_file}.",
    )


def convert_select_error(error: Exception, text: str, *, log_file: object) -> PenstockError:
    """Convert an error of a SELECT over tables."""
    state = _called(error, "getSqlState") or ""
    if state.startswith((_DATA_ERROR, "42", "0A", "21")):
        code = Code.SYNTAX_ERR if state == _SYNTAX_ERROR else Code.TYPE_ERR
        return with_location(UserError(message_of(error), code=code), error, text)
    own = _OWN_ERROR.findall(str(error))
    return ExternalError(
        own[-1] if own else f"Spark could not run the SELECT: {message_of(error)}",
        code=Code.SPARK_ERR,
        hint=f"See {log_file}.",
    )


def with_location(known: UserError, error: Exception, text: str) -> SelectError:
    """Return the ``known`` error with the place in the SELECT that Spark's error reports."""
    placed = SelectError(known.message, code=known.code, detail=known.detail, hint=known.hint)
    span, place = _span_of(error), _line_and_column(error)
    if span is not None:
        placed.offset = span[0]
    elif place is not None:
        before = text.split("\n")[: place[0] - 1]
        placed.offset = sum(len(line) + 1 for line in before) + place[1] - 1
    return placed


def error_in_query(error: Exception) -> Exception:
    """Return the error of the expression or task that ended a streaming query."""
    found: Exception | None = error
    while found is not None and not _called(found, "getSqlState"):
        found = getattr(found, "_cause", None)
    return found or error


def condition_of(error: Exception) -> str:
    """Return the name that Spark gives to the condition of an error; empty if it has none."""
    return str(_called(error, "getCondition") or "")


def missing_relation(error: Exception) -> str | None:
    """Return the name of the table that Spark did not find, as written."""
    if condition_of(error) != "TABLE_OR_VIEW_NOT_FOUND":
        return None
    name = (_called(error, "getMessageParameters") or {}).get("relationName", "")
    return name.replace("`", "") or None


def _span_of(error: Exception) -> tuple[int, int] | None:
    """Return the start and end of an error in the SELECT; None if they are unknown."""
    try:
        contexts = _called(error, "getQueryContext") or []
        spans = [(int(one.startIndex()), int(one.stopIndex()) + 1) for one in contexts]
    except Exception:  # noqa: BLE001 - Contexts of a program have no offset.
        spans = []
    return spans[0] if spans else None


def unqualified(text: str, error: Exception, name: str) -> str:
    """Replace a qualified table name by its last part, padded to the same length."""
    span = _span_of(error)
    if span is None:
        return text
    start, end = span
    written = text[start:end]
    bare = quoted_name(name)
    if written.lower() in (name, bare) or len(bare) > len(written):
        return text
    return text[:start] + bare.ljust(end - start) + text[end:]


def _line_and_column(error: Exception) -> tuple[int, int] | None:
    """Return line and column of a syntax error, both counted from 1."""
    found = _POSITION.search(str(error))
    return (int(found[1]), int(found[2]) + 1) if found else None


def _place(error: Exception) -> str:
    place = _line_and_column(error)
    return "" if place is None else f"line {place[0]}, column {place[1]}"


def message_of(error: Exception) -> str:
    """Return the sentence of an error that describes the problem."""
    text = _called(error, "getMessage") or str(error)
    if text.startswith(_CALLING) and (causes := _CAUSE.findall(text)):
        text = causes[-1]
    # The last line of a Python traceback is the error that was raised.
    _, _, traceback = text.partition("Traceback (most recent call last):")
    text = next(
        (line for line in reversed(traceback.splitlines()) if _RAISED.match(line)), text
    )
    first = _CONDITION.sub("", text.strip()).split("\n\n")[0]
    first = _ADVICE.sub("", _STATE.sub("", first).split("\n")[0]).strip()
    return first.rstrip(".")[:500] or type(error).__name__


def _called(error: Exception, method: str) -> Any:  # noqa: ANN401 - Of several types.
    """Call a method of the error; return None if the method or the JVM is missing."""
    call = getattr(error, method, None)
    try:
        return call() if call is not None else None
    except Exception:  # noqa: BLE001 - py4j raises errors of several kinds.
        return None
