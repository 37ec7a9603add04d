"""The parts of a history: a place with options, and steps."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from penstock.sources.files.kind import LateFiles, ModifiedFiles
from tests.property.audit.bucket import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A pattern with its prefixes, keys that match and keys that do not match."""

    uri: str
    prefixes: tuple[str, ...]
    keys: tuple[str, ...]
    other_keys: tuple[str, ...]

    def prefix_of(self, key: str) -> str:
        """Return the prefix of a key of the place."""
        return next(prefix for prefix in self.prefixes if key.startswith(prefix))


TOP = Place(
    uri="s3://lake",
    prefixes=("",),
    keys=("a", "a b", "a-b", "a0", "é", "\uff5e", "\U0001f600"),
    other_keys=("a/b", ".hidden", "é/1"),
)
TWO_FOLDERS = Place(
    uri="s3://lake/{a,b/c}/*.json",
    prefixes=("a/", "b/c/"),
    keys=("a/1.json", "a/2.json", "a/3.json", "b/c/1.json", "b/c/2.json", "b/c/3.json"),
    other_keys=("a/1.csv", "a/x/1.json", "a-b/1.json", "b/1.json", "b/d/1.json", "a/.json"),
)
NEIGHBOURS = Place(
    uri="s3://lake/{a,a-b,a0}/**",
    prefixes=("a-b/", "a/", "a0/"),
    keys=("a-b/1", "a-b/2", "a/1", "a/1-2", "a/1/2", "a/2", "a0/1", "a0/2"),
    other_keys=("a", "a-", "a-c/1", "a1/1"),
)
DEEP = Place(
    uri="s3://lake/o/**",
    prefixes=("o/",),
    keys=("o/a", "o/a b", "o/a-b", "o/a/b", "o/a/b/c", "o/a0", "o/\uff5e", "o/\U0001f600/1"),
    other_keys=("o", "o-", "o0", "o/.a/b"),
)
NAMED = Place(
    uri="s3://lake/in/**/*.json",
    prefixes=("in/",),
    keys=("in/1.json", "in/a b.json", "in/a-b/1.json", "in/a/1.json", "in/a/b/1.json"),
    other_keys=("in.json", "in/1.csv", "in-old/1.json", "in/a/.json"),
)
DISK = Place(
    uri="file:///in/**/*.json",
    prefixes=("/in/",),
    keys=tuple(f"/{key}" for key in NAMED.keys),
    other_keys=tuple(f"/{key}" for key in NAMED.other_keys),
)
PLACES = (TOP, TWO_FOLDERS, NEIGHBOURS, DEEP, NAMED, DISK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The options that decide which files are loaded."""

    late_files: LateFiles = LateFiles.LOAD
    late_window: timedelta | None = None
    modified_files: ModifiedFiles = ModifiedFiles.IGNORE


class Ending(StrEnum):
    """The reason for the last audit."""

    RESTART = "the job starts again"
    INTERVAL = "the audit is due"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The place and the options of a history."""

    place: Place = DEEP
    order: Order = Order.BYTES
    ordered_listing: bool = False
    audit_interval: timedelta = timedelta(minutes=5)
    window_files: int = 5
    lookup_files: int = 2
    rules: Rules = field(default_factory=Rules)
    # The reaction of the user to a changed file: restore the loaded file, or move the offset.
    puts_back: bool = True
    ending: Ending = Ending.RESTART


class Outcome(StrEnum):
    """The outcome of a planned epoch."""

    COMMITTED = "committed"
    FAILED = "failed"
    CRASHED_BEFORE = "crashed before the commit"
    CRASHED_AFTER = "crashed between table and catalog"


@dataclass(frozen=True, slots=True)
class Put:
    """A file is created or replaced, with a modification time in the past."""

    key: str
    age_minutes: int = 0
    size_bytes: int = 1


@dataclass(frozen=True, slots=True)
class Delete:
    """A file is deleted."""

    key: str


@dataclass(frozen=True, slots=True)
class Poll:
    """The source is polled; the listing may fail, and files may change meanwhile."""

    files_before_failure: int | None = None
    meanwhile: tuple[Put | Delete, ...] = ()
    # During the listing, another node takes the job over and loads the files it finds.
    taken_over: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """One epoch is planned and ends with an outcome."""

    files_max: int = 100
    outcome: Outcome = Outcome.COMMITTED


@dataclass(frozen=True, slots=True)
class Round:
    """The source is polled, and all found files are loaded."""

    files_max: int = 100


@dataclass(frozen=True, slots=True)
class Crash:
    """The owner ends; the next owner knows only the stored state."""


@dataclass(frozen=True, slots=True)
class Move:
    """A user sets the offset after a key, or to the first file."""

    after: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Time passes."""

    minutes: int


@dataclass(frozen=True, slots=True)
class SetClock:
    """A user sets the clock; no time passes."""

    minutes: int


@dataclass(frozen=True, slots=True)
class Change:
    """A user changes the options."""

    rules: Rules


@dataclass(frozen=True, slots=True)
class Backup:
    """The catalog is saved."""


@dataclass(frozen=True, slots=True)
class Restore:
    """The saved catalog is restored and catches up with the table."""


Step = (
    Put
    | Delete
    | Poll
    | Load
    | Round
    | Crash
    | Move
    | Wait
    | SetClock
    | Change
    | Backup
    | Restore
)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A setup and its steps."""

    setup: Setup
    steps: tuple[Step, ...]
