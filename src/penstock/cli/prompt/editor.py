"""Edit a statement in the terminal, with completion and a stored history.

Invariant: a statement that may contain a secret value is stored neither in the history file nor
in memory.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus, is_searching
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from penstock.cli.prompt.commands import finished
from penstock.cli.prompt.completion import Names, candidates
from penstock.errors import PenstockError
from penstock.sql.masking import may_contain_secret

ENTRIES_MAX = 1_000
PROMPT = "penstock> "
_CONTINUATION = "-> "
_OWNER_ONLY = 0o600


class History(FileHistory):
    """The newest statements without secrets, in a file that only its owner can read."""

    def __init__(self, path: Path, *, report: Callable[[str], None]) -> None:
        super().__init__(path)
        self._path = path
        self._report = report
        self._reported = False

    def append_string(self, string: str) -> None:
        """Add a statement to the history unless it may contain a secret value."""
        if string.strip() and not may_contain_secret(string):
            super().append_string(string.strip())

    def store_string(self, string: str) -> None:
        """Append a statement to the file."""
        try:
            self._path.touch(_OWNER_ONLY)
            self._path.chmod(_OWNER_ONLY)
            super().store_string(string)
        except OSError as error:
            self._report_once(error)

    def load_history_strings(self) -> Iterable[str]:
        """Return the newest statements, the last first; shorten a file that is too long."""
        try:
            entries = list(super().load_history_strings())
            if len(entries) > 2 * ENTRIES_MAX:
                shorter = self._path.with_name(f"{self._path.name}.{os.getpid()}")
                shorter.touch(_OWNER_ONLY)
                for entry in reversed(entries[:ENTRIES_MAX]):
                    FileHistory(shorter).store_string(entry)
                shorter.replace(self._path)
        except OSError as error:
            self._report_once(error)
            return ()
        return entries[:ENTRIES_MAX]

    def _report_once(self, error: OSError) -> None:
        if not self._reported:
            self._report(f"the history is not saved: {error.strerror or error}")
        self._reported = True


def terminal_reader(*, names: Names, history: History) -> Callable[[str], str]:
    """Return a function that reads the next text; its argument is the initial text."""
    session: PromptSession[str] = PromptSession(
        message=PROMPT,
        multiline=True,
        prompt_continuation=_continuation,
        key_bindings=_keys(),
        completer=ThreadedCompleter(_Completer(names)),
        complete_while_typing=False,
        history=history,
        search_ignore_case=True,
        tempfile_suffix=".sql",
    )
    return lambda draft: session.prompt(default=draft)


def _continuation(width: int, line: int, wraps: int) -> str:
    """Return the prompt of a continuation line; a wrapped line has no prompt."""
    del line
    return "".rjust(width) if wraps else _CONTINUATION.rjust(width)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter", filter=has_focus(DEFAULT_BUFFER) & ~is_searching)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion:
            # Enter accepts the selected completion and does not run the statement.
            buffer.complete_state = None
        elif finished(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=False)

    return keys


class _Completer(Completer):
    """Completions at the cursor for prompt_toolkit."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        del complete_event
        try:
            found = candidates(document.text_before_cursor, names=self._names)
        except PenstockError:
            # The catalog cannot be read, so there are no names.
            return
        for candidate in found:
            yield Completion(
                candidate.text,
                start_position=-candidate.replaced,
                display=candidate.label,
                display_meta=candidate.meaning,
            )
