"""Columns are inferred from samples of JSON lines."""

import io

import pytest

from penstock.errors import Code, UserError
from penstock.model.schema import columns_sql
from penstock.sources.formats.inference import infer_columns
from tests.error_values import assert_names, raises


@pytest.mark.parametrize(
    ("sample", "sql"),
    [
        (b'{"a":1}', "a BIGINT"),
        (b'{"a":1}\n{"a":1.5}', "a DOUBLE"),
        (b'{"a":true}', "a BOOLEAN"),
        (b'{"a":"x"}', "a STRING"),
        (b'{"a":"2026-11-15T10:00:00Z"}', "a STRING"),
        (b'{"a":9223372036854775807}', "a BIGINT"),
        (b'{"a":-9223372036854775808}', "a BIGINT"),
        (b'{"a":9223372036854775808}', "a STRING"),
        (b'{"a":' + b"9" * 5000 + b"}", "a STRING"),
        (b'{"a":1}\n{"a":"x"}', "a STRING"),
        (b'{"a":1}\n{"a":true}', "a STRING"),
        (b'{"a":null}', "a STRING"),
        (b'{"a":null}\n{"a":1}\n{"a":null}', "a BIGINT"),
        (b'{"a":[]}', "a ARRAY<STRING>"),
        (b'{"a":[1,null,2.5]}', "a ARRAY<DOUBLE>"),
        (b'{"a":[{"b":1},{"c":"x"}]}', "a ARRAY<STRUCT<b: BIGINT, c: STRING>>"),
        (b'{"a":{"b":1}}\n{"a":{"c":2,"b":0.5}}', "a STRUCT<b: DOUBLE, c: BIGINT>"),
        (b'{"b":1,"a":2}\n{"c":3,"a":4}', "b BIGINT, a BIGINT, c BIGINT"),
        (b'{"a":1,"nothing":{}}', "a BIGINT"),
        (b'\xef\xbb\xbf{"a":1}\r\n\r\n{"b":2}\r\n', "a BIGINT, b BIGINT"),
        (b'null\n{"a":1}\n{"a":"x","a":2}\n{"a":NaN}\n{"a"', "a BIGINT"),
    ],
)
def test_columns_are_inferred_from_the_records(sample: bytes, sql: str) -> None:
    assert columns_sql(infer_columns([sample])) == sql


def test_columns_are_the_union_of_all_samples() -> None:
    columns = infer_columns([b'{"a":1}', io.BytesIO(b'{"b":"x","a":1.5}')])

    assert columns_sql(columns) == "a DOUBLE, b STRING"


def test_only_the_first_lines_of_a_sample_are_read() -> None:
    sample = b'{"a":1}\n{"a":2}\n{"a":"x"}\n'

    assert columns_sql(infer_columns([sample], lines_max=2)) == "a BIGINT"


def test_a_line_truncated_by_the_byte_limit_is_ignored() -> None:
    sample = b'{"a":1}\n{"b":2} '

    assert columns_sql(infer_columns([sample], bytes_max=15)) == "a BIGINT"


@pytest.mark.parametrize("other", [b"[1]", b'{"c":1}'])
def test_a_column_with_scalars_and_nested_values_is_refused(other: bytes) -> None:
    with raises(UserError, Code.TYPE_ERR, '"a.b"', "scalar") as raised:
        infer_columns([b'{"a":{"b":1}}\n{"a":{"b":' + other + b"}}"])

    assert raised.value.code == Code.TYPE_ERR


@pytest.mark.parametrize("sample", [b"", b"\n\n", b"[1]\n", b"{}\n", b"not json"])
def test_samples_without_a_record_are_refused_with_a_hint_to_the_schema(sample: bytes) -> None:
    with raises(UserError, Code.TYPE_ERR, "no record", "1000") as raised:
        infer_columns([sample])

    assert_names(raised.value.hint, '"schema"')
