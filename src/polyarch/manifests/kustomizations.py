"""What a kustomization makes of image names (MF-014): ``images`` and nothing else.

An image in a base is often a placeholder that only the overlay's ``images`` turn into something a registry knows. The
names are replaced as kustomize's image transformer does (``api/filters/imagetag``), for inspection only: the text keeps
what it says. Other overlay logic is not guessed.

Pure.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping

import msgspec

from polyarch.manifests.nodes import Document, elements, get, text_of

FILE_NAMES = frozenset({"kustomization.yaml", "kustomization.yml", "Kustomization"})

_TAG_AND_DIGEST = re.compile(r"(?P<tag>:[a-zA-Z0-9_.{}-]*)?(?P<digest>@sha256:[a-zA-Z0-9_.{}-]*)?")


class ImageEntry(msgspec.Struct, frozen=True, gc=False):
    """One entry of ``images``; an empty text leaves that part as it is."""

    name: str
    new_name: str = ""
    new_tag: str = ""
    digest: str = ""

    def apply(self, image: str) -> str:
        if not image.startswith(self.name):
            return image
        match = _TAG_AND_DIGEST.fullmatch(image, len(self.name))
        if match is None:
            return image
        tag, digest = match["tag"] or "", match["digest"] or ""
        if self.new_tag or self.digest:  # one given replaces both
            tag = f":{self.new_tag}" if self.new_tag else ""
            digest = f"@{self.digest}" if self.digest else ""
        return (self.new_name or self.name) + tag + digest


class Kustomizations(msgspec.Struct, frozen=True):
    """The image entries of all kustomizations among the files of a run, by directory (with ``/``, relative or not)."""

    directories: Mapping[str, tuple[ImageEntry, ...]]

    def entries_for(self, path: str) -> tuple[ImageEntry, ...]:
        """Those of the nearest kustomization in the file's directory or above it."""
        directory = posixpath.dirname(path)
        while True:
            if directory in self.directories:
                return self.directories[directory]
            parent = posixpath.dirname(directory)
            if parent == directory:
                return ()
            directory = parent

    def resolve(self, path: str, image: str) -> str:
        """The image that a file at ``path`` gets instead of the one it names."""
        return resolve(image, self.entries_for(path))


NO_KUSTOMIZATIONS = Kustomizations({})


def resolve(image: str, entries: Iterable[ImageEntry]) -> str:
    """One entry after the other, as kustomize runs its transformers."""
    for entry in entries:
        image = entry.apply(image)
    return image


def image_entries(documents: Iterable[Document]) -> tuple[ImageEntry, ...]:
    """The ``images`` of a kustomization file; entries without a name say nothing."""
    found = []
    for document in documents:
        for node in elements(get(document.root, "images")):
            name = text_of(get(node, "name"))
            if name:
                parts = (text_of(get(node, key)) or "" for key in ("newName", "newTag", "digest"))
                found.append(ImageEntry(name, *parts))
    return tuple(found)
