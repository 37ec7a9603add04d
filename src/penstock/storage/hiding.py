"""What of the options of a bucket no message may show, also when a library repeats it."""

from collections.abc import Iterable
from urllib.parse import urlsplit

from penstock.model.options import print_options, secret_options
from penstock.model.store_options import StoreOptions

_MASK = "***"


def hidden_texts(options: StoreOptions) -> tuple[str, ...]:
    """Answer the values of secret options and of references, longest first."""
    origins = dict(options.origins)
    from_elsewhere = {text for key, text in print_options(options) if key in origins}
    found = {text for _, text in secret_options(options)} | from_elsewhere
    # Libraries repeat an address with other words around it.
    hosts = {urlsplit(text).netloc for text in from_elsewhere if "://" in text}
    return tuple(sorted((found | hosts) - {""}, key=len, reverse=True))


def without(text: str, hidden: Iterable[str]) -> str:
    """Answer a text with a mask over what must not be seen."""
    for value in hidden:
        text = text.replace(value, _MASK)
    return text
