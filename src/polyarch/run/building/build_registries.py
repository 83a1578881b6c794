"""The registries of the builder: one client for all builds, which use it with credentials of their own (BD-334)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from polyarch.builds.controller.writes import Registries
from polyarch.builds.metrics import BuildMetrics
from polyarch.kube.manager import Process
from polyarch.oci.mirrors.sources import Configuration
from polyarch.oci.opening import Wiring, open_inspector
from polyarch.oci.settings import CLUSTER
from polyarch.oci.transport.addresses import AddressPolicy
from polyarch.oci.transport.tls import TrustSettings
from polyarch.run.parts.registries import registry_metrics
from polyarch.run.settings import RegistrySettings

SETTINGS: Final = msgspec.structs.replace(CLUSTER, public_probe=False)
"""A build brings the credentials that it needs: no request is spent on finding out whether it could do without."""


class BuildParts(NamedTuple):
    """What the builds of one process share."""

    registries: Registries
    metrics: BuildMetrics


@asynccontextmanager
async def open_build_registries(process: Process) -> AsyncIterator[BuildParts]:
    """Open the client. Raises ``InvalidConfiguration`` or ``InvalidSetting``, naming the file or range."""
    settings = process.settings_of(RegistrySettings)
    wiring = Wiring(
        settings=SETTINGS,
        configuration=Configuration.load(settings.registries_conf) if settings.registries_conf else Configuration(),
        policy=AddressPolicy.of("cluster", allow=settings.allow_addresses),
        trust=TrustSettings.of(ca=settings.ca, system_directories=()),
    )
    metrics = BuildMetrics(process.metrics)
    counted = metrics.counting(registry_metrics(process.metrics))
    async with open_inspector(wiring, clock=process.clock, metrics=counted) as inspector:
        yield BuildParts(Registries(inspector), metrics)


def texts(settings: RegistrySettings) -> tuple[str, str]:
    """The mirror configuration and the CAs as texts: build pods reach the same registries in the same way."""
    configuration = Path(settings.registries_conf).read_text() if settings.registries_conf else ""
    return configuration, "".join(Path(each).read_text() for each in settings.ca)
