"""Statements about routine loads: states, lists, SHOW output, reuse of names."""

import re
from pathlib import Path

import pytest

from penstock.errors import UserError
from tests.integration.routine_loads import Load
from tests.node import Node, create_job, numbered, write_rows

pytestmark = pytest.mark.integration


def names(node: Node, what: str = "ROUTINE LOAD") -> list[object]:
    """Return the names that SHOW lists."""
    return [one["Name"] for one in node.sql(f"SHOW {what}")]


def test_t16_requests_go_to_the_endpoint_of_the_statement(load: Load) -> None:
    load.put(1)
    load.control.clear_requests()
    load.create(aws__endpoint="", kinesis_endpoint=load.server.endpoint)

    load.run()

    asked = [one for one in load.control.requests() if one.access_key_id == "mine"]
    assert {"DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"} == {
        one.operation for one in asked
    }
    assert load.shown()["DataSourceProperties"]["endpoint"] == load.server.endpoint


def test_t82_a_stream_can_be_named_by_its_arn(load: Load) -> None:
    load.put(1)
    load.create(
        property__aws__kinesis__stream_arn=load.stream.arn,
        property__aws__kinesis__max_results="1",
    )
    load.stream.split(0, 2**127)

    load.run()
    load.run()

    assert load.ids() == [1]
    assert len(load.shown()["Progress"]) == 3


def test_statements_for_jobs_are_refused_for_loads_and_the_reverse(
    load: Load, folder: Path
) -> None:
    write_rows(folder / "a.json", numbered(1))
    load.sql(f"{load.statement()}; {create_job(folder)}")

    assert load.refusal("PAUSE ROUTINE LOAD FOR j") == ["STATE_ERR", "j"]
    for words in ("DROP JOB", "SHOW CREATE JOB", "EXPLAIN JOB"):
        assert load.refusal(f"{words} r") == ["STATE_ERR", "r"]
    assert load.refusal("PAUSE ROUTINE LOAD FOR x") == ["META_NOT_FOUND_ERR", "x"]


def test_pause_all_and_resume_all_affect_only_loads(load: Load, folder: Path) -> None:
    write_rows(folder / "a.json", numbered(1))
    load.sql(f"{load.statement()}; {load.statement(name='s')}; {create_job(folder)}")
    load.sql(f"{load.statement(name='gone')}; STOP ROUTINE LOAD FOR gone")
    load.sql("PAUSE ROUTINE LOAD FOR s")

    load.sql("PAUSE ALL ROUTINE LOAD")
    paused = {one["Name"]: one["ReasonOfStateChanged"] for one in load.sql("SHOW ROUTINE LOAD")}
    load.sql("RESUME ALL ROUTINE LOAD")
    resumed = {one["State"] for one in load.sql("SHOW ROUTINE LOAD")}

    assert paused == {
        "r": "MANUAL_PAUSE_ERR: paused by PAUSE ALL ROUTINE LOAD",
        "s": "MANUAL_PAUSE_ERR: paused by PAUSE ROUTINE LOAD",
    }
    assert resumed == {"NEED_SCHEDULE"}
    assert load.node.show("j")["state"] == "PENDING"


def test_stopped_loads_are_shown_only_by_show_all(load: Load) -> None:
    load.sql(f"{load.statement()}; {load.statement(name='s')}; STOP ROUTINE LOAD FOR r")

    assert names(load.node) == ["s"]
    assert names(load.node, "ALL ROUTINE LOAD") == ["r", "s"]
    assert load.refusal("SHOW ROUTINE LOAD FOR r") == ["META_NOT_FOUND_ERR", "r"]
    assert load.refusal("SHOW ALL ROUTINE LOAD FOR x") == ["META_NOT_FOUND_ERR", "x"]
    assert load.refusal("SHOW CREATE ROUTINE LOAD FOR r") == ["META_NOT_FOUND_ERR", "r"]
    assert load.sql("SHOW ALL CREATE ROUTINE LOAD FOR r")[0]["JobName"] == "r"
    load.create()
    both = load.sql("SHOW ALL ROUTINE LOAD FOR r")
    assert [row["State"] for row in both] == ["STOPPED", "NEED_SCHEDULE"]


def test_loads_are_found_by_pattern(load: Load) -> None:
    load.sql("; ".join(load.statement(name=name) for name in ("a_1", "ab1", "b")))

    assert names(load.node, "ROUTINE LOAD LIKE 'a%'") == ["a_1", "ab1"]
    assert names(load.node, "ROUTINE LOAD LIKE 'a\\_1'") == ["a_1"]
    assert names(load.node, "ROUTINE LOAD LIKE '_'") == ["b"]


def test_a_stopped_load_is_deleted_after_days(load: Load) -> None:
    load.sql(f"{load.statement()}; STOP ROUTINE LOAD FOR r")
    load.clock.move(days=4)

    load.create(name="s")

    assert names(load.node, "ALL ROUTINE LOAD") == ["s"]


def test_a_secret_cannot_be_dropped_until_its_loads_are_stopped(load: Load) -> None:
    load.sql("CREATE SECRET k ('aws.access_key' = 'mine', 'aws.secret_key' = 'mine')")
    load.sql(load.statement().replace("= 'mine'", "= SECRET 'k'"))
    with pytest.raises(UserError, match=r'"k".* "r"') as refused:
        load.sql("DROP SECRET k")
    load.sql("STOP ROUTINE LOAD FOR r")

    load.sql("DROP SECRET k")

    assert "STOP ROUTINE LOAD FOR r" in refused.value.hint
    assert load.node.catalog.secrets() == ()


def test_columns_that_stay_empty_are_reported(load: Load) -> None:
    load.create(clauses="COLUMNS(id, note_)", properties={"format": "csv"})

    assert re.search(r"\br\b.* 1 shard\b.* note$", load.node.last_message)
