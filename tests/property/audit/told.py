"""Histories told step by step; a wrong version of the source does not survive its own."""

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
    Look,
    Move,
    Outcome,
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


def told(setup: Setup, *steps: Step) -> History:
    return History(setup=setup, steps=steps)


AN_ATTEMPT_FAILS_IN_A_LONG_PASS = told(
    Setup(place=TOP, window_files=2),
    Put("a"),
    Put("a b"),
    Put("a-b"),
    Put("a0"),
    Look(),
    Load(outcome=Outcome.FAILED),
    Round(),
)
MORE_FILES_THAN_A_LOOK_KEEPS = told(
    Setup(place=TOP, window_files=2, ordered_listing=True),
    *(Put(key) for key in TOP.keys),
    Round(),
    Round(),
    Round(),
    Round(),
)
AN_EARLIER_FOLDER_GETS_ITS_FIRST_FILE = told(
    Setup(place=TWO_FOLDERS, ordered_listing=True),
    Put("b/c/2.json"),
    Round(),
    Put("a/1.json"),
    Round(),
    Put("a/2.json"),
    Put("b/c/3.json"),
    Round(),
)
AN_EARLIER_FOLDER_GETS_ITS_FIRST_FILE_AND_LATE_ONES_ARE_IGNORED = told(
    Setup(place=TWO_FOLDERS, rules=IGNORE_LATE),
    Put("b/c/2.json"),
    Round(),
    Put("a/2.json"),
    Round(),
    Put("b/c/1.json"),
    Put("a/1.json"),
    Round(),
)
THE_CLOCK_IS_SET_BACK_AFTER_FILES_WERE_FORGOTTEN = told(
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
THE_WINDOW_IS_TAKEN_AWAY_AFTER_FILES_WERE_FORGOTTEN = told(
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
A_FILE_COMES_LATE_TO_A_JOB_THAT_RUNS_ON = told(
    Setup(place=TOP, ordered_listing=True, ending=Ending.INTERVAL),
    Put("a0"),
    Round(),
    Put("a"),
    Round(),
)
A_FILE_COMES_LATE_WHILE_NOBODY_RUNS = told(
    Setup(place=TOP, ordered_listing=True, audit_interval=timedelta(hours=1)),
    Put("a0"),
    Round(),
    Put("a"),
    Crash(),
)
THE_CLOCK_IS_SET_BACK_AND_A_FILE_COMES_LATE = told(
    Setup(place=TOP, ordered_listing=True, ending=Ending.INTERVAL),
    Put("a0"),
    Round(),
    SetClock(-60),
    Put("a"),
)
OLD_FILES_ARE_BROUGHT = told(
    Setup(place=TOP, rules=SHORT_WINDOW),
    Put("a"),
    Round(),
    Put("a b", age_minutes=600),
    Put("a0", age_minutes=60),
    Round(),
    Put("a-b", age_minutes=600),
)
THE_NEWEST_FILE_GROWS_OLD = told(
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
AN_OWNER_IS_FROZEN_WHILE_IT_LISTS = told(
    Setup(place=TOP, rules=SHORT_WINDOW),
    Put("a"),
    Round(),
    Wait(60),
    Put("a0", age_minutes=30),
    Look(taken_over=True),
    Crash(),
    Round(),
)
AN_OWNER_THAT_WAS_FROZEN_FORGETS_WHAT_ITS_SUCCESSOR_LOADED = told(
    Setup(place=TOP, ordered_listing=True, rules=SHORT_WINDOW, ending=Ending.INTERVAL),
    Put("a", age_minutes=15),
    Put("a b"),
    Look(taken_over=True),
    Round(),
)
EPOCHS_ARE_COMMITTED_ONE_BY_ONE = told(
    Setup(place=TOP),
    Put("a0"),
    Put("a"),
    Put("a b"),
    Look(),
    Load(1),
    Load(1),
    Round(1),
    Put("é"),
    Round(),
)
A_SERVER_HIDES_KEYS_BEHIND_THE_FLOOR = told(
    Setup(order=Order.FOLDERS),
    Put("o/a b"),
    Put("o/a-b"),
    Put("o/a/b"),
    Move("o/a b"),
    Round(),
)
A_SERVER_HIDES_KEYS_BEHIND_A_LOOK = told(
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
A_SERVER_ANSWERS_IN_NO_ORDER = told(
    Setup(order=Order.ANY, window_files=3),
    *(Put(key) for key in Setup().place.keys),
    Round(1),
    Round(),
    Round(),
)
THE_OFFSET_IS_SET_FORTH_AND_BACK = told(
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
    Look(),
    Load(1, Outcome.CRASHED_AFTER),
    Round(),
    Move(),
)
A_LOADED_FILE_CHANGES = told(
    Setup(place=TOP, window_files=2),
    Put("a0"),
    Round(),
    Put("a0"),
    Put("a"),
    Put("a b"),
    Put("é"),
    Look(),
    Load(1),
    Load(1, Outcome.FAILED),
)
A_LOADED_FILE_CHANGES_BELOW_THE_FLOOR = told(
    Setup(place=TOP, order=Order.ANY, rules=FAIL_CHANGED),
    Put("a"),
    Put("a0"),
    Round(),
    Move("a b"),
    Put("a"),
    Round(),
)
A_CHANGED_FILE_PAUSES_THE_JOB = told(
    Setup(place=TOP, rules=FAIL_CHANGED, puts_back=False),
    Put("a"),
    Put("a0"),
    Round(),
    Put("a"),
    Round(),
)
A_CHANGED_FILE_IS_DELETED_BEFORE_ANYBODY_LOOKS_AT_IT = told(
    Setup(place=TOP, rules=FAIL_CHANGED),
    Put("a"),
    Put("a b"),
    Put("a0"),
    Round(),
    Put("a b"),
    Look(meanwhile=(Delete("a b"),)),
)
A_FILE_IS_DELETED_WHILE_IT_IS_LISTED = told(
    Setup(place=TOP, window_files=2),
    Put("a"),
    Put("a b"),
    Put("a0"),
    Look(meanwhile=(Delete("a"), Put("a-b"), Put("é"))),
    Load(1),
    Round(),
)
A_MARKER_GETS_ITS_CONTENT_LATER = told(
    Setup(place=TOP, ordered_listing=True),
    Put("a", size_bytes=0),
    Put("a0"),
    Round(),
    Put("a"),
)
A_LISTING_BREAKS_OFF = told(
    Setup(place=TOP, window_files=2),
    Put("a"),
    Put("a b"),
    Put("a-b"),
    Put("a0"),
    Round(1),
    Look(files_before_failure=3),
    Round(),
)
THE_CATALOG_IS_RESTORED_BEHIND_A_FORGETTING = told(
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
