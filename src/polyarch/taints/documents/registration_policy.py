"""The MutatingAdmissionPolicy that taints nodes when they register (TN-027).

A node is created with its architecture as a label, and pods are scheduled to it as soon as it is ready: whoever taints
it afterwards may come too late. So the API server adds the taint in the request that creates the node, for the
architectures that are tainted by then, and the annotation by which it is ours. It says the same as ``decide_node`` does
of labels; what only the kubelet's report tells is corrected afterwards. Pure.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from polyarch.kube.resources import Resource
from polyarch.selectors import Requirement
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.names import (
    ARCH_KEY,
    CONTROL_PLANE_KEYS,
    DISABLED,
    MANAGED_TAINTS_ANNOTATION,
    OPT_OUT,
    OS_KEY,
    REGISTRATION_POLICY,
)

Document = dict[str, Any]

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
    """The policy and its binding. ``released``: architectures whose nodes are tainted by now (TN-025)."""
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
                "objectSelector": {"matchExpressions": _selected(settings)},
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
                {"name": "released-architecture", "expression": f"{_LABEL} in {json.dumps(architectures)}"},
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
        if label == _LABEL:
            try:
                return frozenset(msgspec.json.decode(architectures, type=list[str]))
            except msgspec.DecodeError:
                break
    return frozenset()


_LABEL: Final = f"object.metadata.labels[{json.dumps(ARCH_KEY)}]"
_RECORD: Final = json.dumps(MANAGED_TAINTS_ANNOTATION)


def _selected(settings: TaintSettings) -> list[Document]:
    """The nodes that are managed, by their labels (TN-021)."""
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
    taint = f"Object.spec.taints{{key: {key}, value: {_LABEL}, effect: {effect}}}"
    record = f'{key} + "=" + {_LABEL} + ":" + {effect}'
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
