"""Reading a cluster: one list of each kind, nothing else, and what is forbidden is named."""

import asyncio
from typing import Any

import msgspec
import pytest
from report_world import ARM64, report_of

from polyarch.kube.errors import Forbidden, NotFound
from polyarch.kube.resources import CRONJOBS, DEPLOYMENTS, NODES, PODS, SECRETS, Resource
from polyarch.kube.responses import ListResult
from polyarch.placement.api import ENOEXECEVENTS, POLICIES
from polyarch.reports.facts import ImageInspections, ReportFacts, decode_snapshot, encode_snapshot
from polyarch.reports.gather import TYPES, ClusterIdentity, gather

SECRET_TEXTS = ("hunter2", "--password=hunter3", "last-applied-hunter4")
SPEC = {
    "containers": [
        {
            "name": "main",
            "image": "quay.io/acme/both:1",
            "env": [{"name": "PASSWORD", "value": SECRET_TEXTS[0]}],
            "command": ["app", SECRET_TEXTS[1]],
        }
    ]
}
APPLIED = {"kubectl.kubernetes.io/last-applied-configuration": SECRET_TEXTS[2]}


class FakeLists:
    """An API server that lists these objects, and counts how often it is asked."""

    def __init__(self, objects: dict[Resource, list[Any]], refused: dict[Resource, Exception] | None = None) -> None:
        self.objects = objects
        self.refused = refused or {}
        self.asked: list[Resource] = []

    async def list(self, resource: Resource, *, type: Any) -> ListResult[Any]:
        self.asked.append(resource)
        if resource in self.refused:
            raise self.refused[resource]
        return ListResult([msgspec.convert(each, type) for each in self.objects.get(resource, [])], "1")


def gathered(lists: FakeLists) -> ReportFacts:
    return asyncio.run(gather(lists, ClusterIdentity("c"), taken_at="2026-03-01T00:00:00Z"))


CLUSTER: dict[Resource, list[Any]] = {
    NODES: [
        {
            "metadata": {"name": "m1", "labels": {"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux"}},
            "status": {"allocatable": {"cpu": "4"}, "nodeInfo": {"architecture": "arm64", "operatingSystem": "linux"}},
        }
    ],
    DEPLOYMENTS: [
        {
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "annotations": APPLIED},
            "spec": {"template": {"metadata": {"annotations": APPLIED, "labels": {"a": "b"}}, "spec": SPEC}},
        }
    ],
    PODS: [
        {"metadata": {"name": "bare", "namespace": "shop", "annotations": APPLIED}, "spec": {**SPEC, "nodeName": "m1"}}
    ],
    POLICIES: [{"metadata": {"name": "cluster", "annotations": APPLIED}, "spec": {"mode": "enforce"}}],
}


@pytest.mark.req("RP-001")
def test_each_kind_is_listed_once_and_nothing_else_is_asked() -> None:
    lists = FakeLists(CLUSTER)
    facts = gathered(lists)
    assert sorted(map(str, lists.asked)) == sorted(map(str, TYPES))
    assert SECRETS not in lists.asked
    report = report_of(facts)
    assert [(each.kind, each.name) for each in report.workloads] == [("Deployment", "web"), ("Pod", "bare")]
    assert report.nodes[0].cores == 4.0


@pytest.mark.req("RP-002")
def test_no_secret_environment_command_or_foreign_annotation_is_kept() -> None:
    facts = gathered(FakeLists(CLUSTER))
    content = encode_snapshot(facts, ImageInspections()).decode()
    assert "quay.io/acme/both:1" in content
    assert not [text for text in SECRET_TEXTS if text in content]


@pytest.mark.req("RP-001")
def test_what_a_list_has_in_any_order_is_by_name() -> None:
    def failed(name: str, pod: str, **status: str) -> Any:
        created = {"name": name, "creationTimestamp": "2026-03-01T00:00:00Z"}
        return {"metadata": created, "status": {"podName": pod, **status} if pod else None}

    nodes: list[Any] = [
        {"metadata": {"name": each, "labels": {"kubernetes.io/arch": "s390x"}}} for each in ("z", "b", "m")
    ]
    nodes[0]["metadata"]["labels"]["kubernetes.io/os"] = "windows"
    events = [failed("e2", "web", podNamespace="shop"), failed("e1", ""), failed("e3", "web", podNamespace="bank")]
    facts = gathered(
        FakeLists({NODES: nodes, ENOEXECEVENTS: events}, {each: Forbidden(403) for each in (PODS, CRONJOBS)})
    )
    assert [(each.name, each.os, each.architecture) for each in facts.nodes] == [
        ("b", "linux", "s390x"), ("m", "linux", "s390x"), ("z", "windows", "s390x"),
    ]  # fmt: skip
    assert [(each.pod, each.created) for each in facts.exec_format_errors] == [
        (each, "2026-03-01T00:00:00Z") for each in ("bank/web", "e1", "shop/web")
    ]
    assert facts.unread == ("cronjobs.batch", "pods")


@pytest.mark.req("RP-031")
def test_what_is_forbidden_is_left_out_and_named() -> None:
    refused: dict[Resource, Exception] = {
        CRONJOBS: Forbidden(403, verb="list"),
        POLICIES: NotFound(404, verb="list"),
    }
    facts = gathered(FakeLists(CLUSTER, refused))
    assert facts.unread == ("cronjobs.batch",)
    assert "not allowed to list cronjobs.batch: what it would have told is left out" in report_of(facts).notes


@pytest.mark.req("RP-002")
def test_a_report_from_a_snapshot_is_equal() -> None:
    facts = gathered(FakeLists(CLUSTER))
    answers = ImageInspections()
    again = decode_snapshot(encode_snapshot(facts, answers))
    assert encode_snapshot(again.facts, again.answers) == encode_snapshot(facts, answers)
    assert report_of(again.facts, targets=(ARM64,)) == report_of(facts, targets=(ARM64,))
