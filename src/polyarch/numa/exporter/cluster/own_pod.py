"""The conditions of the exporter's own Pod: whether scans succeed, whether the topology is written (NE-120).

Two of them are readiness gates, so they are written only when they change, and never in the way of a scan: a scan says
how it went, and this task writes when it can.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.kube.errors import KubernetesError, NotFound
from polyarch.kube.patches import StrategicPatch
from polyarch.kube.rbac import rule
from polyarch.kube.requests import Random, backoff
from polyarch.kube.resources import PODS, Resource
from polyarch.objects import Condition

log = structlog.get_logger(__name__)

RIGHTS: Final = (rule(PODS, "get"), rule(PODS, "patch", subresource="status"))
"""In the exporter's own namespace."""
PAUSES: Final = (1.0, 60.0)
"""Seconds before another try after a failure: at first, and at most."""
MESSAGE: Final = 256
"""Characters of a message; a cause is short."""


class PodsClient(Protocol):
    """The part of the client that is used."""

    async def get(self, resource: Resource, name: str, *, namespace: str = "", type: Any) -> Any: ...

    async def patch(
        self, resource: Resource, name: str, patch: StrategicPatch, *, namespace: str = "", subresource: str = ""
    ) -> Any: ...


class _PodCondition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _PodStatus(msgspec.Struct, frozen=True):
    conditions: list[_PodCondition] | None = None


class _Pod(msgspec.Struct, frozen=True):
    status: _PodStatus = _PodStatus()


class OwnPod:
    """The Pod by namespace and name."""

    def __init__(self, client: PodsClient, namespace: str, name: str, *, clock: Clock, chance: Random) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._chance = chance
        self._wanted: dict[str, Condition] = {}
        self._written: dict[str, Condition] | None = None
        self._news = asyncio.Event()

    def set(self, condition: Condition) -> None:
        """From now on this is the condition of its type; it is written soon."""
        found = msgspec.structs.replace(condition, message=condition.message[:MESSAGE])
        if self._wanted.get(found.type) != found:
            self._wanted[found.type] = found
            self._news.set()

    async def run(self) -> None:
        """Writes what has changed, until cancelled, or until the Pod is gone."""
        failures = 0
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._write()
            except NotFound as error:
                log.warning("conditions are not written: the exporter's own Pod does not exist", error=str(error))
                return
            except KubernetesError as error:
                if not failures:
                    log.warning("conditions could not be written, trying again", error=str(error))
                base, cap = PAUSES
                pause = base + backoff(failures, base=base, cap=cap, random=self._chance)
                failures += 1
                self._news.set()
                await self._clock.sleep(pause)
            else:
                failures = 0

    async def _write(self) -> None:
        if self._written is None:
            pod: _Pod = await self._client.get(PODS, self._name, namespace=self._namespace, type=_Pod)
            found = pod.status.conditions or ()
            self._written = {each.type: _as_condition(each) for each in found if each.status in _STATUSES}
        wanted = dict(self._wanted)
        changed = [each for each in wanted.values() if self._written.get(each.type) != each]
        if not changed:
            return
        conditions = [self._entry(each, self._written.get(each.type)) for each in changed]
        patch = StrategicPatch({"status": {"conditions": conditions}})
        await self._client.patch(PODS, self._name, patch, namespace=self._namespace, subresource="status")
        self._written |= {each.type: each for each in changed}

    def _entry(self, condition: Condition, before: Condition | None) -> Mapping[str, Any]:
        entry = {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
        }
        if before is None or before.status != condition.status:
            entry["lastTransitionTime"] = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        return entry


_STATUSES: Final = ("True", "False", "Unknown")


def _as_condition(found: _PodCondition) -> Condition:
    return msgspec.convert(found, Condition, from_attributes=True)
