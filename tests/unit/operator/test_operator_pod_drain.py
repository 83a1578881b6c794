"""What pods run with is deleted after them."""

from typing import Any

import pytest
from manual_clock import ManualClock

from polyarch import names
from polyarch.kube.resources import CLUSTER_ROLES, DEPLOYMENTS, SERVICE_ACCOUNTS, ObjectRef, Resource
from polyarch.kube.responses import ListResult
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata
from polyarch.operator.apply_sets import POD_DRAIN_TIMEOUT, PodDrain

HOME = "polyarch"


def belonging(resource: Resource, controller: str) -> dict[ObjectRef, PartialObjectMetadata]:
    labels = {names.CONTROLLER_LABEL: controller}
    found = PartialObjectMetadata(metadata=ObjectMeta(name=controller, labels=labels))
    return {ObjectRef(resource, ObjectKey("", controller)): found}


class Pods:
    """Pods by the Deployment they are of; remembers what it was asked."""

    def __init__(self, **running: int) -> None:
        self.running = running
        self.asked: list[str] = []

    async def list(self, resource: Resource, **selection: Any) -> ListResult[PartialObjectMetadata]:
        assert selection["namespace"] == HOME
        assert "Succeeded" in selection["field_selector"]
        self.asked.append(selection["label_selector"])
        items = [
            PartialObjectMetadata(metadata=ObjectMeta(name=f"{name}-{number}"))
            for name, count in self.running.items()
            if name in selection["label_selector"]
            for number in range(count)
        ]
        return ListResult(items, "1")


@pytest.mark.req("TN-073")
async def test_rights_stay_until_the_last_pod_has_ended() -> None:
    """A pod that writes its last status is not refused."""
    clock, pods = ManualClock(), Pods(taints=2, webhook=1)
    last = PodDrain(pods, namespace=HOME, clock=clock)
    rights = belonging(CLUSTER_ROLES, "taints")
    assert not await last.is_waited_for(rights | belonging(DEPLOYMENTS, "taints"))
    assert pods.asked == []  # the Deployment goes first, with its pods
    assert await last.is_waited_for(rights)
    pods.running["taints"] = 1
    assert await last.is_waited_for(rights)
    pods.running["taints"] = 0
    assert not await last.is_waited_for(rights)


@pytest.mark.req("TN-073")
async def test_a_pod_that_never_ends_holds_up_nothing() -> None:
    """Its node does not answer; and the next removal is as patient as this one."""
    clock, pods = ManualClock(), Pods(taints=1)
    last = PodDrain(pods, namespace=HOME, clock=clock)
    account = belonging(SERVICE_ACCOUNTS, "taints")
    assert await last.is_waited_for(account)
    clock.advance(POD_DRAIN_TIMEOUT - 1)
    assert await last.is_waited_for(account)
    clock.advance(1)
    assert not await last.is_waited_for(account)
    assert not await last.is_waited_for(account | belonging(DEPLOYMENTS, "taints"))
    assert await last.is_waited_for(account)


@pytest.mark.req("PL-520")
async def test_the_pods_of_all_that_is_left_are_waited_for() -> None:
    """What is removed together may belong to several Deployments; what belongs to none has no pods."""
    pods = Pods(controller=1)
    last = PodDrain(pods, namespace=HOME, clock=ManualClock())
    both = belonging(CLUSTER_ROLES, "controller") | belonging(SERVICE_ACCOUNTS, "webhook")
    assert await last.is_waited_for(both)
    assert pods.asked == [f"{names.CONTROLLER_LABEL} in (controller,webhook)"]
    assert not await last.is_waited_for({})
