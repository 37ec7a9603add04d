"""List the objects that a pattern matches, in byte order over all its prefixes."""

from collections.abc import Callable, Iterator

from penstock.sources.files.globs import Glob
from penstock.storage.store import FolderMissingError, ObjectMeta, Store


def list_all(
    store: Store, glob: Glob, *, after: Callable[[str], str] | None = None
) -> Iterator[ObjectMeta]:
    """Yield every matching object once, in the byte order of the keys if the store keeps it.

    ``after`` answers, for a prefix, the key behind which its listing begins. A folder that one
    alternative of the pattern names may be missing, such as a day still to come;
    FolderMissingError is raised when all of them are.
    """
    missing: list[FolderMissingError] = []
    # The prefixes are sorted and none lies within another, so every key of one comes before
    # every key of the next: one after the other is already the merge of all.
    for prefix in glob.prefixes:
        begin = after(prefix) if after is not None else ""
        if begin > prefix and not begin.startswith(prefix):
            # All keys of the prefix lie before the beginning.
            continue
        try:
            yield from store.list(
                prefix, selection=glob, after=begin if begin.startswith(prefix) else ""
            )
        except FolderMissingError as error:
            missing.append(error)
    if missing and len(missing) == len(glob.prefixes):
        raise missing[0]
