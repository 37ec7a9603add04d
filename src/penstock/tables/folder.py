"""Where a table lies: a folder of this machine, or the keys below a prefix of a bucket."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.model.sealed import Sealed
from penstock.model.store_options import StoreOptions
from penstock.storage.access import open_sealed
from penstock.storage.hiding import hidden_texts
from penstock.storage.stores import Store, open_store
from penstock.storage.uris import Scheme, Uri
from penstock.tables.locations import location_of, table_uri

LOG_FOLDER = "_delta_log"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFolder:
    """The place of one table; ``location`` is how people and the table library name it."""

    store: Store
    root: str
    location: str
    # What the table library needs to reach it.
    library_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    # What of that no message may show.
    hidden: tuple[str, ...] = field(default=(), repr=False)

    def key(self, name: str) -> str:
        """Answer the key of an object of the table."""
        return f"{self.root}/{name}"

    def __str__(self) -> str:
        return self.location


def open_folder(location: str, options: StoreOptions) -> TableFolder:
    """Answer the place that a location names, with keys that are good now."""
    uri = table_uri(location)
    store, root = open_store(uri, options)
    return TableFolder(
        store=store,
        root=root,
        location=location_of(uri),
        library_options=_library_options(uri, options),
        hidden=hidden_texts(options),
    )


def open_sealed_folder(location: str, access: Sealed) -> TableFolder:
    """Answer the place of a table inside a task, which writes files and no log."""
    uri = table_uri(location)
    store, root = open_sealed(str(uri), access)
    return TableFolder(store=store, root=root, location=location)


def _library_options(uri: Uri, options: StoreOptions) -> dict[str, str]:
    match uri.scheme:
        case Scheme.FILE:
            return {}
        case Scheme.S3:
            return _s3(uri.bucket, options)
        case Scheme.GS:
            given = _google(options)
        case _:
            given = _azure(options)
    return {key: value for key, value in given.items() if value}


def _google(options: StoreOptions) -> dict[str, str]:
    from penstock.storage.bucket_clients import google_in_clear

    return {
        "google_service_account_key": options.service_account,
        "allow_http": "true" if google_in_clear(options) else "",
    }


def _azure(options: StoreOptions) -> dict[str, str]:
    from penstock.storage.bucket_clients import azure_endpoint

    endpoint = azure_endpoint(options)
    return {
        "azure_storage_account_name": options.access_key,
        "azure_storage_account_key": options.secret_key,
        "azure_storage_endpoint": endpoint,
        "azure_allow_http": str(endpoint.startswith("http://")).lower(),
    }


def _s3(bucket: str, options: StoreOptions) -> dict[str, str]:
    from penstock.storage.bucket_clients import path_style, s3_endpoint, with_bucket
    from penstock.storage.bucket_credentials import bucket_lender
    from penstock.storage.regions import region_of

    endpoint = s3_endpoint(options)
    if endpoint and not path_style(options):
        endpoint = with_bucket(endpoint, bucket)
    # The table library has a chain of its own, which finds less and knows no roles.
    lent = bucket_lender(options)()
    given = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true" if endpoint.startswith("http://") else "",
        "AWS_REGION": region_of(options),
        "AWS_ACCESS_KEY_ID": lent["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": lent["secret_access_key"],
        "AWS_SESSION_TOKEN": lent["token"] or "",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": str(not path_style(options)).lower(),
    }
    return {key: value for key, value in given.items() if value}
