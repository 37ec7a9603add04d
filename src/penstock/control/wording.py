"""A definition back into the statement that makes it, and offsets to and from text."""

import json
from dataclasses import replace

from penstock.errors import Code, UserError
from penstock.model.job import JobDefinition
from penstock.model.options import print_options
from penstock.model.position import After, Position
from penstock.model.schema import columns_sql
from penstock.sql.statements import CreateJob, Insert, SourceCall
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
