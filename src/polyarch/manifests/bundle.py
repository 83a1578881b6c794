"""An operator bundle: its ClusterServiceVersion, the labels that promise architectures, and its files.

The images of a bundle are those of its deployments, those that ``RELATED_IMAGE_*`` variables pass to the operator,
and ``spec.relatedImages``, which mirrors copy. A text that occurs in several places is one :class:`BundleImage`.

Pure: :class:`BundleTree` is what the caller has read.
"""

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from yaml.nodes import MappingNode, Node, ScalarNode

from polyarch.manifests.scan.composer import children
from polyarch.manifests.scan.nodes import SyntaxProblem, compose, elements, find, get, is_null, text_of
from polyarch.manifests.scan.pod_specs import ImageUse, KubeObject, LabelEntry, PodSpec, label_entries
from polyarch.manifests.scan.scanning import Scan, scan
from polyarch.manifests.scan.sets import meant_architecture, meant_system
from polyarch.manifests.scan.text import SourceText, UnreadableText
from polyarch.platforms import KNOWN_ARCHITECTURES, KNOWN_SYSTEMS, NodePlatform, PlatformSet

KIND = "ClusterServiceVersion"
VARIABLE_PREFIX = "RELATED_IMAGE_"
MANAGER = "manager"
PROXY = "kube-rbac-proxy"
"""Sidecar that operator-sdk adds to each operator: never the manager."""

Where = Literal["deployment", "variable", "related"]


@dataclass(frozen=True, eq=False)
class ImageText:
    """One reference to an image; ``name`` is that of the container, variable or related image."""

    text: str
    where: Where
    name: str
    node: Node
    pointer: str
    use: ImageUse | None = None
    """Set for an image of a pod."""


def deployed_images(pod_specs: Iterable[PodSpec]) -> Iterator[ImageText]:
    """The images of all containers and image volumes that name one."""
    for pod_spec in pod_specs:
        for use in pod_spec.images:
            if use.resolved_text:
                yield ImageText(use.resolved_text, "deployment", use.container, use.node, use.pointer, use)


@dataclass(frozen=True, eq=False)
class BundleImage:
    """An image of the bundle and all its places, in the order of the text's fields."""

    text: str
    places: tuple[ImageText, ...]

    @property
    def first(self) -> ImageText:
        return self.places[0]

    def is_in(self, *where: Where) -> bool:
        return any(place.where in where for place in self.places)


@dataclass(frozen=True, eq=False)
class ServiceVersion:
    """One ClusterServiceVersion; ``pod_specs`` are those of its deployments."""

    object: KubeObject
    pod_specs: tuple[PodSpec, ...]

    @classmethod
    def of(cls, subject: KubeObject, pod_specs: Iterable[PodSpec]) -> "ServiceVersion":
        """With the pod specifications of its install strategy among those given."""
        below = f"{subject.pointer}/spec/install/spec/deployments/"
        return cls(subject, tuple(each for each in pod_specs if each.pointer.startswith(below)))

    @cached_property
    def labels(self) -> tuple[LabelEntry, ...]:
        return label_entries(get(self.object.metadata, "labels"), f"{self.object.pointer}/metadata/labels")

    @cached_property
    def images(self) -> tuple[BundleImage, ...]:
        """Every text that names an image of the bundle, by first appearance: deployments, variables, related."""
        found: dict[str, list[ImageText]] = {}
        for place in (*self.deployed, *self.variables, *self.related):
            found.setdefault(place.text, []).append(place)
        return tuple(BundleImage(text, tuple(places)) for text, places in found.items())

    @cached_property
    def deployed(self) -> tuple[ImageText, ...]:
        """The images of all containers and image volumes that name one."""
        return tuple(deployed_images(self.pod_specs))

    @cached_property
    def variables(self) -> tuple[ImageText, ...]:
        """Values of the variables ``RELATED_IMAGE_*``."""
        return tuple(
            ImageText(text, "variable", name, node, where)
            for pod_spec in self.pod_specs
            for use in pod_spec.images
            for name, text, node, where in use.environment
            if name.startswith(VARIABLE_PREFIX)
        )

    @cached_property
    def related(self) -> tuple[ImageText, ...]:
        """``spec.relatedImages``."""
        path = f"{self.object.pointer}/spec/relatedImages"
        found = []
        for index, entry in enumerate(elements(self.related_node)):
            node = get(entry, "image")
            text = text_of(node)
            if node is not None and text:
                name = text_of(get(entry, "name")) or ""
                found.append(ImageText(text, "related", name, node, f"{path}/{index}/image"))
        return tuple(found)

    @property
    def related_node(self) -> Node | None:
        return find(self.object.node, "spec", "relatedImages")

    @cached_property
    def other_scalars(self) -> tuple[tuple[str, str], ...]:
        """Text and pointer of every scalar of the deployments' containers: arguments and variables of any name."""
        return tuple(
            (each.text, each.pointer)
            for pod_spec in self.pod_specs
            for use in pod_spec.images
            for each in (*use.environment, *use.arguments)
        )

    def mentions(self, text: str) -> bool:
        """Whether the text occurs outside ``relatedImages``: in an annotation, an example, a description."""
        return any(text in scalar for scalar in self._scalars)

    @cached_property
    def _scalars(self) -> tuple[str, ...]:
        return tuple(_scalars(self.object.node, self.related_node))

    def managers(self) -> Iterator[ImageUse]:
        """The containers that are the operator itself, deployment by deployment."""
        for pod_spec in self.pod_specs:
            containers = [use for use in pod_spec.images if use.role == "container"]
            named = [use for use in containers if use.container == MANAGER]
            yield from named or (use for use in containers if use.container != PROXY)


def _scalars(node: Node, without: Node | None) -> Iterator[str]:
    stack, visited = [node], {id(without)}
    while stack:
        current = stack.pop()
        if isinstance(current, ScalarNode):
            yield str(current.value)
        elif id(current) not in visited:
            visited.add(id(current))
            below = [member for _, member in current.value] if isinstance(current, MappingNode) else children(current)
            stack += below


# -- the labels with which a bundle promises architectures and operating systems ---------------------------------------
# ``operatorframework.io/arch.<a>`` and ``operatorframework.io/os.<o>`` with the value ``supported`` decide where
# catalogs show an operator. Without a label of a prefix the default is amd64 or linux; *any* key with the prefix,
# whatever its value, removes that default. Architectures and operating systems are judged separately, not as a product:
# a bundle for linux/amd64, linux/arm64 and windows/amd64 may label both systems and both architectures.


ARCHITECTURE_PREFIX = "operatorframework.io/arch."
SYSTEM_PREFIX = "operatorframework.io/os."
SUPPORTED = "supported"


@dataclass(frozen=True, eq=False)
class LabelDimension:
    """Architectures or operating systems: their labels, and their half of a platform."""

    noun: str
    plural: str
    prefix: str
    default: str
    known: frozenset[str]
    meant: Callable[[str], str]
    of: Callable[[NodePlatform], str]


ARCHITECTURES = LabelDimension(
    noun="architecture",
    plural="architectures",
    prefix=ARCHITECTURE_PREFIX,
    default="amd64",
    known=KNOWN_ARCHITECTURES,
    meant=meant_architecture,
    of=lambda platform: platform.architecture,
)
SYSTEMS = LabelDimension(
    noun="operating system",
    plural="operating systems",
    prefix=SYSTEM_PREFIX,
    default="linux",
    known=KNOWN_SYSTEMS,
    meant=meant_system,
    of=lambda platform: platform.os,
)


@dataclass(frozen=True, eq=False)
class AxisLabels:
    """The labels of one prefix."""

    axis: LabelDimension
    entries: tuple[LabelEntry, ...]

    def name(self, entry: LabelEntry) -> str:
        """The part after the prefix."""
        return entry.key[len(self.axis.prefix) :]

    def entry(self, name: str) -> LabelEntry | None:
        return next((each for each in self.entries if self.name(each) == name), None)

    @cached_property
    def promised(self) -> tuple[str, ...]:
        """The known names with the value ``supported``, or the default without labels."""
        if not self.entries:
            return (self.axis.default,)
        names = (self.name(each) for each in self.entries if each.value == SUPPORTED)
        return tuple(name for name in names if name in self.axis.known)

    @cached_property
    def mentioned(self) -> frozenset[str]:
        """All names with a label, whatever its value and spelling."""
        return frozenset(self.axis.meant(self.name(each)) for each in self.entries)

    @property
    def hidden(self) -> bool:
        """The prefix is used but nothing is supported: catalogs show the operator nowhere."""
        return bool(self.entries) and not self.promised


@dataclass(frozen=True, eq=False)
class BundleLabels:
    """Both prefixes."""

    architectures: AxisLabels
    systems: AxisLabels

    @property
    def both(self) -> tuple[tuple[AxisLabels, AxisLabels], ...]:
        """Each axis with the other one."""
        return (self.architectures, self.systems), (self.systems, self.architectures)


def labels_of(service_version: ServiceVersion) -> BundleLabels:
    """Keys are compared as a whole: prefix, then name."""
    return BundleLabels(*(_axis_labels(axis, service_version.labels) for axis in (ARCHITECTURES, SYSTEMS)))


def promised_architectures(scan: Scan) -> tuple[str, ...]:
    """Labelled architectures of a file's ClusterServiceVersions, without defaults, for MA302."""
    found: dict[str, None] = {}
    for subject in scan.objects:
        if subject.kind == KIND:
            labels = labels_of(ServiceVersion.of(subject, ())).architectures
            found |= dict.fromkeys(labels.promised if labels.entries else ())
    return tuple(found)


def _axis_labels(axis: LabelDimension, entries: Iterable[LabelEntry]) -> AxisLabels:
    return AxisLabels(axis, tuple(each for each in entries if each.key.startswith(axis.prefix)))


def names_in(platforms: PlatformSet, labels: AxisLabels, other: AxisLabels) -> frozenset[str]:
    """The names of an axis that occur in platforms with a promised name of the other axis.

    ``platforms`` must not be everything.
    """
    promised = frozenset(other.promised)
    return frozenset(labels.axis.of(each) for each in platforms if other.axis.of(each) in promised)


def keeps(platforms: PlatformSet, name: str, labels: AxisLabels, other: AxisLabels) -> bool:
    """Whether an image keeps the promise of one label: it has a platform of that name and a promised name of the other
    axis. Without any promise on the other axis no image breaks it.
    """
    return platforms.is_everything or not other.promised or name in names_in(platforms, labels, other)


def addable(platforms: PlatformSet, labels: AxisLabels, other: AxisLabels) -> tuple[str, ...]:
    """The names to label, sorted, if all images have ``platforms`` in common.

    They include the default if there is no label yet, because adding one removes the default.
    """
    if platforms.is_everything:
        return ()
    axis = labels.axis
    found = names_in(platforms, labels, other) & axis.known
    if labels.entries:
        return tuple(sorted(found - labels.mentioned))
    return tuple(sorted(found)) if found - {axis.default} else ()


# -- the ClusterServiceVersion among the files of a bundle -------------------------------------------------------------
# A bundle is a directory with ``metadata/annotations.yaml``, which names the manifests directory. Without that file it
# is ``manifests/``, or the directory itself. Everything in the manifests directory is applied to the cluster, so what
# cannot be applied (a sub-directory, a hidden file, a second ClusterServiceVersion) makes the bundle invalid.


ANNOTATIONS = "metadata/annotations.yaml"
MANIFESTS_KEY = "operators.operatorframework.io.bundle.manifests.v1"
MEDIA_TYPE_KEY = "operators.operatorframework.io.bundle.mediatype.v1"
MEDIA_TYPE = "registry+v1"


class BundleNotValid(ValueError):  # noqa: N818 - operator-sdk's name of this error
    """The directory is not a bundle; ``missing`` is true if it has no ClusterServiceVersion."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


@dataclass(frozen=True)
class BundleTree:
    """The files of a directory that a bundle reads.

    ``files`` maps paths relative to ``root``, with ``/``, to contents; ``directories`` are the other paths.
    """

    root: str
    files: Mapping[str, bytes]
    directories: frozenset[str] = frozenset()

    def path(self, relative: str) -> str:
        """The path for findings."""
        return posixpath.join(self.root, relative)


@dataclass(frozen=True, eq=False)
class Bundle:
    """A readable bundle."""

    service_version: ServiceVersion
    scans: tuple[Scan, ...]
    """Its manifests, the ClusterServiceVersion included, sorted by name."""

    @property
    def name(self) -> str:
        """Of the ClusterServiceVersion."""
        return self.service_version.object.name


def load(tree: BundleTree) -> Bundle:
    """The bundle; raises :class:`BundleNotValid`."""
    directory = manifests_directory(tree)
    members = _members(tree, directory)
    scans = [_scan(tree, path) for path in members]
    found = [(each, subject) for each in scans for subject in each.objects if subject.kind == KIND]
    where = tree.path(directory)
    if not found:
        raise BundleNotValid(
            f"no {KIND} in {where}; a bundle has exactly one, generate it with operator-sdk", missing=True
        )
    if len(found) > 1:
        places = ", ".join(_place(subject) for _, subject in found)
        raise BundleNotValid(f"{len(found)} {KIND}s in {where} ({places}); a bundle has exactly one")
    inside, subject = found[0]
    return Bundle(ServiceVersion.of(subject, inside.pod_specs), tuple(scans))


def candidates(tree: BundleTree) -> tuple[str, ...]:
    """The directories that a caller must list before :func:`manifests_directory` can choose; ``tree`` needs only its
    annotations.
    """
    named = _annotations(tree).get(MANIFESTS_KEY)
    return ("manifests", *((posixpath.normpath(named),) if named else ()))


def manifests_directory(tree: BundleTree) -> str:
    """The manifests directory relative to the root; empty for the root itself."""
    annotations = _annotations(tree)
    media_type = annotations.get(MEDIA_TYPE_KEY)
    if media_type is not None and media_type != MEDIA_TYPE:
        raise BundleNotValid(f"{tree.path(ANNOTATIONS)}: {MEDIA_TYPE_KEY} is {media_type!r}; expected {MEDIA_TYPE}")
    named = annotations.get(MANIFESTS_KEY)
    if named is None:
        return "manifests" if _is_directory(tree, "manifests") else ""
    directory = posixpath.normpath(named) if named else "."
    directory = "" if directory == "." else directory
    if directory.startswith(("..", "/")):
        raise BundleNotValid(f"{tree.path(ANNOTATIONS)}: {MANIFESTS_KEY} is {named!r}, which is outside the bundle")
    if directory and not _is_directory(tree, directory):
        raise BundleNotValid(f"{tree.path(ANNOTATIONS)}: {MANIFESTS_KEY} is {named!r}, and there is no such directory")
    return directory


def _annotations(tree: BundleTree) -> dict[str, str]:
    data = tree.files.get(ANNOTATIONS)
    if data is None:
        return {}
    try:
        documents = compose(SourceText.of(tree.path(ANNOTATIONS), data))
    except (UnreadableText, SyntaxProblem) as problem:
        raise BundleNotValid(f"{tree.path(ANNOTATIONS)} is not YAML: {problem}") from None
    node = get(documents[0].root, "annotations") if documents else None
    found = {key: text_of(get(node, key)) for key in (MANIFESTS_KEY, MEDIA_TYPE_KEY)}
    return {key: text for key, text in found.items() if text is not None}


def _is_directory(tree: BundleTree, path: str) -> bool:
    return path in tree.directories or any(each.startswith(f"{path}/") for each in tree.files)


def _members(tree: BundleTree, directory: str) -> list[str]:
    """The files of the directory of the manifests, in the order of their names."""
    found: set[str] = set()
    for path in (*tree.files, *tree.directories):
        relative = posixpath.relpath(path, directory) if directory else path
        if relative.startswith("../") or relative in (".", ".."):
            continue
        first, _, rest = relative.partition("/")
        # If the root is the manifests directory, the metadata in it are not manifests.
        if not directory and first == "metadata":
            continue
        if rest or path in tree.directories:
            raise BundleNotValid(
                f"{tree.path(directory)} has the sub-directory {first}; put all manifests directly into the directory"
            )
        if first.startswith("."):
            raise BundleNotValid(f"{tree.path(directory)} has the hidden file {first}; remove it")
        found.add(path)
    return sorted(found)


def _scan(tree: BundleTree, path: str) -> Scan:
    name = tree.path(path)
    try:
        result = scan(SourceText.of(name, tree.files[path]))
    except UnreadableText as problem:
        raise BundleNotValid(f"{problem}") from None
    if result.template is not None:
        raise BundleNotValid(f"{name} is a template, not YAML")
    try:
        roots = [document.root for document in compose(result.source)]  # including documents that no rule reads
    except SyntaxProblem as problem:
        raise BundleNotValid(f"{name}:{problem.line}:{problem.column}: the file is not YAML: {problem}") from None
    if not any(isinstance(root, MappingNode) for root in roots) or not all(
        isinstance(root, MappingNode) or is_null(root) for root in roots
    ):
        raise BundleNotValid(f"{name} is not YAML with objects in it; keep only manifests in this directory")
    return result


def _place(subject: KubeObject) -> str:
    document = subject.document
    return f"{document.source.path}:{document.span(subject.node).line}"
