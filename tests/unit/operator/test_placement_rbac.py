"""The objects of the roles: the smallest rights that work, and manifests that say the same."""

import msgspec
import pytest

from polyarch.kube import rbac as rights
from polyarch.kube.rbac import granting
from polyarch.operator.components import placement_objects
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import PlacementPolicy
from polyarch.placement.settings import SettingsTable

pytestmark = pytest.mark.req("PL-100")

EVERYTHING = placement_objects.OptionalFeatures(
    asks_for_nodes=True,
    openshift=True,
    sweeps=True,
    share_readings=True,
    global_pull_secret=("openshift-config", "pull-secret"),
)


def key(document):
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def by_account(documents):
    """(ServiceAccount, namespace of the role, access) of every right that is granted, whatever its role is called."""
    documents = list(documents)
    granted = {key(each): rights.grants(granting([each])) for each in documents if "rules" in each}
    return {
        (subject["name"], each["metadata"].get("namespace", ""), access)
        for each in documents
        if "roleRef" in each
        for subject in each["subjects"]
        for access in granted[each["roleRef"]["kind"], each["metadata"].get("namespace", ""), each["roleRef"]["name"]]
    }


def rules(documents):
    """(role, group, resource, verb, name) of every right that is granted."""
    return {
        (document["metadata"]["name"], document["kind"], group, resource, verb, name)
        for document in documents
        if document["kind"] in ("Role", "ClusterRole")
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


@pytest.mark.req("PL-421", "PL-550")
def test_secrets_are_read_by_name_and_never_enumerated():
    """List and watch only where a name stands beside them."""
    granted = rules(placement_objects.rbac(EVERYTHING))
    assert {verb for _, _, _, resource, verb, name in granted if resource == "secrets" and not name} == {"get"}
    assert {name for *_, resource, verb, name in granted if resource == "secrets" and verb == "list"} == {
        "pull-secret",
        names.READINGS_SECRET,
    }


@pytest.mark.req("PL-102", "PL-550")
def test_nobody_may_update_or_delete_pods_and_the_webhook_may_not_even_read_them():
    granted = rules(placement_objects.rbac(EVERYTHING))
    of_pods = {(role, verb) for role, _, _, resource, verb, _ in granted if resource == "pods"}
    assert of_pods == {(names.CONTROLLER, verb) for verb in ("get", "list", "watch", "patch")}
    assert not any("*" in right for right in granted)


@pytest.mark.req("PL-550", "PL-551")
@pytest.mark.parametrize(
    ("parts", "right"),
    [
        (placement_objects.OptionalFeatures(asks_for_nodes=True), (names.WEBHOOK, "", "list nodes")),
        (
            placement_objects.OptionalFeatures(openshift=True),
            (names.WEBHOOK, "", "watch imagedigestmirrorsets.config.openshift.io"),
        ),
        (
            placement_objects.OptionalFeatures(openshift=True),
            (names.CONTROLLER, "", "use securitycontextconstraints.security.openshift.io"),
        ),
        (placement_objects.OptionalFeatures(evicts=True), (names.CONTROLLER, "", "create pods/eviction")),
        (placement_objects.OptionalFeatures(sweeps=True), (names.CONTROLLER, "", "list nodes")),
        (
            placement_objects.OptionalFeatures(sweeps=True),
            (
                names.CONTROLLER,
                "",
                f"watch mutatingwebhookconfigurations.admissionregistration.k8s.io {names.WEBHOOK_CONFIGURATION}",
            ),
        ),
        (
            placement_objects.OptionalFeatures(sweeps=True),
            (names.CONTROLLER, "polyarch-system", f"watch deployments.apps {names.WEBHOOK}"),
        ),
        (
            placement_objects.OptionalFeatures(warm_up=("Deployment", "CronJob")),
            (names.CONTROLLER, "", "list deployments.apps"),
        ),
        (
            placement_objects.OptionalFeatures(warm_up=("Deployment", "CronJob")),
            (names.CONTROLLER, "", "watch cronjobs.batch"),
        ),
        (
            placement_objects.OptionalFeatures(share_readings=True),
            (names.WEBHOOK, "polyarch-system", "watch secrets polyarch-image-readings"),
        ),
        (
            placement_objects.OptionalFeatures(share_readings=True),
            (names.CONTROLLER, "polyarch-system", "patch secrets polyarch-image-readings"),
        ),
        (placement_objects.OptionalFeatures(reports=True), (names.CONTROLLER, "", "list jobs.batch")),
        (
            placement_objects.OptionalFeatures(reports=True),
            (names.CONTROLLER, "polyarch-system", "patch configmaps polyarch-report"),
        ),
        (
            placement_objects.OptionalFeatures(global_pull_secret=("infra", "pull")),
            (names.WEBHOOK, "infra", "watch secrets pull"),
        ),
    ],
    ids=[
        "nodes only if node-aware",
        "mirrors only on OpenShift",
        "constraints only on OpenShift",
        "eviction only if the sweep evicts",
        "nodes only if the sweep compares with them",
        "the webhook's registration by its name",
        "the webhook's Deployment by its name",
        "templates only if warmed up",
        "only the chosen kinds",
        "readings only if shared",
        "readings are written by the controller",
        "what a report is made of",
        "the report by its name",
        "the global pull secret by its name",
    ],
)
def test_rights_for_optional_parts_are_granted_only_with_them(parts, right):
    def told(parts):
        return {(account, where, str(access)) for account, where, access in by_account(placement_objects.rbac(parts))}

    assert right in told(parts)
    assert right not in told(placement_objects.OptionalFeatures())


@pytest.mark.req("PL-421")
def test_without_secret_access_no_pull_secret_of_a_pod_can_be_read():
    """``secretAccess: none`` removes the rule."""
    granted = by_account(
        placement_objects.rbac(
            placement_objects.OptionalFeatures(secret_access="none", global_pull_secret=("infra", "pull"))
        )
    )
    secrets = {(where, access.name) for _, where, access in granted if access.resource == "secrets"}
    assert secrets == {("infra", "pull")}


def policy(**spec):
    given = msgspec.convert({"spec": spec}, PlacementPolicy)
    return SettingsTable.of(given, None, operator_namespace="polyarch-system")


EVICTS_SOMEWHERE = {
    "name": "trial",
    "namespaceSelector": {"matchLabels": {"trial": "yes"}},
    "sweep": {"action": "evict"},
}


@pytest.mark.req("PL-550")
@pytest.mark.parametrize(
    ("table", "parts"),
    [
        (policy(), {"sweeps": True, "share_readings": True}),
        (policy(images={"shareReadings": False}), {"sweeps": True}),
        (policy(nodeAware={"mode": "report"}), {"sweeps": True, "share_readings": True}),
        (policy(osConstraint="off", nodeAware={"mode": "report"}), {"sweeps": True, "share_readings": True}),
        (policy(osConstraint="always"), {"sweeps": True, "share_readings": True, "asks_for_nodes": False}),
        (
            policy(sweep={"action": "evict"}),
            {"sweeps": True, "share_readings": True, "evicts": True},
        ),
        (
            policy(overrides=[EVICTS_SOMEWHERE]),
            {"sweeps": True, "share_readings": True, "evicts": True},
        ),
        (policy(warmUp={"kinds": ["CronJob"]}), {"sweeps": True, "share_readings": True}),
        (
            policy(warmUp={"enabled": True, "kinds": ["CronJob"]}),
            {"sweeps": True, "share_readings": True, "warm_up": ("CronJob",)},
        ),
        (policy(images={"secretAccess": "none"}), {"sweeps": True, "share_readings": True, "secret_access": "none"}),
        (policy(sweep={"action": "off"}), {"share_readings": True}),
        (policy(sweep={"scope": "all"}), {"share_readings": True, "sweeps": True}),
    ],
    ids=[
        "defaults",
        "unshared",
        "node-aware",
        "node-aware alone",
        "no need of nodes",
        "evicts",
        "evicts in an override",
        "cold",
        "warm",
        "no secrets",
        "no sweep",
        "all pods",
    ],
)
def test_rights_follow_the_policy(table, parts):
    """A rule is there only while a setting needs it."""
    assert placement_objects.OptionalFeatures.of(
        OperatorSettings(), ClusterCapabilities(), table
    ) == placement_objects.OptionalFeatures(**{"asks_for_nodes": True} | parts)


@pytest.mark.req("PL-423")
def test_the_global_pull_secret_is_the_one_given_or_openshifts():
    def found(settings, cluster):
        return placement_objects.OptionalFeatures.of(settings, cluster, policy()).global_pull_secret

    assert found(OperatorSettings(), ClusterCapabilities()) is None
    assert found(OperatorSettings(), ClusterCapabilities(openshift=True)) == ("openshift-config", "pull-secret")
    given = OperatorSettings(global_pull_secret=("infra", "pull"))
    assert found(given, ClusterCapabilities(openshift=True)) == ("infra", "pull")


@pytest.mark.req("PL-002", "PL-550")
def test_every_role_is_bound_to_its_own_account():
    for document in placement_objects.rbac(EVERYTHING):
        assert document["metadata"]["name"] in (names.WEBHOOK, names.CONTROLLER)
        if document["kind"].endswith("Binding"):
            name = document["metadata"]["name"]
            assert document["roleRef"]["name"] == name
            subject = {"kind": "ServiceAccount", "name": name, "namespace": "polyarch-system"}
            assert document["subjects"] == [subject]
