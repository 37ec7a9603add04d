"""What is shown of routine loads: rows of SHOW, epochs under way, names of options."""

import json

import pytest

from penstock.control.show import LOAD_COLUMNS, TASK_COLUMNS
from penstock.model.job_kinds import FIXED_OPTIONS, RoutineProperties
from penstock.model.options import option_fields, option_key
from penstock.sources.kinesis.kind import KinesisOptions
from penstock.sources.kinesis.start import POSITION_KEYS
from tests.integration.driving import Failing, Gate, idle, rounds_until, supervised
from tests.integration.routine_loads import FIRST, Load, put, row
from tests.servers.kinesis_clients import REGION, new_stream

pytestmark = pytest.mark.integration
# Entries of JobProperties that are no options: clauses of the statement, and derived values.
SHOWN_ALONE = {
    "partitions",
    "columnToColumnExpr",
    "precedingFilter",
    "whereExpr",
    "column_separator",
    "line_delimiter",
    "delete",
    "sequence_col",
    "merge_type",
    "current_concurrent_number",
}


def test_t26_every_name_that_is_shown_is_one_that_is_accepted(load: Load) -> None:
    load.create(kinesis_shards=FIRST, kpl_foreign_records="skip")

    told = load.shown()
    text = load.create_text()

    accepted = {option_key(field) for field in option_fields(KinesisOptions)}
    accepted |= set(POSITION_KEYS)
    properties = {option_key(field) for field in option_fields(RoutineProperties)}
    shown_keys = {line.split("'")[1] for line in text.splitlines() if line.startswith("  '")}
    assert set(told["CustomProperties"]) <= accepted
    assert set(told["JobProperties"]) - SHOWN_ALONE - set(FIXED_OPTIONS) == properties
    assert shown_keys <= accepted | properties


def test_a_load_is_shown_in_the_columns_of_doris(load: Load) -> None:
    numbers = load.put(1)
    load.sql(
        load.statement(properties={"max_batch_rows": "7", "max_batch_size": "100MB"})
        + " COMMENT 'mine'"
    )
    load.run()

    (found,) = load.sql("SHOW ROUTINE LOAD")
    told = load.shown()

    assert list(found) == [column.name for column in LOAD_COLUMNS]
    assert len(LOAD_COLUMNS) == 24
    plain = ("Name", "DbName", "TableName", "IsMultiTable", "DataSourceType", "Comment")
    expected = ["r", "default", "t", "false", "KINESIS", "mine"]
    assert [told[column] for column in plain] == expected
    assert told["DataSourceProperties"] == {
        "region": REGION,
        "stream": load.stream.name,
        "endpoint": load.stream.client.meta.endpoint_url,
        "openKinesisShards": FIRST,
        "closedKinesisShards": "",
    }
    assert told["CustomProperties"]["aws.access_key"] == "******"
    assert told["CustomProperties"]["aws.secret_key"] == "******"
    assert told["JobProperties"]["max_batch_rows"] == "7"
    assert told["JobProperties"]["max_batch_size"] == str(100 * 2**20)
    assert told["JobProperties"]["merge_type"] == "APPEND"
    assert told["Progress"] == {FIRST: f"AFTER {numbers[0]}"}
    assert told["Lag"] == {FIRST: 0}


def test_the_counters_of_a_load_are_those_of_doris(load: Load) -> None:
    load.put(1)
    load.stream.put(b"nonsense")
    load.create(properties={"max_error_number": "1"})
    load.run()

    counted = load.shown()["Statistic"]

    assert counted["taskExecuteTimeMs"] > 0
    expected = {
        "totalRows": 2,
        "loadedRows": 1,
        "errorRows": 1,
        "errorRowsAfterResumed": 1,
        "unselectedRows": 0,
        "receivedBytes": len(row(1)) + 8,
        "committedTaskNum": 1,
        "abortedTaskNum": 0,
        "openShardNum": 1,
        "closedShardNum": 0,
        "trackedShardNum": 1,
        "cachedMillisBehindLatestShardNum": 1,
        "totalMillisBehindLatest": 0,
        "maxMillisBehindLatest": 0,
    }
    assert counted | expected == counted


def test_a_load_is_one_of_the_jobs(load: Load) -> None:
    load.put(1)
    number = load.stream.put(b"nonsense")
    load.sql(load.statement(properties={"max_error_number": "1"}) + " COMMENT 'mine'")
    load.run()

    (found,) = load.sql("SHOW JOBS")

    assert found.pop("last_commit") is not None
    assert int(str(found.pop("requests_per_hour"))) > 0
    assert found == {
        "name": "r",
        "kind": "ROUTINE LOAD",
        "state": "PENDING",
        "table": "t",
        "position": f"{FIRST} AFTER {number}",
        "files_loaded": 0,
        "rows_loaded": 1,
        "rows_rejected": 1,
        "rows_unselected": 0,
        "files_modified": 0,
        "reason": "",
        "comment": "mine",
    }


def test_a_load_tells_since_when_and_why_it_is_paused_or_has_ended(load: Load) -> None:
    columns = ("PauseTime", "EndTime", "ReasonOfStateChanged")
    load.sql(f"{load.statement()}; PAUSE ROUTINE LOAD FOR r")
    paused = [load.shown()[column] for column in columns]
    load.sql("RESUME ROUTINE LOAD FOR r")
    resumed = [load.shown()[column] for column in columns]
    load.sql("STOP ROUTINE LOAD FOR r")
    ended = [load.shown(all_=True)[column] for column in columns]

    created = load.shown(all_=True)["CreateTime"]
    assert paused[0] >= created
    assert paused[1:] == [None, "MANUAL_PAUSE_ERR: paused by PAUSE ROUTINE LOAD"]
    assert resumed == [None, None, ""]
    assert (ended[0], ended[2]) == (None, "")
    assert ended[1] >= paused[0]


@pytest.mark.parametrize(("wanted", "tasks"), [("1", 1), ("256", 2)])
def test_an_epoch_has_no_more_tasks_than_wanted(load: Load, wanted: str, tasks: int) -> None:
    counting = load.node.work = Failing(first=lambda: None)
    wide = new_stream(load.stream.client, shards=3)
    for number in range(3):
        put(wide, number, hash_key=number * 2**127 - number)
    load.create(stream=wide, properties={"desired_concurrent_number": wanted})

    load.run()

    assert sorted(load.ids()) == [0, 1, 2]
    assert counting.calls == tasks
    assert load.shown()["JobProperties"]["current_concurrent_number"] == str(tasks)


def test_what_was_not_heard_yet_is_unknown(load: Load) -> None:
    load.create()

    told = load.shown()

    assert told["Lag"] == {FIRST: -1}
    assert told["Statistic"]["maxMillisBehindLatest"] == -1
    assert told["Statistic"]["cachedMillisBehindLatestShardNum"] == 0


def test_a_task_that_runs_is_shown_with_where_it_began(load: Load) -> None:
    gate = load.node.work = Gate()
    load.put(1)
    load.create()
    with supervised(load.node) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())
        during = load.sql("SHOW ROUTINE LOAD TASK WHERE jobname = 'r'")
        running = load.shown()
        gate.opened.set()
        rounds_until(supervisor, idle)
        behind = load.sql("SHOW ROUTINE LOAD TASK FOR r")

    (task,) = during
    assert list(task) == [column.name for column in TASK_COLUMNS]
    assert (task["TxnId"], task["JobId"], task["Timeout"]) == (-1, load.node.job("r").id, 600)
    assert json.loads(str(task["DataSourceProperties"])) == {FIRST: "TRIM_HORIZON"}
    assert (running["CurrentTaskNum"], behind) == (1, [])
    assert running["Statistic"]["runningTxns"] == [task["TaskId"]]
    assert load.shown()["Statistic"]["runningTxns"] == []


def test_everything_that_is_shown_survives_a_restart(load: Load) -> None:
    load.begin(1)
    before = load.shown(), load.sql("SHOW SHARDS FOR r")

    again = load.restart()
    after = again.shown(), again.sql("SHOW SHARDS FOR r")

    for told, _ in (before, after):
        for key in ("taskExecuteTimeMs", "receivedBytesRate", "loadRowsRate"):
            told["Statistic"].pop(key)
    for _, listed in (before, after):
        listed[0].pop("lag_age")
    assert after == before
