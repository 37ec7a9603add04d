"""Where in a statement an error lies."""

from penstock.errors import SelectError, UserError


def placed(
    error: SelectError, select: str, *, begins_at: tuple[int, int], hint: str = ""
) -> UserError:
    """Answer an error of a SELECT with its line and column in the statement."""
    if error.offset is None:
        return UserError(
            error.message, code=error.code, detail=error.detail, hint=error.hint or hint
        )
    line, column = begins_at
    before = select[: error.offset].split("\n")
    line += len(before) - 1
    column = column + error.offset if len(before) == 1 else len(before[-1]) + 1
    known = UserError(error.message, code=error.code, hint=error.hint or hint)
    return known.at(line=line, column=column)
