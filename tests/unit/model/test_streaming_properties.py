"""Options of streaming tables: units, defaults and refused values."""

from datetime import timedelta

import pytest

from penstock.errors import UserError
from penstock.model.job_kinds import OutputMode, StreamingTableProperties
from penstock.model.options import parse_options, print_options


def parsed(**values: str) -> StreamingTableProperties:
    """Parse options; underscores stand for dots and hyphens."""
    pairs = [(key.replace("__", "-").replace("_dot_", "."), v) for key, v in values.items()]
    return parse_options(StreamingTableProperties, pairs, what="a streaming table")


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("10s", timedelta(seconds=10)),
        ("500", timedelta(milliseconds=500)),
        ("500ms", timedelta(milliseconds=500)),
        ("2 min", timedelta(minutes=2)),
    ],
)
def test_a_bare_checkpoint_interval_is_in_milliseconds(text: str, interval: timedelta) -> None:
    assert parsed(checkpoint_dot_interval=text).checkpoint_interval == interval


@pytest.mark.parametrize("text", ["0", "0s", "-1", "soon", ""])
def test_an_interval_that_is_not_positive_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r'option "checkpoint\.interval" must be'):
        parsed(checkpoint_dot_interval=text)


def test_automatic_values_are_printed_only_if_they_were_changed() -> None:
    properties = parsed(output="update", parallelism="3", watermark_dot_idle__timeout="1m")

    assert properties.output is OutputMode.UPDATE
    assert dict(print_options(properties)) == {
        "output": "update",
        "parallelism": "3",
        "watermark.idle-timeout": "60s",
    }
    assert print_options(parsed(output="auto", parallelism="auto")) == ()


def test_an_idle_streaming_table_is_polled_at_least_every_ten_seconds() -> None:
    assert parsed(checkpoint_dot_interval="5m").max_interval == timedelta(seconds=10)
