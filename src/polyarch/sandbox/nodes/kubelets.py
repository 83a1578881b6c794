"""The kubelets of all nodes of a sandbox, as one controller.

An informer feeds the keys of bound pods into a queue. Each reconcile asks the registry for the images that are due,
starts the containers of polyarch's own image that are due, lets ``lifecycle`` decide what all containers do next, and
reports it with one PATCH of the pod's status."""

import datetime as dt
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import structlog

from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.controller import NoRequeue, RequeueAfter
from polyarch.kube.errors import Conflict, NotFound
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.patches import StrategicPatch
from polyarch.kube.resources import NODES, PODS, SECRETS
from polyarch.kube.store import Store
from polyarch.objects import DOCKER_CONFIG, DOCKER_CONFIG_JSON, ObjectKey, Secret
from polyarch.oci.auth.credential_stores import KeyringCredentials
from polyarch.oci.auth.credentials import Document
from polyarch.oci.inspection import Inspection
from polyarch.oci.inspector import Inspector
from polyarch.oci.pull_sources import Configuration, candidates, search
from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.sandbox import network
from polyarch.sandbox.kubelet_model.requests import NodeObject, PodRejected
from polyarch.sandbox.network import DEFAULT_POD_NETWORK
from polyarch.sandbox.nodes import lifecycle, reporting
from polyarch.sandbox.nodes.lifecycle import CannotPull, Pulled, Runs, SimulatedContainer, verdict
from polyarch.sandbox.nodes.plans import Node, NodePlan, node_object
from polyarch.sandbox.nodes.pods import Container, Pod, pod_request
from polyarch.sandbox.nodes.simulated_kubelet import SimulatedKubelets
from polyarch.sandbox.pods.outcome import CannotStart, PodFault, ProcessState, Started
from polyarch.sandbox.pods.programs import is_run
from polyarch.sandbox.pods.runner import BoundPod, PodRunner
from polyarch.sandbox.tasks import together

log = structlog.get_logger(__name__)

UNREGISTERED_SECONDS = 1.0
"""Until a pod is looked at again whose node has no Node object at the moment."""
FINISHED_SECONDS = 30.0
"""The grace of sidecars when all other containers of a pod have ended."""
STEPS_PER_PASS = 20
"""How many steps (init containers, for example) one reconcile takes; the next one continues."""


class PodState:
    """State of one pod between reconciles."""

    def __init__(
        self, node: str, address: str, runs: dict[str, SimulatedContainer], bound: BoundPod | None = None
    ) -> None:
        self.node = node
        self.address = address
        self.runs = runs
        self.bound = bound
        """Of a pod that is run."""
        self.images: dict[str, Pulled] = {}
        self.reported: dict[str, SimulatedContainer] | None = None
        self.gates: tuple[str, ...] = ()
        """How the readiness gates were when that was reported."""
        self.ends = False
        """It has been reported that the pod is being deleted."""
        self.since: dict[str, dict[str, str]] = {}
        """The conditions as last reported, by type; only of a pod that is run."""
        self.rejection: PodRejected | None = None
        """Why its node did not admit it."""
        self.created: set[str] = set()
        """The containers of which the node's kubelet knows that they were created."""


class Kubelets:
    """The reconciler; see the module's docstring."""

    def __init__(
        self,
        client: Client,
        images: Inspector,
        pods: Store[Pod],
        plans: Iterable[NodePlan],
        *,
        clock: Clock,
        events: Recorder,
        runner: PodRunner,
        numa: SimulatedKubelets,
        sources: Configuration | None = None,
        is_lost: Callable[[str], bool] = lambda node: False,
        seen: Callable[[str], NodeObject] = lambda node: NodeObject(name=node),
        pod_network: int = DEFAULT_POD_NETWORK,
    ) -> None:
        self._client = client
        self._images = images
        self._pods = pods
        self._plans = {plan.name: plan for plan in plans}
        self._clock = clock
        self._events = events
        self._runner = runner
        self._numa = numa
        self._sources = sources or Configuration()
        self._is_lost = is_lost
        self._seen = seen
        self._pod_network = pod_network
        self._states: dict[ObjectKey, tuple[str, PodState]] = {}
        self._present: dict[tuple[str, str], Pulled] = {}
        self._numbers = itertools.count(1)
        self._addresses: set[str] | None = None
        """In use; None until the first one is chosen."""

    async def reconcile(self, key: ObjectKey) -> NoRequeue | RequeueAfter:
        """Bring the pod ``key`` one step forward."""
        pod = self._pods.get(key)
        plan = self._plans.get(pod.spec.node_name) if pod is not None else None
        if pod is None or plan is None:
            self._forget(key)
            return NoRequeue()
        if self._is_lost(plan.name):
            return NoRequeue()
        runs = any(is_run(each.image) for each in [*pod.init_containers, *pod.containers])
        try:
            if pod.metadata.deletion_timestamp is not None:
                if runs and not pod.finished:
                    return await self._end(pod, plan, self._state(pod, plan))
                await self._remove(pod)
                return NoRequeue()
            if pod.finished:
                self._numa.over(plan.name, pod.metadata.uid)
                if runs:
                    await self._settle(self._state(pod, plan))
                    if pod.status.phase == "Succeeded" and self._runner.fault(pod.metadata.uid) is PodFault.VANISH:
                        await self._remove(pod)
                return NoRequeue()
            state = self._state(pod, plan)
            if not await self._admitted(pod, plan, state):
                return NoRequeue() if state.rejection is not None else RequeueAfter(UNREGISTERED_SECONDS)
            return await self._advance(pod, plan, state)
        except (NotFound, Conflict):
            # The pod was deleted, and perhaps created again under the same name: its watch event requeues the key.
            return NoRequeue()

    async def _end(self, pod: Pod, plan: NodePlan, state: PodState) -> NoRequeue | RequeueAfter:
        """Bring a pod that is run and being deleted to its end: its object goes when none of its processes runs."""
        bound = state.bound
        assert bound is not None and pod.metadata.deletion_timestamp is not None  # noqa: S101, PT018  by the caller
        await self._runner.open(bound)
        now = self._clock.now()
        deadline = dt.datetime.fromisoformat(pod.metadata.deletion_timestamp)
        over = self._runner.end(bound.uid, (deadline - now).total_seconds())
        observed = self._runner.observed(bound.uid)
        state.runs = lifecycle.ending(state.runs, observed)
        if not over:
            if not state.ends or state.runs != state.reported:
                state.ends = True
                await self._report(pod, plan, state)
            return NoRequeue()
        if state.runs != state.reported:
            await self._report(pod, plan, state, phase=lifecycle.last_phase(pod, state.runs))
        await self._remove(pod)
        return NoRequeue()

    async def _settle(self, state: PodState) -> None:
        """End the sidecars of a finished pod; its folder stays until its object goes."""
        assert state.bound is not None  # noqa: S101  by the caller
        await self._runner.open(state.bound)
        if self._runner.end(state.bound.uid, FINISHED_SECONDS):
            self._runner.settle(state.bound.uid)

    def _forget(self, key: ObjectKey) -> None:
        """The pod is gone."""
        uid, state = self._states.pop(key, ("", None))
        if state is not None:
            self._numa.over(state.node, uid, is_gone=True)
            if self._addresses is not None:
                self._addresses.discard(state.address)
            if state.bound is not None:
                self._runner.drop(uid)

    async def _remove(self, pod: Pod) -> None:
        """Delete a terminating pod's object when nothing of it runs."""
        self._numa.over(pod.spec.node_name, pod.metadata.uid, is_gone=True)
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

    def _state(self, pod: Pod, plan: NodePlan) -> PodState:
        key, uid, now = pod.metadata.key, pod.metadata.uid, self._clock.now()
        known, state = self._states.get(key, ("", None))
        if state is not None and known == uid:
            return state
        self._forget(key)
        address = self._address(pod, plan)
        runs = lifecycle.recover(pod, now)
        ours = {each.name for each in [*pod.init_containers, *pod.containers] if is_run(each.image)}
        state = PodState(plan.name, address, lifecycle.recover_processes(pod, runs, ours, now) if ours else runs)
        if ours:
            host = network.loopback_on_node(plan.address, network=self._pod_network)
            loopback = host if pod.spec.host_network else network.loopback_of(address)
            state.bound = BoundPod(key, uid, plan.name, host, loopback)
        self._states[key] = (uid, state)
        return state

    def _address(self, pod: Pod, plan: NodePlan) -> str:
        """The pod's address: of all pods that live only it has it."""
        if pod.spec.host_network:
            return plan.address
        if self._addresses is None:
            self._addresses = {each.status.pod_ip for each in self._pods.values()}
        address = pod.status.pod_ip
        while not address or (not pod.status.pod_ip and address in self._addresses):
            address = network.pod_address(next(self._numbers), network=self._pod_network)
        self._addresses.add(address)
        return address

    async def _admitted(self, pod: Pod, plan: NodePlan, state: PodState) -> bool:
        """Whether the node's kubelet admits the pod; one that it does not admit fails. Nothing is decided while there
        is no Node."""
        kubelet = self._numa.admitting(plan.name)
        if kubelet is None or kubelet.has(pod.metadata.uid):
            return True
        is_first = state.rejection is None
        if is_first:
            request, seen = pod_request(pod), self._seen(plan.name)
            if not seen.suits(request):  # perhaps it has become so just now; a kubelet looks again, too
                try:
                    seen = node_object(await self._client.get(NODES, plan.name, type=Node))
                except NotFound:
                    return False
            state.rejection = kubelet.admit(request, seen)
        rejection = state.rejection
        if rejection is None:
            return True
        status = reporting.rejected(pod, rejection.reason, rejection.message, self._clock.now())
        patch = StrategicPatch({"metadata": {"uid": pod.metadata.uid}, "status": status})
        await self._client.patch(PODS, pod.metadata.name, patch, namespace=pod.metadata.namespace, subresource="status")
        if is_first:
            regarding = Regarding("v1", "Pod", pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
            self._events.event(
                regarding, type="Warning", reason=rejection.reason, note=rejection.message, action=rejection.reason
            )
        return False

    def _note_created(self, state: PodState, uid: str) -> None:
        """Tell the node's kubelet which containers have been created: it takes back what init containers before them
        held."""
        created = {name for name, run in state.runs.items() if not run.activity.unstarted}
        for name in sorted(created - state.created):
            state.created.add(name)
            if (kubelet := self._numa.of(state.node)) is not None:
                kubelet.started(uid, name)

    async def _advance(self, pod: Pod, plan: NodePlan, state: PodState) -> NoRequeue | RequeueAfter:
        wait: float | None = 0.0
        if state.bound is not None:
            await self._runner.open(state.bound)
            self._runner.note(state.bound.uid, pod.metadata)
        for _ in range(STEPS_PER_PASS):
            now = self._clock.now()
            starts, observed = await self._start(pod, state, now) if state.bound is not None else ({}, {})
            due = {image for image in lifecycle.due_images(pod, state.runs, now) if not is_run(image)}
            # One container for each image: the one with the strictest pull policy.
            wanted = {
                each.image: each for each in _by_policy([*pod.init_containers, *pod.containers]) if each.image in due
            }
            pulled = await together(self._pull(pod, plan, container) for container in wanted.values())
            state.images |= dict(zip(wanted, pulled, strict=True))
            step = lifecycle.step(pod, state.runs, state.images, now, starts=starts, observed=observed)
            state.runs, wait = step.runs, step.wait
            self._note_created(state, pod.metadata.uid)
            if wait != 0.0:
                break
        if state.runs != state.reported or state.gates != reporting.gates(pod):
            await self._report(pod, plan, state)
        return NoRequeue() if wait is None else RequeueAfter(max(wait, 0.01))

    async def _start(
        self, pod: Pod, state: PodState, now: dt.datetime
    ) -> tuple[Mapping[str, Started | CannotStart], Mapping[str, ProcessState]]:
        """Start the containers of polyarch's image that are due, and look at all its processes."""
        bound = state.bound
        assert bound is not None  # noqa: S101  by the caller
        due = [each for each in lifecycle.due(pod, state.runs, now) if is_run(each.image)]
        tried = await together(
            self._runner.start(bound, each.name, lifecycle.attempt(state.runs.get(each.name, SimulatedContainer())))
            for each in due
        )
        # Such an image is on every node; it is never pulled.
        state.images |= {each.image: Pulled(Runs(), each.image) for each in due}
        return dict(zip((each.name for each in due), tried, strict=True)), self._runner.observed(bound.uid)

    async def _report(self, pod: Pod, plan: NodePlan, state: PodState, *, phase: str = "") -> None:
        if state.bound is not None and not state.since:
            state.since = await self._conditions(pod)
        status = reporting.status(
            pod,
            state.runs,
            state.images,
            host_address=plan.address,
            pod_address=state.address,
            now=self._clock.now(),
            ends=state.ends,
            since=state.since,
        )
        if phase:
            status["phase"] = phase
        if state.bound is not None and status["phase"] == "Failed" and self._is_evicted(state.bound):
            status = reporting.evicted(pod, status, self._clock.now())
        if state.bound is not None:
            state.since = {each["type"]: each for each in status["conditions"]}
        # The uid in the patch is a precondition: never report on another pod of the same name.
        patch = StrategicPatch({"metadata": {"uid": pod.metadata.uid}, "status": status})
        await self._client.patch(PODS, pod.metadata.name, patch, namespace=pod.metadata.namespace, subresource="status")
        self._tell(pod, state)
        state.reported, state.gates = state.runs, reporting.gates(pod)

    def _is_evicted(self, bound: BoundPod) -> bool:
        return self._runner.fault(bound.uid) is PodFault.EVICT

    async def _conditions(self, pod: Pod) -> dict[str, dict[str, str]]:
        """The conditions of a pod that was reported by an earlier process."""
        if not pod.status.conditions:
            return {}
        document: dict[str, Any] = await self._client.get(PODS, pod.metadata.name, namespace=pod.metadata.namespace)
        return {each["type"]: each for each in document.get("status", {}).get("conditions") or ()}

    def _tell(self, pod: Pod, state: PodState) -> None:
        regarding = Regarding("v1", "Pod", pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        for notice in reporting.kubelet_events(pod, state.reported or {}, state.runs):
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
            credentials = await self._credentials(pod)
            ask = partial(self._images.inspect, credentials=credentials, fresh=True)
            answer = await inspected(image, self._sources, ask)
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


async def inspected(
    image: str, sources: Configuration, inspect: Callable[[Reference], Awaitable[Inspection]]
) -> Inspection:
    """The answer for an image as a pod names it. A short name is looked for as by CRI-O where the configuration has
    registries to search, else it is Docker Hub's, as for containerd. Raises ``InvalidReference``."""
    return await search(candidates(image, sources) if sources.search else (parse(image),), inspect)


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
