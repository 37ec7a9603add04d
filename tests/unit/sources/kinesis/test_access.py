"""Validation of stream options; messages never show values of references."""

from dataclasses import replace

import pytest

from penstock.errors import Code, UserError
from penstock.sources.kinesis.client import stream_access
from penstock.sources.kinesis.kind import KinesisOptions, revealed_stream
from tests.error_values import raises

CANARY = "canary 7f3a"
STREAM = KinesisOptions(region="eu-west-1", stream="orders")
ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/secret-orders"


def reveal(_key: str, text: str) -> str:
    """Return the value of the reference."""
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
def test_an_error_shows_the_reference_instead_of_its_value(
    options: KinesisOptions, named: tuple[str, ...]
) -> None:
    with raises(UserError, Code.OPTION_ERR, *named) as error:
        revealed_stream(options, reveal)

    assert CANARY not in f"{error.value} {error.value.detail} {error.value.hint}"


def test_an_error_does_not_show_an_arn_that_comes_from_a_reference() -> None:
    options = replace(STREAM, stream_arn="env:V")

    with raises(UserError, Code.OPTION_ERR, "env:V", '"kinesis_stream"') as error:
        revealed_stream(options, lambda _, text: ARN if text == "env:V" else text)

    assert "secret-orders" not in f"{error.value} {error.value.detail} {error.value.hint}"


def test_messages_show_the_references_of_a_stream_and_its_endpoint() -> None:
    value_by_reference = {"env:R": "eu-west-1", "env:S": "hidden", "env:E": "http://hidden:1"}
    options = KinesisOptions(region="env:R", stream="env:S", endpoint="env:E")

    access = stream_access(
        revealed_stream(options, lambda _, text: value_by_reference.get(text, text))
    )

    assert access.shown == 'stream "env:S"'
    assert access.place_shown == "env:E"
    assert access.region_shown == "env:R"
    assert "hidden" not in access.keys.needed_for


def test_messages_show_the_stream_name_and_the_default_endpoint() -> None:
    access = stream_access(STREAM)

    assert access.shown == 'stream "orders"'
    assert access.place_shown == "kinesis.eu-west-1.amazonaws.com"
