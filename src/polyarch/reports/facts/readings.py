"""What images say, as a report uses and keeps it (RP-002, RP-003).

A :class:`Reading` is the part of an inspection that decides, with nothing of how it was asked: no credential, no
request, no text that a registry sent. It becomes an :class:`~polyarch.oci.answer.Inspection` again for the rules of the
features, so that a report from a snapshot is made by the same functions as one from a cluster. Pure.
"""

from collections.abc import Iterable, Mapping

import msgspec

from polyarch.oci.answer import Entry, Inspection, InspectionError, Kind, Status
from polyarch.oci.reference import InvalidReference, parse
from polyarch.platforms import InvalidPlatform, Platform


class Reading(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one image says."""

    image: str
    """The reference as the workload writes it."""
    status: Status
    namespace: str = ""
    """The namespace whose pull secrets it was asked with; empty: it holds for all."""
    kind: Kind = ""
    digest: str = ""
    platforms: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    """Of the manifests, in the order of the platforms."""
    code: str = ""
    """Of the error."""
    host: str = ""
    http_status: int | None = None

    @classmethod
    def of(cls, image: str, answer: Inspection, *, namespace: str = "") -> "Reading":
        """What is kept of an answer; the last good reading of a registry that fails now counts as its answer."""
        if answer.status is Status.ERROR and answer.last_good is not None:
            answer = answer.last_good
        error = answer.error
        host = answer.source.host if answer.source is not None else answer.reference.registry
        entries = tuple(filter(_can_be_read_again, answer.entries))
        return cls(
            image=image,
            status=answer.status,
            namespace=namespace,
            kind=answer.kind,
            digest=answer.digest,
            platforms=tuple(str(each.platform) for each in entries),
            digests=tuple(each.digest for each in entries),
            code=error.code if error is not None else "",
            host=(error.host or host) if error is not None else "",
            http_status=error.status if error is not None else None,
        )

    @property
    def inspection(self) -> Inspection:
        """For the rules. Raises ``ValueError`` for a reading that nobody wrote this way."""
        error = None
        if self.status is Status.ERROR:
            error = InspectionError.of(self.code, "", status=self.http_status, host=self.host)
        entries = tuple(
            Entry(Platform.parse(platform), digest)
            for platform, digest in zip(self.platforms, self.digests, strict=True)
        )
        return Inspection(parse(self.image), self.status, self.kind, digest=self.digest, entries=entries, error=error)


def _can_be_read_again(entry: Entry) -> bool:
    """An index may name anything as a platform; what no node can be is of no use here."""
    try:
        return Platform.parse(str(entry.platform)).node == entry.platform.node
    except InvalidPlatform:
        return False


class Answers:
    """Answers by namespace and by the text of the reference; one without a namespace holds for all."""

    def __init__(self, readings: Iterable[Reading] = ()) -> None:
        self.readings = tuple(sorted(readings, key=lambda each: (each.namespace, each.image)))
        self._shared: dict[str, Inspection] = {}
        self._own: dict[str, dict[str, Inspection]] = {}
        for each in self.readings:
            try:
                answer = each.inspection
            except (InvalidReference, InvalidPlatform):
                continue  # it is asked for as an image without an answer, which is what it is
            if each.namespace:
                self._own.setdefault(each.namespace, {})[each.image] = answer
            else:
                self._shared[each.image] = answer
        self._views: dict[str, Mapping[str, Inspection]] = {}

    def of(self, namespace: str) -> Mapping[str, Inspection]:
        """For the pods of a namespace, by the texts of their images."""
        own = self._own.get(namespace)
        if own is None:
            return self._shared
        if namespace not in self._views:
            self._views[namespace] = {**self._shared, **own}
        return self._views[namespace]

    @property
    def everywhere(self) -> Mapping[str, Inspection]:
        """Of all namespaces, by the texts of the images; what one namespace was told counts before another's error."""
        found = dict(self._shared)
        for own in self._own.values():
            for image, answer in own.items():
                if image not in found or found[image].status is Status.ERROR:
                    found[image] = answer
        return found
