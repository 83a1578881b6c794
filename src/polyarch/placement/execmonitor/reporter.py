"""Writes ENoExecEvents for the handler (PL-606): the object, then its status, which has all the facts.

An object's status cannot be set when it is created. The handler leaves an event without status alone for a minute.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import structlog

from polyarch.clock import Clock, deadline
from polyarch.kube.errors import AlreadyExists, Invalid, KubernetesError
from polyarch.kube.patches import MergePatch
from polyarch.kube.rbac import rule
from polyarch.kube.resources import Resource
from polyarch.placement.api.resources import ENOEXECEVENTS
from polyarch.placement.execmonitor.attribution import Report

log = structlog.get_logger(__name__)

RIGHTS: Final = (rule(ENOEXECEVENTS, "create"), rule(ENOEXECEVENTS, "patch", subresource="status"))
"""RBAC rules of the node side, in the operator's namespace."""
WAITING: Final = 100
"""Reports in line; at five a second they are those of twenty seconds."""
PAUSES: Final = (1.0, 5.0)
"""Seconds before the second and the third try."""
SECONDS: Final = 10.0
"""For one try."""


class Api(Protocol):
    """The part of the client that is used here."""

    async def create(
        self, resource: Resource, document: Mapping[str, Any], *, namespace: str = "", retry: bool = True
    ) -> Any: ...

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: MergePatch,
        *,
        namespace: str = "",
        subresource: str = "",
        retry: bool = True,
    ) -> Any: ...


def event_name(report: Report) -> str:
    """The same for each report of a container, so that a restarted monitor does not report it twice."""
    return f"{report.pod_uid}-{report.container_id.rpartition('/')[2]}"


class Reporter:
    """``count`` is called with ``reported`` or ``failed`` for each report."""

    def __init__(self, api: Api, *, namespace: str, node: str, clock: Clock, count: Callable[[str], None]) -> None:
        self._api = api
        self._namespace = namespace
        self._node = node
        self._clock = clock
        self._count = count
        self._reports: asyncio.Queue[Report] = asyncio.Queue(WAITING)

    def offer(self, report: Report) -> None:
        """Puts the report in line, or drops it; never waits. For the event loop's thread."""
        try:
            self._reports.put_nowait(report)
        except asyncio.QueueFull:
            self._drop(report, f"{WAITING} reports are in line already")

    async def run(self) -> None:
        """Writes reports until cancelled."""
        while True:
            await self._write(await self._reports.get())

    async def _write(self, report: Report) -> None:
        for pause in (*PAUSES, None):
            try:
                async with deadline(self._clock, SECONDS):
                    await self._send(report)
            except (KubernetesError, TimeoutError) as error:
                if pause is None or isinstance(error, Invalid):
                    self._drop(report, str(error) or f"no answer within {SECONDS:g} s")
                    return
                await self._clock.sleep(pause)
            else:
                self._count("reported")
                log.info("reported", pod=f"{report.pod_namespace}/{report.pod_name}", container=report.container_id)
                return

    async def _send(self, report: Report) -> None:
        name = event_name(report)
        document = {
            "apiVersion": ENOEXECEVENTS.api_version,
            "kind": ENOEXECEVENTS.kind,
            "metadata": {"name": name, "namespace": self._namespace},
        }
        try:
            await self._api.create(ENOEXECEVENTS, document, namespace=self._namespace, retry=False)
        except AlreadyExists:
            log.debug("the event exists already; its status is written again", name=name)
        status = {
            "nodeName": self._node,
            "podName": report.pod_name,
            "podNamespace": report.pod_namespace,
            "containerID": report.container_id,
        }
        await self._api.patch(
            ENOEXECEVENTS,
            name,
            MergePatch({"status": status}),
            namespace=self._namespace,
            subresource="status",
            retry=False,
        )

    def _drop(self, report: Report, problem: str) -> None:
        self._count("failed")
        log.warning(
            "an exec format error could not be reported",
            pod=f"{report.pod_namespace}/{report.pod_name}",
            container=report.container_id,
            problem=problem,
        )
