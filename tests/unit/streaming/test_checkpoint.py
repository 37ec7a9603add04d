"""The checkpoint folder: plans, what is found after a crash, and what is synced."""

import json
import os
from pathlib import Path

import pytest

from penstock.errors import Code, UserError
from penstock.model.job import TableRef
from penstock.model.query import Lookup, LookupFile
from penstock.model.split import At, SplitRead
from penstock.streaming.checkpoint import (
    BATCHES_RETAINED,
    BatchPlan,
    CheckpointFolder,
    ShareReport,
    SourcePlan,
    parse_plan,
)
from penstock.streaming.recovery import NO_BATCH, Continue, Found, Refuse, Replay, decide
from tests.error_values import assert_names, raises

OWN = "11111111-2222-3333-4444-555555555555"
FROZEN = {"spark.sql.shuffle.partitions": "2"}
READ = SplitRead(id="a/1", split="s1", begin=At(value="LOG 88.2"), work='{"path":"a"}')
PLAN = BatchPlan(
    epoch=412,
    batch=3,
    first=6,
    slots=2,
    moves=True,
    watermark_ms=99,
    high_max_ms=10**15,
    pins={"dim": 17},
    sources={
        "s1": SourcePlan(
            table="t", begin="LOG 88.2", end="LOG 91.0", high_ms=7, shares=((READ,), ())
        )
    },
)


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    """A new checkpoint; its parent folders do not exist yet."""
    created = CheckpointFolder(tmp_path / "checkpoints" / "j" / OWN)
    created.create(OWN, frozen=FROZEN)
    return created


def spark_file(folder: CheckpointFolder, name: str, content: str) -> Path:
    path = folder.spark / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def open_batch(folder: CheckpointFolder, batch: int) -> Path:
    text = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"offset":2,"timestamp":0}'
    return spark_file(folder, f"offsets/{batch}", text)


def commit_batch(folder: CheckpointFolder, batch: int) -> Path:
    """Write the files of a finished batch with one operator and two partitions."""
    for partition in (0, 1):
        name = f"state/0/{partition}/{batch + 1}_{batch}-{partition}.changelog"
        spark_file(folder, name, "changes")
    ids = {"0": [[f"{batch}-0"], [f"{batch}-1"]]}
    values = json.dumps({"nextBatchWatermarkMs": 0, "stateUniqueIds": ids})
    return spark_file(folder, f"commits/{batch}", f"v2\n{values}")


def run_batches(folder: CheckpointFolder, last: int) -> None:
    """Write the files of batches up to the last one, and open the next batch."""
    for batch in range(last + 1):
        open_batch(folder, batch)
        commit_batch(folder, batch)
    open_batch(folder, last + 1)


def test_a_new_checkpoint_has_the_metadata_that_spark_reads(folder: CheckpointFolder) -> None:
    assert (folder.spark / "metadata").read_text() == f'{{"id":"{OWN}"}}'
    assert folder.frozen() == FROZEN
    assert folder.find() == Found(exists=True, checkpoint_id=OWN)


def test_a_folder_that_does_not_exist_is_found_as_such(tmp_path: Path) -> None:
    assert CheckpointFolder(tmp_path / "none").find() == Found()


def test_t45_a_folder_without_metadata_has_no_id(folder: CheckpointFolder) -> None:
    (folder.spark / "metadata").unlink()

    assert folder.find() == Found(exists=True)


def test_metadata_that_are_not_json_count_as_missing(folder: CheckpointFolder) -> None:
    spark_file(folder, "metadata", "")

    assert folder.find().checkpoint_id is None


def test_a_deleted_checkpoint_does_not_exist(folder: CheckpointFolder) -> None:
    run_batches(folder, 1)

    folder.delete()

    assert not folder.path.exists()


def test_a_plan_is_read_as_it_was_written(folder: CheckpointFolder) -> None:
    folder.write_plan(PLAN)

    assert folder.plan(3) == PLAN
    assert folder.plan(4) is None


def test_the_attachment_stores_a_plan_without_shares() -> None:
    stored = PLAN.without_shares()

    assert stored.sources["s1"].shares == ()
    assert (stored.sources["s1"].end, stored.pins) == ("LOG 91.0", {"dim": 17})


@pytest.mark.parametrize("written", [0, 2, None])
def test_a_plan_of_another_format_is_refused(written: int | None) -> None:
    text = json.dumps({"format": written, "batch": 3, "new_field": 1})

    with raises(UserError, Code.CANNOT_RESUME_ERR, 3, written, 1):
        parse_plan(text)


def test_pins_are_read_as_they_were_written(folder: CheckpointFolder) -> None:
    table = TableRef(name="dim", id="id", location="file:///dim")
    pinned = Lookup(
        table=table, version=17, size_bytes=1, columns=(), files=(LookupFile(path="a"),)
    )

    folder.write_pins(3, {"dim": pinned})

    assert folder.pins(3) == {"dim": pinned}
    assert folder.pins(4) is None


def test_the_newest_batches_are_found_by_number(folder: CheckpointFolder) -> None:
    run_batches(folder, 10)
    folder.write_plan(PLAN)

    found = folder.find()

    assert (found.committed, found.opened) == (10, 11)
    assert found.in_table == {3: True}
    assert (found.missing, found.truncated) == ((), ())


def test_temporary_files_and_checksums_are_no_batches(folder: CheckpointFolder) -> None:
    run_batches(folder, 1)
    for name in (".5.crc", ".5.972f2bbd.tmp", "5.tmp", "..5.972f2bbd.tmp.crc"):
        spark_file(folder, f"commits/{name}", "x")
        spark_file(folder, f"offsets/{name}", "x")
    (folder.path / "plans").mkdir()
    (folder.path / "plans" / ".penstock-5.tmp").write_text("{")

    found = folder.find()

    assert (found.committed, found.opened, found.in_table) == (1, 2, {})


def test_t45_a_missing_state_file_is_named(folder: CheckpointFolder) -> None:
    run_batches(folder, 4)
    (folder.spark / "state/0/1/5_4-1.changelog").unlink()

    found = folder.find()
    verdict = decide(found, checkpoint_id=OWN, batch=4)

    assert found.missing == ("spark/state/0/1/5_4-1",)
    assert isinstance(verdict, Refuse)
    error = verdict.error(folder.path)
    assert error.code is Code.CHECKPOINT_DAMAGED_ERR
    assert_names(error.message, "5_4-1")
    assert_names(error.detail, "batch 4", "batch 5")
    assert_names(error.hint, str(folder.path))


def test_t45_an_empty_state_file_counts_as_missing(folder: CheckpointFolder) -> None:
    run_batches(folder, 4)
    spark_file(folder, "state/0/1/5_4-1.changelog", "")

    assert folder.find().missing == ("spark/state/0/1/5_4-1",)


def test_t51_a_snapshot_replaces_the_changes(folder: CheckpointFolder) -> None:
    run_batches(folder, 4)
    (folder.spark / "state/0/1/5_4-1.changelog").rename(folder.spark / "state/0/1/5_4-1.zip")

    assert folder.find().missing == ()


def test_the_state_of_a_store_with_a_name_is_found(folder: CheckpointFolder) -> None:
    run_batches(folder, 4)
    (folder.spark / "state/0/1/left").mkdir()
    (folder.spark / "state/0/1/5_4-1.changelog").rename(
        folder.spark / "state/0/1/left/5_4-1.changelog"
    )

    assert folder.find().missing == ()


def test_a_commit_that_names_no_state_is_damaged_and_kept(folder: CheckpointFolder) -> None:
    run_batches(folder, 4)
    spark_file(folder, "commits/4", 'v1\n{"nextBatchWatermarkMs":0}')

    found = folder.find()

    assert (found.committed, found.missing) == (4, ("spark/commits/4",))
    assert found.truncated == ()


@pytest.mark.parametrize(
    "content", ["", "v1\n", 'v1\n{"conf":{}}\n', 'v1\n{}\n{"off', "\0" * 9]
)
def test_an_unreadable_offset_is_deleted_and_its_batch_opened_again(
    folder: CheckpointFolder, content: str
) -> None:
    run_batches(folder, 4)
    torn = spark_file(folder, "offsets/5", content)
    checksum = spark_file(folder, "offsets/.5.crc", "x")

    found = folder.find()
    folder.delete_truncated(found)

    assert found.truncated == ("spark/offsets/5",)
    assert (found.committed, found.opened) == (4, 4)
    assert decide(found, checkpoint_id=OWN, batch=4) == Continue(batch=5)
    assert not torn.exists()
    assert not checksum.exists()


def test_finding_deletes_nothing(folder: CheckpointFolder) -> None:
    run_batches(folder, 4)
    torn = spark_file(folder, "offsets/5", "")

    folder.find()

    assert torn.exists()


def test_an_unreadable_offset_of_a_committed_batch_is_damage(folder: CheckpointFolder) -> None:
    run_batches(folder, 4)
    spark_file(folder, "offsets/4", "")

    found = folder.find()

    assert (found.missing, found.truncated) == (("spark/offsets/4",), ())


@pytest.mark.parametrize("content", ["", "v2\n", 'v2\n{"stateUniq', "\0" * 9])
def test_t53_a_batch_whose_commit_was_truncated_after_the_table_commit_is_replayed(
    folder: CheckpointFolder, content: str
) -> None:
    run_batches(folder, 4)
    spark_file(folder, "commits/4", content)

    found = folder.find()
    folder.delete_truncated(found)

    assert found.truncated == ("spark/commits/4", "spark/offsets/5")
    assert decide(found, checkpoint_id=OWN, batch=4) == Replay(batch=4)
    assert folder.find() == Found(
        exists=True, checkpoint_id=OWN, committed=3, opened=4, in_table={}
    )


def test_two_unreadable_commits_are_damage(folder: CheckpointFolder) -> None:
    run_batches(folder, 4)
    spark_file(folder, "commits/3", "")
    spark_file(folder, "commits/4", "")

    found = folder.find()

    assert (found.committed, found.missing) == (3, ("spark/commits/3",))


@pytest.mark.parametrize("content", [None, "", '{"spark', "[]"])
def test_t57a_unreadable_frozen_settings_are_damage(
    folder: CheckpointFolder, content: str | None
) -> None:
    run_batches(folder, 0)
    frozen = folder.path / "frozen.json"
    frozen.unlink() if content is None else frozen.write_text(content)

    verdict = decide(folder.find(), checkpoint_id=OWN, batch=0)

    assert isinstance(verdict, Refuse)
    assert_names(verdict.reason, '"frozen.json"')
    assert verdict.code is Code.CHECKPOINT_DAMAGED_ERR


def test_unreadable_pins_count_as_missing(folder: CheckpointFolder) -> None:
    folder.write_pins(3, {})
    (folder.path / "pins/3.json").write_text('{"dim')

    assert folder.pins(3) is None


def test_t57a_an_unreadable_plan_counts_as_missing(folder: CheckpointFolder) -> None:
    run_batches(folder, 4)
    folder.write_plan(PLAN)
    (folder.path / "plans" / "4.json").write_text('{"format":1,')

    found = folder.find()
    verdict = decide(found, checkpoint_id=OWN, batch=2)

    assert found.in_table == {3: True}
    assert isinstance(verdict, Refuse)
    assert verdict.code is Code.CHECKPOINT_DAMAGED_ERR
    assert_names(verdict.reason, "batch 4")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were synced, in order."""
    paths: list[str] = []
    sync = os.fsync

    def record(descriptor: int) -> None:
        paths.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    return paths


def names(folder: CheckpointFolder, paths: list[str] | tuple[str, ...]) -> list[str]:
    return [str(Path(path).relative_to(folder.path)) for path in paths]


@pytest.mark.parametrize("durable", [True, False])
def test_only_a_durable_report_of_a_reader_is_synced(
    folder: CheckpointFolder, synced: list[str], *, durable: bool
) -> None:
    folder.clear_reports(3)

    folder.write_report(3, "s1", 0, ShareReport(), durable=durable)

    assert folder.report(3, "s1", 0) == ShareReport()
    assert bool(synced) is durable


def test_settling_syncs_every_file_and_every_folder_of_a_batch(
    folder: CheckpointFolder, synced: list[str]
) -> None:
    run_batches(folder, 0)

    settled = folder.settle(0)

    files = [
        "spark/state/0/0/1_0-0.changelog",
        "spark/state/0/1/1_0-1.changelog",
        "spark/offsets/1",
        "spark/commits/0",
    ]
    assert names(folder, settled) == files
    assert names(folder, synced[:4]) == files
    assert set(names(folder, synced[4:])) == {
        ".",
        "spark",
        "spark/commits",
        "spark/offsets",
        "spark/state",
        "spark/state/0",
        "spark/state/0/0",
        "spark/state/0/1",
    }


def test_the_offset_of_the_first_batch_is_synced_before_its_commit(
    folder: CheckpointFolder, synced: list[str]
) -> None:
    open_batch(folder, 0)

    settled = folder.settle(NO_BATCH)

    assert names(folder, settled) == ["spark/offsets/0"]
    assert {"spark/offsets/0", "spark/offsets", "spark"} <= set(names(folder, synced))


def test_t51_only_new_files_are_synced_among_them_later_snapshots(
    folder: CheckpointFolder,
) -> None:
    run_batches(folder, 0)
    folder.settle(0)
    commit_batch(folder, 1)
    open_batch(folder, 2)
    spark_file(folder, "state/0/0/1_0-0.zip", "snapshot")

    settled = folder.settle(1)

    assert names(folder, settled) == [
        "spark/state/0/0/1_0-0.zip",
        "spark/state/0/0/2_1-0.changelog",
        "spark/state/0/1/2_1-1.changelog",
        "spark/offsets/2",
        "spark/commits/1",
    ]


@pytest.mark.parametrize(
    "lost", ["offsets/1", "offsets/0", "commits/0", "state/0/1/1_0-1.changelog"]
)
def test_a_batch_with_a_missing_file_is_not_settled(
    folder: CheckpointFolder, synced: list[str], lost: str
) -> None:
    run_batches(folder, 0)
    (folder.spark / lost).unlink()

    with raises(UserError, Code.CHECKPOINT_DAMAGED_ERR, lost.removesuffix(".changelog")):
        folder.settle(0)

    assert synced == []


def test_plans_and_pins_before_the_retained_batches_are_pruned(
    folder: CheckpointFolder,
) -> None:
    (folder.path / "plans").mkdir()
    for batch in (0, 4, 5, 25):
        (folder.path / "plans" / f"{batch}.json").write_text("{}")
        folder.write_pins(batch, {})

    folder.prune(5 + BATCHES_RETAINED)

    assert {p.name for p in (folder.path / "plans").iterdir()} == {"5.json", "25.json"}
    assert {p.name for p in (folder.path / "pins").iterdir()} == {"5.json", "25.json"}
