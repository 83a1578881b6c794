"""Checks of a cluster before the first write of an installation (IN-002).

Each check is a line that people read: what was looked at, what was found, and what to do. Rights are asked for with
SelfSubjectAccessReviews. Objects of the same names are read, and it is found out whose they are. What the API server
would say to each write is asked with a dry run.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from polyarch.installation import ownership
from polyarch.installation.asking import together
from polyarch.installation.ownership import MANAGER, Check, Whose
from polyarch.kube.adoption import ADDED_BY_PEOPLE, Foreign, foreign
from polyarch.kube.apply import can_insist
from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError, Invalid, NotFound
from polyarch.kube.managed_fields import differences
from polyarch.kube.rbac import Access
from polyarch.kube.resources import (
    CRDS,
    DEPLOYMENTS,
    NAMESPACES,
    SELF_SUBJECT_ACCESS_REVIEWS,
    Ref,
    Resource,
    by_kind,
    few,
)
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.objects import Key
from polyarch.operating.keeping.discovery import version_of
from polyarch.operating.settings import OLDEST_KUBERNETES
from polyarch.placement.api.resources import CPPCS, POLICIES, PPCS
from polyarch.taints.api import ARCHITECTURE_TAINTS

Document = dict[str, Any]

_OURS: Final = (CPPCS, PPCS, POLICIES, ARCHITECTURE_TAINTS, OPERATORS, SCHEDULERS)
OURS: Final = {(each.api_version, each.kind): each for each in _OURS}
VERBS: Final = ("get", "create", "patch")


class Facts(msgspec.Struct, frozen=True):
    """What was read of a cluster."""

    version: tuple[int, int]
    """Of Kubernetes: major and minor."""
    live: Mapping[Ref, Document | None]
    """Each object of the installation as it is; None if there is none."""
    deployments: tuple[Document, ...]
    """Deployments anywhere in the cluster by which installations are known."""
    denied: tuple[tuple[Access, str], ...] = ()
    """What the user may not do, with the namespace (empty: cluster-wide)."""
    refusals: Mapping[Ref, ApiError] = {}
    """Writes that the API server refuses, by a dry run."""


def ref_of(document: Mapping[str, Any]) -> Ref:
    """The reference of a document of an installation."""
    api_version, kind, metadata = document["apiVersion"], document["kind"], document["metadata"]
    resource = OURS.get((api_version, kind)) or by_kind(api_version, kind)
    return Ref(resource, Key(metadata.get("namespace", ""), metadata["name"]))


async def gather(client: Client, documents: Iterable[Document]) -> Facts:
    """Reads everything that :func:`checks` judges; writes nothing."""
    wanted = {ref_of(document): document for document in documents}
    version = version_of(msgspec.json.decode(await client.raw("GET", "/version")))
    denied = await _denied(client, wanted)
    live = dict(zip(wanted, await together(_read(client, ref) for ref in wanted), strict=True))
    named = await together(_deployments(client, name) for name in ownership.DEPLOYMENT_NAMES)
    refusals: dict[Ref, ApiError] = {}
    if not denied:
        tried = [ref for ref in wanted if is_ready_for(ref, live) and changes(wanted[ref], live[ref])]
        said = await together(_tried(client, ref, wanted[ref]) for ref in tried)
        refusals = {ref: error for ref, error in zip(tried, said, strict=True) if error is not None}
    return Facts(version, live, tuple(each for some in named for each in some), denied, refusals)


def checks(facts: Facts, *, namespace: str) -> tuple[Check, ...]:
    """The list; pure."""
    return (
        _version(facts.version),
        _rights(facts),
        *ownership.installations(facts.deployments, namespace),
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


def in_the_way(document: Document, live: Document) -> tuple[Foreign, ...]:
    """What others have put where only ours can be, apart from what an administrator may have added."""
    return foreign(document, live, manager=MANAGER, spared=ADDED_BY_PEOPLE)


def is_ready_for(ref: Ref, live: Mapping[Ref, Document | None]) -> bool:
    """Whether the namespace, or the definition of the kind, is there already: only then a dry run can be made."""
    needed = {
        Ref(NAMESPACES, Key("", ref.key.namespace)) if ref.key.namespace else None,
        Ref(CRDS, Key("", str(ref.resource))) if ref.resource in OURS.values() else None,
    }
    return all(live.get(each) is not None for each in needed if each is not None and each in live)


def _version(version: tuple[int, int]) -> Check:
    found, oldest = (".".join(map(str, each)) for each in (version, OLDEST_KUBERNETES))
    if version < OLDEST_KUBERNETES:
        return Check(
            "Kubernetes",
            "refused",
            f"the API server is version {found}",
            f"upgrade the cluster: polyarch needs {oldest} or newer",
        )
    return Check("Kubernetes", "ok", f"version {found}; {oldest} or newer is needed")


def _rights(facts: Facts) -> Check:
    if not facts.denied:
        return Check("Rights", "ok", "everything that is needed is allowed")
    listed = [f"{access}{f' in namespace {namespace}' if namespace else ''}" for access, namespace in facts.denied]
    return Check(
        "Rights",
        "refused",
        f"not allowed: {few(listed)}",
        "use an account with the ClusterRole cluster-admin, or ask somebody who has one",
    )


def _same_names(facts: Facts) -> list[Check]:
    found: dict[Whose, list[str]] = {}
    for ref, live in facts.live.items():
        if live is not None:
            said = f"{ref.resource.kind} {ref.key}{ownership.manager_of(live)}"
            found.setdefault(ownership.whose(ref, live), []).append(said)
    lines = []
    for owner, objects in found.items():
        check = ownership.OBJECTS[owner]
        which = f"{len(objects)} objects" if owner is Whose.OURS and len(objects) > 1 else few(objects)
        lines.append(msgspec.structs.replace(check, message=f"{which}: {check.message}"))
    return lines or [Check("Objects", "ok", "none of the names is taken")]


def _dry_run(facts: Facts) -> list[Check]:
    return [
        Check("Dry run", "refused", f"{ref}: {error.message or error}", advice(error))
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


async def _read(client: Client, ref: Ref) -> Document | None:
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


async def _tried(client: Client, ref: Ref, document: Document) -> ApiError | None:
    try:
        await client.apply(ref.resource, document, namespace=ref.key.namespace, field_manager=MANAGER, dry_run=True)
    except Invalid as error:
        # An install takes out what is foreign.
        return None if await can_insist(client, ref, document, error) else error
    except ApiError as error:
        return error
    return None


async def _denied(client: Client, wanted: Iterable[Ref]) -> tuple[tuple[Access, str], ...]:
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
        (Access(verb, resource.group, resource.plural, name), namespace)
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
