"""Pods to be placed, from manifests: a Pod, or what a Deployment, StatefulSet or Job would make.

Where they are bound now, if they are, does not matter: the question is where they would go."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from polyarch.cli.errors import UsageError
from polyarch.cli.input.objects import FileDocument, read_documents
from polyarch.cli.input.pod_templates import templates_of
from polyarch.numa.fit.facts import PodFacts, PodObject, pod_facts
from polyarch.quantity import InvalidQuantity

WORKLOADS: Final = {
    "Deployment": "apps",
    "ReplicaSet": "apps",
    "StatefulSet": "apps",
    "Job": "batch",
    "CronJob": "batch",
}
"""With their API groups: a Job of another group is another kind."""
MOST_REPLICAS: Final = 100_000
DEFAULT_NAMESPACE: Final = "default"


def read_pods(paths: Sequence[str], *, replicas: bool = True) -> list[PodFacts]:
    """In the order of the files; without ``replicas`` a workload is one pod.

    Raises :class:`UsageError` that names file, document and field.
    """
    found = [pod for path in paths for document in read_documents(path) for pod in _pods(document, replicas=replicas)]
    if not found:
        raise UsageError(f"{', '.join(paths)}: no pods in it; expected Pod, {', '.join(WORKLOADS)}")
    return found


def _pods(document: FileDocument, *, replicas: bool) -> Iterator[PodFacts]:
    if document.kind in ("List", "PodList"):  # an empty one
        return
    version = document.content.get("apiVersion")
    group = str(version).rpartition("/")[0] if version else None
    if group not in (None, WORKLOADS.get(document.kind, "")) and document.kind in ("Pod", *WORKLOADS):
        raise document.error(f"{document.kind} of {version} is another kind than that of Kubernetes; leave it out")
    if document.kind == "Pod":
        yield _facts(document, document.name or _generated(document))
        return
    if document.kind not in WORKLOADS:
        kind = document.kind or "an object without kind"
        raise document.error(f"expected Pod, {', '.join(WORKLOADS)}, not {kind}; leave it out of the file")
    name = document.name or document.kind.lower()
    for template in templates_of(document, namespace=document.namespace or DEFAULT_NAMESPACE):
        facts = _facts(template, name)
        numbers = _numbers(document) if replicas else range(1)
        for number in numbers:
            yield msgspec.structs.replace(facts, name=f"{name}-{number}" if len(numbers) > 1 else name)


def _facts(document: FileDocument, name: str) -> PodFacts:
    try:
        facts = pod_facts(document.into(PodObject))
    except InvalidQuantity as error:
        raise UsageError(
            f"{document.file}, document {document.number}, line {document.line_of('.spec')}: "
            f"{document.kind} {name!r}: spec: {error}"
        ) from None
    return msgspec.structs.replace(facts, namespace=document.namespace or DEFAULT_NAMESPACE, name=name, node_name="")


def _generated(document: FileDocument) -> str:
    metadata = document.content.get("metadata")
    prefix = metadata.get("generateName") if isinstance(metadata, dict) else None
    return str(prefix or "pod").rstrip("-")


def _numbers(document: FileDocument) -> range:
    """Of the pods, as their names have them: a StatefulSet counts from 0."""
    spec: Any = document.content.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    if document.kind == "Job":
        count = _count(document, spec, "parallelism")
        if spec.get("completions") is not None:
            count = min(count, _count(document, spec, "completions"))
        return range(count)
    if document.kind == "CronJob":
        return range(1, 2)
    count = _count(document, spec, "replicas")
    return range(count) if document.kind == "StatefulSet" else range(1, count + 1)


def _count(document: FileDocument, spec: dict[str, Any], field: str) -> int:
    count = spec.get(field)
    if count is None:
        return 1
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_REPLICAS:
        raise UsageError(
            f"{document.file}, document {document.number}, line {document.line_of(f'.spec.{field}')}: "
            f"{document.kind} {document.name!r}: spec.{field}: expected a number from 0 to {MOST_REPLICAS}"
        )
    return count
