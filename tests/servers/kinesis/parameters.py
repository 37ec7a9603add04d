"""Parameters of a request, checked when they are read."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.servers.kinesis.errors import invalid_argument
from tests.servers.kinesis.shard import HASH_KEYS


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a request; methods raise ServiceError for wrong values."""

    fields: Mapping[str, Any]

    def has(self, name: str) -> bool:
        """Return whether a parameter is set."""
        return self.fields.get(name) is not None

    def text(self, name: str) -> str:
        """Return a parameter that must be a non-empty string."""
        value = self.fields.get(name)
        if not isinstance(value, str) or not value:
            raise invalid_argument(f"{name} must be a non-empty string, not {value!r}.")
        return value

    def text_or_empty(self, name: str) -> str:
        """Return a string parameter; empty if it is not set."""
        return self.text(name) if self.has(name) else ""

    def number(self, name: str, *, default: int | None = None, at_most: int = 2**31 - 1) -> int:
        """Return a parameter that must be a number of at least 1."""
        value = self.fields.get(name, default)
        if not isinstance(value, int) or not 1 <= value <= at_most:
            raise invalid_argument(
                f"{name} must be a number between 1 and {at_most}, not {value!r}."
            )
        return value

    def instant_ms(self, name: str) -> int | None:
        """Convert a time in seconds to milliseconds; return None if it is not set."""
        value = self.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, int | float):
            raise invalid_argument(f"{name} must be a time, not {value!r}.")
        return round(value * 1000)

    def hash_key(self, name: str) -> int:
        """Return a parameter that must be a hash key."""
        text = self.text(name)
        if not text.isascii() or not text.isdigit() or int(text) >= HASH_KEYS:
            raise invalid_argument(f"{name} must be a number below 2^128, not {text!r}.")
        return int(text)

    def inner(self, name: str) -> "Parameters":
        """Return a parameter that must be an object."""
        value = self.fields.get(name)
        if not isinstance(value, dict):
            raise invalid_argument(f"{name} must be an object, not {value!r}.")
        return Parameters(value)

    def inner_list(self, name: str) -> list["Parameters"]:
        """Return a parameter that must be a list of objects."""
        value = self.fields.get(name)
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise invalid_argument(f"{name} must be a list of objects.")
        return [Parameters(entry) for entry in value]

    def encoded(self, name: str) -> str:
        """Return a parameter that must be base64, without decoding it."""
        value = self.fields.get(name)
        if not isinstance(value, str):
            raise invalid_argument(f"{name} must be set.")
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise invalid_argument(f"{name} must be in base64.") from error
        return value
