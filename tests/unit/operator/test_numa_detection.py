"""Which platform a cluster is."""

import pytest
from numa_cluster import Json

from polyarch.operator.components.numa_facts import platform_of

VERSION: Json = {"kind": "ClusterVersion"}


@pytest.mark.req("NO-030")
@pytest.mark.parametrize(
    ("version", "infrastructure", "platform"),
    [
        (None, None, "kubernetes"),
        (VERSION, None, "openshift"),
        (VERSION, {}, "openshift"),
        (VERSION, {"status": {"controlPlaneTopology": "HighlyAvailable"}}, "openshift"),
        (VERSION, {"status": {"controlPlaneTopology": "External"}}, "hypershift"),
        (None, {"status": {"controlPlaneTopology": "External"}}, "kubernetes"),
    ],
)
def test_what_the_cluster_shows(version: Json | None, infrastructure: Json | None, platform: str) -> None:
    """API groups that do not exist are not an error."""
    assert platform_of("auto", cluster_version=version, infrastructure=infrastructure) == platform


@pytest.mark.req("NO-030")
def test_the_flag_wins() -> None:
    assert platform_of("kubernetes", cluster_version=VERSION, infrastructure=None) == "kubernetes"
    assert platform_of("hypershift", cluster_version=None, infrastructure=None) == "hypershift"
