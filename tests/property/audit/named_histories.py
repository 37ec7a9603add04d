"""Histories written by hand; each finds a bug in a wrong version of the source."""

from datetime import timedelta

from penstock.sources.files.kind import LateFiles, ModifiedFiles
from tests.property.audit.bucket import Order
from tests.property.audit.steps import (
    NEIGHBOURS,
    TOP,
    TWO_FOLDERS,
    Backup,
    Change,
    Crash,
    Delete,
    Ending,
    History,
    Load,
    Move,
    Outcome,
    Poll,
    Put,
    Restore,
    Round,
    Rules,
    SetClock,
    Setup,
    Step,
    Wait,
)

IGNORE_LATE = Rules(late_files=LateFiles.IGNORE)
SHORT_WINDOW = Rules(late_window=timedelta(minutes=10))
FAIL_CHANGED = Rules(modified_files=ModifiedFiles.FAIL)


def history(setup: Setup, *steps: Step) -> History:
    return History(setup=setup, steps=steps)


AN_ATTEMPT_FAILS_IN_A_LONG_PASS = history(
    Setup(place=TOP, window_files=2),
    Put("a"),
    Put("a b"),
    Put("a-b"),
    Put("a0"),
    Poll(),
    Load(outcome=Outcome.FAILED),
    Round(),
)
MORE_FILES_THAN_A_POLL_KEEPS = history(
    Setup(place=TOP, window_files=2, ordered_listing=True),
    *(Put(key) for key in TOP.keys),
    Round(),
    Round(),
    Round(),
    Round(),
)
AN_EARLIER_FOLDER_GETS_ITS_FIRST_FILE = history(
    Setup(place=TWO_FOLDERS, ordered_listing=True),
    Put("b/c/2.json"),
    Round(),
    Put("a/1.json"),
    Round(),
    Put("a/2.json"),
    Put("b/c/3.json"),
    Round(),
)
AN_EARLIER_FOLDER_GETS_ITS_FIRST_FILE_AND_LATE_FILES_ARE_IGNORED = history(
    Setup(place=TWO_FOLDERS, rules=IGNORE_LATE),
    Put("b/c/2.json"),
    Round(),
    Put("a/2.json"),
    Round(),
    Put("b/c/1.json"),
    Put("a/1.json"),
    Round(),
)
THE_CLOCK_IS_SET_BACK_AFTER_FILES_WERE_PRUNED = history(
    Setup(place=TOP, rules=SHORT_WINDOW),
    Put("a"),
    Put("a0"),
    Round(),
    Wait(15),
    Round(),
    Round(),
    SetClock(-15),
    Crash(),
    Round(),
)
THE_WINDOW_IS_REMOVED_AFTER_FILES_WERE_PRUNED = history(
    Setup(place=TOP, rules=SHORT_WINDOW),
    Put("a"),
    Put("a0"),
    Round(),
    Wait(15),
    Round(),
    Change(Rules()),
    Put("a b"),
    Round(),
)
A_FILE_ARRIVES_LATE_WHILE_THE_JOB_RUNS = history(
    Setup(place=TOP, ordered_listing=True, ending=Ending.INTERVAL),
    Put("a0"),
    Round(),
    Put("a"),
    Round(),
)
A_FILE_ARRIVES_LATE_WHILE_THE_JOB_IS_STOPPED = history(
    Setup(place=TOP, ordered_listing=True, audit_interval=timedelta(hours=1)),
    Put("a0"),
    Round(),
    Put("a"),
    Crash(),
)
THE_CLOCK_IS_SET_BACK_AND_A_FILE_ARRIVES_LATE = history(
    Setup(place=TOP, ordered_listing=True, ending=Ending.INTERVAL),
    Put("a0"),
    Round(),
    SetClock(-60),
    Put("a"),
)
OLD_FILES_ARRIVE = history(
    Setup(place=TOP, rules=SHORT_WINDOW),
    Put("a"),
    Round(),
    Put("a b", age_minutes=600),
    Put("a0", age_minutes=60),
    Round(),
    Put("a-b", age_minutes=600),
)
THE_NEWEST_FILE_GROWS_OLD = history(
    Setup(place=NEIGHBOURS, rules=SHORT_WINDOW),
    Put("a-b/1"),
    Put("a/1"),
    Put("a0/1"),
    Put("a0/2"),
    Round(),
    Wait(15),
    Round(),
    Round(),
    Crash(),
    Round(),
)
AN_OWNER_FREEZES_DURING_A_LISTING = history(
    Setup(place=TOP, rules=SHORT_WINDOW),
    Put("a"),
    Round(),
    Wait(60),
    Put("a0", age_minutes=30),
    Poll(taken_over=True),
    Crash(),
    Round(),
)
A_FROZEN_OWNER_PRUNES_FILES_OF_ITS_SUCCESSOR = history(
    Setup(place=TOP, ordered_listing=True, rules=SHORT_WINDOW, ending=Ending.INTERVAL),
    Put("a", age_minutes=15),
    Put("a b"),
    Poll(taken_over=True),
    Round(),
)
EPOCHS_ARE_COMMITTED_ONE_BY_ONE = history(
    Setup(place=TOP),
    Put("a0"),
    Put("a"),
    Put("a b"),
    Poll(),
    Load(1),
    Load(1),
    Round(1),
    Put("é"),
    Round(),
)
A_SERVER_OMITS_KEYS_AFTER_THE_FLOOR = history(
    Setup(order=Order.FOLDERS),
    Put("o/a b"),
    Put("o/a-b"),
    Put("o/a/b"),
    Move("o/a b"),
    Round(),
)
A_SERVER_OMITS_KEYS_AFTER_A_POLL = history(
    Setup(order=Order.FOLDERS, window_files=2, rules=IGNORE_LATE),
    Put("o/a"),
    Put("o/a b"),
    Put("o/a-b"),
    Put("o/a/b"),
    Put("o/a0"),
    Round(),
    Round(),
    Round(),
)
A_SERVER_LISTS_IN_NO_ORDER = history(
    Setup(order=Order.ANY, window_files=3),
    *(Put(key) for key in Setup().place.keys),
    Round(1),
    Round(),
    Round(),
)
THE_OFFSET_IS_SET_FORWARD_AND_BACK = history(
    Setup(place=TOP, ordered_listing=True, window_files=2),
    Put("a"),
    Put("a b"),
    Put("a0"),
    Round(),
    Move("a-b"),
    Round(),
    Put("a-b"),
    Crash(),
    Round(),
    Move("a"),
    Poll(),
    Load(1, Outcome.CRASHED_AFTER),
    Round(),
    Move(),
)
A_LOADED_FILE_CHANGES = history(
    Setup(place=TOP, window_files=2),
    Put("a0"),
    Round(),
    Put("a0"),
    Put("a"),
    Put("a b"),
    Put("é"),
    Poll(),
    Load(1),
    Load(1, Outcome.FAILED),
)
A_LOADED_FILE_CHANGES_BELOW_THE_FLOOR = history(
    Setup(place=TOP, order=Order.ANY, rules=FAIL_CHANGED),
    Put("a"),
    Put("a0"),
    Round(),
    Move("a b"),
    Put("a"),
    Round(),
)
A_CHANGED_FILE_PAUSES_THE_JOB = history(
    Setup(place=TOP, rules=FAIL_CHANGED, puts_back=False),
    Put("a"),
    Put("a0"),
    Round(),
    Put("a"),
    Round(),
)
A_CHANGED_FILE_IS_DELETED_BEFORE_A_POLL_FINDS_IT = history(
    Setup(place=TOP, rules=FAIL_CHANGED),
    Put("a"),
    Put("a b"),
    Put("a0"),
    Round(),
    Put("a b"),
    Poll(meanwhile=(Delete("a b"),)),
)
A_FILE_IS_DELETED_DURING_A_LISTING = history(
    Setup(place=TOP, window_files=2),
    Put("a"),
    Put("a b"),
    Put("a0"),
    Poll(meanwhile=(Delete("a"), Put("a-b"), Put("é"))),
    Load(1),
    Round(),
)
AN_EMPTY_FILE_GETS_ITS_CONTENT_LATER = history(
    Setup(place=TOP, ordered_listing=True),
    Put("a", size_bytes=0),
    Put("a0"),
    Round(),
    Put("a"),
)
A_LISTING_FAILS = history(
    Setup(place=TOP, window_files=2),
    Put("a"),
    Put("a b"),
    Put("a-b"),
    Put("a0"),
    Round(1),
    Poll(files_before_failure=3),
    Round(),
)
THE_CATALOG_IS_RESTORED_TO_A_STATE_BEFORE_FILES_WERE_PRUNED = history(
    Setup(place=TOP, rules=SHORT_WINDOW),
    Put("a"),
    Round(),
    Backup(),
    Put("a0"),
    Round(),
    Wait(15),
    Round(),
    Restore(),
    Round(),
)

HISTORY_BY_NAME = {
    name.lower(): history for name, history in vars().items() if isinstance(history, History)
}
