"""SHOW output of routine loads: rows, running epochs, option names."""

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
# Entries of JobProperties that are not options: clauses of the statement, and derived values.
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


def test_t26_every_option_name_that_is_shown_is_accepted(load: Load) -> None:
    load.create(kinesis_shards=FIRST, kpl_foreign_records="skip")

    shown = load.shown()
    text = load.create_text()

    accepted = {option_key(field) for field in option_fields(KinesisOptions)}
    accepted |= set(POSITION_KEYS)
    properties = {option_key(field) for field in option_fields(RoutineProperties)}
    shown_keys = {line.split("'")[1] for line in text.splitlines() if line.startswith("  '")}
    assert set(shown["CustomProperties"]) <= accepted
    assert set(shown["JobProperties"]) - SHOWN_ALONE - set(FIXED_OPTIONS) == properties
    assert shown_keys <= accepted | properties


def test_a_load_is_shown_in_the_columns_of_doris(load: Load) -> None:
    numbers = load.put(1)
    load.sql(
        load.statement(properties={"max_batch_rows": "7", "max_batch_size": "100MB"})
        + " COMMENT 'mine'"
    )
    load.run()

    (found,) = load.sql("SHOW ROUTINE LOAD")
    shown = load.shown()

    assert list(found) == [column.name for column in LOAD_COLUMNS]
    assert len(LOAD_COLUMNS) == 24 + 5
    plain = ("Name", "DbName", "TableName", "IsMultiTable", "DataSourceType", "Comment")
    expected = ["r", "default", "t", "false", "KINESIS", "mine"]
    assert [shown[column] for column in plain] == expected
    assert shown["DataSourceProperties"] == {
        "region": REGION,
        "stream": load.stream.name,
        "endpoint": load.stream.client.meta.endpoint_url,
        "openKinesisShards": FIRST,
        "closedKinesisShards": "",
    }
    assert shown["CustomProperties"]["aws.access_key"] == "******"
    assert shown["CustomProperties"]["aws.secret_key"] == "******"
    assert shown["JobProperties"]["max_batch_rows"] == "7"
    assert shown["JobProperties"]["max_batch_size"] == str(100 * 2**20)
    assert shown["JobProperties"]["merge_type"] == "APPEND"
    assert shown["Progress"] == {FIRST: f"AFTER {numbers[0]}"}
    assert shown["Lag"] == {FIRST: 0}


def test_a_load_has_the_counters_of_doris(load: Load) -> None:
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


def test_a_load_is_listed_as_a_job(load: Load) -> None:
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
        "in_backlog": False,
        "backlog_cause": "",
        "backlog_eta": None,
        "interval": "60s",
        "next_epoch_at": None,
        "reason": "",
        "comment": "mine",
    }


def test_a_load_shows_pause_time_end_time_and_reason(load: Load) -> None:
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
def test_an_epoch_has_at_most_the_desired_number_of_tasks(
    load: Load, wanted: str, tasks: int
) -> None:
    counting = load.node.work = Failing(first=lambda: None)
    wide = new_stream(load.stream.client, shards=3)
    for number in range(3):
        put(wide, number, hash_key=number * 2**127 - number)
    load.create(stream=wide, properties={"desired_concurrent_number": wanted})

    load.run()

    assert sorted(load.ids()) == [0, 1, 2]
    assert counting.calls == tasks
    assert load.shown()["JobProperties"]["current_concurrent_number"] == str(tasks)


def test_the_lag_is_unknown_before_the_first_poll(load: Load) -> None:
    load.create()

    shown = load.shown()

    assert shown["Lag"] == {FIRST: -1}
    assert shown["Statistic"]["maxMillisBehindLatest"] == -1
    assert shown["Statistic"]["cachedMillisBehindLatestShardNum"] == 0


def test_a_running_task_is_shown_with_its_start_position(load: Load) -> None:
    gate = load.node.work = Gate()
    load.put(1)
    load.create()
    with supervised(load.node) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())
        during = load.sql("SHOW ROUTINE LOAD TASK WHERE jobname = 'r'")
        running = load.shown()
        gate.opened.set()
        rounds_until(supervisor, idle)
        tasks = load.sql("SHOW ROUTINE LOAD TASK FOR r")

    (task,) = during
    assert list(task) == [column.name for column in TASK_COLUMNS]
    assert (task["TxnId"], task["JobId"], task["Timeout"]) == (-1, load.node.job("r").id, 600)
    assert json.loads(str(task["DataSourceProperties"])) == {FIRST: "TRIM_HORIZON"}
    assert (running["CurrentTaskNum"], tasks) == (1, [])
    assert running["Statistic"]["runningTxns"] == [task["TaskId"]]
    assert load.shown()["Statistic"]["runningTxns"] == []


def test_everything_that_is_shown_survives_a_restart(load: Load) -> None:
    load.put_and_load(1)
    before = load.shown(), load.sql("SHOW SHARDS FOR r")

    again = load.restart()
    after = again.shown(), again.sql("SHOW SHARDS FOR r")

    for shown, _ in (before, after):
        for key in ("taskExecuteTimeMs", "receivedBytesRate", "loadRowsRate"):
            shown["Statistic"].pop(key)
    for _, listed in (before, after):
        listed[0].pop("lag_age")
    assert after == before
