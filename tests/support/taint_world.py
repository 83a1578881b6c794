"""A process that adds tolerations at admission, against facts and registries in memory."""

import asyncio
import json
from typing import Any

import msgspec
from manual_clock import ManualClock
from placement_world import OPERATOR, FakeInspector, FakeSecrets, FakeWatches

from polyarch.images.metrics import LookupMetrics
from polyarch.images.pod_mutation import PodMutation
from polyarch.images.pull_secrets import PullSecrets
from polyarch.images.resolver import AdmissionLookups
from polyarch.kube.admission import Reviewer, Route
from polyarch.kube.metrics import Metrics
from polyarch.kube.patches import Operation, apply_patch
from polyarch.objects import Pod
from polyarch.taints import names
from polyarch.taints.facts import TaintFacts
from polyarch.taints.metrics import TaintMetrics
from polyarch.taints.webhook import PodAdmission, TemplateAdmission

BOTH = ("linux/amd64", "linux/arm64")
EVERYWHERE = {"mode": "tolerations", "architectures": ["amd64", "arm64"]}


class Answer(msgspec.Struct):
    """What the API server gets back, and what it makes of it."""

    response: dict[str, Any]
    object: dict[str, Any]

    @property
    def paths(self) -> list[str]:
        return [operation["path"] for operation in self.response.get("patch") or []]

    @property
    def warnings(self) -> list[str]:
        return self.response.get("warnings") or []

    @property
    def tolerated(self) -> list[str]:
        return tolerated(self.object["spec"])

    @property
    def is_gated(self) -> bool:
        return is_gated(self.object)


class TaintWorld:
    """One process. ``spec``: of the ArchitectureTaints; None: there is none."""

    def __init__(self, spec: dict[str, Any] | None = None) -> None:
        self.clock = ManualClock(start=1000)
        self.watches = FakeWatches()
        self.facts = TaintFacts(self.watches, namespace=OPERATOR, clock=self.clock)
        self.registry = FakeInspector(self.clock)
        self.metrics = Metrics()
        self.reader = FakeSecrets()
        self.secrets = PullSecrets(self.reader, self.clock)
        self.lookups = AdmissionLookups(self.registry, self.secrets, self.clock, LookupMetrics(self.metrics))
        self.bugs = 0
        self.pods = PodAdmission(
            facts=self.facts,
            lookups=self.lookups,
            clock=self.clock,
            metrics=TaintMetrics(self.metrics),
            failed=self._failed,
        )
        self.templates = TemplateAdmission(facts=self.facts, lookups=self.lookups, failed=self._failed)
        self._spec = spec

    async def start(self) -> None:
        """The facts are known, and the leader of the role ``taints`` has renewed its Lease."""
        self._running = asyncio.create_task(self.facts.run())
        await self.clock.run(0)
        if self._spec is not None:
            self.configure(**self._spec)
        self.watches.sync()
        self.renew()
        await self.clock.run(1)

    async def close(self) -> None:
        self._running.cancel()
        await self.lookups.close()
        await self.secrets.aclose()

    is_proven = True
    """The reviews come from an API server."""

    def configure(self, **spec: Any) -> None:
        self.watches["architecturetaints"].put({"metadata": {"name": "cluster"}, "spec": spec})

    def renew(self) -> None:
        if "leases" in self.watches.informers:
            spec = {"holderIdentity": "a", "renewTime": str(self.clock.monotonic())}
            self.watches["leases"].put({"metadata": {"name": names.LEASE, "namespace": OPERATOR}, "spec": spec})

    def _failed(self) -> None:
        self.bugs += 1

    async def admit(
        self, document: dict[str, Any], *, old: dict[str, Any] | None = None, seconds: float = 0.0, **request: Any
    ) -> Answer:
        """One admission by our own route; time passes until it is answered, but no more than ``seconds``."""
        task = asyncio.create_task(self._review(document, old, request))
        await self.clock.run(seconds)
        assert task.done(), "the admission has not been answered yet"
        return task.result()

    async def _review(self, document: dict[str, Any], old: dict[str, Any] | None, request: dict[str, Any]) -> Answer:
        is_pod = document["kind"] == "Pod"
        route: Route[Any] = self.pods.route() if is_pod else self.templates.route()
        resource = ("", "pods") if is_pod else ("apps", "daemonsets")
        asked = {
            "uid": "review",
            "kind": {"group": resource[0], "version": "v1", "kind": document["kind"]},
            "resource": {"group": resource[0], "version": "v1", "resource": resource[1]},
            "operation": "CREATE" if old is None else "UPDATE",
            "namespace": document["metadata"].get("namespace", "team"),
            "object": document,
            "oldObject": old,
            **request,
        }
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
        raw = await Reviewer(route, self.clock).answer(
            json.dumps(body).encode(), timeout=5.0, arrived_at=self.clock.monotonic(), is_proven=self.is_proven
        )
        response = json.loads(raw)["response"]
        if "patch" in response:
            response["patch"] = msgspec.json.decode(msgspec.json.decode(json.dumps(response["patch"]), type=bytes))
        operations = msgspec.convert(response.get("patch") or [], tuple[Operation, ...])
        return Answer(response, apply_patch(document, operations))


def with_addition(document: dict[str, Any], addition: PodMutation) -> dict[str, Any]:
    return apply_patch(document, addition.operations)


def stored(document: dict[str, Any]) -> Pod:
    """The pod as a controller reads it."""
    metadata = {"uid": "uid", "resourceVersion": "7", **document["metadata"]}
    return msgspec.convert({**document, "metadata": metadata}, Pod)


def tolerated(spec: dict[str, Any]) -> list[str]:
    """The architectures whose default taint the pod tolerates, in the order of its list."""
    return [each["value"] for each in spec.get("tolerations") or () if each.get("key") == "supported-arch"]


def is_gated(document: dict[str, Any]) -> bool:
    return {"name": names.GATE} in (document["spec"].get("schedulingGates") or [])


def daemon_set(*images: str, name: str = "agent", **spec: Any) -> dict[str, Any]:
    """A DaemonSet that a user might apply."""
    containers = [{"name": f"c{at}", "image": image} for at, image in enumerate(images)]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers, **spec}},
        },
    }
