"""Takes over the fields of other field managers, so that applying removes those that are not wanted.

Server-side apply removes a field only if its own manager applied it before. An object that ``kubectl apply`` made keeps
fields that nobody wants any more. So kubectl's entries in ``metadata.managedFields`` are renamed to ours first, as
client-go's ``csaupgrade`` does.

The same holds for one item of a list: somebody who changes the key of an item (the port of a Service, the name of a
container) leaves an item of theirs beside ours, which we could never remove, and which may collide with ours. Where a
kind is ours (:data:`GIVEN`), such an item, or a field that we do not want, is written into our entry; the next apply
then removes it and puts ours in its place in one write. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.kube import patches
from polyarch.kube.managed_fields import FieldConflict, Path, undesired_fields, words_of
from polyarch.kube.patches import JsonPatch

KUBECTL: Final = frozenset(
    {"kubectl-client-side-apply", "kubectl-create", "kubectl-replace", "before-first-apply", "kubectl"}
)
"""The managers that kubectl's commands leave; not ``kubectl-edit`` and the like, by which people change fields."""

_EXTRAS: Final = ("env[name]", "envFrom", "volumeMounts[mountPath]", "volumeDevices[devicePath]")
_CONTAINER: Final = ("", *(f".{each}" for each in ("ports[containerPort,protocol]", *_EXTRAS)))
_POD_SPEC: Final = tuple(
    f"spec.template.spec.{each}"
    for each in (
        *(f"{several}[name]{part}" for several in ("containers", "initContainers") for part in _CONTAINER),
        "volumes[name]",
        "topologySpreadConstraints[topologyKey,whenUnsatisfiable]",
        "schedulingGates[name]",
    )
)
_POLICY: Final = ("spec.matchConditions[name]", "spec.variables[name]")
_WEBHOOKS: Final = ("webhooks[name]", "webhooks[name].matchConditions[name]")
LISTS: Final[Mapping[str, tuple[str, ...]]] = {
    "Service": ("spec.ports[port,protocol]",),
    "Deployment": _POD_SPEC,
    "DaemonSet": _POD_SPEC,
    "MutatingWebhookConfiguration": _WEBHOOKS,
    "ValidatingWebhookConfiguration": _WEBHOOKS,
    "ValidatingAdmissionPolicy": _POLICY,
    "MutatingAdmissionPolicy": _POLICY,
}
"""By kind, lists with the keys of their items, as Kubernetes' schema has them: an item of these that we do not want is
found also if nobody owns it. Atomic lists and maps (rules and subjects of RBAC, selectors, rules of network policies)
need no entry: an apply replaces them."""
_OF_PODS: Final = tuple(
    f"spec.template.spec.{each}"
    for each in (
        "tolerations",
        "nodeSelector",
        "priorityClassName",
        "imagePullSecrets",
        "containers.resources",
        "initContainers.resources",
    )
)
GIVEN: Final[Mapping[str, tuple[str, ...]]] = {
    "Service": tuple(
        f"spec.{each}" for each in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "ports.nodePort")
    ),
    "Deployment": _OF_PODS,
    "DaemonSet": _OF_PODS,
    "MutatingWebhookConfiguration": ("webhooks.clientConfig.caBundle",),
    "ValidatingWebhookConfiguration": ("webhooks.clientConfig.caBundle",),
    "ValidatingAdmissionPolicy": (),
    "ValidatingAdmissionPolicyBinding": (),
    "MutatingAdmissionPolicy": (),
    "MutatingAdmissionPolicyBinding": (),
    "PodDisruptionBudget": (),
    "NetworkPolicy": (),
    "ClusterRole": (),
    "Role": (),
    "ServiceAccount": ("secrets", "imagePullSecrets"),
    "ConfigMap": ("data", "binaryData"),
}
"""Kinds of which everything is ours but metadata (also that of a pod template), ``replicas``, the status, and these
fields: where our pods run, with how much, what lets their image be pulled, and what platforms put in.

Of other kinds (Secrets, custom resources, definitions, namespaces) the fields that we set are ours, and no others."""
ADDED_BY_PEOPLE: Final = tuple(
    f"spec.template.spec.{each.partition('[')[0]}" for each in (*(f"containers.{each}" for each in _EXTRAS), "volumes")
)
"""What an administrator may have given the operator's own Deployment beyond that, such as a CA or settings."""
SOMEBODY: Final = "somebody unknown"
_DEFAULTS: Final = {"protocol": "TCP"}
"""Of the keys of list items."""
_AS_GO: Final = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}
"""What Go's JSON escapes beyond the standard; names of variables and paths of mounts may have it."""


class ForeignField(NamedTuple):
    """A field, or an item of a list, that is not ours, at a place that is: to be removed."""

    path: Path
    managers: tuple[str, ...]

    def conflict(self) -> FieldConflict:
        return FieldConflict(words_of(self.path), " and ".join(self.managers) or SOMEBODY)


def foreign(
    desired: Mapping[str, Any], live: Mapping[str, Any], *, manager: str, spared: Collection[str] = ()
) -> tuple[ForeignField, ...]:
    """What others have put where everything is ours. ``spared``: fields that they may set beyond :data:`GIVEN`.

    An item of :data:`LISTS` counts whoever owns it, also if nobody does. All else counts if another manager owns it: it
    may also be the API server's default.
    """
    kind = str(desired.get("kind"))
    if kind not in GIVEN:
        return ()
    given = (*GIVEN[kind], *spared)
    found: dict[Path, ForeignField] = {}
    for owned in LISTS.get(kind, ()):
        for path in _beside(owned.split("."), desired, live, ()):
            ours, others = _owners(live, path, manager)
            if (others or (path[-1].startswith("k:") and not ours)) and not _is_given(path, given):
                found[path] = ForeignField(path, others)
    items = tuple(found)
    for each in colliding(desired, live, manager=manager):
        is_above = any(item[: len(each.path)] == each.path for item in items)
        if not (is_above or _is_given(each.path, given)) and _has(live, each.path):
            found[each.path] = each
    return tuple(found.values())


def _is_given(path: Path, given: Collection[str]) -> bool:
    name = ".".join(key[2:] for key in path if key.startswith("f:"))
    return any(name == each or name.startswith(f"{each}.") for each in given)


def _has(live: Any, path: Path) -> bool:
    """Whether the object still has a field that is another manager's by ``managedFields``."""
    for key in path:
        if not key.startswith("f:"):
            return True
        if not isinstance(live, Mapping) or key[2:] not in live:
            return False
        live = live[key[2:]]
    return True


def colliding(desired: Mapping[str, Any], live: Mapping[str, Any], *, manager: str) -> tuple[ForeignField, ...]:
    """Every field of other managers that is not desired, outside metadata and status: one of them may be what makes the
    API server refuse ours, such as a second handler of a probe or a second source of a volume."""
    found: dict[Path, ForeignField] = {}
    for entry in _entries(live):
        if _is(entry, manager) or entry.get("subresource"):
            continue
        for path in undesired_fields(desired, entry.get("fieldsV1") or {}):
            found.setdefault(path, ForeignField(path, _owners(live, path, manager)[1]))
    return tuple(found.values())


def taking(live: Mapping[str, Any], several: Iterable[ForeignField], *, manager: str) -> JsonPatch | None:
    """The patch after which these fields are ours alone, so that an apply without them removes them; None without any.

    It changes nothing but ``managedFields``, and fails if the object has changed since it was read.
    """
    paths = [each.path for each in several]
    if not paths:
        return None
    kept: list[Mapping[str, Any]] = []
    ours: dict[str, Any] = {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": live.get("apiVersion"),
        "fieldsType": "FieldsV1",
    }
    for entry in _entries(live):
        if _is(entry, manager):
            ours = dict(entry)
            continue
        fields = entry.get("fieldsV1") or {}
        for path in paths:
            fields = _without(fields, path)
        if fields:
            kept.append({**entry, "fieldsV1": fields})
    added: list[Mapping[str, Any]] = []
    for path in paths:
        tree: dict[str, Any] = {".": {}} if path[-1].startswith("k:") else {}
        for key in reversed(path):
            tree = {key: tree}
        added.append(tree)
    ours["fieldsV1"] = _union([ours.get("fieldsV1") or {}, *added])
    return _managed_by(live, [*kept, ours])


def _beside(steps: list[str], desired: Any, live: Any, path: Path) -> Iterator[Path]:
    """Where ``live`` has at the end of these steps what ``desired`` lacks."""
    name, _, keys = steps[0].rstrip("]").partition("[")
    value, wanted = (each.get(name) if isinstance(each, Mapping) else None for each in (live, desired))
    here = (*path, f"f:{name}")
    if not keys:
        if len(steps) > 1:
            yield from _beside(steps[1:], wanted, value, here)
        elif value and wanted is None:
            yield here
        return
    mine = {_key(each, keys): each for each in wanted or ()}
    for item in value if isinstance(value, list) else ():
        key = _key(item, keys)
        if len(steps) == 1 and key not in mine:
            yield (*here, key)
        elif len(steps) > 1 and key in mine:
            yield from _beside(steps[1:], mine[key], item, (*here, key))


def _key(item: Mapping[str, Any], names: str) -> str:
    """As ``managedFields`` name an item of a list."""
    values = {name: item.get(name, _DEFAULTS.get(name)) for name in sorted(names.split(","))}
    text = msgspec.json.encode(values).decode()
    return f"k:{text.translate(_AS_GO)}"


def _owners(live: Mapping[str, Any], path: Path, manager: str) -> tuple[bool, tuple[str, ...]]:
    """Whether we applied this field or something in it, and who else has."""
    ours, others = False, set()
    for entry in _entries(live):
        fields: Any = entry.get("fieldsV1") or {}
        for key in path:
            fields = fields.get(key) if isinstance(fields, Mapping) else None
        if fields is None:
            continue
        if _is(entry, manager):
            ours = True
        else:
            others.add(str(entry.get("manager", "")))
    return ours, tuple(sorted(others))


def _without(fields: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Without this path, and without what is empty then: an empty member would own everything below it."""
    key, rest = path[0], path[1:]
    if key not in fields:
        return dict(fields)
    inner = _without(fields[key], rest) if rest else {}
    others = {name: value for name, value in fields.items() if name != key}
    return {**others, key: inner} if inner else others


def _is(entry: Mapping[str, Any], manager: str) -> bool:
    return (entry.get("manager"), entry.get("operation"), entry.get("subresource", "")) == (manager, "Apply", "")


def _entries(live: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list((live.get("metadata") or {}).get("managedFields") or ())


def _managed_by(live: Mapping[str, Any], entries: list[Mapping[str, Any]]) -> JsonPatch:
    return JsonPatch(
        (
            patches.test("/metadata/resourceVersion", (live.get("metadata") or {}).get("resourceVersion")),
            patches.replace("/metadata/managedFields", entries),
        )
    )


def adoption(live: Mapping[str, Any], *, manager: str, others: Collection[str] = KUBECTL) -> JsonPatch | None:
    """The patch that makes ``manager`` the owner of all fields of ``others``; None if there is nothing to take over.

    If ``manager`` has applied the object before, only the entries of the others are dropped: what it did not apply then
    is nobody's now, and stays. Entries of subresources (the status) are left alone. The patch fails if the object has
    changed since it was read.
    """
    entries = _entries(live)
    theirs = [each for each in entries if each.get("manager") in others and not each.get("subresource")]
    if not theirs:
        return None
    kept = [each for each in entries if each not in theirs]
    if not any(each.get("manager") == manager and each.get("operation") == "Apply" for each in kept):
        # Two entries of one manager and operation are not allowed, so the fields of all are put together.
        fields = _union([each.get("fieldsV1") or {} for each in theirs])
        kept.append({**theirs[-1], "manager": manager, "operation": "Apply", "fieldsV1": fields})
    return _managed_by(live, kept)


def _union(trees: list[Mapping[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for tree in trees for name in tree)
    return {name: _union([tree[name] for tree in trees if name in tree]) for name in names}
