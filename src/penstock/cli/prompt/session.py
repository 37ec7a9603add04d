"""Read statements from a terminal, run them and show their results.

The statement runs in a thread of its own and is not interrupted half-way: whatever it does to
catalog and tables, it does to its end.
"""

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import Protocol, TypeVar, assert_never

from penstock.app import App
from penstock.cli.prompt.commands import Command, Entry, Run, Timing, Watch, read_entry
from penstock.cli.prompt.completion import Names
from penstock.cli.prompt.display import (
    VERTICAL,
    error_text,
    page,
    screen,
    show_result,
    watched_text,
)
from penstock.cli.prompt.guide import guide
from penstock.clock import Clock
from penstock.control.execute import execute
from penstock.control.result import Result
from penstock.errors import Code, ExternalError, InvariantError, PenstockError, UserError
from penstock.sql.masking import masked
from penstock.sql.parser import parse_script
from penstock.sql.statements import ParsedStatement, Statement

_T = TypeVar("_T")


def wait_for(work: Callable[[], _T]) -> _T:
    """Do some work and answer what it answers; KeyboardInterrupt leaves it to itself."""
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - It is raised where it is waited for.
            future.set_exception(error)

    threading.Thread(target=run, name="statement", daemon=True).start()
    return future.result()


def watch(look: Callable[[], str], *, interval: timedelta, clock: Clock) -> None:
    """Draw what is seen, with the time, at every interval until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    never = threading.Event()
    console = Console(highlight=False)
    with (
        _keys_unseen(),
        Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live,
    ):
        try:
            while True:
                seen = look()
                head = f"{clock.now():%H:%M:%S} UTC, every {_shown(interval)}; Ctrl-C ends\n\n"
                text = Text(f"{head}{seen.rstrip()}", no_wrap=True, overflow="ellipsis")
                live.update(text, refresh=True)
                clock.wait(never, interval)
        except KeyboardInterrupt:
            # The last look stays on the screen.
            return


def _shown(interval: timedelta) -> str:
    return f"{interval.total_seconds():g}s"


@contextmanager
def _keys_unseen() -> Iterator[None]:
    """Let keys that are pressed meanwhile leave no trace in the drawing."""
    import termios

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    silent = termios.tcgetattr(terminal)
    silent[3] &= ~(termios.ECHO | termios.ECHOCTL)
    termios.tcsetattr(terminal, termios.TCSANOW, silent)
    try:
        yield
    finally:
        # What was typed is thrown away, for nobody saw it.
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)


class Editor(Protocol):
    """Where the prompt gets its texts from."""

    def read(self, written: str = "") -> str:
        """Answer the next text; KeyboardInterrupt takes it back, EOFError ends the prompt."""
        ...


def open_prompt(application: App, *, output: str) -> None:
    """Ask for statements on the terminal and run them until the user leaves."""
    from penstock.cli.prompt.editor import HistoryFile, TerminalEditor

    gc.enable()
    home = application.settings.home
    sys.stdout.write(f"Penstock {version('penstock')}, home {home}\n")
    sys.stdout.write("Statements end with ; and Tab completes them. \\? helps, \\q leaves.\n")
    editor = TerminalEditor(
        names=_names(application), history=HistoryFile(home / "history", tell=_say)
    )
    run = partial(_execute, application)
    Session(editor, run=run, clock=application.clock, output=output).go_on()


def _names(application: App) -> Names:
    catalog = application.catalog
    return Names(
        jobs=lambda: [job.name for job in catalog.jobs()],
        routine_loads=lambda: [
            job.name for job in catalog.jobs() if job.definition.load is not None
        ],
        tables=lambda: [table.name for table in catalog.tables()],
        # Those that a job owns are not for others to name.
        secrets=lambda: [one.name for one in catalog.secrets() if one.job_id is None],
    )


def _execute(application: App, statement: Statement) -> Result:
    return execute(statement, parts=application.control())


class Session:
    """One person at one prompt."""

    def __init__(
        self,
        editor: Editor,
        *,
        run: Callable[[Statement], Result],
        clock: Clock,
        output: str,
    ) -> None:
        self._editor = editor
        self._execute = run
        self._clock = clock
        self._output = output
        self._timed = True
        self._last: Run | None = None
        self._written = ""

    def go_on(self) -> None:
        """Do what is typed until somebody leaves."""
        while True:
            try:
                text = self._editor.read(self._take_written())
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            try:
                entry = read_entry(text)
                if entry is Command.QUIT:
                    return
                self._follow(entry)
            except PenstockError as error:
                _say_error(error)
            except KeyboardInterrupt:
                _say("\nno longer waiting; the statement goes on unseen, and leaving ends it")

    def _take_written(self) -> str:
        written, self._written = self._written, ""
        return written

    def _follow(self, entry: Entry) -> None:
        match entry:
            case Run():
                self._run(entry)
            case Watch():
                self._watch(entry)
            case Timing(shown=shown):
                self._timed = not self._timed if shown is None else shown
                _say(f"timing is {'on' if self._timed else 'off'}")
            case Command.HELP:
                _show_guide()
            case Command.EDIT:
                self._written = _edited(masked(self._last.text) if self._last else "")
            case Command.QUIT:
                return
            case _:
                assert_never(entry)

    def _run(self, run: Run) -> None:
        try:
            for parsed in self._statements(run):
                begun = self._clock.monotonic()
                result = self._answer(parsed.statement)
                seconds = self._clock.monotonic() - begun if self._timed else None
                show_result(result, output=self._output_of(run, parsed), seconds=seconds)
        except PenstockError as error:
            _say_error(error, script=run.text)

    def _watch(self, entry: Watch) -> None:
        run = entry.run or self._last
        if run is None:
            raise UserError(
                "there is no statement to watch yet",
                code=Code.SYNTAX_ERR,
                hint="Write for example SHOW JOBS \\watch 2s.",
            )
        try:
            statements = self._statements(run)
            look = partial(self._look, statements, self._output_of(run, *statements))
            watch(look, interval=entry.interval, clock=self._clock)
        except PenstockError as error:
            _say_error(error, script=run.text)

    def _look(self, statements: tuple[ParsedStatement, ...], output: str) -> str:
        try:
            results = [self._answer(parsed.statement) for parsed in statements]
        except ExternalError as error:
            # What others may mend is shown, and looked at again.
            return error_text(error)
        return watched_text(results, output=output, on=screen())

    def _statements(self, run: Run) -> tuple[ParsedStatement, ...]:
        if run.text.strip(" \t\r\n;"):
            self._last = run
        return parse_script(run.text)

    def _answer(self, statement: Statement) -> Result:
        try:
            return wait_for(partial(self._execute, statement))
        except PenstockError:
            raise
        except OSError as error:
            raise ExternalError(str(error), code=Code.STORAGE_ERR) from error
        except Exception as error:
            raise InvariantError(f"{type(error).__name__}: {error}") from error

    def _output_of(self, run: Run, *statements: ParsedStatement) -> str:
        vertical = run.vertical or any(parsed.vertical for parsed in statements)
        return VERTICAL if vertical else self._output


def _show_guide() -> None:
    text = guide()
    if len(text.splitlines()) < screen().lines or not page(text, chopped=False):
        sys.stdout.write(text)


def _edited(text: str) -> str:
    import click

    try:
        return (click.edit(text, extension=".sql") or text).strip()
    except click.ClickException as error:
        raise UserError(f"the editor did not work: {error.message}") from error


def _say_error(error: PenstockError, *, script: str = "") -> None:
    sys.stdout.flush()
    sys.stderr.write(error_text(error, script=script))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
