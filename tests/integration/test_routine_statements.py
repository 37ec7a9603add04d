"""Statements about routine loads: states, lists, what is shown, names that are used again."""

from pathlib import Path

import pytest

from penstock.errors import UserError
from tests.integration.driving import Gate, MovedClock, idle, rounds_until, supervised
from tests.integration.routine_loads import (
    BLINK,
    CREATE_TABLE,
    create,
    ids,
    loads,
    put,
    refusal,
    server,
    shown,
    stream,
)
from tests.mirrored_node import OpenNode
from tests.node import Node, create_job, numbered, write_rows
from tests.servers.kinesis.server import KinesisServer
from tests.servers.kinesis_clients import StreamUnderTest

__all__ = ["loads", "server", "stream"]
pytestmark = pytest.mark.integration


def names(node: Node, what: str = "ROUTINE LOAD") -> list[object]:
    """Answer the names that SHOW lists."""
    return [one["Name"] for one in node.sql(f"SHOW {what}")]


def test_t16_the_endpoint_of_the_statement_is_asked(
    loads: Node, server: KinesisServer, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    server.control.forget_requests()
    loads.sql(create(stream, aws__endpoint="", kinesis_endpoint=server.endpoint))

    loads.run()

    asked = [one for one in server.control.requests() if one.access_key_id == "mine"]
    assert {"DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"} == {
        one.operation for one in asked
    }
    assert shown(loads)["DataSourceProperties"]["endpoint"] == server.endpoint


def test_t82_a_stream_may_be_named_by_its_arn(loads: Node, stream: StreamUnderTest) -> None:
    put(stream, 1)
    loads.sql(
        create(
            stream,
            property__aws__kinesis__stream_arn=stream.arn,
            property__aws__kinesis__max_results="1",
        )
    )
    stream.split(0, 2**127)

    loads.run()
    loads.run()

    assert ids(loads) == [1]
    assert len(shown(loads)["Progress"]) == 3


def test_a_load_goes_through_the_states_of_doris(loads: Node, stream: StreamUnderTest) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    states = [shown(loads)["State"]]
    with supervised(loads) as supervisor:
        rounds_until(supervisor, idle)
        states.append(shown(loads)["State"])
        loads.sql("PAUSE ROUTINE LOAD FOR r")
        states.append(shown(loads)["State"])
    loads.sql("RESUME ROUTINE LOAD FOR r")
    states.append(shown(loads)["State"])

    loads.sql("STOP ROUTINE LOAD FOR r")

    states.append(shown(loads, all_=True)["State"])
    assert states == ["NEED_SCHEDULE", "RUNNING", "PAUSED", "NEED_SCHEDULE", "STOPPED"]


@pytest.mark.parametrize(
    "statement",
    [
        "PAUSE ROUTINE LOAD FOR r",
        "RESUME ROUTINE LOAD FOR r",
        "STOP ROUTINE LOAD FOR r",
        "ALTER ROUTINE LOAD FOR r PROPERTIES('max_batch_rows' = '1')",
    ],
)
def test_a_load_that_was_stopped_is_final(
    loads: Node, stream: StreamUnderTest, *, statement: str
) -> None:
    loads.sql(create(stream))
    loads.sql("STOP ROUTINE LOAD FOR r")

    assert refusal(loads, statement) == 'STATE_ERR: routine load "r" was stopped'


def test_a_load_that_is_paused_cannot_be_paused(loads: Node, stream: StreamUnderTest) -> None:
    loads.sql(create(stream))
    loads.sql("PAUSE ROUTINE LOAD FOR r")

    assert refusal(loads, "PAUSE ROUTINE LOAD FOR r") == (
        'STATE_ERR: routine load "r" is already paused'
    )


def test_statements_know_loads_from_jobs(
    loads: Node, stream: StreamUnderTest, folder: Path
) -> None:
    write_rows(folder / "a.json", numbered(1))
    loads.sql(f"{create(stream)}; {create_job(folder)}")

    assert refusal(loads, "PAUSE ROUTINE LOAD FOR j") == 'STATE_ERR: "j" is a streaming job'
    for words in ("DROP JOB", "SHOW CREATE JOB", "EXPLAIN JOB"):
        assert refusal(loads, f"{words} r") == 'STATE_ERR: "r" is a routine load'
    assert refusal(loads, "PAUSE ROUTINE LOAD FOR x") == (
        'META_NOT_FOUND_ERR: routine load "x" does not exist'
    )


def test_all_loads_are_paused_and_resumed_and_no_job(
    loads: Node, stream: StreamUnderTest, folder: Path
) -> None:
    write_rows(folder / "a.json", numbered(1))
    loads.sql(f"{create(stream)}; {create(stream, name='s')}; {create_job(folder)}")
    loads.sql(f"{create(stream, name='gone')}; STOP ROUTINE LOAD FOR gone")
    loads.sql("PAUSE ROUTINE LOAD FOR s")

    loads.sql("PAUSE ALL ROUTINE LOAD")
    paused = {
        one["Name"]: one["ReasonOfStateChanged"] for one in loads.sql("SHOW ROUTINE LOAD")
    }
    loads.sql("RESUME ALL ROUTINE LOAD")
    resumed = {one["State"] for one in loads.sql("SHOW ROUTINE LOAD")}

    assert paused == {
        "r": "MANUAL_PAUSE_ERR: paused by PAUSE ALL ROUTINE LOAD",
        "s": "MANUAL_PAUSE_ERR: paused by PAUSE ROUTINE LOAD",
    }
    assert resumed == {"NEED_SCHEDULE"}
    assert loads.show("j")["state"] == "PENDING"


def test_stopped_loads_are_shown_on_request_only(loads: Node, stream: StreamUnderTest) -> None:
    loads.sql(f"{create(stream)}; {create(stream, name='s')}; STOP ROUTINE LOAD FOR r")

    assert names(loads) == ["s"]
    assert names(loads, "ALL ROUTINE LOAD") == ["r", "s"]
    assert refusal(loads, "SHOW ROUTINE LOAD FOR r") == (
        'META_NOT_FOUND_ERR: there is no routine load "r"'
    )
    assert refusal(loads, "SHOW ALL ROUTINE LOAD FOR x") == (
        'META_NOT_FOUND_ERR: there is no routine load "x" also among those that were stopped'
    )
    assert refusal(loads, "SHOW CREATE ROUTINE LOAD FOR r") == (
        'META_NOT_FOUND_ERR: routine load "r" was stopped'
    )
    assert loads.sql("SHOW ALL CREATE ROUTINE LOAD FOR r")[0]["JobName"] == "r"


def test_loads_are_found_by_pattern(loads: Node, stream: StreamUnderTest) -> None:
    loads.sql("; ".join(create(stream, name=name) for name in ("a_1", "ab1", "b")))

    assert names(loads, "ROUTINE LOAD LIKE 'a%'") == ["a_1", "ab1"]
    assert names(loads, "ROUTINE LOAD LIKE 'a\\_1'") == ["a_1"]
    assert names(loads, "ROUTINE LOAD LIKE '_'") == ["b"]


def test_the_name_of_a_load_that_was_stopped_can_be_used_again(
    loads: Node, stream: StreamUnderTest
) -> None:
    put(stream, 1)
    loads.sql(create(stream))
    loads.run()
    loads.sql("STOP ROUTINE LOAD FOR r")

    loads.sql(create(stream))
    loads.run()

    assert ids(loads) == [1, 1]
    assert shown(loads)["Statistic"]["loadedRows"] == 1
    both = loads.sql("SHOW ALL ROUTINE LOAD FOR r")
    assert [row["State"] for row in both] == ["STOPPED", "NEED_SCHEDULE"]
    loads.sql("STOP ROUTINE LOAD FOR r; DROP TABLE t")
    assert names(loads, "ALL ROUTINE LOAD") == []


def test_a_load_that_is_to_run_may_be_resumed(loads: Node, stream: StreamUnderTest) -> None:
    loads.sql(create(stream))

    loads.sql("RESUME ROUTINE LOAD FOR r")

    assert shown(loads)["State"] == "NEED_SCHEDULE"


def test_a_load_that_was_stopped_is_forgotten_after_days(
    loads: Node, stream: StreamUnderTest
) -> None:
    loads.sql(f"{create(stream)}; STOP ROUTINE LOAD FOR r")
    assert isinstance(loads.clock, MovedClock)
    loads.clock.move(days=4)

    loads.sql(create(stream, name="s"))

    assert names(loads, "ALL ROUTINE LOAD") == ["s"]


def test_a_secret_is_kept_by_loads_that_live_and_not_by_stopped_ones(
    loads: Node, stream: StreamUnderTest
) -> None:
    loads.sql("CREATE SECRET k ('aws.access_key' = 'mine', 'aws.secret_key' = 'mine')")
    loads.sql(create(stream).replace("= 'mine'", "= SECRET 'k'"))
    with pytest.raises(UserError, match='secret "k" is used by routine load "r"') as kept:
        loads.sql("DROP SECRET k")
    loads.sql("STOP ROUTINE LOAD FOR r")

    loads.sql("DROP SECRET k")

    assert kept.value.hint.startswith("First write STOP ROUTINE LOAD FOR r")
    assert loads.catalog.secrets() == ()


def test_a_table_is_kept_by_loads_that_live_and_not_by_stopped_ones(
    loads: Node, stream: StreamUnderTest
) -> None:
    loads.sql(f"{create(stream)}; {create(stream, name='s')}; STOP ROUTINE LOAD FOR r")
    kept = refusal(loads, "DROP TABLE t")
    before = names(loads, "ALL ROUTINE LOAD")
    loads.sql("STOP ROUTINE LOAD FOR s")

    loads.sql("DROP TABLE t")

    assert kept == 'STATE_ERR: table "t" is loaded by routine load "s"'
    assert before == ["r", "s"]
    assert names(loads, "ALL ROUTINE LOAD") == []
    assert loads.catalog.secrets() == ()


def test_a_load_that_is_stopped_while_a_batch_runs_loads_nothing_more(
    open_node: OpenNode, stream: StreamUnderTest
) -> None:
    gate = Gate()
    node = open_node(clock=MovedClock(), read_interval=BLINK, work=gate)
    put(stream, 1)
    node.sql(f"{CREATE_TABLE}; {create(stream)}")
    with supervised(node) as supervisor:
        rounds_until(supervisor, lambda _: gate.entered.is_set())
        node.sql("STOP ROUTINE LOAD FOR r")
        gate.opened.set()

    assert ids(node) == []


def test_columns_of_the_table_that_nothing_fills_are_told(
    loads: Node, stream: StreamUnderTest
) -> None:
    loads.sql(create(stream, clauses="COLUMNS(id, note_)", properties={"format": "csv"}))

    assert loads.said == "routine load r created, 1 shard; nothing fills the table's note"
