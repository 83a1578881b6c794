"""Reads from kustomizations how they rename images (MF-014) and which files are patches.

An image in a base is often a placeholder that the overlay's ``images`` replace. Names are replaced as by kustomize's
image transformer (``api/filters/imagetag``), for inspection only; the text stays as it is. A patch looks like a
workload but is only a part of one, so it must not be checked as a whole (MF-020). Other overlay logic is ignored.

Pure.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping

import msgspec

from polyarch.manifests.scan.nodes import Document, elements, get, text_of

FILE_NAMES = frozenset({"kustomization.yaml", "kustomization.yml", "Kustomization"})

_TAG_AND_DIGEST = re.compile(r"(?P<tag>:[a-zA-Z0-9_.{}-]*)?(?P<digest>@sha256:[a-zA-Z0-9_.{}-]*)?")


class ImageEntry(msgspec.Struct, frozen=True, gc=False):
    """One entry of ``images``; an empty text leaves that part as it is."""

    name: str
    new_name: str = ""
    new_tag: str = ""
    digest: str = ""
    tag_suffix: str = ""

    def apply(self, image: str) -> str:
        if not image.startswith(self.name):
            return image
        match = _TAG_AND_DIGEST.fullmatch(image, len(self.name))
        if match is None:
            return image
        tag, digest = match["tag"] or "", match["digest"] or ""
        if self.new_tag or self.digest:  # either replaces both
            tag = f":{self.new_tag}" if self.new_tag else ""
            digest = f"@{self.digest}" if self.digest else ""
        elif self.tag_suffix:
            tag, digest = f"{tag or ':'}{self.tag_suffix}", ""
        return (self.new_name or self.name) + tag + digest


class Kustomization(msgspec.Struct, frozen=True):
    """One kustomization: its ``images``, and the files that it names as patches."""

    images: tuple[ImageEntry, ...] = ()
    patches: tuple[str, ...] = ()


class Kustomizations:
    """All kustomizations of a run by their folder. Paths use ``/``; relative ones are relative to ``here``."""

    def __init__(self, folders: Mapping[str, Kustomization], *, here: str = "") -> None:
        self._here = here
        self._folders = {self._place(folder): kustomization for folder, kustomization in folders.items()}
        self._patches = {
            self._place(posixpath.join(folder, path)): folder
            for folder, kustomization in folders.items()
            for path in kustomization.patches
        }

    def entries_for(self, path: str) -> tuple[ImageEntry, ...]:
        """The entries of the nearest kustomization in the file's folder or above it."""
        if not self._folders:
            return ()
        folder = posixpath.dirname(self._place(path)) or "."
        while True:
            if folder in self._folders:
                return self._folders[folder].images
            parent = posixpath.dirname(folder) or "."
            if parent == folder:
                return ()
            folder = parent

    def patched_by(self, path: str) -> str | None:
        """The folder of the kustomization that names this file as a patch; None where none does."""
        return self._patches.get(self._place(path)) if self._patches else None

    def _place(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._here, path))


NO_KUSTOMIZATIONS = Kustomizations({})


def resolve(image: str, entries: Iterable[ImageEntry]) -> str:
    """One entry after the other, as kustomize runs its transformers."""
    for entry in entries:
        image = entry.apply(image)
    return image


def read_kustomization(documents: Iterable[Document]) -> Kustomization:
    """Reads ``images`` and patches of a kustomization file; entries without a name are ignored."""
    images: list[ImageEntry] = []
    patches: list[str] = []
    for document in documents:
        for node in elements(get(document.root, "images")):
            name = text_of(get(node, "name"))
            if name:
                parts = (text_of(get(node, key)) or "" for key in ("newName", "newTag", "digest", "tagSuffix"))
                images.append(ImageEntry(name, *parts))
        for key in ("patches", "patchesStrategicMerge", "patchesJson6902"):
            named = (text_of(node) or text_of(get(node, "path")) for node in elements(get(document.root, key)))
            patches += [path for path in named if path and "\n" not in path]  # several lines are an inline patch
    return Kustomization(tuple(images), tuple(patches))
