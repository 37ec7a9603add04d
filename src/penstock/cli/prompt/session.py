"""Read statements from a terminal, run them and show their results.

A statement runs in its own thread. Ctrl-C ends only the wait, not the statement, so changes of
the catalog and of tables are always completed.
"""

import gc
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from typing import TypeVar, assert_never

from penstock.app import App
from penstock.cli.prompt.commands import Command, Entry, Run, Timing, Watch, read_entry
from penstock.cli.prompt.completion import Names
from penstock.cli.prompt.display import VERTICAL, error_text, page, show_result, watched_text
from penstock.cli.prompt.guide import guide
from penstock.clock import Clock
from penstock.control.execute import execute
from penstock.control.result import Result
from penstock.errors import Code, ExternalError, InvariantError, PenstockError, UserError
from penstock.model.job_kinds import FLOW, ROUTINE_LOAD, STREAMING_TABLE, JobKind
from penstock.sql.masking import visible_part
from penstock.sql.parser import parse_script
from penstock.sql.statements import ParsedStatement, Statement

_T = TypeVar("_T")


def wait_for(work: Callable[[], _T]) -> _T:
    """Run work in a thread and return its result; KeyboardInterrupt ends only the wait."""
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - Raised again by result().
            future.set_exception(error)

    threading.Thread(target=run, name="statement", daemon=True).start()
    return future.result()


def watch(render: Callable[[], str], *, interval: timedelta, clock: Clock) -> None:
    """Draw the text of ``render`` and the time at every interval until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    never = threading.Event()
    console = Console(highlight=False)
    with (
        _echo_off(),
        Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live,
    ):
        try:
            while True:
                body = render().rstrip()
                every = f"{interval.total_seconds():g}s"
                head = f"{clock.now():%H:%M:%S} UTC, every {every}; Ctrl-C stops"
                text = Text(f"{head}\n\n{body}", no_wrap=True, overflow="ellipsis")
                live.update(text, refresh=True)
                clock.wait(never, interval)
        except KeyboardInterrupt:
            # The last text stays on the screen.
            return


@contextmanager
def _echo_off() -> Iterator[None]:
    import termios

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    silent = termios.tcgetattr(terminal)
    silent[3] &= ~(termios.ECHO | termios.ECHOCTL)
    termios.tcsetattr(terminal, termios.TCSANOW, silent)
    try:
        yield
    finally:
        # TCSAFLUSH discards the keys typed meanwhile.
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)


def open_prompt(application: App, *, output: str) -> None:
    """Read statements from the terminal and run them until the user quits."""
    from penstock.cli.prompt.editor import History, terminal_reader

    gc.enable()
    home = application.settings.home
    sys.stdout.write(f"Penstock {version('penstock')}, home {home}\n")
    sys.stdout.write(
        "End statements with ; and press Tab to complete. \\? shows help, \\q quits.\n"
    )
    history = History(home / "history", report=_print)
    read = terminal_reader(names=_names(application), history=history)

    def run(statement: Statement) -> Result:
        return execute(statement, services=application.services())

    Session(read, run=run, clock=application.clock, output=output).run_until_quit()


def _names(application: App) -> Names:
    catalog = application.catalog

    def of_kind(kind: JobKind) -> list[str]:
        return [job.name for job in catalog.jobs() if job.definition.kind is kind]

    return Names(
        jobs=lambda: [job.name for job in catalog.jobs()],
        routine_loads=lambda: of_kind(ROUTINE_LOAD),
        streaming_tables=lambda: of_kind(STREAMING_TABLE),
        flows=lambda: of_kind(FLOW),
        tables=lambda: [table.name for table in catalog.tables()],
        # Statements cannot name a secret that a job owns.
        secrets=lambda: [one.name for one in catalog.secrets() if one.job_id is None],
    )


class Session:
    """State of one prompt: the last statement, and whether durations are shown.

    ``read`` gets the initial text and returns the text that the user entered. If ``read``
    raises KeyboardInterrupt, the text is discarded. EOFError ends the prompt.
    """

    def __init__(
        self,
        read: Callable[[str], str],
        *,
        run: Callable[[Statement], Result],
        clock: Clock,
        output: str,
    ) -> None:
        self._read = read
        self._execute = run
        self._clock = clock
        self._output = output
        self._timed = True
        self._last: Run | None = None
        self._draft = ""

    def run_until_quit(self) -> None:
        """Read and run inputs until the user quits."""
        while True:
            draft, self._draft = self._draft, ""
            try:
                text = self._read(draft)
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            try:
                entry = read_entry(text)
                if entry is Command.QUIT:
                    return
                self._run_entry(entry)
            except PenstockError as error:
                _print_error(error)
            except KeyboardInterrupt:
                _print("\nstopped waiting; the statement continues until it ends or you quit")

    def _run_entry(self, entry: Entry) -> None:
        match entry:
            case Run():
                self._run(entry)
            case Watch():
                self._watch(entry)
            case Timing(shown=shown):
                self._timed = not self._timed if shown is None else shown
                _print(f"timing is {'on' if self._timed else 'off'}")
            case Command.HELP:
                text = guide()
                lines = shutil.get_terminal_size().lines
                if len(text.splitlines()) < lines or not page(text, chopped=False):
                    sys.stdout.write(text)
            case Command.EDIT:
                self._draft = _edited(visible_part(self._last.text) if self._last else "")
            case Command.QUIT:
                return
            case _:
                assert_never(entry)

    def _run(self, run: Run) -> None:
        try:
            for parsed in self._statements(run):
                started = self._clock.monotonic()
                result = self._result(parsed.statement)
                seconds = self._clock.monotonic() - started if self._timed else None
                show_result(result, output=self._output_of(run, parsed), seconds=seconds)
        except PenstockError as error:
            _print_error(error, script=run.text)

    def _watch(self, entry: Watch) -> None:
        run = entry.run or self._last
        if run is None:
            raise UserError(
                "there is no last statement to watch",
                code=Code.SYNTAX_ERR,
                hint="Type, for example, SHOW JOBS \\watch 2s",
            )
        try:
            statements = self._statements(run)
            render = partial(self._render, statements, self._output_of(run, *statements))
            watch(render, interval=entry.interval, clock=self._clock)
        except PenstockError as error:
            _print_error(error, script=run.text)

    def _render(self, statements: tuple[ParsedStatement, ...], output: str) -> str:
        try:
            results = [self._result(parsed.statement) for parsed in statements]
        except ExternalError as error:
            # The next repetition may succeed.
            return error_text(error)
        return watched_text(results, output=output, on=shutil.get_terminal_size())

    def _statements(self, run: Run) -> tuple[ParsedStatement, ...]:
        if run.text.strip(" \t\r\n;"):
            self._last = run
        return parse_script(run.text)

    def _result(self, statement: Statement) -> Result:
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


def _edited(text: str) -> str:
    import click

    try:
        return (click.edit(text, extension=".sql") or text).strip()
    except click.ClickException as error:
        raise UserError(f"the editor failed: {error.message}") from error


def _print_error(error: PenstockError, *, script: str = "") -> None:
    sys.stdout.flush()
    sys.stderr.write(error_text(error, script=script))


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
