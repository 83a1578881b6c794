"""What an uninstall does itself where no operator does it: it releases pods, removes taints and finalizers (IN-003).

A released pod runs without a constraint; each is counted, and the first few are named.
"""

from collections.abc import Callable, Iterable
from typing import Final

from polyarch.builds import names as build_names
from polyarch.installation.asking import together
from polyarch.installation.inventory.belongings import WEBHOOKS
from polyarch.kube import patches
from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError, Invalid, NotFound
from polyarch.kube.patches import JsonPatch, MergePatch
from polyarch.kube.resources import CONFIGMAPS, CRDS, Resource, few
from polyarch.numa import names as numa_names
from polyarch.objects import PartialObjectMetadata, Pod
from polyarch.placement.reconcilers.forced_release import gated_pods, release
from polyarch.placement.reconcilers.uninstalling import FINALIZERS as PLACEMENT_FINALIZERS
from polyarch.taints import names as taint_names
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.inventory import RECORDED_ONLY
from polyarch.taints.removal import Removal as TaintRemoval
from polyarch.taints.settings import TaintSettings
from polyarch.taints.writes import Outcome, Writer

FINALIZERS: Final = (
    *PLACEMENT_FINALIZERS,
    taint_names.FINALIZER,
    build_names.IMAGES_FINALIZER,
    numa_names.FINALIZER,
)
ROUNDS: Final = 5
"""A pod that changes while its gate is removed is tried again this often."""


async def delete_webhooks(client: Client, definitions: Iterable[str]) -> None:
    """Nobody answers them any more: from now on pods get no gate, and custom resources can be deleted."""
    for ref in WEBHOOKS:
        try:
            await client.delete(ref.resource, ref.key.name)
        except NotFound:
            continue
    for name in definitions:
        try:
            await client.patch(CRDS, name, MergePatch({"spec": {"conversion": {"strategy": "None", "webhook": None}}}))
        except NotFound:
            continue


async def release_pods(client: Client, tell: Callable[[str], None]) -> tuple[int, tuple[str, ...]]:
    """Removes our gate from every pod. Returns how many were released, and the pods that still have it, with why."""
    released = 0
    refused: dict[str, str] = {}
    for _ in range(ROUNDS):
        found = await gated_pods(client)
        if not found:
            return released, ()
        if not released and not refused:
            few_pods = few(pod.metadata.key for pod in found)
            tell(f"removing the gates of {len(found)} pods, which run without a constraint: {few_pods}")
        said = await together(_release(client, pod) for pod in found)
        released += said.count("")
        refused = {str(pod.metadata.key): problem for pod, problem in zip(found, said, strict=True) if problem}
    left = [str(pod.metadata.key) for pod in await gated_pods(client)]
    return released, tuple(f"{key}: {refused.get(key, 'has the gate again')}" for key in left)


async def remove_taints(client: Client) -> tuple[str, ...]:
    """Removes the taints of nodes and the gates of pods that wait for tolerations, by the object that says whose they
    are, or by what nodes have a record of. Returns what could not be removed, with why (TN-070)."""
    try:
        found = await client.get(ARCHITECTURE_TAINTS, taint_names.SINGLETON, type=ArchitectureTaints)
        settings = TaintSettings.of(found.spec)
    except NotFound:
        settings = RECORDED_ONLY
    removal = TaintRemoval(Writer(client), settings)
    outcome = Outcome.of((await removal.registration(), await removal.taints(), await removal.gates()))
    return tuple(map(str, outcome.failed))


async def remove_finalizers(client: Client, resource: Resource, objects: Iterable[PartialObjectMetadata]) -> None:
    """Removes ours; those of others stay, and hold up the object's deletion."""
    for each in objects:
        metadata = each.metadata
        kept = [name for name in metadata.finalizers or () if name not in FINALIZERS]
        if len(kept) == len(metadata.finalizers or ()):
            continue
        patch = JsonPatch(
            (
                patches.test("/metadata/resourceVersion", metadata.resource_version),
                patches.replace("/metadata/finalizers", kept),
            )
        )
        try:
            await client.patch(resource, metadata.name, patch, namespace=metadata.namespace)
        except (NotFound, Invalid):
            continue  # gone, or changed since: who calls looks again


async def release_records(client: Client) -> None:
    """The records of machine OS builds stay, as their images do; who deletes one later waits for nobody any more."""
    records = await client.list(CONFIGMAPS, label_selector=build_names.RUN_LABEL, type=PartialObjectMetadata)
    await remove_finalizers(client, CONFIGMAPS, records.items)


async def _release(client: Client, pod: Pod) -> str:
    """What the API server said against it; empty: nothing."""
    try:
        await release(client, pod)
    except ApiError as error:
        return error.message or str(error)
    return ""
