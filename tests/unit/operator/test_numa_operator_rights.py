"""What the operator holds for NUMA."""

import pytest

from polyarch.installation.settings import InstallationSettings
from polyarch.kube.rbac import Permission, granting, grants, missing
from polyarch.operator.components import numa_exporter_objects as exporters
from polyarch.operator.components.numa_exporter_objects import ExporterContext
from polyarch.operator.components.numa_operator_rbac import numa_permissions as for_numa
from polyarch.operator.components.numa_scheduler_objects import (
    BOUND_CLUSTER_ROLES,
    election_rules,
    extender_rules,
    kick_rules,
)
from polyarch.operator.components.operator_rbac import operator_permissions
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings

SETTINGS = OperatorSettings(namespace="home")


@pytest.mark.req("NO-120")
@pytest.mark.parametrize("openshift", [False, True])
def test_the_operator_holds_what_it_grants(openshift: bool) -> None:
    """Who creates a Role must have its rights: nothing is escalated."""
    held = for_numa(SETTINGS, ClusterCapabilities(openshift=openshift))
    documents = exporters.rbac_objects(ExporterContext(settings=SETTINGS))
    in_cluster = [each for each in documents if each["kind"] == "ClusterRole"]
    assert missing(held.cluster, grants((*granting(in_cluster), *extender_rules(preempts=True)))) == []
    at_home = [each for each in documents if each["kind"] == "Role"]
    granted = grants((*granting(at_home), *election_rules(), *kick_rules()))
    assert missing((*held.cluster, *held.namespaces["home"]), granted) == []


@pytest.mark.req("NO-120")
@pytest.mark.parametrize("openshift", [False, True])
def test_no_wildcard_no_escalation_and_three_roles_to_bind(openshift: bool) -> None:
    held = for_numa(SETTINGS, ClusterCapabilities(openshift=openshift))
    several = [*grants(held.cluster), *(each for rules in held.namespaces.values() for each in grants(rules))]
    assert not [each for each in several if "*" in (each.verb, each.group, each.resource) or each.verb == "escalate"]
    assert {each.name for each in several if each.verb == "bind"} == {
        *BOUND_CLUSTER_ROLES,
        "extension-apiserver-authentication-reader",
    }


@pytest.mark.req("NO-120")
def test_of_secrets_only_the_certificate_and_its_authority() -> None:
    held = for_numa(SETTINGS, ClusterCapabilities(openshift=True))
    assert not [each for each in grants(held.cluster) if each.resource == "secrets"]
    read = {each.name for each in grants(held.namespaces["home"]) if (each.resource, each.verb) == ("secrets", "get")}
    assert read == {"rte-metrics-service-cert", "polyarch-numa-ca"}


@pytest.mark.req("NO-120")
def test_openshift_s_objects_are_asked_for_on_openshift_alone() -> None:
    groups = {each.group for each in grants(for_numa(SETTINGS, ClusterCapabilities()).cluster)}
    assert not [each for each in groups if each.endswith("openshift.io") and not each.startswith("nodetopology")]
    on_openshift = grants(for_numa(SETTINGS, ClusterCapabilities(openshift=True)).cluster)
    assert Permission("get", "config.openshift.io", "clusterversions") in on_openshift


@pytest.mark.req("NO-120")
def test_whoever_has_no_numa_grants_nothing_for_it() -> None:
    settings = InstallationSettings().operator_settings("home")
    held = operator_permissions(settings, ClusterCapabilities())
    assert not [each for each in grants(held.cluster) if each.group == "nodetopology.openshift.io"]
    assert set(held.namespaces) == {"home"}
