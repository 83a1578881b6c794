"""Checks of a cluster before the first write of an installation.

Each check is a line that people read: what was looked at, what was found, and what to do. Rights are asked for with
SelfSubjectAccessReviews. Objects of the same names are read, and it is found out whose they are. What the API server
would say to each write is asked with a dry run.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from enum import Enum
from typing import Any, Final, Literal, TypeVar

import msgspec

from polyarch.installation import operator
from polyarch.kube.adoption import ADDED_BY_PEOPLE, ForeignField, foreign
from polyarch.kube.apply import can_insist
from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError, Invalid, NotFound
from polyarch.kube.managed_fields import differences, managers_of
from polyarch.kube.rbac import Permission
from polyarch.kube.requests import FIELD_MANAGER
from polyarch.kube.resources import (
    CRDS,
    DEPLOYMENTS,
    NAMESPACES,
    SELF_SUBJECT_ACCESS_REVIEWS,
    ObjectRef,
    Resource,
    by_kind,
    few,
)
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.objects import ObjectKey
from polyarch.operator.cluster import version_of
from polyarch.operator.components.operator_rbac import PREDECESSOR
from polyarch.operator.settings import OLDEST_KUBERNETES
from polyarch.placement import names
from polyarch.placement.api import CPPCS, POLICIES, PPCS
from polyarch.taints.api import ARCHITECTURE_TAINTS

Document = dict[str, Any]
_OURS: Final = (CPPCS, PPCS, POLICIES, ARCHITECTURE_TAINTS, OPERATORS, SCHEDULERS)
OURS: Final = {(each.api_version, each.kind): each for each in _OURS}
VERBS: Final = ("get", "create", "patch")


class PreflightCheck(msgspec.Struct, frozen=True, rename="camel"):
    """One line of the checks before an installation."""

    name: str
    outcome: Literal["ok", "note", "refused"]
    message: str
    action: str = ""
    """What to do about a refusal."""


class PreflightFacts(msgspec.Struct, frozen=True):
    """What was read of a cluster."""

    version: tuple[int, int]
    """Of Kubernetes: major and minor."""
    live: Mapping[ObjectRef, Document | None]
    """Each object of the installation as it is; None if there is none."""
    deployments: tuple[Document, ...]
    """Deployments anywhere in the cluster by which installations are known."""
    denied: tuple[tuple[Permission, str], ...] = ()
    """What the user may not do, with the namespace (empty: cluster-wide)."""
    refusals: Mapping[ObjectRef, ApiError] = {}
    """Writes that the API server refuses, by a dry run."""


def ref_of(document: Mapping[str, Any]) -> ObjectRef:
    """The reference of a document of an installation."""
    api_version, kind, metadata = document["apiVersion"], document["kind"], document["metadata"]
    resource = OURS.get((api_version, kind)) or by_kind(api_version, kind)
    return ObjectRef(resource, ObjectKey(metadata.get("namespace", ""), metadata["name"]))


async def git_version(client: Client) -> str:
    """The API server's ``gitVersion``, such as ``v1.33.2``."""
    return str(msgspec.json.decode(await client.raw("GET", "/version")).get("gitVersion") or "")


async def gather(client: Client, documents: Iterable[Document]) -> PreflightFacts:
    """Reads everything that :func:`checks` judges; writes nothing."""
    wanted = {ref_of(document): document for document in documents}
    version = version_of(msgspec.json.decode(await client.raw("GET", "/version")))
    denied = await _denied(client, wanted)
    live = dict(zip(wanted, await together(_read(client, ref) for ref in wanted), strict=True))
    named = await together(_deployments(client, name) for name in DEPLOYMENT_NAMES)
    refusals: dict[ObjectRef, ApiError] = {}
    if not denied:
        tried = [ref for ref in wanted if is_ready_for(ref, live) and changes(wanted[ref], live[ref])]
        said = await together(_tried(client, ref, wanted[ref]) for ref in tried)
        refusals = {ref: error for ref, error in zip(tried, said, strict=True) if error is not None}
    return PreflightFacts(version, live, tuple(each for some in named for each in some), denied, refusals)


def checks(facts: PreflightFacts, *, namespace: str) -> tuple[PreflightCheck, ...]:
    """The list; pure."""
    return (
        _version(facts.version),
        _rights(facts),
        *installations(facts.deployments, namespace),
        *_same_names(facts),
        *_dry_run(facts),
    )


def changes(document: Document, live: Document | None) -> bool:
    """Whether applying the document would change anything."""
    if live is None:
        return True
    found = differences(document, live, manager=MANAGER)
    # An empty spec asks for nothing; what it differs in are defaults, and what users have set.
    return any(field != ".spec" or document["spec"] for field in found) or bool(in_the_way(document, live))


def in_the_way(document: Document, live: Document) -> tuple[ForeignField, ...]:
    """What others have put where only ours can be, apart from what an administrator may have added."""
    return foreign(document, live, manager=MANAGER, spared=ADDED_BY_PEOPLE)


def is_ready_for(ref: ObjectRef, live: Mapping[ObjectRef, Document | None]) -> bool:
    """Whether the namespace, or the definition of the kind, is there already: only then a dry run can be made."""
    needed = {
        ObjectRef(NAMESPACES, ObjectKey("", ref.key.namespace)) if ref.key.namespace else None,
        ObjectRef(CRDS, ObjectKey("", str(ref.resource))) if ref.resource in OURS.values() else None,
    }
    return all(live.get(each) is not None for each in needed if each is not None and each in live)


def _version(version: tuple[int, int]) -> PreflightCheck:
    found, oldest = (".".join(map(str, each)) for each in (version, OLDEST_KUBERNETES))
    if version < OLDEST_KUBERNETES:
        return PreflightCheck(
            "Kubernetes",
            "refused",
            f"the API server is version {found}",
            f"upgrade the cluster: polyarch needs {oldest} or newer",
        )
    return PreflightCheck("Kubernetes", "ok", f"version {found}; {oldest} or newer is needed")


def _rights(facts: PreflightFacts) -> PreflightCheck:
    if not facts.denied:
        return PreflightCheck("Rights", "ok", "everything that is needed is allowed")
    listed = [f"{access}{f' in namespace {namespace}' if namespace else ''}" for access, namespace in facts.denied]
    return PreflightCheck(
        "Rights",
        "refused",
        f"not allowed: {few(listed)}",
        "use an account with the ClusterRole cluster-admin, or ask somebody who has one",
    )


def _same_names(facts: PreflightFacts) -> list[PreflightCheck]:
    found: dict[Ownership, list[str]] = {}
    for ref, live in facts.live.items():
        if live is not None:
            said = f"{ref.resource.kind} {ref.key}{manager_of(live)}"
            found.setdefault(whose(ref, live), []).append(said)
    lines = []
    for owner, objects in found.items():
        check = OBJECTS[owner]
        which = f"{len(objects)} objects" if owner is Ownership.OURS and len(objects) > 1 else few(objects)
        lines.append(msgspec.structs.replace(check, message=f"{which}: {check.message}"))
    return lines or [PreflightCheck("Objects", "ok", "none of the names is taken")]


def _dry_run(facts: PreflightFacts) -> list[PreflightCheck]:
    return [
        PreflightCheck("Dry run", "refused", f"{ref}: {error.message or error}", advice(error))
        for ref, error in facts.refusals.items()
    ]


def advice(error: ApiError) -> str:
    """What to do about a refused write."""
    match error.status:
        case 401:
            return "log in again: the credentials of the kubeconfig are wrong or have expired"
        case 403 if "attempting to grant" in error.message:
            return "use an account with the ClusterRole cluster-admin: only who has a right may grant it"
        case 403:
            return "ask for the right, or change the policy that denies the object"
        case 409:
            return "run the command again; if it stays, another program changes the object all the time"
        case 422 | 400:
            return "correct the value that is named; if it is none of yours, report it with this message"
        case 404 if error.message.startswith("namespaces "):
            return "create that namespace first, or correct the value that names it"
        case 500 if "failed calling webhook" in error.message:
            return (
                "start what serves that webhook, or delete its registration if that is gone for good: "
                "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"
            )
        case 429:
            return "the API server is busy: run the command again"
    return "look at the API server, then run the command again: it goes on where it stopped"


async def _read(client: Client, ref: ObjectRef) -> Document | None:
    try:
        return await client.get(ref.resource, ref.key.name, namespace=ref.key.namespace)
    except NotFound:
        return None
    except ApiError as error:
        if error.status == 403:
            return None  # the check of the rights says so
        raise


async def _deployments(client: Client, name: str) -> list[Document]:
    try:
        return (await client.list(DEPLOYMENTS, field_selector=f"metadata.name={name}")).items
    except ApiError as error:
        if error.status == 403:
            return []
        raise


async def _tried(client: Client, ref: ObjectRef, document: Document) -> ApiError | None:
    try:
        await client.apply(ref.resource, document, namespace=ref.key.namespace, field_manager=MANAGER, dry_run=True)
    except Invalid as error:
        # An install takes out what is foreign.
        return None if await can_insist(client, ref, document, error) else error
    except ApiError as error:
        return error
    return None


async def _denied(client: Client, wanted: Iterable[ObjectRef]) -> tuple[tuple[Permission, str], ...]:
    asked: dict[tuple[Resource, str, str], list[str]] = {}
    for ref in wanted:
        for verb in VERBS:
            asked.setdefault((ref.resource, ref.key.namespace, verb), []).append(ref.key.name)
    # Who may do it to all names is asked once; only who may not is asked for each name.
    may_all = await together(_may(client, *each) for each in asked)
    single = [
        (resource, namespace, verb, name)
        for ((resource, namespace, verb), found), may in zip(asked.items(), may_all, strict=True)
        if not may
        for name in (("",) if verb == "create" else found)
    ]
    allowed = await together(_may(client, *each) for each in single)
    return tuple(
        (Permission(verb, resource.group, resource.plural, name), namespace)
        for (resource, namespace, verb, name), may in zip(single, allowed, strict=True)
        if not may
    )


async def _may(client: Client, resource: Resource, namespace: str, verb: str, name: str = "") -> bool:
    attributes = {"group": resource.group, "resource": resource.plural, "verb": verb}
    if namespace:
        attributes["namespace"] = namespace
    if name:
        attributes["name"] = name
    review = {
        "apiVersion": SELF_SUBJECT_ACCESS_REVIEWS.api_version,
        "kind": SELF_SUBJECT_ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": attributes},
    }
    answer = await client.create(SELF_SUBJECT_ACCESS_REVIEWS, review, type=dict)
    return bool((answer.get("status") or {}).get("allowed"))


# -- whose an object or a Deployment is that the cluster already has ---------------------------------------------------
# An installation takes over what an earlier polyarch or the predecessor (the Multiarch Tuning Operator) left. It leaves
# alone what Helm or OLM look after, and never touches what is somebody else's.

MANAGER: Final = "polyarch-install"
"""The field manager of everything that an installation applies."""
MANAGERS: Final = frozenset({MANAGER, FIELD_MANAGER})
"""As whom ``polyarch install`` and the operator write."""
LABELS: Final = (operator.PART_OF, names.OPERAND_LABEL)
"""Labels of what polyarch makes."""
DEPLOYMENT_NAMES: Final = (operator.OPERATOR, PREDECESSOR, names.CONTROLLER, names.WEBHOOK)
"""Deployments by which an installation is known."""


class Ownership(Enum):
    """To whom an object belongs that has the name of one of ours."""

    OURS = "ours"
    HELM = "helm"
    OLM = "olm"
    EARLIER = "earlier"
    """Of an earlier polyarch, or of the predecessor."""
    SHARED = "shared"
    """A namespace or a custom resource: used as it is."""
    FOREIGN = "foreign"


OBJECTS: Final[Mapping[Ownership, PreflightCheck]] = {
    Ownership.OURS: PreflightCheck("Objects", "ok", "installed by polyarch before"),
    Ownership.SHARED: PreflightCheck("Objects", "ok", "there already; what you have set in it stays"),
    Ownership.EARLIER: PreflightCheck(
        "Objects", "note", "left by an earlier polyarch or by the Multiarch Tuning Operator; taken over"
    ),
    Ownership.HELM: PreflightCheck(
        "Objects",
        "refused",
        "installed by Helm",
        "use helm upgrade; or helm uninstall first, and then polyarch install",
    ),
    Ownership.OLM: PreflightCheck(
        "Objects",
        "refused",
        "installed by OLM",
        "upgrade it by its Subscription; or delete Subscription and ClusterServiceVersion first",
    ),
    Ownership.FOREIGN: PreflightCheck(
        "Objects",
        "refused",
        "not polyarch's, although it has the same name",
        "delete or rename it, or install into another namespace with --namespace; nothing was changed",
    ),
}
"""What a check says about existing objects, by whom they belong to; their names come before the message."""


def whose(ref: ObjectRef, live: Mapping[str, Any]) -> Ownership:
    """To whom the object belongs."""
    metadata = live.get("metadata") or {}
    labels = metadata.get("labels") or {}
    if labels.get("app.kubernetes.io/managed-by") == "Helm" and ref.resource != CRDS:
        return Ownership.HELM
    if any(label in ("olm.owner", "olm.managed") for label in labels):
        return Ownership.OLM
    if ref.resource == NAMESPACES:
        return _whose_namespace(ref.key.name, live)
    if labels.get(operator.PART_OF) == operator.PRODUCT:
        return Ownership.OURS
    if ref.resource.group in (names.GROUP, names.OWN_GROUP):
        return Ownership.SHARED
    if ref.resource == CRDS or names.OPERAND_LABEL in labels:
        return Ownership.EARLIER
    return Ownership.FOREIGN


def _whose_namespace(name: str, live: Mapping[str, Any]) -> Ownership:
    """The default is a name that nobody else would choose. Any other namespace may be labelled as ours by its owner."""
    if is_written_by_us(live):
        return Ownership.OURS
    if name != DEFAULT_NAMESPACE:
        return Ownership.SHARED
    labels = (live.get("metadata") or {}).get("labels") or {}
    return Ownership.OURS if labels.get(operator.PART_OF) == operator.PRODUCT else Ownership.EARLIER


def is_written_by_us(live: Mapping[str, Any]) -> bool:
    """Whether polyarch itself wrote a label of ours on this object, by its ``managedFields``."""
    written = (managers_of(live, ("f:metadata", "f:labels", f"f:{label}")) for label in LABELS)
    return any(managers & MANAGERS for managers in written)


def manager_of(live: Mapping[str, Any]) -> str:
    """Who changed a foreign object last, for a message; empty if it is not known."""
    metadata = live.get("metadata") or {}
    if (metadata.get("labels") or {}).get(operator.PART_OF) == operator.PRODUCT:
        return ""
    managers = [entry.get("manager") for entry in metadata.get("managedFields") or () if not entry.get("subresource")]
    return f" (managed by {managers[-1]})" if managers and managers[-1] else ""


def installations(deployments: Iterable[Mapping[str, Any]], namespace: str) -> list[PreflightCheck]:
    """What the Deployments say of installations, for one into ``namespace``."""
    by_name: dict[str, dict[str, Mapping[str, Any]]] = {}
    for each in deployments:
        by_name.setdefault(each["metadata"]["name"], {})[each["metadata"]["namespace"]] = each
    found = [_predecessor(place, each, namespace) for place, each in by_name.get(PREDECESSOR, {}).items()]
    own = by_name.get(operator.OPERATOR, {})
    found += [_elsewhere("polyarch", place) for place in own if place != namespace]
    known = {*own, *by_name.get(PREDECESSOR, {})}
    roles = {**by_name.get(names.CONTROLLER, {}), **by_name.get(names.WEBHOOK, {})}
    for place in (each for each in roles if each not in known):
        if place != namespace:
            found.append(_elsewhere("an earlier polyarch without operator, or what a predecessor left", place))
        else:
            text = f"an earlier polyarch without operator is in namespace {place}; it is taken over"
            found.append(PreflightCheck("Installation", "note", text))
    if namespace in own:
        version = (own[namespace]["metadata"].get("labels") or {}).get(operator.VERSION, "unknown")
        found.append(PreflightCheck("Installation", "ok", f"polyarch {version} is in namespace {namespace}"))
    return found or [PreflightCheck("Installation", "ok", "there is none yet")]


def _predecessor(place: str, live: Mapping[str, Any], namespace: str) -> PreflightCheck:
    name = "Predecessor"
    if (live.get("spec") or {}).get("replicas", 1):
        return PreflightCheck(
            name,
            "refused",
            f"the Multiarch Tuning Operator runs in namespace {place}",
            f"stop it first: kubectl scale -n {place} deployment/{PREDECESSOR} --replicas=0; "
            "if OLM installed it, delete its Subscription and ClusterServiceVersion instead",
        )
    if place != namespace:
        return PreflightCheck(
            name,
            "refused",
            f"the Multiarch Tuning Operator is in namespace {place}, stopped",
            f"take it over in its place with --namespace {place}",
        )
    return PreflightCheck(
        name, "note", f"the Multiarch Tuning Operator in namespace {place} is stopped; it is taken over"
    )


def _elsewhere(what: str, place: str) -> PreflightCheck:
    return PreflightCheck(
        "Installation",
        "refused",
        f"{what} is in namespace {place}",
        f"a cluster has one polyarch: give --namespace {place}, or uninstall it there first",
    )


# -- many questions to the API server, a few at a time: it limits what one client may ask ------------------------------

T = TypeVar("T")
MAX_CONCURRENT_REVIEWS: Final = 8


async def together(questions: Iterable[Awaitable[T]]) -> list[T]:
    """The answers in the same order; :data:`MAX_CONCURRENT_REVIEWS` are asked at the same time."""
    limit = asyncio.Semaphore(MAX_CONCURRENT_REVIEWS)

    async def limited(question: Awaitable[T]) -> T:
        async with limit:
            return await question

    return list(await asyncio.gather(*map(limited, questions)))
