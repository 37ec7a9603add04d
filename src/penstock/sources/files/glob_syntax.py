r"""Read a pattern of keys into its parts.

=============  ==================================================================
``*``          any characters but ``/``, also none
``**``         any characters, ``/`` too; as a whole part of a path, ``/**/``, any
               number of folders, also none
``?``          one character but ``/``
``[ab0-9]``    one of these characters; ``[!a]`` or ``[^a]`` one of all others
``{a,b*}``     one of these patterns, which may hold braces again
``{1..3,7}``   one of these numbers, as they are written without leading zeros; the
               ends may be swapped, a range with a negative end matches nothing
``\*``         the character itself
=============  ==================================================================
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from penstock.errors import UserError

PATTERN_CHARS_MAX = 32_768
BRACES_DEPTH_MAX = 32

_NUMBER_RANGE = re.compile(r"(-?)([0-9]{1,18})\.\.(-?)([0-9]{1,18})")
_HINT_ESCAPE = r"To mean the character itself, write \ before it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Chars:
    """A set of characters."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False

    def __contains__(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges) != self.negated

    def members(self, *, count_max: int) -> str | None:
        """Answer the characters of the set, or None when they are too many."""
        spans = [range(ord(low), ord(high) + 1) for low, high in self.ranges]
        if self.negated or sum(len(span) for span in spans) > count_max:
            return None
        return "".join(chr(number) for span in spans for number in span)


ANYTHING = Chars(ranges=(), negated=True)
NO_SLASH = Chars(ranges=(("/", "/"),), negated=True)
DIGIT = Chars(ranges=(("0", "9"),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """These characters."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class One:
    """One character of a set; a wildcard refuses the dot that begins a name."""

    chars: Chars
    wildcard: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Many:
    """Any number of characters of a set, also none; a wildcard."""

    chars: Chars


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyFolders:
    """Any number of folders, also none, each with its slash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Either:
    """One of several sequences; of none, nothing."""

    branches: tuple["Sequence", ...]


Node = Text | One | Many | AnyFolders | Either
Sequence = tuple[Node, ...]


def parse_glob(pattern: str) -> Sequence:
    """Read a pattern; raise UserError with the position where it is broken."""
    if len(pattern) > PATTERN_CHARS_MAX:
        raise UserError(
            f'pattern "{pattern[:40]}…" must have at most {PATTERN_CHARS_MAX} characters, '
            f"not {len(pattern)}"
        )
    return _Parser(pattern).sequence(depth=0)


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def sequence(self, *, depth: int) -> Sequence:
        end = ",}" if depth else ""
        nodes: list[Node] = []
        while self._peek() and self._peek() not in end:
            nodes.append(self._node(depth=depth))
        return tuple(_joined(nodes))

    def _node(self, *, depth: int) -> Node:
        match self._peek():
            case "*":
                return self._stars()
            case "?":
                self._at += 1
                return One(chars=NO_SLASH)
            case "[":
                return self._bracket()
            case "{":
                return self._brace(depth=depth + 1)
            case _:
                return Text(text=self._char())

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _char(self) -> str:
        """Take one character, or the one after a backslash."""
        if self._peek() == "\\":
            self._at += 1
            if not self._peek():
                fault = "which has nothing to escape"
                raise self._broken(r'ends with "\"', self._at - 1, fault)
        self._at += 1
        return self._pattern[self._at - 1]

    def _stars(self) -> Node:
        begin = self._at
        while self._peek() == "*":
            self._at += 1
        if self._at - begin == 1:
            return Many(chars=NO_SLASH)
        if (begin == 0 or self._pattern[begin - 1] == "/") and self._peek() == "/":
            self._at += 1
            return AnyFolders()
        return Many(chars=ANYTHING)

    def _bracket(self) -> Node:
        begin = self._at
        self._at += 1
        negated = self._peek() != "" and self._peek() in "!^"
        self._at += negated
        # A closing bracket at the first place is one of the characters, as in a shell.
        ranges = [self._bracket_range(begin)]
        while self._peek() != "]":
            ranges.append(self._bracket_range(begin))
        self._at += 1
        if negated:
            return One(chars=Chars(ranges=(*ranges, ("/", "/")), negated=True))
        return One(chars=Chars(ranges=tuple(_without_slash(ranges))))

    def _bracket_range(self, begin: int) -> tuple[str, str]:
        low = high = self._bracket_char(begin)
        if self._peek() == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("", "]"):
            self._at += 1
            high = self._bracket_char(begin)
        if high < low:
            fault = f'where "{low}-{high}" runs backwards'
            raise self._broken('opens "["', begin, fault)
        return low, high

    def _bracket_char(self, begin: int) -> str:
        if not self._peek():
            raise self._broken('opens "["', begin, 'which needs a "]"')
        return self._char()

    def _brace(self, *, depth: int) -> Node:
        begin = self._at
        if depth > BRACES_DEPTH_MAX:
            fault = f"deeper than {BRACES_DEPTH_MAX} braces"
            raise self._broken('opens "{"', begin, fault)
        branches: list[Sequence] = []
        while self._peek() != "}":
            # Steps over the opening brace first, then over each comma.
            self._at += 1
            branch_begin = self._at
            branch = self.sequence(depth=depth)
            numbers = _NUMBER_RANGE.fullmatch(self._pattern, branch_begin, self._at)
            branches.extend(_range_branches(numbers) if numbers else [branch])
            if not self._peek():
                raise self._broken('opens "{"', begin, 'which needs a "}"')
        self._at += 1
        return Either(branches=tuple(branches))

    def _broken(self, what: str, at: int, fault: str) -> UserError:
        return UserError(
            f'pattern "{self._pattern}" {what} at position {at + 1}, {fault}',
            hint=_HINT_ESCAPE,
        )


def _joined(nodes: list[Node]) -> Iterator[Node]:
    """Join neighbouring texts into one."""
    for textual, group in groupby(nodes, key=lambda node: isinstance(node, Text)):
        if textual:
            yield Text(text="".join(node.text for node in group if isinstance(node, Text)))
        else:
            yield from group


def _without_slash(ranges: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for low, high in ranges:
        pieces = ((low, min(high, ".")), (max(low, "0"), high)) if low <= "/" <= high else ()
        for piece in pieces or ((low, high),):
            if piece[0] <= piece[1]:
                yield piece


def _range_branches(numbers: re.Match[str]) -> Iterator[Sequence]:
    """Write a range of numbers as few patterns of digits: 8..35 as 8-9, 1-2 0-9, 3 0-5."""
    if numbers[1] or numbers[3]:
        return
    low, last = sorted((int(numbers[2]), int(numbers[4])))
    while low <= last:
        block = 1
        while block * 10 <= low and low % (block * 10) == 0 and low + block * 10 <= last + 1:
            block *= 10
        digit = low // block % 10
        blocks = min(10 - digit, (last - low + 1) // block)
        digits = Chars(ranges=((str(digit), str(digit + blocks - 1)),))
        free = (One(chars=DIGIT, wildcard=False),) * (len(str(block)) - 1)
        head = str(low // block)[:-1]
        yield (Text(text=head), One(chars=digits, wildcard=False), *free)
        low += blocks * block
