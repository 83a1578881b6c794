"""A whole operator on the blocks of ``polyarch.kube``, as one would write it: fleets own a Deployment and a ConfigMap.

Run by ``test_owner_operator.py`` as a process of its own, with a ServiceAccount that has exactly :func:`rights`::

    python owner_operator.py '{"group": "x.example.dev", "namespace": "demo", "kubeconfig": …, "cert_dir": …}'

It reads top down as any operator does: the resource and its versions, the objects that it makes (pure), the conditions
(pure), one pass, the wiring.
"""

import asyncio
import sys
from datetime import datetime
from typing import Any

import msgspec

from polyarch.clock import SystemClock
from polyarch.kube import config, events, lease, schema
from polyarch.kube.apply import ApplyFailed, ApplyResult, ApplySet
from polyarch.kube.client import Client
from polyarch.kube.conditions import apply_status, merged
from polyarch.kube.controller import Controller, NoRequeue, RequeueAfter, Result, TerminalError
from polyarch.kube.conversion import ConversionRoute, InvalidField, Spoke
from polyarch.kube.events import Recorder, Regarding
from polyarch.kube.manager import Addresses, Components, Leadership, Process, Role
from polyarch.kube.metrics import Metrics
from polyarch.kube.owners import EnqueueOwner, Owner, add_finalizer, owned_by, remove_finalizer
from polyarch.kube.rbac import PolicyRule, rule
from polyarch.kube.resources import CONFIGMAPS, DEPLOYMENTS, Resource
from polyarch.kube.settings import ProcessSettings
from polyarch.objects import Condition, ObjectKey, Unstructured
from polyarch.run.logs import configure

MANAGER = "fleet-operator"
LABEL = "fleets.example.dev/part-of"
FINALIZER = "fleets.example.dev/cleanup"
MOOD = "fleets.example.dev/mood"
LEASE = "fleet-operator"
CONVERT = "/convert"


class Settings(msgspec.Struct, frozen=True):
    """What the test tells the operator. ``force``: take fields that others have."""

    group: str
    namespace: str
    kubeconfig: str
    cert_dir: str
    force: bool = True


# -- the resource and its versions ------------------------------------------------------------------------------------


def fleets(group: str) -> Resource:
    return Resource(group, "v1", "fleets", "Fleet")


def definition(group: str) -> dict[str, Any]:
    """v1 is stored; v1alpha1 counted ``ships`` and had a ``mood``."""
    status = schema.obj({"conditions": schema.conditions(), "ships": schema.integer()})
    common = {"image": schema.text(), "settings": schema.text(), "cpu": schema.text()}
    spec = schema.obj({"replicas": schema.integer(), **common})
    old = schema.obj({"ships": schema.text(), "mood": schema.text(), **common})
    return schema.custom_resource(
        fleets(group),
        [
            schema.version("v1", "A fleet.", spec, status),
            schema.version("v1alpha1", "A fleet.", old, status, storage=False),
        ],
    )


def to_v1(document: dict[str, Any]) -> None:
    spec = document.setdefault("spec", {})
    if "ships" in spec:
        ships = spec.pop("ships")
        if not ships.isdecimal():
            raise InvalidField("spec.ships", f"{ships!r} is no number")
        spec["replicas"] = int(ships)
    if "mood" in spec:
        document["metadata"].setdefault("annotations", {})[MOOD] = spec.pop("mood")


def from_v1(document: dict[str, Any]) -> None:
    spec, annotations = document.setdefault("spec", {}), document["metadata"].get("annotations", {})
    if "replicas" in spec:
        spec["ships"] = str(spec.pop("replicas"))
    if MOOD in annotations:
        spec["mood"] = annotations.pop(MOOD)


# -- the objects, pure ------------------------------------------------------------------------------------------------


def objects(group: str, fleet: Unstructured) -> list[dict[str, Any]]:
    """Everything that a fleet needs; with no replicas there is no Deployment, without settings no ConfigMap."""
    metadata, spec = fleet.metadata, fleet.document.get("spec") or {}
    owner = Owner.of(fleets(group), metadata)
    place = {"name": metadata.name, "namespace": metadata.namespace}
    found: list[dict[str, Any]] = []
    if settings := spec.get("settings"):
        data = {"settings": settings}
        found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": place, "data": data})
    if replicas := spec.get("replicas", 1):
        labels = {"fleet": metadata.name}
        container = {
            "name": "ship",
            "image": spec.get("image", ""),
            "env": [{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "ports": [{"containerPort": 8080}],
            "resources": {"requests": {"cpu": spec.get("cpu", "10m")}},
        }
        pod = {"containers": [container], "terminationGracePeriodSeconds": 0}
        template = {"metadata": {"labels": labels}, "spec": pod}
        deployment = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        found.append({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": place, "spec": deployment})
    return [owned_by(owner, each) for each in found]


# -- the conditions, pure ---------------------------------------------------------------------------------------------


def conditions(deployment: Unstructured | None, outcome: ApplyResult, problem: str) -> list[Condition]:
    ready = deployment is not None and deployment.status.get("availableReplicas", 0) > 0
    contested = "; ".join(f"{ref}: {conflict}" for ref, conflict in outcome.contested)
    if problem or contested:
        degraded = Condition("Degraded", "True", "Conflict" if contested else "Failed", problem or contested)
    else:
        degraded = Condition("Degraded", "False", "AsExpected")
    return [Condition("Available", "True" if ready else "False", "AsExpected" if ready else "NoShips"), degraded]


def status(
    fleet: Unstructured, found: list[Condition], deployment: Unstructured | None, now: datetime
) -> dict[str, Any]:
    current = fleet.status.get("conditions")
    ships = deployment.status.get("availableReplicas", 0) if deployment is not None else 0
    return {"conditions": merged(found, current, generation=fleet.metadata.generation, now=now), "ships": ships}


# -- one pass ---------------------------------------------------------------------------------------------------------


class Fleets:
    """Looks at one fleet, and makes the cluster what it asks for."""

    def __init__(self, process: Process, settings: Settings, recorder: Recorder) -> None:
        self.resource = fleets(settings.group)
        self._settings = settings
        self._client = process.client
        self._clock = process.clock
        self._recorder = recorder
        self.fleets = process.informer(self.resource, Unstructured, namespace=settings.namespace)
        self.operands = ApplySet(
            process.client,
            process.informers,
            kinds=[(DEPLOYMENTS, settings.namespace), (CONFIGMAPS, settings.namespace)],
            label=LABEL,
            field_manager=MANAGER,
            force=settings.force,
            clock=process.clock,
        )

    async def reconcile(self, key: ObjectKey) -> Result:
        fleet = self.fleets.store.get(key)
        if fleet is None:
            return NoRequeue()
        if fleet.metadata.deletion_timestamp is not None:
            return await self._end(fleet)
        if (fleet.document.get("spec") or {}).get("replicas", 1) < 0:
            await self._tell(fleet, ApplyResult(), "spec.replicas is below zero: set it to 0 or more")
            raise TerminalError("spec.replicas is below zero")
        if not await add_finalizer(self._client, self.resource, fleet.metadata, FINALIZER):
            return NoRequeue()
        try:
            outcome, problem = await self.operands.apply(objects(self._settings.group, fleet), part_of=_part(fleet)), ""
        except ApplyFailed as error:
            await self._tell(fleet, error.outcome, str(error))
            raise
        if outcome.changed:
            self._event(fleet, "Changed", "objects of the fleet were changed")
        await self._tell(fleet, outcome, problem)
        return RequeueAfter(60) if outcome.contested else NoRequeue()

    async def _end(self, fleet: Unstructured) -> Result:
        """Its objects first, then the finalizer: nothing is left behind."""
        if FINALIZER not in (fleet.metadata.finalizers or []):
            return NoRequeue()
        left = await self.operands.delete(_part(fleet))
        if left:
            return RequeueAfter(0.2)
        await remove_finalizer(self._client, self.resource, fleet.metadata, FINALIZER)
        self._event(fleet, "Gone", "nothing is left of the fleet")
        return NoRequeue()

    async def _tell(self, fleet: Unstructured, outcome: ApplyResult, problem: str) -> None:
        deployment = self.operands.get(DEPLOYMENTS, fleet.metadata.key)
        found = conditions(deployment, outcome, problem)
        document = status(fleet, found, deployment, self._clock.now())
        await apply_status(
            self._client, self.resource, fleet, document, field_manager=MANAGER, writes=self.fleets.writes
        )

    def _event(self, fleet: Unstructured, reason: str, note: str) -> None:
        metadata = fleet.metadata
        about = Regarding(
            self.resource.api_version, self.resource.kind, metadata.namespace, metadata.name, metadata.uid
        )
        self._recorder.event(about, type="Normal", reason=reason, note=note, action="Reconcile")


def _part(fleet: Unstructured) -> str:
    return fleet.metadata.uid


# -- the wiring -------------------------------------------------------------------------------------------------------


def rights(group: str) -> tuple[PolicyRule, ...]:
    """In its own namespace; the names of its objects are its users' choice."""
    return (
        rule(fleets(group), "get", "list", "watch", "patch"),
        rule(fleets(group), "patch", subresource="status"),
        rule(DEPLOYMENTS, "get", "list", "watch", "create", "patch", "delete"),
        rule(CONFIGMAPS, "get", "list", "watch", "create", "patch", "delete"),
        *events.RIGHTS,
        *lease.rights(LEASE),
    )


async def setup(process: Process) -> Components:
    settings = process.settings_of(Settings)
    recorder = process.recorder("example.dev/fleet-operator")
    logic = Fleets(process, settings, recorder)
    controller: Controller[ObjectKey] = Controller(
        "fleets", logic.reconcile, clock=process.clock, metrics=process.metrics, writes=logic.fleets.writes
    )
    logic.fleets.add_handler(lambda change: controller.queue.add(change.key))
    logic.operands.add_handler(EnqueueOwner(logic.resource).into(controller.queue))
    conversion = ConversionRoute(
        path=CONVERT, name="fleets", resource=logic.resource, spokes={"v1alpha1": Spoke(to_v1, from_v1)}
    )
    return Components(
        routes=(conversion,),
        leaderships=(Leadership(election=process.election(LEASE), controllers=(controller,)),),
        recorders=(recorder,),
    )


ROLE = Role(name="fleet-operator", setup=setup, settings=(Settings,), needs_certificate=True)


async def main(settings: Settings) -> None:
    configure("json")
    where = config.load(settings.kubeconfig, None, {})
    told = ProcessSettings(
        namespace=settings.namespace, port=0, metrics_port=0, health_port=0, cert_dir=settings.cert_dir
    )
    async with (
        Client(where, role=ROLE.name, clock=SystemClock()) as client,
        Process(ROLE.name, told, client, Metrics(), role_settings=[settings], announce=_announce) as process,
    ):
        await process.run(ROLE)


def _announce(addresses: Addresses) -> None:
    sys.stdout.write(msgspec.json.encode(addresses).decode() + "\n")
    sys.stdout.flush()


def _settings(argument: str) -> Settings:
    return msgspec.json.decode(argument, type=Settings)


if __name__ == "__main__":
    asyncio.run(main(_settings(sys.argv[1])))
