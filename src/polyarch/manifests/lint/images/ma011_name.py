"""MA011: an image name contains an architecture: ``web-amd64``, ``web:1.2-arm64``, ``arm64v8/web``.

Pure.
"""

from collections.abc import Iterator
from functools import lru_cache

import msgspec

from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.facts import Draft
from polyarch.manifests.lint.images.image_place import ImagePlace
from polyarch.manifests.lint.rule import Rule
from polyarch.oci.reference import Reference
from polyarch.platforms import KNOWN_ARCHITECTURES

RULE = Rule(
    id="MA011",
    severity=Severity.INFO,
    title="An image has an architecture in its name",
    meaning="Such an image is often one of several that are also published as a multi-architecture image under the "
    "name without the suffix.",
)

SPELLINGS = tuple(
    sorted(
        KNOWN_ARCHITECTURES
        | {"x86_64", "x86-64", "aarch64", "i386", "i686", "x86", "ppc64el", "loongarch64", "arm64v8", "arm32v7"}
        | {"armhf", "armv7", "armv7l", "armel", "armv6", "armv6l"},
        key=lambda name: (-len(name), name),
    )
)
"""Longest first: ``-x86_64`` does not end in an architecture called ``64``."""

NAMESPACES = frozenset({"arm64v8", "arm32v7", "amd64", "s390x", "ppc64le"})

_ENDS = tuple(separator + name for name in SPELLINGS for separator in "-_.")


def check(place: ImagePlace) -> Iterator[Draft]:
    reference = place.answer.reference
    found = architecture_in_name(reference) if reference is not None else None
    if found is not None:
        architecture, without = found
        yield place.draft(
            RULE,
            f"{place.subject}: the image name {place.name} contains the architecture {architecture}",
            f"check whether a multi-architecture sibling exists: {without}",
        )


@lru_cache(maxsize=4096)
def architecture_in_name(reference: Reference) -> tuple[str, str] | None:
    """The architecture as it is spelled, and the familiar name without it; None for other names."""
    *namespaces, last = reference.repository.split("/")
    end = _end(last)
    if end:
        return end[1:], _named(reference, "/".join([*namespaces, last[: -len(end)]]), reference.tag)
    end = _end(reference.tag or "")
    if end:
        return end[1:], _named(reference, reference.repository, (reference.tag or "")[: -len(end)])
    for index, namespace in enumerate(namespaces):
        if namespace in NAMESPACES:
            rest = "/".join([*namespaces[:index], *namespaces[index + 1 :], last])
            return namespace, _named(reference, rest, reference.tag)
    return None


def _end(name: str) -> str:
    lower = name.lower()
    if not lower.endswith(_ENDS):
        return ""
    end = next(end for end in _ENDS if lower.endswith(end))
    before = lower[: -len(end)]
    part_of_version = end[0] == "." and end[1:].isdigit() and before[-1:].isdigit()  # 2.14.386
    return end if before and not part_of_version else ""


def _named(reference: Reference, repository: str, tag: str | None) -> str:
    if reference.registry == "docker.io" and "/" not in repository:
        repository = f"library/{repository}"
    # The digest selects the image for one architecture, so it is not part of the sibling's name.
    return msgspec.structs.replace(reference, repository=repository, tag=tag, digest=None).familiar
