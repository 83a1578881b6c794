"""An installation with builds is available once a builder is."""

from typing import Any

import pytest

from polyarch.installation.operator import OPERATOR
from polyarch.installation.wait import WaitTimeout, available
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import DEPLOYMENTS, LEASES, Resource
from polyarch.kube.responses import ListResult
from polyarch.placement import names

pytestmark = pytest.mark.req("IN-002")

HOME = "polyarch-system"


class Api:
    """Deployments and pods."""

    def __init__(self, builds: str, *, builder: int | None, pods: tuple[dict[str, Any], ...] = ()) -> None:
        container = {"name": "operator", "env": [{"name": "POLYARCH_BUILDS", "value": builds}] if builds else []}
        self.deployments = {OPERATOR: deployment(2, {"containers": [container]})}
        if builder is not None:
            self.deployments["polyarch-builder"] = deployment(builder, {})
        self.pods = pods

    async def get(self, resource: Resource, name: str, **_: Any) -> Any:
        if resource == LEASES:
            told = {names.OPERATOR_SETTLED: "operator-1"}
            return {"metadata": {"annotations": told}, "spec": {"holderIdentity": "operator-1"}}
        if resource != DEPLOYMENTS or name not in self.deployments:
            raise NotFound(404, name=name)
        return self.deployments[name]

    async def list(self, *_: Any, **__: Any) -> Any:
        return ListResult(items=list(self.pods), resource_version="1")


def deployment(available: int, pod: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"generation": 1, "namespace": HOME},
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
    assert await wait(Api(builds, builder=builder)) == []


@pytest.mark.req("BD-002")
async def test_the_builder_is_waited_for_and_what_keeps_it_is_said() -> None:
    with pytest.raises(WaitTimeout, match="builds: the operator has not begun"):
        await wait(Api("on", builder=None))
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    pod = {"metadata": {"name": "polyarch-builder-1"}, "status": {"containerStatuses": [{"state": state}]}}
    with pytest.raises(
        WaitTimeout, match=r"builds: no pod is available \(polyarch-builder-1: ImagePullBackOff: no such"
    ):
        await wait(Api("on", builder=0, pods=(pod,)))
