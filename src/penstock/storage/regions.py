"""Which region of AWS a request is signed for."""

import os

from penstock.model.store_options import StoreOptions

REGION_DEFAULT = "us-east-1"


def region_of(options: StoreOptions) -> str:
    """Answer the region to sign for."""
    environment = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return options.region or environment or REGION_DEFAULT
