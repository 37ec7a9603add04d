"""Locations of tables, and the folder or bucket prefix of each location.

As in sources, the path after the scheme is literal: it is not percent-decoded.
"""

import os
import re
import secrets
from dataclasses import dataclass, field

from penstock.errors import UserError
from penstock.model.secrets import Sealed
from penstock.storage.options import StoreOptions, hidden_values
from penstock.storage.store import Store, open_sealed, open_store
from penstock.storage.uris import Scheme, Uri, parse_uri

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/+")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_NAME_MAX = 100


def table_uri(location: str) -> Uri:
    """Parse a location: an absolute path, ``file:///…`` or a folder of a bucket."""
    scheme = _SCHEME.match(location)
    if "%" in location:
        # delta-rs percent-decodes the location and would read another folder.
        raise UserError(f'location "{location}" must not contain a percent sign')
    if scheme is None or scheme[1].lower() == Scheme.FILE:
        path = os.path.normpath(location.removeprefix("file://"))
        if not path.startswith("/") or path == "/":
            raise UserError(
                f'location "{location}" must be the absolute path of a folder',
                hint="Use for example /data/orders, file:///data/orders or s3://bucket/orders.",
            )
        return Uri(scheme=Scheme.FILE, bucket="", key=path)
    uri = parse_uri(location.rstrip("/"))
    if not uri.key:
        raise UserError(
            f'location "{location}" must name a folder in the bucket',
            hint=f"Use for example {uri.scheme}://{uri.bucket}/orders.",
        )
    return uri


def location_of(uri: Uri) -> str:
    """Return the location of a folder as users and delta-rs write it."""
    return uri.key if uri.scheme is Scheme.FILE else str(uri)


def subfolder(location: str, *names: str) -> str:
    """Return the location of a folder inside another folder."""
    return "/".join((location.rstrip("/"), *names))


def new_folder(warehouse: str, name: str) -> str:
    """Return the location of a new folder; a random suffix avoids collisions."""
    safe = _UNSAFE.sub("_", name)[:_NAME_MAX]
    return subfolder(warehouse, f"{safe}-{secrets.token_hex(4)}")


LOG_FOLDER = "_delta_log"


def job_folder(job_id: str) -> str:
    """Return the folder of a job, relative to a table; no reader and no VACUUM lists it."""
    return f"_penstock/{job_id}"


def staged_folder(job_id: str, attempt_id: str = "") -> str:
    """Return the folder, relative to a table, where the tasks of an attempt stage files.

    Without an attempt, return the folder of all attempts of the job.
    """
    return f"{job_folder(job_id)}/staged" + (f"/{attempt_id}" if attempt_id else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFolder:
    """The folder of one table; ``location`` is its form for users and delta-rs."""

    store: Store
    root: str
    location: str
    # The storage options of delta-rs.
    library_options: dict[str, str] = field(default_factory=dict, repr=False)
    # Secret values of these options, which no message is allowed to show.
    hidden: tuple[str, ...] = field(default=(), repr=False)

    def key(self, name: str) -> str:
        """Return the key of an object of the table."""
        return f"{self.root}/{name}"

    def __str__(self) -> str:
        return self.location


def open_folder(location: str, options: StoreOptions) -> TableFolder:
    """Open the folder of a location, with credentials that are valid now."""
    uri = table_uri(location)
    store, root = open_store(uri, options)
    return TableFolder(
        store=store,
        root=root,
        location=location_of(uri),
        library_options=_library_options(uri, options),
        hidden=hidden_values(options),
    )


def open_sealed_folder(location: str, access: Sealed) -> TableFolder:
    """Open the folder of a table inside a task, which does not use delta-rs."""
    uri = table_uri(location)
    store, root = open_sealed(str(uri), access)
    return TableFolder(store=store, root=root, location=location)


def _library_options(uri: Uri, options: StoreOptions) -> dict[str, str]:
    if uri.scheme is Scheme.FILE:
        return {}
    from penstock.storage import bucket_clients as clients

    if uri.scheme is Scheme.S3:
        endpoint = clients.s3_endpoint(options)
        in_path = clients.path_style(options)
        if endpoint and not in_path:
            endpoint = clients.with_bucket(endpoint, uri.bucket)
        # The credential chain of delta-rs finds fewer credentials and does not support roles.
        credentials = clients.bucket_credentials(options)()
        given = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true" if endpoint.startswith("http://") else "",
            "AWS_REGION": clients.region_of(options),
            "AWS_ACCESS_KEY_ID": credentials["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": credentials["secret_access_key"],
            "AWS_SESSION_TOKEN": credentials["token"] or "",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": str(not in_path).lower(),
        }
    elif uri.scheme is Scheme.GS:
        given = {
            "google_service_account_key": options.service_account,
            "allow_http": "true" if clients.google_uses_http(options) else "",
        }
    else:
        endpoint = clients.azure_endpoint(options)
        given = {
            "azure_storage_account_name": options.access_key,
            "azure_storage_account_key": options.secret_key,
            "azure_storage_endpoint": endpoint,
            "azure_allow_http": str(endpoint.startswith("http://")).lower(),
        }
    return {key: value for key, value in given.items() if value}
