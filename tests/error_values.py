"""Check errors by their code and by the values they name, not by their wording."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import pytest

from penstock.errors import Code, PenstockError

Error = TypeVar("Error", bound=PenstockError)


@contextmanager
def raises(
    kind: type[Error], code: Code, *values: object, hint: Sequence[object] | None = None
) -> Iterator[pytest.ExceptionInfo[Error]]:
    """Require an error of this class and code that names these values."""
    with pytest.raises(kind) as caught:
        yield caught
    assert_error(caught.value, code, *values, hint=hint)


def assert_error(
    error: PenstockError, code: Code, *values: object, hint: Sequence[object] | None = None
) -> None:
    """Require a code and values in message or detail; ``hint``: a hint that names values."""
    assert error.code is code, f"{error.code}: {error.message}"
    assert_names(f"{error.message}\n{error.detail}", *values)
    if hint is not None:
        assert error.hint
        assert_names(error.hint, *hint)


def assert_reason(text: object, code: Code, *values: object) -> None:
    """Require that a stored reason starts with a code and names these values."""
    assert str(text).partition(": ")[0] == code, text
    assert_names(str(text), *values)


def assert_printed(text: str, code: Code, *values: object, hint: Sequence[object] = ()) -> None:
    """Require that a printed error starts with a code and names values, also in its hint."""
    error, _, printed_hint = text.partition("\n  hint: ")
    assert_reason(error.removeprefix("error "), code, *values)
    assert_names(printed_hint, *hint)


def assert_names(text: str, *values: object) -> None:
    """Require that a text names values as whole words, not as parts of other words."""
    missing = [value for value in values if not _names(text, str(value))]
    assert not missing, f"{missing} not in: {text}"


def _names(text: str, value: str) -> bool:
    before = r"(?<!\w)" if value[:1].isalnum() else ""
    after = r"(?!\w)" if value[-1:].isalnum() else ""
    return re.search(before + re.escape(value) + after, text) is not None
