"""Convert definitions to statements and clauses to INSERTs.

COLUMNS are the items of the SELECT, PRECEDING FILTER is the WHERE of an inner one, WHERE its
own. A plain list of columns needs no Spark, as with files.
"""

import json
from dataclasses import replace

from penstock.errors import Code, UserError
from penstock.model.formats import PayloadFormat
from penstock.model.job import JobDefinition, JobState, LoadColumn, LoadProperties
from penstock.model.options import print_options
from penstock.model.schema import Column, Primitive, columns_sql, quoted_name
from penstock.model.split import After, Position
from penstock.sources.kinesis.start import POSITIONS, write_positions
from penstock.sql.lexer import TokenKind, read_script, tokenize
from penstock.sql.statements import CreateJob, CreateRoutineLoad, Insert, SelectItem, SourceCall
from penstock.storage.uris import Scheme, Uri, parse_uri

OFFSET = "offset"


def statement_of(definition: JobDefinition, *, floor: Position) -> CreateJob:
    """Answer the statement that creates the same job, its schema and floor included."""
    properties = (*print_options(definition.properties), *definition.metadata)
    if offset := write_offset(floor):
        properties = (*properties, (OFFSET, offset))
    return CreateJob(
        name=definition.name,
        insert=insert_of(definition),
        properties=properties,
        comment=definition.comment,
    )


def insert_of(definition: JobDefinition) -> Insert:
    """Answer the INSERT of a job; ``items`` is left out, nothing that prints needs it."""
    frozen = replace(definition.files, schema=columns_sql(definition.source_columns))
    source = SourceCall(
        function=definition.function,
        options=print_options(frozen),
        start=definition.select_source_start,
        end=definition.select_source_end,
    )
    return Insert(
        table=definition.table.name,
        columns=definition.columns,
        select=definition.select,
        items=None,
        source=source,
        plain=definition.query is None,
        starred=definition.query is not None and definition.query.by_name,
        source_starred=definition.query is not None and definition.query.source_starred,
        names=_view_names(definition),
    )


def _view_names(definition: JobDefinition) -> frozenset[str]:
    """Answer the columns that the SELECT was found to name."""
    query = definition.query
    return frozenset(column.name for column in query.view_columns) if query else frozenset()


def read_offset(text: str, *, uri: str) -> Position:
    """Read ``{"fileName": "/in/a.json"}``: reading begins behind that file."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise _bad_offset(text) from error
    name = data.get("fileName") if isinstance(data, dict) else None
    if not isinstance(name, str) or not name.strip("/") or len(data) != 1 or _odd(name):
        raise _bad_offset(text)
    return After(value=_key(name, place=parse_uri(uri)))


def _key(name: str, *, place: Uri) -> str:
    """Answer the key that a name means; a whole URI must lead to the job's own place."""
    if "://" in name:
        given = parse_uri(name)
        if (given.scheme, given.bucket) != (place.scheme, place.bucket):
            raise UserError(
                f'option "{OFFSET}" must name a file of {replace(place, key="")}, not "{name}"',
                code=Code.OPTION_ERR,
                hint="Write the whole uri of the file, or only its key.",
            )
        return given.key
    key = name.lstrip("/")
    return f"/{key}" if place.scheme is Scheme.FILE else key


def _odd(name: str) -> bool:
    """Tell whether a name holds half a surrogate pair or NUL, which no file's name does."""
    return name != name.encode("utf-8", "ignore").decode() or "\0" in name


def write_offset(position: Position) -> str:
    """Write a position as the offset that reads back to it; empty for the very beginning."""
    if not isinstance(position, After):
        return ""
    return json.dumps({"fileName": position.value}, ensure_ascii=False)


def _bad_offset(text: str) -> UserError:
    return UserError(
        f'option "{OFFSET}" must be JSON with the key fileName, not "{text}"',
        code=Code.OPTION_ERR,
        hint="""Write '{"fileName": "/data/in/2026-11-15.json"}'; loading begins behind it.""",
    )


FUNCTION = "KINESIS"
TEXT_COLUMN = "value"
_CALL = f"{FUNCTION}()"


def source_columns(
    load: LoadProperties, *, format_: PayloadFormat, columns: tuple[Column, ...]
) -> tuple[Column, ...]:
    """Answer the columns of the records: those listed, or those of the table.

    One that is called like a column of the table has its type, every other is a text.
    """
    if format_ is PayloadFormat.TEXT:
        _require_text(load)
        return (Column(name=TEXT_COLUMN, type=Primitive.STRING),)
    type_by_name = {column.name.lower(): column.type for column in columns}
    names = [c.name for c in _plain(load)] if load.columns else [c.name for c in columns]
    if not names:
        raise UserError(
            "COLUMNS lists no column of the records",
            code=Code.OPTION_ERR,
            hint="List the columns in their order, then those that are computed: "
            "COLUMNS(id, day, at = to_date(day)).",
        )
    return tuple(
        Column(name=name, type=type_by_name.get(name.lower(), Primitive.STRING))
        for name in names
    )


def _require_text(load: LoadProperties) -> None:
    for column in _plain(load):
        if column.name.lower() != TEXT_COLUMN:
            raise UserError(
                f'records of the format text have one column "{TEXT_COLUMN}", '
                f'not "{column.name}"',
                code=Code.OPTION_ERR,
                hint=f"Write COLUMNS({TEXT_COLUMN}, id = …) and compute the others.",
            )


def _plain(load: LoadProperties) -> tuple[LoadColumn, ...]:
    return tuple(column for column in load.columns or () if column.expression is None)


def insert_of_load(
    load: LoadProperties,
    *,
    table: str,
    columns: tuple[Column, ...],
    source: tuple[Column, ...],
    beside: tuple[Column, ...],
) -> Insert:
    """Write the INSERT that does what the clauses say."""
    made = {c.name.lower(): c.expression for c in load.columns or () if c.expression}
    _require_columns(made, columns=columns, table=table)
    given = {column.name.lower(): quoted_name(column.name) for column in source}
    value_by_name = {
        column.name: made.get(column.name.lower()) or given.get(column.name.lower())
        for column in columns
    }
    filled = {name: value for name, value in value_by_name.items() if value is not None}
    if not filled:
        raise UserError(
            f'no column of the records is called like one of table "{table}"',
            code=Code.TYPE_ERR,
            hint="Name the columns of the records with COLUMNS(…).",
        )
    written = [*made.values(), load.preceding_filter, load.where]
    names = frozenset().union(*(_names_in(text) for text in written if text))
    names |= {column.name for column in columns if column.name in filled}
    plain = not any(written)
    outer = ", ".join(quoted_name(name) for name in filled)
    before, behind = f"SELECT {outer} FROM ", ""  # noqa: S608 - Spark runs it, as asked.
    if not plain:
        kept = _unshadowed(source, beside, filled=filled, names=names) if load.where else []
        # A line end ends a comment that an expression may end with.
        items = [f"{value}\n AS {quoted_name(name)}" for name, value in filled.items()]
        inner = ", ".join([*items, *kept])
        before += f"(SELECT {inner} FROM "  # noqa: S608 - As above.
        behind = f" WHERE {load.preceding_filter}\n)" if load.preceding_filter else ")"
        behind += f" WHERE {load.where}\n" if load.where else ""
    return Insert(
        table=table,
        columns=tuple(filled),
        select=before + _CALL + behind,
        items=tuple(SelectItem(path=(name,)) for name in filled) if plain else None,
        source=SourceCall(
            function=FUNCTION, options=(), start=len(before), end=len(before) + len(_CALL)
        ),
        plain=plain,
        names=names,
        select_at=None,
    )


def _require_columns(made: dict[str, str], *, columns: tuple[Column, ...], table: str) -> None:
    known = {column.name.lower() for column in columns}
    for name in made:
        if name not in known:
            raise UserError(
                f'table "{table}" has no column "{name}"',
                code=Code.TYPE_ERR,
                hint=f"Known columns: {', '.join(column.name for column in columns)}.",
            )


def _unshadowed(
    source: tuple[Column, ...],
    beside: tuple[Column, ...],
    *,
    filled: dict[str, str],
    names: frozenset[str],
) -> list[str]:
    """Answer columns that WHERE may look at beside those of the table."""
    taken = {name.lower() for name in filled}
    own = [column for column in source if column.name.lower() not in taken]
    known = taken | {column.name.lower() for column in own}
    own += [c for c in beside if c.name in names and c.name not in known]
    return [quoted_name(column.name) for column in own]


def _names_in(text: str) -> frozenset[str]:
    """Answer the names that an expression mentions, in lower case."""
    tokens = tokenize(read_script(text))
    return frozenset(
        token.text.lower() for token in tokens if token.kind in (TokenKind.WORD, TokenKind.NAME)
    )


def statement_of_load(state: JobState) -> CreateRoutineLoad:
    """Answer the statement that creates the same load, from where this one stands."""
    definition = state.definition
    return CreateRoutineLoad(
        name=definition.name,
        table=definition.table.name,
        load=definition.load or LoadProperties(),
        properties=print_options(definition.properties),
        source=definition.function,
        options=(
            *print_options(definition.source),
            (POSITIONS, write_positions(state.progress)),
        ),
        comment=definition.comment,
    )
