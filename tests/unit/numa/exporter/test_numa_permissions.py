"""The rights of an exporter are those that its settings make it use."""

import pytest

from polyarch.kube.rbac import Permission, grants
from polyarch.numa.exporter.cluster import exporter_permissions
from polyarch.numa.exporter.settings import ExporterSettings, PublishSettings
from polyarch.numa.facts import HostSettings, ScanSettings

GROUP, PLURAL = "topology.node.k8s.io", "noderesourcetopologies"
TOPOLOGIES = {Permission(verb, GROUP, PLURAL) for verb in ("get", "list", "watch", "create", "update", "patch")}
NODE = {Permission(verb, "", "nodes") for verb in ("get", "list", "watch")}
FILE = HostSettings(kubelet_config="file")


@pytest.mark.req("NE-140")
@pytest.mark.parametrize(
    ("settings", "further"),
    [
        (ExporterSettings(host=FILE), NODE),
        (ExporterSettings(), NODE | {Permission("get", "", "nodes/configz")}),
        (
            ExporterSettings(host=FILE, scan=ScanSettings(exclude_terminal_pods=True)),
            NODE | {Permission("list", "", "pods"), Permission("watch", "", "pods")},
        ),
        (ExporterSettings(host=FILE, scan=ScanSettings(add_nrt_owner=False)), set()),
        (
            ExporterSettings(host=HostSettings(topology_manager_policy="none", topology_manager_scope="pod")),
            NODE,
        ),
        (
            ExporterSettings(host=HostSettings(topology_manager_policy="none")),
            NODE | {Permission("get", "", "nodes/configz")},
        ),
        (
            ExporterSettings(host=HostSettings(topology_manager_scope="pod")),
            NODE | {Permission("get", "", "nodes/configz")},
        ),
    ],
    ids=["file", "configz", "terminal pods", "without owner", "settings are told", "policy alone", "scope alone"],
)
def test_each_right_comes_with_the_option_that_uses_it(settings, further):
    assert set(grants(exporter_permissions(settings).cluster)) == TOPOLOGIES | further


@pytest.mark.req("NE-140")
def test_in_its_own_namespace_an_exporter_may_write_conditions_and_nothing_if_it_writes_none():
    assert set(grants(exporter_permissions(ExporterSettings()).namespace)) == {
        Permission("get", "", "pods"),
        Permission("patch", "", "pods/status"),
    }
    assert exporter_permissions(ExporterSettings(publish=PublishSettings(podreadiness=False))).namespace == ()
