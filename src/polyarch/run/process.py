"""Run of a process from its settings: logs, client, metrics, roles, and one output line with its addresses."""

import os
import sys

import msgspec

from polyarch.clock import SystemClock
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.manager import Addresses, Process, Role
from polyarch.kube.metrics import Metrics, RequestMetrics
from polyarch.run.logs import configure
from polyarch.run.settings import RunSettings


async def run(name: str, roles: tuple[Role, ...], settings: RunSettings) -> None:
    """Run the roles until SIGTERM. Raises ``ConfigurationError`` if no API server is configured."""
    verbosity = configure(settings.log_format, settings.log_level)
    metrics = Metrics(process=True)
    configuration = config.load(settings.kubeconfig, settings.context, os.environ)
    async with (
        Client(configuration, role=name, clock=SystemClock(), metrics=RequestMetrics(metrics)) as client,
        Process(
            name,
            settings.process,
            client,
            metrics,
            role_settings=(
                settings.registries,
                settings.operator,
                settings.monitor,
                settings.taints,
                settings.builder,
                verbosity,
            ),
            announce=_announce,
        ) as process,
    ):
        await process.run(*roles)


def _announce(addresses: Addresses) -> None:
    """Print the addresses as one JSON line to stdout."""
    sys.stdout.write(msgspec.json.encode(addresses).decode() + "\n")
    sys.stdout.flush()
