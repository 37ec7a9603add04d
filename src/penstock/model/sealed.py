"""What tasks are given to reach a bucket: ciphertext, and where its key lies."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """Options of a bucket, encrypted; empty where none are needed."""

    text: str = ""
    key_file: str = ""
