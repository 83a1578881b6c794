"""Layers taken apart as they arrive: every form of archive, any pieces, nothing believed."""

import contextlib
import gzip
import io
import random
import sys
import tarfile
import types
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from image_parts import FOLDER, elf, hard_link, layer, link, tar

from polyarch.oci.image import layers
from polyarch.oci.image.layers import HEAD_SIZE, ArchiveReader, Member, Unpacker, UnreadableLayer, clean_path

MEMBERS = {
    "usr/": FOLDER,
    "usr/bin/app": elf("arm64", 70_000),
    "bin": link("usr/bin"),
    "usr/bin/other": hard_link("usr/bin/app"),
    "etc/small": b"x",
    "etc/empty": b"",
    "etc/block": b"y" * 512,
}


def read(data, size=1 << 20):
    reader = ArchiveReader()
    return [member for at in range(0, len(data), size) for member in reader.feed(data[at : at + size])]


def unpack(data, size=1 << 16):
    unpacker = Unpacker()
    return b"".join(piece for at in range(0, len(data), size) for piece in unpacker.feed(data[at : at + size]))


EXPECTED = [
    Member("usr", "other"),
    Member("usr/bin/app", "file", executable=True, head=elf("arm64")[:HEAD_SIZE]),
    Member("bin", "link", target="usr/bin"),
    Member("usr/bin/other", "link", target="/usr/bin/app"),
    Member("etc/small", "file", executable=True, head=b"x"),
    Member("etc/empty", "file", executable=True),
    Member("etc/block", "file", executable=True, head=b"y" * HEAD_SIZE),
]


@pytest.mark.req("RG-049")
@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("size", [1, 7, 511, 512, 513, 1 << 20])
def test_members_are_read_in_any_form_and_any_pieces(format, size):
    assert read(tar(MEMBERS, format=format), size) == EXPECTED


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_and_targets_come_from_extension_headers(format):
    deep = "/".join(["folder"] * 60)
    members = {f"{deep}/app": b"#!/bin/sh\n", "short": link(f"/{deep}/app"), "after": b"z"}
    paths = [(member.path, member.target) for member in read(tar(members, format=format), 100)]
    assert paths == [(f"{deep}/app", ""), ("short", f"/{deep}/app"), ("after", "")]


def test_the_content_of_files_that_cannot_run_is_not_kept():
    [member] = read(tar({"etc/passwd": b"root:x:0:0"}, mode=0o644))
    assert (member.executable, member.head) == (False, b"")


def test_a_size_from_a_pax_record_counts():
    """Files of 8 GiB and more have their size there; what follows them must still be found."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as written:
        info = tarfile.TarInfo("big")
        info.size, info.mode = 1000, 0o755
        info.pax_headers = {"size": "1000"}
        written.addfile(info, io.BytesIO(b"a" * 1000))
        written.addfile(tarfile.TarInfo("next"))
    assert [member.path for member in read(out.getvalue())] == ["big", "next"]


def test_what_a_link_claims_of_its_size_is_not_skipped():
    body = bytearray(tar({"a": link("b"), "c": b"d"}, format=tarfile.USTAR_FORMAT))
    body[124:135] = b"00000010000"
    body[148:156] = b" " * 8
    body[148:156] = f"{sum(body[:512]):06o}\0 ".encode()
    assert [member.path for member in read(bytes(body))] == ["a", "c"]


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("./usr/bin/app", "usr/bin/app"),
        ("/abs", "abs"),
        ("../../etc/x", "etc/x"),
        ("a//b/", "a/b"),
        ("", ""),
        ("/", ""),
    ],
)
def test_paths_are_from_the_root_and_never_above_it(given, path):
    assert clean_path(given) == path


def test_reading_ends_with_the_archive():
    """What follows the two zero blocks is not looked at, whatever it is."""
    assert read(tar({"a": b"1"}) + b"\xff" * 5000)[-1].path == "a"


@pytest.mark.req("RG-049")
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"this is no archive" * 100, "no tar archive"),
        (layer({"a": b"1"})[:20] + b"\xff" * 600, "not gzip throughout"),
        (b"\x28\xb5\x2f\xfd" + bytes(100), "zstd"),
    ],
)
def test_what_is_no_layer_is_unreadable(data, why):
    """Told as `binary-unchecked`, never an exception of another kind."""
    with pytest.raises(UnreadableLayer, match=why):
        read(unpack(data))


def test_an_endless_extension_header_is_refused():
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 30
    with pytest.raises(UnreadableLayer, match="extension header of 1073741824 bytes"):
        read(header.tobuf(tarfile.GNU_FORMAT))


def test_old_sparse_files_are_said_to_be_unreadable():
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.GNUTYPE_SPARSE, 100
    with pytest.raises(UnreadableLayer, match="sparse"):
        read(header.tobuf(tarfile.GNU_FORMAT))


def test_a_sparse_file_of_the_new_form_has_no_head():
    """Its content begins with a map, which must not be taken for the program's first bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as written:
        info = tarfile.TarInfo("GNUSparseFile.0/app")
        info.size, info.mode = 512, 0o755
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "usr/bin/app"}
        written.addfile(info, io.BytesIO(elf("amd64", 512)))
    assert read(out.getvalue()) == [Member("usr/bin/app", "file", executable=True)]


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_a_layer_of_several_compressed_members_is_one_archive(pieces):
    """eStargz compresses every file by itself; padding between the members is allowed."""
    body = tar(MEMBERS)
    step = len(body) // pieces + 1
    packed = b"\0\0\0".join(gzip.compress(body[at : at + step]) for at in range(0, len(body), step))
    assert unpack(packed, 1000) == body
    assert unpack(packed, 1) == body


def test_an_uncompressed_layer_is_read_as_it_is():
    assert read(unpack(tar(MEMBERS), 3)) == EXPECTED


def test_pieces_stay_small_however_much_a_layer_unpacks_to():
    """A hundred MiB of zeros take 100 KiB in a layer: they never are in memory at once."""
    packed = gzip.compress(bytes(100 * layers.PIECE), 9)
    sizes = [len(piece) for piece in Unpacker().feed(packed)]
    assert sum(sizes) == 100 * layers.PIECE
    assert max(sizes) <= layers.PIECE


@pytest.mark.req("RG-049")
def test_zstd_is_unpacked_where_python_can(monkeypatch):
    """Python 3.14 has it in the standard library. Played here by zlib behind zstd's interface."""

    class ZstdDecompressor:
        def __init__(self):
            self._inner, self._kept = zlib.decompressobj(), b""

        eof = property(lambda self: self._inner.eof)
        unused_data = property(lambda self: self._inner.unused_data)
        needs_input = property(lambda self: not self._kept)

        def decompress(self, data, max_length=-1):
            data = self._kept + data.removeprefix(layers.ZSTD)
            piece = self._inner.decompress(data, max_length)
            self._kept = self._inner.unconsumed_tail
            return piece

    module = types.ModuleType("compression.zstd")
    module.ZstdDecompressor, module.ZstdError = ZstdDecompressor, zlib.error
    monkeypatch.setitem(sys.modules, "compression", types.ModuleType("compression"))
    monkeypatch.setitem(sys.modules, "compression.zstd", module)
    body = tar({"usr/bin/app": elf("amd64", 3 * layers.PIECE)})
    packed = layers.ZSTD + zlib.compress(body)
    assert unpack(packed) == body
    assert unpack(packed + packed, 100) == body + body
    with pytest.raises(UnreadableLayer, match="not zstd throughout"):
        unpack(layers.ZSTD + b"\xff" * 50)


@pytest.mark.req("RG-163")
@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=3000), st.integers(0, 2**32))
def test_no_bytes_raise_anything_else(garbage, seed):
    """A layer is from anybody. A valid archive with bytes changed at random is read or unreadable."""
    body = bytearray(tar(MEMBERS))
    places = random.Random(seed)
    for each in garbage:
        body[places.randrange(len(body))] = each
    for data in (bytes(body), garbage):
        with contextlib.suppress(UnreadableLayer):
            read(unpack(data), 700)
