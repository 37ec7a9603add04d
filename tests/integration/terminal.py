"""A terminal in which ``penstock sql`` is typed, as a person sees it."""

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

from tests.forking import Forked, Surroundings
from tests.integration.command import COMMAND, PATIENCE_SECONDS, wait_until

# The child makes the terminal its own, so that Ctrl-C reaches it.
LOGIN = "import os, sys; os.login_tty(0); os.execv(sys.argv[1], sys.argv[1:])"
ESCAPE = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>()][0-9A-Za-z]?)")
# Blanks at the end of a line are not drawn.
PROMPT = "penstock>"
UP, TAB, ENTER = "\x1b[A", "\t", "\r"
CTRL_C, CTRL_D, CTRL_R = "\x03", "\x04", "\x12"


@dataclass
class Terminal:
    """A prompt that was started; what was seen of it is looked at once."""

    folder: Path
    columns: int = 100
    lines: int = 30
    environment: dict[str, str] = field(default_factory=dict)
    # Whether it is the installed command, which takes its time to start.
    installed: bool = False

    def __post_init__(self) -> None:
        self._shown = b""
        self._looked_at = 0
        self._own, self._other = pty.openpty()
        size = struct.pack("HHHH", self.lines, self.columns, 0, 0)
        fcntl.ioctl(self._other, termios.TIOCSWINSZ, size)
        left_out = ("PENSTOCK_", "COLUMNS", "LINES", "PAGER", "LESS", "NO_COLOR")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
        settings = {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "PAGER": "cat"}
        self._process = self._start({**kept, **settings, **self.environment})
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _start(self, environment: dict[str, str]) -> "subprocess.Popen[bytes] | Forked":
        if not self.installed:
            around = Surroundings(
                environment=environment,
                folder=str(self.folder),
                terminal=os.ttyname(self._other),
            )
            return Forked(["sql"], around)
        return subprocess.Popen(
            [sys.executable, "-c", LOGIN, str(COMMAND), "sql"],
            cwd=self.folder,
            env=environment,
            stdin=self._other,
            stdout=self._other,
            stderr=self._other,
        )

    def _read(self) -> None:
        while True:
            try:
                found = os.read(self._own, 65536)
            except OSError:
                # Linux says so when the last process has left the terminal.
                return
            if not found:
                return
            # A terminal that nobody has opened yet would look like one that was left.
            self._let_go()
            self._shown += found

    def _let_go(self) -> None:
        other, self._other = self._other, -1
        if other >= 0:
            os.close(other)

    @property
    def text(self) -> str:
        """Everything that was shown, without what only moves and colours."""
        return ESCAPE.sub("", self._shown.decode("utf-8", "replace")).replace("\r", "")

    def type(self, *texts: str) -> None:
        """Press keys."""
        os.write(self._own, "".join(texts).encode())

    def see(self, text: str) -> str:
        """Wait for a text behind what was seen before; answer what came up to its end."""
        begin = self._looked_at
        try:
            wait_until(lambda: text in self.text[begin:])
        except AssertionError as error:
            error.add_note(f"waited for {text!r} in {self.text[begin:]!r}")
            raise
        self._looked_at = self.text.index(text, begin) + len(text)
        return self.text[begin : self._looked_at]

    def run(self, statement: str, *, until: str) -> str:
        """Run a statement that is shown to its end by a text; answer what was seen."""
        self.type(statement, ENTER)
        seen = self.see(until)
        self.see(PROMPT)
        return seen

    def leave(self) -> int:
        """Type \\q and answer the exit code."""
        self.type("\\q", ENTER)
        return self.ended()

    def ended(self) -> int:
        """Wait for the end; answer the exit code."""
        return self._process.wait(PATIENCE_SECONDS)

    def end(self) -> None:
        """Kill it if it still runs, and take the terminal away."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._let_go()
        self._reader.join(PATIENCE_SECONDS)
        os.close(self._own)
