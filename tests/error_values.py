"""Check errors by their code and by the values that they name, not by their sentences."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from penstock.errors import Code, PenstockError


@contextmanager
def raises(
    kind: type[PenstockError], code: Code, *values: object, hint: Sequence[object] | None = None
) -> Iterator[pytest.ExceptionInfo[PenstockError]]:
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
    """Require that a stored reason begins with a code and names these values."""
    assert str(text).partition(": ")[0] == code, text
    assert_names(str(text), *values)


def assert_names(text: str, *values: object) -> None:
    """Require that a text names values: as whole words, not as parts of other words."""
    missing = [value for value in values if not _names(text, str(value))]
    assert not missing, f"{missing} not in: {text}"


def _names(text: str, value: str) -> bool:
    before = r"(?<!\w)" if value[:1].isalnum() else ""
    after = r"(?!\w)" if value[-1:].isalnum() else ""
    return re.search(before + re.escape(value) + after, text) is not None
