"""Convert definitions to statements and clauses to INSERTs.

COLUMNS are the items of the SELECT, PRECEDING FILTER is the WHERE of an inner one, WHERE its
own. A plain list of columns needs no Spark, as with files.
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
    """Return the statement that creates the same job; ``start`` is where it starts."""
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
    """Return the INSERT of a job without ``items``, which no caller needs."""
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


def require_meaning(definition: JobDefinition, *, decodes: bool) -> None:
    """Refuse options that mean nothing in the format, or to a source without a format."""
    properties, load = definition.properties, definition.load or LoadProperties()
    if not isinstance(properties, RoutineProperties):
        return
    given = [key for key, _ in print_options(properties)]
    if not decodes:
        foreign = [key for key in _FORMAT_KEYS if key in given]
        if foreign or load.separator is not None:
            what = f'option "{foreign[0]}"' if foreign else "COLUMNS TERMINATED BY"
            raise UserError(
                f"{what} has no meaning for {definition.function}, whose rows have columns",
                code=Code.OPTION_ERR,
                hint="Leave it out.",
            )
        return
    for format_, keys in _KEYS.items():
        for key in keys:
            if key in given and properties.format is not format_:
                raise _meaningless(f'option "{key}"', properties.format)
    if load.separator is not None and properties.format is not PayloadFormat.CSV:
        raise _meaningless("COLUMNS TERMINATED BY", properties.format)


def _meaningless(what: str, format_: PayloadFormat) -> UserError:
    return UserError(
        f"{what} has no meaning for the format {format_}",
        code=Code.OPTION_ERR,
        hint="""The format is csv unless PROPERTIES("format" = "json") says otherwise.""",
    )


def source_columns(
    definition: JobDefinition, *, columns: tuple[Column, ...]
) -> tuple[Column, ...]:
    """Return the columns of the records: those listed, or those of the table.

    A column named like one of the table has its type, every other is a text.
    """
    from penstock.sources.formats.payloads import Decoder

    payload, load = definition.payload, definition.load or LoadProperties()
    if payload is None:
        raise InvariantError("records without a format have no columns")
    own = _record_columns(load, format_=payload.format, columns=columns)
    # The decoder refuses options that contradict each other.
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
            "COLUMNS lists no column of the records",
            code=Code.OPTION_ERR,
            hint="List the columns in their order, then those that are computed: "
            "COLUMNS(id, day, at = to_date(day)).",
        )
    return tuple(
        Column(name=name, type=type_by_name.get(name.lower(), Primitive.STRING))
        for name in names
    )


def require_known_columns(load: LoadProperties, columns: tuple[Column, ...]) -> None:
    """Refuse a listed column that a source with columns of its own does not have."""
    known = {column.name.lower() for column in columns}
    for column in _plain(load):
        if column.name.lower() not in known:
            raise UserError(
                f'COLUMNS names "{column.name}", which is no column of the source',
                code=Code.OPTION_ERR,
                hint=f"Columns of the source: {', '.join(c.name for c in columns)}.",
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
    function: str,
    table: str,
    columns: tuple[Column, ...],
    source: tuple[Column, ...],
    beside: tuple[Column, ...],
) -> Insert:
    """Write the INSERT that does what the clauses say."""
    call = f"{function}()"
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
        select=before + call + behind,
        items=tuple(SelectItem(path=(name,)) for name in filled) if plain else None,
        source=SourceCall(
            function=function, options=(), start=len(before), end=len(before) + len(call)
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
