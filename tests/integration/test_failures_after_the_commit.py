"""A failure after rows became visible is repaired by the next owner of the job."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Code, CommitOutcomeUnknownError, ExternalError, UserError
from penstock.model.epoch import Attachment, CommitKind, DataFile
from tests.error_values import assert_names, raises
from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

ON_BUCKETS_TOO = True


class FailingTables:
    """Real tables whose handles fail once at a chosen step."""

    def __init__(self, tables: Any, *, fail_at: str, kind: CommitKind) -> None:
        self.tables = tables
        self.fail_at = fail_at
        self.kind = kind
        self.failures_left = 1

    def open(self, location: str) -> "FailingHandle":
        return FailingHandle(self, self.tables.open(location))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tables, name)


class FailingHandle:
    def __init__(self, tables: FailingTables, handle: Any) -> None:
        self._tables = tables
        self._handle = handle

    def commit(self, attachment: Attachment, files: Sequence[DataFile]) -> int:
        if self._tables.fail_at == "commit" and attachment.kind is self._tables.kind:
            raise CommitOutcomeUnknownError("the table takes nothing")
        return int(self._handle.commit(attachment, files))

    def write_copy(self, attachment: Attachment) -> None:
        tables = self._tables
        due = tables.fail_at == "copy" and attachment.kind is tables.kind
        if due and tables.failures_left:
            tables.failures_left -= 1
            raise ExternalError("no space left for the copy", code=Code.STORAGE_ERR)
        self._handle.write_copy(attachment)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)


def inject_failure(node: Node, *, fail_at: str, kind: CommitKind) -> None:
    tables: Any = FailingTables(node.tables, fail_at=fail_at, kind=kind)
    node.tables = tables


def test_an_epoch_is_not_repeated_when_its_copy_fails(node: Node, folder: Path) -> None:
    inject_failure(node, fail_at="copy", kind=CommitKind.EPOCH)
    write_rows(folder / "a.json", numbered(1))
    write_rows(folder / "z.json", numbered(2))
    one_file = [("s3.max_batch_files", "1")]
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=one_file)}")

    node.run()

    epochs = [e for e in node.sql("SHOW EPOCHS FOR j") if e["kind"] == "epoch"]
    assert node.rows("t") == numbered(1, 2)
    assert [(e["epoch"], e["outcome"]) for e in epochs] == [(1, "COMMITTED"), (2, "COMMITTED")]
    assert node.show("j")["position"] == str(folder / "z.json")


def test_an_alter_that_the_table_refuses_changes_nothing(node: Node, folder: Path) -> None:
    inject_failure(node, fail_at="commit", kind=CommitKind.MOVE)
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}; PAUSE JOB j")
    before = node.sql("SHOW CREATE JOB j")

    with raises(ExternalError, Code.TABLE_ERR):
        node.sql("""ALTER JOB j PROPERTIES("max_interval"="7s","offset"='{"fileName":"/x"}')""")

    assert node.sql("SHOW CREATE JOB j") == before
    assert node.show("j")["position"] == "start"


def test_a_bad_row_with_half_a_character_pauses_the_job_with_file_and_line(
    node: Node, folder: Path
) -> None:
    write_rows(folder / "a.json", numbered(1))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    (folder / "b.json").write_text('{"id": "\\ud800", "note": "x"}\n')

    (report,) = node.run()

    reason = report.state.desired.reason
    assert reason is not None
    assert reason.code is Code.TOO_MANY_FAILURE_ROWS_ERR
    assert_names(reason.message, f"{node.name_of(folder / 'b.json')}", "line 1")


@pytest.mark.parametrize(
    "given",
    [
        '"max_interval" = "99999999999999999999"',
        '"max_interval" = "99999999999999999999999999999999999999999s"',
        f'"s3.max_batch_bytes" = "{"9" * 400}.5MB"',
        """ "offset" = '{"fileName": "/a\\\\ud800"}' """,
    ],
)
def test_a_property_out_of_range_is_refused_and_changes_nothing(
    node: Node, folder: Path, given: str
) -> None:
    write_rows(folder / "a.json", numbered(1))
    node.sql(CREATE_TABLE)
    statement = create_job(folder).replace("ON STREAMING", f"PROPERTIES({given}) ON STREAMING")

    with pytest.raises(UserError) as caught:
        node.sql(statement)

    assert caught.value.code is Code.OPTION_ERR
    assert node.sql("SHOW JOBS") == []
