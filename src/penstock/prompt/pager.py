"""Show what the screen cannot hold through a pager: $PAGER, else less."""

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

_LESS_OPTIONS = "RFX"
_CHOPPING = "S"
# A prompt that says how to get out, and no tildes below the last line.
_LESS_MANNERS = ("-Psspace and arrows move, q ends", "-~")


def page(text: str, *, chopped: bool) -> bool:
    """Show a text, long lines chopped or wrapped; answer whether there was a pager for it."""
    command = pager_command(os.environ, chopped=chopped)
    if not command:
        return False
    options = _LESS_OPTIONS + (_CHOPPING if chopped else "")
    try:
        process = subprocess.Popen(  # noqa: S603 - The user's own choice.
            command,
            stdin=subprocess.PIPE,
            env={"LESS": options, **os.environ},
            encoding="utf-8",
            errors="replace",
        )
    except OSError:
        return False
    with _interrupts_left_to_it():
        # A pager that was left early does not read to the end.
        with suppress(BrokenPipeError):
            process.communicate(text)
        process.wait()
    return True


def pager_command(environment: Mapping[str, str], *, chopped: bool) -> list[str]:
    """Answer the command that the user wants as pager; none if PAGER is set to nothing."""
    chosen = environment.get("PAGER")
    if chosen is None:
        options = _LESS_OPTIONS + (_CHOPPING if chopped else "")
        return ["less", f"-{options}", *_LESS_MANNERS]
    try:
        return shlex.split(chosen)
    except ValueError:
        return []


@contextmanager
def _interrupts_left_to_it() -> Iterator[None]:
    """Ignore Ctrl-C, which the pager sees, too."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
