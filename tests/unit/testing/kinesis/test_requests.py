"""Validation of requests."""

from typing import Any

import pytest

from tests.unit.testing.kinesis.in_process import InProcessKinesis, ResponseError

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
def test_a_request_must_name_a_stream_of_the_region(
    kinesis: InProcessKinesis, where: dict[str, str], code: str
) -> None:
    with pytest.raises(ResponseError, match=code):
        kinesis.send("DescribeStream", **where)


def test_a_request_can_have_a_stream_name_and_its_arn(kinesis: InProcessKinesis) -> None:
    response = kinesis.send("DescribeStream", StreamName="s", StreamARN=ARN)

    assert response["StreamDescription"]["StreamARN"] == ARN


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
def test_an_invalid_record_is_refused(
    kinesis: InProcessKinesis, changed: dict[str, Any]
) -> None:
    with pytest.raises(ResponseError, match="InvalidArgumentException"):
        kinesis.send("PutRecord", StreamName="s", **(RECORD | changed))

    with pytest.raises(ResponseError, match="InvalidArgumentException"):
        kinesis.send("PutRecords", StreamName="s", Records=[RECORD, RECORD | changed])
    assert kinesis.pages(1) == [[]]


@pytest.mark.parametrize("records", [[], None, ["text"], [RECORD] * 501])
def test_put_records_takes_one_to_five_hundred_records(
    kinesis: InProcessKinesis, records: Any
) -> None:
    with pytest.raises(ResponseError, match="InvalidArgumentException"):
        kinesis.send("PutRecords", StreamName="s", Records=records)


@pytest.mark.parametrize(
    "more", [{"StreamName": "s"}, {"StreamARN": ARN}, {"ShardFilter": {"Type": "AT_LATEST"}}]
)
def test_a_page_token_excludes_other_parameters(more: dict[str, Any]) -> None:
    kinesis = InProcessKinesis()
    kinesis.create(2)
    token = kinesis.send("ListShards", StreamName="s", MaxResults=1)["NextToken"]

    with pytest.raises(ResponseError, match="InvalidArgumentException"):
        kinesis.send("ListShards", NextToken=token, **more)


@pytest.mark.parametrize("token", ["garbage", "Z2FyYmFnZQ==", "é"])
def test_an_invalid_token_is_refused(kinesis: InProcessKinesis, token: str) -> None:
    with pytest.raises(ResponseError, match="InvalidArgumentException"):
        kinesis.send("ListShards", NextToken=token)

    with pytest.raises(ResponseError, match="InvalidArgumentException"):
        kinesis.page(token)


def test_an_iterator_is_not_a_page_token(kinesis: InProcessKinesis) -> None:
    with pytest.raises(ResponseError, match="InvalidArgumentException"):
        kinesis.send("ListShards", NextToken=kinesis.iterator())


def test_a_listing_can_require_a_creation_time(kinesis: InProcessKinesis) -> None:
    created = kinesis.send("DescribeStream", StreamName="s")["StreamDescription"]
    at = int(created["StreamCreationTimestamp"])

    assert kinesis.shards(StreamCreationTimestamp=at)
    with pytest.raises(ResponseError, match="ResourceNotFoundException"):
        kinesis.shards(StreamCreationTimestamp=at - 1)


def test_streams_are_listed_in_pages(kinesis: InProcessKinesis) -> None:
    kinesis.send("CreateStream", StreamName="t", ShardCount=1)

    first = kinesis.send("ListStreams", Limit=1)
    second = kinesis.send("ListStreams", NextToken=first["NextToken"])

    assert (first["StreamNames"], first["HasMoreStreams"]) == (["s"], True)
    assert (second["StreamNames"], second["HasMoreStreams"]) == (["t"], False)


def test_an_on_demand_stream_starts_with_four_shards(kinesis: InProcessKinesis) -> None:
    mode = {"StreamMode": "ON_DEMAND"}

    kinesis.send("CreateStream", StreamName="t", StreamModeDetails=mode)

    summary = kinesis.send("DescribeStreamSummary", StreamName="t")["StreamDescriptionSummary"]
    assert summary["OpenShardCount"] == 4
    assert summary["StreamModeDetails"] == mode


def test_only_open_shards_can_be_split_and_only_inside_their_range(
    kinesis: InProcessKinesis,
) -> None:
    kinesis.split()

    with pytest.raises(ResponseError, match="InvalidArgumentException"):
        kinesis.split(0, at=5)
    with pytest.raises(ResponseError, match="InvalidArgumentException"):
        kinesis.split(1, at=0)
