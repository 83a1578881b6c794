"""The cluster of a command, and what keeps the command from it, as errors of the command line."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.options.common import ClusterFlags
from polyarch.cli.output.messages import errors_only
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import ConfigurationError, KubernetesError

T = TypeVar("T")


def run_on_cluster(command: str, cluster: ClusterFlags, work: Callable[[Client], Awaitable[T]]) -> T:
    """As :func:`on_cluster`, for a result of any size: ``asyncio.run`` makes a text of what its coroutine returns when
    it gives the handler of SIGINT back."""
    results: list[T] = []

    async def kept() -> None:
        results.append(await on_cluster(command, cluster, work))

    asyncio.run(kept())
    return results[0]


async def on_cluster(command: str, cluster: ClusterFlags, work: Callable[[Client], Awaitable[T]]) -> T:
    """The result of ``work`` with the administrator's client. ``UsageError`` for a kubeconfig that cannot be used,
    ``CouldNotComplete`` if the API server does not answer, or refuses what nothing else expects."""
    errors_only()
    try:
        configuration = config.load(cluster.kubeconfig, cluster.context)
        async with Client(configuration, role="cli") as client:
            return await work(client)
    except ConfigurationError as error:
        raise UsageError(f"{command}: {error}") from None
    except KubernetesError as error:
        raise CouldNotComplete(f"{command}: {error}") from None
