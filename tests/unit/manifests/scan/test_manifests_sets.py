"""What images support, what a pod admits and what there is."""

import pytest
from linting import answers, deployment, required, scanned

from polyarch.manifests.scan import sets
from polyarch.manifests.scan.pod_specs import REQUIRED, PodSpec
from polyarch.platforms import ASSUMED_ARCHITECTURES, KNOWN_ARCHITECTURES, NodePlatform, PlatformSet

WEB = "quay.io/acme/web:2"
FIELDS = "[{matchFields: [{key: metadata.name, operator: In, values: [a]}]}]"
LINUX = set(ASSUMED_ARCHITECTURES)


def pod(text: str) -> PodSpec:
    (pod_spec,) = scanned(text).pod_specs
    return pod_spec


def supported(spec: str, images: dict[str, object]) -> sets.PodPlatforms:
    return sets.supported(pod(deployment(spec, images=tuple(images))), answers(images))


def linux(*architectures: str) -> PlatformSet:
    return PlatformSet.of(NodePlatform("linux", each) for each in architectures)


@pytest.mark.req("MF-001")
@pytest.mark.parametrize(
    ("images", "platforms", "exact"),
    [
        ({"a": ["linux/amd64", "linux/arm64"], "b": ["linux/arm64", "linux/s390x"]}, linux("arm64"), True),
        ({"a": ["linux/arm/v6", "linux/arm/v7", "darwin/arm64", "linux/s390x"]}, linux("arm", "s390x"), True),
        ({"a": ["linux/arm/v7"], "b": ["linux/arm64"]}, linux("arm64"), True),
        ({"a": ["linux/386"], "b": ["linux/amd64"]}, linux("amd64"), True),
        ({"a": ["wasi/wasm"], "b": ["linux/amd64"]}, linux("amd64"), True),
        ({"a": ["linux/amd64"], "b": {"neutral": True}}, linux("amd64"), True),
        ({"a": {"neutral": True}}, PlatformSet.EVERYTHING, True),
        ({"a": ["linux/amd64"], "b": {"error": "not-found"}}, linux("amd64"), False),
        ({"a": {"unknown": True}}, PlatformSet.EVERYTHING, False),
        ({"a": {"platforms": []}, "b": ["linux/amd64"]}, PlatformSet.of(()), True),
    ],
)
def test_what_all_images_support(images: dict[str, object], platforms: PlatformSet, exact: bool) -> None:
    found = supported("", images)
    assert found.platforms == platforms
    assert found.exact is exact
    assert found.neutral is (exact and platforms.is_everything)


@pytest.mark.req("MF-001")
def test_spec_os_name_restricts_what_is_supported() -> None:
    found = supported("os: {name: windows}", {"a": ["linux/amd64", "windows/amd64"]})
    assert found.platforms == PlatformSet.of([NodePlatform("windows", "amd64")])
    assert found.unrestricted != found.platforms


@pytest.mark.req("MF-005")
def test_init_ephemeral_and_volume_images_count() -> None:
    """Of volumes only an index with a platform, since nodes can pull a single manifest whatever it is."""
    spec = """
initContainers:
- {name: i, image: init}
ephemeralContainers:
- {name: e, image: debug}
volumes:
- {name: v, image: {reference: index}}
- {name: w, image: {reference: single}}
- {name: x, image: {reference: empty}}
"""
    images = {
        "init": ["linux/amd64", "linux/arm64", "linux/s390x"],
        "debug": ["linux/amd64", "linux/arm64"],
        "index": ["linux/arm64", "linux/s390x"],
        "single": {"kind": "image", "platforms": ["linux/riscv64"]},
        "empty": {"platforms": []},
        "web": ["linux/arm64", "linux/amd64"],
    }
    found = sets.supported(pod(deployment(spec, images=("web",))), answers(images))
    assert found.platforms == linux("arm64")
    assert [image.use.role for image in found.images] == [
        "container",
        "init",
        "ephemeral",
        "volume",
        "volume",
        "volume",
    ]


@pytest.mark.req("MF-005")
@pytest.mark.parametrize("image", ['""', "$(IMAGE)", "web:${TAG}", "UPPER/case", "a b"])
def test_a_text_that_names_no_image_is_unknown(image: str) -> None:
    found = supported("", {WEB: ["linux/amd64"]})
    assert found.exact
    mixed = sets.supported(pod(deployment("", images=(WEB, image))), answers({WEB: ["linux/amd64"]}))
    assert not mixed.exact
    assert mixed.images[1].answer.problem
    assert mixed.platforms == linux("amd64")


@pytest.mark.req("MF-002", "MF-003")
@pytest.mark.parametrize(
    ("spec", "admitted"),
    [
        ("", LINUX),
        ("nodeSelector: {kubernetes.io/arch: arm64}", {"arm64"}),
        ("nodeSelector: {beta.kubernetes.io/arch: aarch64}", {"arm64"}),
        ("nodeSelector: {disk: ssd}", LINUX),
        (required("arch In arm64,AMD64"), {"arm64", "amd64"}),
        (required("arch NotIn x86_64"), LINUX - {"amd64"}),
        (required("arch Exists"), LINUX),
        (required("arch DoesNotExist"), set()),
        (required("arch Gt 3"), set()),
        (required("arch In"), set()),
        (required("disk In"), set()),
        (required("disk NotIn a; arch In arm64"), {"arm64"}),
        (required("arch In arm64,amd64; arch NotIn amd64"), {"arm64"}),
        (required("arch In arm64", "arch In s390x; disk Exists"), {"arm64", "s390x"}),
        (required("arch In arm64", ""), {"arm64"}),
        (required(""), set()),
        (required("arch In arm64") + "\nnodeSelector: {kubernetes.io/arch: amd64}", set()),
        (required("arch In arm64", "os In windows"), {"arm64", "windows"}),
        (
            f"affinity: {{nodeAffinity: {{{REQUIRED}: {{nodeSelectorTerms: {FIELDS}}}}}}}",
            LINUX,
        ),
        (
            f"affinity: {{nodeAffinity: {{{REQUIRED}: {{nodeSelectorTerms: [null]}}}}}}",
            set(),
        ),
    ],
)
def test_what_a_pod_admits(spec: str, admitted: set[str]) -> None:
    """MF-003 over the usual universe (MF-002); windows is written for windows/amd64."""
    pod_spec = pod(deployment(spec))
    of = sets.constraints(pod_spec)
    universe = sets.universe(PlatformSet.EVERYTHING, of)
    found = sets.admitted(of, universe)
    assert {each.architecture if each.os == "linux" else each.os for each in found} == admitted
    document = scanned(deployment(spec)).documents[0].value
    assert sets.admitted(sets.constraints_of(document["spec"]["template"]["spec"]), universe) == found


@pytest.mark.req("MF-002")
def test_the_universe() -> None:
    of = sets.constraints(pod(deployment(required("arch In riscv64,fantasy; os NotIn windows"))))
    usual = set(map(str, sets.universe(linux("mips64le"), of)))
    assert usual == {f"linux/{each}" for each in (*LINUX, "mips64le", "riscv64")} | {"windows/amd64"}
    assert set(map(str, sets.universe(PlatformSet.EVERYTHING, sets.UNCONSTRAINED, os_name="windows"))) == {
        "windows/amd64",
        *(f"linux/{each}" for each in LINUX),
    }
    explicit = [NodePlatform("linux", "amd64")]
    assert sets.universe(linux("arm64"), of, explicit=explicit) == frozenset(explicit)


@pytest.mark.req("MF-004")
@pytest.mark.parametrize(
    ("expression", "architecture", "system"),
    [
        ("arch In amd64", True, False),
        ("arch NotIn amd64", True, False),
        ("arch Exists", False, False),
        ("beta.kubernetes.io/os In linux", False, True),
        ("os DoesNotExist", False, True),
        ("disk In amd64", False, False),
    ],
)
def test_what_a_constraint_is(expression: str, architecture: bool, system: bool) -> None:
    pod_spec = pod(deployment(required(expression)))
    assert pod_spec.required is not None
    (clause,) = pod_spec.required.terms[0].expressions
    assert sets.is_architecture_constraint(clause) is architecture
    assert sets.is_os_constraint(clause) is system


@pytest.mark.req("MF-022")
@pytest.mark.parametrize(
    ("images", "conflict"),
    [
        ({"a": ["linux/amd64"], "b": ["linux/amd64"], "c": ["linux/arm64"]}, ["a", "c"]),
        ({"a": ["linux/amd64"], "b": {"platforms": []}}, ["b"]),
        (
            {
                "a": ["linux/amd64", "linux/arm64"],
                "b": ["linux/arm64", "linux/s390x"],
                "c": ["linux/amd64", "linux/s390x"],
            },
            ["a", "b", "c"],
        ),
    ],
)
def test_a_minimal_set_of_images_in_the_pods_order(images: dict[str, object], conflict: list[str]) -> None:
    assert [image.name for image in supported("", images).conflict] == conflict


@pytest.mark.req("MF-022")
def test_a_conflict_of_very_many_different_images_is_minimal_too() -> None:
    """Beyond what can be searched one image after the other is left out."""
    every = sorted(KNOWN_ARCHITECTURES - {"386", "arm", "wasm"})  # which other nodes run, too
    images: dict[str, object] = {
        f"i{index:02}": [f"linux/{other}" for other in every if other != each] for index, each in enumerate(every)
    }
    found = supported("", images)
    assert not found.platforms
    assert len(found.conflict) == len(every)
