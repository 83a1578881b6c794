"""Objects and settings for other parts of a cluster, which ``polyarch taint plan --emit`` prints. Pure.

The registration policy is also kept in the cluster, by the leader and by ``polyarch taint bootstrap``.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from polyarch.kube.resources import RUNTIME_CLASSES, Resource
from polyarch.selectors import Requirement
from polyarch.taints.names import (
    ARCH_KEY,
    CONTROL_PLANE_KEYS,
    DISABLED,
    MANAGED_TAINTS_ANNOTATION,
    OPT_OUT,
    OS_KEY,
    REGISTRATION_POLICY,
)
from polyarch.taints.settings import TaintSettings
from polyarch.tolerations import Toleration

Document = dict[str, Any]

# -- the MutatingAdmissionPolicy that taints nodes when they register --------------------------------------------------
# A node is created with its architecture as a label, and pods are scheduled to it as soon as it is ready: whoever
# taints it afterwards may come too late. So the API server adds the taint in the request that creates the node, for the
# architectures that are tainted by then, and the annotation by which it is ours. It says the same as ``decide_node``
# does of labels; what only the kubelet's report tells is corrected afterwards.

GROUP: Final = "admissionregistration.k8s.io"
VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
"""Versions that have had these kinds, the newest first (Kubernetes 1.36, 1.34, 1.32)."""


def policies(version: str) -> Resource:
    """The policies in this version."""
    return Resource(GROUP, version, "mutatingadmissionpolicies", "MutatingAdmissionPolicy", namespaced=False)


def bindings(version: str) -> Resource:
    """Their bindings."""
    return Resource(GROUP, version, "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", False)


def newest_served(served: Iterable[Resource]) -> str | None:
    """The newest version in which both kinds are among these resources; None: this API server has neither."""
    known = set(served)
    return next((each for each in VERSIONS if {policies(each), bindings(each)} <= known), None)


def registration_policy(settings: TaintSettings, released: Collection[str], *, version: str) -> tuple[Document, ...]:
    """The policy and its binding. ``released``: architectures whose nodes are tainted by now."""
    architectures = sorted(each for each in released if settings.is_tainted(each))
    policy = {
        "apiVersion": policies(version).api_version,
        "kind": policies(version).kind,
        "metadata": {"name": REGISTRATION_POLICY},
        "spec": {
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": {
                # All of it, defaults too: the API server compares this part as a whole.
                "matchPolicy": "Equivalent",
                "namespaceSelector": {},
                "objectSelector": {"matchExpressions": _managed_nodes(settings)},
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["nodes"],
                        "scope": "*",
                    }
                ],
            },
            "matchConditions": [
                {
                    "name": "released-architecture",
                    "expression": f"{_ARCHITECTURE_LABEL} in {json.dumps(architectures)}",
                },
                {"name": "no-such-taint", "expression": _untainted(settings)},
            ],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": _mutation(settings)}}],
        },
    }
    binding = {
        "apiVersion": bindings(version).api_version,
        "kind": bindings(version).kind,
        "metadata": {"name": REGISTRATION_POLICY},
        "spec": {"policyName": REGISTRATION_POLICY},
    }
    return policy, binding


def released_by(policy: Mapping[str, Any]) -> frozenset[str]:
    """The architectures whose nodes a policy of ours taints; none if somebody rewrote it."""
    for condition in policy.get("spec", {}).get("matchConditions") or ():
        label, _, architectures = str(condition.get("expression")).partition(" in ")
        if label == _ARCHITECTURE_LABEL:
            try:
                return frozenset(msgspec.json.decode(architectures, type=list[str]))
            except msgspec.DecodeError:
                break
    return frozenset()


_ARCHITECTURE_LABEL: Final = f"object.metadata.labels[{json.dumps(ARCH_KEY)}]"
_RECORD: Final = json.dumps(MANAGED_TAINTS_ANNOTATION)


def _managed_nodes(settings: TaintSettings) -> list[Document]:
    """The nodes that are managed, by their labels."""
    requirements = [Requirement(ARCH_KEY, "Exists"), Requirement(OPT_OUT, "NotIn", (DISABLED,))]
    if settings.operating_systems:
        requirements.append(Requirement(OS_KEY, "In", tuple(sorted(settings.operating_systems))))
    if settings.exclude_control_plane:
        requirements += [Requirement(key, "DoesNotExist") for key in CONTROL_PLANE_KEYS]
    if settings.node_selector is not None:
        requirements += settings.node_selector.requirements
    return [
        {"key": each.key, "operator": each.operator} | ({"values": list(each.values)} if each.values else {})
        for each in requirements
    ]


def _untainted(settings: TaintSettings) -> str:
    return f"!has(object.spec.taints) || !object.spec.taints.exists(each, each.key == {json.dumps(settings.key)})"


def _mutation(settings: TaintSettings) -> str:
    """CEL that makes a list of JSON patch operations: the taint, in a new list or at the end, and the record of it."""
    key, effect = json.dumps(settings.key), json.dumps(settings.effect)
    taint = f"Object.spec.taints{{key: {key}, value: {_ARCHITECTURE_LABEL}, effect: {effect}}}"
    record = f'{key} + "=" + {_ARCHITECTURE_LABEL} + ":" + {effect}'
    return (
        "[\n"
        "  has(object.spec.taints)\n"
        f'    ? JSONPatch{{op: "add", path: "/spec/taints/-", value: {taint}}}\n'
        f'    : JSONPatch{{op: "add", path: "/spec/taints", value: [{taint}]}},\n'
        "  has(object.metadata.annotations)\n"
        f'    ? JSONPatch{{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey({_RECORD}), '
        f"value: {record}}}\n"
        f'    : JSONPatch{{op: "add", path: "/metadata/annotations", value: {{{_RECORD}: {record}}}}}\n'
        "]"
    )


# -- ValidatingAdmissionPolicies that warn, and never refuse -----------------------------------------------------------
# They warn of pods that may run on any architecture, and of nodes that join without their taint: what slips past
# everything else, since the API server evaluates them itself, whether polyarch runs or not. Pods that still wait behind
# a scheduling gate are left out, since whoever gated them has not decided yet.

POLICIES: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
BINDINGS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
PODS_GUARD: Final = "polyarch-pods-without-architecture"
NODES_GUARD: Final = "polyarch-nodes-without-taint"

_UNGATED: Final = "!has(object.spec.schedulingGates) || size(object.spec.schedulingGates) == 0"
_UNBOUND: Final = "!has(object.spec.nodeName) || object.spec.nodeName == ''"
_SELECTS: Final = f"has(object.spec.nodeSelector) && '{ARCH_KEY}' in object.spec.nodeSelector"
_REQUIRED: Final = "object.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
_REQUIRES: Final = (
    "has(object.spec.affinity) && has(object.spec.affinity.nodeAffinity) && "
    f"has({_REQUIRED}) && {_REQUIRED}.nodeSelectorTerms.all(term, "
    f"has(term.matchExpressions) && term.matchExpressions.exists(each, each.key == '{ARCH_KEY}'))"
)


def guard_policies(settings: TaintSettings) -> tuple[Document, ...]:
    """Two policies, each with its binding."""
    pods = _warning_policy(
        PODS_GUARD,
        "pods",
        conditions={"not-gated": _UNGATED, "not-bound": _UNBOUND},
        expression=f"({_SELECTS}) || ({_REQUIRES})",
        message="'this pod names no architecture, so it may start where its images do not run; "
        f"constrain it by {ARCH_KEY}'",
    )
    key, effect = json.dumps(settings.key), json.dumps(settings.effect)
    tainted = json.dumps(sorted(settings.tainted))
    nodes = _warning_policy(
        NODES_GUARD,
        "nodes",
        conditions={
            "tainted-architecture": "has(object.metadata.labels) && "
            f"'{ARCH_KEY}' in object.metadata.labels && object.metadata.labels['{ARCH_KEY}'] in {tainted}"
        },
        expression="has(object.spec.taints) && object.spec.taints.exists(each, "
        f"each.key == {key} && each.effect == {effect} && has(each.value) && "
        f"each.value == object.metadata.labels['{ARCH_KEY}'])",
        message=f"'this node joins without the taint ' + {key} + '=' + object.metadata.labels['{ARCH_KEY}'] "
        f"+ ':' + {effect}",
    )
    return (*pods, *nodes)


def _warning_policy(
    name: str, plural: str, *, conditions: dict[str, str], expression: str, message: str
) -> tuple[Document, Document]:
    policy = {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Ignore",
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [plural]}
                ]
            },
            "matchConditions": [{"name": each, "expression": text} for each, text in conditions.items()],
            "validations": [{"expression": expression, "messageExpression": message}],
        },
    }
    binding = {
        "apiVersion": BINDINGS.api_version,
        "kind": BINDINGS.kind,
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Warn", "Audit"]},
    }
    return policy, binding


# -- flags of kubelets, where no policy can add the taint when a node joins --------------------------------------------


class KubeletFlag(msgspec.Struct, frozen=True):
    """For kubelets on nodes of one architecture."""

    architecture: str
    flag: str


def kubelet_flags(settings: TaintSettings, existing: Iterable[str]) -> tuple[KubeletFlag, ...]:
    """For the tainted architectures that are configured or that nodes have, sorted."""
    named = settings.tainted & (settings.given | set(existing))
    return tuple(
        KubeletFlag(architecture, f"--register-with-taints={settings.taint(architecture)}")
        for architecture in sorted(named)
    )


# -- RuntimeClasses, one per architecture: a pod that names it runs there, and tolerates the taint ---------------------
# For workloads whose images say nothing about where they belong, and for tools that may set ``runtimeClassName`` but no
# tolerations. The handler is the container runtime's own, which nobody can guess.


def runtime_classes(settings: TaintSettings, existing: Iterable[str], *, handler: str) -> tuple[dict[str, Any], ...]:
    """``arch-<a>`` for each managed architecture among those of ``existing`` nodes, sorted."""
    return tuple(
        {
            "apiVersion": RUNTIME_CLASSES.api_version,
            "kind": RUNTIME_CLASSES.kind,
            "metadata": {"name": f"arch-{architecture}"},
            "handler": handler,
            "scheduling": {
                "nodeSelector": {ARCH_KEY: architecture},
                "tolerations": [_toleration(settings.toleration(architecture))],
            },
        }
        for architecture in sorted(settings.managed.intersection(existing))
    )


def _toleration(toleration: Toleration) -> dict[str, str]:
    return {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
