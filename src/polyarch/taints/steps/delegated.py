"""``bootstrap`` and ``apply`` where a controller does the work: its object is set, and its status watched (TN-063).

The object is created if there is none. ``bootstrap`` creates it with its nodes held back, so that everything else gets
ready; ``apply`` lets them go. Of an object that is there nothing but the hold is changed, and, to go on in spite of
blockers, how nodes are rolled out.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from polyarch.clock import Clock
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import JsonPatch, MergePatch, replace, test
from polyarch.kube.resources import Ref
from polyarch.kube.schema import without_nulls
from polyarch.objects import Key
from polyarch.taints.api.resources import ARCHITECTURE_TAINTS, ArchitectureTaints, ArchitectureTaintsSpec
from polyarch.taints.decide.rollout import HoldReason
from polyarch.taints.names import SINGLETON
from polyarch.taints.plan.hold import held, is_held, released
from polyarch.taints.result.contribution import DEGRADED, NODES_TAINTED, READY
from polyarch.taints.steps.writing import Change, KubernetesApi, Tell

LOOK_EVERY: Final = 1.0
OBJECT: Final = Ref(ARCHITECTURE_TAINTS, Key("", SINGLETON))


class Progressed(msgspec.Struct, frozen=True):
    """What the status says now."""

    done: bool = False
    tainted: int = 0
    waiting: int = 0
    waits_for: str = ""
    """What is not done yet, in the controller's words."""
    stopped: str = ""
    """Why the controller stopped tainting; empty: it did not."""


class NotInTime(Exception):  # noqa: N818 - what is the case
    """The controller has not finished; the text is what it waits for."""


class Delegated:
    """One object, and the controller that reads it."""

    def __init__(self, api: KubernetesApi, *, clock: Clock, dry_run: bool = False, tell: Tell = lambda _: None) -> None:
        self._api = api
        self._clock = clock
        self._dry_run = dry_run
        self._tell = tell

    async def prepare(self, document: Mapping[str, Any], live: ArchitectureTaints | None) -> None:
        """Has everything made ready and no node tainted; an object that is there stays as it is."""
        if live is None:
            spec = msgspec.convert(document["spec"], ArchitectureTaintsSpec)
            selector = msgspec.to_builtins(held(spec).nodes.selector)
            nodes = {**document["spec"].get("nodes", {}), "selector": without_nulls(selector)}
            await self._create(
                {**document, "spec": {**document["spec"], "nodes": nodes}}, "is created, nodes held back"
            )

    async def configure(self, document: Mapping[str, Any], live: ArchitectureTaints) -> None:
        """Gives an object that is there another spec."""
        if msgspec.convert(document["spec"], ArchitectureTaintsSpec) == released(live.spec):
            return
        version = live.metadata.resource_version
        operations = (test("/metadata/resourceVersion", version), replace("/spec", document["spec"]))
        await self._api.patch(ARCHITECTURE_TAINTS, SINGLETON, JsonPatch(operations), dry_run=self._dry_run)
        self._tell(Change(OBJECT, "gets another spec"))

    async def release(self, document: Mapping[str, Any], live: ArchitectureTaints | None) -> None:
        """Lets nodes be tainted."""
        if live is None:
            await self._create(document, "is created")
        elif is_held(live.spec):
            selector = released(live.spec).nodes.selector
            plain = None if selector is None else without_nulls(msgspec.to_builtins(selector))
            await self._set({"nodes": {"selector": None}} if plain is None else _expressions(plain), "lets nodes go")

    async def roll_out(self, how: str) -> None:
        """Sets ``spec.nodes.rollout``."""
        await self._set({"nodes": {"rollout": how}}, f"has spec.nodes.rollout: {how}")

    async def remove(self) -> None:
        """Sets ``spec.state`` to ``removing``."""
        await self._set({"state": "removing"}, "has spec.state: removing")

    async def found(self) -> ArchitectureTaints | None:
        """The object as it is."""
        try:
            live: ArchitectureTaints = await self._api.get(ARCHITECTURE_TAINTS, SINGLETON, type=ArchitectureTaints)
        except NotFound:
            return None
        return live

    async def wait(
        self,
        progressed: Callable[[ArchitectureTaints], Progressed],
        *,
        seconds: float,
        seen: Callable[[Progressed], None] = lambda _: None,
    ) -> Progressed:
        """Returns when the status says that it is done or stopped; ``seen`` is told whenever it says something new.

        Raises :class:`NotInTime`.
        """
        until = self._clock.monotonic() + seconds
        last = Progressed(waits_for="the status of the object")
        while True:
            live = await self.found()
            now = progressed(live) if live is not None else Progressed(waits_for="the object, which is gone")
            if now != last:
                seen(now)
            if now.done or now.stopped:
                return now
            if self._clock.monotonic() >= until:
                raise NotInTime(now.waits_for)
            last = now
            await self._clock.sleep(LOOK_EVERY)

    async def _create(self, document: Mapping[str, Any], what: str) -> None:
        await self._api.create(ARCHITECTURE_TAINTS, document, dry_run=self._dry_run)
        self._tell(Change(OBJECT, what))

    async def _set(self, spec: Mapping[str, Any], what: str) -> None:
        await self._api.patch(ARCHITECTURE_TAINTS, SINGLETON, MergePatch({"spec": spec}), dry_run=self._dry_run)
        self._tell(Change(OBJECT, what))


def ready(live: ArchitectureTaints) -> Progressed:
    """The webhook is there, and the controller works."""
    return _of(live, (READY,))


def tainted(live: ArchitectureTaints) -> Progressed:
    """All nodes carry their taints."""
    return _of(live, (READY, NODES_TAINTED))


def observed(live: ArchitectureTaints) -> Progressed:
    """The controller has seen the object as it is now."""
    return _of(live, ())


def _of(live: ArchitectureTaints, wanted: tuple[str, ...]) -> Progressed:
    status = live.status
    waiting = sum(each.waiting for each in status.architectures or ())
    nodes = Progressed(tainted=status.nodes.tainted, waiting=waiting)
    if status.observed_generation < live.metadata.generation:
        return msgspec.structs.replace(nodes, waits_for="the controller, which has not seen the object yet")
    conditions = {each.type: each for each in status.conditions or ()}
    degraded = conditions.get(DEGRADED)
    if degraded is not None and degraded.status == "True" and degraded.reason == HoldReason.PODS_BECAME_PENDING:
        return msgspec.structs.replace(nodes, stopped=degraded.message)
    for name in wanted:
        condition = conditions.get(name)
        if condition is None or condition.status != "True":
            said = f": {condition.message or condition.reason}" if condition is not None else ""
            return msgspec.structs.replace(nodes, waits_for=f"{name}{said}")
    return msgspec.structs.replace(nodes, done=True)


def _expressions(selector: dict[str, Any]) -> dict[str, Any]:
    """A merge patch of the selector: a list is replaced as a whole, and labels stay."""
    return {"nodes": {"selector": {"matchExpressions": selector.get("matchExpressions")}}}
