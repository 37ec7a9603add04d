"""What is shown of routine loads: rows of SHOW, epochs under way, names of options."""

import json

import pytest

from penstock.control.show import LOAD_COLUMNS, SHOWN_ALONE, TASK_COLUMNS
from penstock.model.job_kinds import FIXED_OPTIONS, RoutineProperties
from penstock.model.options import option_fields, option_key
from penstock.sources.kinesis.kind import KinesisOptions
from penstock.sources.kinesis.start import POSITION_KEYS
from tests.integration.driving import Failing, Gate, MovedClock, idle, rounds_until, supervised
from tests.integration.routine_loads import (
    BLINK,
    CREATE_TABLE,
    FIRST,
    create,
    ids,
    loads,
    put,
    row,
    server,
    shown,
    stream,
)
from tests.mirrored_node import OpenNode
from tests.node import Node
from tests.servers.kinesis_clients import REGION, StreamUnderTest, new_stream

__all__ = ["loads", "server", "stream"]
pytestmark = pytest.mark.integration


def test_t26_every_name_that_is_shown_is_one_that_is_accepted(
    loads: Node, stream: StreamUnderTest
) -> None:
    loads.sql(create(stream, kinesis_shards=FIRST, kpl_foreign_records="skip"))

    told = shown(loads)
    text = str(loads.sql("SHOW CREATE ROUTINE LOAD FOR r")[0]["CreateStmt"])

    accepted = {option_key(field) for field in option_fields(KinesisOptions)}
    accepted |= set(POSITION_KEYS)
    properties = {option_key(field) for field in option_fields(RoutineProperties)}
    shown_keys = {line.split("'")[1] for line in text.splitlines() if line.startswith("  '")}
    assert set(told["CustomProperties"]) <= accepted
    assert set(told["JobProperties"]) - SHOWN_ALONE - set(FIXED_OPTIONS) == properties
    assert shown_keys <= accepted | properties


def test_a_load_is_shown_in_the_columns_of_doris(loads: Node, stream: StreamUnderTest) -> None:
    numbers = put(stream, 1)
    loads.sql(
        create(stream, properties={"max_batch_rows": "7", "max_batch_size": "100MB"})
        + " COMMENT 'mine'"
    )
    loads.run()

    (found,) = loads.sql("SHOW ROUTINE LOAD")
    told = shown(loads)

    assert list(found) == [column.name for column in LOAD_COLUMNS]
    assert len(LOAD_COLUMNS) == 24
    plain = ("Name", "DbName", "TableName", "IsMultiTable", "DataSourceType", "Comment")
    assert [told[column] for column in plain] == [
        "r",
        "default",
        "t",
        "false",
        "KINESIS",
        "mine",
    ]
    assert told["DataSourceProperties"] == {
        "region": REGION,
        "stream": stream.name,
        "endpoint": stream.client.meta.endpoint_url,
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


def test_the_counters_of_a_load_are_those_of_doris(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    stream.put(b"nonsense")
    loads.sql(create(stream, properties={"max_error_number": "1"}))
    loads.run()

    counted = shown(loads)["Statistic"]

    assert counted["taskExecuteTimeMs"] > 0
    assert (
        counted
        | {
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
        == counted
    )


def test_a_load_is_one_of_the_jobs(loads: Node, stream: StreamUnderTest) -> None:
    put(stream, 1)
    number = stream.put(b"nonsense")
    loads.sql(create(stream, properties={"max_error_number": "1"}) + " COMMENT 'mine'")
    loads.run()

    (found,) = loads.sql("SHOW JOBS")

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


def test_a_load_tells_since_when_and_why_it_is_paused_or_has_ended(
    loads: Node, stream: StreamUnderTest
) -> None:
    columns = ("PauseTime", "EndTime", "ReasonOfStateChanged")
    loads.sql(f"{create(stream)}; PAUSE ROUTINE LOAD FOR r")
    paused = [shown(loads)[column] for column in columns]
    loads.sql("RESUME ROUTINE LOAD FOR r")
    resumed = [shown(loads)[column] for column in columns]
    loads.sql("STOP ROUTINE LOAD FOR r")
    ended = [shown(loads, all_=True)[column] for column in columns]

    created = shown(loads, all_=True)["CreateTime"]
    assert paused[0] >= created
    assert paused[1:] == [None, "MANUAL_PAUSE_ERR: paused by PAUSE ROUTINE LOAD"]
    assert resumed == [None, None, ""]
    assert (ended[0], ended[2]) == (None, "")
    assert ended[1] >= paused[0]


@pytest.mark.parametrize(("wanted", "tasks"), [("1", 1), ("256", 2)])
def test_an_epoch_has_no_more_tasks_than_wanted(
    open_node: OpenNode, stream: StreamUnderTest, *, wanted: str, tasks: int
) -> None:
    started: list[None] = []
    counting = Failing(first=lambda: started.append(None), times=99)
    node = open_node(clock=MovedClock(), read_interval=BLINK, work=counting)
    wide = new_stream(stream.client, shards=3)
    for number in range(3):
        put(wide, number, hash_key=number * 2**127 - number)
    properties = {"desired_concurrent_number": wanted}
    node.sql(f"{CREATE_TABLE}; {create(wide, properties=properties)}")

    node.run()

    assert sorted(ids(node)) == [0, 1, 2]
    assert len(started) == tasks
    assert shown(node)["JobProperties"]["current_concurrent_number"] == str(tasks)


def test_what_was_not_heard_yet_is_unknown(loads: Node, stream: StreamUnderTest) -> None:
    loads.sql(create(stream))

    told = shown(loads)

    assert told["Lag"] == {FIRST: -1}
    assert told["Statistic"]["maxMillisBehindLatest"] == -1
    assert told["Statistic"]["cachedMillisBehindLatestShardNum"] == 0


def test_a_task_that_runs_is_shown_with_where_it_began(
    open_node: OpenNode, stream: StreamUnderTest
) -> None:
    gate = Gate()
    node = open_node(clock=MovedClock(), read_interval=BLINK, work=gate)
    put(stream, 1)
    node.sql(f"{CREATE_TABLE}; {create(stream)}")
    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())
        during = node.sql("SHOW ROUTINE LOAD TASK WHERE jobname = 'r'")
        running = shown(node)
        gate.opened.set()
        rounds_until(supervisor, idle)
        behind = node.sql("SHOW ROUTINE LOAD TASK FOR r")

    (task,) = during
    assert list(task) == [column.name for column in TASK_COLUMNS]
    assert (task["TxnId"], task["JobId"], task["Timeout"]) == (-1, node.job("r").id, 600)
    assert json.loads(str(task["DataSourceProperties"])) == {FIRST: "TRIM_HORIZON"}
    assert (running["CurrentTaskNum"], behind) == (1, [])
    assert running["Statistic"]["runningTxns"] == [task["TaskId"]]
    assert shown(node)["Statistic"]["runningTxns"] == []


def test_everything_that_is_shown_survives_a_restart(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    loads.run()
    before = shown(loads), loads.sql("SHOW SHARDS FOR r")

    again = loads.restart()
    after = shown(again), again.sql("SHOW SHARDS FOR r")

    for told, _ in (before, after):
        for key in ("taskExecuteTimeMs", "receivedBytesRate", "loadRowsRate"):
            told["Statistic"].pop(key)
    for _, listed in (before, after):
        listed[0].pop("lag_age")
    assert after == before
