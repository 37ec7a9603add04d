"""Clients of buckets, one per process and configuration.

The whole configuration is the key of the cache. After a change of credentials, the next request
therefore uses a new client.
"""

import json
import os
import re
from datetime import timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from penstock.aws.credentials import AwsKeys, CredentialsCache, credentials_for
from penstock.errors import UserError
from penstock.model.secrets import shown_name
from penstock.storage.options import Choice, Provider, StoreOptions
from penstock.storage.uris import Scheme

REGION_DEFAULT = "us-east-1"
_CLIENTS_MAX = 64
# The client retries for some seconds if a server is down; the job retries longer failures. Each
# wait is a random time. The minimum is ``init_backoff``; the maximum is ``base`` times the
# previous wait. So waits hardly grow. ``retry_timeout`` always ends the retries before
# ``max_retries`` is reached.
_RETRIES: dict[str, Any] = {
    "max_retries": 1_000,
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=2),
        "base": 3,
    },
    "retry_timeout": timedelta(seconds=15),
}
_TIMEOUTS: dict[str, Any] = {
    "timeout": timedelta(seconds=60),
    "read_timeout": timedelta(seconds=20),
    "connect_timeout": timedelta(seconds=5),
}
# Host names of S3 without a bucket: regional, regional in the older form, or global.
_AWS_HOST = re.compile(
    r"s3(?:-[a-z0-9-]+)?(?:\.dualstack)?(?:\.[a-z0-9-]+)?\.amazonaws\.com(?:\.cn)?"
)
_HOST_STYLE = frozenset({Provider.OSS, Provider.COS, Provider.OBS, Provider.BOS})


@lru_cache(maxsize=_CLIENTS_MAX)
def client_for(scheme: Scheme, bucket: str, options: StoreOptions) -> Any:  # noqa: ANN401
    """Return the shared client of a bucket."""
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
            f'bucket "{scheme}://{bucket}" cannot be opened with these options',
            detail="The client library rejected the options.",
            hint='Check "s3.endpoint" and "s3.region".',
        ) from error


def _s3(bucket: str, options: StoreOptions) -> Any:  # noqa: ANN401
    from obstore.store import S3Store

    endpoint = s3_endpoint(options)
    in_path = path_style(options)
    config: dict[str, Any] = {
        "region": region_of(options),
        "virtual_hosted_style_request": not in_path,
    }
    if endpoint:
        config["endpoint"] = endpoint if in_path else with_bucket(endpoint, bucket)
    allowed = {"allow_http": endpoint.startswith("http://")}
    credentials: Any = bucket_credentials(options)
    return S3Store(bucket, credential_provider=credentials, **_settings(config, allowed))


def _google(bucket: str, options: StoreOptions) -> Any:  # noqa: ANN401
    from obstore.store import GCSStore

    account = options.service_account
    config = {"service_account_key": account} if account else {}
    # If allow_http is not set here, the environment can still allow HTTP.
    allowed = {"allow_http": True} if google_uses_http(options) else {}
    return GCSStore(bucket, **_settings(config, allowed))


def _azure(bucket: str, options: StoreOptions) -> Any:  # noqa: ANN401
    from obstore.store import AzureStore

    config: dict[str, Any] = {}
    if options.access_key:
        config |= {"account_name": options.access_key, "account_key": options.secret_key}
    if endpoint := azure_endpoint(options):
        config["endpoint"] = endpoint
    return AzureStore(
        bucket, **_settings(config, {"allow_http": endpoint.startswith("http://")})
    )


def _settings(config: dict[str, Any], client_options: dict[str, bool]) -> dict[str, Any]:
    return {
        "config": config,
        "client_options": _TIMEOUTS | client_options,
        "retry_config": _RETRIES,
    }


def bucket_credentials(options: StoreOptions) -> CredentialsCache:
    """Return the cached credentials for a bucket of S3."""
    return credentials_for(
        AwsKeys(
            region=region_of(options),
            access_key=options.access_key,
            secret_key=options.secret_key,
            session_token=options.session_token,
            role_arn=options.role_arn,
            role_shown=shown_name("s3.role_arn", options.role_arn, options.origins),
            external_id=options.external_id,
            needed_for="the bucket",
            access_key_option="s3.access_key",
            secret_key_option="s3.secret_key",  # noqa: S106 - A name and no password.
            external_id_option="s3.external_id",
        )
    )


def region_of(options: StoreOptions) -> str:
    """Return the region that requests are signed for."""
    environment = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return options.region or environment or REGION_DEFAULT


def s3_endpoint(options: StoreOptions) -> str:
    """Return the configured endpoint of S3; empty for the endpoint of AWS in the region."""
    return _endpoint(options, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def is_aws(options: StoreOptions) -> bool:
    """Return whether the server is AWS itself."""
    endpoint = s3_endpoint(options)
    return not endpoint or bool(_AWS_HOST.fullmatch(urlsplit(endpoint).hostname or ""))


def path_style(options: StoreOptions) -> bool:
    """Return whether the bucket is part of the path instead of the host name."""
    if options.path_style is Choice.AUTO:
        return not is_aws(options) and options.provider not in _HOST_STYLE
    return options.path_style is Choice.TRUE


def with_bucket(endpoint: str, bucket: str) -> str:
    """Add the bucket to the host name of an endpoint."""
    parts = urlsplit(endpoint)
    return urlunsplit(parts._replace(netloc=f"{bucket}.{parts.netloc}"))


def azure_endpoint(options: StoreOptions) -> str:
    """Return the configured endpoint of the account; empty for Azure's default."""
    return _endpoint(options, "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")


def _endpoint(options: StoreOptions, *variables: str) -> str:
    """Return the configured endpoint, or the first one in the environment."""
    given = (options.endpoint, *(os.environ.get(name, "") for name in variables))
    endpoint = next(filter(None, given), "").rstrip("/")
    # Users of Doris omit the scheme.
    return endpoint if "://" in endpoint or not endpoint else f"https://{endpoint}"


def google_uses_http(options: StoreOptions) -> bool:
    """Return whether the key of the service account names a server that uses plain HTTP."""
    try:
        account = json.loads(options.service_account or "{}")
    except ValueError:
        return False
    url = account.get("gcs_base_url") if isinstance(account, dict) else None
    return isinstance(url, str) and url.startswith("http://")
