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


def _objects(document: Document, node: Node, path: str, source: str, patched_by: str | None) -> Iterator[KubeObject]:
    kind = text_of(get(node, "kind")) or ""
    if kind.endswith("List"):
        items = get(node, "items")
        if isinstance(items, SequenceNode):
            for index, item in enumerate(items.value):
                yield from _objects(document, item, f"{path}{pointer('items', index)}", source, patched_by)
            return
    metadata = get(node, "metadata")
    annotation = text_of(find(metadata, "annotations", _ORIGIN_ANNOTATION))
    yield KubeObject(
        document=document,
        node=node,
        pointer=path,
        api_version=text_of(get(node, "apiVersion")) or "",
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
    """The mapping whose node selector and affinity apply if the pod specification has none (Argo's workflow)."""

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
    inherited: WorkflowDefaults | None = None
    duplicates: tuple[tuple[str, Node], ...] = ()
    """Repeated keys in a mapping that holds the pod specification, or in it (MA902): it is not edited then."""

    @property
    def document(self) -> Document:
        return self.object.document

    @property
    def is_patch(self) -> bool:
        """Whether it is only a part of a pod specification, which its base completes. ``null`` removes a member of the
        base, and a container without an image has that of the base (which is left out here).
        """
        return self.object.patched_by is not None

    def _member(self, key: str) -> tuple[Node | None, str]:
        """A member of the pod specification or, if it has none, of the one it inherits from."""
        node = get(self.node, key)
        if node is None and self.inherited is not None:
            outer = get(self.inherited.node, key)
            if outer is not None:
                return outer, self.inherited.pointer + pointer(key)
        return node, self.pointer + pointer(key)

    @cached_property
    def node_selector(self) -> tuple[LabelEntry, ...]:
        entries = label_entries(*self._member("nodeSelector"))
        return tuple(each for each in entries if not (self.is_patch and is_null(each.value_node)))

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
        """None if the key is missing, or null in a patch; elsewhere null has no terms."""
        outer, path = self.node_affinity
        node = get(outer, REQUIRED)
        if node is None:
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


# -- where pod specifications are: by kind at known paths, in any other mapping by shape -------------------------------
# Only the kind is compared, never the group or version: a fork of an operator keeps the kind and changes the group.


# `*` stands for every element of a list or every member of a mapping.
_TEMPLATE = ("spec", "template", "spec")
_PATHS: dict[str, tuple[tuple[str, ...], ...]] = {
    "Pod": (("spec",),),
    "PodTemplate": (("template", "spec"),),
    "ReplicationController": (_TEMPLATE,),
    "ReplicaSet": (_TEMPLATE,),
    "Deployment": (_TEMPLATE,),
    "StatefulSet": (_TEMPLATE,),
    "DaemonSet": (_TEMPLATE,),
    "Job": (_TEMPLATE,),
    "DeploymentConfig": (_TEMPLATE,),
    "Rollout": (_TEMPLATE,),
    "CloneSet": (_TEMPLATE,),
    "Service": (_TEMPLATE,),  # Knative's; the core kind has no template
    "CronJob": (("spec", "jobTemplate", "spec", "template", "spec"),),
    "ClusterServiceVersion": (("spec", "install", "spec", "deployments", "*", "spec", "template", "spec"),),
    "JobSet": (("spec", "replicatedJobs", "*", "template", "spec", "template", "spec"),),
    "LeaderWorkerSet": (
        ("spec", "leaderWorkerTemplate", "leaderTemplate", "spec"),
        ("spec", "leaderWorkerTemplate", "workerTemplate", "spec"),
    ),
}
_WORKFLOWS = {
    "Workflow": ("spec",),
    "WorkflowTemplate": ("spec",),
    "ClusterWorkflowTemplate": ("spec",),
    "CronWorkflow": ("spec", "workflowSpec"),
}
_RUNS = ("TaskRun", "PipelineRun")
KINDS = (*_PATHS, *_WORKFLOWS, *_RUNS)
"""Besides these every kind with ``spec.…ReplicaSpecs``, as Kubeflow's jobs have them."""
_POD_LISTS: tuple[tuple[str, Role], ...] = (
    ("containers", "container"),
    ("initContainers", "init"),
    ("ephemeralContainers", "ephemeral"),
)


@dataclass(frozen=True, eq=False)
class ImageUser:
    """A container or an image volume, which holds an image in ``image`` or ``image.reference``."""

    node: MappingNode
    pointer: str
    role: Role
    name: str


@dataclass(frozen=True, eq=False)
class PodSpecLocation:
    """A mapping with ``affinity`` and ``nodeSelector``, and the containers and volumes of its pods."""

    node: MappingNode
    pointer: str
    holders: tuple[ImageUser, ...]
    inherited: WorkflowDefaults | None = None
    covers: Node | None = None
    """A mapping below it that has the shape of a pod specification and is part of this one."""


def known_places(subject: KubeObject) -> Iterator[PodSpecLocation]:
    """The pod specifications that a kind is known to have."""
    return places_of(subject.kind, subject.node, subject.pointer)


def places_of(kind: str, node: Node, where: str = "") -> Iterator[PodSpecLocation]:
    """The same for a node of a kind; ``where`` is its pointer in the document."""
    for path in _PATHS.get(kind, ()):
        for found, place in _along(node, where, path):
            yield PodSpecLocation(found, place, pod_holders(found, place))
    if kind in _WORKFLOWS:
        yield from _workflow(node, where, _WORKFLOWS[kind])
    elif kind in _RUNS:
        yield from _tekton(node, where)
    else:
        yield from _kubeflow(node, where)


def shaped_places(subject: KubeObject, taken: set[int]) -> Iterator[PodSpecLocation]:
    """Every other mapping with ``containers`` that each have a name and an image.

    ``taken`` are the ``id()`` of the mappings that known places have or cover; each node is visited once, however many
    aliases lead to it.
    """
    shared = subject.document.shared
    visited: set[int] = set()
    stack: list[tuple[Node, str]] = [(subject.node, subject.pointer)]
    while stack:
        node, where = stack.pop()
        if shared:
            if id(node) in visited:
                continue
            visited.add(id(node))
        if isinstance(node, MappingNode) and id(node) not in taken and has_pod_shape(node):
            yield PodSpecLocation(node, where, pod_holders(node, where))
        below = [(child, where + pointer(key)) for key, child in effective(node) if not isinstance(child, ScalarNode)]
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


def _along(node: Node | None, where: str, path: tuple[str, ...]) -> Iterator[tuple[MappingNode, str]]:
    if not path:
        if isinstance(node, MappingNode):
            yield node, where
    elif path[0] == "*":
        for segment, child in effective(node) if node is not None else ():
            yield from _along(child, where + pointer(segment), path[1:])
    else:
        yield from _along(get(node, path[0]), where + pointer(path[0]), path[1:])


def _workflow(workflow: Node, place: str, path: tuple[str, ...]) -> Iterator[PodSpecLocation]:
    """Argo: each template is a pod; the workflow's affinity and node selector hold where a template has none."""
    for spec, where in _along(workflow, place, path):
        for index, template in enumerate(elements(get(spec, "templates"))):
            here = f"{where}/templates/{index}"
            holders = list(_argo_containers(template, here))
            if isinstance(template, MappingNode) and holders:
                yield PodSpecLocation(
                    template, here, tuple(holders), WorkflowDefaults(spec, where), get(template, "containerSet")
                )


def _argo_containers(template: Node, where: str) -> Iterator[ImageUser]:
    for field in ("container", "script"):
        node = get(template, field)
        if isinstance(node, MappingNode):
            yield ImageUser(node, f"{where}/{field}", "container", text_of(get(node, "name")) or "main")
    containers = find(template, "containerSet", "containers")
    yield from _holders(containers, f"{where}/containerSet/containers", "container")
    yield from _holders(get(template, "initContainers"), f"{where}/initContainers", "init")
    yield from _holders(get(template, "sidecars"), f"{where}/sidecars", "container")


def _tekton(run: Node, place: str) -> Iterator[PodSpecLocation]:
    """Tekton: ``podTemplate`` holds for the steps that the run itself spells out; those of a referenced task are not
    known here.
    """
    spec, where = get(run, "spec"), f"{place}/spec"
    holders = list(_steps(get(spec, "taskSpec"), f"{where}/taskSpec"))
    for field in ("tasks", "finally"):
        for index, task in enumerate(elements(find(spec, "pipelineSpec", field))):
            holders += _steps(get(task, "taskSpec"), f"{where}/pipelineSpec/{field}/{index}/taskSpec")
    for path in (("podTemplate",), ("taskRunTemplate", "podTemplate")):
        node = find(spec, *path)
        if isinstance(node, MappingNode) and holders:
            yield PodSpecLocation(node, where + pointer(*path), tuple(holders))


def _steps(task: Node | None, where: str) -> Iterator[ImageUser]:
    for field in ("steps", "sidecars"):
        yield from _holders(get(task, field), f"{where}/{field}", "container")


def _kubeflow(job: Node, where: str) -> Iterator[PodSpecLocation]:
    """``spec.tfReplicaSpecs.Worker.template.spec`` and its siblings."""
    spec = get(job, "spec")
    if not isinstance(spec, MappingNode):
        return
    for key, (_, roles) in members(spec).items():
        if key.endswith("ReplicaSpecs"):
            roles_at = where + pointer("spec", key)
            for node, place in _along(roles, roles_at, ("*", "template", "spec")):
                yield PodSpecLocation(node, place, pod_holders(node, place))
