"""Clients of buckets, one per process and configuration.

A client is found by everything that it was made of, so that changed credentials reach the very
next request: they make another client.
"""

import os
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from penstock.errors import Code, ExternalError, UserError
from penstock.model.store_options import Choice, Provider, StoreOptions
from penstock.storage.uris import Scheme

REGION_DEFAULT = "us-east-1"
_CLIENTS_MAX = 64

# A server that is away for some seconds is waited for; what lasts longer is an error that the
# job's own retries deal with. The waits are drawn between the first and the last one times the
# base, so they hardly grow; it is the timeout that ends them, and never their number.
_RETRIES: dict[str, Any] = {
    "max_retries": 1_000,
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=2),
        "base": 3,
    },
    "retry_timeout": timedelta(seconds=15),
}
_TIMES: dict[str, Any] = {
    "timeout": timedelta(seconds=60),
    "read_timeout": timedelta(seconds=20),
    "connect_timeout": timedelta(seconds=5),
}
# Keys of the environment or of a profile are looked at again after this time.
_CHAIN_LIFE = timedelta(minutes=10)

_HOST_STYLE = frozenset({Provider.OSS, Provider.COS, Provider.OBS, Provider.BOS})

Credentials = dict[str, Any]


@lru_cache(maxsize=_CLIENTS_MAX)
def client_of(scheme: Scheme, bucket: str, options: StoreOptions) -> Any:  # noqa: ANN401
    """Answer the client of a bucket."""
    try:
        match scheme:
            case Scheme.GS:
                return _google(bucket, options)
            case Scheme.AZ:
                return _azure(bucket, options)
            case _:
                return _s3(bucket, options)
    except (ValueError, TypeError) as error:
        raise UserError(
            f'bucket "{scheme}://{bucket}" cannot be reached with these options',
            code=Code.OPTION_ERR,
            detail="The client of the store refuses them.",
            hint='Check "s3.endpoint" and "s3.region".',
        ) from error


def custom_endpoint(options: StoreOptions) -> str:
    """Answer the address of a server that is not AWS itself; empty for AWS."""
    given = options.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3", "")
    given = given or os.environ.get("AWS_ENDPOINT_URL", "")
    if not given:
        return ""
    # Doris' users write it without a scheme.
    return given.rstrip("/") if "://" in given else f"https://{given.rstrip('/')}"


def region_of(options: StoreOptions) -> str:
    """Answer the region to sign for."""
    environment = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return options.region or environment or REGION_DEFAULT


def path_style(options: StoreOptions) -> bool:
    """Tell whether the bucket stands in the path of a request."""
    if options.path_style is Choice.AUTO:
        return bool(custom_endpoint(options)) and options.provider not in _HOST_STYLE
    return options.path_style is Choice.TRUE


def _s3(bucket: str, options: StoreOptions) -> Any:  # noqa: ANN401
    from obstore.store import S3Store

    endpoint = custom_endpoint(options)
    in_path = path_style(options)
    config: dict[str, Any] = {
        "region": region_of(options),
        "virtual_hosted_style_request": not in_path,
    }
    if endpoint:
        config["endpoint"] = endpoint if in_path else _with_bucket(endpoint, bucket)
    return S3Store(
        bucket,
        config=config,  # type: ignore[arg-type]
        client_options={**_TIMES, "allow_http": endpoint.startswith("http://")},  # type: ignore[arg-type]
        retry_config=_RETRIES,  # type: ignore[arg-type]
        credential_provider=_provider(options),  # type: ignore[arg-type]
    )


def _with_bucket(endpoint: str, bucket: str) -> str:
    parts = urlsplit(endpoint)
    return urlunsplit(parts._replace(netloc=f"{bucket}.{parts.netloc}"))


def _provider(options: StoreOptions) -> Callable[[], Credentials]:
    """Answer what gives credentials; those that end are asked for again in time."""
    if options.role_arn:
        return _assumed(options)
    if options.access_key:
        return lambda: {
            "access_key_id": options.access_key,
            "secret_access_key": options.secret_key,
            "token": options.session_token or None,
            "expires_at": None,
        }
    return _chain()


def _chain() -> Callable[[], Credentials]:
    """Answer the default chain: environment, profile, web identity, container, instance."""
    import boto3

    def credentials() -> Credentials:
        # A session finds keys once and keeps them, also when their file changes.
        found = boto3.Session().get_credentials()
        if found is None:
            raise ExternalError(
                "no credentials were found for the bucket",
                detail="Asked: environment, profile, web identity, container and instance.",
                hint=(
                    'Give "s3.access_key" and "s3.secret_key", or set AWS_ACCESS_KEY_ID and '
                    "AWS_SECRET_ACCESS_KEY."
                ),
            )
        frozen = found.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + _CHAIN_LIFE,
        }

    # Found out here, so that whoever makes a client is told at once.
    credentials()
    return credentials


def _assumed(options: StoreOptions) -> Callable[[], Credentials]:
    """Answer the credentials of a role, assumed anew before they end."""
    import boto3

    keys = {
        "aws_access_key_id": options.access_key or None,
        "aws_secret_access_key": options.secret_key or None,
        "aws_session_token": options.session_token or None,
    }
    wanted = {"RoleArn": options.role_arn, "RoleSessionName": "penstock"}
    if options.external_id:
        wanted["ExternalId"] = options.external_id

    def credentials() -> Credentials:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            # The session that boto3 shares keeps keys, and must not be used by two threads.
            session = boto3.Session(region_name=region_of(options), **keys)
            with closing(session.client("sts")) as client:
                answer = client.assume_role(**wanted)["Credentials"]
        except (BotoCoreError, ClientError) as error:
            code = getattr(error, "response", {}).get("Error", {}).get("Code", "")
            raise ExternalError(
                f'role "{options.role_arn}" could not be assumed',
                detail=f"{code or type(error).__name__}.",
                hint="Check the role's trust policy, the keys and s3.external_id.",
            ) from error
        return {
            "access_key_id": answer["AccessKeyId"],
            "secret_access_key": answer["SecretAccessKey"],
            "token": answer["SessionToken"],
            # obstore takes Python's own UTC and no other.
            "expires_at": answer["Expiration"].astimezone(UTC),
        }

    credentials()
    return credentials


def _google(bucket: str, options: StoreOptions) -> Any:  # noqa: ANN401
    from obstore.store import GCSStore

    config: dict[str, Any] = {}
    if options.service_account:
        config["service_account_key"] = options.service_account
    return GCSStore(bucket, config=config, client_options=_TIMES, retry_config=_RETRIES)  # type: ignore[arg-type]


def _azure(bucket: str, options: StoreOptions) -> Any:  # noqa: ANN401
    from obstore.store import AzureStore

    config: dict[str, Any] = {}
    if options.access_key:
        config["account_name"] = options.access_key
        config["account_key"] = options.secret_key
    if options.endpoint:
        config["endpoint"] = options.endpoint
    allow_http = options.endpoint.startswith("http://")
    return AzureStore(
        bucket,
        config=config,  # type: ignore[arg-type]
        client_options={**_TIMES, "allow_http": allow_http},  # type: ignore[arg-type]
        retry_config=_RETRIES,  # type: ignore[arg-type]
    )
