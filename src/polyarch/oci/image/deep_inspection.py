"""Deep inspection: do the children of an index match their entries?

Indexes are written by hand or by scripts, and nothing checks them: an image of the wrong architecture is noticed only
when its pod fails with ``exec format error``. Deep inspection compares every child's config with its entry and, on
demand, the ELF header of the program that the image starts. Layers are streamed, from the top down; nothing is written
to disk and nothing executed. The entry's platform remains the answer; differences are warnings.

A check that fails for a transient reason makes the answer an error: it must not look like a clean result."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import chain
from typing import Literal

import msgspec

from polyarch.oci.concurrency import map_concurrently
from polyarch.oci.documents import ContentError, Document, classify
from polyarch.oci.image.contents import RegistryConnection, RepositoryContents
from polyarch.oci.image.elf import Machine, expected_machine, read_machine, runs_as_well
from polyarch.oci.image.entrypoint import Entrypoint, Program, ProgramNotFound, ProgramSearches, read_start_command
from polyarch.oci.image.layers import ArchiveReader, Unpacker, UnreadableLayer
from polyarch.oci.image.layout import ImageLayout
from polyarch.oci.image.parsing import (
    Artifact,
    Blob,
    ConfigReading,
    read_blobs,
    read_config_of,
    read_manifest,
    read_schema1,
)
from polyarch.oci.inspection import Entry, Inspection, InspectionError, InspectionWarning, Status
from polyarch.oci.traffic.exchange import RequestContext
from polyarch.oci.traffic.failures import Failure

Depth = Literal["config", "elf"]

MIB = 1024 * 1024
LAYERS_LIMIT = 256 * MIB
"""Compressed bytes read for one child."""
UNPACKED_LIMIT = 4096 * MIB
"""Bytes after decompression: a small layer can be crafted to take hours."""
STEP = MIB // 2
"""Compressed bytes unpacked per call of a thread: one call per network read would cost more."""
AT_ONCE = 4
ELF_SYSTEMS = frozenset({"linux", "android", "freebsd", "netbsd", "openbsd", "dragonfly", "illumos", "solaris"})


async def look_deeper(connection: RegistryConnection, answer: Inspection, depth: Depth) -> Inspection:
    """The answer with the findings of a deep inspection; unchanged without entries or source.

    Each child has the full time limit of an image.
    """
    if answer.status is not Status.RESOLVED or not answer.entries:
        return answer
    contents = await _contents(connection, answer)
    if contents is None:
        return answer

    async def one(entry: Entry) -> _Look:
        look = _Look(contents, entry, is_child=answer.kind == "index", depth=depth)
        await look.go()
        return look

    looks = await map_concurrently(one, answer.entries, at_once=AT_ONCE)
    found = [warning for look in looks for warning in (*look.warnings, *look.context.warnings)]
    new = tuple(dict.fromkeys(each for each in found if each not in answer.warnings))
    requests = answer.requests + sum(look.context.requests for look in looks)
    answer = msgspec.structs.replace(answer, warnings=answer.warnings + new, requests=requests)
    error = next((look.error for look in looks if look.error is not None), None)
    if error is not None:
        message = f"{answer.reference}: the look into it is not complete: {error.message}"
        error = msgspec.structs.replace(error, message=message)
        return msgspec.structs.replace(answer, status=Status.ERROR, error=error)
    return answer


async def _contents(connection: RegistryConnection, answer: Inspection) -> RepositoryContents | None:
    """The place the answer came from."""
    reference = answer.reference
    if reference.transport == "oci":
        return connection.within(ImageLayout.of(reference))
    if answer.source is None:
        return None
    for source in connection.sources(reference):
        if (source.host, source.mirror) == (answer.source.host, answer.source.mirror):
            return connection.at(await connection.access(reference, source))
    return None


class _Look:
    """The inspection of one child. ``error`` says why it failed."""

    def __init__(self, contents: RepositoryContents, entry: Entry, *, is_child: bool, depth: Depth) -> None:
        self.context: RequestContext = contents.context()
        self.warnings: list[InspectionWarning] = []
        self.error: InspectionError | None = None
        self._contents = contents
        self._entry = entry
        self._is_child = is_child
        self._depth = depth
        self._name = f"{entry.platform} ({entry.digest[:19]}…)"

    async def go(self) -> None:
        missing = "its manifest"
        try:
            manifest = await self._contents.manifest(self._entry.digest, self.context)
            missing = "its config"
            config, document = await self._read_config(classify(manifest.body))
            if config is not None and self._depth == "elf":
                missing = "a layer of it"
                await self._check_program(config, document)
        except ContentError as error:
            self.error = error.error(self._contents.name)
        except Failure as failure:
            if failure.error.code != "not-found":
                self.error = failure.error
            else:
                self._warn("child-missing", f"{missing} is not there: {failure.error.message}")

    def _warn(self, code: str, message: str) -> None:
        self.warnings.append(InspectionWarning(code, f"{self._name}: {message}"))

    async def _read_config(self, document: Document) -> tuple[bytes | None, Document]:
        """Read an image's config and compare it with the entry."""
        if document.type == "index":
            self._warn("mislabelled", "the entry states a platform, but there is an index behind it")
            return None, document
        if document.type == "schema1":
            self._compare(read_schema1(document))
            return None, document
        manifest = read_manifest(document)
        config = manifest.config
        if config is None:  # an artifact has no platform to compare
            return None, document
        body = config.data
        if body is None:
            body = await self._contents.blob(config.digest, self.context)
        found = read_config_of(manifest, body)
        if isinstance(found, Artifact):
            return None, document
        self._compare(found)
        return body, document

    def _compare(self, config: ConfigReading) -> None:
        if not self._is_child or config.platform is None:
            return
        if config.platform.node != self._entry.platform.node:
            self._warn("mislabelled", f"the entry says {self._entry.platform.node}, its config {config.platform.node}")

    async def _check_program(self, config: bytes, document: Document) -> None:
        platform = self._entry.platform
        expected = expected_machine(platform.architecture)
        if platform.os not in ELF_SYSTEMS or expected is None:
            self._warn("binary-unchecked", f"programs for {platform.node} cannot be checked")
            return
        layers = read_blobs(document)[1:]
        try:
            start = read_start_command(config)
        except ProgramNotFound as reason:
            self._warn("binary-unchecked", f"{reason}")
            return
        found = await self._find_programs(start.programs, layers)
        main = found[start.programs[0]]
        if isinstance(main, Program) and main.interprets and start.argument is not None:
            behind = (await self._find_programs((start.argument,), layers))[start.argument]
            if isinstance(behind, Program):  # otherwise it is an argument like any other
                found[start.argument] = behind
        checked: dict[str, None] = {}
        for each in found.values():
            if isinstance(each, Program) and each.path in checked:
                continue
            if isinstance(each, Program):
                checked[each.path] = None
                self._check_machine(each, expected)
            else:
                only = f"only {', '.join(checked)} was looked at: " if checked else ""
                self._warn("binary-unchecked", f"{only}{each}")

    def _check_machine(self, program: Program, expected: Machine) -> None:
        machine = read_machine(program.head)
        if machine is None:
            self._warn("binary-unchecked", f"{program.path} is no ELF file")
        elif machine == expected:
            return
        elif runs_as_well(self._entry.platform.architecture, machine):
            what = f"{program.path} is for {machine}, which nodes of {self._entry.platform.architecture} run if their"
            self._warn("compatible-binary", f"{what} kernels and processors have the mode for it")
        else:
            self._warn("wrong-binary", f"{program.path} is for {machine}, not for {expected}")

    async def _find_programs(
        self, starts: Sequence[Entrypoint], layers: Sequence[Blob]
    ) -> dict[Entrypoint, Program | ProgramNotFound]:
        """For each start its program, or why there is none; all are found in one reading of the layers."""
        searches = ProgramSearches(starts)
        scan = _Scan(searches)
        try:
            for position, layer in enumerate(reversed(layers), start=1):
                try:
                    ended = await scan.read(self._contents, layer.digest, self.context, last=position == len(layers))
                except Failure as failure:
                    if failure.error.code == "not-found" and layer.urls:
                        raise ProgramNotFound(
                            "a layer of it may not be distributed and is not in the registry"
                        ) from None
                    raise
                if ended:
                    break
            else:
                raise ProgramNotFound("the image has no layers")
        except ProgramNotFound as reason:
            searches.give_up(reason)
        except UnreadableLayer as unreadable:
            searches.give_up(ProgramNotFound(f"{unreadable}"))
        return {start: searches.found[start] for start in starts}


class _Scan:
    """Reads layers until the programs are found, within the limits of this module."""

    def __init__(self, searches: ProgramSearches) -> None:
        self._searches = searches
        self._ended = False
        self._read = 0
        self._unpacked = 0

    async def read(self, contents: RepositoryContents, digest: str, context: RequestContext, *, last: bool) -> bool:
        """Whether this layer and those above determine all programs. Raises `ProgramNotFound` and `UnreadableLayer`."""
        self._searches.begin_layer()
        await contents.stream(digest, self._receive, context)
        return self._ended or self._searches.look(last=last)

    async def _receive(self, chunks: AsyncIterator[bytes]) -> None:
        self._searches.restart_layer()  # after a broken connection the layer is read again
        unpacker, archive = Unpacker(), ArchiveReader()
        waiting: list[bytes] = []
        async for chunk in chunks:
            self._read += len(chunk)
            over = self._read > LAYERS_LIMIT
            if not over:
                waiting.append(chunk)
            if over or sum(map(len, waiting)) >= STEP:
                self._ended = await asyncio.to_thread(self._feed, unpacker, archive, waiting)
                if self._ended:
                    return
                waiting = []
            if over:
                raise ProgramNotFound(f"the program is not in the first {LAYERS_LIMIT // MIB} MiB of its layers")
        if waiting:
            self._ended = await asyncio.to_thread(self._feed, unpacker, archive, waiting)

    def _feed(self, unpacker: Unpacker, archive: ArchiveReader, chunks: Iterable[bytes]) -> bool:
        for piece in chain.from_iterable(map(unpacker.feed, chunks)):
            self._unpacked += len(piece)
            if self._unpacked > UNPACKED_LIMIT:
                raise ProgramNotFound(f"its layers unpack to more than {UNPACKED_LIMIT // MIB} MiB")
            for member in archive.feed(piece):
                if self._searches.add(member):
                    return True
        return False
