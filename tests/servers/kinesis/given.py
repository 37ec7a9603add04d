"""The fields of a request, checked as they are taken."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.servers.kinesis.refusal import invalid
from tests.servers.kinesis.shard import HASH_KEYS


@dataclass(frozen=True, slots=True)
class Given:
    """What a request says."""

    fields: Mapping[str, Any]

    def has(self, name: str) -> bool:
        """Answer whether a field was given."""
        return self.fields.get(name) is not None

    def text(self, name: str) -> str:
        """Answer a field that must be a text."""
        value = self.fields.get(name)
        if not isinstance(value, str) or not value:
            raise invalid(f"{name} must be a text that is not empty, not {value!r}.")
        return value

    def text_or_none(self, name: str) -> str:
        """Answer a text, or an empty one if none was given."""
        return self.text(name) if self.has(name) else ""

    def number(self, name: str, *, default: int | None = None, at_most: int = 2**31 - 1) -> int:
        """Answer a field that must be a number from 1 on."""
        value = self.fields.get(name, default)
        if not isinstance(value, int) or not 1 <= value <= at_most:
            raise invalid(f"{name} must be a number between 1 and {at_most}, not {value!r}.")
        return value

    def instant_ms(self, name: str) -> int | None:
        """Answer a time, which is in seconds on the wire, if it was given."""
        value = self.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, int | float):
            raise invalid(f"{name} must be a time, not {value!r}.")
        return round(value * 1000)

    def hash_key(self, name: str) -> int:
        """Answer a hash key."""
        text = self.text(name)
        if not text.isascii() or not text.isdigit() or int(text) >= HASH_KEYS:
            raise invalid(f"{name} must be a number below 2^128, not {text!r}.")
        return int(text)

    def inner(self, name: str) -> "Given":
        """Answer the fields of a field."""
        value = self.fields.get(name)
        if not isinstance(value, dict):
            raise invalid(f"{name} must have fields, not be {value!r}.")
        return Given(value)

    def inner_list(self, name: str) -> list["Given"]:
        """Answer the fields of every entry of a list."""
        value = self.fields.get(name)
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise invalid(f"{name} must be a list of fields.")
        return [Given(entry) for entry in value]

    def encoded(self, name: str) -> str:
        """Answer bytes as their text in base64, after a look whether they are."""
        value = self.fields.get(name)
        if not isinstance(value, str):
            raise invalid(f"{name} must be given.")
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise invalid(f"{name} must be in base64.") from error
        return value
