r"""Parse the input of the prompt: statements, or commands that start with a backslash.

The lexer decides whether a text is finished. A semicolon or ``\G`` in quotes or in a comment
does not end a statement.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from penstock.errors import Code, UserError
from penstock.model.options import parse_duration
from penstock.sql.lexer import Token, read_script, tokenize

WATCH_INTERVAL = timedelta(seconds=2)
WATCH_INTERVAL_MIN = timedelta(milliseconds=100)

_VERTICAL = re.compile(r"\\G\s*;?\s*\Z")
_WATCH = re.compile(r"\\watch\b([^\\'\"`;]*);?\s*\Z", re.IGNORECASE)
_COMMAND = re.compile(r"\s*\\(\S*?)\s*(?:\s([^;]*))?;?\s*\Z")
_QUOTES = ("'", '"', "`")


class Command(StrEnum):
    """Commands of the prompt without arguments."""

    HELP = "help"
    QUIT = "quit"
    EDIT = "edit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Text with zero or more statements to run."""

    text: str
    vertical: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Statements to repeat; None repeats the last statements."""

    run: Run | None
    interval: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Whether to show durations; None toggles the display."""

    shown: bool | None


Entry = Run | Watch | Timing | Command

# Commands that need no backslash.
_WORDS = {"help": Command.HELP, "?": Command.HELP, "exit": Command.QUIT, "quit": Command.QUIT}
_TIMING = {"": None, "on": True, "off": False}
_COMMANDS = {**_WORDS, "h": Command.HELP, "q": Command.QUIT, "e": Command.EDIT}
# Completions after a backslash.
MEANING_BY_COMMAND = {
    "\\?": "list statements, commands and keys",
    "\\watch 2s": "repeat the last statement every 2 seconds",
    "\\timing": "turn the display of durations on or off",
    "\\e": "edit the last statement in $EDITOR",
    "\\q": "quit the prompt",
}
MEANING_BY_ENDING = {
    "\\G": "print the result vertically",
    "\\watch 2s": "repeat the statement every 2 seconds",
}


def finished(text: str) -> bool:
    """Return whether a text is complete; otherwise the user continues on the next line."""
    if not text.strip() or text.lstrip().startswith("\\") or _word(text) in _WORDS:
        return True
    if _ending(text, _VERTICAL) or _ending(text, _WATCH):
        return True
    tokens = _tokens(text)
    if tokens is None:
        # If the only fault is an open quote or comment, the user continues.
        closings = (*_QUOTES, " */" * text.count("/*"))
        unclosed = any(_tokens(text + closing) is not None for closing in closings)
        return text.rstrip().endswith(";") and not unclosed
    return not tokens or tokens[-1].is_symbol(";")


def read_entry(text: str) -> Entry:
    """Parse an input; raise UserError for an unknown command. Do not check statements."""
    if _word(text) in _WORDS:
        return _WORDS[_word(text)]
    watch = _ending(text, _WATCH)
    if watch is not None:
        head = text[: watch.start()]
        run = _run(head) if head.strip() else None
        return Watch(run=run, interval=_interval(watch[1].strip()))
    command = _COMMAND.match(text)
    if command is not None:
        return _command(command[1], argument=(command[2] or "").strip())
    return _run(text)


def _run(text: str) -> Run:
    ending = _ending(text, _VERTICAL)
    return Run(text=text[: ending.start()] if ending else text, vertical=ending is not None)


def _command(name: str, *, argument: str) -> Entry:
    if name.lower() == "timing":
        if argument.lower() not in _TIMING:
            raise UserError(
                f'\\timing must be on or off, not "{argument}"', code=Code.SYNTAX_ERR
            )
        return Timing(shown=_TIMING[argument.lower()])
    if name.lower() not in _COMMANDS:
        raise UserError(
            f'command "\\{name}" does not exist',
            code=Code.SYNTAX_ERR,
            hint="Type \\? for a list of commands.",
        )
    return _COMMANDS[name.lower()]


def _interval(text: str) -> timedelta:
    interval = parse_duration(text, what="the interval of \\watch") if text else WATCH_INTERVAL
    if interval < WATCH_INTERVAL_MIN:
        raise UserError(
            f'the interval of \\watch must be at least 100ms, not "{text}"',
            code=Code.OPTION_ERR,
        )
    return interval


def _word(text: str) -> str:
    return text.strip().rstrip(";").strip().lower()


def _ending(text: str, pattern: re.Pattern[str]) -> re.Match[str] | None:
    """Match a pattern at the end of a text, outside of quotes and comments."""
    found = pattern.search(text)
    return found if found and outside(text[: found.start()]) else None


def outside(text: str) -> bool:
    """Return whether the end of a text is outside of quotes and comments."""
    tokens = _tokens(f"{text}\\")
    return bool(tokens and tokens[-1].start == len(text))


def _tokens(text: str) -> tuple[Token, ...] | None:
    """Return the tokens of a text; None if the lexer raises."""
    try:
        return tokenize(read_script(text))
    except UserError:
        return None
