"""A killed CREATE TABLE … LOCATION is finished by running the statement again."""

from pathlib import Path

import pytest

from penstock.crashpoints import CrashPoint
from penstock.errors import Code, UserError
from tests.integration.driving import crash_inside
from tests.node import Node, create_job, numbered, write_rows


def test_a_killed_create_at_a_location_is_finished_by_repeating_it(
    node: Node, folder: Path, tmp_path: Path
) -> None:
    statement = f"CREATE TABLE t (id BIGINT NOT NULL, note STRING) LOCATION '{tmp_path}/t/'"
    crash_inside(node, statement, CrashPoint.TABLE_CREATED)

    node = node.restart()
    node.sql(statement)

    write_rows(folder / "a.json", numbered(1))
    node.sql(create_job(folder))
    node.run()
    assert node.rows("t") == numbered(1)
    assert node.sql("DESCRIBE DETAIL t")[0]["location"] == f"{tmp_path}/t"


@pytest.mark.parametrize(
    "other", ["t (id BIGINT)", "t (id BIGINT NOT NULL, note STRING) PARTITIONED BY (id)"]
)
def test_another_table_at_the_location_is_not_adopted(
    node: Node, tmp_path: Path, other: str
) -> None:
    statement = f"CREATE TABLE t (id BIGINT NOT NULL, note STRING) LOCATION '{tmp_path}/t'"
    crash_inside(node, statement, CrashPoint.TABLE_CREATED)

    with pytest.raises(UserError) as caught:
        node.sql(f"CREATE TABLE {other} LOCATION '{tmp_path}/t'")

    assert caught.value.code is Code.ALREADY_EXISTS_ERR


def test_a_table_of_the_catalog_is_not_adopted_under_a_second_name(
    node: Node, tmp_path: Path
) -> None:
    node.sql(f"CREATE TABLE t (id BIGINT) LOCATION '{tmp_path}/t'")

    with pytest.raises(UserError) as caught:
        node.sql(f"CREATE TABLE u (id BIGINT) LOCATION '{tmp_path}/t'")

    assert caught.value.code is Code.ALREADY_EXISTS_ERR
