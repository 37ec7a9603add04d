"""A table that uses features of the log beyond its files is refused."""

import json
from pathlib import Path

import pytest

from penstock.errors import Code, UserError
from penstock.tables.delta import DeltaTables
from tests.error_values import raises

SCHEMA = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
}


def table_with(folder: Path, *, features: list[str], configuration: dict[str, str]) -> str:
    metadata = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": [],
        "configuration": configuration,
    }
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": features,
    }
    entry = folder / "_delta_log" / f"{0:020d}.json"
    entry.parent.mkdir(parents=True)
    lines = [{"protocol": protocol}, {"metaData": metadata}]
    entry.write_text("\n".join(json.dumps(line) for line in lines))
    return str(folder)


@pytest.mark.parametrize("features", [[], ["timestampNtz"]])
def test_a_table_that_needs_no_log_to_read_is_read(tmp_path: Path, features: list[str]) -> None:
    location = table_with(tmp_path / "t", features=features, configuration={})

    assert DeltaTables(str(tmp_path)).open(location).files() == ()


def test_a_table_with_deleted_rows_in_its_log_is_refused(tmp_path: Path) -> None:
    location = table_with(tmp_path / "t", features=["deletionVectors"], configuration={})

    with raises(UserError, Code.NOT_SUPPORTED_ERR, "deletionVectors") as caught:
        DeltaTables(str(tmp_path)).open(location).files()

    assert caught.value.code is Code.NOT_SUPPORTED_ERR
