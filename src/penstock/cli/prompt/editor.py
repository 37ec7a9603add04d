"""Edit a statement in the terminal, with a history that outlives the prompt.

Invariant: nothing is kept, in the file or in memory, but what ``mask`` leaves of it.
"""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus, is_searching
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from penstock.cli.prompt.commands import finished
from penstock.cli.prompt.completion import Names, candidates
from penstock.errors import PenstockError
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


PROMPT = "penstock> "
_CONTINUATION = "-> "


class TerminalEditor:
    """Reads one statement or command after the other from the terminal."""

    def __init__(self, *, names: Names, history: HistoryFile) -> None:
        self._session: PromptSession[str] = PromptSession(
            message=PROMPT,
            multiline=True,
            prompt_continuation=_continuation,
            key_bindings=_keys(),
            completer=ThreadedCompleter(_Completer(names)),
            complete_while_typing=False,
            history=_History(history),
            search_ignore_case=True,
            tempfile_suffix=".sql",
        )

    def read(self, written: str = "") -> str:
        """Let one text be typed, beginning with what is written already."""
        return self._session.prompt(default=written)


def _continuation(width: int, line: int, wraps: int) -> str:
    """Write what stands before a further line; one that is only wrapped is no further one."""
    del line
    return "".rjust(width) if wraps else _CONTINUATION.rjust(width)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter", filter=has_focus(DEFAULT_BUFFER) & ~is_searching)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion:
            # Enter takes what the menu offers; it runs nothing.
            buffer.complete_state = None
        elif finished(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=False)

    return keys


class _Completer(Completer):
    """Offers what can be written at the cursor."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        del complete_event
        try:
            found = candidates(document.text_before_cursor, names=self._names)
        except PenstockError:
            # A catalog that does not answer knows no names.
            return
        for candidate in found:
            yield Completion(
                candidate.text,
                start_position=-candidate.replaced,
                display=candidate.label,
                display_meta=candidate.meaning,
            )


class _History(InMemoryHistory):
    """Remembers of a text what the file keeps of it."""

    def __init__(self, file: HistoryFile) -> None:
        super().__init__(file.load())
        self._file = file

    def append_string(self, string: str) -> None:
        kept = self._file.keep(string)
        if kept:
            super().append_string(kept)
