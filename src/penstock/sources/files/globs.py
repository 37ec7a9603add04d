"""Match keys against a pattern, and know where matching keys can lie.

A wildcard at the beginning of a name does not match a dot there, as in a shell; a dot that is
written in the pattern does.

Invariant: matching takes time linear in the length of the key, whatever the pattern. A pattern
becomes an automaton whose states are followed all at once, so that nothing is ever tried again;
a regular expression with several ``*`` would backtrack.
"""

from dataclasses import dataclass, field
from typing import Any, assert_never

from penstock.sources.files.glob_syntax import (
    NO_SLASH,
    AnyFolders,
    Chars,
    Either,
    Many,
    Node,
    One,
    Sequence,
    Text,
    parse_glob,
)
from penstock.storage.uris import Uri

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
