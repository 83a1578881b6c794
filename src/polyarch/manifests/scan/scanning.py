"""Scans a file: its objects, its pod specifications with their images, and syntax problems.

Most files of a tree are irrelevant, so :func:`worth_reading` looks at the bytes first, and resource definitions are
not parsed at all. A template, which cannot be read without guessing, is reported as one.

Pure.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec
from yaml.nodes import MappingNode, Node

from polyarch.manifests.operations import is_below
from polyarch.manifests.scan.composer import children
from polyarch.manifests.scan.nodes import (
    Document,
    SyntaxProblem,
    along,
    compose,
    duplicate_keys,
    elements,
    find,
    get,
    text_of,
)
from polyarch.manifests.scan.pod_specs import (
    ImageUse,
    ImageUser,
    KubeObject,
    PodSpec,
    PodSpecLocation,
    has_pod_shape,
    known_places,
    objects_of,
    shaped_places,
)
from polyarch.manifests.scan.text import MAX_BYTES, SourceText

# -- kustomizations: how they rename images, and which files are patches -----------------------------------------------
# An image in a base is often a placeholder that the overlay's ``images`` replace. Names are replaced as by kustomize's
# image transformer (``api/filters/imagetag``), for inspection only; the text stays as it is. A patch looks like a
# workload but is only a part of one, so it must not be checked as a whole. Other overlay logic is ignored.


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


# -- the scan of a file ------------------------------------------------------------------------------------------------


_SIGNS = (
    b"mage",  # image, Image
    b"nodeSelector",
    b"nodeAffinity",
    b"operatorframework.io/",
    b"PodPlacementConfig",
    b"Subscription",
    b"ClusterExtension",
    b"olm.",
)
_MARKS = ("{{", "{%", "<%")
_COMMENT_OR_MARK = re.compile(r"(?:^|(?<=[ \t]))#[^\r\n]*|(?P<mark>\{\{|\{%|<%)", re.MULTILINE)
# A resource definition only describes pods, unless an example or a default in it names an image.
_DEFINITION = b"CustomResourceDefinition"
_HEAD = 4096  # every tool writes the kind of a definition in there
_DEFINITION_TEXT = _DEFINITION.decode()
_KIND = re.compile(rb"""[ \t{]*["']?kind["']?\s*:\s*["']?""")
_NAMED_IMAGE = re.compile(rb"""image["']?[ \t]*:[ \t]+["']?[\w./@$-]""")


@dataclass(frozen=True, eq=False)
class Duplicate:
    """A duplicate key in a mapping that matters to a rule (MA902)."""

    object: KubeObject
    key: str
    node: Node
    """The repetition."""
    pointer: str
    """Pointer of the pod specification or labels that it makes ambiguous."""


@dataclass(frozen=True, eq=False)
class Scan:
    """Contents of a file. With ``template`` or ``syntax`` the rest is empty."""

    source: SourceText
    documents: tuple[Document, ...] = ()
    objects: tuple[KubeObject, ...] = ()
    pod_specs: tuple[PodSpec, ...] = ()
    duplicates: tuple[Duplicate, ...] = ()
    syntax: SyntaxProblem | None = None
    """Why it does not parse."""
    template: int | None = None
    """Offset of the first template mark; None if the file is not a template."""

    def document(self, number: int) -> Document:
        return next(document for document in self.documents if document.index == number)


def worth_reading(data: bytes) -> bool:
    """Whether a file could matter to any rule, by its bytes alone; milliseconds for megabytes."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True  # the caller reports the encoding
    if _DEFINITION in data[:_HEAD] and data.find(b"\n---", 1) < 0 and _only_defines(data):
        return False  # first, because the search for each sign costs as much
    return any(sign in data for sign in _SIGNS)


def scan(source: SourceText, *, kustomizations: Kustomizations = NO_KUSTOMIZATIONS) -> Scan:
    """The file's objects and pod specifications in text order; never raises for the contents of a file."""
    marked = any(mark in source.text for mark in _MARKS)
    try:
        documents = compose(source) if marked else compose(source, _wanted)
    except SyntaxProblem as problem:
        at = _first_mark(source.text) if marked and source.size <= MAX_BYTES else None
        return Scan(source, syntax=problem) if at is None else Scan(source, template=at)
    if marked and any(_has_mapping_as_key(document.root) for document in documents):
        at = _first_mark(source.text)
        if at is not None:
            return Scan(source, template=at)
    entries = kustomizations.entries_for(source.path)
    patched_by = kustomizations.patched_by(source.path)
    objects: list[KubeObject] = []
    pod_specs: list[PodSpec] = []
    for document in documents:
        found = list(objects_of(document, patched_by=patched_by))
        objects += found
        pod_specs += _pod_specs(document, found, entries)
    duplicates = (*_duplicates_of_pods(pod_specs), *_duplicates_of_labels(objects))
    return Scan(source, tuple(documents), tuple(objects), tuple(pod_specs), duplicates)


def _only_defines(data: bytes) -> bool:
    """Whether a text is a resource definition that names no image."""
    at = data.find(_DEFINITION)
    if at < 0 or not _KIND.fullmatch(data, data.rfind(b"\n", 0, at) + 1, at):
        return False
    return not _names_an_image(data)


def _names_an_image(data: bytes) -> bool:
    """As ``_NAMED_IMAGE.search`` would say, at a tenth of the time: for megabytes only ``find`` is quick."""
    at = data.find(b"image")
    while at >= 0 and not _NAMED_IMAGE.match(data, at):
        at = data.find(b"image", at + 1)
    return at >= 0


def _wanted(chunk: str) -> bool:
    return _DEFINITION_TEXT not in chunk or not _only_defines(chunk.encode())


def _pod_specs(document: Document, objects: list[KubeObject], entries: tuple[ImageEntry, ...]) -> list[PodSpec]:
    """Each pod specification once for each object that has it, by its node in the text.

    An alias can give one node to several objects, and other images or another inherited affinity with it.
    """
    taken: dict[int, set[int]] = {id(subject): set() for subject in objects}
    covering: set[int] = set()
    found: dict[tuple[int, ...], list[tuple[KubeObject, PodSpecLocation]]] = {}

    def take(subject: KubeObject, place: PodSpecLocation) -> None:
        taken[id(subject)] |= {id(place.node), id(place.covers)}
        if place.covers is not None:
            covering.add(id(place.node))
        inherited = [id(each.node) for each in place.inherited]
        key = (id(subject), id(place.node), *inherited, 0, *(id(holder.node) for holder in place.holders))
        found.setdefault(key, []).append((subject, place))

    for subject in objects:
        for place in known_places(subject):
            take(subject, place)
    # Each pod specification of this shape has the word in the text, unless aliases share it, so the search can end
    # when every occurrence is known. Workflow templates and pipeline runs have no such word.
    nodes = [places[0][1].node for places in found.values()]
    words = sum(get(node, "containers") is not None or id(node) in covering for node in nodes)
    if document.shared or document.chunk.count("containers") > words:
        for subject in objects:
            for place in shaped_places(subject, taken[id(subject)]):
                take(subject, place)
    pod_specs = [_pod_spec(places, entries) for places in found.values()]
    return sorted(pod_specs, key=lambda pod_spec: document.start(pod_spec.node))


def _pod_spec(found: list[tuple[KubeObject, PodSpecLocation]], entries: tuple[ImageEntry, ...]) -> PodSpec:
    """The pod specification at these places of one object, which share its text."""
    subject, place = found[0]
    document = subject.document
    uses = dict.fromkeys(each.pointer for _, each in found)
    if document.shared and has_pod_shape(place.node):
        here = (use for use in document.uses.get(id(place.node), ()) if is_below(use, subject.pointer))
        uses |= dict.fromkeys(here)
    images = (_image(holder, entries) for holder in place.holders)
    return PodSpec(
        object=subject,
        node=place.node,
        pointer=place.pointer,
        uses=tuple(uses),
        images=tuple(image for image in images if image.text or subject.patched_by is None),
        inherited=place.inherited,
        place=place.place,
        added_image=place.added_image,
        apart=place.apart,
        duplicates=tuple(_repeated(document, place)),
    )


def _image(holder: ImageUser, entries: tuple[ImageEntry, ...]) -> ImageUse:
    keys = ("image", "reference") if holder.role == "volume" else (holder.field,)
    node = find(holder.node, *keys)
    text = text_of(node) or ""
    return ImageUse(
        text=text,
        resolved_text=resolve(text, entries),
        role=holder.role,
        container=holder.name,
        node=node if node is not None else holder.node,
        pointer="/".join((holder.pointer, *keys)),
        holder=holder.node,
        holder_pointer=holder.pointer,
    )


def _repeated(document: Document, place: PodSpecLocation) -> Iterator[tuple[str, Node]]:
    """Duplicate keys on the path to a pod specification, in it, its containers and its node constraints."""
    way = list(along(document.root, place.pointer))
    stack = [get(place.node, "affinity")]
    below = [get(place.node, "nodeSelector"), *(holder.node for holder in place.holders)]
    while stack:
        node = stack.pop()
        if node is not None:
            below.append(node)
            stack += children(node)
    for mapping in (*way, *below):
        if isinstance(mapping, MappingNode):
            yield from duplicate_keys(mapping)


def _has_mapping_as_key(root: Node) -> bool:
    """Whether a key is a mapping, as an unquoted ``{{ x }}`` parses."""
    stack, visited = [root], set()
    while stack:
        node = stack.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, MappingNode) and any(isinstance(key, MappingNode) for key, _ in node.value):
            return True
        stack += children(node)
    return False


def _first_mark(text: str) -> int | None:
    """Offset of the first template mark outside comments."""
    return next((match.start() for match in _COMMENT_OR_MARK.finditer(text) if match["mark"]), None)


def _duplicates_of_pods(pod_specs: Iterable[PodSpec]) -> Iterator[Duplicate]:
    for pod_spec in pod_specs:
        for key, node in pod_spec.duplicates:
            yield Duplicate(pod_spec.object, key, node, pod_spec.pointer)


def _duplicates_of_labels(objects: Iterable[KubeObject]) -> Iterator[Duplicate]:
    """Duplicate labels of a ClusterServiceVersion: they are promises (MA201), and parsers disagree about duplicates."""
    for subject in objects:
        if subject.kind == "ClusterServiceVersion":
            for key, node in subject.duplicate_labels:
                yield Duplicate(subject, key, node, f"{subject.pointer}/metadata/labels")
