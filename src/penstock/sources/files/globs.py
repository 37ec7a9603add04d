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

A wildcard at the start of a name does not match a dot there, as in a shell; a dot that is
written in the pattern does.

Invariant: matching takes time linear in the length of the key, for every pattern. The states
of an automaton are followed all at once, so nothing is tried twice. A regular expression would
backtrack: braces can give one key exponentially many ways through a pattern.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial, reduce

from penstock.errors import UserError
from penstock.storage.store import FolderMissingError, ObjectMeta, Store
from penstock.storage.uris import Uri

PATTERN_CHARS_MAX = 32_768
BRACES_DEPTH_MAX = 32
PREFIXES_MAX = 256
_PREFIX_CHARS_MAX = 1024
_KEPT_MAX = 262_144

_NUMBER_RANGE = re.compile(r"(-?)([0-9]{1,18})\.\.(-?)([0-9]{1,18})(?=[,}])")


@dataclass(frozen=True, slots=True)
class _Chars:
    """A set of characters."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False

    def __contains__(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges) != self.negated

    def members(self) -> set[str] | None:
        """Return the characters of the set; None if they are more than prefixes may be."""
        spans = [range(ord(low), ord(high) + 1) for low, high in self.ranges]
        if self.negated or sum(map(len, spans)) > PREFIXES_MAX:
            return None
        return {chr(number) for span in spans for number in span}


_ANYTHING = _Chars(ranges=(), negated=True)
_NO_SLASH = _Chars(ranges=(("/", "/"),), negated=True)
_DIGIT = _Chars(ranges=(("0", "9"),))


@dataclass(slots=True)
class _State:
    """A place in the pattern: takes a character and goes to target, or skips without one.

    A wildcard does neither before the dot that starts a name.
    """

    takes: _Chars | None = None
    target: int = 0
    skips: tuple[int, ...] = ()
    wildcard: bool = False


class _Parser:
    """Reads a pattern into states; the first one starts it.

    Every method that reads a part completes the open state ``begin`` and returns the open
    state after the part.
    """

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_CHARS_MAX:
            raise UserError(
                f'pattern "{pattern[:40]}…" must have at most {PATTERN_CHARS_MAX} characters, '
                f"not {len(pattern)}"
            )
        self._pattern = pattern
        self._at = 0
        self.states: list[_State] = []
        # The fixed texts with which matches start: those that still grow, and the others.
        self.growing, self.ended = {""}, set[str]()
        self.end = self._sequence(self._open(), depth=0)

    def _open(self) -> int:
        self.states.append(_State())
        return len(self.states) - 1

    def _grow(self, grown: set[str], stopped: set[str]) -> None:
        longest = max(map(len, grown), default=0)
        # Stopping early is always right: a shorter prefix only lists more.
        if len(grown | stopped | self.ended) > PREFIXES_MAX or longest > _PREFIX_CHARS_MAX:
            grown, stopped = set(), self.growing
        self.growing, self.ended = grown, self.ended | stopped

    def _take(self, begin: int, chars: _Chars, *, wildcard: bool = False) -> int:
        members = chars.members()
        if members is None:
            self._grow(set(), self.growing)
        else:
            self._grow({text + char for text in self.growing for char in members}, set())
        end = self._open()
        self.states[begin] = _State(takes=chars, target=end, wildcard=wildcard)
        return end

    def _sequence(self, begin: int, *, depth: int) -> int:
        end = ",}" if depth else ""
        while self._peek() and self._peek() not in end:
            match self._peek():
                case "*":
                    begin = self._stars(begin)
                case "?":
                    self._at += 1
                    begin = self._take(begin, _NO_SLASH, wildcard=True)
                case "[":
                    begin = self._take(begin, self._bracket(), wildcard=True)
                case "{":
                    begin = self._brace(begin, depth=depth + 1)
                case _:
                    begin = self._take(begin, _only(self._char()))
        return begin

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _char(self) -> str:
        """Read one character, or the one after a backslash."""
        if self._peek() == "\\":
            self._at += 1
            if not self._peek():
                fault = "which has nothing to escape"
                raise self._broken(r'ends with "\"', self._at - 1, fault)
        self._at += 1
        return self._pattern[self._at - 1]

    def _stars(self, begin: int) -> int:
        first = self._at
        while self._peek() == "*":
            self._at += 1
        self._grow(set(), self.growing)
        whole_part = first == 0 or self._pattern[first - 1] == "/"
        if self._at - first > 1 and whole_part and self._peek() == "/":
            self._at += 1
            name, slash, end = self._open(), self._open(), self._open()
            self.states[begin] = _State(skips=(end, name))
            more = self._take(name, _NO_SLASH, wildcard=True)
            self.states[more] = _State(takes=_NO_SLASH, target=more, skips=(slash,))
            self.states[slash] = _State(takes=_only("/"), target=begin)
            return end
        chars = _NO_SLASH if self._at - first == 1 else _ANYTHING
        end = self._open()
        self.states[begin] = _State(takes=chars, target=begin, skips=(end,), wildcard=True)
        return end

    def _bracket(self) -> _Chars:
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
            return _Chars(ranges=(*ranges, ("/", "/")), negated=True)
        return _Chars(ranges=tuple(_without_slash(ranges)))

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

    def _brace(self, begin: int, *, depth: int) -> int:
        opened = self._at
        if depth > BRACES_DEPTH_MAX:
            fault = f"deeper than {BRACES_DEPTH_MAX} braces"
            raise self._broken('opens "{"', opened, fault)
        starts: list[int] = []
        ends: list[int] = []
        before, ended = self.growing, self.ended
        grown, stopped = set[str](), set[str]()

        def branch(parse: Callable[[int], int]) -> None:
            self.growing, self.ended = before, set()
            starts.append(self._open())
            ends.append(parse(starts[-1]))
            grown.update(self.growing)
            stopped.update(self.ended)

        while self._peek() != "}":
            # Steps over the opening brace first, then over each comma.
            self._at += 1
            if numbers := _NUMBER_RANGE.match(self._pattern, self._at):
                self._at = numbers.end()
                for digits in _digit_patterns(numbers):
                    branch(partial(reduce, self._take, digits))
            else:
                branch(partial(self._sequence, depth=depth))
            if not self._peek():
                raise self._broken('opens "{"', opened, 'which needs a "}"')
        self._at += 1
        self.growing, self.ended = before, ended
        self._grow(grown, stopped)
        joined = self._open()
        self.states[begin] = _State(skips=tuple(starts))
        for end in ends:
            self.states[end] = _State(skips=(joined,))
        return joined

    def _broken(self, what: str, at: int, fault: str) -> UserError:
        return UserError(
            f'pattern "{self._pattern}" {what} at position {at + 1}, {fault}',
            hint=r"To mean the character itself, write \ before it.",
        )


def _only(char: str) -> _Chars:
    return _Chars(ranges=((char, char),))


def _without_slash(ranges: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for low, high in ranges:
        pieces = ((low, min(high, ".")), (max(low, "0"), high)) if low <= "/" <= high else ()
        for piece in pieces or ((low, high),):
            if piece[0] <= piece[1]:
                yield piece


def _digit_patterns(numbers: re.Match[str]) -> Iterator[list[_Chars]]:
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
        head = [_only(char) for char in str(low // block)[:-1]]
        digits = _Chars(ranges=((str(digit), str(digit + blocks - 1)),))
        yield [*head, digits, *([_DIGIT] * (len(str(block)) - 1))]
        low += blocks * block


@dataclass(slots=True, eq=False, kw_only=True)
class _Moment:
    """All the states that a text leads to, and the moments that follow, as far as known."""

    states: frozenset[int]
    name_begins: bool
    accepting: bool
    following: dict[str, "_Moment"] = field(default_factory=dict)


class Glob:
    """A pattern of keys as an automaton; one that ends with a slash means all files there."""

    _moments: dict[tuple[frozenset[int], bool], _Moment]
    _first: _Moment
    _last: tuple[str, _Moment]
    _kept: int

    def __init__(self, pattern: str) -> None:
        parsed = _Parser(pattern + "*" if pattern.endswith("/") else pattern)
        self._states = parsed.states
        self._end = parsed.end
        self._forget()
        # Folders to list, each with its slash, in byte order; none is within another.
        self.prefixes = _folders(parsed.growing | parsed.ended)

    def matches(self, key: str) -> bool:
        """Return whether the whole key matches."""
        # Many keys in a row share their folder, which is then followed only once.
        name_at = key.rfind("/") + 1
        return self._follow(self._after_folder(key[:name_at]), key[name_at:]).accepting

    def may_contain(self, folder: str) -> bool:
        """Return whether a matching key may be below the folder, which ends with a slash."""
        return bool(self._after_folder(folder).states)

    def _after_folder(self, folder: str) -> _Moment:
        last_folder, moment = self._last
        if last_folder != folder:
            moment = self._follow(self._first, folder)
            self._last = (folder, moment)
        return moment

    def _follow(self, moment: _Moment, text: str) -> _Moment:
        for char in text:
            moment = moment.following.get(char) or self._step(moment, char)
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
        moment.following[char] = following = self._moment(targets, name_begins=char == "/")
        return following

    def _reached(self, begin: frozenset[int], *, dot_begins: bool) -> set[int]:
        """Return these states, and those to which skips lead from them."""
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
            accepting = self._end in self._reached(states, dot_begins=False)
            moment = _Moment(states=states, name_begins=name_begins, accepting=accepting)
            self._moments[states, name_begins] = moment
        return moment

    def _forget(self) -> None:
        """Start with nothing known, so that odd names cannot fill the memory."""
        self._kept = 0
        self._moments = {}
        self._first = self._moment(frozenset({0}), name_begins=True)
        self._last = ("", self._first)


def _folders(texts: set[str]) -> tuple[str, ...]:
    kept: list[str] = []
    # The order of code points, which is how Python compares text, is that of UTF-8 bytes.
    for folder in sorted({text[: text.rfind("/") + 1] for text in texts}):
        if not kept or not folder.startswith(kept[-1]):
            kept.append(folder)
    return tuple(kept)


def files_glob(uri: Uri) -> Glob:
    """Return the pattern of keys; a bucket by itself means the objects at its top."""
    return Glob(uri.key or "*")


def list_all(
    store: Store, glob: Glob, *, after: Callable[[str], str] | None = None
) -> Iterator[ObjectMeta]:
    """Yield every matching object once, in the byte order of the keys if the store keeps it.

    ``after`` returns, for a prefix, the key after which its listing starts. A folder that one
    alternative of the pattern names may be missing, such as a day still to come;
    FolderMissingError is raised when all of them are.
    """
    missing: list[FolderMissingError] = []
    # The prefixes are sorted and none is within another, so every key of one comes before
    # every key of the next: one after the other is already the merge of all.
    for prefix in glob.prefixes:
        begin = after(prefix) if after is not None else ""
        if begin > prefix and not begin.startswith(prefix):
            # All keys of the prefix are before the start.
            continue
        try:
            yield from store.list(
                prefix, selection=glob, after=begin if begin.startswith(prefix) else ""
            )
        except FolderMissingError as error:
            missing.append(error)
    if missing and len(missing) == len(glob.prefixes):
        raise missing[0]
