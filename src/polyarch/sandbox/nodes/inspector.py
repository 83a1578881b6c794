"""The registry client as the nodes use it: the sandbox's mirrors, the user's authorities, each pod's own secrets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from polyarch.oci.inspect import Inspector, InspectorSettings
from polyarch.oci.mirrors.sources import Configuration
from polyarch.oci.transport.addresses import AddressPolicy
from polyarch.oci.transport.http import AiohttpTransport
from polyarch.oci.transport.tls import Trust, TrustSettings
from polyarch.sandbox.state import Folder, Settings

PULL_SECONDS = 20.0
REVALIDATE_SECONDS = 0.25
"""Somebody who pushes a missing image wants to see the next pull succeed."""


@asynccontextmanager
async def opened(folder: Folder, settings: Settings) -> AsyncIterator[Inspector]:
    """An inspector for the block. Nodes reach what the person at the command line may reach (RG-103)."""
    policy = AddressPolicy.of("cli")
    trust = Trust(TrustSettings.of(ca=(settings.ca,) if settings.ca else ()))
    transport = AiohttpTransport(policy=policy, trust=trust)
    inspector = Inspector(
        transport=transport,
        configuration=Configuration.load(folder.registries_conf),
        policy=policy,
        settings=InspectorSettings(timeout=PULL_SECONDS, max_wait=0.0, revalidate_interval=REVALIDATE_SECONDS),
    )
    try:
        yield inspector
    finally:
        await inspector.close()
        await transport.close()
