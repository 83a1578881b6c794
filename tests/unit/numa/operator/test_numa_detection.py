"""Which platform a cluster is (NO-030)."""

import pytest
from numa_cluster import Json

from polyarch.operator.components.numa_facts import platform_of

VERSION: Json = {"kind": "ClusterVersion"}


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
def test_no_030_what_the_cluster_shows(version: Json | None, infrastructure: Json | None, platform: str) -> None:
    """NO-030: API groups that do not exist are not an error."""
    assert platform_of("auto", cluster_version=version, infrastructure=infrastructure) == platform


def test_no_030_the_flag_wins() -> None:
    """NO-030."""
    assert platform_of("kubernetes", cluster_version=VERSION, infrastructure=None) == "kubernetes"
    assert platform_of("hypershift", cluster_version=None, infrastructure=None) == "hypershift"
