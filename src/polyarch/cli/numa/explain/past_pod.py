"""A pod that is over: the lists of these commands leave such pods out, since they hold nothing any more (NS-161)."""

import asyncio

from polyarch.cli.installation.cluster import Access, on_cluster
from polyarch.cli.numa.sources.flags import SourceOptions
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import PODS
from polyarch.numa.fit.facts import PodObject
from polyarch.objects import Key


def read_pod(command: str, key: Key, where: SourceOptions) -> PodObject | None:
    """Whatever became of it; None: there is none. Raises CommandError."""

    async def work(client: Client) -> PodObject | None:
        try:
            return await client.get(PODS, key.name, namespace=key.namespace, type=PodObject)
        except NotFound:
            return None

    return asyncio.run(on_cluster(command, Access(where.kubeconfig, where.context), work))
