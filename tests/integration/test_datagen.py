"""CREATE ROUTINE LOAD … FROM DATAGEN: statements, rows, SHOW and ALTER."""

from pathlib import Path

import pytest

from penstock.errors import Code, UserError
from tests.error_values import assert_names, raises
from tests.node import Node

CREATE_TABLE = (
    "CREATE TABLE t (id BIGINT NOT NULL, price DECIMAL(10,2), name STRING, at TIMESTAMP)"
)
OPTIONS = {
    "rows_per_second": "unlimited",
    "rows_total": "1000",
    "splits": "2",
    "fields.id.kind": "sequence",
    "fields.id.start": "1",
    "fields.price.kind": "random",
    "fields.price.min": "1",
    "fields.price.max": "9.5",
    "fields.name.length": "4",
    "fields.at.kind": "now",
    "seed": "3",
}


def create(name: str = "g", clauses: str = "", **changed: str) -> str:
    """Return the statement with some options changed; two underscores stand for a dot."""
    options = {**OPTIONS, **{key.replace("__", "."): text for key, text in changed.items()}}
    given = ", ".join(f'"{key}" = "{text}"' for key, text in options.items())
    return f"CREATE ROUTINE LOAD {name} ON t {clauses} FROM DATAGEN ({given})"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    node.sql(CREATE_TABLE)
    return node


def ids(node: Node) -> list[int]:
    return sorted(row["id"] for row in node.rows("t"))


def test_every_row_is_loaded_once(node: Node) -> None:
    node.sql(create())
    message = node.last_message

    node.run()

    assert message == "routine load g created, 2 splits"
    assert ids(node) == list(range(1, 1_001))
    assert {len(row["name"]) for row in node.rows("t")} == {4}


def test_rows_total_can_grow_and_nothing_else_can_change(node: Node) -> None:
    node.sql(create())
    node.run()
    node.sql("PAUSE ROUTINE LOAD FOR g")

    with raises(UserError, Code.OPTION_ERR, '"seed"', "DATAGEN"):
        node.sql("""ALTER ROUTINE LOAD FOR g FROM DATAGEN ("seed" = "4")""")
    node.sql("""ALTER ROUTINE LOAD FOR g FROM DATAGEN ("rows_total" = "1500")""")
    node.sql("RESUME ROUTINE LOAD FOR g")
    node.run()

    assert ids(node) == list(range(1, 1_501))


def test_rows_before_a_given_position_are_not_generated_again(node: Node) -> None:
    start = """{"start": "2026-01-31T10:00:00+00:00", "0": 5, "1": 5}"""
    node.sql(create(rows_total="10").replace(")", f", 'datagen_positions' = '{start}')"))
    node.sql("PAUSE ROUTINE LOAD FOR g")

    node.sql("""ALTER ROUTINE LOAD FOR g FROM DATAGEN ("rows_total" = "14")""")
    node.sql("RESUME ROUTINE LOAD FOR g")
    node.run()

    assert ids(node) == [11, 12, 13, 14]


def test_show_lists_splits_rows_and_the_end(node: Node) -> None:
    node.sql(create())
    node.run()

    splits = node.sql("SHOW SHARDS FOR g")
    (load,) = node.sql("SHOW ROUTINE LOAD FOR g")

    assert [(row["shard"], row["state"], row["records"]) for row in splits] == [
        ("0", "finished", 500),
        ("1", "finished", 500),
    ]
    assert load["DataSourceType"] == "DATAGEN"
    assert load["Progress"] == '{"0": "END", "1": "END"}'


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        (create(splits="0"), ('"splits"', "1")),
        (create(rows_per_second="0"), ('"rows_per_second"', "1")),
        (create(fields__id__kind="odd"), ("kind",)),
        (create(unknown="1"), ('"unknown"',)),
        (create(clauses='PROPERTIES("format" = "json")'), ("format", "DATAGEN")),
        (create(clauses='COLUMNS TERMINATED BY ","'), ("COLUMNS TERMINATED BY", "DATAGEN")),
        (create(clauses="COLUMNS(nothing)"), ("nothing",)),
        (
            create(datagen_positions='{\\"start\\": \\"2026-01-31T10:00:00Z\\", \\"0\\": 1}'),
            ("0", "1"),
        ),
    ],
)
def test_an_impossible_generator_is_refused_and_changes_nothing(
    node: Node, statement: str, named: tuple[str, ...]
) -> None:
    with raises(UserError, Code.OPTION_ERR, *named):
        node.sql(statement)

    assert node.sql("SHOW JOBS") == []


def test_an_alter_keeps_the_position_given_at_create(node: Node) -> None:
    start = '{\\"start\\": \\"2026-01-31T10:00:00Z\\", \\"0\\": 490, \\"1\\": 490}'
    node.sql(create(datagen_positions=start))
    node.sql("PAUSE ROUTINE LOAD FOR g")

    node.sql("""ALTER ROUTINE LOAD FOR g PROPERTIES ("max_batch_rows" = "300")""")
    node.sql("RESUME ROUTINE LOAD FOR g")
    node.run()

    assert ids(node) == list(range(981, 1_001))


def test_a_total_that_shrinks_and_grows_again_repeats_no_row(node: Node) -> None:
    node.sql(create())
    node.run()
    node.sql("PAUSE ROUTINE LOAD FOR g")
    node.sql("""ALTER ROUTINE LOAD FOR g FROM DATAGEN ("rows_total" = "600")""")
    (shown,) = node.sql("SHOW CREATE ROUTINE LOAD FOR g")
    node.sql("STOP ROUTINE LOAD FOR g")

    node.sql(str(shown["CreateStmt"]).replace("'600'", "'1010'"))
    node.run()

    assert ids(node) == list(range(1, 1_011))


def test_a_sequence_of_decimals_can_be_loaded(node: Node) -> None:
    node.sql(create(rows_total="3", fields__price__kind="sequence"))

    node.run()

    assert sorted(row["price"] for row in node.rows("t")) == [1, 2, 3]


def test_a_sequence_that_exceeds_its_type_pauses_the_load_with_a_reason(node: Node) -> None:
    node.sql("CREATE TABLE small (id TINYINT)")
    options = '"rows_per_second" = "100000000", "fields.id.kind" = "sequence"'
    node.sql(f"CREATE ROUTINE LOAD s ON small FROM DATAGEN ({options})")

    (report,) = node.run()

    assert report.needs_resume
    assert_names(str(node.show("s")["reason"]), '"id"', "TINYINT")


def test_an_alter_that_names_another_source_is_refused(node: Node) -> None:
    node.sql(create())
    node.sql("PAUSE ROUTINE LOAD FOR g")

    with raises(UserError, Code.OPTION_ERR, "source function"):
        node.sql("""ALTER ROUTINE LOAD FOR g FROM KINESIS ("rows_total" = "1500")""")
