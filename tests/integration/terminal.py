"""A terminal that runs ``penstock sql`` and shows what a user sees."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tests.forking import CommandContext, Forked
from tests.integration.command import COMMAND, TIMEOUT_SECONDS, wait_until

# The terminal becomes the child's controlling terminal, so that Ctrl-C reaches the child.
LOGIN = "import os, sys; os.login_tty(0); os.execv(sys.argv[1], sys.argv[1:])"
ESCAPE = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>()][0-9A-Za-z]?)")
# Blanks at the end of a line are not drawn.
PROMPT = "penstock>"
UP, TAB, ENTER = "\x1b[A", "\t", "\r"
CTRL_C, CTRL_D, CTRL_R = "\x03", "\x04", "\x12"


@dataclass
class Terminal:
    """A started prompt; ``see`` consumes its output."""

    folder: Path
    columns: int = 100
    lines: int = 30
    environment: dict[str, str] = field(default_factory=dict)
    # Use the installed command, which starts more slowly.
    installed: bool = False

    def __post_init__(self) -> None:
        self._shown = b""
        self._seen_until = 0
        self._controller, self._terminal = pty.openpty()
        size = struct.pack("HHHH", self.lines, self.columns, 0, 0)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)
        omitted = ("PENSTOCK_", "COLUMNS", "LINES", "PAGER", "LESS", "NO_COLOR")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(omitted)}
        settings = {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "PAGER": "cat"}
        self._process = self._start({**inherited, **settings, **self.environment})
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _start(self, environment: dict[str, str]) -> "subprocess.Popen[bytes] | Forked":
        if not self.installed:
            context = CommandContext(
                environment=environment,
                folder=str(self.folder),
                terminal=os.ttyname(self._terminal),
            )
            return Forked(["sql"], context)
        return subprocess.Popen(
            [sys.executable, "-c", LOGIN, str(COMMAND), "sql"],
            cwd=self.folder,
            env=environment,
            stdin=self._terminal,
            stdout=self._terminal,
            stderr=self._terminal,
        )

    def _read(self) -> None:
        while True:
            try:
                found = os.read(self._controller, 65536)
            except OSError:
                # Linux raises this error when the last process has closed the terminal.
                return
            if not found:
                return
            # Close our copy only now: until the child opens the terminal, a read would fail.
            self._close_terminal()
            self._shown += found

    def _close_terminal(self) -> None:
        other, self._terminal = self._terminal, -1
        if other >= 0:
            os.close(other)

    @property
    def text(self) -> str:
        """The complete output without escape sequences."""
        return ESCAPE.sub("", self._shown.decode("utf-8", "replace")).replace("\r", "")

    def type(self, *texts: str) -> None:
        """Type keys."""
        os.write(self._controller, "".join(texts).encode())

    def see(self, text: str) -> str:
        """Wait for a text after the last one; return the output up to its end."""
        start = self._seen_until
        try:
            wait_until(lambda: text in self.text[start:])
        except AssertionError as error:
            error.add_note(f"waited for {text!r} in {self.text[start:]!r}")
            raise
        self._seen_until = self.text.index(text, start) + len(text)
        return self.text[start : self._seen_until]

    def run(self, statement: str, *, until: str) -> str:
        """Run a statement and wait for a text; return the output."""
        self.type(statement, ENTER)
        seen = self.see(until)
        self.see(PROMPT)
        return seen

    def leave(self) -> int:
        """Type \\q and return the exit code."""
        self.type("\\q", ENTER)
        return self.ended()

    def ended(self) -> int:
        """Wait for the process to end; return the exit code."""
        return self._process.wait(TIMEOUT_SECONDS)

    def end(self) -> None:
        """Kill the process if it still runs, and close the terminal."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._close_terminal()
        self._reader.join(TIMEOUT_SECONDS)
        os.close(self._controller)
