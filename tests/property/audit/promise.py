"""What the options promise of every file, told without a word of how files are found.

A file that matches and lies above the floor is loaded once. One that sorts before the newest
loaded file of its prefix is late: ``late_files`` says whether it is loaded at all, and
``late_window`` for how long after it was written it still is; older ones count as loaded, and
it may be forgotten that they were. A file that was there before a later one was found is not
late: nothing is passed over, and whoever looks finds it. A loaded file that changes is not
loaded again. Setting the offset forgets what was loaded behind it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from penstock.model.epoch import LoadedItem
from penstock.sources.files.kind import LateFiles, ModifiedFiles
from penstock.storage.store import ObjectMeta
from tests.property.audit.steps import Place, Rules


class Promise:
    """What was loaded since it was last forgotten, and what that allows and demands."""

    def __init__(self, place: Place, rules: Rules) -> None:
        self.rules = rules
        self.loaded: dict[str, LoadedItem] = {}
        self._place = place
        self._floor = b""
        # Late files that were written before this time may count as loaded for ever.
        self._expired_before: datetime | None = None
        self._newest_at_look: dict[str, str] = {}
        self._begin_at_look: datetime | None = None
        # Files that are not late: those that a look must see, and those that a pass must load.
        self._due_of_look: set[str] = set()
        self._due_of_pass: set[str] = set()

    def newest(self, prefix: str) -> str:
        """Answer the largest loaded key below a prefix."""
        below = [key for key in self.loaded if self._place.prefix_of(key) == prefix]
        return max(below, key=str.encode, default="")

    def move(self, floor: str | None) -> None:
        """Set the offset."""
        self._floor = (floor or "").encode()
        self.loaded = {key: file for key, file in self.loaded.items() if not self.above(key)}

    def begin_pass(self, objects: Mapping[str, ObjectMeta], *, audit: bool) -> None:
        """Remember what must be loaded when the source has been looked at to the end."""
        self._due_of_pass = self._due(objects)
        # Late files may grow too old before they are found.
        forgetful = self.rules.late_window is not None or self._expired_before is not None
        if audit and self.rules.late_files is LateFiles.LOAD and not forgetful:
            self._due_of_pass |= {key for key in self._ours(objects) if key not in self.loaded}

    def end_pass(self) -> None:
        """Check that everything was loaded that was there and not late."""
        assert self._due_of_pass <= self.loaded.keys(), "a look did not find a file"

    def gone(self, key: str) -> None:
        """Take note that a file is there no more."""
        self._due_of_look.discard(key)
        self._due_of_pass.discard(key)

    def look(self, now: datetime, objects: Mapping[str, ObjectMeta]) -> None:
        """Remember what a look at this time has to go by."""
        self._due_of_look = self._due(objects)
        window: timedelta | None = self.rules.late_window
        self._newest_at_look = {prefix: self.newest(prefix) for prefix in self._place.prefixes}
        self._begin_at_look = None if window is None else now - window

    def looked(self) -> None:
        """Take note that everything was seen, so that files may be forgotten."""
        times = [at for at in (self._expired_before, self._begin_at_look) if at is not None]
        self._expired_before = max(times, default=None)

    def take(self, files: Sequence[LoadedItem]) -> None:
        """Check that an epoch loads what it may, and remember that it did."""
        keys = [file.key.encode() for file in files]
        assert keys == sorted(set(keys)), "an epoch is not in byte order"
        for file in files:
            self._check(file)
        taken = {file.key: file for file in files}
        for key in self._due_of_look - self.loaded.keys() - taken.keys():
            prefix = self._place.prefix_of(key)
            later = [one for one in taken if one > key and one.startswith(prefix)]
            assert not later, f"{key} was passed over"
        self.loaded |= taken

    def _check(self, file: LoadedItem) -> None:
        assert file.key in self._place.keys, f"{file.key} does not match"
        assert file.size_bytes, f"{file.key} is a marker"
        assert self.above(file.key), f"{file.key} lies below the floor"
        before = self.loaded.get(file.key)
        if before is not None:
            assert file.etag != before.etag, f"{file.key} was loaded twice"
            assert self._forgotten(before), f"{file.key} was loaded again when it changed"
        if file.key <= self._newest_at_look[self._place.prefix_of(file.key)]:
            assert self.rules.late_files is LateFiles.LOAD, f"{file.key} is late"
            begin = self._begin_at_look
            assert begin is None or file.modified_at >= begin, f"{file.key} is too late"

    def check_pause(
        self, key: str, *, before: Mapping[str, ObjectMeta], after: Mapping[str, ObjectMeta]
    ) -> None:
        """Check that a file gave reason to pause, before or after a look."""
        assert self.rules.modified_files is ModifiedFiles.FAIL
        changed = {*self._changed(before), *self._changed(after)}
        assert key in changed, f"{key} has not changed"

    def check_at_rest(self, objects: Mapping[str, ObjectMeta], *, modified_files: int) -> None:
        """Check that after an audit nothing is missing, and that changes were noticed."""
        missing = self._ours(objects) - self.loaded.keys()
        lost = [key for key in missing if not self._excused(objects[key])]
        assert lost == [], "files were lost"
        changed = self._changed(objects)
        kept = [key for key in changed if not self._forgotten(self.loaded[key])]
        if self.rules.modified_files is ModifiedFiles.FAIL:
            assert kept == [], "a changed file did not pause the job"
        else:
            assert len(kept) <= modified_files <= len(changed), "changed files are miscounted"

    def check_index(self, etag_by_key: Mapping[str, str]) -> None:
        """Check that the index knows what was loaded, except what it may have forgotten."""
        loaded = {key: file.etag for key, file in self.loaded.items()}
        assert etag_by_key.items() <= loaded.items(), "the index knows what was not loaded"
        kept = {key for key, file in self.loaded.items() if not self._expired(file.modified_at)}
        assert kept <= etag_by_key.keys(), "the index has forgotten too much"

    def above(self, key: str) -> bool:
        return key.encode() > self._floor

    def _due(self, objects: Mapping[str, ObjectMeta]) -> set[str]:
        newest = {prefix: self.newest(prefix) for prefix in self._place.prefixes}
        ours = self._ours(objects)
        return {key for key in ours if key > newest[self._place.prefix_of(key)]}

    def _ours(self, objects: Mapping[str, ObjectMeta]) -> set[str]:
        return {key for key in self._place.keys if key in objects and self.above(key)}

    def _excused(self, meta: ObjectMeta) -> bool:
        if meta.key > self.newest(self._place.prefix_of(meta.key)):
            return False
        ignored = self.rules.late_files is LateFiles.IGNORE
        return ignored or self._expired(meta.modified_at)

    def _forgotten(self, file: LoadedItem) -> bool:
        """Tell whether it may be forgotten that a file was loaded."""
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
