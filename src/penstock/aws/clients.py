"""Open clients of AWS services; only this module and ``credentials`` import boto3."""

from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.aws.credentials import AwsKeys, credentials_for

# At least the number of threads that use one client at the same time.
CONNECTIONS_MAX = 64


def aws_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that a client raises."""
    from botocore.exceptions import BotoCoreError, ClientError

    return (BotoCoreError, ClientError)


def open_client(
    service: str,
    *,
    keys: AwsKeys,
    region: str,
    endpoint: str,
    connect_timeout: timedelta,
    read_timeout: timedelta,
) -> Any:  # noqa: ANN401 - boto3 has no types.
    """Create a client that never retries and refreshes its credentials before they expire."""
    import boto3
    from botocore.config import Config
    from botocore.credentials import DeferredRefreshableCredentials
    from botocore.session import get_session

    session = get_session()
    cached = credentials_for(keys)

    def refresh() -> dict[str, str | None]:
        credentials = cached()
        expires_at = credentials["expires_at"] or datetime.now(UTC) + timedelta(days=1)
        return {
            "access_key": credentials["access_key_id"],
            "secret_key": credentials["secret_access_key"],
            "token": credentials["token"],
            "expiry_time": expires_at.isoformat(),
        }

    session._credentials = DeferredRefreshableCredentials(refresh, "penstock")  # noqa: SLF001 - There is no public API.
    session.register(f"creating-serializer.{service}", _keep_milliseconds)
    # Parsing dates would double the time of reading a response.
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=float)
    return boto3.Session(botocore_session=session).client(
        service,
        region_name=region,
        endpoint_url=endpoint or None,
        config=Config(
            connect_timeout=connect_timeout.total_seconds(),
            read_timeout=read_timeout.total_seconds(),
            max_pool_connections=CONNECTIONS_MAX,
            # The caller retries, and counts requests.
            retries={"total_max_attempts": 1, "mode": "standard"},
        ),
    )


def _keep_milliseconds(serializer_kwargs: dict[str, Any], **_: object) -> None:
    """Keep the milliseconds of timestamps, which boto3 truncates."""
    serializer_kwargs["timestamp_precision"] = "millisecond"
