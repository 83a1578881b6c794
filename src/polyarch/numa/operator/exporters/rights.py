"""What exporters may do, and the policy that binds each to its own node (NO-058, NE-140, NE-141).

RBAC cannot tell one exporter from another: all have one ServiceAccount. The API server can, since the token of a pod
names its node and the pod itself, so a ValidatingAdmissionPolicy refuses writes of another node's object. Pure.
"""

from typing import Final

from polyarch.kube.rbac import Rule, binding, role, rule
from polyarch.kube.resources import NODES, PODS, SERVICE_ACCOUNTS, VALIDATING_POLICIES, VALIDATING_POLICY_BINDINGS
from polyarch.numa import names
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.operator.exporters.surroundings import Surroundings, described
from polyarch.operating import names as shared
from polyarch.operating.labels import Document, labels

NODE_IN_TOKEN: Final = "authentication.kubernetes.io/node-name"
POD_IN_TOKEN: Final = "authentication.kubernetes.io/pod-name"
TOKENS_NAME_NODES: Final = (1, 32)
"""Since this version every token of a pod names node and pod; before, a feature gate could keep them from it."""

OWN_PODS: Final = (rule(PODS, "get"), rule(PODS, "patch", subresource="status"))
"""In the exporters' namespace."""


def cluster_rules(surroundings: Surroundings) -> tuple[Rule, ...]:
    """Of the ClusterRole ``rte``. Nodes are always asked for by the name of the own one."""
    return (
        rule(TOPOLOGIES, "get", "list", "watch", "create", "update", "patch"),
        rule(NODES, "get", "list", "watch"),
        *((rule(NODES, "get", subresource="configz"),) if surroundings.asks_kubelets else ()),
    )


def documents(surroundings: Surroundings) -> list[Document]:
    """ServiceAccount, roles, bindings."""
    home, account = surroundings.namespace, names.EXPORTER
    marks, subjects = labels(shared.NUMA_EXPORTER), [(home, account)]
    return [
        {
            "apiVersion": SERVICE_ACCOUNTS.api_version,
            "kind": SERVICE_ACCOUNTS.kind,
            "metadata": described(account, namespace=home),
        },
        role(account, cluster_rules(surroundings), labels=marks),
        binding(account, subjects, labels=marks),
        role(account, OWN_PODS, namespace=home, labels=marks),
        binding(account, subjects, namespace=home, labels=marks),
    ]


def node_policy(surroundings: Surroundings) -> list[Document]:
    """The ValidatingAdmissionPolicy and its binding."""
    account = f"system:serviceaccount:{surroundings.namespace}:{names.EXPORTER}"
    strict = surroundings.version >= TOKENS_NAME_NODES
    subject = f'request.resource.resource == "{TOPOLOGIES.plural}"'
    return [
        {
            "apiVersion": VALIDATING_POLICIES.api_version,
            "kind": VALIDATING_POLICIES.kind,
            "metadata": described(names.EXPORTER_POLICY),
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {
                    # All of it, defaults too: the API server compares this part as a whole.
                    "matchPolicy": "Equivalent",
                    "namespaceSelector": {},
                    "objectSelector": {},
                    "resourceRules": [
                        {
                            "apiGroups": [TOPOLOGIES.group],
                            "apiVersions": ["*"],
                            "operations": ["CREATE", "UPDATE", "DELETE"],
                            "resources": [TOPOLOGIES.plural],
                            "scope": "*",
                        },
                        {
                            "apiGroups": [PODS.group],
                            "apiVersions": [PODS.version],
                            "operations": ["UPDATE"],
                            "resources": [f"{PODS.plural}/status"],
                            "scope": "*",
                        },
                    ],
                },
                "matchConditions": [
                    {"name": "exporter", "expression": f'request.userInfo.username == "{account}"'},
                ],
                "validations": [
                    {
                        "expression": f"!({subject}) || {_named_in_token(NODE_IN_TOKEN, strict=strict)}",
                        "message": "an exporter writes the NodeResourceTopology of its own node alone",
                        "reason": "Forbidden",
                    },
                    {
                        "expression": f"({subject}) || {_named_in_token(POD_IN_TOKEN, strict=strict)}",
                        "message": "an exporter writes the status of its own Pod alone",
                        "reason": "Forbidden",
                    },
                ],
            },
        },
        {
            "apiVersion": VALIDATING_POLICY_BINDINGS.api_version,
            "kind": VALIDATING_POLICY_BINDINGS.kind,
            "metadata": described(names.EXPORTER_POLICY),
            "spec": {"policyName": names.EXPORTER_POLICY, "validationActions": ["Deny"]},
        },
    ]


def _named_in_token(claim: str, *, strict: bool) -> str:
    """CEL: the object has the name that the token has. ``strict``: a token without one is refused."""
    extra = "request.userInfo.extra"
    has = f'has({extra}) && "{claim}" in {extra}'
    same = f'{extra}["{claim}"].exists(each, each == request.name)'
    return f"({has} && {same})" if strict else f"(!({has}) || {same})"
