"""Read a table's log and the copies of attachments beside it, as plain files.

A start normally needs the newest one or two commits of a job, so the log is walked backwards
from a known version, one small file at a time, and never listed.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.errors import Code, UserError
from penstock.model.codec import from_data, to_text
from penstock.model.epoch import Attachment
from penstock.storage.local import LocalStore
from penstock.tables.chain import expect_known_format
from penstock.tables.durable import sync
from penstock.tables.table import ChainCommit

ATTACHMENT_KEY = "penstock"
LOG_FOLDER = "_delta_log"
_COPIES_FOLDER = "_penstock"


def log_entry(root: Path, version: int) -> Path:
    """Answer the file that holds one version of a table's log."""
    return root / LOG_FOLDER / f"{version:020d}.json"


def logged_commits(root: Path, job_id: str, *, version: int) -> Iterator[ChainCommit]:
    """Yield the job's commits from a version backwards, until the log was cleaned."""
    for number in range(version, -1, -1):
        try:
            data = _attachment_data(log_entry(root, number), job_id)
        except FileNotFoundError:
            return
        if data is not None:
            yield ChainCommit(attachment=_attachment(data), table_version=number)


def landed_version(root: Path, attachment: Attachment, *, after: int) -> int | None:
    """Answer the version above ``after`` that holds an attempt, made durable; None if none."""
    version = after + 1
    while (entry := log_entry(root, version)).exists():
        # Entries of others on the way are synced too: a log with a hole cannot be read.
        sync(entry)
        data = _attachment_data(entry, attachment.job_id)
        if data is not None and data.get("attempt_id") == attachment.attempt_id:
            sync(entry.parent)
            return version
        version += 1
    return None


def write_copy(root: Path, attachment: Attachment) -> None:
    """Keep an attachment beside the table; a second time changes nothing."""
    path = _copy_path(root, attachment.job_id, attachment.number)
    LocalStore().write_new(str(path), to_text(attachment).encode())


def read_copy(root: Path, job_id: str, number: int) -> Attachment | None:
    """Read the copy of an attachment, None if there is none."""
    try:
        text = _copy_path(root, job_id, number).read_text("utf-8")
    except FileNotFoundError:
        return None
    return _attachment(_decoded(text, where=f"the copy of commit {number}"))


def _copy_path(root: Path, job_id: str, number: int) -> Path:
    return root / _COPIES_FOLDER / job_id / f"{number}.json"


def _attachment_data(entry: Path, job_id: str) -> dict[str, Any] | None:
    content = entry.read_bytes()
    key = f'"{ATTACHMENT_KEY}"'.encode()
    if key not in content or job_id.encode() not in content:
        return None
    for line in content.split(b"\n"):
        if b'"commitInfo"' in line and key in line:
            info = _decoded(line, where=f'log entry "{entry.name}"').get("commitInfo", {})
            data = _decoded(info.get(ATTACHMENT_KEY, "{}"), where=f'log entry "{entry.name}"')
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
