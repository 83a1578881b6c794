"""A large cluster costs little: RP-040 without registries, on a tenth of its pods, workloads and images.

CPU time, so that a busy machine changes little; the limit is twice a tenth of the budget.
"""

import asyncio
import time
from typing import Any

import msgspec
import pytest
from report_world import cluster, reading, workload

from polyarch.kube.resources import DEPLOYMENTS, NODES, PODS, REPLICASETS, Resource
from polyarch.kube.responses import ListResult
from polyarch.reports.facts import ImageInspections
from polyarch.reports.gather import ClusterIdentity, gather
from polyarch.reports.report import ReportOptions, make_report
from polyarch.reports.sums import suggestions_of

PODS_THERE, WORKLOADS, IMAGES, NODES_THERE = 2_000, 200, 80, 100
CPU_SECONDS = 0.8
Json = dict[str, Any]


def spec(number: int) -> Json:
    container = {
        "name": "main",
        "image": f"quay.io/acme/app{number % IMAGES}:1",
        "env": [{"name": "TEXT", "value": "x" * 100}],
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}},
    }
    return {"containers": [container], "nodeSelector": {"pool": f"p{number % 7}"} if number % 3 == 0 else None}


def owner(kind: str, name: str) -> list[Json]:
    return [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"{kind}-{name}", "controller": True}]


def made(kind: str, name: str, number: int, **metadata: Any) -> Json:
    own = {"name": name, "namespace": f"n{number % 50}", "uid": f"{kind}-{name}", **metadata}
    return {"metadata": own, "spec": {"replicas": 10, "template": {"spec": spec(number)}}}


def node(number: int) -> Json:
    architecture = "arm64" if number % 4 == 0 else "amd64"
    labels = {"kubernetes.io/arch": architecture, "kubernetes.io/hostname": f"n{number}", "pool": f"p{number % 7}"}
    info = {"architecture": architecture, "operatingSystem": "linux"}
    return {"metadata": {"name": f"n{number}", "labels": labels}, "status": {"nodeInfo": info}}


def pod(number: int) -> Json:
    workload = number % WORKLOADS
    metadata = {"name": f"w{workload}-{number}", "namespace": f"n{workload % 50}"}
    running = {"name": "main", "imageID": f"quay.io/acme/app{workload % IMAGES}@sha256:{'1' * 64}"}
    return {
        "metadata": {**metadata, "ownerReferences": owner("ReplicaSet", f"w{workload}-1")},
        "spec": {**spec(workload), "nodeName": f"n{number % NODES_THERE}"},
        "status": {"phase": "Running", "containerStatuses": [running]},
    }


class Encoded:
    """Lists as an API server sends them."""

    def __init__(self) -> None:
        encode = msgspec.json.encode
        self.bodies: dict[Resource, bytes] = {
            NODES: encode([node(number) for number in range(NODES_THERE)]),
            PODS: encode([pod(number) for number in range(PODS_THERE)]),
            DEPLOYMENTS: encode([made("Deployment", f"w{number}", number) for number in range(WORKLOADS)]),
            REPLICASETS: encode(
                [
                    made("ReplicaSet", f"w{number}-1", number, ownerReferences=owner("Deployment", f"w{number}"))
                    for number in range(WORKLOADS)
                ]
            ),
        }

    async def list(self, resource: Resource, *, type: Any) -> ListResult[Any]:
        return ListResult(msgspec.json.decode(self.bodies.get(resource, b"[]"), type=list[type]), "1")  # type: ignore[valid-type]


@pytest.mark.req("RP-040")
def test_a_large_cluster_costs_little_cpu() -> None:
    lists = Encoded()
    platforms = ("linux/amd64", "linux/arm64")
    answers = ImageInspections(
        reading(f"quay.io/acme/app{number}:1", *platforms[: 1 + (number % 3 > 0)]) for number in range(IMAGES)
    )
    began = time.process_time()
    facts = asyncio.run(gather(lists, ClusterIdentity("large"), taken_at="2026-03-01T00:00:00Z"))
    report = make_report(facts, answers, ReportOptions(pool_label="pool", node_drift=True))
    assert time.process_time() - began <= CPU_SECONDS
    assert len(report.workloads) == WORKLOADS
    assert sum(each.weight.pods for each in report.workloads) == PODS_THERE


@pytest.mark.req("RP-040")
def test_ways_out_of_many_images_are_found_in_one_pass() -> None:
    """Each image is looked at once, not once for each other: 800 of them took seconds."""
    answers = ImageInspections(
        reading(f"quay.io/acme/app{number}:1.{tag}", "linux/amd64") for number in range(800) for tag in (0, 1)
    )
    workloads = [workload(f"w{number}", f"quay.io/acme/app{number}:1.0") for number in range(800)]
    blockers = make_report(cluster(*workloads), answers, ReportOptions()).blockers
    assert len(blockers) == 800
    began = time.process_time()
    assert suggestions_of(blockers, answers, {}) == {}
    assert time.process_time() - began <= CPU_SECONDS
