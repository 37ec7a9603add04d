"""EXPLAIN JOB shows how a job's rows are produced and what the next epoch reads."""

from pathlib import Path

from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows


def explain(node: Node) -> dict[str, str]:
    return {str(row["item"]): str(row["value"]) for row in node.sql("EXPLAIN JOB j")}


def test_explain_shows_a_plain_list_as_fused_with_its_next_epoch_and_limits(
    node: Node, folder: Path
) -> None:
    write_rows(folder / "a.json", numbered(1))
    write_rows(folder / "b.json", numbered(2))
    node.sql(f"{CREATE_TABLE}; {create_job(folder, properties=[('s3.max_batch_files', '1')])}")

    before = explain(node)
    node.run()
    after = explain(node)

    size_bytes = (folder / "a.json").stat().st_size
    assert before["path"] == "fused"
    assert before["reads"] == "id, note"
    assert before["waiting"].startswith("2 files, ")
    assert before["next epoch"] == f"1 file, {size_bytes} bytes"
    assert before["limit s3.max_batch_files"] == "1"
    assert before["limit session.enable_insert_strict"] == "true"
    assert after["next epoch"] == "no data to read"


def test_explain_shows_the_operators_of_a_select_on_spark(
    spark_node: Node, folder: Path
) -> None:
    write_rows(folder / "a.json", numbered(1))
    select = create_job(folder).replace("SELECT id, note", "SELECT id + 1, upper(note)")
    spark_node.sql(f"{CREATE_TABLE}; {select} WHERE id > 0")

    explained = explain(spark_node)

    assert explained["path"] == "Spark"
    assert explained["operators"] == "read, Filter, Project, write"
    assert explained["reads"] == "id, note"
    assert explained["rows"] == "at most one per input row"
    assert explained["plan"] == "reused between epochs"
    assert explained["lookups"] == "none"
    assert explained["task 0"].startswith("1 part, ")
