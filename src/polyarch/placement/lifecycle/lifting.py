"""The gates that are still on pods while placement is being removed, and lifting them by force (PL-520, PL-521).

Counts come from live lists. Most gated pods carry our label; when none is left, all pods that wait for a node are
looked at once more, since a gate may stand without its label. Pods that are being deleted do not count, and gates of
others delay nothing.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog
from prometheus_client import Counter

from polyarch.kube.client.client import Client, JsonPatch
from polyarch.kube.errors import KubernetesError, NotFound
from polyarch.kube.resources import PODS
from polyarch.kube.runtime.events import Recorder, Regarding
from polyarch.model.pod import Pod
from polyarch.placement import names
from polyarch.placement.result.events import EventReason
from polyarch.placement.result.scheduling_gate import bare_release, carries_gate

log = structlog.get_logger(__name__)

GATED_SELECTOR: Final = f"{names.SCHEDULING_GATE_LABEL}={names.GATED}"
WITHOUT_NODE: Final = "status.phase=Pending,spec.nodeName="
AT_ONCE: Final = 16
"""Concurrent PATCHes."""
MOST_NAMED: Final = 5
"""Pods named in one message."""


class Gates:
    """``forced`` counts the gates that were lifted here."""

    def __init__(self, client: Client, recorder: Recorder, forced: Counter) -> None:
        self._client = client
        self._recorder = recorder
        self._forced = forced

    async def gated(self) -> list[Pod]:
        """The pods with our gate."""
        labelled = await self._list(label_selector=GATED_SELECTOR)
        return labelled or await self._list(field_selector=WITHOUT_NODE)

    async def _list(self, *, label_selector: str = "", field_selector: str = "") -> list[Pod]:
        found = await self._client.list(PODS, type=Pod, label_selector=label_selector, field_selector=field_selector)
        return [pod for pod in found.items if carries_gate(pod) and pod.metadata.deletion_timestamp is None]

    async def lift(self, pods: Sequence[Pod]) -> None:
        """Lifts the gates, one PATCH each. A pod that has changed since is tried again with the next list."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def lift(pod: Pod) -> None:
            async with turns:
                await self._lift(pod)

        async with asyncio.TaskGroup() as tasks:
            for pod in pods:
                tasks.create_task(lift(pod))

    async def _lift(self, pod: Pod) -> None:
        metadata = pod.metadata
        try:
            await self._client.patch(PODS, metadata.name, JsonPatch(bare_release(pod)), namespace=metadata.namespace)
        except NotFound:
            return
        except KubernetesError as error:
            log.warning("gate not lifted", pod=str(metadata.key), error=str(error))
            return
        self._forced.inc()
        log.warning("gate lifted by force, the pod has no constraint", pod=str(metadata.key))
        self._recorder.event(
            Regarding("v1", "Pod", metadata.namespace, metadata.name, metadata.uid),
            type="Warning",
            reason=EventReason.FORCED_RELEASE,
            action="LiftGate",
            note="placement is being removed, and nobody decided about the pod's architectures in time: its gate was "
            "removed without a constraint",
        )


def named(pods: Sequence[Pod]) -> str:
    """Up to five of the pods, and how many more there are; then the command that lifts the gate of the first."""
    keys = ", ".join(str(pod.metadata.key) for pod in pods[:MOST_NAMED])
    more = f" and {len(pods) - MOST_NAMED} more" if len(pods) > MOST_NAMED else ""
    return f"{keys}{more}; lift a gate with: {command(pods[0])}"


def command(pod: Pod) -> str:
    """The ``kubectl`` command that lifts the gate of this pod."""
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    place = f"/spec/schedulingGates/{gates.index(names.GATE)}"
    patch = f'[{{"op":"remove","path":"{place}"}}]'
    return f"kubectl patch pod {pod.metadata.name} -n {pod.metadata.namespace} --type=json -p '{patch}'"
