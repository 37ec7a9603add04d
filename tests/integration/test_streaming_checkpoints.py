"""Checkpoints and watermarks of a real Spark query."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.executor import SparkExecutor
from penstock.streaming.checkpoint import CheckpointFolder
from penstock.streaming.recovery import Continue, Found, Refuse, Replay, decide
from penstock.streaming.watermark import SPARK_DELAY, marker_microseconds, row_filter

pytestmark = pytest.mark.integration

OWN = "11111111-2222-3333-4444-555555555555"
WATERMARK_MS = 1_790_000_000_123
BATCHES = 3
_STREAMING = "spark.sql.streaming"
_CLASSES = "org.apache.spark.sql.execution.streaming"
CONF = {
    "spark.sql.shuffle.partitions": "2",
    f"{_STREAMING}.stateStore.providerClass": f"{_CLASSES}.state.RocksDBStateStoreProvider",
    f"{_STREAMING}.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STREAMING}.stateStore.checkpointFormatVersion": "2",
    f"{_STREAMING}.checkpointFileManagerClass": (
        f"{_CLASSES}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    f"{_STREAMING}.noDataMicroBatches.enabled": "false",
}
# Row 0 of each batch is the marker row. Another row has no event time, the others have one.
CLOCK_ROWS = 4
EVENT_TIME = (
    f"CASE value % {CLOCK_ROWS} "
    f"WHEN 0 THEN timestamp_micros({marker_microseconds(WATERMARK_MS)}) "
    f"WHEN 1 THEN NULL ELSE timestamp_micros({WATERMARK_MS + 5_000}000) END"
)


def run_query(spark: SparkExecutor, folder: CheckpointFolder) -> list[int]:
    """Run a count by event time for a few batches; return the rows that it read by batch."""
    session = spark.running().sessions().newSession()
    for key, value in CONF.items():
        session.conf.set(key, value)
    rows: list[int] = []

    def collect(batch: Any, number: int) -> None:
        found = batch.collect()
        if number == BATCHES:
            # Spark has opened this batch, and its commit must not be written.
            raise RuntimeError("enough batches")
        rows.append(sum(row["count"] for row in found))

    clock = session.readStream.format("rate-micro-batch").options(
        rowsPerBatch=CLOCK_ROWS, numPartitions=1, startTimestamp=0
    )
    view = clock.load().selectExpr("value", f"{EVENT_TIME} AS `t``s`")
    view = view.withWatermark("`t``s`", SPARK_DELAY).where(row_filter("t`s"))
    counts = view.selectExpr("value", "`t``s` AS ts").groupBy("value", "ts").count()
    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(collect)
        .option("checkpointLocation", str(folder.spark))
        .start()
    )
    with pytest.raises(Exception, match="enough batches"):
        query.awaitTermination(120)
    return rows


def test_the_files_of_a_real_query_are_found_settled_and_missed(
    spark: SparkExecutor, tmp_path: Path
) -> None:
    folder = CheckpointFolder(tmp_path / OWN)
    folder.create(OWN, frozen={})

    rows = run_query(spark, folder)
    settled = folder.settle(BATCHES - 1)

    last = BATCHES - 1
    complete = Found(exists=True, checkpoint_id=OWN, committed=last, opened=BATCHES)
    assert folder.find() == complete
    assert decide(complete, checkpoint_id=OWN, batch=last) == Continue(batch=BATCHES)
    assert decide(complete, checkpoint_id=OWN, batch=BATCHES) == Replay(batch=BATCHES)
    # The filter removes the marker row, and keeps the row without an event time.
    assert rows[0] == CLOCK_ROWS - 1
    commit = json.loads((folder.spark / f"commits/{last}").read_text().splitlines()[1])
    assert commit["nextBatchWatermarkMs"] == WATERMARK_MS
    named = {f"{BATCHES}_{store}" for (store,) in commit["stateUniqueIds"]["0"]}
    synced = {Path(key).stem: key for key in settled}
    assert len(named) == 2
    assert named <= synced.keys()
    assert settled[-2:] == (
        f"{folder.spark}/offsets/{BATCHES}",
        f"{folder.spark}/commits/{last}",
    )
    lost = sorted(named)[0]
    Path(synced[lost]).unlink()
    refused = decide(folder.find(), checkpoint_id=OWN, batch=last)
    assert isinstance(refused, Refuse)
    assert lost in refused.reason
