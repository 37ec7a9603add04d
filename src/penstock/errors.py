"""All error classes, with public codes.

The class of an error decides who must act. The code is public and stable; clients match on it.
Errors can be pickled, because Spark moves them between processes.
"""

from enum import StrEnum
from typing import Any, ClassVar, Self


class Code(StrEnum):
    """Public error codes; a code that Doris has, too, has the name from Doris."""

    SYNTAX_ERR = "SYNTAX_ERR"
    NOT_SUPPORTED_ERR = "NOT_SUPPORTED_ERR"
    OPTION_ERR = "OPTION_ERR"
    TYPE_ERR = "TYPE_ERR"
    STATE_ERR = "STATE_ERR"
    ALREADY_EXISTS_ERR = "ALREADY_EXISTS_ERR"
    META_NOT_FOUND_ERR = "META_NOT_FOUND_ERR"
    SETTINGS_ERR = "SETTINGS_ERR"
    INTERNAL_ERR = "INTERNAL_ERR"
    TABLE_ERR = "TABLE_ERR"
    MANUAL_PAUSE_ERR = "MANUAL_PAUSE_ERR"
    TOO_MANY_FAILURE_ROWS_ERR = "TOO_MANY_FAILURE_ROWS_ERR"
    CANNOT_RESUME_ERR = "CANNOT_RESUME_ERR"
    GET_REMOTE_DATA_ERROR = "GET_REMOTE_DATA_ERROR"
    TABLE_CHANGED_ERR = "TABLE_CHANGED_ERR"
    STREAM_CHANGED_ERR = "STREAM_CHANGED_ERR"
    SOURCE_REWRITTEN_ERR = "SOURCE_REWRITTEN_ERR"
    CHECKPOINT_LOST_ERR = "CHECKPOINT_LOST_ERR"
    CHECKPOINT_FOREIGN_ERR = "CHECKPOINT_FOREIGN_ERR"
    CHECKPOINT_DAMAGED_ERR = "CHECKPOINT_DAMAGED_ERR"
    CHECKPOINT_BEHIND_ERR = "CHECKPOINT_BEHIND_ERR"
    CATALOG_BEHIND_ERR = "CATALOG_BEHIND_ERR"
    CATALOG_ERR = "CATALOG_ERR"
    FILE_ERR = "FILE_ERR"
    STORAGE_ERR = "STORAGE_ERR"
    SPARK_ERR = "SPARK_ERR"
    TASKS_ABORT_ERR = "TASKS_ABORT_ERR"
    OVERTAKEN_ERR = "OVERTAKEN_ERR"
    COMMIT_OUTCOME_UNKNOWN_ERR = "COMMIT_OUTCOME_UNKNOWN_ERR"
    LEASE_LOST_ERR = "LEASE_LOST_ERR"
    TIMEOUT_ERR = "TIMEOUT_ERR"
    STOPPED_ERR = "STOPPED_ERR"


class PenstockError(Exception):
    """An error with a public code, a message of one fact, a detail and a hint."""

    retryable: ClassVar[bool] = False
    code_default: ClassVar[Code] = Code.INTERNAL_ERR

    def __init__(
        self, message: str, *, code: Code | None = None, detail: str = "", hint: str = ""
    ) -> None:
        super().__init__(_printable(message))
        self.message = _printable(message)
        self.code = code or self.code_default
        self.detail = _printable(detail)
        self.hint = _printable(hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (type(self), self.message, str(self.code), self.detail, self.hint)


def _printable(text: str) -> str:
    """Escape characters that UTF-8 cannot encode, such as a lone surrogate."""
    return text.encode("utf-8", "backslashreplace").decode()


def _revive(
    kind: type[PenstockError], message: str, code: str, detail: str, hint: str
) -> PenstockError:
    return kind(message, code=Code(code), detail=detail, hint=hint)


class UserError(PenstockError):
    """An error that the author of the statement or of the data must fix; never retried.

    ``line`` and ``column`` are the position in the script, counted from 1, if known.
    ``expected`` is what the parser expected at that position.
    """

    code_default = Code.OPTION_ERR
    line: int | None = None
    column: int | None = None
    expected: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        place = {"line": self.line, "column": self.column, "expected": self.expected}
        return (*super().__reduce__(), place)

    def at(self, *, line: int, column: int) -> Self:
        """Set line and column, and append them to the detail."""
        self.line, self.column = line, column
        self.detail = f"{self.detail} Line {line}, column {column}.".lstrip()
        return self


class SelectError(UserError):
    """A wrong or unusable SELECT; ``offset`` is the position in the SELECT, if known."""

    offset: int | None = None


class ExternalError(PenstockError):
    """A failure outside Penstock; retried with growing delays before a user must act."""

    retryable = True
    code_default = Code.GET_REMOTE_DATA_ERROR


class CommitOutcomeUnknownError(PenstockError):
    """A table commit that may have succeeded; read the table back before any other write."""

    code_default = Code.COMMIT_OUTCOME_UNKNOWN_ERR


class LeaseLostError(PenstockError):
    """This node no longer owns the job and must stop without committing."""

    code_default = Code.LEASE_LOST_ERR


class InvariantError(PenstockError):
    """A violated invariant, which is a bug in Penstock; the user is asked for a report."""

    code_default = Code.INTERNAL_ERR


class StoppedError(PenstockError):
    """Work that was stopped on request; no action is needed."""

    code_default = Code.STOPPED_ERR
