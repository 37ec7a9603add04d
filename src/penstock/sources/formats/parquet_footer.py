"""Read the first byte and the number of rows of each row group from a Parquet footer.

Arrow crashes the process on some damaged footers. So this module parses the footer, which is
in Thrift's compact protocol.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from typing import TypeVar

_T = TypeVar("_T")

_TAIL_BYTES = 8
_LENGTH_BYTES = 4
_DEPTH_MAX = 64
_LONG_LIST = 15
_VARINT_BYTES_MAX = 10

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY = 1, 2, 3, 7, 8
_LIST, _SET, _MAP, _STRUCT, _UUID = 9, 10, 11, 12, 13
_INTEGERS = frozenset({4, 5, 6})
_BYTES_BY_KIND = {_BYTE: 1, _DOUBLE: 8, _UUID: 16}

_ROW_GROUPS = 4
_COLUMNS, _ROWS = 1, 3
_COLUMN_METADATA = 3
_DATA_PAGE_OFFSET, _DICTIONARY_PAGE_OFFSET = 9, 11


class BrokenFooterError(ValueError):
    """A footer that violates the format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """A row group of a file: its first byte and its rows."""

    first_byte: int
    rows: int


def read_row_groups(stream: BufferedIOBase) -> tuple[RowGroup, ...]:
    """Read the row groups of a file; raise ``BrokenFooterError`` for a damaged footer."""
    size_bytes = stream.seek(0, os.SEEK_END)
    stream.seek(max(size_bytes - _TAIL_BYTES, 0))
    footer_bytes = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
    stream.seek(max(size_bytes - _TAIL_BYTES - footer_bytes, 0))
    try:
        return _file(_Thrift(stream.read(footer_bytes)))
    except IndexError as error:
        raise BrokenFooterError("the footer ends too early") from error


def _file(thrift: "_Thrift") -> tuple[RowGroup, ...]:
    groups: list[RowGroup] = []
    for number, kind in thrift.fields():
        if number == _ROW_GROUPS and kind == _LIST:
            groups += thrift.structs(_row_group)
        else:
            thrift.skip(kind)
    return tuple(groups)


def _row_group(thrift: "_Thrift") -> RowGroup:
    offsets: list[int] = []
    rows = 0
    for number, kind in thrift.fields():
        if number == _COLUMNS and kind == _LIST:
            offsets = [offset for chunk in thrift.structs(_column_chunk) for offset in chunk]
        elif number == _ROWS and kind in _INTEGERS:
            rows = thrift.integer()
        else:
            thrift.skip(kind)
    # Some programs write the offset 0 if there is no dictionary.
    first_byte = min((offset for offset in offsets if offset > 0), default=0)
    return RowGroup(first_byte=first_byte, rows=rows)


def _column_chunk(thrift: "_Thrift") -> list[int]:
    offsets: list[int] = []
    for number, kind in thrift.fields():
        if number == _COLUMN_METADATA and kind == _STRUCT:
            offsets = _page_offsets(thrift)
        else:
            thrift.skip(kind)
    return offsets


def _page_offsets(thrift: "_Thrift") -> list[int]:
    offsets = []
    for number, kind in thrift.fields():
        if number in (_DATA_PAGE_OFFSET, _DICTIONARY_PAGE_OFFSET) and kind in _INTEGERS:
            offsets.append(thrift.integer())
        else:
            thrift.skip(kind)
    return offsets


class _Thrift:
    """A position in data of Thrift's compact protocol; raises ``IndexError`` at the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield the number and kind of each field of a struct; the caller reads the value."""
        number = 0
        while head := self._octet():
            step, kind = head >> 4, head & 0x0F
            number = number + step if step else self.integer()
            yield number, kind

    def structs(self, read: "Callable[[_Thrift], _T]") -> list[_T]:
        """Read a list of structs."""
        size, kind = self._list_head()
        if kind != _STRUCT:
            raise BrokenFooterError(f"a list must hold structs, found the kind {kind}")
        return [read(self) for _ in range(size)]

    def integer(self) -> int:
        """Read a signed integer."""
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def skip(self, kind: int, depth: int = 0) -> None:
        """Skip the value of a field."""
        if depth > _DEPTH_MAX:
            raise BrokenFooterError(f"the footer is nested deeper than {_DEPTH_MAX}")
        if kind in _INTEGERS:
            self._varint()
        elif kind == _BINARY:
            self._skip_bytes(self._varint())
        elif kind in _BYTES_BY_KIND:
            self._skip_bytes(_BYTES_BY_KIND[kind])
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif kind not in (_TRUE, _FALSE):
            self._skip_collection(kind, depth)

    def _skip_collection(self, kind: int, depth: int) -> None:
        if kind in (_LIST, _SET):
            size, inner = self._list_head()
            kinds = [inner]
        elif kind == _MAP:
            size = self._varint()
            head = self._octet() if size else 0
            kinds = [head >> 4, head & 0x0F]
        else:
            raise BrokenFooterError(f"the footer has a field of the unknown kind {kind}")
        for _ in range(size):
            for inner in kinds:
                # Inside a collection, a boolean is stored as one byte.
                self.skip(_BYTE if inner in (_TRUE, _FALSE) else inner, depth + 1)

    def _list_head(self) -> tuple[int, int]:
        head = self._octet()
        size = head >> 4
        return (self._varint() if size == _LONG_LIST else size), head & 0x0F

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
            octet = self._octet()
            value |= (octet & 0x7F) << shift
            if octet < 0x80:  # noqa: PLR2004 - The highest bit is set if more bytes follow.
                return value
        raise BrokenFooterError(f"a number has more than {_VARINT_BYTES_MAX} bytes")

    def _octet(self) -> int:
        octet = self._data[self._at]
        self._at += 1
        return octet

    def _skip_bytes(self, count: int) -> None:
        self._at += count
        if self._at > len(self._data):
            raise IndexError
