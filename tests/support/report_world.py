"""Clusters for the tests of reports: a node, a workload, an answer in one line each."""

from typing import Any

import msgspec

from polyarch.objects import ObjectMeta
from polyarch.oci.inspection import Status
from polyarch.platforms import NodePlatform
from polyarch.reports.document import Report, Source, TargetVerdict
from polyarch.reports.facts import (
    ImageInspections,
    ImageRecord,
    NodeFact,
    PodFact,
    PodSpecObject,
    ReportFacts,
    Requests,
    RunningImage,
    WorkloadFact,
)
from polyarch.reports.report import ReportOptions, make_report
from polyarch.reports.workloads import TEMPLATE_PATH, pod_of
from polyarch.tolerations import Taint

AMD64, ARM64 = NodePlatform("linux", "amd64"), NodePlatform("linux", "arm64")
BOTH = "quay.io/acme/both:1"
"""An image for amd64 and arm64."""
ONLY = "quay.io/acme/only:1"
"""An image for amd64 alone."""
OTHER = "quay.io/acme/other:1"
"""Another one for amd64 alone."""
AWAY = "quay.io/acme/away:1"
"""An image whose registry does not answer."""
DATA = "quay.io/acme/data:1"
"""An image that fits every platform."""
DIGEST = "sha256:" + "1" * 64
OLD_DIGEST = "sha256:" + "9" * 64


def reading(image: str, *platforms: str, digest: str = DIGEST, namespace: str = "") -> ImageRecord:
    digests = tuple(f"sha256:{number:064x}" for number in range(2, 2 + len(platforms)))
    return ImageRecord(image, Status.RESOLVED, namespace, "index", digest, tuple(platforms), digests)


READINGS = (
    reading(BOTH, "linux/amd64", "linux/arm64"),
    reading(ONLY, "linux/amd64"),
    reading(OTHER, "linux/amd64"),
    ImageRecord(AWAY, Status.ERROR, code="network", host="quay.io"),
    ImageRecord(DATA, Status.NEUTRAL, kind="artifact", digest=DIGEST),
)


def node(name: str, architecture: str = "amd64", *taints: Taint, **labels: str) -> NodeFact:
    own = {"kubernetes.io/arch": architecture, "kubernetes.io/os": "linux", "kubernetes.io/hostname": name, **labels}
    return NodeFact(name, "linux", architecture, own, taints, 8000)


def pod(name: str, on: str = "", *, image_id: str = "", reason: str = "", gated: bool = False) -> PodFact:
    running = (RunningImage("main", image_id),) if image_id else ()
    return PodFact(name, on, running, reason, gated)


def workload(
    name: str,
    *images: str,
    kind: str = "Deployment",
    namespace: str = "shop",
    cpu: int = 1000,
    replicas: int = 1,
    pods: tuple[PodFact, ...] = (),
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> WorkloadFact:
    """``spec``: further members of the pod specification, as JSON has them."""
    containers = [{"name": "main" if not at else f"c{at}", "image": image} for at, image in enumerate(images)]
    decoded = msgspec.convert({"containers": containers, **spec}, PodSpecObject)
    metadata = ObjectMeta(labels=labels, annotations=annotations)
    return WorkloadFact(
        namespace=namespace,
        kind=kind,
        name=name,
        template=pod_of(decoded, metadata, namespace=namespace, kind=kind),
        path=TEMPLATE_PATH,
        requests=Requests(cpu, cpu * 1_000_000),
        replicas=replicas,
        pods=pods,
    )


def cluster(*workloads: WorkloadFact, nodes: tuple[NodeFact, ...] | None = None, **members: Any) -> ReportFacts:
    """With one node of each architecture unless told otherwise."""
    if nodes is None:
        nodes = (node("a1"), node("m1", "arm64"))
    source = members.pop("source", Source("cluster", "https://example:6443", "2026-03-01T12:00:00Z"))
    return ReportFacts(source=source, nodes=nodes, workloads=workloads, **members)


def report_of(facts: ReportFacts, *readings: ImageRecord, **wishes: Any) -> Report:
    wishes.setdefault("targets", (ARM64,))
    return make_report(facts, ImageInspections((*READINGS, *readings)), ReportOptions(**wishes))


def answer_of(report: Report, name: str, target: str = "arm64") -> TargetVerdict:
    """What is said of one workload."""
    row = next(each for each in report.workloads if each.name == name)
    return next(each for each in row.answers if each.target == target)


def codes(answer: TargetVerdict) -> list[str]:
    return [each.code for each in answer.reasons]
