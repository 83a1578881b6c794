"""What an uninstall takes away, for whoever is asked before it begins (IN-003): custom resources, and gates of pods."""

from collections.abc import Mapping

import msgspec

from polyarch.installation.inventory.belongings import is_our_definition
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import CRDS
from polyarch.objects import PartialObjectMetadata
from polyarch.placement.reconcilers.forced_release import gated_pods


class Affected(msgspec.Struct, frozen=True):
    """What would go."""

    resources: Mapping[str, int]
    """Custom resources by kind; kinds without any are left out."""
    gated: int
    """Pods that wait with the gate, and would be let go."""

    def __str__(self) -> str:
        counted = ", ".join(f"{kind} ({number})" for kind, number in self.resources.items())
        pods = f"{self.gated} waiting pods are let go" if self.gated > 1 else "1 waiting pod is let go"
        return f"custom resources: {counted or 'none'}{f'; {pods}' if self.gated else ''}"


async def affected(client: Client) -> Affected:
    """By a fresh look. Raises ``KubernetesError``."""
    defined = (await client.list(CRDS, type=PartialObjectMetadata)).items
    ours = {each.metadata.name for each in defined if is_our_definition(each.metadata)}
    found: dict[str, int] = {}
    for group in sorted({name.partition(".")[2] for name in ours}):
        for resource in await client.discover(group):
            if f"{resource.plural}.{group}" not in ours or resource.kind in found:
                continue  # another version of it
            try:
                number = len((await client.list(resource, type=PartialObjectMetadata)).items)
            except NotFound:
                continue
            if number:
                found[resource.kind] = number
    return Affected(dict(sorted(found.items())), len(await gated_pods(client)))
