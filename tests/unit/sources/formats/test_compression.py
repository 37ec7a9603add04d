"""Compressed content is read in full, or reported as unreadable."""

import bz2
import gzip
import io
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import Code, InvariantError
from penstock.sources.files.kind import CompressType
from penstock.sources.formats.blocks import UnreadableFileError
from penstock.sources.formats.compression import compression_of, decompress
from penstock.sources.formats.lines import count_lines_before
from tests.error_values import assert_names, raises

IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
SKIPPABLE_FRAME = b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip"
SNAPPY = pa.Codec("snappy")


def packed_by_arrow(kind: Any) -> Callable[[bytes], bytes]:
    return lambda content: pa.Codec(kind).compress(content, asbytes=True)


def snappy_hadoop(content: bytes) -> bytes:
    return b"".join(hadoop_block(part) for part in split_bytes(content, 1 << 18) or [b""])


def hadoop_block(content: bytes) -> bytes:
    packed = [SNAPPY.compress(part, asbytes=True) for part in split_bytes(content, 100_000)]
    chunks = [len(part).to_bytes(4, "big") + part for part in packed]
    return len(content).to_bytes(4, "big") + b"".join(chunks)


def split_bytes(content: bytes, size_bytes: int) -> list[bytes]:
    return [content[at : at + size_bytes] for at in range(0, len(content), size_bytes)]


Pack = Callable[[bytes], bytes]
PACKS: dict[str, tuple[CompressType, Pack]] = {
    "gzip": (CompressType.GZ, gzip.compress),
    "bzip2": (CompressType.BZ2, bz2.compress),
    "zstd": (CompressType.ZSTD, packed_by_arrow("zstd")),
    "lz4": (CompressType.LZ4, packed_by_arrow("lz4")),
    "snappy": (CompressType.SNAPPY, snappy_hadoop),
}
every_kind = pytest.mark.parametrize(("kind", "pack"), PACKS.values(), ids=PACKS.keys())
COMPRESSIONS = [kind for kind in CompressType if kind not in ("auto", "plain")]


def some_megabytes() -> bytes:
    dice = random.Random(7)  # noqa: S311 - Nothing here is secret.
    lines = (b'{"id":%d,"note":"%x"}\n' % (n, dice.getrandbits(90)) for n in range(50_000))
    return b"".join(lines) + dice.randbytes(500_000)


LARGE = some_megabytes()
SMALL = LARGE[:300] + LARGE[-50:]


def unpacked(packed: bytes, kind: CompressType) -> bytes:
    return decompress(io.BytesIO(packed), kind).read()


def failure(packed: bytes, kind: CompressType) -> UnreadableFileError:
    with pytest.raises(UnreadableFileError) as caught:
        unpacked(packed, kind)
    return caught.value


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("a.gz", CompressType.GZ),
        ("a.json.GZIP", CompressType.GZ),
        ("folder.gz/a.zst", CompressType.ZSTD),
        ("a.zstd", CompressType.ZSTD),
        ("a.Bz2", CompressType.BZ2),
        ("a.lz4", CompressType.LZ4),
        ("a.snappy", CompressType.SNAPPY),
        ("a.json", CompressType.PLAIN),
        ("gz", CompressType.PLAIN),
        ("folder.gz/a", CompressType.PLAIN),
        ("a.gz.json", CompressType.PLAIN),
    ],
)
def test_the_suffix_determines_the_compression(key: str, kind: CompressType) -> None:
    assert compression_of(CompressType.AUTO, key) == kind


@pytest.mark.parametrize("kind", [CompressType.PLAIN, *COMPRESSIONS])
def test_a_chosen_compression_overrides_the_suffix(kind: CompressType) -> None:
    assert compression_of(kind, "a.gz") == kind


def test_a_stream_without_compression_is_read_unchanged() -> None:
    stream = io.BytesIO(b"x")

    assert decompress(stream, CompressType.PLAIN) is stream


def test_a_stream_cannot_be_decompressed_with_auto() -> None:
    with raises(InvariantError, Code.INTERNAL_ERR, '"auto"'):
        decompress(io.BytesIO(b"x"), CompressType.AUTO)


@every_kind
def test_content_of_several_megabytes_is_read_unchanged(kind: CompressType, pack: Pack) -> None:
    assert unpacked(pack(LARGE), kind) == LARGE


@every_kind
def test_content_is_read_into_buffers_of_any_size(kind: CompressType, pack: Pack) -> None:
    stream = decompress(io.BytesIO(pack(LARGE)), kind)
    memory = bytearray(300_001)

    parts = []
    while count := stream.readinto(memory):
        parts.append(bytes(memory[:count]))

    assert b"".join(parts) == LARGE


@every_kind
def test_a_stream_with_short_reads_is_read_completely(kind: CompressType, pack: Pack) -> None:
    class Trickle(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(7, size) if size and size > 0 else 7)

    assert decompress(Trickle(pack(SMALL)), kind).read() == SMALL


@every_kind
def test_content_can_seek_forward_and_backward(kind: CompressType, pack: Pack) -> None:
    stream = decompress(io.BytesIO(pack(LARGE)), kind)

    read_at = {}
    for offset in (1_000_000, 10, 2_000_000, 2_000_005, 0, len(LARGE) - 3, len(LARGE) + 5):
        stream.seek(offset)
        read_at[offset] = stream.read(20)

    assert read_at == {offset: LARGE[offset : offset + 20] for offset in read_at}
    assert count_lines_before(stream, 1_000_000) == LARGE[:1_000_000].count(b"\n")


@every_kind
def test_content_cannot_seek_from_its_end(kind: CompressType, pack: Pack) -> None:
    stream = decompress(io.BytesIO(pack(SMALL)), kind)

    with pytest.raises(io.UnsupportedOperation) as caught:
        stream.seek(0, io.SEEK_END)

    assert_names(str(caught.value), "seek")


@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_an_empty_file_has_no_content(kind: CompressType) -> None:
    assert unpacked(b"", kind) == b""


@every_kind
def test_compressed_empty_content_is_read(kind: CompressType, pack: Pack) -> None:
    assert unpacked(pack(b""), kind) == b""


@every_kind
def test_consecutive_members_are_read_as_one_content(kind: CompressType, pack: Pack) -> None:
    assert unpacked(pack(SMALL) + pack(b"") + pack(LARGE), kind) == SMALL + LARGE


@every_kind
def test_a_stream_truncated_at_any_byte_is_unreadable(kind: CompressType, pack: Pack) -> None:
    packed = pack(SMALL)

    silent = {size for size in range(1, len(packed)) if not fails(packed[:size], kind)}

    assert silent == set()


@every_kind
def test_a_second_member_truncated_at_any_byte_is_unreadable(
    kind: CompressType, pack: Pack
) -> None:
    packed = pack(SMALL)

    silent = {size for size in range(1, len(packed)) if not fails(packed + packed[:size], kind)}

    assert silent == set()


def fails(packed: bytes, kind: CompressType) -> bool:
    try:
        unpacked(packed, kind)
    except UnreadableFileError:
        return True
    return False


@every_kind
def test_the_error_of_a_truncated_stream_names_the_byte(kind: CompressType, pack: Pack) -> None:
    packed = pack(LARGE)

    error = failure(packed[: len(packed) * 2 // 3], kind)

    assert_names(error.message, "byte")
    assert int(error.message.split()[-4]) > 1_000_000
    assert error.hint


def test_the_message_names_the_compression_and_the_byte() -> None:
    error = failure(gzip.compress(b"")[:5], CompressType.GZ)

    assert_names(error.message, "gzip", "byte 0")


@pytest.mark.parametrize("kind", COMPRESSIONS)
@pytest.mark.parametrize(
    "text", [b'{"id":1}\n' * 100, b"id\tname\n", b"\xff\x06\x00\x00what is it", b"\0" * 100]
)
def test_plain_text_with_a_wrong_suffix_is_refused_with_a_hint(
    kind: CompressType, text: bytes
) -> None:
    error = failure(text, kind)

    assert_names(error.message, "byte 0")
    assert_names(error.hint, '"compress_type"', '"plain"')


@pytest.mark.parametrize("kind", COMPRESSIONS)
@pytest.mark.parametrize("other", PACKS)
def test_a_stream_of_another_compression_is_unreadable(kind: CompressType, other: str) -> None:
    other_kind, pack = PACKS[other]

    unreadable = fails(pack(SMALL), kind)

    assert unreadable == (kind != other_kind)


@every_kind
def test_garbage_after_the_stream_is_unreadable(kind: CompressType, pack: Pack) -> None:
    assert fails(pack(SMALL) + b"garbage and more of it", kind)


@pytest.mark.parametrize("name", ["gzip", "bzip2"])
def test_every_flipped_bit_is_detected_by_checksums(name: str) -> None:
    kind, pack = PACKS[name]
    packed = bytearray(pack(SMALL))
    # The checksum of gzip does not cover the header: time, flags, system.
    start = 10 if name == "gzip" else 0

    unnoticed = []
    for at in range(start, len(packed)):
        packed[at] ^= 0x10
        if not fails(bytes(packed), kind) and unpacked(bytes(packed), kind) != SMALL:
            unnoticed.append(at)
        packed[at] ^= 0x10

    assert unnoticed == []


@every_kind
def test_a_read_after_an_error_raises_it_again(kind: CompressType, pack: Pack) -> None:
    stream = decompress(io.BytesIO(pack(SMALL)[:-3]), kind)
    with pytest.raises(UnreadableFileError):
        stream.read()

    with pytest.raises(UnreadableFileError):
        stream.read(1 << 20)


@every_kind
def test_an_error_of_the_store_is_not_reported_as_a_broken_file(
    kind: CompressType, pack: Pack
) -> None:
    class Unplugged(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > 200:
                raise OSError(5, "Input/output error")
            return super().read(min(100, size or 100))

    with pytest.raises(OSError, match="Input/output error"):
        decompress(Unplugged(pack(SMALL)), kind).read()


@every_kind
def test_closing_the_content_closes_the_stream(kind: CompressType, pack: Pack) -> None:
    stream = io.BytesIO(pack(SMALL))

    with decompress(stream, kind) as content:
        content.read()
        open_meanwhile = not stream.closed

    assert open_meanwhile
    assert stream.closed


@pytest.mark.parametrize("padding_bytes", [1, 511, 200_000])
def test_zeros_after_gzip_members_are_skipped(padding_bytes: int) -> None:
    packed = gzip.compress(SMALL) + bytes(padding_bytes)

    assert unpacked(packed + packed, CompressType.GZ) == SMALL * 2


def test_a_gzip_member_with_a_name_and_a_comment_is_read() -> None:
    plain = gzip.compress(SMALL)
    named = plain[:3] + bytes([0x18]) + plain[4:10] + b"a name\0a comment\0" + plain[10:]

    assert unpacked(named, CompressType.GZ) == SMALL


@pytest.mark.parametrize("kind", [CompressType.ZSTD, CompressType.LZ4])
def test_skippable_frames_are_skipped(kind: CompressType) -> None:
    packed = packed_by_arrow(kind.value)(SMALL)

    content = unpacked(SKIPPABLE_FRAME + packed + SKIPPABLE_FRAME + packed, kind)

    assert content == SMALL * 2


def test_a_decompression_bomb_is_read_in_bounded_memory() -> None:
    packed = gzip.compress(bytes(40 << 20), compresslevel=1)
    pa_before = pa.total_allocated_bytes()

    stream = decompress(io.BytesIO(packed), CompressType.GZ)
    sizes = [len(stream.read(1 << 20)) for _ in range(40)]

    assert set(sizes) == {1 << 20}
    assert stream.read(1) == b""
    assert pa.total_allocated_bytes() == pa_before


def test_a_chunk_length_that_exceeds_its_block_is_refused() -> None:
    error = failure(b"\0\0\0\5" + b"\x7f\xff\xff\xff" + b"x" * 100, CompressType.SNAPPY)

    assert_names(error.detail, "chunk", "2147483647")


@pytest.mark.parametrize(
    "packed",
    [
        IDENTIFIER,
        IDENTIFIER + b"\x01\x06\x00\x00\0\0\0\0ab",
        SNAPPY.compress(SMALL, asbytes=True),
        SNAPPY.compress(LARGE, asbytes=True),
    ],
    ids=["framed, empty", "framed", "raw", "raw, large"],
)
def test_framed_and_raw_snappy_is_refused_with_the_supported_framing(packed: bytes) -> None:
    error = failure(packed, CompressType.SNAPPY)

    assert_names(error.detail, "SNAPPYBLOCK", "16777215")


@pytest.mark.parametrize(
    ("chunk", "named"),
    [
        (b"\0\0\0\5" + b"\xff" * 5, ("chunk", "length")),
        (
            b"\0\0\0\2" + b"\x09\x00",
            ("9", "8"),
        ),
    ],
)
def test_a_chunk_longer_than_its_block_is_refused(chunk: bytes, named: tuple[str, ...]) -> None:
    error = failure(b"\0\0\0\x08" + chunk, CompressType.SNAPPY)

    assert_names(error.detail, *named)
