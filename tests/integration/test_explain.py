"""EXPLAIN JOB tells how a job's rows are made and what comes next."""

from pathlib import Path

from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows


def told(node: Node) -> dict[str, str]:
    return {str(row["item"]): str(row["value"]) for row in node.sql("EXPLAIN JOB j")}


def test_a_plain_list_is_told_to_be_fused_with_its_next_epoch_and_limits(
    node: Node, folder: Path
) -> None:
    write_rows(folder / "a.json", numbered(1))
    write_rows(folder / "b.json", numbered(2))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=[('s3.max_batch_files', '1')])}")

    before = told(node)
    node.run()
    after = told(node)

    size_bytes = (folder / "a.json").stat().st_size
    assert before["path"] == "fused"
    assert before["reads"] == "id, note"
    assert before["waiting"].startswith("2 files, ")
    assert before["next epoch"] == f"1 file, {size_bytes} bytes"
    assert before["limit s3.max_batch_files"] == "1"
    assert before["limit session.enable_insert_strict"] == "true"
    assert after["next epoch"] == "nothing is waiting"


def test_a_select_that_spark_runs_is_told_with_its_operators(
    spark_node: Node, folder: Path
) -> None:
    write_rows(folder / "a.json", numbered(1))
    select = create_job(folder).replace("SELECT id, note", "SELECT id + 1, upper(note)")
    spark_node.sql(f"{CREATE_TABLE}; {select} WHERE id > 0")

    explained = told(spark_node)

    assert explained["path"] == "Spark"
    assert explained["operators"] == "read, Filter, Project, write"
    assert explained["reads"] == "id, note"
    assert explained["rows"] == "at most one for each"
    assert explained["plan"] == "kept between epochs"
    assert explained["lookups"] == "none"
    assert explained["task 0"].startswith("1 part, ")
