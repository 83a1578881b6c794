"""Removes an installation in order, and ends in four minutes whatever happens.

The custom resources are deleted first. The operator answers by removing webhook, gates and controller. When it has
finished, or cannot, everything else that polyarch made is deleted, see ``inventory.py``. At last a list of every object
of the API server shows what is left.

If no operator runs, or it does not finish, gates, taints and finalizers are removed from here: at once with ``force``,
otherwise after a while.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from polyarch import names as shared
from polyarch.builds import names as build_names
from polyarch.clock import Clock, SystemClock
from polyarch.installation import operator, preflight
from polyarch.installation.inventory import (
    WEBHOOKS,
    ClusterInventory,
    InventoryObject,
    OwnedObjects,
    belongings,
    is_our_definition,
    survey,
)
from polyarch.installation.objects import COMPONENTS
from polyarch.installation.preflight import together
from polyarch.installation.wait import conditions
from polyarch.kube import patches
from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError, ConnectionFailed, Invalid, NotFound
from polyarch.kube.owners import held_by_others, held_words
from polyarch.kube.patches import JsonPatch, MergePatch
from polyarch.kube.resources import CONFIGMAPS, CRDS, DEPLOYMENTS, NAMESPACES, ObjectRef, Resource, few
from polyarch.numa import names as numa_names
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata, Pod
from polyarch.operator.components.operator_rbac import PREDECESSOR
from polyarch.operator.components.placement_uninstall import FINALIZERS as PLACEMENT_FINALIZERS
from polyarch.operator.components.placement_uninstall import FORCE, gated_pods, release
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.taints import names as taint_names
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.inventory import RECORDED_ONLY
from polyarch.taints.removal import TaintRemover
from polyarch.taints.settings import TaintSettings
from polyarch.taints.writes import StepResult, Writer

Tell = Callable[[str], None]
SECONDS: Final = 240.0
"""The longest that an uninstall takes."""
RESERVE: Final = 45.0
"""Of these, what is kept for deleting everything when the operator has finished, or is not waited for any longer."""
UNREADY_OPERATOR_TIMEOUT: Final = 30.0
"""How long an operator of which no pod is ready is waited for."""
HELD_TIMEOUT: Final = 15.0
"""How long nothing may go while something is held by finalizers of others, before the uninstall ends and names them;
and how often it looks for what holds an object of which the operator says nothing."""
POLL_INTERVAL: Final = 1.0


class UninstallResult(msgspec.Struct, kw_only=True):
    """What was done, and what is left."""

    deleted: list[ObjectRef] = []
    released: int = 0
    """Pods whose gates were removed from here, without a decision: they have no constraint."""
    by_force: str = ""
    """Why the operator was not waited for any longer; empty: it finished."""
    kept: list[str] = []
    """What is left on purpose, with the reason."""
    left: list[str] = []
    """What is still there, although it should not be."""


class ManagedElsewhere(Exception):  # noqa: N818 - what is the case
    """Another tool looks after this installation."""


async def find(client: Client) -> str | None:
    """The namespace of the installation, by its operator or what an earlier polyarch left; None if there is none."""
    for name in preflight.DEPLOYMENT_NAMES:
        if name == PREDECESSOR:
            continue
        found = await client.list(DEPLOYMENTS, type=PartialObjectMetadata, field_selector=f"metadata.name={name}")
        if found.items:
            return found.items[0].metadata.namespace
    return None


async def refuse_foreign(client: Client, namespace: str) -> None:
    """Raises :class:`ManagedElsewhere` if Helm or OLM installed it."""
    ref = ObjectRef(DEPLOYMENTS, ObjectKey(namespace, operator.OPERATOR))
    try:
        live = await client.get(DEPLOYMENTS, operator.OPERATOR, namespace=namespace)
    except NotFound:
        return
    match preflight.whose(ref, live):
        case preflight.Ownership.HELM:
            release = (live["metadata"].get("annotations") or {}).get("meta.helm.sh/release-name", "RELEASE")
            raise ManagedElsewhere(f"Helm installed it: run helm uninstall {release} -n {namespace}, or give --force")
        case preflight.Ownership.OLM:
            raise ManagedElsewhere(
                "OLM installed it: delete its Subscription and ClusterServiceVersion, or give --force"
            )
        case _:
            return


async def remove(
    client: Client,
    namespace: str,
    *,
    keep_crds: bool = False,
    force: bool = False,
    tell: Tell = lambda _: None,
    clock: Clock | None = None,
) -> UninstallResult:
    """Removes the installation in this namespace. ``tell`` gets each new word about what waits for what.

    Returns when nothing is left, or after :data:`SECONDS`; then ``left`` says what there is.
    """
    remover = _Uninstaller(client, namespace, keep_crds=keep_crds, force=force, tell=tell, clock=clock or SystemClock())
    return await remover.run()


UNPROVEN: Final = "labelled as polyarch's, but not made by polyarch"
MAX_NAMED: Final = 3
"""Objects that are told by name; more are told by number."""


class _Uninstaller:
    """One uninstall."""

    def __init__(
        self, client: Client, namespace: str, *, keep_crds: bool, force: bool, tell: Tell, clock: Clock
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._keep_crds = keep_crds
        self._force = force
        self._tell_new = _once(tell)
        self._tell = tell
        self._clock = clock
        self._end = self._clock.monotonic() + SECONDS
        self._marks: list[str] = []
        """Gates and taints that could not be removed."""
        self._asked: set[str] = set()
        """The uids of objects whose managers were read."""
        self._proven: set[str] = set()
        """The uids of objects that are ours."""
        self._last: tuple[frozenset[str], float] | None = None
        """The uids of what was left, and since when it is the same."""
        self.removal = UninstallResult()

    async def run(self) -> UninstallResult:
        served = await self._served()
        switches = [each for component in COMPONENTS.values() for each in component.switches if str(each) in served]
        for resource in switches:
            await self._remove_resources(resource, served)
        await self._delete_everything(served)
        return self.removal

    # -- custom resources ---------------------------------------------------------------------------------------------

    async def _served(self) -> list[str]:
        """The names of our CustomResourceDefinitions that exist."""
        there = (await self._client.list(CRDS, type=PartialObjectMetadata)).items
        return [each.metadata.name for each in there if is_our_definition(each.metadata)]

    async def _remove_resources(self, resource: Resource, served: list[str]) -> None:
        """Deletes all objects of a kind and waits until they are gone; does the operator's work if it does not."""
        waited_without = 0.0
        looked, held = self._clock.monotonic(), list[str]()
        while found := await self._list(resource):
            waiting = [each for each in found if each.metadata.deletion_timestamp is None]
            problem = await self._delete_resources(resource, waiting)
            if self._clock.monotonic() - looked >= HELD_TIMEOUT:
                looked, seen = self._clock.monotonic(), await survey(self._client)
                held = _held_of((await self._belongings(seen)).ours)
            self._tell_new("; ".join(dict.fromkeys((*held, await self._state(resource, found, problem)))))
            if all(_only_others_hold(each.metadata) for each in found):
                return  # its part is done; what is left is told at the end
            runs = await self._operator_runs()
            waited_without = 0.0 if runs else waited_without + POLL_INTERVAL
            reason = self._reason(runs=runs, waited=waited_without)
            if reason:
                await self._by_force(reason, served)
                await self._delete_resources(resource, waiting)
                await remove_finalizers(self._client, resource, await self._list(resource))
            if self._left() <= 0:
                return
            await self._clock.sleep(POLL_INTERVAL)

    def _reason(self, *, runs: bool, waited: float) -> str:
        """Why the operator is not waited for any longer; empty: it is."""
        if not runs and self._force:
            return "no operator runs, and --force was given"
        if not runs and waited >= UNREADY_OPERATOR_TIMEOUT:
            return f"no operator has run for {UNREADY_OPERATOR_TIMEOUT:.0f} s"
        if self._left() <= RESERVE:
            return f"the operator has not finished in {SECONDS - RESERVE:.0f} s"
        return ""

    async def _delete_resources(self, resource: Resource, found: Iterable[PartialObjectMetadata]) -> str:
        """Requests the deletion; returns what the API server said to the last refusal."""
        problem = ""
        for each in found:
            metadata = each.metadata
            try:
                if self._force and resource == CPPCS:
                    hurry = MergePatch({"metadata": {"annotations": {FORCE: "true"}}})
                    await self._client.patch(resource, metadata.name, hurry)
                await self._client.delete(resource, metadata.name, namespace=metadata.namespace, uid=metadata.uid)
            except NotFound:
                continue
            except (ApiError, ConnectionFailed) as error:
                problem = getattr(error, "message", "") or str(error)
                continue
            self.removal.deleted.append(ObjectRef(resource, metadata.key))
        return problem

    async def _state(self, resource: Resource, found: list[PartialObjectMetadata], problem: str) -> str:
        """What waits for what, in the operator's words where it has any."""
        if problem:
            return f"{resource.kind}: {problem}"
        if holds := [words for each in found if (words := held_words(resource, each.metadata, FINALIZERS))]:
            return "; ".join(holds)
        if resource != CPPCS:
            return f"{_counted([ObjectRef(resource, each.metadata.key) for each in found])}: deletion requested"
        try:
            said = conditions(await self._client.get(CPPCS, names.SINGLETON)).get("Deprovisioning", {})
        except NotFound:
            return "the ClusterPodPlacementConfig is gone"
        held = ", ".join(found[0].metadata.finalizers or ()) or "nothing"
        return f"{CPPCS.kind}: {said.get('message') or f'waiting for the operator (held by {held})'}"

    async def _operator_runs(self) -> bool:
        try:
            deployment = await self._client.get(DEPLOYMENTS, operator.OPERATOR, namespace=self._namespace)
        except NotFound:
            return False
        return bool((deployment.get("status") or {}).get("availableReplicas"))

    async def _by_force(self, reason: str, served: list[str]) -> None:
        if not self.removal.by_force:
            self._tell(f"{reason}: gates, taints and finalizers are removed from here")
            self.removal.by_force = reason
        await self._stop_workloads()
        await delete_webhooks(self._client, served)
        released, left = await release_pods(self._client, self._tell)
        self.removal.released += released
        self._marks = [f"gate of pod {each}" for each in left]
        self._marks += await remove_taints(self._client)

    async def _stop_workloads(self) -> None:
        """The operator first: it would make again what is deleted here."""
        for name in (
            operator.OPERATOR,
            names.WEBHOOK,
            names.CONTROLLER,
            names.ENOEXEC_HANDLER,
            taint_names.ROLE,
            shared.BUILDER,
        ):
            home = self._namespace
            try:
                await self._client.delete(DEPLOYMENTS, name, namespace=home, propagation="Background")
                self.removal.deleted.append(ObjectRef(DEPLOYMENTS, ObjectKey(home, name)))
                seen = await self._client.get(DEPLOYMENTS, name, namespace=home, type=PartialObjectMetadata)
                await remove_finalizers(self._client, DEPLOYMENTS, [seen])
            except NotFound:
                continue

    # -- everything else ----------------------------------------------------------------------------------------------

    async def _delete_everything(self, served: list[str]) -> None:
        """Repeats a look at everything and the next deletions, until nothing of ours is left."""
        await delete_webhooks(self._client, served)
        if not self.removal.by_force and await gated_pods(self._client):
            await self._by_force(
                "pods are gated, and no custom resource is left for which an operator removes gates", served
            )
        while True:
            seen = await survey(self._client)
            mine = self._without_kept(await self._belongings(seen), seen)
            held = _held_of(mine)
            others = [str(each) for each in mine if not held_by_others(each.metadata, FINALIZERS)]
            self.removal.left = [*self._marks, *held, *others]
            if not mine:
                await release_records(self._client)  # now that no builder writes them any more
                return
            if self._left() <= 0 or self._is_stuck(held, mine):
                return
            self._tell_new("; ".join(held) or f"{_counted([each.ref for each in mine])} left")
            await self._delete_next(mine)
            await self._clock.sleep(POLL_INTERVAL / 2)

    def _is_stuck(self, held: Sequence[str], mine: Sequence[InventoryObject]) -> bool:
        """Whether others hold something and nothing has gone for a while: then the rest only waits for that."""
        now, uids = self._clock.monotonic(), frozenset(each.metadata.uid for each in mine)
        if self._last is None or self._last[0] != uids:
            self._last = uids, now
        return bool(held) and now - self._last[1] >= HELD_TIMEOUT

    async def _belongings(self, seen: ClusterInventory) -> OwnedObjects:
        """What is ours. Who wrote our label is asked for, once for each object of which nothing else says it."""
        unproven = belongings(seen, self._namespace, self._proven).unproven
        asked = [each for each in unproven if each.metadata.uid not in self._asked]
        answers = await together(self._is_written_by_us(each) for each in asked)
        self._asked |= {each.metadata.uid for each in asked}
        self._proven |= {each.metadata.uid for each, is_ours in zip(asked, answers, strict=True) if is_ours}
        found = belongings(seen, self._namespace, self._proven)
        self._proven |= {each.metadata.uid for each in found.ours}  # also when what proves it is gone
        return found

    async def _is_written_by_us(self, found: InventoryObject) -> bool:
        resource, key = found.ref
        try:
            return preflight.is_written_by_us(await self._client.get(resource, key.name, namespace=key.namespace))
        except NotFound:
            return False

    def _without_kept(self, found: OwnedObjects, seen: ClusterInventory) -> list[InventoryObject]:
        """What is to be deleted: no definitions that are to be kept, or that others use, and no namespace with objects
        of others."""
        kept = [f"{_named(each.ref)}: {UNPROVEN}" for each in found.unproven]
        mine = []
        for each in found.ours:
            resource = each.ref.resource
            if resource == CRDS and self._keep_crds:
                kept.append(f"{each.ref.key.name}: --keep-crds")
            elif each.ref.key.name == str(TOPOLOGIES) and (others := found.foreign_topologies(seen)):
                kept.append(f"{each.ref.key.name}: there are {_counted([other.ref for other in others])} of others")
            elif resource == NAMESPACES and (others := found.foreign_in(each.ref.key.name, seen)):
                kept.append(f"namespace {each.ref.key.name}: it has {_counted([each.ref for each in others])}")
            else:
                mine.append(each)
        self.removal.kept = kept
        return mine

    async def _delete_next(self, mine: list[InventoryObject]) -> None:
        """The objects of the first phase that is not over; what they own goes with them. What others hold does not
        count: it holds up nothing but what contains it."""
        mine = [each for each in mine if not held_by_others(each.metadata, FINALIZERS)]
        roots = [each for each in mine if not each.metadata.owner_references] or mine
        if not roots:
            return
        first = min(_phase(each.ref) for each in roots)
        await together(self._delete(each) for each in roots if _phase(each.ref) == first)

    async def _delete(self, found: InventoryObject) -> None:
        metadata, resource = found.metadata, found.ref.resource
        if metadata.deletion_timestamp is not None:
            await remove_finalizers(self._client, resource, [PartialObjectMetadata(metadata=metadata)])
            return
        try:
            await self._client.delete(
                resource, metadata.name, namespace=metadata.namespace, uid=metadata.uid, propagation="Background"
            )
        except NotFound:
            return
        except ApiError as error:
            self._tell_new(f"{resource.kind} {metadata.key}: {error.message or error}")
            return
        self.removal.deleted.append(found.ref)

    async def _list(self, resource: Resource) -> list[PartialObjectMetadata]:
        try:
            return (await self._client.list(resource, type=PartialObjectMetadata)).items
        except NotFound:
            return []

    def _left(self) -> float:
        return self._end - self._clock.monotonic()


def _held_of(found: Iterable[InventoryObject]) -> list[str]:
    """What finalizers of others hold, each with what to do."""
    return [words for each in found if (words := held_words(each.ref.resource, each.metadata, FINALIZERS))]


def _only_others_hold(metadata: ObjectMeta) -> bool:
    ours = set(metadata.finalizers or ()) & set(FINALIZERS)
    return not ours and bool(held_by_others(metadata, FINALIZERS))


def _phase(ref: ObjectRef) -> int:
    """When it is deleted: workloads, then what they use, then definitions, then the namespace."""
    if ref.resource == NAMESPACES:
        return 4
    if ref.resource == CRDS:
        return 3
    return 1 if ref.resource.group == "apps" or ref in WEBHOOKS else 2


def _named(ref: ObjectRef) -> str:
    """As messages name an object."""
    return f"{ref.resource.kind} {ref.key}"


def _counted(found: Sequence[ObjectRef]) -> str:
    """Few by name, many by number."""
    if len(found) <= MAX_NAMED:
        return ", ".join(map(_named, found))
    return f"{len(found)} objects"


def _once(tell: Tell) -> Tell:
    """Tells what is new only."""
    last = ""

    def told(text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            tell(text)

    return told


# -- what would go, for whoever is asked before an uninstall begins: custom resources, and gates of pods ---------------


class UninstallImpact(msgspec.Struct, frozen=True):
    """What would go."""

    resources: Mapping[str, int]
    """Custom resources by kind; kinds without any are left out."""
    gated: int
    """Pods that wait with the gate, and would be let go."""

    def __str__(self) -> str:
        counted = ", ".join(f"{kind} ({number})" for kind, number in self.resources.items())
        pods = f"{self.gated} waiting pods are let go" if self.gated > 1 else "1 waiting pod is let go"
        return f"custom resources: {counted or 'none'}{f'; {pods}' if self.gated else ''}"


async def affected(client: Client) -> UninstallImpact:
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
    return UninstallImpact(dict(sorted(found.items())), len(await gated_pods(client)))


# -- without an operator: pods are released, webhooks, taints and finalizers removed -----------------------------------
# A released pod runs without a constraint; each is counted, and the first few are named.

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


async def release_pods(client: Client, tell: Tell) -> tuple[int, tuple[str, ...]]:
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
    are, or by what nodes have a record of. Returns what could not be removed, with why."""
    try:
        found = await client.get(ARCHITECTURE_TAINTS, taint_names.SINGLETON, type=ArchitectureTaints)
        settings = TaintSettings.of(found.spec)
    except NotFound:
        settings = RECORDED_ONLY
    removal = TaintRemover(Writer(client), settings)
    outcome = StepResult.of((await removal.registration(), await removal.taints(), await removal.gates()))
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
