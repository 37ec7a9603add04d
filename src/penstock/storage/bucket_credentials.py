"""Who asks for a bucket of S3."""

from penstock.model.secrets import shown_name
from penstock.model.store_options import StoreOptions
from penstock.storage.aws_credentials import AwsKeys, Lender, lender_of
from penstock.storage.regions import region_of


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
