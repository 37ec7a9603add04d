"""The guarantees of the options for every file, independent of how files are found.

A file that matches the pattern and sorts after the floor is loaded once.

A file that sorts before the newest loaded file of its prefix is late. ``late_files`` decides
whether late files are loaded. ``late_window`` decides how long after their modification they
are loaded. Older late files count as loaded, and may be pruned from the index.

A file that existed before a later file was found is not late. Every poll finds such a file.

A loaded file that changes is not loaded again. Setting the offset deletes the loaded files
after the offset from the index.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from penstock.model.epoch import LoadedItem
from penstock.sources.files.kind import LateFiles, ModifiedFiles
from penstock.storage.store import ObjectMeta
from tests.property.audit.steps import Place, Rules


class Expectation:
    """The files loaded since the last reset, and the files that must be loaded next."""

    def __init__(self, place: Place, rules: Rules) -> None:
        self.rules = rules
        self.loaded: dict[str, LoadedItem] = {}
        self._place = place
        self._floor = b""
        # Late files that were written before this time may count as loaded forever.
        self._expired_before: datetime | None = None
        self._newest_at_poll: dict[str, str] = {}
        self._window_start_at_poll: datetime | None = None
        # Files that are not late: a poll must find the first, and a pass must load the second.
        self._due_of_poll: set[str] = set()
        self._due_of_pass: set[str] = set()

    def newest(self, prefix: str) -> str:
        """Return the largest loaded key below a prefix."""
        below = [key for key in self.loaded if self._place.prefix_of(key) == prefix]
        return max(below, key=str.encode, default="")

    def move(self, floor: str | None) -> None:
        """Set the offset."""
        self._floor = (floor or "").encode()
        self.loaded = {key: file for key, file in self.loaded.items() if not self.above(key)}

    def start_pass(self, objects: Mapping[str, ObjectMeta], *, audit: bool) -> None:
        """Store the files that must be loaded at the end of the pass."""
        self._due_of_pass = self._due(objects)
        # Late files may become too old before they are found.
        expiring = self.rules.late_window is not None or self._expired_before is not None
        if audit and self.rules.late_files is LateFiles.LOAD and not expiring:
            self._due_of_pass |= self._matching(objects) - self.loaded.keys()

    def end_pass(self) -> None:
        """Check that all files were loaded that existed and were not late."""
        assert self._due_of_pass <= self.loaded.keys(), "a poll did not find a file"

    def delete(self, key: str) -> None:
        """Record that a file was deleted."""
        self._due_of_poll.discard(key)
        self._due_of_pass.discard(key)

    def start_poll(self, now: datetime, objects: Mapping[str, ObjectMeta]) -> None:
        """Store the state at the start of a poll."""
        self._due_of_poll = self._due(objects)
        window: timedelta | None = self.rules.late_window
        self._newest_at_poll = {prefix: self.newest(prefix) for prefix in self._place.prefixes}
        self._window_start_at_poll = None if window is None else now - window

    def end_poll(self) -> None:
        """Record that a poll saw all files, so that old files may be pruned."""
        times = (self._expired_before, self._window_start_at_poll)
        self._expired_before = max(filter(None, times), default=None)

    def load(self, files: Sequence[LoadedItem]) -> None:
        """Check that an epoch loads only allowed files, and record the files as loaded."""
        keys = [file.key.encode() for file in files]
        assert keys == sorted(set(keys)), "an epoch is not in byte order"
        for file in files:
            self._check(file)
        taken = {file.key: file for file in files}
        for key in self._due_of_poll - self.loaded.keys() - taken.keys():
            prefix = self._place.prefix_of(key)
            later = [one for one in taken if one > key and one.startswith(prefix)]
            assert not later, f"{key} was skipped"
        self.loaded |= taken

    def _check(self, file: LoadedItem) -> None:
        assert file.key in self._place.keys, f"{file.key} does not match"
        assert file.size_bytes, f"{file.key} is empty"
        assert self.above(file.key), f"{file.key} is below the floor"
        before = self.loaded.get(file.key)
        if before is not None:
            assert file.etag != before.etag, f"{file.key} was loaded twice"
            assert self._may_be_pruned(before), f"{file.key} was loaded again when it changed"
        if file.key <= self._newest_at_poll[self._place.prefix_of(file.key)]:
            assert self.rules.late_files is LateFiles.LOAD, f"{file.key} is late"
            start = self._window_start_at_poll
            assert start is None or file.modified_at >= start, f"{file.key} is too late"

    def check_pause(
        self, key: str, *, before: Mapping[str, ObjectMeta], after: Mapping[str, ObjectMeta]
    ) -> None:
        """Check that a file had changed before or after a poll, which pauses the job."""
        assert self.rules.modified_files is ModifiedFiles.FAIL
        changed = {*self._changed(before), *self._changed(after)}
        assert key in changed, f"{key} has not changed"

    def check_settled(self, objects: Mapping[str, ObjectMeta], *, modified_files: int) -> None:
        """Check after an audit that no file is missing and that changes were found."""
        missing = self._matching(objects) - self.loaded.keys()
        lost = [key for key in missing if not self._allowed_missing(objects[key])]
        assert lost == [], "files were lost"
        changed = self._changed(objects)
        kept = [key for key in changed if not self._may_be_pruned(self.loaded[key])]
        if self.rules.modified_files is ModifiedFiles.FAIL:
            assert kept == [], "a changed file did not pause the job"
        else:
            assert len(kept) <= modified_files <= len(changed), "changed files are miscounted"

    def check_index(self, etag_by_key: Mapping[str, str]) -> None:
        """Check that the index contains the loaded files, except files that may be pruned."""
        loaded = {key: file.etag for key, file in self.loaded.items()}
        assert etag_by_key.items() <= loaded.items(), (
            "the index contains a file that was not loaded"
        )
        kept = {key for key, file in self.loaded.items() if not self._expired(file.modified_at)}
        assert kept <= etag_by_key.keys(), "a file was pruned from the index too early"

    def above(self, key: str) -> bool:
        return key.encode() > self._floor

    def _due(self, objects: Mapping[str, ObjectMeta]) -> set[str]:
        newest = {prefix: self.newest(prefix) for prefix in self._place.prefixes}
        ours = self._matching(objects)
        return {key for key in ours if key > newest[self._place.prefix_of(key)]}

    def _matching(self, objects: Mapping[str, ObjectMeta]) -> set[str]:
        return {key for key in self._place.keys if key in objects and self.above(key)}

    def _allowed_missing(self, meta: ObjectMeta) -> bool:
        if meta.key > self.newest(self._place.prefix_of(meta.key)):
            return False
        ignored = self.rules.late_files is LateFiles.IGNORE
        return ignored or self._expired(meta.modified_at)

    def _may_be_pruned(self, file: LoadedItem) -> bool:
        """Return whether a loaded file may be pruned from the index."""
        newest = file.key == self.newest(self._place.prefix_of(file.key))
        return self._expired(file.modified_at) and not newest

    def _expired(self, written_at: datetime) -> bool:
        return self._expired_before is not None and written_at < self._expired_before

    def _changed(self, objects: Mapping[str, ObjectMeta]) -> list[str]:
        return [
            key
            for key, file in self.loaded.items()
            if self.above(key) and key in objects and objects[key].etag != file.etag
        ]
