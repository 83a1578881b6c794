"""Deployments on tainted nodes of four architectures: they grow, shrink and roll out; every pod runs where it can.

Some of their pods are reported to the exec-format-error monitor, as its node side does it, to keep its handler busy.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any, Final

from bench import load
from bench.soak.stage import PUBLIC, Stage
from bench.soak.trial import AWAY, Trial
from polyarch.kube.errors import NotFound
from polyarch.kube.informer import Informer
from polyarch.kube.patches import MergePatch
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import DEPLOYMENTS, PODS
from polyarch.kube.store import ObjectChange
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.placement import names
from polyarch.placement.api import ENOEXECEVENTS
from polyarch.sandbox.nodes.pods import Pod

SPACE: Final = "soak-shop"
MIXES: Final = (("amd64", "arm64"), ("arm64", "s390x"), ("ppc64le", "s390x"), ("amd64", "ppc64le", "s390x"))
MOST: Final = 6
PAUSE: Final = 6.0
SETTLE_SECONDS: Final = 240.0
FAILED: Final = ("CrashLoopBackOff", "Error", "RunContainerError")


class Shop:
    """The Deployments ``app0`` …; the image of each has the platforms of its mix."""

    def __init__(self, trial: Trial, stage: Stage) -> None:
        self._trial, self._stage, self._client = trial, stage, trial.client
        self._pods: dict[str, Pod] = {}
        self._wrong: set[str] = set()
        self._reported: set[str] = set()

    async def prepare(self) -> None:
        await load.make_namespace(self._client, SPACE)
        for at, platforms in enumerate(MIXES):
            await self._stage.push(PUBLIC, [f"app{at}"], platforms)
            await self._client.create(DEPLOYMENTS, _deployment(at), namespace=SPACE)

    async def churn(self) -> None:
        for number in itertools.count():
            await asyncio.sleep(PAUSE)
            if not self._trial.churning:
                return
            name = f"app{self._trial.dice.randrange(len(MIXES))}"
            if number % 5 == 4:
                template = {"metadata": {"annotations": {"soak.test/number": str(number)}}}
                request = self._client.patch(
                    DEPLOYMENTS, name, MergePatch({"spec": {"template": template}}), namespace=SPACE
                )
                await self._trial.tried("roll-outs", request)
            elif number % 5 == 2:
                await self._report()
            else:
                replicas = self._trial.dice.randrange(1, MOST + 1)
                await self._trial.tried(
                    "Deployments scaled", self._client.scale(DEPLOYMENTS, name, replicas, namespace=SPACE)
                )

    # -- pods ----------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        informer: Informer[Pod] = Informer(self._client, PODS, Pod, selection=ListOptions(namespace=SPACE))
        informer.add_handler(self._observe)
        watching = asyncio.create_task(informer.run())
        try:
            await informer.synced()
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def _observe(self, change: ObjectChange[Pod]) -> None:
        name, pod = change.key.name, change.new
        if pod is None:
            self._pods.pop(name, None)
            return
        if name not in self._pods:
            self._trial.counts["pods of Deployments"] += 1
        self._pods[name] = pod
        problem = "" if name in self._wrong else problem_of(pod)
        if not problem:
            return
        self._wrong.add(name)
        if _is_seen(pod):
            self._trial.problem("wrong", f"pod {name} of {SPACE}: {problem}")
        else:
            self._trial.counts["pods of Deployments that no webhook saw, and that fail"] += 1

    # -- the monitor ---------------------------------------------------------------------------------------------------

    async def _report(self) -> None:
        """As the node side: first the object, then what it knows."""
        running = [pod for pod in self._pods.values() if pod.status.phase == "Running"]
        if not running:
            return
        pod = self._trial.dice.choice(running)
        try:
            found = await self._client.get(PODS, pod.metadata.name, namespace=SPACE)
            [container] = found["status"]["containerStatuses"]
            name = f"soak-{pod.metadata.uid}"
            document = {
                "apiVersion": ENOEXECEVENTS.api_version,
                "kind": ENOEXECEVENTS.kind,
                "metadata": {"name": name},
            }
            await self._client.create(ENOEXECEVENTS, document, namespace=DEFAULT_NAMESPACE)
            self._reported.add(name)
            status = {
                "nodeName": pod.spec.node_name,
                "podName": pod.metadata.name,
                "podNamespace": SPACE,
                "containerID": container["containerID"],
            }
            patch = MergePatch({"status": status})
            await self._client.patch(ENOEXECEVENTS, name, patch, namespace=DEFAULT_NAMESPACE, subresource="status")
            self._trial.counts["reports to the monitor"] += 1
        except AWAY:
            self._trial.counts["changes refused"] += 1

    # -- the end -------------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Every Deployment has all its pods, and the handler no report left."""
        for pod in list(self._pods.values()):
            if pod.metadata.name in self._wrong and not _is_seen(pod):
                with contextlib.suppress(NotFound):
                    await self._client.delete(PODS, pod.metadata.name, namespace=SPACE)
        await self._trial.cleared("stuck", self._stuck, seconds=SETTLE_SECONDS)

    async def _stuck(self) -> list[str]:
        stuck = []
        for found in (await self._client.list(DEPLOYMENTS, namespace=SPACE)).items:
            wanted, ready = found["spec"]["replicas"], found["status"].get("availableReplicas", 0)
            if (ready, found["status"].get("updatedReplicas", 0)) != (wanted, wanted):
                stuck.append(f"Deployment {found['metadata']['name']} of {SPACE}: {ready} of {wanted} pods are there")
        for report in (await self._client.list(ENOEXECEVENTS, namespace=DEFAULT_NAMESPACE)).items:
            labels = report["metadata"].get("labels") or {}
            if report["metadata"]["name"] in self._reported and names.ENOEXEC_EVENT_ERROR_LABEL not in labels:
                stuck.append(f"ENoExecEvent {report['metadata']['name']}: nobody handles it")
        return stuck


def _deployment(at: int) -> dict[str, Any]:
    labels = {"app": f"app{at}"}
    container = {"name": "app", "image": f"{PUBLIC}/app{at}:1", "imagePullPolicy": "IfNotPresent"}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"app{at}"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _is_seen(pod: Pod) -> bool:
    return names.SCHEDULING_GATE_LABEL in (pod.metadata.labels or {})


def problem_of(pod: Pod) -> str:
    """Why the pod is where it cannot run; empty if it is not."""
    platforms = MIXES[int((pod.metadata.labels or {})["app"].removeprefix("app"))]
    architecture = pod.spec.node_name.partition("-")[0]
    if architecture and architecture not in platforms:
        return f"on {pod.spec.node_name}, its image runs on {', '.join(platforms)}"
    for status in pod.status.container_statuses or ():
        state = status.state
        if state.waiting is not None and state.waiting.reason in FAILED:
            return f"{state.waiting.reason} on {pod.spec.node_name}: {state.waiting.message}"
    return ""
