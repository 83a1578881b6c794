"""Finds pod specifications: by kind at known paths (MF-011), in any other mapping by shape (MF-012).

Only the kind is compared, never the group or version: a fork of an operator keeps the kind and changes the group.

Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from polyarch.kube.patches import pointer
from polyarch.manifests.scan.nodes import effective, elements, find, get, members, text_of
from polyarch.manifests.scan.objects import KubeObject
from polyarch.manifests.scan.pod_specs import Inherited, Role

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
class Holder:
    """A container or an image volume, which holds an image in ``image`` or ``image.reference``."""

    node: MappingNode
    pointer: str
    role: Role
    name: str


@dataclass(frozen=True, eq=False)
class Place:
    """A mapping with ``affinity`` and ``nodeSelector``, and the containers and volumes of its pods."""

    node: MappingNode
    pointer: str
    holders: tuple[Holder, ...]
    inherited: Inherited | None = None
    covers: Node | None = None
    """A mapping below it that has the shape of a pod specification and is part of this one."""


def known_places(subject: KubeObject) -> Iterator[Place]:
    """The pod specifications that a kind is known to have."""
    return places_of(subject.kind, subject.node, subject.pointer)


def places_of(kind: str, node: Node, where: str = "") -> Iterator[Place]:
    """The same for a node of a kind; ``where`` is its pointer in the document."""
    for path in _PATHS.get(kind, ()):
        for found, place in _along(node, where, path):
            yield Place(found, place, pod_holders(found, place))
    if kind in _WORKFLOWS:
        yield from _workflow(node, where, _WORKFLOWS[kind])
    elif kind in _RUNS:
        yield from _tekton(node, where)
    else:
        yield from _kubeflow(node, where)


def shaped_places(subject: KubeObject, taken: set[int]) -> Iterator[Place]:
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
            yield Place(node, where, pod_holders(node, where))
        below = [(child, where + pointer(key)) for key, child in effective(node) if not isinstance(child, ScalarNode)]
        stack += reversed(below)


def pod_holders(node: Node, where: str) -> tuple[Holder, ...]:
    """The containers of a pod specification in the order of their fields, then its image volumes (MF-005)."""
    found = [
        holder for field, role in _POD_LISTS for holder in _holders(get(node, field), where + pointer(field), role)
    ]
    for index, volume in enumerate(elements(get(node, "volumes"))):
        image = get(volume, "image")
        if isinstance(volume, MappingNode) and isinstance(image, MappingNode):
            name = text_of(get(volume, "name")) or ""
            found.append(Holder(volume, f"{where}/volumes/{index}", "volume", name))
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


def _holders(sequence: Node | None, where: str, role: Role) -> Iterator[Holder]:
    for index, node in enumerate(elements(sequence)):
        if isinstance(node, MappingNode):
            yield Holder(node, f"{where}/{index}", role, text_of(get(node, "name")) or "")


def _along(node: Node | None, where: str, path: tuple[str, ...]) -> Iterator[tuple[MappingNode, str]]:
    if not path:
        if isinstance(node, MappingNode):
            yield node, where
    elif path[0] == "*":
        for segment, child in effective(node) if node is not None else ():
            yield from _along(child, where + pointer(segment), path[1:])
    else:
        yield from _along(get(node, path[0]), where + pointer(path[0]), path[1:])


def _workflow(workflow: Node, place: str, path: tuple[str, ...]) -> Iterator[Place]:
    """Argo: each template is a pod; the workflow's affinity and node selector hold where a template has none."""
    for spec, where in _along(workflow, place, path):
        for index, template in enumerate(elements(get(spec, "templates"))):
            here = f"{where}/templates/{index}"
            holders = list(_argo_containers(template, here))
            if isinstance(template, MappingNode) and holders:
                yield Place(template, here, tuple(holders), Inherited(spec, where), get(template, "containerSet"))


def _argo_containers(template: Node, where: str) -> Iterator[Holder]:
    for field in ("container", "script"):
        node = get(template, field)
        if isinstance(node, MappingNode):
            yield Holder(node, f"{where}/{field}", "container", text_of(get(node, "name")) or "main")
    containers = find(template, "containerSet", "containers")
    yield from _holders(containers, f"{where}/containerSet/containers", "container")
    yield from _holders(get(template, "initContainers"), f"{where}/initContainers", "init")
    yield from _holders(get(template, "sidecars"), f"{where}/sidecars", "container")


def _tekton(run: Node, place: str) -> Iterator[Place]:
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
            yield Place(node, where + pointer(*path), tuple(holders))


def _steps(task: Node | None, where: str) -> Iterator[Holder]:
    for field in ("steps", "sidecars"):
        yield from _holders(get(task, field), f"{where}/{field}", "container")


def _kubeflow(job: Node, where: str) -> Iterator[Place]:
    """``spec.tfReplicaSpecs.Worker.template.spec`` and its siblings."""
    spec = get(job, "spec")
    if not isinstance(spec, MappingNode):
        return
    for key, (_, roles) in members(spec).items():
        if key.endswith("ReplicaSpecs"):
            roles_at = where + pointer("spec", key)
            for node, place in _along(roles, roles_at, ("*", "template", "spec")):
                yield Place(node, place, pod_holders(node, place))
