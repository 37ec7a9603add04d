"""Scripts that are refused; ¦ marks the position that the error must report."""

from collections.abc import Callable

import pytest

from penstock.errors import UserError
from penstock.sql.parser import parse_script


def refusal(marked: str, *, parse: Callable[[str], object] = parse_script) -> UserError:
    """Return the error of a script; check its position if the script has a mark."""
    before, mark, after = marked.partition("¦")
    with pytest.raises(UserError) as caught:
        parse(before + after)
    if mark:
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        assert caught.value.detail == f"Line {line}, column {column}."
    return caught.value
