"""Clients of buckets, one per process and configuration.

A client is found by everything that it was made of, so that changed credentials reach the very
next request: they make another client.
"""

import json
import os
import re
from datetime import timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from penstock.aws.credentials import AwsKeys, Lender, lender_of
from penstock.errors import Code, UserError
from penstock.model.secrets import shown_name
from penstock.storage.options import Choice, Provider, StoreOptions
from penstock.storage.uris import Scheme

REGION_DEFAULT = "us-east-1"


def region_of(options: StoreOptions) -> str:
    """Answer the region to sign for."""
    environment = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return options.region or environment or REGION_DEFAULT


def bucket_lender(options: StoreOptions) -> Lender:
    """Answer who lends credentials for a bucket."""
    return lender_of(
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
# Addresses of S3 without a bucket: of a region, in its older form, or of all of them.
_AWS_HOST = re.compile(
    r"s3(?:-[a-z0-9-]+)?(?:\.dualstack)?(?:\.[a-z0-9-]+)?\.amazonaws\.com(?:\.cn)?"
)
_HOST_STYLE = frozenset({Provider.OSS, Provider.COS, Provider.OBS, Provider.BOS})


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


def s3_endpoint(options: StoreOptions) -> str:
    """Answer the address that is given for S3; empty where AWS' own follows from the region."""
    return _endpoint(options, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def of_aws(options: StoreOptions) -> bool:
    """Tell whether AWS itself is asked, by an address of its own or without one."""
    endpoint = s3_endpoint(options)
    return not endpoint or bool(_AWS_HOST.fullmatch(urlsplit(endpoint).hostname or ""))


def azure_endpoint(options: StoreOptions) -> str:
    """Answer the address of the account; empty where Azure's own follows from its name."""
    return _endpoint(options, "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")


def _endpoint(options: StoreOptions, *variables: str) -> str:
    """Answer the address that is given, or the first one of the environment."""
    given = (options.endpoint, *(os.environ.get(name, "") for name in variables))
    endpoint = next(filter(None, given), "").rstrip("/")
    # Doris' users write it without a scheme.
    return endpoint if "://" in endpoint or not endpoint else f"https://{endpoint}"


def path_style(options: StoreOptions) -> bool:
    """Tell whether the bucket stands in the path of a request."""
    if options.path_style is Choice.AUTO:
        return not of_aws(options) and options.provider not in _HOST_STYLE
    return options.path_style is Choice.TRUE


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
    return S3Store(
        bucket,
        config=config,  # type: ignore[arg-type]
        client_options={**_TIMES, "allow_http": endpoint.startswith("http://")},  # type: ignore[arg-type]
        retry_config=_RETRIES,  # type: ignore[arg-type]
        credential_provider=bucket_lender(options),  # type: ignore[arg-type]
    )


def with_bucket(endpoint: str, bucket: str) -> str:
    """Answer the address of a bucket that stands in the name of the host."""
    parts = urlsplit(endpoint)
    return urlunsplit(parts._replace(netloc=f"{bucket}.{parts.netloc}"))


def _google(bucket: str, options: StoreOptions) -> Any:  # noqa: ANN401
    from obstore.store import GCSStore

    config: dict[str, Any] = {}
    if options.service_account:
        config["service_account_key"] = options.service_account
    # Otherwise the environment may allow it.
    in_clear = {"allow_http": True} if google_in_clear(options) else {}
    return GCSStore(
        bucket,
        config=config,  # type: ignore[arg-type]
        client_options={**_TIMES, **in_clear},  # type: ignore[arg-type]
        retry_config=_RETRIES,  # type: ignore[arg-type]
    )


def google_in_clear(options: StoreOptions) -> bool:
    """Tell whether the key of a service account leads to a server that speaks plain HTTP."""
    try:
        account = json.loads(options.service_account or "{}")
    except ValueError:
        return False
    place = account.get("gcs_base_url") if isinstance(account, dict) else None
    return isinstance(place, str) and place.startswith("http://")


def _azure(bucket: str, options: StoreOptions) -> Any:  # noqa: ANN401
    from obstore.store import AzureStore

    config: dict[str, Any] = {}
    if options.access_key:
        config["account_name"] = options.access_key
        config["account_key"] = options.secret_key
    if endpoint := azure_endpoint(options):
        config["endpoint"] = endpoint
    allow_http = endpoint.startswith("http://")
    return AzureStore(
        bucket,
        config=config,  # type: ignore[arg-type]
        client_options={**_TIMES, "allow_http": allow_http},  # type: ignore[arg-type]
        retry_config=_RETRIES,  # type: ignore[arg-type]
    )
