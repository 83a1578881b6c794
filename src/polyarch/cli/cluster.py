"""The cluster of a command, and what keeps the command from it, as errors of the command line."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.output.messages import errors_only
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import ConfigurationError, KubernetesError

T = TypeVar("T")


class Access(NamedTuple):
    """``--kubeconfig`` and ``--context``."""

    kubeconfig: str | None = None
    context: str | None = None


async def on_cluster(command: str, access: Access, work: Callable[[Client], Awaitable[T]]) -> T:
    """The result of ``work`` with the administrator's client. ``UsageError`` for a kubeconfig that cannot be used,
    ``CouldNotComplete`` if the API server does not answer, or refuses what nothing else expects."""
    errors_only()
    try:
        configuration = config.load(access.kubeconfig, access.context)
        async with Client(configuration, role="cli") as client:
            return await work(client)
    except ConfigurationError as error:
        raise UsageError(f"{command}: {error}") from None
    except KubernetesError as error:
        raise CouldNotComplete(f"{command}: {error}") from None
