"""What was typed, kept in a file from one prompt to the next.

Invariant: nothing is kept, in the file or in memory, but what ``mask`` leaves of it.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

from penstock.sql.masking import masked

ENTRIES_MAX = 1_000

_OWNER_ONLY = 0o600
Mask = Callable[[str], str]


class HistoryFile:
    """A file with one text in JSON on every line, which only its owner can read."""

    def __init__(self, path: Path, *, tell: Callable[[str], None], mask: Mask = masked) -> None:
        self._path = path
        self._tell = tell
        self._mask = mask
        self._told = False

    def load(self) -> list[str]:
        """Answer what was kept, the oldest first; what lies too far back is forgotten."""
        try:
            lines = self._path.read_text("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            self._tell_once(error)
            return []
        entries = [entry for line in lines if (entry := _entry(line))]
        if len(lines) > 2 * ENTRIES_MAX:
            self._replace(entries[-ENTRIES_MAX:])
        return entries[-ENTRIES_MAX:]

    def keep(self, text: str) -> str:
        """Keep a text for the next prompt; answer what of it was kept."""
        shown = self._mask(text).strip()
        if shown:
            try:
                self._append(shown)
            except OSError as error:
                self._tell_once(error)
        return shown

    def _append(self, text: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = os.open(self._path, flags, _OWNER_ONLY)
        try:
            os.fchmod(descriptor, _OWNER_ONLY)
            # One write, so that lines of two prompts on one home do not mix.
            os.write(descriptor, f"{json.dumps(text)}\n".encode())
        finally:
            os.close(descriptor)

    def _replace(self, entries: list[str]) -> None:
        other = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            descriptor = os.open(other, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.writelines(f"{json.dumps(entry)}\n" for entry in entries)
            other.replace(self._path)
        except OSError as error:
            self._tell_once(error)

    def _tell_once(self, error: OSError) -> None:
        if not self._told:
            self._tell(f"what is typed is not kept: {error.strerror or error}")
        self._told = True


def _entry(line: str) -> str:
    """Read a line; a damaged one is no entry."""
    try:
        entry = json.loads(line)
    except ValueError:
        return ""
    return entry if isinstance(entry, str) else ""
