"""Options of a bucket: where it is, and who asks."""

from dataclasses import dataclass, field
from enum import StrEnum

from penstock.model.options import option
from penstock.model.secrets import Origins


class Provider(StrEnum):
    """Whose object store it is; Doris' names."""

    S3 = "s3"
    AWS = "aws"
    MINIO = "minio"
    CEPH = "ceph"
    OSS = "oss"
    COS = "cos"
    OBS = "obs"
    BOS = "bos"
    GCP = "gcp"
    AZURE = "azure"


class Choice(StrEnum):
    """Yes, no, or what fits the store."""

    AUTO = "auto"
    TRUE = "true"
    FALSE = "false"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How a bucket is reached; all texts may be references to secrets."""

    endpoint: str = option(
        "Address of an S3 server that is not AWS itself, such as https://minio.example.com.",
        key="s3.endpoint",
        default="",
    )
    region: str = option(
        "Region of the bucket; that of the environment, or us-east-1, when absent.",
        key="s3.region",
        default="",
    )
    access_key: str = option(
        "Access key (of Azure: the account's name); without it the default chain is asked.",
        key="s3.access_key",
        default="",
        secret=True,
    )
    secret_key: str = option(
        "Secret key that belongs to the access key (of Azure: the account's key).",
        key="s3.secret_key",
        default="",
        secret=True,
    )
    session_token: str = option(
        "Session token of temporary keys.", key="s3.session_token", default="", secret=True
    )
    role_arn: str = option(
        "Role to assume with these keys, or with those of the default chain.",
        key="s3.role_arn",
        default="",
    )
    external_id: str = option(
        "External id that the role asks for.", key="s3.external_id", default=""
    )
    path_style: Choice = option(
        "Whether the bucket stands in the path (true) or in the host name (false); auto: in "
        "the path of a given endpoint, unless that is one of AWS or the provider is oss, cos, "
        "obs or bos.",
        key="use_path_style",
        default=Choice.AUTO,
    )
    provider: Provider = option("Whose object store it is.", default=Provider.S3)
    service_account: str = option(
        "Key of a Google service account as JSON, for gs://.",
        key="gs.service_account",
        default="",
        secret=True,
    )
    # Where values come from that messages name by that alone; only beside values, never stored.
    origins: Origins = field(default=(), compare=False, metadata={"transient": True})
