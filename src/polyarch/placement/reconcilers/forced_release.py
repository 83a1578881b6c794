"""Releases the pods that are still gated while placement is being removed (PL-520, PL-521).

A released pod has lost its gate without a decision, and so runs without a constraint. Pods are listed live. Most gated
pods carry our label; when none is left, all pods that wait for a node are looked at once more, since a gate may be
there without its label. Pods that are being deleted do not count, and gates of others delay nothing.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog
from prometheus_client import Counter

from polyarch.kube.client import Client
from polyarch.kube.errors import KubernetesError, NotFound
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.patches import JsonPatch
from polyarch.kube.resources import PODS, few
from polyarch.objects import Pod
from polyarch.placement import names
from polyarch.placement.events import EventReason
from polyarch.placement.patch import bare_release, has_gate

log = structlog.get_logger(__name__)

GATED_SELECTOR: Final = f"{names.SCHEDULING_GATE_LABEL}={names.GATED}"
WITHOUT_NODE: Final = "status.phase=Pending,spec.nodeName="
AT_ONCE: Final = 16
"""Concurrent PATCHes."""


async def gated_pods(client: Client) -> list[Pod]:
    """The pods with our gate."""
    for labels, fields in ((GATED_SELECTOR, ""), ("", WITHOUT_NODE)):
        listed = await client.list(PODS, type=Pod, label_selector=labels, field_selector=fields)
        if found := [pod for pod in listed.items if has_gate(pod) and pod.metadata.deletion_timestamp is None]:
            return found
    return []


async def release(client: Client, pod: Pod) -> bool:
    """Removes our gate from the pod. False: the pod is gone. Raises ``KubernetesError``, also if it has changed."""
    metadata = pod.metadata
    try:
        await client.patch(PODS, metadata.name, JsonPatch(bare_release(pod)), namespace=metadata.namespace)
    except NotFound:
        return False
    return True


class ForcedRelease:
    """The operator's: each release is logged, reported by an event on the pod, and counted by ``releases``."""

    def __init__(self, client: Client, recorder: Recorder, releases: Counter) -> None:
        self._client = client
        self._recorder = recorder
        self._releases = releases

    async def release(self, pods: Sequence[Pod]) -> None:
        """Releases them, one PATCH each. A pod that has changed since is tried again with the next list."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(pod: Pod) -> None:
            async with turns:
                await self._release(pod)

        async with asyncio.TaskGroup() as tasks:
            for pod in pods:
                tasks.create_task(one(pod))

    async def _release(self, pod: Pod) -> None:
        try:
            if not await release(self._client, pod):
                return
        except KubernetesError as error:
            log.warning("gate not removed", pod=str(pod.metadata.key), error=str(error))
            return
        self._releases.inc()
        log.warning("gate removed without a decision, the pod has no constraint", pod=str(pod.metadata.key))
        self._recorder.event(
            Regarding.of(PODS, pod.metadata),
            type="Warning",
            reason=EventReason.FORCED_RELEASE,
            action="RemoveGate",
            note="placement is being removed, and nobody decided about the pod's architectures in time: its gate was "
            "removed without a constraint",
        )


def named(pods: Sequence[Pod]) -> str:
    """Up to five of the pods, and how many more there are; then the command that removes the gate of the first."""
    return f"{few(pod.metadata.key for pod in pods)}; remove a gate with: {command(pods[0])}"


def command(pod: Pod) -> str:
    """The ``kubectl`` command that removes the gate of this pod."""
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    place = f"/spec/schedulingGates/{gates.index(names.GATE)}"
    patch = f'[{{"op":"remove","path":"{place}"}}]'
    return f"kubectl patch pod {pod.metadata.name} -n {pod.metadata.namespace} --type=json -p '{patch}'"
