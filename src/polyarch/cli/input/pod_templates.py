"""The pods that the controllers of workloads would create: one for each pod template, in every kind that ``polyarch
lint`` knows.

Where a kind has no pod specification of its own (Argo's templates, Tekton's steps) the pod is put together of what it
runs, and of the node selector, affinity and tolerations that hold for it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from polyarch.cli.input.objects import FileDocument
from polyarch.manifests.operations import segments
from polyarch.manifests.scan.kinds import SIDECARS
from polyarch.manifests.scan.pod_specs import ImageUser, PodSpecLocation, places_of

_OWNERS: Final[Mapping[str, str]] = {
    "Deployment": "ReplicaSet",
    "DeploymentConfig": "ReplicationController",
    "Rollout": "ReplicaSet",
    "CronJob": "Job",
    "JobSet": "Job",
    "LeaderWorkerSet": "StatefulSet",
    "ClusterServiceVersion": "ReplicaSet",
    "Service": "ReplicaSet",
    "CronWorkflow": "Workflow",
    "WorkflowTemplate": "Workflow",
    "ClusterWorkflowTemplate": "Workflow",
    "PipelineRun": "TaskRun",
}
"""What owns the pods of a kind, where that is another kind."""
_TEMPLATES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job"), "spec.template.spec"
    ),
    "CronJob": "spec.jobTemplate.spec.template.spec",
}
"""Kinds that cannot do without a template."""
NATIVE_KINDS: Final = frozenset(_TEMPLATES)
"""Kinds whose pods are made of the template as it is."""
_OF_TASK: Final = "/taskSpec/"
_SCHEDULING: Final = ("nodeSelector", "affinity", "tolerations")


def templates_of(document: FileDocument, *, namespace: str) -> Iterator[FileDocument]:
    """The pods of an object as documents; errors in them name the lines of the object. None for other objects, nor for
    those whose containers go into the pods of others.
    """
    places = list(
        places_of(document.kind, document.node, group=str(document.content.get("apiVersion")).rpartition("/")[0])
    )
    if not places and document.kind in _TEMPLATES:
        raise document.error(f"a {document.kind} needs a pod template at {_TEMPLATES[document.kind]}; there is none")
    for place in (each for each in places if each.apart != SIDECARS):
        own = _at(document.content, segments(place.pointer)).get("containers")
        if (
            isinstance(own, list | dict)
            and not place.place.completed
            and all(each.is_container for each in place.holders)
        ):
            yield _template(document, place, namespace)
        else:
            yield from _assembled(document, place, namespace)


def _template(document: FileDocument, place: PodSpecLocation, namespace: str) -> FileDocument:
    """A pod template: ``metadata`` stands beside ``spec``."""
    path = segments(place.pointer)[:-1]
    template = _at(document.content, path)
    metadata = template.get("metadata")
    made = _pod(document, path, namespace, metadata if isinstance(metadata, dict) else {}, template.get("spec") or {})
    return document.part(path, made)


def _assembled(document: FileDocument, place: PodSpecLocation, namespace: str) -> Iterator[FileDocument]:
    """A pod of containers that stand in several places; of a PipelineRun one for each task."""
    path = segments(place.pointer)
    said = [_at(document.content, segments(outer.pointer)) for outer in reversed(place.inherited)]
    said.append(_at(document.content, path))
    scheduling = {key: value for each in said for key in _SCHEDULING if (value := each.get(key)) is not None}
    tasks: dict[str, list[ImageUser]] = {}
    for holder in place.holders:
        task, found, _ = holder.pointer.rpartition(_OF_TASK)
        tasks.setdefault(task if found else place.pointer, []).append(holder)
    for task, holders in tasks.items():
        spec = {
            **{
                field: [_container(document, each) for each in holders if each.role == role]
                for field, role in (("containers", "container"), ("initContainers", "init"))
            },
            **scheduling,
        }
        yield document.part(path, _pod(document, segments(task), namespace, {}, spec))


def _container(document: FileDocument, holder: ImageUser) -> dict[str, Any]:
    content = _at(document.content, segments(holder.pointer))
    if not holder.is_container:
        return {"name": "main", "image": content.get(holder.field)}
    return {"name": holder.name or "main", **content}


def _pod(
    document: FileDocument, path: Sequence[str], namespace: str, metadata: Mapping[str, Any], spec: Any
) -> dict[str, Any]:
    name = document.name or document.kind.lower()
    labels = [name, *_names_along(document.content, path)]
    owner = _OWNERS.get(document.kind, document.kind)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata,
            "generateName": "-".join([*dict.fromkeys(labels), ""]),
            "namespace": document.namespace or namespace,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": name, "uid": "", "controller": True}],
        },
        "spec": spec,
    }


def _names_along(content: Any, path: Sequence[str]) -> list[str]:
    """What tells the templates of one object apart: names of what they stand in, and roles of Kubeflow's jobs."""
    found = []
    for number, segment in enumerate(path):
        content = _member(content, segment)
        if number and path[number - 1].endswith("ReplicaSpecs"):
            found.append(segment.lower())
        elif segment.endswith("Template") and segment != "jobTemplate":
            found += [role] if (role := segment.removesuffix("Template")) in ("leader", "worker") else []
        elif isinstance(content, dict) and isinstance(content.get("name"), str):
            found.append(content["name"])
    return found


def _at(content: Any, path: Sequence[str]) -> dict[str, Any]:
    for segment in path:
        content = _member(content, segment)
    return content if isinstance(content, dict) else {}


def _member(content: Any, segment: str) -> Any:
    if isinstance(content, dict):
        return content.get(segment)
    if isinstance(content, list) and segment.isdecimal() and int(segment) < len(content):
        return content[int(segment)]
    return None
