"""Streaming reader for image layers: decompression and tar members.

A layer is a tar archive, usually compressed, of any size and untrusted. Python's ``tarfile`` needs a file object and
trusts the lengths in headers; this reader is fed with bytes as they arrive, keeps at most a header and the first bytes
of a program, and limits everything a header can state.

Pure: no I/O, no threads."""

import importlib
import posixpath
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any, Literal, Protocol

import msgspec

BLOCK = 512
HEAD_SIZE = 256
"""Bytes kept of a program: an ELF header, or the longest ``#!`` line that a kernel reads."""
PIECE = 1024 * 1024
MAX_EXTENSION = 1024 * 1024
"""Maximum size of an extension header: paths have at most 4 KiB."""
GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"

Kind = Literal["file", "link", "other"]
_EXTENSIONS = frozenset({tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK})


class UnreadableLayer(Exception):  # noqa: N818 - it says what the layer is
    """The layer cannot be read; the text is a clause that says why."""


class Member(msgspec.Struct, frozen=True, gc=False):
    """One member of a layer; ``path`` has no leading slash. A link's ``target`` is as written, a hard link's absolute.

    ``head`` is filled for executable files only.
    """

    path: str
    kind: Kind
    target: str = ""
    executable: bool = False
    head: bytes = b""


# -- unpacking ---------------------------------------------------------------------------------------------------------


class Unpacker:
    """Decompresses a layer in bounded pieces: gzip, zstd where Python has it, or plain.

    The first bytes decide the format, because media types are often wrong. Lazily readable layers (eStargz,
    zstd:chunked) consist of many compressed members, which are read as one stream.
    """

    def __init__(self) -> None:
        self._begin = b""
        self._form: type[_Packed] | None = None
        self._packed: _Packed | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The next pieces, none longer than the input or :data:`PIECE`. Raises `UnreadableLayer`."""
        if self._form is None:
            data = self._begin + data
            if len(data) < len(ZSTD):
                self._begin = data
                return
            self._begin = b""
            self._form = _Gzip if data.startswith(GZIP) else _Zstd if data.startswith(ZSTD) else _Plain
        while data:
            if self._packed is None:
                data = data if self._form is _Plain else data.lstrip(b"\0")  # padding between members
                if not data:
                    return
                self._packed = self._form()
            yield from self._packed.feed(data)
            data = self._packed.rest
            if data:
                self._packed = None


class _Packed(Protocol):
    """One compressed member. ``rest`` is the input after its end."""

    rest: bytes

    def __init__(self) -> None: ...

    def feed(self, data: bytes) -> Iterator[bytes]: ...


class _Plain:
    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        yield data


class _Gzip:
    def __init__(self) -> None:
        self._decompressor = zlib.decompressobj(wbits=31)
        self.rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._decompressor.eof:
                self.rest = data
                return
            try:
                piece = self._decompressor.decompress(data, PIECE)
            except zlib.error as error:
                raise UnreadableLayer(f"a layer is not gzip throughout ({error})") from None
            data = self._decompressor.unused_data or self._decompressor.unconsumed_tail
            if piece:
                yield piece


class _Zstd:
    """RFC 8878, with the standard library from Python 3.14 on."""

    def __init__(self) -> None:
        try:
            module: Any = importlib.import_module("compression.zstd")
        except ImportError:
            raise UnreadableLayer(
                "its layers are compressed with zstd, which Python unpacks from 3.14 on only"
            ) from None
        self._error: type[Exception] = module.ZstdError
        self._decompressor: Any = module.ZstdDecompressor()
        self.rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._decompressor.eof:
            self.rest = data
            return
        while True:
            try:
                piece = self._decompressor.decompress(data, PIECE)
            except self._error as error:
                raise UnreadableLayer(f"a layer is not zstd throughout ({error})") from None
            data = b""  # it keeps what it could not use yet
            if piece:
                yield piece
            if self._decompressor.eof:
                self.rest = self._decompressor.unused_data
                return
            if self._decompressor.needs_input:
                return


# -- the archive -------------------------------------------------------------------------------------------------------


class ArchiveReader:
    """Parses an archive, fed in any pieces, into members: POSIX (pax), GNU and older headers."""

    def __init__(self) -> None:
        self._state: Literal["header", "extension", "head", "end"] = "header"
        self._buffer = bytearray()
        self._wanted = BLOCK
        self._skip = 0
        self._header = tarfile.TarInfo()
        self._records: dict[str, str] = {}
        """Extension headers for the next member, by pax name."""

    def feed(self, data: bytes) -> Iterator[Member]:
        """The members complete so far. Raises :class:`UnreadableLayer`."""
        position, end = 0, len(data)
        while position < end and self._state != "end":
            if self._skip:
                step = min(self._skip, end - position)
                self._skip -= step
                position += step
                continue
            step = min(self._wanted - len(self._buffer), end - position)
            self._buffer += data[position : position + step]
            position += step
            if len(self._buffer) == self._wanted:
                block = bytes(self._buffer)
                self._buffer.clear()
                member = self._read(block)
                if member is not None:
                    yield member

    def _read(self, block: bytes) -> Member | None:
        if self._state == "header":
            return self._read_header(block)
        if self._state == "extension":
            self._read_extension(block)
            self._go_on("header", BLOCK, skip=-len(block) % BLOCK)
            return None
        size = self._size()
        self._go_on("header", BLOCK, skip=size + -size % BLOCK - len(block))
        return self._member(block)

    def _read_header(self, block: bytes) -> Member | None:
        if not any(block):
            self._go_on("end", 0)
            return None
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError) as error:
            raise UnreadableLayer(f"a layer is no tar archive throughout ({error})") from None
        self._header = header
        if header.type in _EXTENSIONS:
            self._begin_extension(header.size)
            return None
        size = self._size()
        if header.type == tarfile.GNUTYPE_SPARSE:
            raise UnreadableLayer("a layer has a sparse file of the old GNU form")
        if size and self._is_program():
            self._go_on("head", min(size, HEAD_SIZE))
            return None
        self._go_on("header", BLOCK, skip=size + -size % BLOCK)
        return self._member(b"")

    def _begin_extension(self, size: int) -> None:
        if not 0 <= size <= MAX_EXTENSION:
            raise UnreadableLayer(
                f"a layer has an extension header of {size} bytes, where at most {MAX_EXTENSION} are read"
            )
        if size:
            self._go_on("extension", size)
        else:
            self._go_on("header", BLOCK)

    def _read_extension(self, body: bytes) -> None:
        if self._header.type == tarfile.GNUTYPE_LONGNAME:
            self._records["path"] = _text(body)
        elif self._header.type == tarfile.GNUTYPE_LONGLINK:
            self._records["linkpath"] = _text(body)
        else:
            self._records.update(_pax_records(body))

    def _go_on(self, state: Literal["header", "extension", "head", "end"], wanted: int, *, skip: int = 0) -> None:
        self._state, self._wanted, self._skip = state, wanted, skip

    def _size(self) -> int:
        """Bytes that follow the header. Links, directories and devices have none, whatever the header states."""
        header = self._header
        if not (header.isreg() or header.type not in tarfile.SUPPORTED_TYPES):
            return 0
        stated = self._records.get("size")
        size = int(stated) if stated is not None and stated.isascii() and stated.isdecimal() else header.size
        if not 0 <= size < 2**63:
            raise UnreadableLayer(f"a layer has a member of {size} bytes")
        return size

    def _is_program(self) -> bool:
        return self._header.isreg() and bool(self._header.mode & 0o111)

    def _member(self, head: bytes) -> Member:
        header, records = self._header, self._records
        self._records = {}
        path = clean_path(records.get("path", header.name))
        if any(name.startswith("GNU.sparse.") for name in records):  # its content begins with a map
            return Member(clean_path(records.get("GNU.sparse.name", path)), "file", executable=True)
        if header.issym() or header.islnk():
            target = records.get("linkpath", header.linkname)
            return Member(path, "link", target=f"/{clean_path(target)}" if header.islnk() else target)
        if header.isreg():
            return Member(path, "file", executable=bool(header.mode & 0o111), head=head)
        return Member(path, "other")


def clean_path(path: str) -> str:
    """The path from the root, without a leading slash; ``..`` stops at the root."""
    return posixpath.normpath(f"/{path}").lstrip("/")


def _text(body: bytes) -> str:
    return body.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _pax_records(body: bytes) -> Iterator[tuple[str, str]]:
    """``LENGTH KEY=VALUE\\n``, POSIX.1-2001; stops at the first invalid record."""
    position = 0
    while position < len(body):
        space = body.find(b" ", position, position + 20)
        digits = body[position:space]
        if space < 0 or not digits.isdigit():
            return
        end = position + int(digits)
        key, equals, value = body[space + 1 : end].partition(b"=")
        if not equals or end > len(body) or not value.endswith(b"\n"):
            return
        yield key.decode("utf-8", "surrogateescape"), value[:-1].decode("utf-8", "surrogateescape")
        position = end
