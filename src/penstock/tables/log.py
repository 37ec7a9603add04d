"""Read a table's log and the copies of attachments beside it, as plain objects.

A start normally needs the newest one or two commits of a job, so the log is walked backwards
from a known version, one small file at a time, and never listed.
"""

import json
from collections.abc import Iterator
from typing import Any

from penstock.errors import Code, UserError
from penstock.model.codec import from_data, to_text
from penstock.model.epoch import Attachment
from penstock.storage.store import ObjectMissingError
from penstock.tables.chain import expect_known_format
from penstock.tables.folder import LOG_FOLDER, TableFolder
from penstock.tables.table import ChainCommit

ATTACHMENT_KEY = "penstock"
_COPIES_FOLDER = "_penstock"


def log_entry(version: int) -> str:
    """Answer the name of the object that holds one version of a table's log."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def logged_commits(folder: TableFolder, job_id: str, *, version: int) -> Iterator[ChainCommit]:
    """Yield the job's commits from a version backwards, until the log was cleaned."""
    for number in range(version, -1, -1):
        try:
            data = _attachment_data(folder, number, job_id)
        except ObjectMissingError:
            return
        if data is not None:
            yield ChainCommit(attachment=_attachment(data), table_version=number)


def landed_version(folder: TableFolder, attachment: Attachment, *, after: int) -> int | None:
    """Answer the version above ``after`` that holds an attempt, made durable; None if none."""
    version = after + 1
    while True:
        try:
            data = _attachment_data(folder, version, attachment.job_id)
        except ObjectMissingError:
            return None
        # Entries of others on the way are synced too: a log with a hole cannot be read.
        folder.store.sync([folder.key(log_entry(version))])
        if data is not None and data.get("attempt_id") == attachment.attempt_id:
            folder.store.sync([folder.key(LOG_FOLDER)])
            return version
        version += 1


def write_copy(folder: TableFolder, attachment: Attachment) -> None:
    """Keep an attachment beside the table; a second time changes nothing."""
    key = _copy_key(folder, attachment.job_id, attachment.number)
    folder.store.write_new(key, to_text(attachment).encode())


def read_copy(folder: TableFolder, job_id: str, number: int) -> Attachment | None:
    """Read the copy of an attachment, None if there is none."""
    try:
        text = folder.store.read_bytes(_copy_key(folder, job_id, number))
    except ObjectMissingError:
        return None
    return _attachment(_decoded(text, where=f"the copy of commit {number}"))


def _copy_key(folder: TableFolder, job_id: str, number: int) -> str:
    return folder.key(f"{_COPIES_FOLDER}/{job_id}/{number}.json")


def _attachment_data(folder: TableFolder, version: int, job_id: str) -> dict[str, Any] | None:
    content = folder.store.read_bytes(folder.key(log_entry(version)))
    key = f'"{ATTACHMENT_KEY}"'.encode()
    if key not in content or job_id.encode() not in content:
        return None
    where = f"log entry {version}"
    for line in content.split(b"\n"):
        if b'"commitInfo"' in line and key in line:
            info = _decoded(line, where=where).get("commitInfo", {})
            data = _decoded(info.get(ATTACHMENT_KEY, "{}"), where=where)
            if data.get("job_id") == job_id:
                return data
    return None


def _decoded(text: str | bytes, *, where: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise UserError(
            f"{where} is not readable as JSON", code=Code.CANNOT_RESUME_ERR, detail=f"{error}."
        ) from error
    return data if isinstance(data, dict) else {}


def _attachment(data: dict[str, Any]) -> Attachment:
    # The format comes first: the fields of another format may not be known here.
    expect_known_format(data.get("format"), number=data.get("number"))
    return from_data(Attachment, data)
