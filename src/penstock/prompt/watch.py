"""Look again and again, and draw every look in the place of the one before."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from penstock.clock import Clock


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
