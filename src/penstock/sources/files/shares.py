"""Share an epoch's files out to tasks."""

from collections.abc import Callable, Iterator, Sequence

from penstock.model.epoch import FileRead, SourceFile

CUT_BYTES_MIN = 4 * 2**20


def share_out(
    files: Sequence[SourceFile], *, tasks: int, splittable: Callable[[SourceFile], bool]
) -> tuple[tuple[FileRead, ...], ...]:
    """Cut the files, in order, into at most ``tasks`` shares of nearly equal bytes.

    A share ends inside a file only where both parts are worth a task of their own; so the
    first failing share holds the first failing line. No share is empty.
    """
    total = sum(file.size_bytes for file in files)
    wanted = max(1, min(tasks, len(files) + total // CUT_BYTES_MIN))
    shares: list[list[FileRead]] = [[]]
    taken = 0
    for file in files:
        cuts = wanted if splittable(file) else 1
        for read in _cut(file, taken=taken, total=total, shares=cuts):
            share = _share_of(taken + (read.start + read.end) / 2, total=total, shares=wanted)
            if share >= len(shares) and shares[-1]:
                shares.append([])
            shares[-1].append(read)
        taken += file.size_bytes
    return tuple(tuple(share) for share in shares if share)


def _share_of(middle: float, *, total: int, shares: int) -> int:
    return min(shares - 1, int(middle * shares / total)) if total else 0


def _cut(file: SourceFile, *, taken: int, total: int, shares: int) -> Iterator[FileRead]:
    start = 0
    for share in range(1, shares):
        cut = total * share // shares - taken
        if start + CUT_BYTES_MIN <= cut <= file.size_bytes - CUT_BYTES_MIN:
            yield FileRead(file=file, start=start, end=cut)
            start = cut
    yield FileRead(file=file, start=start, end=file.size_bytes)
