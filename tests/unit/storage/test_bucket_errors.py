"""Errors of a bucket, converted."""

import pytest
from obstore.exceptions import PermissionDeniedError

from penstock.errors import ExternalError
from penstock.storage.bucket import bucket_failures
from penstock.storage.options import StoreOptions
from tests.error_values import assert_names

# A response of AWS; the library appends it to its own text.
SKEWED = (
    "for path x: Server returned non-2xx status code: 403 Forbidden: <?xml version='1.0'?>\n"
    "<Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the request time "
    "and the current time is too large.</Message>{times}</Error>"
)
TIMES = (
    "<RequestTime>20261117T080000Z</RequestTime><ServerTime>2026-11-17T11:57:00Z</ServerTime>"
)


@pytest.mark.parametrize(
    ("times", "detail"),
    [
        (
            TIMES,
            "This machine signed the request at 20261117T080000Z; the server time was "
            "2026-11-17T11:57:00Z.",
        ),
        ("", "403 Forbidden, RequestTimeTooSkewed."),
    ],
    ids=["with-times", "without"],
)
def test_a_wrong_clock_is_not_reported_as_wrong_keys(times: str, detail: str) -> None:
    skewed = PermissionDeniedError(SKEWED.format(times=times))

    with pytest.raises(ExternalError) as bad, bucket_failures("request failed", StoreOptions()):
        raise skewed

    assert_names(bad.value.message, "clocks")
    assert bad.value.detail == detail
    assert_names(bad.value.hint, "clock")
