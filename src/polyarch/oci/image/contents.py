"""Access to manifests and blobs below a reference, at a source or in a layout directory.

An ``Inspector`` is enough for platforms. Code that looks into images or copies them needs the place that has the image
and the credential that opens it; that is a :class:`Contents`, opened by a :class:`Connection`. Mirrors come first, as
for all reads (RG-064).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from polyarch.clock import Clock
from polyarch.oci.auth.authorization import Access, Authorization
from polyarch.oci.auth.credentials import CredentialStore
from polyarch.oci.documents import CONFIG_LIMIT
from polyarch.oci.image.client import Fetched, Holder, RegistryClient
from polyarch.oci.image.layout import Layout
from polyarch.oci.mirrors import sources as mirrors
from polyarch.oci.mirrors.sources import Configuration, Source
from polyarch.oci.reference import Reference
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.traffic.budget import Budget
from polyarch.oci.traffic.exchange import Exchange, Receive, Visit
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.traffic.pacing import Pacing

TRANSFER_SECONDS = 24 * 3600.0
"""Effectively unlimited: a transfer ends when it is idle (RG-051)."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Manifests and blobs of one repository or directory. Methods raise ``Failure``."""

    holder: Holder
    access: Access
    name: str
    """The place in messages: a host, or ``oci:PATH``."""
    visit: Callable[[], Visit]
    """Makes the time limit for one step."""

    @property
    def source(self) -> Source:
        return self.access.source

    async def manifest(self, selector: str, visit: Visit | None = None) -> Fetched:
        """The manifest of a tag, or of a digest, verified. Without ``visit`` each call has its own time limit."""
        fetched = await self.holder.get_manifest(self.access, selector, visit or self.visit())
        if fetched is None:
            raise AssertionError("304 without If-None-Match")
        return fetched

    async def blob(
        self, digest: str, visit: Visit | None = None, *, what: str = "the config", limit: int = CONFIG_LIMIT
    ) -> bytes:
        """A small blob, verified."""
        return await self.holder.get_blob(self.access, digest, visit or self.visit(), what=what, limit=limit)

    async def stream(self, digest: str, receive: Receive, visit: Visit) -> None:
        """A blob of any size; see ``RegistryClient.stream_blob``. ``receive`` must not raise ``Failure``, which would
        be taken for an error of this place.
        """
        await self.holder.stream_blob(self.access, digest, visit, receive)


class Opened(NamedTuple):
    """An opened reference: its manifest, and access to everything below it."""

    contents: Contents
    manifest: Fetched


@dataclass(frozen=True, slots=True)
class Connection:
    """The parts of an inspector, for code that needs more than platforms."""

    exchange: Exchange
    authorization: Authorization
    client: RegistryClient
    pacing: Pacing
    configuration: Configuration
    credentials: CredentialStore
    clock: Clock
    settings: InspectorSettings

    def using(self, credentials: CredentialStore) -> "Connection":
        """The same parts with other credentials, and no others: for the images of one build or one user. Tokens stay
        shared among equal credentials only.
        """
        return replace(self, credentials=credentials)

    def visit(self, *, seconds: float | None = None) -> Visit:
        """A time limit for one step, ``--timeout`` by default."""
        seconds = self.settings.timeout if seconds is None else seconds
        budget = Budget(self.clock, seconds=seconds, max_wait=self.settings.max_wait)
        return Visit(budget, wait=self.settings.wait)

    def transfer(self) -> Visit:
        """A time limit for a transfer: only the idle time counts."""
        return self.visit(seconds=max(self.settings.timeout, TRANSFER_SECONDS))

    async def access(self, reference: Reference, source: Source) -> Access:
        """The source with the credentials to try, anonymous last."""
        credentials = await self.credentials.candidates(reference, source)
        return Access(source, credentials, loopback=self.settings.insecure_loopback)

    async def open(self, reference: Reference) -> Opened:
        """The first source that has the image. Raises the last source's ``Failure``, with the image's name."""
        if reference.transport == "oci":
            return await self._open_layout(reference)
        attempts: list[str] = []
        failure: Failure | None = None
        for source in self.sources(reference):
            contents = self.at(await self.access(reference, source))
            try:
                return Opened(contents, await contents.manifest(source.digest or source.tag or ""))
            except Failure as error:
                failure = error
                attempts.append(f"{'mirror ' if source.mirror else ''}{error.error.message}")
        if failure is None:
            raise AssertionError("an image has at least one source")
        raise Failure(failure.about(reference.canonical, tuple(attempts) if len(attempts) > 1 else ()))

    def at(self, access: Access) -> Contents:
        """The contents of one source."""
        return Contents(self.client, access, access.source.host, self.visit)

    def within(self, layout: Layout) -> Contents:
        """The contents of a layout directory."""
        return Contents(layout, layout.access, layout.name, self.visit)

    def sources(self, reference: Reference) -> list[Source]:
        """The sources in order; ``Failure`` ``blocked`` if the configuration leaves none."""
        try:
            return mirrors.sources(reference, self.configuration)
        except (mirrors.Blocked, mirrors.InvalidConfiguration) as error:
            raise Failure.of("blocked", "", str(error)) from None

    async def _open_layout(self, reference: Reference) -> Opened:
        layout = Layout(reference.repository)
        contents = self.within(layout)
        try:
            return Opened(contents, await contents.manifest(await layout.resolve(reference)))
        except Failure as failure:
            raise Failure(failure.about(reference.canonical)) from None
