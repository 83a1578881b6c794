"""The names of section 1 of the specification, compared with everything that uses one.

Objects, CRDs, manifests, alerts, dashboard and guide. The names are written out once more here, on purpose.
"""

import re
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from polyarch.operator.components import placement_objects
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import ClusterPodPlacementConfig
from polyarch.placement.crd import crds
from polyarch.placement.settings import SettingsTable

ROOT = Path(__file__).parents[3]
MONITORED = msgspec.convert(
    {"spec": {"plugins": {"execFormatErrorMonitor": {"enabled": True}}}}, ClusterPodPlacementConfig
)
PLACEMENT = {"pod-placement-controller", "pod-placement-web-hook"}
HANDLER, DAEMON = "enoexec-event-handler-controller", "enoexec-event-daemon"
WITH_SERVICE = {*PLACEMENT, HANDLER}
ALL = {*WITH_SERVICE, DAEMON}


def objects():
    policy = SettingsTable.of(None, None, operator_namespace="polyarch-system")
    settings = OperatorSettings()
    found = defaultdict(dict)
    for document in (
        *placement_objects.placement_operands(
            settings, ClusterCapabilities(monitoring=True), MONITORED, policy, owner=None
        ),
        placement_objects.pod_webhook(settings, MONITORED, policy, b"", owner=None),
        *placement_objects.resource_webhooks(settings, b"", owner=None),
    ):
        found[document["kind"]][document["metadata"]["name"]] = document
    return found


OBJECTS = objects()


@pytest.mark.req("PL-001", "PL-002")
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("Deployment", WITH_SERVICE),
        ("DaemonSet", {DAEMON}),
        ("Service", WITH_SERVICE),
        ("ServiceAccount", ALL),
        ("ClusterRole", {*WITH_SERVICE}),
        ("ClusterRoleBinding", {*WITH_SERVICE}),
        ("Role", ALL),
        ("RoleBinding", ALL),
        ("ServiceMonitor", WITH_SERVICE),
        ("PrometheusRule", {"multiarch-tuning-operator", "execformaterrormonitor", "execformaterrorsdetected"}),
        ("PodDisruptionBudget", WITH_SERVICE),
        ("NetworkPolicy", WITH_SERVICE),
        ("Secret", {"polyarch-image-readings"}),
        ("MutatingWebhookConfiguration", {"pod-placement-mutating-webhook-configuration", "polyarch-operator"}),
        ("ValidatingWebhookConfiguration", {"polyarch-operator"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_operator_makes_the_objects_that_existing_clusters_know(kind, expected):
    """With the monitor enabled. On OpenShift alone the daemon has a ClusterRole, too."""
    assert set(OBJECTS[kind]) == expected


@pytest.mark.req("PL-002")
def test_the_replicas_are_those_of_the_table():
    assert {name: each["spec"]["replicas"] for name, each in OBJECTS["Deployment"].items()} == {
        "pod-placement-controller": 2,
        "pod-placement-web-hook": 3,
        HANDLER: 2,
    }


@pytest.mark.req("PL-002")
def test_webhooks_have_their_names_and_paths():
    found = {
        webhook["name"]: webhook["clientConfig"]["service"]["path"]
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        for document in OBJECTS[kind].values()
        for webhook in document["webhooks"]
    }
    assert (
        found.items()
        >= {
            "pod-placement-scheduling-gate.multiarch.openshift.io": "/add-pod-scheduling-gate",
            "validate-clusterpodplacementconfig.multiarch.openshift.io": (
                "/validate-multiarch-openshift-io-v1beta1-clusterpodplacementconfig"
            ),
            "validate-podplacementconfig.multiarch.openshift.io": (
                "/validate-multiarch-openshift-io-v1beta1-podplacementconfig"
            ),
        }.items()
    )


@pytest.mark.req("PL-002")
def test_each_role_holds_the_lease_of_the_predecessor():
    """So that both never act at once."""
    leases = {
        role: {
            name
            for rule in OBJECTS["Role"][role]["rules"]
            if "leases" in rule["resources"] and "update" in rule["verbs"]
            for name in rule["resourceNames"]
        }
        for role in ("pod-placement-controller", HANDLER)
    }
    assert leases == {
        "pod-placement-controller": {"ppc-controllers-208d7abd.multiarch.openshift.io"},
        HANDLER: {"enoexecevent-controllers-208d7abd.multiarch.openshift.io"},
    }


@pytest.mark.req("PL-002")
def test_operands_and_their_pods_have_both_labels():
    for kind in ("Deployment", "DaemonSet"):
        for name, document in OBJECTS[kind].items():
            for found in (document["metadata"]["labels"], document["spec"]["template"]["metadata"]["labels"]):
                assert found["multiarch.openshift.io/operand"] == "pod-placement-controller"
                assert found["controller"] == name


@pytest.mark.req("PL-001", "PL-010", "PL-030", "PL-036", "PL-040")
def test_the_kinds_are_served_under_their_names():
    """Names, versions, scope; ``plp`` for those who type."""
    found = {}
    for document in crds():
        spec = document["spec"]
        stored = [version["name"] for version in spec["versions"] if version["storage"]]
        found[document["metadata"]["name"]] = (
            spec["names"]["kind"],
            spec["scope"],
            stored,
            spec["names"].get("shortNames", []),
        )
    assert found == {
        "clusterpodplacementconfigs.multiarch.openshift.io": (
            "ClusterPodPlacementConfig",
            "Cluster",
            ["v1beta1"],
            [],
        ),
        "podplacementconfigs.multiarch.openshift.io": ("PodPlacementConfig", "Namespaced", ["v1beta1"], []),
        "enoexecevents.multiarch.openshift.io": ("ENoExecEvent", "Namespaced", ["v1beta1"], []),
        "placementpolicies.polyarch.dev": ("PlacementPolicy", "Cluster", ["v1alpha1"], ["plp"]),
    }


KEYS = {
    value
    for name, value in vars(names).items()
    if name.isupper() and isinstance(value, str) and value.startswith("multiarch.openshift.io/")
} | set(names.ARCHITECTURE_LABELS.values())
VERSIONS = {"multiarch.openshift.io/v1alpha1", "multiarch.openshift.io/v1beta1"}
USED_IN = ("deploy", "docs/guide", "examples", "README.md")
KEY = re.compile(r"(?<![\w.])multiarch\.openshift\.io/[A-Za-z0-9-]+")
TEXTS = (".md", ".yaml", ".yml", ".json", ".tpl", ".txt")


def used():
    for place in USED_IN:
        path = ROOT / place
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix in TEXTS:
                for key in KEY.findall(file.read_text(encoding="utf-8")):
                    yield str(file.relative_to(ROOT)), key


@pytest.mark.req("PL-001")
def test_manifests_chart_bundle_examples_and_guide_use_only_names_of_the_contract():
    """A misspelt label in a runbook finds no pod at three in the morning."""
    found = set(used())
    assert len({key for _, key in found}) > 5, "the search finds the names that are certainly there"
    assert {(file, key) for file, key in found if key not in KEYS | VERSIONS} == set()
