"""Put a job's chain together from the table's log and, where that was cleaned, from copies.

Invariant: what is answered is contiguous. A commit that is found nowhere, stands out of order
or has an unknown format ends the search with an error; none is ever skipped.
"""

from collections.abc import Callable, Iterable

from penstock.errors import Code, UserError
from penstock.model.epoch import ATTACHMENT_FORMAT, Attachment
from penstock.tables.table import ChainCommit

_HINT = "Restore the table from a backup, or create the job anew with the offset to start from."


def chain_above(
    number: int,
    *,
    newest: int,
    logged: Iterable[ChainCommit],
    copy_of: Callable[[int], Attachment | None],
) -> tuple[ChainCommit, ...]:
    """Answer the commits above a number, ascending; ``logged`` gives the job's newest first."""
    found: list[ChainCommit] = []
    wanted = newest
    if wanted > number:
        for commit in logged:
            _expect_number(commit.attachment.number, wanted=wanted)
            found.append(commit)
            wanted -= 1
            if wanted <= number:
                break
    while wanted > number:
        attachment = copy_of(wanted)
        if attachment is None:
            raise _missing(wanted, above=number, newest=newest)
        _expect_number(attachment.number, wanted=wanted)
        found.append(ChainCommit(attachment=attachment, table_version=None))
        wanted -= 1
    return tuple(reversed(found))


def expect_known_format(written: object, *, number: object) -> None:
    """Refuse an attachment of a format that this version does not know."""
    if written != ATTACHMENT_FORMAT:
        raise UserError(
            f"commit {number} of the job has the attachment format {written}, "
            f"this version knows {ATTACHMENT_FORMAT}",
            code=Code.CANNOT_RESUME_ERR,
            hint="Run the job with the version of Penstock that wrote the commit.",
        )


def _expect_number(number: int, *, wanted: int) -> None:
    if number != wanted:
        raise UserError(
            f"the table has commit {number} of the job where commit {wanted} is due",
            code=Code.CANNOT_RESUME_ERR,
            detail="The commits of a job are numbered without a gap and without repetition.",
            hint=_HINT,
        )


def _missing(wanted: int, *, above: int, newest: int) -> UserError:
    return UserError(
        f"commit {wanted} of the job is neither in the table's log nor among its copies",
        code=Code.CANNOT_RESUME_ERR,
        detail=f"The job knows its commits up to {above}, the table has them up to {newest}.",
        hint=_HINT,
    )
