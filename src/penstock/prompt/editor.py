"""The line that is typed: editing, completion and history, by prompt_toolkit."""

from collections.abc import Iterable

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus, is_searching
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from penstock.errors import PenstockError
from penstock.prompt.commands import finished
from penstock.prompt.completion import candidates
from penstock.prompt.history import HistoryFile
from penstock.prompt.option_lists import Names

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
