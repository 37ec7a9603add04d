"""Convert definitions to statements, and clauses of routine loads to INSERTs.

COLUMNS become the items of the SELECT. PRECEDING FILTER becomes the WHERE of an inner SELECT,
and WHERE becomes the WHERE of the outer SELECT. A plain list of columns needs no Spark.
"""

from penstock.errors import Code, InvariantError, UserError
from penstock.model.formats import CSV_KEYS, JSON_KEYS, PayloadFormat
from penstock.model.job import JobDefinition, JobState, LoadColumn, LoadProperties
from penstock.model.job_kinds import RoutineProperties
from penstock.model.options import print_options
from penstock.model.schema import Column, Primitive
from penstock.model.text import quoted_name
from penstock.sources.registry import source_kind, source_options
from penstock.sql.lexer import TokenKind, read_script, tokenize
from penstock.sql.statements import CreateJob, Insert, RoutineBody, SelectItem, SourceCall


def statement_of(state: JobState, *, start: tuple[tuple[str, str], ...]) -> CreateJob:
    """Return the statement that creates the same job; ``start`` are its start options."""
    definition = state.definition
    properties = (*print_options(definition.properties), *definition.metadata)
    body: Insert | RoutineBody
    if definition.load is None:
        body, properties = insert_of(definition), (*properties, *start)
    else:
        options = (*definition.source.options, *start)
        source = SourceCall(function=definition.function, options=options)
        body = RoutineBody(table=definition.table.name, load=definition.load, source=source)
    return CreateJob(
        kind=definition.kind,
        name=definition.name,
        body=body,
        properties=properties,
        comment=definition.comment,
    )


def insert_of(definition: JobDefinition) -> Insert:
    """Return the INSERT of a job; ``items`` is None, because no caller needs it."""
    kind, query = source_kind(definition.source.kind), definition.query
    frozen = kind.freeze(source_options(definition.source), definition.source_columns)
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
        plain=query is None,
        starred=query is not None and query.by_name,
        source_starred=query is not None and query.source_starred,
        names=frozenset(column.name for column in query.view_columns) if query else frozenset(),
    )


TEXT_COLUMN = "value"
_KEYS = {PayloadFormat.CSV: CSV_KEYS, PayloadFormat.JSON: JSON_KEYS}
_FORMAT_KEYS = ("format", "compress_type", *(key for keys in _KEYS.values() for key in keys))


def require_applicable(definition: JobDefinition, *, decodes: bool) -> None:
    """Raise if an option does not apply to the format, or to a source without a format."""
    properties, load = definition.properties, definition.load or LoadProperties()
    if not isinstance(properties, RoutineProperties):
        return
    given = [key for key, _ in print_options(properties)]
    if not decodes:
        foreign = [key for key in _FORMAT_KEYS if key in given]
        if foreign or load.separator is not None:
            what = f'option "{foreign[0]}"' if foreign else "COLUMNS TERMINATED BY"
            raise UserError(
                f"{what} does not apply to {definition.function}, whose rows have columns",
                code=Code.OPTION_ERR,
                hint="Remove it.",
            )
        return
    for format_, keys in _KEYS.items():
        for key in keys:
            if key in given and properties.format is not format_:
                raise _inapplicable(f'option "{key}"', properties.format)
    if load.separator is not None and properties.format is not PayloadFormat.CSV:
        raise _inapplicable("COLUMNS TERMINATED BY", properties.format)


def _inapplicable(what: str, format_: PayloadFormat) -> UserError:
    return UserError(
        f"{what} does not apply to the format {format_}",
        code=Code.OPTION_ERR,
        hint="""The default format is csv; change it with PROPERTIES("format" = "json").""",
    )


def source_columns(
    definition: JobDefinition, *, columns: tuple[Column, ...]
) -> tuple[Column, ...]:
    """Return the columns of the records: the listed columns, or all columns of the table.

    The type of a column is the type of the table's column with this name, or STRING.
    """
    from penstock.sources.formats.payloads import Decoder

    payload, load = definition.payload, definition.load or LoadProperties()
    if payload is None:
        raise InvariantError("records without a format have no columns")
    own = _record_columns(load, format_=payload.format, columns=columns)
    # The decoder raises if options contradict each other.
    Decoder(payload, columns=own, needed=())
    return own


def _record_columns(
    load: LoadProperties, *, format_: PayloadFormat, columns: tuple[Column, ...]
) -> tuple[Column, ...]:
    if format_ is PayloadFormat.TEXT:
        _require_text(load)
        return (Column(name=TEXT_COLUMN, type=Primitive.STRING),)
    type_by_name = {column.name.lower(): column.type for column in columns}
    names = [c.name for c in _plain(load)] if load.columns else [c.name for c in columns]
    if not names:
        raise UserError(
            "COLUMNS must list at least one column of the records",
            code=Code.OPTION_ERR,
            hint="List the columns of the records in order, then the computed columns: "
            "COLUMNS(id, day, at = to_date(day)).",
        )
    return tuple(
        Column(name=name, type=type_by_name.get(name.lower(), Primitive.STRING))
        for name in names
    )


def require_known_columns(load: LoadProperties, columns: tuple[Column, ...]) -> None:
    """Raise if COLUMNS lists a column that the source does not have."""
    known = {column.name.lower() for column in columns}
    for column in _plain(load):
        if column.name.lower() not in known:
            raise UserError(
                f'COLUMNS lists "{column.name}", which is not a column of the source',
                code=Code.OPTION_ERR,
                hint=f"Columns of the source: {', '.join(c.name for c in columns)}.",
            )


def _require_text(load: LoadProperties) -> None:
    for column in _plain(load):
        if column.name.lower() != TEXT_COLUMN:
            raise UserError(
                f'records of the format text have one column, "{TEXT_COLUMN}", '
                f'not "{column.name}"',
                code=Code.OPTION_ERR,
                hint=f"Compute the other columns: COLUMNS({TEXT_COLUMN}, id = …).",
            )


def _plain(load: LoadProperties) -> tuple[LoadColumn, ...]:
    return tuple(column for column in load.columns or () if column.expression is None)


def insert_of_load(
    load: LoadProperties,
    *,
    function: str,
    table: str,
    columns: tuple[Column, ...],
    source: tuple[Column, ...],
    metadata: tuple[Column, ...],
) -> Insert:
    """Return the INSERT that is equivalent to the clauses."""
    call = f"{function}()"
    computed = {c.name.lower(): c.expression for c in load.columns or () if c.expression}
    _require_columns(computed, columns=columns, table=table)
    listed = {column.name.lower(): quoted_name(column.name) for column in source}
    value_by_name = {
        column.name: computed.get(column.name.lower()) or listed.get(column.name.lower())
        for column in columns
    }
    filled = {name: value for name, value in value_by_name.items() if value is not None}
    if not filled:
        raise UserError(
            f'no column of the records has the name of a column of table "{table}"',
            code=Code.TYPE_ERR,
            hint="Name the columns of the records with COLUMNS(…).",
        )
    written = [*computed.values(), load.preceding_filter, load.where]
    names = frozenset().union(*(_names_in(text) for text in written if text))
    names |= {column.name for column in columns if column.name in filled}
    plain = not any(written)
    outer = ", ".join(quoted_name(name) for name in filled)
    prefix, suffix = f"SELECT {outer} FROM ", ""  # noqa: S608 - Spark runs the user's SQL.
    if not plain:
        extra = _unshadowed(source, metadata, filled=filled, names=names) if load.where else []
        # The line break ends a comment at the end of the expression.
        items = [f"{value}\n AS {quoted_name(name)}" for name, value in filled.items()]
        inner = ", ".join([*items, *extra])
        prefix += f"(SELECT {inner} FROM "  # noqa: S608 - As above.
        suffix = f" WHERE {load.preceding_filter}\n)" if load.preceding_filter else ")"
        suffix += f" WHERE {load.where}\n" if load.where else ""
    return Insert(
        table=table,
        columns=tuple(filled),
        select=prefix + call + suffix,
        items=tuple(SelectItem(path=(name,)) for name in filled) if plain else None,
        source=SourceCall(
            function=function, options=(), start=len(prefix), end=len(prefix) + len(call)
        ),
        plain=plain,
        names=names,
        select_at=None,
    )


def _require_columns(
    computed: dict[str, str], *, columns: tuple[Column, ...], table: str
) -> None:
    known = {column.name.lower() for column in columns}
    for name in computed:
        if name not in known:
            raise UserError(
                f'table "{table}" has no column "{name}"',
                code=Code.TYPE_ERR,
                hint=f"Known columns: {', '.join(column.name for column in columns)}.",
            )


def _unshadowed(
    source: tuple[Column, ...],
    metadata: tuple[Column, ...],
    *,
    filled: dict[str, str],
    names: frozenset[str],
) -> list[str]:
    """Return the columns that WHERE can use in addition to the table's columns."""
    taken = {name.lower() for name in filled}
    own = [column for column in source if column.name.lower() not in taken]
    known = taken | {column.name.lower() for column in own}
    own += [c for c in metadata if c.name in names and c.name not in known]
    return [quoted_name(column.name) for column in own]


def _names_in(text: str) -> frozenset[str]:
    """Return the names in an expression, in lower case."""
    tokens = tokenize(read_script(text))
    return frozenset(
        token.text.lower() for token in tokens if token.kind in (TokenKind.WORD, TokenKind.NAME)
    )
