"""ValidatingAdmissionPolicies that warn, and never refuse: of pods that may run on any architecture, and of nodes that
join without their taint (TN-054).

They show what slips past everything else: the API server evaluates them itself, whether polyarch runs or not. Pods that
still wait behind a scheduling gate are left out, since whoever gated them has not decided yet. Pure.
"""

import json
from typing import Any, Final

from polyarch.kube.resources import Resource
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.names import ARCH_KEY

Document = dict[str, Any]

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
    pods = _policy(
        PODS_GUARD,
        "pods",
        conditions={"not-gated": _UNGATED, "not-bound": _UNBOUND},
        expression=f"({_SELECTS}) || ({_REQUIRES})",
        message="'this pod names no architecture, so it may start where its images do not run; "
        f"constrain it by {ARCH_KEY}'",
    )
    key, effect = json.dumps(settings.key), json.dumps(settings.effect)
    tainted = json.dumps(sorted(settings.tainted))
    nodes = _policy(
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


def _policy(
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
