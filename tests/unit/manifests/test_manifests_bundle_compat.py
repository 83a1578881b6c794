"""Compat mode: the results and words of operator-sdk's validator."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from bundling import ARCH, MANAGER, ONE, OPERAND, OS, PROXY, TWO, container, csv, in_terms, known, labels

from polyarch.manifests import operator_sdk
from polyarch.manifests.scan.sets import ImageInspections
from polyarch.oci.inspection import Inspection, InspectionWarning, Status
from polyarch.oci.reference import parse

SINGLE = {"platforms": ONE, "kind": "image"}
GONE = {"error": "not-found"}
# A pod whose affinity is what the image is, so that V5 is silent.
QUIET = {"containers": [container()], "affinity": in_terms({"os": ["linux"], "arch": ["amd64"]})}


def outputs(document: Mapping[str, Any], images: Mapping[str, Any], tool: str = "") -> list[operator_sdk.Output]:
    return list(operator_sdk.validate(document, known(document, images), container_tool=tool))


def details(document: Mapping[str, Any], images: Mapping[str, Any]) -> list[str]:
    return [each.detail for each in outputs(document, images)]


def warnings(document: Mapping[str, Any], images: Mapping[str, Any]) -> list[str]:
    return [each.detail for each in outputs(document, images) if each.level == "warning"]


def in_order(text: str, *fragments: str) -> None:
    """The fragments stand in the text one after the other."""
    at = 0
    for fragment in fragments:
        place = text.find(fragment, at)
        assert place >= 0, f"{fragment!r} is not in {text[at:]!r}"
        at = place + len(fragment)


def only(found: list[str], *fragments: str) -> str:
    """The one text that begins to match, with all fragments in order."""
    (text,) = [each for each in found if fragments[0] in each]
    in_order(text, *fragments)
    return text


# The rows of MF-077 ---------------------------------------------------------------------------------------------------


@pytest.mark.req("MF-077")
def test_V0a_no_bundle() -> None:
    """MF-077 V0a."""
    assert operator_sdk.no_bundle() == operator_sdk.Output("error", "bundle is nil", "BundleNotValid")
    assert operator_sdk.no_service_version() == operator_sdk.Output("error", "bundle csv is nil", "BundleNotValid")


@pytest.mark.req("MF-077")
def test_V0b_an_unknown_container_tool() -> None:
    """MF-077 V0b: nothing else is said then."""
    (output,) = outputs(csv(), {MANAGER: TWO}, "buildah")
    assert output.level == "error"
    in_order(output.detail, "invalid value (container-tools) for (buildah). One of: [docker, podman, none]")


@pytest.mark.req("MF-077")
@pytest.mark.parametrize("tool", ["", "docker", "podman", "none", "Docker"])
def test_V0b_a_known_container_tool(tool: str) -> None:
    """MF-077 V0b."""
    assert outputs(csv(QUIET), {MANAGER: ONE}, tool) == []


@pytest.mark.req("MF-077")
def test_V1_an_image_that_cannot_be_inspected() -> None:
    """MF-077 V1: the fragment, then our message."""
    found = outputs(csv(QUIET), {MANAGER: GONE})
    assert found[0].level == "warning"
    in_order(found[0].detail, f"unable to inspect the image ({MANAGER}) : ", "not-found")


@pytest.mark.req("MF-077")
def test_V2_an_image_lacks_a_labelled_pair() -> None:
    """MF-077 V2: an error for each pair, images sorted, one in two groups twice."""
    pod = {"containers": [container(), container("proxy", PROXY)]}
    document = csv(pod, labels=labels("amd64", "arm64"), related={"manager": MANAGER})
    found = [each for each in outputs(document, {MANAGER: ONE, PROXY: TWO}) if each.level == "error"]
    assert len(found) == 1
    in_order(
        found[0].detail,
        "not all images specified are providing the support described via the CSV labels.",
        f"(OS.architecture): (linux.arm64) was not found for the image(s) [{MANAGER} {MANAGER}]",
    )


@pytest.mark.req("MF-077")
def test_V2_is_a_product_of_systems_and_architectures() -> None:
    """MF-077 V2: errors come by pair, after the warnings; images of a pair are sorted."""
    document = csv(
        {"containers": [container(), container("proxy", PROXY)]}, labels=labels("s390x", "arm64", "os.windows")
    )
    found = outputs(document, {MANAGER: TWO, PROXY: ONE})
    levels = [each.level for each in found]
    assert levels == sorted(levels, reverse=True), "warnings first"
    errors = [each.detail for each in found if each.level == "error"]
    assert ["(windows.arm64)" in errors[0], "(windows.s390x)" in errors[1], len(errors)] == [True, True, 2]
    in_order(errors[0], f"[{MANAGER} {PROXY}]")


@pytest.mark.req("MF-077")
def test_V2_an_image_without_an_answer_lacks_nothing() -> None:
    """MF-077 V2."""
    found = outputs(csv(labels=labels("arm64")), {MANAGER: GONE})
    assert [each for each in found if each.level == "error"] == []


@pytest.mark.req("MF-076", "MF-077")
def test_V2_applies_the_defaults() -> None:
    """MF-077 V2: no label is linux.amd64, and a single manifest has no platform at all (MF-076)."""
    only(details(csv(), {MANAGER: SINGLE}), "not all images", "(linux.amd64)", f"[{MANAGER}]")


@pytest.mark.req("MF-077")
def test_V3a_architectures_without_a_label() -> None:
    """MF-077 V3a, with the literal <value>."""
    document = csv(labels=labels("amd64"))
    only(
        warnings(document, {MANAGER: ["linux/s390x", "linux/arm64", "linux/amd64"]}),
        'missing the label (operatorframework.io/arch.<value>) for the Arch(s): ["arm64" "s390x"].',
        f'your Operator manager image ["{MANAGER}"] provides this support',
    )


@pytest.mark.req("MF-077")
def test_V3a_amd64_alone_needs_no_label() -> None:
    """MF-077 V3a; with arm64 besides, both do."""
    assert not [each for each in warnings(csv(), {MANAGER: ONE}) if "missing the label" in each]
    only(warnings(csv(), {MANAGER: TWO}), "missing the label", '["amd64" "arm64"].')


@pytest.mark.req("MF-077")
def test_V3a_searches_names_as_texts_in_the_keys() -> None:
    """MF-077 V3a: arm stands in arm64."""
    document = csv(labels=labels("arm64"))
    assert not [each for each in warnings(document, {MANAGER: ["linux/arm", "linux/arm64"]}) if "Arch(s): " in each]


@pytest.mark.req("MF-077")
def test_V3a_leaves_out_error() -> None:
    """MF-077 V3a: but with an image without an answer amd64 is not alone any more."""
    only(warnings(csv(), {MANAGER: GONE}), "io/arch.<value>", 'Arch(s): ["amd64"].')


@pytest.mark.req("MF-077")
def test_V3b_systems_without_a_label() -> None:
    """MF-077 V3b."""
    found = warnings(csv(), {MANAGER: ["linux/amd64", "windows/amd64"]})
    only(found, 'missing the label (operatorframework.io/os.<value>) for the OS(s): ["linux" "windows"].')
    assert not [each for each in warnings(csv(), {MANAGER: ONE}) if "OS(s)" in each], "linux alone needs none"


@pytest.mark.req("MF-077")
@pytest.mark.parametrize("group", ["other", "related"])
def test_V4a_another_image_lacks_an_architecture(group: str) -> None:
    """MF-077 V4a."""
    pod = {"containers": [container(), *([container("x", OPERAND)] if group == "other" else [])]}
    document = csv(pod, related={"x": OPERAND} if group == "related" else {})
    only(
        warnings(document, {MANAGER: TWO, OPERAND: ONE}),
        f'check if the image {OPERAND} should not support ["arm64"].',
        "this CSV has labels for this Arch(s)",
    )


@pytest.mark.req("MF-077")
def test_V4b_another_image_lacks_a_system() -> None:
    """MF-077 V4b."""
    document = csv(related={"x": OPERAND})
    only(
        warnings(document, {MANAGER: ["linux/amd64", "windows/amd64"], OPERAND: ONE}),
        f'check if the image {OPERAND} should not support ["windows"].',
        "this CSV has labels for this OS(s)",
    )


@pytest.mark.req("MF-077")
def test_V4_leaves_out_images_and_values_without_an_answer() -> None:
    """MF-077 V4a, V4b: ``error`` is neither lacking nor lacked."""
    document = csv(related={"x": OPERAND})
    assert not [each for each in warnings(document, {MANAGER: TWO, OPERAND: GONE}) if "should not support" in each]
    assert not [each for each in warnings(document, {MANAGER: GONE, OPERAND: ONE}) if "should not support" in each]


@pytest.mark.req("MF-076", "MF-077")
def test_V4_a_single_manifest_lacks_everything() -> None:
    """MF-077 V4a, V4b with MF-076: a false alarm that scripts know."""
    found = warnings(csv(related={"x": OPERAND}), {MANAGER: ONE, OPERAND: SINGLE})
    assert sum(f"check if the image {OPERAND}" in each for each in found) == 2


@pytest.mark.req("MF-077")
def test_V5a_no_affinity_and_no_answer() -> None:
    """MF-077 V5a, then V5b with error/error as it is."""
    found = warnings(csv(), {MANAGER: GONE})
    only(found, f'missing a node affinity configuration for the image: "{MANAGER}". ')
    only(
        found,
        f'missing or invalid node affinity configuration for the image: "{MANAGER}".',
        'platforms are supported: ["error/error"]',
    )
    assert "missing a node affinity" in found[-2]


@pytest.mark.req("MF-077")
def test_V5b_no_affinity() -> None:
    """MF-077 V5b: platforms in the order of the image."""
    only(
        warnings(csv(), {MANAGER: ["linux/s390x", "linux/amd64"]}),
        f'missing or invalid node affinity configuration for the image: "{MANAGER}".',
        'platforms are supported: ["linux/s390x" "linux/amd64"]',
    )
    assert not [each for each in warnings(csv(), {MANAGER: ONE}) if "missing a node affinity" in each], "V5a is silent"


@pytest.mark.req("MF-076", "MF-077")
def test_V5b_a_term_without_a_system_says_nothing() -> None:
    """MF-077 V5b with MF-076: pairs need both."""
    pod = {"containers": [container()], "affinity": in_terms({"arch": ["amd64"]})}
    only(warnings(csv(pod), {MANAGER: ONE}), "missing or invalid node affinity")


@pytest.mark.req("MF-077")
def test_V5c_pairs_that_the_image_lacks() -> None:
    """MF-077 V5c: in the order of the affinity."""
    pod = {"containers": [container()], "affinity": in_terms({"os": ["linux"], "arch": ["s390x", "amd64", "arm64"]})}
    only(
        warnings(csv(pod), {MANAGER: ONE}),
        f'the CSV includes ["linux/s390x" "linux/arm64"] in the node affinity configuration for the image: "{MANAGER}"',
    )
    only(warnings(csv(QUIET), {MANAGER: GONE}), 'the CSV includes ["linux/amd64"]')


@pytest.mark.req("MF-077")
def test_V5d_platforms_without_a_pair() -> None:
    """MF-077 V5d."""
    only(
        warnings(csv(QUIET), {MANAGER: ["linux/amd64", "linux/s390x", "linux/arm64"]}),
        f'the image data indicates ["linux/s390x" "linux/arm64"] is supported for the image: "{MANAGER}"',
        "only specifies [",
        '"linux/amd64"]',
    )


@pytest.mark.req("MF-077")
def test_the_order_of_warnings() -> None:
    """V1, V3a, V3b, V4 of others and related, V5 of managers and others."""
    pod = {"containers": [container("proxy", PROXY), container()]}
    document = csv(pod, related={"gone": "quay.io/acme/gone:1", "x": OPERAND})
    found = warnings(
        document,
        {MANAGER: [*TWO, "windows/amd64"], PROXY: ONE, OPERAND: ONE, "quay.io/acme/gone:1": GONE},
    )
    begins = ["unable", "(operatorframework.io/arch.", "(operatorframework.io/os."]
    begins += [f"image {PROXY} should", f"image {PROXY} should", f"image {OPERAND} should", f"image {OPERAND} should"]
    begins += [f'"{MANAGER}"', f'"{PROXY}"']
    assert len(found) == len(begins)
    assert [begin for begin, text in zip(begins, found, strict=True) if begin not in text] == []


# What it reads -----------------------------------------------------------------------------------------------


@pytest.mark.req("MF-076")
def test_platforms_keep_duplicates_and_lose_variants() -> None:
    found = warnings(csv(), {MANAGER: ["linux/arm/v7", "linux/arm/v6", "linux/amd64"]})
    only(found, "missing or invalid", '["linux/arm" "linux/arm" "linux/amd64"]')


@pytest.mark.req("MF-076")
@pytest.mark.parametrize("answer", [SINGLE, {"kind": "artifact"}])
def test_what_is_no_index_has_no_platform(answer: Any) -> None:
    only(warnings(csv(), {MANAGER: answer}), "missing or invalid", "supported: []")


@pytest.mark.req("MF-076")
def test_a_nested_index_is_an_error() -> None:
    nested = Inspection(
        parse(MANAGER), Status.RESOLVED, "index", warnings=(InspectionWarning(operator_sdk.NESTED_INDEX, ""),)
    )
    found = [each.detail for each in operator_sdk.validate(csv(), ImageInspections({MANAGER: nested}))]
    only(found, f"unable to inspect the image ({MANAGER}) : ")
    only(found, "missing or invalid", '["error/error"]')


@pytest.mark.req("MF-076")
@pytest.mark.parametrize("image", ["Not A Reference", "${IMAGE}"])
def test_a_text_that_names_no_image_is_an_error(image: str) -> None:
    only(warnings(csv({"containers": [container(image=image)]}), {}), f"unable to inspect the image ({image}) : ")


@pytest.mark.req("MF-076")
def test_labels_contain_the_prefix_and_are_supported_exactly() -> None:
    """The name is the key with the prefix taken out, wherever it stands."""
    document = csv(QUIET, labels={f"x.{ARCH}amd64": "supported", f"{ARCH}arm64": "Supported", f"{OS}linux": "true"})
    only(details(document, {MANAGER: ONE}), "not all images", "(linux.x.amd64) was not found")


@pytest.mark.req("MF-076")
def test_only_containers_and_related_images_count() -> None:
    pod = {**QUIET, "initContainers": [container("init", PROXY)]}
    assert details(csv(pod), {MANAGER: ONE, PROXY: GONE}) == []


@pytest.mark.req("MF-076")
def test_without_a_container_manager_all_but_the_proxy_are_managers() -> None:
    pod = {"containers": [container("kube-rbac-proxy", PROXY), container("a"), container("b", OPERAND)]}
    found = warnings(csv(pod), {MANAGER: TWO, PROXY: TWO, OPERAND: TWO})
    only(found, "missing the label", f'image ["{MANAGER}" "{OPERAND}"] provides')


@pytest.mark.req("MF-076")
def test_a_later_deployment_overwrites_affinity_but_not_of_a_manager() -> None:
    """The affinity of an image is that of the last deployment before it became a manager's."""
    affinity = in_terms({"os": ["linux"], "arch": ["amd64"]})
    other = in_terms({"os": ["linux"], "arch": ["s390x"]})
    first = {"containers": [container(), container("x", OPERAND)], "affinity": affinity}
    second = {"containers": [container(), container("x", OPERAND)], "affinity": other}
    found = warnings(csv(first, second), {MANAGER: ONE, OPERAND: ONE})
    only(found, "the CSV includes", "s390x", f'"{OPERAND}"')


@pytest.mark.req("MF-076")
def test_the_last_in_of_a_term_counts() -> None:
    """Terms are added up, other operators ignored."""
    affinity = in_terms({"os": ["linux"], "arch": ["amd64"]}, {"os": ["linux"], "arch": ["arm64"]})
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    terms[0]["matchExpressions"].insert(0, {"key": "kubernetes.io/arch", "operator": "In", "values": ["s390x"]})
    terms[0]["matchExpressions"].append({"key": "kubernetes.io/arch", "operator": "NotIn", "values": ["amd64"]})
    found = warnings(csv({"containers": [container()], "affinity": affinity}), {MANAGER: TWO})
    assert not [each for each in found if "the CSV includes" in each or "the image data indicates" in each]


@pytest.mark.parametrize("spec", [None, {}, {"install": []}, {"install": {"spec": {"deployments": [None, {}]}}}])
def test_an_odd_service_version_is_no_crash(spec: Any) -> None:
    assert operator_sdk.validate({"kind": "ClusterServiceVersion", "spec": spec}, ImageInspections({})) == ()


# What it prints ----------------------------------------------------------------------------------------------


@pytest.mark.req("MF-078")
def test_lines_and_the_document() -> None:
    warning, error = operator_sdk.Output("warning", "w"), operator_sdk.Output("error", "e")
    assert operator_sdk.line(warning, "acme.v1") == "Warning: Value acme.v1: w"
    assert operator_sdk.line(error, "acme.v1") == "Error: Value acme.v1: e"
    assert operator_sdk.passed([warning])
    assert not operator_sdk.passed([warning, error])
    text = operator_sdk.json_alpha1([("warning", "Warning: Value acme.v1: w")], passed=True)
    assert text.startswith('{\n    "passed": true,\n    "outputs": [\n        {\n            "type": "warning"')
    assert json.loads(text) == {
        "passed": True,
        "outputs": [{"type": "warning", "message": "Warning: Value acme.v1: w"}],
    }
