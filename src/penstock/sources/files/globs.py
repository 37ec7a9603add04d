r"""Match keys against a glob, and list the folders that can hold matches.

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

A wildcard at the beginning of a name does not match a dot there, as in a shell; a dot that is
written in the pattern does.

Invariant: matching takes time linear in the length of the key, whatever the pattern. A pattern
becomes an automaton whose states are followed all at once, so that nothing is ever tried again;
a regular expression with several ``*`` would backtrack.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, assert_never

from penstock.errors import UserError
from penstock.storage.uris import Uri

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


PREFIXES_MAX = 256
_PREFIX_CHARS_MAX = 1024
_KEPT_MAX = 262_144


@dataclass(frozen=True, slots=True, kw_only=True)
class Glob:
    """A pattern of keys, ready to be asked."""

    pattern: str
    prefixes: tuple[str, ...]
    """Folders to list, each with its slash, in byte order; none lies within another."""
    _automaton: "_Automaton" = field(repr=False, compare=False)

    def matches(self, key: str) -> bool:
        """Answer whether the whole key matches."""
        return self._automaton.accepts(key)

    def may_contain(self, folder: str) -> bool:
        """Answer whether a matching key may lie below the folder, which ends with a slash."""
        return self._automaton.lives_after(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return compile_glob, (self.pattern,)


def compile_glob(pattern: str) -> Glob:
    """Make a pattern ready; one that ends with a slash means every file in that folder."""
    nodes = parse_glob(pattern + "*" if pattern.endswith("/") else pattern)
    return Glob(pattern=pattern, prefixes=_prefixes(nodes), _automaton=_Automaton(nodes))


def files_glob(uri: Uri) -> Glob:
    """Answer the pattern of keys; a bucket by itself means the objects at its top."""
    return compile_glob(uri.key or "*")


def _prefixes(nodes: Sequence) -> tuple[str, ...]:
    growing, ended = _beginnings(nodes, {""})
    folders = {text[: text.rfind("/") + 1] for text in growing | ended}
    kept: list[str] = []
    # The order of code points, which is how Python compares text, is that of UTF-8 bytes.
    for folder in sorted(folders):
        if not kept or not folder.startswith(kept[-1]):
            kept.append(folder)
    return tuple(kept)


def _beginnings(nodes: Sequence, growing: set[str]) -> tuple[set[str], set[str]]:
    """Extend texts by what is fixed; answer those still fixed at the end, then the others."""
    ended: set[str] = set()
    for node in nodes:
        grown, stopped = _extended(node, growing)
        longest = max(map(len, grown), default=0)
        # Stopping early is always right: a shorter prefix only lists more.
        if len(grown | stopped | ended) > PREFIXES_MAX or longest > _PREFIX_CHARS_MAX:
            grown, stopped = set(), growing
        growing = grown
        ended |= stopped
    return growing, ended


def _extended(node: Node, texts: set[str]) -> tuple[set[str], set[str]]:
    match node:
        case Text(text=text):
            return {begin + text for begin in texts}, set()
        case One(chars=chars):
            members = chars.members(count_max=PREFIXES_MAX)
            if members is None:
                return set(), texts
            return {begin + char for begin in texts for char in members}, set()
        case Either(branches=branches):
            grown: set[str] = set()
            stopped: set[str] = set()
            for branch in branches:
                grown_here, stopped_here = _beginnings(branch, texts)
                grown |= grown_here
                stopped |= stopped_here
            return grown, stopped
        case Many() | AnyFolders():
            return set(), texts
        case _:
            assert_never(node)


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """A place in the pattern: takes a character and goes to target, or skips without one.

    A wildcard does neither before the dot that begins a name.
    """

    takes: Chars | None = None
    target: int = 0
    skips: tuple[int, ...] = ()
    wildcard: bool = False


class _Moment:
    """All the states that a text has led to, and the moments that follow, as far as known."""

    __slots__ = ("accepting", "following", "name_begins", "states")

    def __init__(self, states: frozenset[int], *, name_begins: bool, accepting: bool) -> None:
        self.states = states
        self.name_begins = name_begins
        self.accepting = accepting
        self.following: dict[str, _Moment] = {}


class _Automaton:
    """The states of a pattern; state 0 is the end of it."""

    _moments: dict[tuple[frozenset[int], bool], _Moment]
    _first: _Moment
    _last: tuple[str, _Moment]
    _kept: int

    def __init__(self, nodes: Sequence) -> None:
        self._states = [_State()]
        self._begin = frozenset({self._add_sequence(nodes, 0)})
        self._forget()

    def accepts(self, text: str) -> bool:
        # Many keys in a row share their folder, which is then followed only once.
        name_at = text.rfind("/") + 1
        return self._follow(self._after_folder(text[:name_at]), text[name_at:]).accepting

    def lives_after(self, folder: str) -> bool:
        return bool(self._after_folder(folder).states)

    def _add_sequence(self, nodes: Sequence, target: int) -> int:
        for node in reversed(nodes):
            target = self._add(node, target)
        return target

    def _add(self, node: Node, target: int) -> int:
        """Add the states of a node that lead to the target; answer the first of them."""
        here = len(self._states)
        match node:
            case Text(text=text):
                for char in reversed(text):
                    self._states.append(_State(takes=_only(char), target=target))
                    target = len(self._states) - 1
                return target
            case One(chars=chars, wildcard=wildcard):
                self._states.append(_State(takes=chars, target=target, wildcard=wildcard))
            case Many(chars=chars):
                loop = _State(takes=chars, target=here, skips=(target,), wildcard=True)
                self._states.append(loop)
            case AnyFolders():
                self._states += (
                    _State(skips=(target, here + 1)),
                    _State(takes=NO_SLASH, target=here + 2, wildcard=True),
                    _State(takes=NO_SLASH, target=here + 2, skips=(here + 3,)),
                    _State(takes=_only("/"), target=here),
                )
            case Either(branches=branches):
                skips = tuple(self._add_sequence(branch, target) for branch in branches)
                self._states.append(_State(skips=skips))
                return len(self._states) - 1
            case _:
                assert_never(node)
        return here

    def _after_folder(self, folder: str) -> _Moment:
        last_folder, moment = self._last
        if last_folder != folder:
            moment = self._follow(self._first, folder)
            self._last = (folder, moment)
        return moment

    def _follow(self, moment: _Moment, text: str) -> _Moment:
        for char in text:
            following = moment.following.get(char)
            moment = self._step(moment, char) if following is None else following
            if not moment.states:
                break
        return moment

    def _step(self, moment: _Moment, char: str) -> _Moment:
        dot_begins = moment.name_begins and char == "."
        targets = frozenset(
            state.target
            for number in self._reached(moment.states, dot_begins=dot_begins)
            if (state := self._states[number]).takes is not None
            and char in state.takes
            and not (dot_begins and state.wildcard)
        )
        if self._kept > _KEPT_MAX:
            self._forget()
        self._kept += 1 + len(targets)
        following = self._moment(targets, name_begins=char == "/")
        moment.following[char] = following
        return following

    def _reached(self, begin: frozenset[int], *, dot_begins: bool) -> set[int]:
        """Answer the states to which skips lead from these, and these themselves."""
        reached = set(begin)
        waiting = list(begin)
        while waiting:
            state = self._states[waiting.pop()]
            if not (dot_begins and state.wildcard):
                new = [number for number in state.skips if number not in reached]
                reached.update(new)
                waiting += new
        return reached

    def _moment(self, states: frozenset[int], *, name_begins: bool) -> _Moment:
        moment = self._moments.get((states, name_begins))
        if moment is None:
            accepting = 0 in self._reached(states, dot_begins=False)
            moment = _Moment(states, name_begins=name_begins, accepting=accepting)
            self._moments[states, name_begins] = moment
        return moment

    def _forget(self) -> None:
        """Begin with nothing known, so that odd names cannot fill the memory."""
        self._kept = 0
        self._moments = {}
        self._first = self._moment(self._begin, name_begins=True)
        self._last = ("", self._first)


def _only(char: str) -> Chars:
    return Chars(ranges=((char, char),))
