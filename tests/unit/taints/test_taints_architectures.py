"""The set A of a pod: what its images, its operating system, its constraints and the configuration leave."""

from typing import Any

import pytest
from placement_cases import APP, SIDE, answers, arch, failure, index, neutral, os_is, pod, requirement, term
from taint_cases import admitted, settings

from polyarch.oci.inspection import Entry, Inspection, SkippedEntry
from polyarch.platforms import ASSUMED_ARCHITECTURES, Platform
from polyarch.taints.decision import TolerationLookupProgress

BOTH = index(APP, "amd64", "arm64")
MIXED = index(APP, "linux/amd64", "linux/arm64", "windows/amd64", "windows/arm64")


def architectures(document: dict[str, Any], *given: Inspection, **more: Any) -> tuple[str, ...]:
    return admitted(document, answers(*given), **more).decision.architectures


@pytest.mark.req("TN-031")
def test_architectures_common_to_all_images() -> None:
    side = index(SIDE, "arm64", "s390x")
    assert architectures(pod(APP, SIDE), BOTH, side) == ("arm64",)
    assert architectures(pod(SIDE, APP), BOTH, side) == ("arm64",)
    assert architectures(pod(APP, SIDE, APP, SIDE), BOTH, side) == ("arm64",)


@pytest.mark.req("TN-031", "TN-094")
def test_init_containers_sidecars_and_image_volumes_count() -> None:
    side = index(SIDE, "amd64", "s390x")
    init = pod(APP, initContainers=[{"name": "setup", "image": SIDE}])
    sidecar = pod(APP, initContainers=[{"name": "proxy", "image": SIDE, "restartPolicy": "Always"}])
    volume = pod(APP, volumes=[{"name": "data", "image": {"reference": SIDE}}])
    for document in (init, sidecar, volume):
        assert architectures(document, BOTH, side) == ("amd64",)


@pytest.mark.req("TN-094")
def test_an_intersection_of_three_is_that_of_all_three() -> None:
    """Each two of them have one in common, all three have none."""
    third = "quay.io/team/third:3"
    found = admitted(
        pod(APP, SIDE, third),
        answers(index(APP, "amd64", "arm64"), index(SIDE, "arm64", "s390x"), index(third, "amd64", "s390x")),
    )
    assert found.told == ("NoCommonArchitecture", "unchanged", ())
    assert found.operations == ()


@pytest.mark.req("TN-031")
def test_an_image_that_may_exist_on_nodes_only_is_neutral() -> None:
    document = pod(APP, SIDE)
    document["spec"]["containers"][1]["imagePullPolicy"] = "Never"
    found = admitted(document, answers(BOTH, failure(SIDE, "not-found", 404)))
    assert found.told == ("Images", "tolerated", ("amd64", "arm64"))


@pytest.mark.req("PL-210", "PL-211", "PL-212", "PL-407", "TN-031")
def test_freshness_is_judged_as_placement_judges_it() -> None:
    """The last good reading stands in while the registry fails, for six hours, and with
    ``imagePullPolicy: Always`` not before waiting is over."""
    failing = failure(APP, last_good=BOTH, last_good_age=3600.0)
    assert architectures(pod(), failing) == ("amd64", "arm64")
    assert admitted(pod(), answers(failing), stale_for=60.0).told[0] == "ArchitectureUnknown"
    always = pod(policy="Always")
    assert admitted(always, answers(failing)).told[0] == "ArchitectureUnknown"
    assert admitted(always, answers(failing), progress=TolerationLookupProgress.ENDED).told[0] == "Images"


@pytest.mark.req("TN-033")
def test_variants_os_versions_and_duplicates_collapse() -> None:
    variants = index(APP, "linux/arm/v6", "linux/arm/v7", "linux/amd64", "linux/amd64/v3")
    assert architectures(pod(), variants) == ("amd64", "arm")
    versions = index(APP)
    versions = Inspection(
        versions.reference,
        versions.status,
        kind="index",
        entries=tuple(
            Entry(Platform.of("windows", "amd64", os_version=each), f"sha256:{at:064}")
            for at, each in enumerate(("10.0.17763.1", "10.0.20348.2"))
        ),
    )
    assert architectures(pod(os={"name": "windows"}), versions) == ("amd64",)


@pytest.mark.req("TN-033", "TN-094")
def test_attestations_and_unknown_entries_never_become_tolerations() -> None:
    answer = index(APP, "linux/amd64", "unknown/unknown", "linux/unknown", "linux/")
    answer = Inspection(
        answer.reference,
        answer.status,
        kind="index",
        entries=answer.entries,
        skipped=(SkippedEntry("sha256:" + "0" * 64, "attestation"),),
    )
    found = admitted(pod(), answers(answer))
    assert found.decision.added == ("amd64",)
    assert [each["value"] for each in found.tolerations] == ["amd64"]


@pytest.mark.req("TN-031")
@pytest.mark.parametrize(
    ("parts", "more", "expected"),
    [
        ({}, {}, ("amd64", "arm64")),
        ({"os": {"name": "windows"}}, {}, ("amd64", "arm64")),
        ({"nodeSelector": {"kubernetes.io/arch": "arm64"}}, {}, ("arm64",)),
        ({"terms": [term(requirement("kubernetes.io/arch", "NotIn", "amd64"))]}, {}, ("arm64",)),
        ({"terms": [term(arch("arm64"), os_is("linux")), term(arch("amd64"), os_is("windows"))]}, {}, ("arm64",)),
        (
            {"terms": [term(arch("arm64"), os_is("linux")), term(arch("amd64"), os_is("windows"))]},
            {"os": "windows"},
            ("amd64",),
        ),
        ({"os": {"name": "windows"}, "nodeSelector": {"kubernetes.io/os": "linux"}}, {}, ()),
    ],
)
def test_operating_system_and_constraints(
    parts: dict[str, Any], more: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert architectures(pod(**parts), MIXED, **more) == expected


@pytest.mark.req("TN-031", "TN-094")
def test_linux_is_assumed_even_if_no_image_has_it() -> None:
    """A taint cannot say which system its node has: a pod for Windows that does not say so gets nothing."""
    windows = index(APP, "windows/amd64")
    found = admitted(pod(), answers(windows))
    assert found.told == ("NoCommonArchitecture", "unchanged", ())
    assert "linux" in found.decision.message
    assert "windows/amd64" in found.decision.message
    assert architectures(pod(nodeSelector={"kubernetes.io/os": "windows"}), windows) == ("amd64",)
    assert architectures(pod(), windows, os="windows") == ("amd64",)


@pytest.mark.req("TN-031")
def test_images_without_a_platform_get_the_given_architectures_else_the_usual_and_the_existing() -> None:
    plain = neutral(APP)
    assert architectures(pod(), plain) == ASSUMED_ARCHITECTURES
    assert architectures(pod(), plain, existing=frozenset({"mips"})) == tuple(sorted({*ASSUMED_ARCHITECTURES, "mips"}))
    given = settings(given=frozenset({"amd64", "riscv64"}))
    assert architectures(pod(), plain, using=given, existing=frozenset({"arm64"})) == ("amd64", "riscv64")
    selected = pod(nodeSelector={"kubernetes.io/arch": "arm64"})
    assert architectures(selected, plain) == ("arm64",)


@pytest.mark.req("TN-031")
def test_only_managed_architectures_count_and_a_pod_for_others_is_not_impossible() -> None:
    managed = settings(given=frozenset({"amd64", "arm64"}))
    found = admitted(pod(), answers(index(APP, "riscv64", "arm64")), managed)
    assert found.decision.architectures == ("arm64",)
    elsewhere = admitted(pod(), answers(index(APP, "riscv64")), settings(given=managed.given, on_no_common="deny"))
    assert elsewhere.told == ("Covered", "unchanged", ())


@pytest.mark.req("TN-031")
def test_nodes_that_run_foreign_programs() -> None:
    using = settings(compatibility=(("arm64", frozenset({"s390x"})),), given=frozenset({"amd64", "arm64"}))
    found = admitted(pod(), answers(index(APP, "s390x")), using)
    assert found.told == ("Compatibility", "tolerated", ("arm64",))
    assert found.document["metadata"]["annotations"]["polyarch.dev/tolerations-reason"] == "Compatibility"
    directly = admitted(pod(), answers(index(APP, "arm64", "amd64")), using)
    assert directly.told == ("Images", "tolerated", ("amd64", "arm64"))
    elsewhere = pod(nodeSelector={"kubernetes.io/arch": "s390x"})
    assert admitted(elsewhere, answers(index(APP, "s390x")), using).decision.added == ()
