"""A pod of the cluster with everything its decision rests on, read as whoever asks may read it (PL-730).

Reading is all that is done. What the user has no right to read (secrets, namespaces, nodes) is left out and said.
"""

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from polyarch.cli.errors import CouldNotComplete
from polyarch.cli.explain.from_files import Configuration, GivenPod
from polyarch.images.pull_secrets import PullSecretNames, document_of
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError, Forbidden, NotFound
from polyarch.kube.resources import NAMESPACES, NODES, PODS, SECRETS, Resource
from polyarch.objects import Node, PartialObjectMetadata, Pod, Secret
from polyarch.oci.answer import Inspection
from polyarch.oci.auth.credentials import ChainedCredentials, CredentialStore, KeyringCredentials
from polyarch.oci.auth.keyring import Document
from polyarch.placement import names
from polyarch.placement.api import CPPCS, POLICIES, PPCS, ClusterPodPlacementConfig, PlacementPolicy, PodPlacementConfig
from polyarch.placement.decision import PlacementDecision
from polyarch.placement.facts import architectures_of
from polyarch.placement.patch import has_gate
from polyarch.placement.rules import ExaminedPod, WaitingTime, decide_after
from polyarch.taints.api import ARCHITECTURE_TAINTS, ArchitectureTaints
from polyarch.taints.names import SINGLETON

T = TypeVar("T")


class SeenPod(msgspec.Struct, frozen=True):
    """The pod, the configuration that counts for it, and the credentials to ask for its images with."""

    given: GivenPod
    configuration: Configuration
    credentials: CredentialStore
    age: float
    """Seconds since its creation, by the clocks of API server and this machine."""

    @property
    def is_gated(self) -> bool:
        return has_gate(self.given.pod)

    def now(self, case: ExaminedPod, answers: Mapping[str, Inspection]) -> PlacementDecision:
        """What the controller would decide at this age; its own window began at most moments later."""
        return decide_after(case, answers, WaitingTime(self.age))


async def read_pod(
    name: str,
    *,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
    credentials: CredentialStore,
) -> SeenPod:
    """Raises ``KubernetesError`` if the pod or placement's configuration cannot be read."""
    configuration = config.load(kubeconfig, context)
    name = name.removeprefix("pods/").removeprefix("pod/")
    place = namespace or configuration.namespace
    async with Client(configuration, role="cli") as client:
        try:
            document: dict[str, Any] = await client.get(PODS, name, namespace=place)
        except NotFound:
            raise CouldNotComplete(f"no pod {name!r} in namespace {place!r}; give another namespace with -n") from None
        pod = msgspec.convert(document, Pod)
        notes: list[str] = []
        facts = await _configuration(client, place, notes)
        documents = await _pull_secrets(client, pod, place, notes)
    facts = msgspec.structs.replace(facts, notes=(*facts.notes, *notes))
    # The scheduler has written nodeName since; the question is what would become of the pod that it was.
    unbound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
    given = GivenPod(document, unbound, place, f"pod {place}/{name}")
    return SeenPod(given, facts, ChainedCredentials([KeyringCredentials(documents), credentials]), _age(pod))


async def _configuration(client: Client, namespace: str, notes: list[str]) -> Configuration:
    cppc = await _get(client, CPPCS, names.SINGLETON, ClusterPodPlacementConfig)
    policy = await _get(client, POLICIES, names.SINGLETON, PlacementPolicy)
    ppcs: list[PodPlacementConfig] = []
    with contextlib.suppress(NotFound):
        ppcs = (await client.list(PPCS, type=PodPlacementConfig, namespace=namespace)).items
    labels: dict[str, Mapping[str, str]] = {}
    try:
        labels[namespace] = (await client.get(NAMESPACES, namespace, type=PartialObjectMetadata)).metadata.labels or {}
    except ApiError as error:
        notes.append(f"labels of the namespace not read: {error}")
    taints: ArchitectureTaints | None = None
    try:
        taints = await _get(client, ARCHITECTURE_TAINTS, SINGLETON, ArchitectureTaints)
    except Forbidden as error:
        notes.append(f"{ARCHITECTURE_TAINTS.kind} not read: {error}")
    machines: list[Node] = []
    if taints is not None or (policy is not None and policy.spec.get("nodeAware") is not None):
        try:
            machines = (await client.list(NODES, type=Node)).items
        except Forbidden as error:
            notes.append(f"nodes not read: {error}")
    nodes = architectures_of([PartialObjectMetadata(each.metadata) for each in machines])
    return Configuration.of(
        cppc, policy, ppcs, namespaces=labels, nodes=nodes, taints=taints, machines=machines if taints else ()
    )


async def _get(client: Client, resource: Resource, name: str, type: type[T]) -> T | None:
    try:
        return await client.get(resource, name, type=type)
    except NotFound:
        return None


async def _pull_secrets(client: Client, pod: Pod, namespace: str, notes: list[str]) -> list[Document]:
    documents = []
    for name in PullSecretNames.of(pod, namespace).names:
        try:
            secret = await client.get(SECRETS, name, namespace=namespace, type=Secret)
        except ApiError as error:
            notes.append(f"pull secret {namespace}/{name} is not used: {error}")
            continue
        document, problem = document_of(secret, f"{namespace}/{name}")
        if document is not None:
            documents.append(document)
        else:
            notes.append(problem)
    return documents


def _age(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    if created is None:
        return 0.0
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds())
