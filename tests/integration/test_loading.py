"""A streaming job loads every row of its files once."""

from pathlib import Path

import pytest

from tests.node import CREATE_TABLE, Node, create_job, numbered, write_rows

ON_BUCKETS_TOO = True


@pytest.fixture(params=["in this process", "on Spark"])
def any_node(request: pytest.FixtureRequest, place: str) -> Node:
    """A node with either executor, in either place."""
    del place
    name = "spark_node" if request.param == "on Spark" else "node"
    node: Node = request.getfixturevalue(name)
    return node


def test_a_job_loads_every_row_of_every_file_once(any_node: Node, folder: Path) -> None:
    node = any_node
    write_rows(folder / "b.json", numbered(1, 2))
    node.sql(f"{CREATE_TABLE}; {create_job(folder)}")
    node.run()
    write_rows(folder / "a.json", numbered(3))
    write_rows(folder / "c.json", numbered(4))

    node.run()

    assert node.rows("t") == numbered(1, 2, 3, 4)
    assert node.show("j")["rows_loaded"] == 4
    assert node.show("j")["position"] == str(folder / "c.json")
