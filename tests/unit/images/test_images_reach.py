"""The architectures of nodes that can run a pod, and its operating system."""

import pytest

from polyarch.images.constraints import reach, system_of
from polyarch.platforms import NodePlatform, PlatformSet


def platforms(*texts: str) -> PlatformSet:
    return PlatformSet.of(NodePlatform(*text.split("/")) for text in texts)


def anywhere(platform: NodePlatform) -> bool:
    return True


@pytest.mark.req("TN-031")
def test_the_platforms_of_the_images_are_restricted_to_one_operating_system() -> None:
    common = platforms("linux/amd64", "linux/arm64", "windows/amd64")
    assert reach(common, system="linux", admits=anywhere, neutral=()) == {"amd64", "arm64"}
    assert reach(common, system="windows", admits=anywhere, neutral=()) == {"amd64"}
    assert reach(platforms("windows/amd64"), system="linux", admits=anywhere, neutral={"amd64"}) == frozenset()


@pytest.mark.req("TN-031")
def test_images_that_fit_any_platform_get_the_neutral_architectures_within_the_constraints() -> None:
    found = reach(
        PlatformSet.EVERYTHING,
        system="linux",
        admits=lambda platform: platform.architecture != "s390x",
        neutral={"amd64", "s390x"},
    )
    assert found == {"amd64"}


@pytest.mark.req("TN-031")
def test_a_node_that_runs_a_foreign_architecture_counts_by_its_own_name_and_labels() -> None:
    compatibility = [("arm64", frozenset({"arm"})), ("amd64", frozenset({"386"}))]
    common = platforms("linux/arm")
    assert reach(common, system="linux", admits=anywhere, neutral=(), compatibility=compatibility) == {"arm", "arm64"}
    only_arm = lambda platform: platform.architecture == "arm"  # noqa: E731
    assert reach(common, system="linux", admits=only_arm, neutral=(), compatibility=compatibility) == {"arm"}


@pytest.mark.req("TN-031")
@pytest.mark.parametrize(
    ("stated", "admitted", "written", "expected"),
    [
        ("windows", {"linux"}, "linux", "windows"),
        ("", {"windows"}, "linux", "windows"),
        ("", {"linux"}, "windows", "linux"),
        ("", {"linux", "windows"}, "windows", "windows"),
        ("", {"linux", "windows"}, "", "linux"),
        ("", set(), "", "linux"),
    ],
)
def test_the_operating_system_of_a_pod(stated: str, admitted: set[str], written: str, expected: str) -> None:
    assert system_of(stated, lambda platform: platform.os in admitted, written=written) == expected
