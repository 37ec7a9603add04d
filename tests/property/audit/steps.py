"""What a history is made of: a place with options, and what happens there, step by step."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from penstock.sources.files.kind import LateFiles, ModifiedFiles
from tests.property.audit.bucket import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A pattern, written out by hand: where its files lie, and what does not belong to it."""

    uri: str
    prefixes: tuple[str, ...]
    keys: tuple[str, ...]
    strangers: tuple[str, ...]

    def prefix_of(self, key: str) -> str:
        """Answer the prefix below which a key of the place lies."""
        return next(prefix for prefix in self.prefixes if key.startswith(prefix))


TOP = Place(
    uri="s3://lake",
    prefixes=("",),
    keys=("a", "a b", "a-b", "a0", "é", "\uff5e", "\U0001f600"),
    strangers=("a/b", ".hidden", "é/1"),
)
TWO_FOLDERS = Place(
    uri="s3://lake/{a,b/c}/*.json",
    prefixes=("a/", "b/c/"),
    keys=("a/1.json", "a/2.json", "a/3.json", "b/c/1.json", "b/c/2.json", "b/c/3.json"),
    strangers=("a/1.csv", "a/x/1.json", "a-b/1.json", "b/1.json", "b/d/1.json", "a/.json"),
)
NEIGHBOURS = Place(
    uri="s3://lake/{a,a-b,a0}/**",
    prefixes=("a-b/", "a/", "a0/"),
    keys=("a-b/1", "a-b/2", "a/1", "a/1-2", "a/1/2", "a/2", "a0/1", "a0/2"),
    strangers=("a", "a-", "a-c/1", "a1/1"),
)
DEEP = Place(
    uri="s3://lake/o/**",
    prefixes=("o/",),
    keys=("o/a", "o/a b", "o/a-b", "o/a/b", "o/a/b/c", "o/a0", "o/\uff5e", "o/\U0001f600/1"),
    strangers=("o", "o-", "o0", "o/.a/b"),
)
NAMED = Place(
    uri="s3://lake/in/**/*.json",
    prefixes=("in/",),
    keys=("in/1.json", "in/a b.json", "in/a-b/1.json", "in/a/1.json", "in/a/b/1.json"),
    strangers=("in.json", "in/1.csv", "in-old/1.json", "in/a/.json"),
)
DISK = Place(
    uri="file:///in/**/*.json",
    prefixes=("/in/",),
    keys=tuple(f"/{key}" for key in NAMED.keys),
    strangers=tuple(f"/{key}" for key in NAMED.strangers),
)
PLACES = (TOP, TWO_FOLDERS, NEIGHBOURS, DEEP, NAMED, DISK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The options that say which files are loaded."""

    late_files: LateFiles = LateFiles.LOAD
    late_window: timedelta | None = None
    modified_files: ModifiedFiles = ModifiedFiles.IGNORE


class Ending(StrEnum):
    """How the last audit comes about."""

    RESTART = "the job starts anew"
    INTERVAL = "the audit is due"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Where a history plays."""

    place: Place = DEEP
    order: Order = Order.BYTES
    ordered_listing: bool = False
    audit_interval: timedelta = timedelta(minutes=5)
    window_files: int = 5
    lookup_files: int = 2
    rules: Rules = field(default_factory=Rules)
    # What a person does about a changed file: puts the loaded one back, or moves the offset.
    puts_back: bool = True
    ending: Ending = Ending.RESTART


class Outcome(StrEnum):
    """What becomes of an epoch that was planned."""

    COMMITTED = "committed"
    FAILED = "failed"
    CRASHED_BEFORE = "crashed before the commit"
    CRASHED_AFTER = "crashed between table and catalog"


@dataclass(frozen=True, slots=True)
class Put:
    """A file appears or is replaced, written so long ago."""

    key: str
    age_minutes: int = 0
    size_bytes: int = 1


@dataclass(frozen=True, slots=True)
class Delete:
    """A file goes."""

    key: str


@dataclass(frozen=True, slots=True)
class Look:
    """The source is looked at; the listing may break off, and things may happen meanwhile."""

    files_before_failure: int | None = None
    meanwhile: tuple[Put | Delete, ...] = ()
    # While the owner lists, another node takes the job over and loads what it finds.
    taken_over: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """One epoch is planned, and comes to an end."""

    files_max: int = 100
    outcome: Outcome = Outcome.COMMITTED


@dataclass(frozen=True, slots=True)
class Round:
    """The source is looked at, and everything that was found is loaded."""

    files_max: int = 100


@dataclass(frozen=True, slots=True)
class Crash:
    """The owner ends; the next one knows what was stored."""


@dataclass(frozen=True, slots=True)
class Move:
    """A person sets the offset behind a key, or to the beginning."""

    behind: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Time passes."""

    minutes: int


@dataclass(frozen=True, slots=True)
class SetClock:
    """Somebody sets the clock; no time passes."""

    minutes: int


@dataclass(frozen=True, slots=True)
class Change:
    """A person changes the options."""

    rules: Rules


@dataclass(frozen=True, slots=True)
class Backup:
    """The catalog is saved."""


@dataclass(frozen=True, slots=True)
class Restore:
    """The catalog is put back to how it was saved; it catches up with the table."""


Step = (
    Put
    | Delete
    | Look
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
    """A setup and what happens in it."""

    setup: Setup
    steps: tuple[Step, ...]
