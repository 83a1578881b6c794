"""An installation with builds is available once a builder is."""

from typing import Any

import pytest
from fake_api import FakeApi

from polyarch.installation.operator import OPERATOR
from polyarch.installation.wait import WaitTimeout, available
from polyarch.kube.resources import DEPLOYMENTS, LEASES, PODS
from polyarch.placement import names

pytestmark = pytest.mark.req("IN-002")

HOME = "polyarch-system"


def api_with(builds: str, *, builder: int | None, pods: tuple[dict[str, Any], ...] = ()) -> FakeApi:
    api = FakeApi()
    container = {"name": "operator", "env": [{"name": "POLYARCH_BUILDS", "value": builds}] if builds else []}
    api.put(DEPLOYMENTS, deployment(OPERATOR, 2, {"containers": [container]}))
    if builder is not None:
        api.put(DEPLOYMENTS, deployment("polyarch-builder", builder, {}))
    for pod in pods:
        api.put(PODS, pod)
    lease = {"name": names.OPERATOR_LEASE, "namespace": HOME, "annotations": {names.OPERATOR_SETTLED: "operator-1"}}
    api.put(LEASES, {"metadata": lease, "spec": {"holderIdentity": "operator-1"}})
    return api


def deployment(name: str, available: int, pod: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "generation": 1, "namespace": HOME},
        "spec": {"replicas": 2, "template": {"spec": pod}},
        "status": {"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": available},
    }


async def wait(api: Any) -> list[str]:
    said: list[str] = []
    await available(api, HOME, switched_on=(), seconds=0, tell=said.append)
    return said


@pytest.mark.req("BD-002")
@pytest.mark.parametrize(("builds", "builder"), [("", None), ("off", None), ("auto", None), ("on", 1)])
async def test_nothing_is_missing(builds: str, builder: int | None) -> None:
    """With auto there is no builder before the first ImageBuild."""
    assert await wait(api_with(builds, builder=builder)) == []


@pytest.mark.req("BD-002")
async def test_the_builder_is_waited_for_and_what_keeps_it_is_said() -> None:
    with pytest.raises(WaitTimeout, match="builds: the operator has not begun"):
        await wait(api_with("on", builder=None))
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    labels = {names.CONTROLLER_LABEL: "polyarch-builder"}
    metadata = {"name": "polyarch-builder-1", "namespace": HOME, "labels": labels}
    pod = {"metadata": metadata, "status": {"containerStatuses": [{"state": state}]}}
    with pytest.raises(
        WaitTimeout, match=r"builds: no pod is available \(polyarch-builder-1: ImagePullBackOff: no such"
    ):
        await wait(api_with("on", builder=0, pods=(pod,)))


@pytest.mark.parametrize(("builder", "operator"), [(0, 2), (None, 0)], ids=["builder", "operator"])
async def test_what_keeps_a_pod_of_another_role_is_no_reason(builder: int | None, operator: int) -> None:
    state = {"waiting": {"reason": "ImagePullBackOff"}}
    metadata = {"name": "other-1", "namespace": HOME, "labels": {names.CONTROLLER_LABEL: "another-role"}}
    other = {"metadata": metadata, "status": {"containerStatuses": [{"state": state}]}}
    api = api_with("on", builder=builder, pods=(other,))
    template = api.read(DEPLOYMENTS, OPERATOR, HOME)["spec"]["template"]["spec"]
    api.put(DEPLOYMENTS, deployment(OPERATOR, operator, template))
    with pytest.raises(WaitTimeout, match=r"(no pod is available|0 of 2 pods are ready)$"):
        await wait(api)
