"""What requests must say, and what is answered if they do not."""

from typing import Any

import pytest

from tests.unit.testing.kinesis.asking import Asking, RefusedError

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
RECORD = {"Data": "eA==", "PartitionKey": "k"}


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ({"StreamARN": ARN.replace("us-east-1", "eu-west-1")}, "ResourceNotFoundException"),
        ({"StreamARN": ARN + "x"}, "ResourceNotFoundException"),
        ({"StreamARN": "arn:aws:s3:::bucket"}, "InvalidArgumentException"),
        ({"StreamARN": ARN, "StreamName": "other"}, "InvalidArgumentException"),
        ({}, "InvalidArgumentException"),
    ],
)
def test_a_request_names_a_stream_of_the_region(
    kinesis: Asking, where: dict[str, str], code: str
) -> None:
    with pytest.raises(RefusedError, match=code):
        kinesis.ask("DescribeStream", **where)


def test_a_name_and_its_arn_may_come_together(kinesis: Asking) -> None:
    answer = kinesis.ask("DescribeStream", StreamName="s", StreamARN=ARN)

    assert answer["StreamDescription"]["StreamARN"] == ARN


@pytest.mark.parametrize(
    "changed",
    [
        {"PartitionKey": ""},
        {"PartitionKey": "k" * 257},
        {"ExplicitHashKey": str(2**128)},
        {"ExplicitHashKey": "-1"},
        {"Data": "not in base64!"},
        {"Data": None},
    ],
)
def test_a_record_that_breaks_a_rule_is_refused(
    kinesis: Asking, changed: dict[str, Any]
) -> None:
    with pytest.raises(RefusedError, match="InvalidArgumentException"):
        kinesis.ask("PutRecord", StreamName="s", **(RECORD | changed))

    with pytest.raises(RefusedError, match="InvalidArgumentException"):
        kinesis.ask("PutRecords", StreamName="s", Records=[RECORD, RECORD | changed])
    assert kinesis.pages(1) == [[]]


@pytest.mark.parametrize("records", [[], None, ["text"], [RECORD] * 501])
def test_put_records_takes_one_to_five_hundred_records(kinesis: Asking, records: Any) -> None:
    with pytest.raises(RefusedError, match="InvalidArgumentException"):
        kinesis.ask("PutRecords", StreamName="s", Records=records)


@pytest.mark.parametrize(
    "more", [{"StreamName": "s"}, {"StreamARN": ARN}, {"ShardFilter": {"Type": "AT_LATEST"}}]
)
def test_a_token_comes_alone(more: dict[str, Any]) -> None:
    kinesis = Asking()
    kinesis.create(2)
    token = kinesis.ask("ListShards", StreamName="s", MaxResults=1)["NextToken"]

    with pytest.raises(RefusedError, match="InvalidArgumentException"):
        kinesis.ask("ListShards", NextToken=token, **more)


@pytest.mark.parametrize("token", ["garbage", "Z2FyYmFnZQ==", "é"])
def test_what_is_no_token_is_refused(kinesis: Asking, token: str) -> None:
    with pytest.raises(RefusedError, match="InvalidArgumentException"):
        kinesis.ask("ListShards", NextToken=token)

    with pytest.raises(RefusedError, match="InvalidArgumentException"):
        kinesis.page(token)


def test_an_iterator_is_no_page_token(kinesis: Asking) -> None:
    with pytest.raises(RefusedError, match="InvalidArgumentException"):
        kinesis.ask("ListShards", NextToken=kinesis.iterator())


def test_a_listing_can_ask_for_the_stream_of_a_time(kinesis: Asking) -> None:
    created = kinesis.ask("DescribeStream", StreamName="s")["StreamDescription"]
    at = int(created["StreamCreationTimestamp"])

    assert kinesis.shards(StreamCreationTimestamp=at)
    with pytest.raises(RefusedError, match="ResourceNotFoundException"):
        kinesis.shards(StreamCreationTimestamp=at - 1)


def test_streams_are_listed_by_token(kinesis: Asking) -> None:
    kinesis.ask("CreateStream", StreamName="t", ShardCount=1)

    first = kinesis.ask("ListStreams", Limit=1)
    second = kinesis.ask("ListStreams", NextToken=first["NextToken"])

    assert (first["StreamNames"], first["HasMoreStreams"]) == (["s"], True)
    assert (second["StreamNames"], second["HasMoreStreams"]) == (["t"], False)


def test_a_stream_on_demand_begins_with_four_shards(kinesis: Asking) -> None:
    mode = {"StreamMode": "ON_DEMAND"}

    kinesis.ask("CreateStream", StreamName="t", StreamModeDetails=mode)

    answer = kinesis.ask("DescribeStreamSummary", StreamName="t")["StreamDescriptionSummary"]
    assert answer["OpenShardCount"] == 4
    assert answer["StreamModeDetails"] == mode


def test_only_open_shards_side_by_side_are_changed(kinesis: Asking) -> None:
    kinesis.split()

    with pytest.raises(RefusedError, match="InvalidArgumentException"):
        kinesis.split(0, at=5)
    with pytest.raises(RefusedError, match="InvalidArgumentException"):
        kinesis.split(1, at=0)
