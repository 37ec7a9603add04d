"""The settings of a streaming query."""

from penstock.streaming.query import QuerySettings

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def test_s1_checkpoint_files_are_written_without_a_process_for_each() -> None:
    settings = QuerySettings(parallelism=2)

    assert settings.conf[FILE_MANAGER].endswith(".FileSystemBasedCheckpointFileManager")
