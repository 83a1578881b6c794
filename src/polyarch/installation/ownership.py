"""Whose are the objects and Deployments that a cluster already has? (IN-002, IN-040, PL-503)

An installation takes over what an earlier polyarch or the predecessor (the Multiarch Tuning Operator) left. It leaves
alone what Helm or OLM look after, and never touches what is somebody else's. Pure.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, Literal

import msgspec

from polyarch.installation import operator
from polyarch.kube.managed_fields import managers_of
from polyarch.kube.requests import FIELD_MANAGER
from polyarch.kube.resources import CRDS, NAMESPACES, Ref
from polyarch.operating.settings import DEFAULT_NAMESPACE
from polyarch.placement import names
from polyarch.placement.operator.operator_rules import PREDECESSOR

MANAGER: Final = "polyarch-install"
"""The field manager of everything that an installation applies."""
MANAGERS: Final = frozenset({MANAGER, FIELD_MANAGER})
"""As whom ``polyarch install`` and the operator write."""
LABELS: Final = (operator.PART_OF, names.OPERAND_LABEL)
"""Labels of what polyarch makes."""
DEPLOYMENT_NAMES: Final = (operator.OPERATOR, PREDECESSOR, names.CONTROLLER, names.WEBHOOK)
"""Deployments by which an installation is known."""


class Whose(Enum):
    """To whom an object belongs that has the name of one of ours."""

    OURS = "ours"
    HELM = "helm"
    OLM = "olm"
    EARLIER = "earlier"
    """Of an earlier polyarch, or of the predecessor."""
    SHARED = "shared"
    """A namespace or a custom resource: used as it is."""
    FOREIGN = "foreign"


class Check(msgspec.Struct, frozen=True, rename="camel"):
    """One line of the checks before an installation."""

    name: str
    outcome: Literal["ok", "note", "refused"]
    message: str
    action: str = ""
    """What to do about a refusal."""


OBJECTS: Final[Mapping[Whose, Check]] = {
    Whose.OURS: Check("Objects", "ok", "installed by polyarch before"),
    Whose.SHARED: Check("Objects", "ok", "there already; what you have set in it stays"),
    Whose.EARLIER: Check(
        "Objects", "note", "left by an earlier polyarch or by the Multiarch Tuning Operator; taken over"
    ),
    Whose.HELM: Check(
        "Objects",
        "refused",
        "installed by Helm",
        "use helm upgrade; or helm uninstall first, and then polyarch install",
    ),
    Whose.OLM: Check(
        "Objects",
        "refused",
        "installed by OLM",
        "upgrade it by its Subscription; or delete Subscription and ClusterServiceVersion first",
    ),
    Whose.FOREIGN: Check(
        "Objects",
        "refused",
        "not polyarch's, although it has the same name",
        "delete or rename it, or install into another namespace with --namespace; nothing was changed",
    ),
}
"""What a check says about existing objects, by whom they belong to; their names come before the message."""


def whose(ref: Ref, live: Mapping[str, Any]) -> Whose:
    """To whom the object belongs."""
    metadata = live.get("metadata") or {}
    labels = metadata.get("labels") or {}
    if labels.get("app.kubernetes.io/managed-by") == "Helm" and ref.resource != CRDS:
        return Whose.HELM
    if any(label in ("olm.owner", "olm.managed") for label in labels):
        return Whose.OLM
    if ref.resource == NAMESPACES:
        return _whose_namespace(ref.key.name, live)
    if labels.get(operator.PART_OF) == operator.PRODUCT:
        return Whose.OURS
    if ref.resource.group in (names.GROUP, names.OWN_GROUP):
        return Whose.SHARED
    if ref.resource == CRDS or names.OPERAND_LABEL in labels:
        return Whose.EARLIER
    return Whose.FOREIGN


def _whose_namespace(name: str, live: Mapping[str, Any]) -> Whose:
    """The default is a name that nobody else would choose. Any other namespace may be labelled as ours by its owner."""
    if is_written_by_us(live):
        return Whose.OURS
    if name != DEFAULT_NAMESPACE:
        return Whose.SHARED
    labels = (live.get("metadata") or {}).get("labels") or {}
    return Whose.OURS if labels.get(operator.PART_OF) == operator.PRODUCT else Whose.EARLIER


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


def installations(deployments: Iterable[Mapping[str, Any]], namespace: str) -> list[Check]:
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
            found.append(Check("Installation", "note", text))
    if namespace in own:
        version = (own[namespace]["metadata"].get("labels") or {}).get(operator.VERSION, "unknown")
        found.append(Check("Installation", "ok", f"polyarch {version} is in namespace {namespace}"))
    return found or [Check("Installation", "ok", "there is none yet")]


def _predecessor(place: str, live: Mapping[str, Any], namespace: str) -> Check:
    name = "Predecessor"
    if (live.get("spec") or {}).get("replicas", 1):
        return Check(
            name,
            "refused",
            f"the Multiarch Tuning Operator runs in namespace {place}",
            f"stop it first: kubectl scale -n {place} deployment/{PREDECESSOR} --replicas=0; "
            "if OLM installed it, delete its Subscription and ClusterServiceVersion instead",
        )
    if place != namespace:
        return Check(
            name,
            "refused",
            f"the Multiarch Tuning Operator is in namespace {place}, stopped",
            f"take it over in its place with --namespace {place}",
        )
    return Check(name, "note", f"the Multiarch Tuning Operator in namespace {place} is stopped; it is taken over")


def _elsewhere(what: str, place: str) -> Check:
    return Check(
        "Installation",
        "refused",
        f"{what} is in namespace {place}",
        f"a cluster has one polyarch: give --namespace {place}, or uninstall it there first",
    )
