"""What a pod requires of its node's platform (TN-031, by the rules of MF-003 with literal values)."""

from typing import Any

import msgspec
import pytest
from placement_cases import arch, os_is, pod, requirement, term, zone

from polyarch.images.constraints import constraints_of
from polyarch.objects import Pod
from polyarch.platforms import NodePlatform

pytestmark = pytest.mark.req("MF-003")

EACH = [NodePlatform(os, each) for os in ("linux", "windows") for each in ("amd64", "arm64")]
NAME = requirement("metadata.name", "In", "node-1")


def admitted(**parts: Any) -> list[str]:
    constraints = constraints_of(msgspec.convert(pod(**parts), Pod))
    return [str(each) for each in EACH if constraints.admits(each)]


ALL = ["linux/amd64", "linux/arm64", "windows/amd64", "windows/arm64"]


@pytest.mark.req("TN-031")
@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, ALL),
        ({"nodeSelector": {"kubernetes.io/arch": "arm64"}}, ["linux/arm64", "windows/arm64"]),
        ({"nodeSelector": {"beta.kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux"}}, ["linux/arm64"]),
        ({"nodeSelector": {"kubernetes.io/arch": "x86_64"}}, []),
        ({"nodeSelector": {"disk": "ssd"}}, ALL),
        ({"terms": [term(arch("amd64"), zone("a"))]}, ["linux/amd64", "windows/amd64"]),
        ({"terms": [term(arch("amd64"), os_is("windows")), term(arch("arm64"), os_is("linux"))]}, ALL[1:3]),
        ({"terms": [term(zone("a"))]}, ALL),
        ({"terms": [term(fields=[NAME])]}, ALL),
        ({"terms": [term(arch("amd64"), fields=[NAME])]}, ["linux/amd64", "windows/amd64"]),
        ({"terms": [term()]}, []),
        ({"terms": []}, []),
        ({"terms": [term(), term(arch("arm64"))]}, ["linux/arm64", "windows/arm64"]),
        ({"terms": [term(arch("amd64", "arm64"), arch("arm64"))]}, ["linux/arm64", "windows/arm64"]),
        ({"terms": [term(requirement("kubernetes.io/arch", "NotIn", "amd64"))]}, ["linux/arm64", "windows/arm64"]),
        ({"terms": [term(requirement("kubernetes.io/arch", "Exists"))]}, ALL),
        ({"terms": [term(requirement("kubernetes.io/arch", "DoesNotExist"))]}, []),
        ({"terms": [term(requirement("kubernetes.io/arch", "Gt", "5"))]}, []),
        ({"nodeSelector": {"kubernetes.io/os": "linux"}, "terms": [term(arch("arm64"))]}, ["linux/arm64"]),
    ],
)
def test_platforms_that_the_constraints_of_a_pod_admit(parts: dict[str, Any], expected: list[str]) -> None:
    assert admitted(**parts) == expected


@pytest.mark.req("TN-031")
def test_a_pod_that_the_api_server_will_refuse_is_judged_all_the_same() -> None:
    """A mutating webhook sees pods before they are checked."""
    assert admitted(terms=[term(requirement("kubernetes.io/arch", "Near", "amd64"))]) == ALL
