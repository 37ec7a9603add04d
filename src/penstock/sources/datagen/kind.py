"""Generated rows as a source kind: options, fields, SHOW.

A value depends only on the seed, the field and the row number. So the same position always
generates the same row, also after a crash. Split n of k holds the rows n, n + k, n + 2k, …

The floor of every split is the time of the first row. A value of the kind ``now`` is this time
plus the row number divided by the rate.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from penstock.errors import UserError
from penstock.model.options import open_options, option, parse_options
from penstock.model.schema import Column, DataType, Decimal, Primitive
from penstock.model.split import (
    Amount,
    At,
    AtTime,
    End,
    Position,
    Progress,
    SplitProgress,
    SplitState,
    SplitStatus,
    position_text,
)
from penstock.model.text import format_count
from penstock.sources.source import (
    Place,
    ReadTask,
    ShowRequest,
    Source,
    SourceKind,
    SourceServices,
    SourceView,
    StartRequest,
    TaskReader,
)

POSITIONS = "datagen_positions"
_FIELDS = "fields."


class FieldKind(StrEnum):
    """How the values of a field are generated."""

    RANDOM = "random"
    SEQUENCE = "sequence"
    NOW = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOptions:
    """Options of one field, given as ``fields.<name>.<option>``."""

    kind: FieldKind = option(
        "How values are generated: random, sequence (start, start + 1, …) or now (the time "
        "of the row).",
        default=FieldKind.RANDOM,
    )
    type: str = option(
        "Type of a field that is not a column of the table; columns have the table's type.",
        default="",
    )
    start: int = option("For sequence: first value.", default=1)
    min: str = option("For random: smallest value, a number or a date.", default="")
    max: str = option("For random: largest value, a number or a date.", default="")
    length: int = option(
        "For random: number of characters of a STRING, or of bytes of a BINARY.",
        default=12,
        at_least=1,
        at_most=10_000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DatagenOptions:
    """Options of FROM DATAGEN."""

    rows_per_second: int | None = option(
        "Rows to generate per second, over all splits; unlimited requires rows_total.",
        default=1_000,
        none_word="unlimited",
        at_least=1,
        at_most=100_000_000,
    )
    rows_total: int | None = option(
        "Total number of rows; the load finishes after the last row.",
        default=None,
        none_word="unlimited",
        at_least=1,
    )
    splits: int = option(
        "Number of splits, which are read in parallel.", default=1, at_least=1, at_most=1_000
    )
    seed: int = option(
        "Seed of random values; the same seed generates the same rows.", default=0
    )
    fields: tuple[tuple[str, str], ...] = open_options(
        _FIELDS,
        "Options of one field: fields.<name>.kind, .type, .start, .min, .max and .length.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DatagenStart:
    """Start options; part of a statement, not stored."""

    positions: str = option(
        "Time of the first row and next row of every split, as JSON. SHOW CREATE ROUTINE "
        "LOAD prints this JSON.",
        key=POSITIONS,
        default="",
    )


def field_options(options: DatagenOptions) -> dict[str, FieldOptions]:
    """Return the options of each field that ``fields.*`` options name."""
    pairs: dict[str, dict[str, str]] = {}
    for key, text in options.fields:
        name, _, attribute = key.rpartition(".")
        if not name:
            raise UserError(
                f'option "{_FIELDS}{key}" must have the form {_FIELDS}<name>.<option>',
                hint=f"For example, write '{_FIELDS}id.kind' = 'sequence'.",
            )
        pairs.setdefault(name, {})[attribute] = text
    return {
        name: parse_options(FieldOptions, given.items(), what=f'field "{name}"')
        for name, given in pairs.items()
    }


def rows_of_split(options: DatagenOptions, split: int) -> int | None:
    """Return the total number of rows of a split; None if it is unlimited."""
    if options.rows_total is None:
        return None
    return _rows_in(options.rows_total, options, split)


def _rows_in(rows: int, options: DatagenOptions, split: int) -> int:
    """Return how many of the first ``rows`` rows of the source are in a split."""
    return max(0, -(-(rows - split) // options.splits))


def rows_due(options: DatagenOptions, split: SplitProgress, *, now: datetime) -> int:
    """Return the number of rows of a split that are due at the time ``now``."""
    total = rows_of_split(options, int(split.split))
    if options.rows_per_second is None:
        return total or 0
    seconds = (now - first_row_at(split)) / timedelta(seconds=1)
    due = _rows_in(int(seconds * options.rows_per_second), options, int(split.split))
    return due if total is None else min(due, total)


def first_row_at(split: SplitProgress) -> datetime:
    """Return the time of the first row, which is the floor of every split."""
    return split.floor.at if isinstance(split.floor, AtTime) else datetime.fromtimestamp(0, UTC)


def next_row(split: SplitProgress, options: DatagenOptions) -> int:
    """Return the number of a split's next row; each split counts from 0."""
    if isinstance(split.position, At):
        return int(split.position.value)
    # ALTER may have set rows_total below the number of rows that were already generated.
    return max(split.records, rows_of_split(options, int(split.split)) or 0)


def position_at(row: int, options: DatagenOptions, split: int) -> Position:
    """Return the position of a row of a split; End after the last row."""
    total = rows_of_split(options, split)
    return End() if total is not None and row >= total else At(value=str(row))


def row_bytes(options: DatagenOptions, columns: tuple[Column, ...]) -> int:
    """Return the estimated size of a row, for the limits of an epoch."""
    named = fields_of(options, columns)
    return sum(named[c.name].length if c.type in _TEXTS else 8 for c in columns)


def check_fields(options: DatagenOptions, columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Check the fields, and return the generated columns.

    The generated columns are the columns of the table, then the other fields with a type.
    """
    from penstock.sql.types import parse_columns

    named = field_options(options)
    if options.rows_per_second is None and options.rows_total is None:
        raise UserError(
            'option "rows_per_second" = unlimited requires "rows_total"',
            hint="Set rows_total to the number of rows, or rows_per_second to a rate.",
        )
    own = {column.name.lower() for column in columns}
    found = list(columns)
    for name, given in named.items():
        if name.lower() in own:
            if given.type:
                raise UserError(
                    f'option "{_FIELDS}{name}.type" is not allowed: "{name}" is a column of '
                    "the table and has the table's type"
                )
            continue
        if not given.type:
            raise UserError(
                f'field "{name}" is not a column of the table and requires the option '
                f'"{_FIELDS}{name}.type"',
                hint=f"Columns of the table: {', '.join(column.name for column in columns)}.",
            )
        parsed = parse_columns(f"`{name}` {given.type}")
        if len(parsed) != 1:
            raise UserError(
                f'option "{_FIELDS}{name}.type" must be one type, not "{given.type}"'
            )
        found += parsed
    fields = fields_of(options, found)
    for column in found:
        _check_field(column, fields[column.name], options)
    return tuple(replace(column, nullable=True, comment="") for column in found)


def fields_of(options: DatagenOptions, columns: Iterable[Column]) -> dict[str, FieldOptions]:
    """Return the field options by column name; columns without options have the defaults."""
    named: dict[str, FieldOptions] = {}
    for name, given in field_options(options).items():
        named.setdefault(name.lower(), given)
    return {column.name: named.get(column.name.lower(), FieldOptions()) for column in columns}


_WHOLE = (Primitive.TINYINT, Primitive.SMALLINT, Primitive.INT, Primitive.BIGINT)
_FRACTIONS = (Primitive.FLOAT, Primitive.DOUBLE)
_TIMES = (Primitive.TIMESTAMP, Primitive.TIMESTAMP_NTZ, Primitive.DATE)
_TEXTS = (Primitive.STRING, Primitive.BINARY)
_RANGES: dict[DataType, tuple[int, int]] = {
    Primitive.TINYINT: (-(2**7), 2**7 - 1),
    Primitive.SMALLINT: (-(2**15), 2**15 - 1),
    Primitive.INT: (-(2**31), 2**31 - 1),
}
# The largest row number, over all splits.
_ROW_MAX = 2**62


def sequence_range(kind: DataType) -> tuple[int, int]:
    """Return the smallest and the largest sequence value of a type."""
    if isinstance(kind, Decimal):
        largest = min(10 ** (kind.precision - kind.scale), 2**63) - 1
        return -largest, largest
    return _RANGES.get(kind, (-(2**63), 2**63 - 1))


def _check_field(column: Column, given: FieldOptions, options: DatagenOptions) -> None:
    kind = column.type
    numeric = kind in _WHOLE or kind in _FRACTIONS or isinstance(kind, Decimal)
    allowed = {
        FieldKind.SEQUENCE: numeric or kind is Primitive.STRING,
        FieldKind.NOW: kind in _TIMES,
        FieldKind.RANDOM: numeric or kind in (*_TIMES, *_TEXTS, Primitive.BOOLEAN),
    }
    if not allowed[given.kind]:
        raise UserError(
            f'field "{column.name}" of type {kind.sql} cannot have the kind {given.kind}',
            hint="Numbers and STRING allow sequence; DATE and TIMESTAMP allow now. DATAGEN "
            "does not support tables with nested columns.",
        )
    if given.kind is FieldKind.SEQUENCE:
        last = given.start + (options.rows_total or 1) - 1
        smallest, largest = sequence_range(kind)
        if not (smallest <= given.start and last <= largest):
            raise UserError(
                f'field "{column.name}" of type {kind.sql} cannot hold a sequence from '
                f"{given.start} to {last}"
            )
    bounds(column, given)


def bounds(column: Column, given: FieldOptions) -> tuple[float, float]:
    """Return the smallest and largest random value of a column; times as seconds."""
    low, high = _default_bounds(column.type)
    low = _number(given.min, column, "min") if given.min else low
    high = _number(given.max, column, "max") if given.max else high
    if low > high:
        raise UserError(
            f'option "{_FIELDS}{column.name}.min" must not be greater than '
            f'"{_FIELDS}{column.name}.max": {given.min or low} > {given.max or high}'
        )
    return low, high


def _is_value(number: float, kind: DataType) -> bool:
    if isinstance(kind, Decimal):
        limit: int = 10 ** (kind.precision - kind.scale)
        return -limit < number < limit
    smallest, largest = _RANGES.get(kind, (-(2**62), 2**62))
    return kind in _TIMES or smallest <= number <= largest


def _default_bounds(kind: DataType) -> tuple[float, float]:
    if isinstance(kind, Decimal):
        return 0, min(10 ** (kind.precision - kind.scale) - 1, 1_000)
    if kind in _FRACTIONS:
        return 0, 1
    if kind in _TIMES:
        return _seconds("2020-01-01"), _seconds("2030-01-01") - 1
    return 0, 100 if kind is Primitive.TINYINT else 1_000


def _number(text: str, column: Column, what: str) -> float:
    option_shown = f'option "{_FIELDS}{column.name}.{what}"'
    try:
        number = _seconds(text) if column.type in _TIMES else float(text)
    except ValueError as error:
        form = "a date such as 2026-01-31" if column.type in _TIMES else "a number"
        raise UserError(f'{option_shown} must be {form}, not "{text}"') from error
    if not _is_value(number, column.type):
        raise UserError(f"{option_shown} must be a value of {column.type.sql}, not {number:g}")
    return number


def _seconds(text: str) -> float:
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _merge(before: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Merge options; only rows_total can change, because loaded rows must not change."""
    for key, text in given.items():
        if key != "rows_total" and before.get(key) != text:
            raise UserError(
                f'option "{key}" of DATAGEN cannot be altered: this would change rows that '
                "were already generated",
                hint="Stop the load and create another one. Only rows_total can be altered.",
            )
    return {**before, **given}


def _start(request: StartRequest) -> Progress | None:
    options: DatagenOptions = request.options
    given = request.given.get(POSITIONS)
    if request.before is not None and given is None:
        return _extended(options, request.progress)
    start = request.clock.now()
    rows: dict[int, int] = {}
    if given is not None:
        start, rows = _read_positions(given, options)
    return tuple(
        SplitProgress(
            split=str(split),
            floor=AtTime(at=start),
            position=position_at(rows.get(split, 0), options, split),
            # The count includes rows before the start position of this load.
            records=rows.get(split, 0),
            identity=str(options.seed),
        )
        for split in range(options.splits)
    )


def _extended(options: DatagenOptions, progress: Progress) -> Progress | None:
    """Return the progress after a change of rows_total; None if no position changes.

    Finished splits continue if rows_total has grown.
    """
    moved = tuple(
        replace(split, position=position_at(_generated(split), options, int(split.split)))
        for split in progress
    )
    return None if moved == progress else moved


def _generated(split: SplitProgress) -> int:
    return int(split.position.value) if isinstance(split.position, At) else split.records


def _read_positions(text: str, options: DatagenOptions) -> tuple[datetime, dict[int, int]]:
    try:
        data = json.loads(text)
        start = datetime.fromisoformat(data.pop("start"))
        rows = {int(split): int(row) for split, row in data.items()}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise UserError(
            f'option "{POSITIONS}" must be JSON with "start" and the next row of every split, '
            f'not "{text}"',
            hint='For example, write {"start": "2026-01-31T10:00:00Z", "0": 1}.',
        ) from error
    named = sorted(rows) == list(range(options.splits))
    bad = any(row < 0 or row * options.splits > _ROW_MAX for row in rows.values())
    if not named or bad or start.tzinfo is None:
        raise UserError(
            f'option "{POSITIONS}" must have the splits 0 to {options.splits - 1} with rows '
            f"from 0 to {_ROW_MAX // options.splits}, and a start with a time zone, not "
            f'"{text}"'
        )
    return start, rows


def _open(services: SourceServices) -> Source:
    from penstock.sources.datagen.source import DatagenSource

    return DatagenSource(services)


def _reader(task: ReadTask) -> TaskReader:
    from penstock.sources.datagen.reader import DatagenReader

    return DatagenReader(task)


def _statuses(request: ShowRequest) -> tuple[SplitStatus, ...]:
    from penstock.sources.registry import source_options

    options: DatagenOptions = source_options(request.state.definition.source)
    return tuple(
        SplitStatus(
            split=split.split,
            state=SplitState.FINISHED if split.finished else SplitState.OPEN,
            remaining=remaining(options, split, now=request.at),
            seen_at=request.at,
        )
        for split in request.state.progress
    )


def remaining(options: DatagenOptions, split: SplitProgress, *, now: datetime) -> Amount:
    """Return how many due rows of a split are not generated yet, and their lag."""
    rows = max(0, rows_due(options, split, now=now) - next_row(split, options))
    rate = options.rows_per_second
    lag = timedelta(0) if rate is None else timedelta(seconds=rows * options.splits / rate)
    return Amount(rows=rows, lag=lag)


def _show(request: ShowRequest) -> SourceView:
    from penstock.sources.registry import source_options

    state = request.state
    options: DatagenOptions = source_options(state.definition.source)
    rows = {split.split: next_row(split, options) for split in state.progress}
    start = min(first_row_at(split) for split in state.progress)
    positions = {"start": start.isoformat(), **rows}
    rate = options.rows_per_second
    return SourceView(
        properties={
            "rows_per_second": "unlimited" if rate is None else str(rate),
            "splits": str(options.splits),
        },
        start=((POSITIONS, json.dumps(positions)),),
    )


def _position(progress: Progress) -> str:
    reading = [split for split in progress if not split.finished]
    if len(reading) == 1:
        return f"split {reading[0].split} {position_text(reading[0].position)}"
    return f"{format_count(len(reading), 'split')}, see SHOW SHARDS" if reading else "end"


def _place_text(place: Place) -> str:
    split, row = place
    return f"split {split}" + ("" if row is None else f", row {row}")


DATAGEN = SourceKind(
    name="DATAGEN",
    functions=("DATAGEN",),
    job_kinds=("ROUTINE_LOAD",),
    split_noun="split",
    waiting_noun="split",
    measures=("rows", "time"),
    options=DatagenOptions,
    start_options=DatagenStart,
    place_columns=(
        Column(name="split", type=Primitive.STRING),
        Column(name="row", type=Primitive.BIGINT),
    ),
    place=lambda options: f"DATAGEN with {format_count(options.splits, 'split')}",
    place_text=_place_text,
    local=lambda options: True,  # noqa: ARG005 - Rows are generated on this machine.
    position=_position,
    merge=_merge,
    define=lambda draft: check_fields(draft.options, draft.table_columns),
    start=_start,
    open=_open,
    reader=_reader,
    show=_show,
    statuses=_statuses,
)
