"""What was reported about a pod: reasons of other plugins are quoted, not computed again."""

import asyncio

import msgspec

from polyarch.cli.cluster import Access, on_cluster
from polyarch.cli.numa.options import SourceOptions
from polyarch.cli.numa.pod_explanation import Event
from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden, NotFound
from polyarch.kube.resources import EVENTS, PODS
from polyarch.numa.fit.facts import PodFacts, PodObject
from polyarch.objects import Key, ObjectMeta


class _Series(msgspec.Struct, frozen=True, rename="camel"):
    last_observed_time: str = ""


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    """events.k8s.io/v1 Event; older reporters fill in the deprecated members."""

    metadata: ObjectMeta = ObjectMeta()
    reason: str = ""
    note: str = ""
    reporting_controller: str = ""
    event_time: str | None = None
    deprecated_last_timestamp: str | None = None
    series: _Series | None = None

    @property
    def time(self) -> str:
        last = self.series.last_observed_time if self.series is not None else ""
        return last or self.deprecated_last_timestamp or self.event_time or self.metadata.creation_timestamp or ""


def read_events(command: str, pod: PodFacts, where: SourceOptions) -> list[Event]:
    """The pod's, oldest first; none if they may not be read."""

    async def work(client: Client) -> list[_Event]:
        selector = f"regarding.kind=Pod,regarding.name={pod.name}"
        if pod.uid:
            selector += f",regarding.uid={pod.uid}"
        try:
            return (await client.list(EVENTS, type=_Event, namespace=pod.namespace, field_selector=selector)).items
        except Forbidden:
            return []

    found = asyncio.run(on_cluster(command, Access(where.kubeconfig, where.context), work))
    ordered = sorted(found, key=lambda each: (each.time, each.metadata.name))
    told = (Event(each.reason, each.note, each.reporting_controller) for each in ordered)
    return list(dict.fromkeys(told))


# -- A pod that is over: the lists of these commands leave such pods out, since they hold nothing any more.


def read_pod(command: str, key: Key, where: SourceOptions) -> PodObject | None:
    """Whatever became of it; None: there is none. Raises CommandError."""

    async def work(client: Client) -> PodObject | None:
        try:
            return await client.get(PODS, key.name, namespace=key.namespace, type=PodObject)
        except NotFound:
            return None

    return asyncio.run(on_cluster(command, Access(where.kubeconfig, where.context), work))
