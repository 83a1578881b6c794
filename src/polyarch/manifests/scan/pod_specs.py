"""The Kubernetes objects of a document, their pod specifications, and where those are.

An object is the document itself, or an item of a list. Other texts (a values file with a pod specification) get a
:class:`KubeObject` with an empty kind, too, so that every finding has an object and a position.

Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from polyarch.kube.patches import pointer
from polyarch.manifests.finding import ObjectReference
from polyarch.manifests.operations import Replace, TreeOperation
from polyarch.manifests.scan import kinds
from polyarch.manifests.scan.composer import scalar_value
from polyarch.manifests.scan.kinds import USUAL, PodPlace
from polyarch.manifests.scan.nodes import (
    Document,
    duplicate_keys,
    effective,
    elements,
    find,
    get,
    is_null,
    members,
    text_of,
)
from polyarch.selectors import is_label_key, is_label_value

_SOURCE = re.compile(r"^# Source: (\S.*?)[ \t]*$", re.MULTILINE)
_ORIGIN_ANNOTATION = "config.kubernetes.io/origin"


@dataclass(frozen=True, eq=False)
class KubeObject:
    """One object of a file; ``pointer`` is its place in the document, ``/items/3`` in a list."""

    document: Document
    node: Node
    pointer: str
    api_version: str
    kind: str
    namespace: str
    name: str
    origin: str
    """Source of the text, if it names one."""
    patched_by: str | None = None
    """The folder of the kustomization that names the file as a patch: then this is a part of an object. None: it is
    whole.
    """

    @property
    def reference(self) -> ObjectReference:
        return ObjectReference(self.api_version, self.kind, self.namespace, self.name)

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def metadata(self) -> Node | None:
        return get(self.node, "metadata")

    @property
    def duplicate_labels(self) -> list[tuple[str, Node]]:
        """Duplicate labels: the key, and the node of its repetition."""
        labels = get(self.metadata, "labels")
        return duplicate_keys(labels) if labels is not None else []


def objects_of(document: Document, *, patched_by: str | None = None) -> Iterator[KubeObject]:
    """The object of a document, or those in lists at any depth (any kind ending in ``List``)."""
    yield from _objects(document, document.root, "", _chart_source(document), patched_by)


def _objects(
    document: Document, node: Node, path: str, source: str, patched_by: str | None, implied: tuple[str, str] = ("", "")
) -> Iterator[KubeObject]:
    """``implied`` are the API version and kind of an item that has none: an API server leaves them out in a list."""
    kind = text_of(get(node, "kind")) or implied[1]
    version = text_of(get(node, "apiVersion")) or implied[0]
    if kind.endswith("List"):
        items = get(node, "items")
        if isinstance(items, SequenceNode):
            one = kind.removesuffix("List")
            for index, item in enumerate(items.value):
                at = f"{path}{pointer('items', index)}"
                yield from _objects(document, item, at, source, patched_by, (version, one) if one else ("", ""))
            return
    metadata = get(node, "metadata")
    annotation = text_of(find(metadata, "annotations", _ORIGIN_ANNOTATION))
    yield KubeObject(
        document=document,
        node=node,
        pointer=path,
        api_version=version,
        kind=kind,
        namespace=text_of(get(metadata, "namespace")) or "",
        name=text_of(get(metadata, "name")) or text_of(get(metadata, "generateName")) or "",
        origin=", ".join(annotation.split("\n")).rstrip(", ") if annotation else source,
        patched_by=patched_by,
    )


def _chart_source(document: Document) -> str:
    """The path in the comment that ``helm template`` writes: ``# Source: chart/templates/web.yaml``."""
    text = document.source.text
    start, end = document.chunk_start, document.start(document.root)
    match = _SOURCE.search(text, start, end) if text.find("# Source:", start, end) >= 0 else None
    return match[1] if match else ""


def has_image_trigger(subject: KubeObject) -> bool:
    """Whether OpenShift sets images of an object: a DeploymentConfig's triggers, or the annotation of other kinds."""
    if find(subject.metadata, "annotations", "image.openshift.io/triggers") is not None:
        return True
    triggers = elements(find(subject.node, "spec", "triggers")) if subject.kind == "DeploymentConfig" else ()
    return any(text_of(get(each, "type")) == "ImageChange" for each in triggers)


# -- a pod specification as rules see it: its images and node constraints, with their positions in the text ------------
# Nothing is checked or refused here: a null term, an expression without an operator or a weight that is a string are
# all represented, because rules report them.


Role = Literal["container", "init", "ephemeral", "volume"]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERMS = "nodeSelectorTerms"


class NamedText(NamedTuple):
    """A text that a container is given, and its place."""

    name: str
    text: str
    node: Node
    pointer: str


@dataclass(frozen=True, eq=False)
class ImageUse:
    """An image that a pod needs."""

    text: str
    """As it is written; empty where the container names none."""
    resolved_text: str
    """The image to inspect: after the ``images`` of the nearest kustomization."""
    role: Role
    container: str
    """Name of the container or volume."""
    node: Node
    """The image's scalar; the container where there is none."""
    pointer: str
    """Pointer of the image, even if it is missing."""
    holder: Node
    """The container or volume itself."""
    holder_pointer: str

    @property
    def environment(self) -> Iterator[NamedText]:
        """The variables of the container that have a name and a literal value."""
        for index, variable in enumerate(elements(get(self.holder, "env"))):
            name, node = text_of(get(variable, "name")), get(variable, "value")
            text = text_of(node)
            if name and node is not None and text:
                yield NamedText(name, text, node, f"{self.holder_pointer}/env/{index}/value")

    @property
    def arguments(self) -> Iterator[NamedText]:
        """The words of ``command`` and ``args``; the name is that of the field."""
        for field in ("command", "args"):
            for index, node in enumerate(elements(get(self.holder, field))):
                text = text_of(node)
                if text:
                    yield NamedText(field, text, node, f"{self.holder_pointer}/{field}/{index}")


@dataclass(frozen=True, eq=False)
class Expression:
    """One of ``matchExpressions`` or ``matchFields``. A missing member is an empty string with the node None."""

    node: Node
    pointer: str
    key: str
    operator: str
    values: tuple[str, ...]
    key_node: Node | None
    operator_node: Node | None
    values_node: Node | None
    value_nodes: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Term:
    """A node selector term; ``node`` may be a null scalar."""

    node: Node
    pointer: str
    expressions: tuple[Expression, ...]
    fields: tuple[Expression, ...]

    @property
    def is_empty(self) -> bool:
        """Neither expressions nor fields: it matches no node at all."""
        return not self.expressions and not self.fields


@dataclass(frozen=True, eq=False)
class RequiredNodeAffinity:
    """``requiredDuringSchedulingIgnoredDuringExecution``; without terms the API server refuses the pod."""

    node: Node
    pointer: str
    terms_node: Node | None
    terms: tuple[Term, ...]

    @property
    def terms_pointer(self) -> str:
        return f"{self.pointer}/{TERMS}"


@dataclass(frozen=True, eq=False)
class PreferredTerm:
    """One of ``preferredDuringSchedulingIgnoredDuringExecution``."""

    node: Node
    pointer: str
    weight: str | None
    """As it is written; None if it is missing or null."""
    weight_node: Node | None
    preference: Term | None
    bare: Term | None
    """Expressions beside ``preference`` instead of in it (MA111 ``shape``)."""


@dataclass(frozen=True, eq=False)
class LabelEntry:
    """One entry of ``nodeSelector`` or of an object's labels."""

    key: str
    value: str
    key_node: Node
    value_node: Node
    pointer: str


def label_entries(node: Node | None, path: str) -> tuple[LabelEntry, ...]:
    """The entries of the mapping ``node``, whose pointer is ``path``."""
    return tuple(
        LabelEntry(key, text_of(member) or "", key_node, member, path + pointer(key))
        for key, (key_node, member) in members(node).items()
    )


@dataclass(frozen=True, eq=False)
class WorkflowDefaults:
    """A mapping whose node selector and affinity apply if the pod specification has none (Argo's workflow)."""

    node: Node
    pointer: str


@dataclass(frozen=True, eq=False)
class PodSpec:
    """A pod specification, once for each node of the text and object that has it. ``uses`` are all pointers at which it
    is one: aliases may lead to its text from elsewhere, too.
    """

    object: KubeObject
    node: MappingNode
    pointer: str
    uses: tuple[str, ...]
    images: tuple[ImageUse, ...]
    inherited: tuple[WorkflowDefaults, ...] = ()
    """The nearest first."""
    duplicates: tuple[tuple[str, Node], ...] = ()
    """Repeated keys in a mapping that holds the pod specification, or in it (MA902): it is not edited then."""
    place: PodPlace = USUAL
    """What is known of its kind."""
    added_image: str = ""
    """An image of its pods that the text does not name."""
    apart: str = ""
    """Why the text does not say all that its pods require."""

    @property
    def document(self) -> Document:
        return self.object.document

    @property
    def is_patch(self) -> bool:
        """Whether its base completes it. ``null`` removes a member of the base, and a container without an image has
        that of the base (which is left out here).
        """
        return self.object.patched_by is not None

    @property
    def is_part(self) -> bool:
        """Whether it is only a part of a pod specification: what it lacks may be elsewhere."""
        return self.is_patch or bool(self.apart)

    @property
    def constrained_elsewhere(self) -> bool:
        """Whether its kind says nothing of where its pods run."""
        return self.apart in kinds.ELSEWHERE and not self.is_patch

    def _member(self, key: str) -> tuple[Node | None, str]:
        """A member of the pod specification or, if it has none, of the one it inherits from."""
        keys = self.place.selector.split(".") if key == "nodeSelector" else [key]
        node = find(self.node, *keys)
        for outer in self.inherited if not _says(node, key) else ():
            found = get(outer.node, key)
            if _says(found, key):
                return found, outer.pointer + pointer(key)
        return node, self.pointer + pointer(*keys)

    @cached_property
    def node_selector(self) -> tuple[LabelEntry, ...]:
        entries = label_entries(*self._member("nodeSelector"))
        entries = tuple(each for each in entries if not (self.is_patch and is_null(each.value_node)))
        required = self.required_architecture
        return entries if required is None else (*entries, required)

    @cached_property
    def required_architecture(self) -> LabelEntry | None:
        """The architecture that a field of the kind requires, as the entry of the node selector that it becomes."""
        field = self.place.architecture
        node = get(self.node, field) if field else None
        text = text_of(node)
        if node is None or not text:
            return None
        return LabelEntry("kubernetes.io/arch", text, node, node, self.pointer + pointer(field))

    @property
    def node_selector_field(self) -> tuple[Node | None, str]:
        """The node of ``nodeSelector`` and its pointer."""
        return self._member("nodeSelector")

    @cached_property
    def affinity(self) -> tuple[Node | None, str]:
        """The node of ``affinity`` (None: missing; may be null) and its pointer."""
        return self._member("affinity")

    @cached_property
    def node_affinity(self) -> tuple[Node | None, str]:
        node, path = self.affinity
        return get(node, "nodeAffinity"), f"{path}/nodeAffinity"

    @cached_property
    def required(self) -> RequiredNodeAffinity | None:
        """None if the key is missing or null: the API server takes both as no requirement."""
        outer, path = self.node_affinity
        node = get(outer, REQUIRED)
        if node is None or is_null(node):
            return None
        path = f"{path}/{REQUIRED}"
        terms_node = get(node, TERMS)
        if self.is_patch and not elements(terms_node):
            return None
        terms = tuple(_term(term, f"{path}/{TERMS}/{index}") for index, term in enumerate(elements(terms_node)))
        return RequiredNodeAffinity(node, path, terms_node, terms)

    @cached_property
    def preferred(self) -> tuple[PreferredTerm, ...]:
        outer, path = self.node_affinity
        return tuple(
            _preferred(node, f"{path}/{PREFERRED}/{index}")
            for index, node in enumerate(elements(get(outer, PREFERRED)))
        )

    @property
    def os_name_node(self) -> Node | None:
        return find(self.node, "os", "name")

    @property
    def os_name(self) -> str:
        return text_of(self.os_name_node) or ""

    @property
    def node_name(self) -> str:
        """The node that the manifest sets, which bypasses the scheduler."""
        return text_of(get(self.node, "nodeName")) or ""

    @property
    def tolerations(self) -> tuple[Node, ...]:
        return tuple(elements(self._member("tolerations")[0]))


def _says(node: Node | None, key: str) -> bool:
    """Whether a member counts where others could be inherited: an empty node selector does not."""
    return not is_null(node) and not (key == "nodeSelector" and isinstance(node, MappingNode) and not node.value)


def _term(node: Node, path: str) -> Term:
    return Term(node, path, _expressions(node, path, "matchExpressions"), _expressions(node, path, "matchFields"))


def _expressions(term: Node, path: str, key: str) -> tuple[Expression, ...]:
    return tuple(
        _expression(node, f"{path}/{key}/{index}")
        for index, node in enumerate(elements(get(term, key)))
        if not is_null(node)
    )


def _expression(node: Node, path: str) -> Expression:
    key_node, operator_node, values_node = get(node, "key"), get(node, "operator"), get(node, "values")
    value_nodes = tuple(elements(values_node))
    return Expression(
        node=node,
        pointer=path,
        key=text_of(key_node) or "",
        operator=text_of(operator_node) or "",
        values=tuple(text_of(value) or "" for value in value_nodes),
        key_node=key_node,
        operator_node=operator_node,
        values_node=values_node,
        value_nodes=value_nodes,
    )


def _preferred(node: Node, path: str) -> PreferredTerm:
    weight_node, preference = get(node, "weight"), get(node, "preference")
    bare = None if is_null(get(node, "matchExpressions")) and is_null(get(node, "matchFields")) else _term(node, path)
    return PreferredTerm(
        node=node,
        pointer=path,
        weight=text_of(weight_node),
        weight_node=weight_node,
        preference=None if preference is None else _term(preference, f"{path}/preference"),
        bare=bare,
    )


# -- what the API server refuses in a node selector or a node affinity -------------------------------------------------


OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
FIELD = "metadata.name"
"""The only field by which ``matchFields`` selects nodes."""


_VARIABLE = re.compile(
    r"\{\{.*\}\}|\{%.*%\}|<%.*%>|\(\(.*\)\)|\[\[.*\]\]|\$[({\[A-Za-z_]|__\w+?__|<[\w .-]+>|%\w+%|@@?\w+@",
    re.ASCII | re.DOTALL,
)


def is_variable(text: str) -> bool:
    """Whether a text is, or has, something that a later step fills in: ``{{x}}``, ``$(x)``, ``${x}``, ``__X__``, and so
    on.
    """
    return bool(_VARIABLE.search(text))


class Mistake(NamedTuple):
    """One mistake, and the operation that corrects it where only one thing can be meant."""

    what: str
    node: Node
    pointer: str
    operation: TreeOperation | None = None


def mistakes(pod_spec: PodSpec) -> Iterator[Mistake]:
    """What Kubernetes cannot decode or refuses, in the order of the text's fields. Null is no mistake here, nor is an
    empty list of architectures, which no node satisfies (MA104).
    """
    node, where = pod_spec.node_selector_field
    yield from _misfit(node, where, MappingNode, "a mapping of labels")
    for entry in label_entries(node, where):
        yield from _no_key(entry.key, entry.key_node, entry.pointer)
        yield from _no_text(entry.value_node, entry.pointer)
        if not (is_variable(entry.value) or is_label_value(entry.value)):
            yield Mistake(f"{entry.value!r} is no value of a label", entry.value_node, entry.pointer)
    node, where = pod_spec.affinity
    outer = get(pod_spec.node, "nodeAffinity") if get(pod_spec.node, "containers") is not None else None
    if outer is not None:
        yield Mistake("nodeAffinity stands beside affinity instead of in it", outer, f"{pod_spec.pointer}/nodeAffinity")
    yield from _misfit(node, where, MappingNode, "a mapping with nodeAffinity")
    node, where = pod_spec.node_affinity
    yield from _misfit(node, where, MappingNode, f"a mapping with {REQUIRED} and {PREFERRED}")
    required, preferred = get(node, REQUIRED), get(node, PREFERRED)
    yield from _misfit(required, f"{where}/{REQUIRED}", MappingNode, f"a mapping with {TERMS}")
    yield from _misfit(preferred, f"{where}/{PREFERRED}", SequenceNode, "a list of weights and preferences")
    terms, at = get(required, TERMS), f"{where}/{REQUIRED}/{TERMS}"
    yield from _misfit(terms, at, SequenceNode, "a list of terms")
    for index, term in enumerate(elements(terms)):
        yield from _mistakes_of_term(term, f"{at}/{index}")
    for index, weighed in enumerate(elements(preferred)):
        preference = get(weighed, "preference")
        yield from _mistakes_of_term(preference, f"{where}/{PREFERRED}/{index}/preference")


def _mistakes_of_term(term: Node | None, where: str) -> Iterator[Mistake]:
    yield from _misfit(term, where, MappingNode, "a mapping with matchExpressions")
    if not isinstance(term, MappingNode):
        return
    for key, (key_node, _) in members(term).items():
        if key not in ("matchExpressions", "matchFields") and not key.startswith("$"):
            yield Mistake(f"a term has no {key}", key_node, where + pointer(key))
    for field in ("matchExpressions", "matchFields"):
        listed = get(term, field)
        yield from _misfit(listed, f"{where}/{field}", SequenceNode, "a list of expressions")
        for index, node in enumerate(elements(listed)):
            at = f"{where}/{field}/{index}"
            if isinstance(node, MappingNode):
                yield from _mistakes_of_expression(_expression(node, at), of_fields=field == "matchFields")
            else:
                yield Mistake("an expression is not a mapping with key, operator and values", node, at)


def _mistakes_of_expression(clause: Expression, *, of_fields: bool) -> Iterator[Mistake]:
    operator, node = clause.operator, clause.operator_node
    at, key = f"{clause.pointer}/key", clause.key_node
    if key is None or is_null(key):
        yield Mistake("an expression has no key", key or clause.node, clause.pointer if key is None else at)
    elif not isinstance(key, ScalarNode) or not isinstance(scalar_value(key), str):
        yield from _no_text(key, at)
    elif not of_fields:
        yield from _no_key(clause.key, key, at)
    elif clause.key != FIELD and not is_variable(clause.key):
        yield Mistake(f"{clause.key!r} is no field that nodes are selected by; there is {FIELD}", key, at)
    if is_variable(operator):
        return
    if operator not in OPERATORS:
        at = f"{clause.pointer}/operator"
        meant = next((each for each in OPERATORS if each.lower() == operator.lower()), None)
        if node is None or is_null(node):
            yield Mistake("an expression has no operator", clause.node, clause.pointer)
        elif isinstance(node, ScalarNode):
            what = f"{operator} is no operator; there are {', '.join(OPERATORS)}"
            yield Mistake(what, node, at, Replace(at, meant) if meant else None)
        else:
            yield Mistake("operator is not a text", node, at)
        return
    at, values = f"{clause.pointer}/values", clause.values_node
    if not is_null(values) and not isinstance(values, SequenceNode):
        text = text_of(values)
        correct = Replace(at, [text]) if text else None
        yield Mistake(f"values of {operator} is not a list", values or clause.node, at, correct)
        return
    for index, value in enumerate(clause.value_nodes):
        yield from _no_text(value, f"{at}/{index}")
    count = len(clause.values)
    if of_fields and (operator not in ("In", "NotIn") or count != 1):
        yield Mistake("matchFields takes In or NotIn with one value", clause.node, clause.pointer)
        return
    missing = at if values is not None else clause.pointer
    is_judged = operator == "In" and clause.key.endswith(("kubernetes.io/arch", "kubernetes.io/os"))
    if operator in ("In", "NotIn") and not count and not is_judged:
        yield Mistake(f"{operator} needs values", values or clause.node, missing)
    elif operator in ("Exists", "DoesNotExist") and count:
        yield Mistake(f"{operator} takes no values", values or clause.node, at)
    elif operator in ("Gt", "Lt") and count != 1:
        yield Mistake(
            f"{operator} takes one value", values or clause.node, at if values is not None else clause.pointer
        )


def _misfit(node: Node | None, where: str, kind: type[Node], expected: str) -> Iterator[Mistake]:
    if not is_null(node) and not isinstance(node, kind) and node is not None:
        yield Mistake(f"{where.rpartition('/')[2]} is not {expected}", node, where)


def _no_key(key: str, node: Node, where: str) -> Iterator[Mistake]:
    if not (is_variable(key) or key.startswith("$") or is_label_key(key)):
        yield Mistake(f"{key!r} is no key of a label", node, where)


def _no_text(node: Node, where: str) -> Iterator[Mistake]:
    """A number or a boolean, which quotes make a text."""
    if isinstance(node, ScalarNode):
        if not isinstance(scalar_value(node), str | None):
            text = str(node.value)
            yield Mistake(f"{text} is not a text without quotes", node, where, Replace(where, text))
    else:
        yield Mistake("a value is not a text", node, where)


# -- where pod specifications are: by kind as ``kinds.py`` says, in any other mapping by shape -------------------------


_POD_LISTS: tuple[tuple[str, Role], ...] = (
    ("containers", "container"),
    ("initContainers", "init"),
    ("ephemeralContainers", "ephemeral"),
)


@dataclass(frozen=True, eq=False)
class ImageUser:
    """A container or an image volume, which holds an image in ``image`` or ``image.reference``, or a mapping of a
    custom resource with the image of a container that its operator makes.
    """

    node: MappingNode
    pointer: str
    role: Role
    name: str
    field: str = "image"
    is_container: bool = True


@dataclass(frozen=True, eq=False)
class PodSpecLocation:
    """A mapping with ``affinity`` and ``nodeSelector``, and the containers and volumes of its pods."""

    node: MappingNode
    pointer: str
    holders: tuple[ImageUser, ...]
    inherited: tuple[WorkflowDefaults, ...] = ()
    covers: Node | None = None
    """A mapping below it that has the shape of a pod specification and is part of this one."""
    place: PodPlace = USUAL
    added_image: str = ""
    apart: str = ""


def known_places(subject: KubeObject) -> Iterator[PodSpecLocation]:
    """The pod specifications that a kind is known to have."""
    return places_of(subject.kind, subject.node, subject.pointer, group=subject.group)


def places_of(kind: str, node: Node, where: str = "", *, group: str = "") -> Iterator[PodSpecLocation]:
    """The same for a node of a kind; ``where`` is its pointer in the document."""
    if kind in kinds.WORKFLOWS:
        yield from _workflow(node, where, kinds.WORKFLOWS[kind])
    elif kind in kinds.RUNS:
        yield from _tekton_run(kind, node, where)
    elif kind in kinds.TASKS:
        yield from _tekton_tasks(kind, node, where)
    for place, within, rest in kinds.rows(kind, group) if isinstance(node, MappingNode) else ():
        meant = next((each.place for each in place.variants if text_of(find(node, *each.field)) in each.values), place)
        for found, at in _along(node, where, within):
            yield from _located(meant, node, where, found, at, rest)


def _located(
    place: PodPlace, root: Node, where: str, outer: MappingNode, outer_at: str, rest: str
) -> Iterator[PodSpecLocation]:
    """The pods of a row at one place; ``rest`` is the way from there that may be missing."""
    spec: Node | None = outer
    at, added = outer_at, ""
    images: list[ImageUser] = []
    if rest:
        way = rest.split(".")
        spec, at = find(outer, *way), outer_at + pointer(*way)
    if place.images:
        images, added = _named_images(place, root, where, spec, at)
    if not isinstance(spec, MappingNode):
        if not is_null(spec) or not (images or added):
            return
        spec = _missing(outer)
    holders = list(pod_holders(spec, at))
    for field in place.containers:
        holders += _holders(get(spec, field), at + pointer(field), "container")
    if place.completed:
        holders = [each for each in holders if each.role == "volume" or text_of(get(each.node, each.field))]
    inherited = tuple(
        WorkflowDefaults(found, there) for path in place.inherits for found, there in _along(root, where, path)
    )
    yield PodSpecLocation(spec, at, (*images, *holders), inherited, place=place, added_image=added, apart=place.apart)


def _missing(outer: MappingNode) -> MappingNode:
    """An empty mapping that could be written below another one; it stands where that starts."""
    first = outer.value[0][0] if outer.value else outer
    return MappingNode(outer.tag, [], first.start_mark, first.end_mark, flow_style=True)


def _named_images(place: PodPlace, root: Node, where: str, spec: Node | None, at: str) -> tuple[list[ImageUser], str]:
    """The images that a custom resource names beside containers, and which one its operator adds."""
    found: list[ImageUser] = []
    added = ""
    for way in place.images:
        own: list[ImageUser] = []
        for path in way.split("|"):
            start, here = (spec, at) if path.startswith(".") else (root, where)
            keys, _, field = path.removeprefix(".").rpartition(".")
            for holder, there in _along(start, here, keys):
                if (get(holder, field) is not None and not own) or ("*" in keys and get(holder, field) is not None):
                    own.append(ImageUser(holder, there, "container", path.removeprefix("."), field, is_container=False))
                elif "*" not in keys and get(holder, field) is None:
                    added = added or path
            if own:
                break
        found += own
        if own and "|" in way:
            added = ""
    return found, added


def shaped_places(subject: KubeObject, taken: set[int]) -> Iterator[PodSpecLocation]:
    """Every other mapping with ``containers`` that each have a name and an image.

    ``taken`` are the ``id()`` of the mappings that known places have or cover; each node is visited once, however many
    aliases lead to it.
    """
    shared = subject.document.shared
    visited: set[int] = set()
    stack: list[tuple[Node, str, bool]] = [(subject.node, subject.pointer, False)]
    while stack:
        node, where, within = stack.pop()
        if shared:
            if id(node) in visited:
                continue
            visited.add(id(node))
        if isinstance(node, MappingNode):
            kind = text_of(get(node, "kind"))
            version = text_of(get(node, "apiVersion")) if kind else None
            within = within or bool((kind and version) or (node is subject.node and subject.kind))
            if kind and version and node is not subject.node:
                inner = list(places_of(kind, node, where, group=version.rpartition("/")[0]))
                taken |= {id(each) for place in inner for each in (place.node, place.covers)}
                yield from inner
            if id(node) not in taken and has_pod_shape(node):
                constrained = get(node, "affinity") is not None or get(node, "nodeSelector") is not None
                apart = "" if within or constrained else "it is in no Kubernetes object"
                yield PodSpecLocation(node, where, pod_holders(node, where), apart=apart)
        below = [
            (child, where + pointer(key), within) for key, child in effective(node) if not isinstance(child, ScalarNode)
        ]
        stack += reversed(below)


def pod_holders(node: Node, where: str) -> tuple[ImageUser, ...]:
    """The containers of a pod specification in the order of their fields, then its image volumes."""
    found = [
        holder for field, role in _POD_LISTS for holder in _holders(get(node, field), where + pointer(field), role)
    ]
    for index, volume in enumerate(elements(get(node, "volumes"))):
        image = get(volume, "image")
        if isinstance(volume, MappingNode) and isinstance(image, MappingNode):
            name = text_of(get(volume, "name")) or ""
            found.append(ImageUser(volume, f"{where}/volumes/{index}", "volume", name))
    return tuple(found)


def has_pod_shape(node: Node) -> bool:
    """Whether a node is a pod specification wherever it stands: it has containers with a name and an image each."""
    containers = get(node, "containers")
    return (
        isinstance(containers, SequenceNode)
        and bool(containers.value)
        and all(
            isinstance(container, MappingNode)
            and get(container, "name") is not None
            and get(container, "image") is not None
            for container in containers.value
        )
    )


def _holders(sequence: Node | None, where: str, role: Role) -> Iterator[ImageUser]:
    for index, node in enumerate(elements(sequence)):
        if isinstance(node, MappingNode):
            yield ImageUser(node, f"{where}/{index}", role, text_of(get(node, "name")) or "")


def _along(node: Node | None, where: str, path: str) -> Iterator[tuple[MappingNode, str]]:
    """The mappings at a path of :class:`PodPlace`."""
    if not path:
        if isinstance(node, MappingNode):
            yield node, where
        return
    key, _, rest = path.partition(".")
    if key.startswith("*"):
        for segment, child in effective(node) if node is not None else ():
            if str(segment).endswith(key[1:]):
                yield from _along(child, where + pointer(segment), rest)
    else:
        yield from _along(get(node, key), where + pointer(key), rest)


def unknown_images(root: Node, where: str, taken: set[int]) -> list[tuple[str, Node, str]]:
    """What looks like an image in an object that begins at ``root``, with the pointer ``where``, outside of its status
    and of the nodes whose ``id()`` is ``taken``: text, node, pointer.

    A text with a tag, a digest or a registry below a key such as ``image`` or ``sidecarImage``, or a mapping ``image``
    with a repository.
    """
    found: list[tuple[str, Node, str]] = []
    stack: list[tuple[Node, str]] = [(root, where)]
    visited: set[int] = set()
    while stack:
        node, where = stack.pop()
        if id(node) in visited or id(node) in taken:
            continue
        visited.add(id(node))
        below: list[tuple[Node, str]] = []
        for key, child in effective(node):
            if key == "status" and node is root:
                continue
            here = where + pointer(key)
            if isinstance(child, ScalarNode):
                named = isinstance(key, str) and (_IMAGE_KEY.search(key) or (key == "repository" and _in_image(where)))
                text = text_of(child) if named and id(child) not in taken else None
                if text and (_IMAGE.fullmatch(text) or key == "repository"):
                    found.append((text, child, here))
            else:
                below.append((child, here))
        stack += reversed(below)
    return found


_IMAGE_KEY = re.compile(r"(?:^|[a-z])image$|Image(?:Name)?$|^imageName$")
_IMAGE = re.compile(
    r"(?:[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::[0-9]+)?/)?[a-z0-9._-]+(?:/[a-z0-9._-]+)*(?::[A-Za-z0-9_][\w.-]*|@sha256:[0-9a-f]{64})"
    r"|[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::[0-9]+)?/[a-z0-9._-]+(?:/[a-z0-9._-]+)*",
    re.ASCII,
)
"""An image reference with a tag or digest, or with a registry."""


def _in_image(where: str) -> bool:
    return bool(_IMAGE_KEY.search(where.rpartition("/")[2]))


# -- Argo and Tekton, whose pods are put together from several places --------------------------------------------------


_ARGO_FIELDS = ("container", "script")
PATCHED = "a podSpecPatch may change what it requires"


def _workflow(workflow: Node, place: str, path: str) -> Iterator[PodSpecLocation]:
    """Argo: each template is a pod. What a template lacks is that of ``templateDefaults``; where neither has an
    affinity or a node selector, those of the workflow hold.
    """
    for spec, where in _along(workflow, place, path):
        defaults = get(spec, "templateDefaults")
        outer = [WorkflowDefaults(spec, where)]
        if isinstance(defaults, MappingNode):
            outer.insert(0, WorkflowDefaults(defaults, f"{where}/templateDefaults"))
        for template, here in _argo_templates(get(spec, "templates"), f"{where}/templates"):
            holders = list(_argo_containers(template, here, defaults, f"{where}/templateDefaults"))
            if holders:
                patched = any(get(each, "podSpecPatch") is not None for each in (template, defaults, spec))
                yield PodSpecLocation(
                    template,
                    here,
                    tuple(holders),
                    tuple(outer),
                    get(template, "containerSet"),
                    apart=PATCHED if patched else "",
                )


def _argo_templates(templates: Node | None, where: str) -> Iterator[tuple[MappingNode, str]]:
    """The templates, and those that steps and tasks have inline."""
    for index, template in enumerate(elements(templates)):
        if not isinstance(template, MappingNode):
            continue
        here = f"{where}/{index}"
        yield template, here
        tasks = find(template, "dag", "tasks")
        groups = [(tasks, f"{here}/dag/tasks")]
        groups += [(group, f"{here}/steps/{number}") for number, group in enumerate(elements(get(template, "steps")))]
        for group, there in groups:
            for number, step in enumerate(elements(group)):
                inline = get(step, "inline")
                if isinstance(inline, MappingNode):
                    yield inline, f"{there}/{number}/inline"


def _argo_containers(template: Node, where: str, defaults: Node | None, defaults_at: str) -> Iterator[ImageUser]:
    for field in _ARGO_FIELDS:
        node, at = get(template, field), where
        if isinstance(node, MappingNode) and get(node, "image") is None and get(get(defaults, field), "image"):
            node, at = get(defaults, field), defaults_at
        if isinstance(node, MappingNode):
            yield ImageUser(node, f"{at}/{field}", "container", text_of(get(node, "name")) or "main")
    containers = find(template, "containerSet", "containers")
    yield from _holders(containers, f"{where}/containerSet/containers", "container")
    yield from _holders(get(template, "initContainers"), f"{where}/initContainers", "init")
    yield from _holders(get(template, "sidecars"), f"{where}/sidecars", "container")


def _tekton_run(kind: str, run: Node, place: str) -> Iterator[PodSpecLocation]:
    """Tekton: each task that the run itself spells out is a pod, by the pod template of the task or of the run; those
    of a referenced task are not known here.
    """
    spec, where = get(run, "spec"), f"{place}/spec"
    if not isinstance(spec, MappingNode):
        return
    way: tuple[str, ...] = ("podTemplate",)
    if kind == "PipelineRun" and find(spec, *way) is None and _version(run) != "v1beta1":
        way = ("taskRunTemplate", "podTemplate")
    common, common_at = find(spec, *way), where + pointer(*way)
    missing = _missing(spec)
    for name, task, task_at in _tekton_inline(spec, where):
        holders = tuple(_steps(task, task_at))
        own, own_at = _tekton_own_template(spec, where, name)
        if not holders:
            continue
        if isinstance(own, MappingNode):
            inherited = (WorkflowDefaults(common, common_at),) if isinstance(common, MappingNode) else ()
            yield PodSpecLocation(own, own_at, holders, inherited)
        elif isinstance(common, MappingNode):
            yield PodSpecLocation(common, common_at, holders)
        elif is_null(common):
            yield PodSpecLocation(missing, common_at, holders)


def _tekton_tasks(kind: str, root: Node, place: str) -> Iterator[PodSpecLocation]:
    """What runs are made of: the images are known here, their pods' constraints are not."""
    spec, where = get(root, "spec"), f"{place}/spec"
    if not isinstance(spec, MappingNode):
        return
    if kind == "StepAction" and get(spec, "image") is not None:
        holder = ImageUser(spec, where, "container", "", is_container=False)
        yield PodSpecLocation(_missing(spec), where, (holder,), apart=kinds.TASKS_APART)
    inline = _tekton_parts(spec, where) if kind == "Pipeline" else [("", spec, where)]
    for _, task, task_at in inline:
        holders = tuple(_steps(task, task_at))
        if holders:
            yield PodSpecLocation(_missing(spec), task_at, holders, apart=kinds.TASKS_APART)


def _tekton_inline(spec: Node, where: str) -> Iterator[tuple[str, Node, str]]:
    task = get(spec, "taskSpec")
    if task is not None:
        yield "", task, f"{where}/taskSpec"
    yield from _tekton_parts(get(spec, "pipelineSpec"), f"{where}/pipelineSpec")


def _tekton_parts(pipeline: Node | None, where: str) -> Iterator[tuple[str, Node, str]]:
    """The tasks that a pipeline spells out: name, specification and its pointer."""
    for field in ("tasks", "finally"):
        for index, part in enumerate(elements(get(pipeline, field))):
            task = get(part, "taskSpec")
            if task is not None:
                yield text_of(get(part, "name")) or "", task, f"{where}/{field}/{index}/taskSpec"


def _tekton_own_template(spec: Node, where: str, name: str) -> tuple[Node | None, str]:
    for index, own in enumerate(elements(get(spec, "taskRunSpecs"))):
        for field in ("podTemplate", "taskPodTemplate"):
            node = get(own, field)
            if name and text_of(get(own, "pipelineTaskName")) == name and node is not None:
                return node, f"{where}/taskRunSpecs/{index}/{field}"
    return None, ""


def _version(root: Node) -> str:
    return (text_of(get(root, "apiVersion")) or "").rpartition("/")[2]


def _steps(task: Node | None, where: str) -> Iterator[ImageUser]:
    """The steps and sidecars; a step without an image has that of ``stepTemplate``, or is defined elsewhere."""
    template = get(task, "stepTemplate")
    common = (
        [ImageUser(template, f"{where}/stepTemplate", "container", "")] if isinstance(template, MappingNode) else []
    )
    for holder in _holders(get(task, "steps"), f"{where}/steps", "container"):
        if get(holder.node, "image") is not None:
            yield holder
        elif get(holder.node, "ref") is None:
            if common and get(template, "image") is not None:
                yield from common
                common = []
            elif get(template, "image") is None:
                yield holder
    yield from _holders(get(task, "sidecars"), f"{where}/sidecars", "container")
