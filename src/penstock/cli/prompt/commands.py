r"""What is typed at the prompt: statements, or commands that begin with a backslash.

Whether a text is finished is the lexer's to say: a semicolon in quotes or in a comment ends
nothing, and neither does a ``\G`` there.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from penstock.errors import Code, UserError
from penstock.model.options import parse_duration
from penstock.sql.lexer import Token, TokenKind, read_script, tokenize

WATCH_INTERVAL = timedelta(seconds=2)
WATCH_INTERVAL_MIN = timedelta(milliseconds=100)

_VERTICAL = re.compile(r"\\G\s*;?\s*\Z")
_WATCH = re.compile(r"\\watch\b([^\\'\"`;]*);?\s*\Z", re.IGNORECASE)
_COMMAND = re.compile(r"\s*\\(\S*?)\s*(?:\s([^;]*))?;?\s*\Z")
_QUOTES = ("'", '"', "`")


class Command(StrEnum):
    """What can be asked of the prompt itself, by the names it is typed with."""

    HELP = "help"
    QUIT = "quit"
    EDIT = "edit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Run statements; none of them is no error."""

    text: str
    vertical: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Run statements again and again; without any, the last ones."""

    run: Run | None
    interval: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Show how long statements take, or not; None changes it."""

    shown: bool | None


Entry = Run | Watch | Timing | Command

_WORDS = {
    "help": Command.HELP,
    "?": Command.HELP,
    "exit": Command.QUIT,
    "quit": Command.QUIT,
}
_COMMANDS = {
    "?": Command.HELP,
    "h": Command.HELP,
    "help": Command.HELP,
    "q": Command.QUIT,
    "quit": Command.QUIT,
    "e": Command.EDIT,
}
# What is completed behind a backslash, with what it does.
MEANING_BY_COMMAND = {
    "\\?": "list what can be typed",
    "\\watch 2s": "run the last statement again every 2 seconds",
    "\\timing": "show how long statements take, or not",
    "\\e": "edit the last statement in $EDITOR",
    "\\q": "leave",
}
MEANING_BY_ENDING = {
    "\\G": "print the result vertically",
    "\\watch 2s": "run it again every 2 seconds",
}


def finished(text: str) -> bool:
    """Tell whether a text can be run as it stands, or goes on in another line."""
    if not text.strip() or text.lstrip().startswith("\\") or _word(text) in _WORDS:
        return True
    if _ending(text, _VERTICAL) or _ending(text, _WATCH):
        return True
    tokens = _tokens(text)
    if tokens is None:
        return text.rstrip().endswith(";") and not _unclosed(text)
    return not tokens or _is_semicolon(tokens[-1])


def read_entry(text: str) -> Entry:
    """Read what was typed; only commands are checked, statements are the parser's."""
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
        return Timing(shown=_shown(argument))
    if name.lower() not in _COMMANDS:
        raise UserError(
            f'command "\\{name}" does not exist',
            code=Code.SYNTAX_ERR,
            hint="Type \\? to see what can be typed.",
        )
    return _COMMANDS[name.lower()]


def _shown(argument: str) -> bool | None:
    shown_by_word = {"": None, "on": True, "off": False}
    if argument.lower() not in shown_by_word:
        raise UserError(f'\\timing must be on or off, not "{argument}"', code=Code.SYNTAX_ERR)
    return shown_by_word[argument.lower()]


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
    """Find what stands at the end of a text, outside of quotes and comments."""
    found = pattern.search(text)
    return found if found and outside(text[: found.start()]) else None


def outside(text: str) -> bool:
    """Tell whether the end of a text lies outside of quotes and comments."""
    tokens = _tokens(f"{text}\\")
    return bool(tokens and tokens[-1].start == len(text))


def _tokens(text: str) -> tuple[Token, ...] | None:
    """Answer the tokens of a text; None if it cannot be split into any."""
    try:
        return tokenize(read_script(text))
    except UserError:
        return None


def _unclosed(text: str) -> bool:
    """Tell whether a text would be understood if a quote or comment in it were closed."""
    closings = (*_QUOTES, " */" * text.count("/*"))
    return any(_tokens(text + closing) is not None for closing in closings)


def _is_semicolon(token: Token) -> bool:
    return token.kind is TokenKind.SYMBOL and token.text == ";"
