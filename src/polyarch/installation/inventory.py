"""Every object of an API server, reduced to metadata, and which of them polyarch has made.

Kinds come from the server's own discovery, so nothing is forgotten: kinds of other operators and aggregated API servers
are included.
"""

from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, get_args

import msgspec

from polyarch.builds import names as build_names
from polyarch.installation import operator
from polyarch.installation.objects import COMPONENTS, documents
from polyarch.installation.preflight import ref_of, together
from polyarch.installation.settings import ComponentName, InstallationSettings, Numa, Registries
from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError, MethodNotAllowed, NotFound, UnreadableAnswer
from polyarch.kube.resources import (
    CONFIGMAPS,
    CRDS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    SERVICE_ACCOUNTS,
    VALIDATING_WEBHOOKS,
    ObjectRef,
    Resource,
)
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.numa import names as numa_names
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata
from polyarch.operator.components import builds_objects as build_rights
from polyarch.operator.components import numa_operator_rbac as numa_rights
from polyarch.operator.components import numa_scheduler_objects as scheduler
from polyarch.placement import names
from polyarch.taints import names as taint_names

DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
LEFT_OUT: Final = ("events", "endpoints", "componentstatuses")
"""Events expire by themselves; the others are deprecated and say nothing that other kinds do not."""
IN_EVERY_NAMESPACE: Final = frozenset({(CONFIGMAPS, "kube-root-ca.crt"), (SERVICE_ACCOUNTS, "default")})
"""Objects that Kubernetes makes in each namespace."""


class InventoryObject(msgspec.Struct, frozen=True):
    """One object."""

    ref: ObjectRef
    metadata: ObjectMeta

    def __str__(self) -> str:
        return str(self.ref)


class ClusterInventory(msgspec.Struct, frozen=True):
    """All objects, and the kinds that could not be listed, with the reason."""

    found: tuple[InventoryObject, ...]
    unread: dict[str, str]

    def since(self, earlier: "ClusterInventory") -> tuple[InventoryObject, ...]:
        """Objects that were not there earlier, whatever the version of their kind."""
        known = {_identity(each) for each in earlier.found}
        return tuple(each for each in self.found if _identity(each) not in known)


class _Kind(msgspec.Struct, frozen=True, rename="camel"):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Resource(msgspec.Struct, frozen=True, rename="camel"):
    resource: str
    scope: str
    verbs: list[str] = []
    response_kind: _Kind | None = None


class _Version(msgspec.Struct, frozen=True):
    version: str
    resources: list[_Resource] = []
    freshness: str = ""


class _Group(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    versions: list[_Version] = []


class _Groups(msgspec.Struct, frozen=True):
    items: list[_Group]


async def survey(client: Client) -> ClusterInventory:
    """Every object of every kind that can be listed. Takes about 100 requests."""
    resources, unread = await kinds(client)

    async def listed(resource: Resource) -> list[InventoryObject]:
        try:
            page = await client.list(resource, type=PartialObjectMetadata)
        except (NotFound, MethodNotAllowed):
            return []  # gone since it was discovered, or not listable after all
        except (ApiError, UnreadableAnswer) as error:
            unread[str(resource)] = str(error)
            return []
        return [InventoryObject(ObjectRef(resource, each.metadata.key), each.metadata) for each in page.items]

    found = await together(listed(resource) for resource in resources)
    ordered = sorted((each for some in found for each in some), key=lambda each: (str(each.ref.resource), each.ref.key))
    return ClusterInventory(tuple(ordered), unread)


async def kinds(client: Client) -> tuple[list[Resource], dict[str, str]]:
    """Every kind that can be listed, in the version that the server prefers; then groups that could not be read."""
    found: dict[tuple[str, str], Resource] = {}
    unread: dict[str, str] = {}
    for path in ("/api", "/apis"):
        body = await client.raw("GET", path, accept=DISCOVERY)
        try:
            groups = msgspec.json.decode(body, type=_Groups).items
        except msgspec.DecodeError as error:
            raise UnreadableAnswer(f"get {path}: no aggregated discovery, which Kubernetes 1.30 has: {error}") from None
        for group in groups:
            for version in group.versions:
                if version.freshness == "Stale":
                    unread[f"{version.version}.{group.metadata.name}"] = "its API server does not answer"
                for each in version.resources:
                    if "list" in each.verbs and each.resource not in LEFT_OUT:
                        made = _resource(group.metadata.name, version.version, each)
                        found.setdefault((made.group, made.plural), made)
    return list(found.values()), unread


def _resource(group: str, version: str, each: _Resource) -> Resource:
    kind = each.response_kind.kind if each.response_kind is not None else ""
    return Resource(group, version, each.resource, kind, namespaced=each.scope == "Namespaced")


def _identity(found: InventoryObject) -> tuple[str, str, str, str]:
    resource, key = found.ref
    return resource.group, resource.plural, key.namespace, key.name


# -- belongings: what polyarch has made, which an uninstall deletes, and nothing else ----------------------------------
# A label is no proof: everybody may write app.kubernetes.io/part-of: polyarch on a dashboard or a NetworkPolicy of
# their own. What has it is ours if something else agrees: polyarch wrote the label (the API server records who did),
# the object has a name that an installation gives, it belongs to our Helm release, or it belongs to an object of ours.
# What only has the label is left alone, and named. Nothing here asks the API server.

GROUPS: Final = (names.GROUP, names.OWN_GROUP)
ROLES: Final = (
    operator.OPERATOR,
    names.WEBHOOK,
    names.CONTROLLER,
    names.ENOEXEC_HANDLER,
    names.ENOEXEC_DAEMON,
    taint_names.ROLE,
    taint_names.ADMISSION_ROLE,
    build_names.ROLE,
    build_names.NAMESPACE_ROLE,
    build_rights.VIEW_ROLE,
    build_rights.EDIT_ROLE,
    build_rights.MACHINE_ROLE,
    numa_names.EXPORTER,
    numa_names.SCHEDULER,
)
"""Names of the workloads; what else a workload needs is called like it."""
NAMED: Final[Mapping[str, tuple[str, ...]]] = {
    "leases.coordination.k8s.io": (
        names.OPERATOR_LEASE,
        names.CONTROLLER_LEASE,
        names.ENOEXEC_LEASE,
        taint_names.LEASE,
        build_names.LEASE,
        scheduler.LEASE,
    ),
    "secrets": (
        names.CERTIFICATES_SECRET,
        names.AUTHORITY_SECRET,
        names.READINGS_SECRET,
        build_names.HMAC_SECRET,
        numa_names.EXPORTER_CERTIFICATE,
        numa_rights.AUTHORITY,
    ),
    "configmaps": (build_names.ARCHITECTURES_CONFIGMAP, names.REPORT_CONFIGMAP),
    "issuers.cert-manager.io": (names.CERTIFICATES_SECRET, numa_names.EXPORTER_CERTIFICATE),
    "certificates.cert-manager.io": (names.CERTIFICATES_SECRET, numa_names.EXPORTER_CERTIFICATE),
    "csistoragecapacities.storage.k8s.io": (numa_names.KICK,),
}
"""Objects of the namespace that are ours by their names: whoever made them gave them no label of ours."""
WEBHOOKS: Final = (
    ObjectRef(MUTATING_WEBHOOKS, ObjectKey("", names.WEBHOOK_CONFIGURATION)),
    ObjectRef(MUTATING_WEBHOOKS, ObjectKey("", taint_names.ROLE)),
    ObjectRef(MUTATING_WEBHOOKS, ObjectKey("", names.OPERATOR)),
    ObjectRef(VALIDATING_WEBHOOKS, ObjectKey("", names.OPERATOR)),
)
"""Registrations of webhooks: they have these names in every cluster."""
RELEASE: Final = ("meta.helm.sh/release-namespace", "meta.helm.sh/release-name")
RIGHTS: Final = "rbac.authorization.k8s.io"
"""The API group of Roles, which an installation grants in other namespaces, too."""


class OwnedObjects(msgspec.Struct, frozen=True):
    """What is ours of all objects, and what only looks so."""

    ours: tuple[InventoryObject, ...]
    unproven: tuple[InventoryObject, ...]
    """With a label of ours, but nothing says that we made it. What belongs to another object is not listed."""

    def foreign_in(self, namespace: str, seen: ClusterInventory) -> list[InventoryObject]:
        """Objects of a namespace that are not ours, nor made by Kubernetes."""
        ours = {each.metadata.uid for each in self.ours}
        return [
            each
            for each in seen.found
            if each.ref.key.namespace == namespace
            and each.metadata.uid not in ours
            and (each.ref.resource, each.ref.key.name) not in IN_EVERY_NAMESPACE
        ]

    def foreign_topologies(self, seen: ClusterInventory) -> list[InventoryObject]:
        """NodeResourceTopologies that are not ours: whoever publishes them needs the definition."""
        ours = {each.metadata.uid for each in self.ours}
        return [each for each in seen.found if _is_topology(each) and each.metadata.uid not in ours]


def belongings(seen: ClusterInventory, namespace: str, proven: Collection[str] = ()) -> OwnedObjects:
    """For the installation in this namespace. ``proven``: uids of objects that are known to be ours."""
    there = {each.metadata.uid for each in seen.found}
    listed = [each for each in seen.found if _claims(each) and _is_listed(each, namespace)]
    releases = {release for each in listed if (release := _release(each))}
    sure = [
        each
        for each in seen.found
        if each.metadata.uid in proven
        or _is_ours_by_name(each, namespace)
        or (_claims(each) and _release(each) in releases)
        or (_is_for_our_pods(each, namespace) and not _owners(each) & there)
    ]
    definitions = {each.ref.key.name for each in (*listed, *sure) if each.ref.resource == CRDS}
    resources = [each for each in seen.found if str(each.ref.resource) in definitions and not _is_topology(each)]
    ours = _with_dependents(seen, {each.metadata.uid for each in (*listed, *sure, *resources)}, there)
    unproven = (each for each in seen.found if _claims(each) and not _owners(each) & there)
    return OwnedObjects(
        ours=tuple(each for each in seen.found if each.metadata.uid in ours),
        unproven=tuple(each for each in unproven if each.metadata.uid not in ours),
    )


def _claims(found: InventoryObject) -> bool:
    """It has a label of ours, or is the definition of a kind in one of our API groups."""
    labels = found.metadata.labels or {}
    is_ours = found.ref.resource == CRDS and found.ref.key.name.endswith(tuple(f".{group}" for group in GROUPS))
    return is_ours or labels.get(operator.PART_OF) == operator.PRODUCT or names.OPERAND_LABEL in labels


def _is_ours_by_name(found: InventoryObject, namespace: str) -> bool:
    """By its name alone, whatever its labels are."""
    resource, key = found.ref
    if resource == CRDS:
        return key.name in _ALWAYS_DEFINED
    if _is_topology(found):
        return numa_names.NODE_GROUP_LABEL in (found.metadata.labels or {})  # only our exporters have this label
    return found.ref in WEBHOOKS or (key.namespace == namespace and key.name in NAMED.get(str(resource), ()))


def _is_topology(found: InventoryObject) -> bool:
    return str(found.ref.resource) == str(TOPOLOGIES)


def is_our_definition(metadata: ObjectMeta) -> bool:
    """Whether a definition is one of polyarch's: by its name, or where others use the name by our label as well."""
    if metadata.name in _ALWAYS_DEFINED:
        return True
    return metadata.name in _DEFINED and (metadata.labels or {}).get(operator.PART_OF) == operator.PRODUCT


def _is_listed(found: InventoryObject, namespace: str) -> bool:
    """Whether it has a kind and a name that an installation in this namespace gives."""
    resource, key = found.ref
    if resource == NAMESPACES:
        return key.name == namespace == DEFAULT_NAMESPACE
    if key.namespace not in ("", namespace) and resource.group != RIGHTS:
        return False
    is_operand = names.OPERAND_LABEL in (found.metadata.labels or {}) and key.name in ROLES
    return is_operand or (resource.group, resource.plural, key.name) in _INSTALLED


def _release(found: InventoryObject) -> tuple[str, ...]:
    """Namespace and name of the Helm release that an object is of; empty: of none."""
    annotations = found.metadata.annotations or {}
    return tuple(annotations[name] for name in RELEASE if name in annotations)


def _owners(found: InventoryObject) -> set[str]:
    return {owner.uid for owner in found.metadata.owner_references or ()}


def _is_for_our_pods(found: InventoryObject, namespace: str) -> bool:
    """Whether it is a pod of ours, or what Kubernetes makes for our pods. It may outlive its owner by seconds."""
    labels = found.metadata.labels or {}
    is_of_role = _claims(found) or labels.get(names.CONTROLLER_LABEL) in ROLES
    return is_of_role and found.ref.key.namespace == namespace and bool(found.metadata.owner_references)


def _with_dependents(seen: ClusterInventory, sure: AbstractSet[str], there: AbstractSet[str]) -> set[str]:
    """These uids, and those of all objects that belong to nothing else that is there."""
    dependents: dict[str, list[InventoryObject]] = {}
    for each in seen.found:
        for owner in _owners(each):
            dependents.setdefault(owner, []).append(each)
    ours = set(sure)
    pending = list(sure)
    while pending:
        for each in dependents.get(pending.pop(), ()):
            uid = each.metadata.uid
            if uid not in ours and _owners(each) & there <= ours:
                ours.add(uid)
                pending.append(uid)
    return ours


def _installed() -> Iterator[tuple[str, str, str]]:
    """Group, kind and name of everything that an installation can consist of, but for namespaces."""
    everything = InstallationSettings(
        components=get_args(ComponentName),
        openshift=True,
        registries=Registries(configuration="everything"),
        numa=Numa(scheduler={}),
    )
    for each in documents(everything):
        resource, key = ref_of(each)
        yield resource.group, resource.plural, key.name


_INSTALLED: Final = frozenset(_installed())
_DEFINED: Final = frozenset(
    each["metadata"]["name"] for component in COMPONENTS.values() for each in component.definitions()
)
_ALWAYS_DEFINED: Final = _DEFINED - {
    each["metadata"]["name"]
    for component in COMPONENTS.values()
    if not component.defined_always
    for each in component.definitions()
}
