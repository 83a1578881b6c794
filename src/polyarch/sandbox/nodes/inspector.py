"""Wiring of the nodes' registry client: the sandbox's mirrors and the user's CA."""

from polyarch.oci.mirrors.sources import Configuration
from polyarch.oci.opening import Wiring
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.transport.addresses import AddressPolicy
from polyarch.oci.transport.tls import TrustSettings
from polyarch.sandbox.state import Folder, Settings

PULL_SECONDS = 20.0
REVALIDATE_SECONDS = 0.25
"""Short, so that the next pull after a missing image was pushed succeeds."""


def wiring(folder: Folder, settings: Settings) -> Wiring:
    """Nodes may connect to every address that the command line may connect to (RG-103)."""
    return Wiring(
        settings=InspectorSettings(timeout=PULL_SECONDS, max_wait=0.0, revalidate_interval=REVALIDATE_SECONDS),
        configuration=Configuration.load(folder.registries_conf),
        policy=AddressPolicy.of("cli"),
        trust=TrustSettings.of(ca=(settings.ca,) if settings.ca else ()),
    )
