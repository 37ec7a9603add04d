r"""Match keys against a glob, and list only the folders that can contain matches.

=============  ==================================================================
``*``          zero or more characters except ``/``
``**``         zero or more characters, including ``/``; as a whole part of a path,
               ``/**/``, zero or more folders
``?``          one character except ``/``
``[ab0-9]``    one of these characters; ``[!a]`` or ``[^a]`` one of all others
``{a,b*}``     one of these patterns, which can contain further braces
``{1..3,7}``   one of these numbers, without leading zeros; ``{3..1}`` is the same range;
               a range with a negative end matches nothing
``\*``         the character itself
=============  ==================================================================

As in a shell, a wildcard does not match a dot at the start of a name. A dot in the pattern
matches it.

Invariant: the time of a match is linear in the length of the key, for every pattern. All
states of an automaton are followed at once, so there is no backtracking. A regular expression
would backtrack: with braces, one key can match in exponentially many ways.
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
_CACHED_MAX = 262_144

_NUMBER_RANGE = re.compile(r"(-?)([0-9]{1,18})\.\.(-?)([0-9]{1,18})(?=[,}])")


@dataclass(frozen=True, slots=True)
class _Chars:
    """A set of characters."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False

    def __contains__(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges) != self.negated

    def members(self) -> set[str] | None:
        """Return the characters of the set; None if there are more than ``PREFIXES_MAX``."""
        spans = [range(ord(low), ord(high) + 1) for low, high in self.ranges]
        if self.negated or sum(map(len, spans)) > PREFIXES_MAX:
            return None
        return {chr(number) for span in spans for number in span}


_ANYTHING = _Chars(ranges=(), negated=True)
_NO_SLASH = _Chars(ranges=(("/", "/"),), negated=True)
_DIGIT = _Chars(ranges=(("0", "9"),))


@dataclass(slots=True)
class _State:
    """A state of the automaton.

    A state either consumes one of ``chars`` and moves to ``target``, or consumes nothing and
    moves to one of ``skips``. At a dot that starts a name, a wildcard state does neither.
    """

    chars: _Chars | None = None
    target: int = 0
    skips: tuple[int, ...] = ()
    wildcard: bool = False


class _Parser:
    """Parses a pattern into states; state 0 is the initial state.

    Each parsing method fills in the empty state ``start``. It returns the empty state that
    follows the parsed part.
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
        # Fixed prefixes of matching keys: prefixes that can still grow, and complete ones.
        self.growing, self.ended = {""}, set[str]()
        self.end = self._sequence(self._open(), depth=0)

    def _open(self) -> int:
        self.states.append(_State())
        return len(self.states) - 1

    def _grow(self, grown: set[str], stopped: set[str]) -> None:
        longest = max(map(len, grown), default=0)
        # If the prefixes become too many or too long, they are not extended. Shorter prefixes
        # are correct too, but list more keys.
        if len(grown | stopped | self.ended) > PREFIXES_MAX or longest > _PREFIX_CHARS_MAX:
            grown, stopped = set(), self.growing
        self.growing, self.ended = grown, self.ended | stopped

    def _consume(self, start: int, chars: _Chars, *, wildcard: bool = False) -> int:
        members = chars.members()
        if members is None:
            self._grow(set(), self.growing)
        else:
            self._grow({text + char for text in self.growing for char in members}, set())
        end = self._open()
        self.states[start] = _State(chars=chars, target=end, wildcard=wildcard)
        return end

    def _sequence(self, start: int, *, depth: int) -> int:
        end = ",}" if depth else ""
        while self._peek() and self._peek() not in end:
            match self._peek():
                case "*":
                    start = self._stars(start)
                case "?":
                    self._at += 1
                    start = self._consume(start, _NO_SLASH, wildcard=True)
                case "[":
                    start = self._consume(start, self._bracket(), wildcard=True)
                case "{":
                    start = self._brace(start, depth=depth + 1)
                case _:
                    start = self._consume(start, _only(self._char()))
        return start

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _char(self) -> str:
        """Read one character; a backslash escapes the next character."""
        if self._peek() == "\\":
            self._at += 1
            if not self._peek():
                fault = "with nothing to escape"
                raise self._broken(r'ends with "\"', self._at - 1, fault)
        self._at += 1
        return self._pattern[self._at - 1]

    def _stars(self, start: int) -> int:
        first = self._at
        while self._peek() == "*":
            self._at += 1
        self._grow(set(), self.growing)
        whole_part = first == 0 or self._pattern[first - 1] == "/"
        if self._at - first > 1 and whole_part and self._peek() == "/":
            self._at += 1
            name, slash, end = self._open(), self._open(), self._open()
            self.states[start] = _State(skips=(end, name))
            more = self._consume(name, _NO_SLASH, wildcard=True)
            self.states[more] = _State(chars=_NO_SLASH, target=more, skips=(slash,))
            self.states[slash] = _State(chars=_only("/"), target=start)
            return end
        chars = _NO_SLASH if self._at - first == 1 else _ANYTHING
        end = self._open()
        self.states[start] = _State(chars=chars, target=start, skips=(end,), wildcard=True)
        return end

    def _bracket(self) -> _Chars:
        start = self._at
        self._at += 1
        negated = self._peek() != "" and self._peek() in "!^"
        self._at += negated
        # As in a shell, a closing bracket in first place is a character of the set.
        ranges = [self._bracket_range(start)]
        while self._peek() != "]":
            ranges.append(self._bracket_range(start))
        self._at += 1
        if negated:
            return _Chars(ranges=(*ranges, ("/", "/")), negated=True)
        return _Chars(ranges=tuple(_without_slash(ranges)))

    def _bracket_range(self, start: int) -> tuple[str, str]:
        low = high = self._bracket_char(start)
        if self._peek() == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("", "]"):
            self._at += 1
            high = self._bracket_char(start)
        if high < low:
            fault = f'where the range "{low}-{high}" is in the wrong order'
            raise self._broken('opens "["', start, fault)
        return low, high

    def _bracket_char(self, start: int) -> str:
        if not self._peek():
            raise self._broken('opens "["', start, 'which needs a "]"')
        return self._char()

    def _brace(self, start: int, *, depth: int) -> int:
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
            # Skip the opening brace or the comma.
            self._at += 1
            if numbers := _NUMBER_RANGE.match(self._pattern, self._at):
                self._at = numbers.end()
                for digits in _digit_patterns(numbers):
                    branch(partial(reduce, self._consume, digits))
            else:
                branch(partial(self._sequence, depth=depth))
            if not self._peek():
                raise self._broken('opens "{"', opened, 'which needs a "}"')
        self._at += 1
        self.growing, self.ended = before, ended
        self._grow(grown, stopped)
        joined = self._open()
        self.states[start] = _State(skips=tuple(starts))
        for end in ends:
            self.states[end] = _State(skips=(joined,))
        return joined

    def _broken(self, what: str, at: int, fault: str) -> UserError:
        return UserError(
            f'pattern "{self._pattern}" {what} at position {at + 1}, {fault}',
            hint=r"To match the character itself, write \ before it.",
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
    """Yield the digit patterns of a range of numbers: 8..35 as 8-9, 1-2 0-9, 3 0-5."""
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
class _StateSet:
    """All states after some text, and a cache of the sets that follow."""

    states: frozenset[int]
    at_name_start: bool
    accepting: bool
    following: dict[str, "_StateSet"] = field(default_factory=dict)


class Glob:
    """A pattern of keys; a pattern that ends with a slash matches all files in the folder."""

    _state_sets: dict[tuple[frozenset[int], bool], _StateSet]
    _first: _StateSet
    _last: tuple[str, _StateSet]
    _cached: int

    def __init__(self, pattern: str) -> None:
        parsed = _Parser(pattern + "*" if pattern.endswith("/") else pattern)
        self._states = parsed.states
        self._end = parsed.end
        self._clear_cache()
        # Folders to list, with a final slash, in byte order; none is inside another one.
        self.prefixes = _folders(parsed.growing | parsed.ended)

    def matches(self, key: str) -> bool:
        """Return whether the whole key matches."""
        # Consecutive keys often have the same folder, so its states are cached.
        name_at = key.rfind("/") + 1
        return self._follow(self._after_folder(key[:name_at]), key[name_at:]).accepting

    def may_contain(self, folder: str) -> bool:
        """Return whether the folder can contain matching keys; its name ends with a slash."""
        return bool(self._after_folder(folder).states)

    def _after_folder(self, folder: str) -> _StateSet:
        last_folder, state_set = self._last
        if last_folder != folder:
            state_set = self._follow(self._first, folder)
            self._last = (folder, state_set)
        return state_set

    def _follow(self, state_set: _StateSet, text: str) -> _StateSet:
        for char in text:
            state_set = state_set.following.get(char) or self._step(state_set, char)
            if not state_set.states:
                break
        return state_set

    def _step(self, state_set: _StateSet, char: str) -> _StateSet:
        leading_dot = state_set.at_name_start and char == "."
        targets = frozenset(
            state.target
            for number in self._reached(state_set.states, leading_dot=leading_dot)
            if (state := self._states[number]).chars is not None
            and char in state.chars
            and not (leading_dot and state.wildcard)
        )
        if self._cached > _CACHED_MAX:
            self._clear_cache()
        self._cached += 1 + len(targets)
        state_set.following[char] = following = self._state_set(
            targets, at_name_start=char == "/"
        )
        return following

    def _reached(self, start: frozenset[int], *, leading_dot: bool) -> set[int]:
        """Return the states, and all states that are reached from them by skips."""
        reached = set(start)
        waiting = list(start)
        while waiting:
            state = self._states[waiting.pop()]
            if not (leading_dot and state.wildcard):
                new = [number for number in state.skips if number not in reached]
                reached.update(new)
                waiting += new
        return reached

    def _state_set(self, states: frozenset[int], *, at_name_start: bool) -> _StateSet:
        state_set = self._state_sets.get((states, at_name_start))
        if state_set is None:
            accepting = self._end in self._reached(states, leading_dot=False)
            state_set = _StateSet(
                states=states, at_name_start=at_name_start, accepting=accepting
            )
            self._state_sets[states, at_name_start] = state_set
        return state_set

    def _clear_cache(self) -> None:
        """Empty the cache, so that many different names cannot exhaust the memory."""
        self._cached = 0
        self._state_sets = {}
        self._first = self._state_set(frozenset({0}), at_name_start=True)
        self._last = ("", self._first)


def _folders(texts: set[str]) -> tuple[str, ...]:
    kept: list[str] = []
    # Python sorts text by code points. A sort by UTF-8 bytes has the same order.
    for folder in sorted({text[: text.rfind("/") + 1] for text in texts}):
        if not kept or not folder.startswith(kept[-1]):
            kept.append(folder)
    return tuple(kept)


def files_glob(uri: Uri) -> Glob:
    """Return the pattern of a URI; a bucket without a key means its top-level objects."""
    return Glob(uri.key or "*")


def list_all(
    store: Store, glob: Glob, *, after: Callable[[str], str] | None = None
) -> Iterator[ObjectMeta]:
    """Yield each matching object once, in byte order if the store lists in byte order.

    ``after`` takes a prefix and returns the key after which the listing of the prefix starts.
    Some folders of the pattern may be missing, such as the folder of a future day. Raises
    FolderMissingError if all folders are missing.
    """
    missing: list[FolderMissingError] = []
    # The prefixes are sorted and none is inside another one. So every key of a prefix comes
    # before every key of the next prefix, and no merge is needed.
    for prefix in glob.prefixes:
        start = after(prefix) if after is not None else ""
        if start > prefix and not start.startswith(prefix):
            # All keys of the prefix sort before ``start``.
            continue
        try:
            yield from store.list(
                prefix, selection=glob, after=start if start.startswith(prefix) else ""
            )
        except FolderMissingError as error:
            missing.append(error)
    if missing and len(missing) == len(glob.prefixes):
        raise missing[0]
