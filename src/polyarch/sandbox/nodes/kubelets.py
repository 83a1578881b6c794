"""The kubelets of all nodes of a sandbox, as one controller (SB-004).

An informer feeds the keys of bound pods into a queue. Each reconcile asks the registry for the images that are due,
lets ``lifecycle`` decide what the containers do next, and reports it with one PATCH of the pod's status.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import structlog

from polyarch.kube.client.client import Client, StrategicPatch
from polyarch.kube.clock import Clock
from polyarch.kube.errors import Conflict, NotFound
from polyarch.kube.resources import PODS, SECRETS
from polyarch.kube.runtime.controller import After, Done
from polyarch.kube.runtime.events import Regarding
from polyarch.kube.runtime.store import Store
from polyarch.model.meta import Key
from polyarch.model.secret import DOCKER_CONFIG, DOCKER_CONFIG_JSON, Secret
from polyarch.oci.answer import Inspection
from polyarch.oci.auth.credentials import KeyringCredentials
from polyarch.oci.auth.keyring import Document
from polyarch.oci.reference import InvalidReference
from polyarch.sandbox.network.addresses import DEFAULT_POD_NETWORK, pod_address
from polyarch.sandbox.nodes import lifecycle, reporting
from polyarch.sandbox.nodes.fleet import NodePlan
from polyarch.sandbox.nodes.lifecycle import Pulled, Run
from polyarch.sandbox.nodes.pods import Container, Pod
from polyarch.sandbox.nodes.pulling import CannotPull, verdict
from polyarch.sandbox.tasks import together

log = structlog.get_logger(__name__)

STEPS_PER_PASS = 20
"""How many steps (init containers, for example) one reconcile takes; the next one continues."""


class ImageSource(Protocol):
    """The registry client, as far as a node uses it."""

    async def inspect(
        self, reference: str, *, credentials: KeyringCredentials | None = None, fresh: bool = False
    ) -> Inspection: ...


class Events(Protocol):
    """The runtime's event recorder, as far as a node uses it."""

    def event(
        self, regarding: Regarding, *, type: Literal["Normal", "Warning"], reason: str, note: str, action: str
    ) -> None: ...


class Memory:
    """State of one pod between reconciles."""

    def __init__(self, address: str, runs: dict[str, Run]) -> None:
        self.address = address
        self.runs = runs
        self.images: dict[str, Pulled] = {}
        self.reported: dict[str, Run] | None = None


class Kubelets:
    """The reconciler; see the module's docstring."""

    def __init__(
        self,
        client: Client,
        images: ImageSource,
        pods: Store[Pod],
        plans: Iterable[NodePlan],
        *,
        clock: Clock,
        events: Events,
        pod_network: int = DEFAULT_POD_NETWORK,
    ) -> None:
        self._client = client
        self._images = images
        self._pods = pods
        self._plans = {plan.name: plan for plan in plans}
        self._clock = clock
        self._events = events
        self._pod_network = pod_network
        self._memories: dict[Key, tuple[str, Memory]] = {}
        self._present: dict[tuple[str, str], Pulled] = {}
        self._numbers = itertools.count(1)

    async def reconcile(self, key: Key) -> Done | After:
        """Bring the pod ``key`` one step forward."""
        pod = self._pods.get(key)
        plan = self._plans.get(pod.spec.node_name) if pod is not None else None
        if pod is None or plan is None:
            self._memories.pop(key, None)
            return Done()
        if pod.metadata.deletion_timestamp is not None:
            await self._remove(pod)
            return Done()
        if pod.finished:
            return Done()
        try:
            return await self._advance(pod, plan, self._memory(pod, plan))
        except (NotFound, Conflict):
            # The pod was deleted, and perhaps created again under the same name: its watch event requeues the key.
            self._memories.pop(key, None)
            return Done()

    async def _remove(self, pod: Pod) -> None:
        """Delete a terminating pod's object: nothing runs, so nothing has to be waited for."""
        self._memories.pop(pod.metadata.key, None)
        try:
            await self._client.delete(
                PODS,
                pod.metadata.name,
                namespace=pod.metadata.namespace,
                uid=pod.metadata.uid,
                grace_period_seconds=0,
            )
        except (NotFound, Conflict):
            return

    def _memory(self, pod: Pod, plan: NodePlan) -> Memory:
        uid, memory = self._memories.get(pod.metadata.key, ("", None))
        if memory is None or uid != pod.metadata.uid:
            memory = Memory(self._address(pod, plan), lifecycle.recover(pod, self._clock.now()))
            self._memories[pod.metadata.key] = (pod.metadata.uid, memory)
        return memory

    def _address(self, pod: Pod, plan: NodePlan) -> str:
        if pod.spec.host_network:
            return plan.address
        if pod.status.pod_ip:
            return pod.status.pod_ip
        return pod_address(next(self._numbers), network=self._pod_network)

    async def _advance(self, pod: Pod, plan: NodePlan, memory: Memory) -> Done | After:
        wait: float | None = 0.0
        for _ in range(STEPS_PER_PASS):
            now = self._clock.now()
            due = set(lifecycle.due_images(pod, memory.runs, now))
            # One container for each image: the one with the strictest pull policy.
            wanted = {
                each.image: each for each in _by_policy([*pod.init_containers, *pod.containers]) if each.image in due
            }
            pulled = await together(self._pull(pod, plan, container) for container in wanted.values())
            memory.images |= dict(zip(wanted, pulled, strict=True))
            step = lifecycle.step(pod, memory.runs, memory.images, now)
            memory.runs, wait = step.runs, step.wait
            if wait != 0.0:
                break
        if memory.runs != memory.reported:
            await self._report(pod, plan, memory)
        return Done() if wait is None else After(max(wait, 0.01))

    async def _report(self, pod: Pod, plan: NodePlan, memory: Memory) -> None:
        status = reporting.status(
            pod,
            memory.runs,
            memory.images,
            host_address=plan.address,
            pod_address=memory.address,
            now=self._clock.now(),
        )
        # The uid in the patch is a precondition: never report on another pod of the same name.
        patch = StrategicPatch({"metadata": {"uid": pod.metadata.uid}, "status": status})
        await self._client.patch(PODS, pod.metadata.name, patch, namespace=pod.metadata.namespace, subresource="status")
        self._tell(pod, memory)
        memory.reported = memory.runs

    def _tell(self, pod: Pod, memory: Memory) -> None:
        regarding = Regarding("v1", "Pod", pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        for notice in reporting.notices(pod, memory.reported or {}, memory.runs):
            self._events.event(
                regarding, type=notice.type, reason=notice.reason, note=notice.note, action=notice.reason
            )

    async def _pull(self, pod: Pod, plan: NodePlan, container: Container) -> Pulled:
        """Pull the image: ask the registry if the pull policy says so, and judge the answer for this node."""
        image = container.image
        present = self._present.get((plan.name, image))
        if container.image_pull_policy == "Never":
            message = f'Container image "{image}" is not present with pull policy of Never'
            return present or Pulled(CannotPull(message, "ErrImageNeverPull"))
        if present is not None and container.image_pull_policy != "Always":
            return present
        try:
            answer = await self._images.inspect(image, credentials=await self._credentials(pod), fresh=True)
        except InvalidReference as error:
            message = f'Failed to apply default image tag "{image}": couldn\'t parse image name: {error.problem}'
            return Pulled(CannotPull(message, "InvalidImageName"))
        pulled = Pulled(verdict(image, answer, plan.architecture), f"{answer.reference.name}@{answer.digest}")
        if isinstance(pulled.verdict, CannotPull):
            log.info("image pull failed", pod=str(pod.metadata.key), node=plan.name, problem=pulled.verdict.message)
        else:
            self._present[plan.name, image] = pulled
        return pulled

    async def _credentials(self, pod: Pod) -> KeyringCredentials | None:
        """The pod's pull secrets; a missing one is skipped, as kubelets do."""
        documents = []
        for reference in pod.spec.image_pull_secrets or ():
            try:
                secret = await self._client.get(SECRETS, reference.name, namespace=pod.metadata.namespace, type=Secret)
            except NotFound:
                continue
            documents += _documents(pod.metadata.namespace, reference.name, secret)
        return KeyringCredentials(documents) if documents else None


def _documents(namespace: str, name: str, secret: Secret) -> list[Document]:
    """The docker configuration in a Secret of one of the two docker types; nothing for other types."""
    keys = {DOCKER_CONFIG_JSON: ".dockerconfigjson", DOCKER_CONFIG: ".dockercfg"}
    body = (secret.data or {}).get(keys.get(secret.type, ""))
    if body is None:
        return []
    return [Document(f"secret {namespace}/{name}", body, legacy=secret.type == DOCKER_CONFIG)]


_POLICIES = ("Never", "IfNotPresent", "", "Always")


def _by_policy(containers: Sequence[Container]) -> list[Container]:
    return sorted(containers, key=lambda container: _POLICIES.index(container.image_pull_policy))
