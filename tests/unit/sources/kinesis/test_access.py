"""Options of a stream: what has no right form is refused, and no value from elsewhere shown."""

from dataclasses import replace

import pytest

from penstock.errors import Code, UserError
from penstock.sources.kinesis.client import stream_access
from penstock.sources.kinesis.kind import KinesisOptions, revealed_stream
from tests.error_values import raises

CANARY = "canary 7f3a"
STREAM = KinesisOptions(region="eu-west-1", stream="orders")
ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/secret-orders"


def given(_key: str, text: str) -> str:
    """Reveal the reference."""
    return CANARY if text == "env:V" else text


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (
            replace(STREAM, region="env:V"),
            ('"aws.region"', "eu-west-1", "env:V"),
        ),
        (
            replace(STREAM, stream="env:V"),
            ('"kinesis_stream"', "env:V"),
        ),
        (
            replace(STREAM, role_arn="env:V"),
            ('"aws.role_arn"', "ARN", "env:V"),
        ),
        (
            replace(STREAM, endpoint="env:V"),
            ('"aws.endpoint"', "env:V"),
        ),
        (replace(STREAM, stream_arn="env:V"), ("stream/orders", "env:V")),
        (replace(STREAM, stream="a b"), ('"a b"',)),
    ],
)
def test_a_wrong_value_is_named_as_it_is_written(
    options: KinesisOptions, named: tuple[str, ...]
) -> None:
    with raises(UserError, Code.OPTION_ERR, *named) as refused:
        revealed_stream(options, given)

    assert CANARY not in f"{refused.value} {refused.value.detail} {refused.value.hint}"


def test_an_arn_from_elsewhere_that_names_another_stream_is_not_shown() -> None:
    options = replace(STREAM, stream_arn="env:V")

    with raises(UserError, Code.OPTION_ERR, "env:V", '"kinesis_stream"') as no:
        revealed_stream(options, lambda _, text: ARN if text == "env:V" else text)

    assert "secret-orders" not in f"{no.value} {no.value.detail} {no.value.hint}"


def test_a_stream_and_its_place_are_named_as_they_are_written() -> None:
    value_by_reference = {"env:R": "eu-west-1", "env:S": "hidden", "env:E": "http://hidden:1"}
    options = KinesisOptions(region="env:R", stream="env:S", endpoint="env:E")

    access = stream_access(
        revealed_stream(options, lambda _, text: value_by_reference.get(text, text))
    )

    assert access.shown == 'stream "env:S"'
    assert access.place_shown == "env:E"
    assert access.region_shown == "env:R"
    assert "hidden" not in access.keys.needed_for


def test_a_stream_that_is_written_out_is_named_by_itself() -> None:
    access = stream_access(STREAM)

    assert access.shown == 'stream "orders"'
    assert access.place_shown == "kinesis.eu-west-1.amazonaws.com"
