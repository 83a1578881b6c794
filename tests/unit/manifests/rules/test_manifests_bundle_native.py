"""Native mode: the rules over a whole bundle (MA208, MA209)."""

from typing import Any

import pytest
from bundling import (
    MANAGER,
    ONE,
    OPERAND,
    PROXY,
    TWO,
    bundle,
    container,
    csv,
    dumped,
    in_terms,
    judged,
    known,
    labels,
    of,
)
from linting import answers, scanned

from polyarch.manifests import operator_sdk
from polyarch.manifests.bundle import promised_architectures
from polyarch.manifests.rules import bundle_run
from polyarch.manifests.rules.bundles import BundleImageAnswer
from polyarch.manifests.rules.catalogue import RULES
from polyarch.oci.inspection import Inspection
from polyarch.oci.reference import parse

pytestmark = pytest.mark.req("MF-072", "MF-094")

SHIPPED = "quay.io/acme/bundle:1"


def rules(document: dict[str, Any], images: dict[str, Any]) -> set[str]:
    return {each.finding.rule for each in judged(document, images)}


def shipped(answer: Any) -> BundleImageAnswer:
    found = answers({SHIPPED: answer}).images[SHIPPED]
    return BundleImageAnswer(SHIPPED, found)


# Where native and compat differ on purpose -------------------------------------------------------------------

EXACT = in_terms({"arch": ["amd64"], "os": ["linux"]})


@pytest.mark.req("MF-074")
def test_MF_074_a_single_manifest_has_the_platform_of_its_config() -> None:
    document = csv({"containers": [container()], "affinity": EXACT}, labels=labels("amd64"))
    single = {MANAGER: {"platforms": ONE, "kind": "image"}}
    assert rules(document, single) == {"MA207"}
    assert any(each.level == "error" for each in operator_sdk.validate(document, known(document, single)))


@pytest.mark.req("MF-074")
def test_MF_074_an_image_without_an_answer_is_one_MA001_and_nothing_else() -> None:
    document = csv(labels=labels("amd64"), related={"manager": MANAGER})
    found = judged(document, {MANAGER: {"error": "not-found"}})
    assert [each.finding.rule for each in found if each.finding.rule != "MA207"] == ["MA001"]
    assert len(operator_sdk.validate(document, known(document, {MANAGER: {"error": "not-found"}}))) > 1


@pytest.mark.req("MF-074")
def test_MF_074_labels_are_compared_whole() -> None:
    document = csv(labels=labels("arm64"))
    (problem,) = of(judged(document, {MANAGER: ["linux/arm", "linux/arm64"]}), "MA202")
    assert "has no label for arm," in problem.finding.message


@pytest.mark.req("MF-074")
@pytest.mark.parametrize(
    "affinity",
    [
        {"nodeSelector": {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}},
        {"affinity": in_terms({"arch": ["amd64", "arm64"], "os": ["linux"], "kubernetes.io/arch": ["amd64"]})},
    ],
)
def test_MF_074_node_selectors_and_repeated_keys_are_honoured(affinity: dict[str, Any]) -> None:
    document = csv({"containers": [container()], **affinity}, labels=labels("amd64"))
    assert "MA205" not in rules(document, {MANAGER: ONE})


@pytest.mark.req("MF-074")
def test_MF_074_NotIn_is_honoured() -> None:
    affinity = in_terms({"os": ["linux"], "arch": ["amd64", "arm64"]})
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    terms[0]["matchExpressions"].append({"key": "kubernetes.io/arch", "operator": "NotIn", "values": ["arm64"]})
    document = csv({"containers": [container()], "affinity": affinity}, labels=labels("amd64"))
    assert "MA205" not in rules(document, {MANAGER: ONE})


@pytest.mark.req("MF-074")
def test_MF_074_init_containers_and_every_deployment_count() -> None:
    pod = {"containers": [container()], "initContainers": [container("init", PROXY)]}
    both = in_terms({"os": ["linux"], "arch": ["amd64", "arm64"]})
    found = of(judged(csv({**pod, "affinity": both}), {MANAGER: TWO, PROXY: ONE}), "MA205", "MA102")
    assert len(found) == 1
    second = {"containers": [container("x", OPERAND)], "affinity": both}
    document = csv({"containers": [container()], "affinity": EXACT}, second)
    (problem,) = of(judged(document, {MANAGER: ONE, OPERAND: ONE}), "MA205", "MA102")
    assert "/deployments/1/" in problem.finding.path


@pytest.mark.req("MF-075")
def test_MF_075_upstream_numbers() -> None:
    numbers = {rule.upstream: name for name, rule in RULES.items() if rule.upstream}
    assert numbers == {"V1": "MA001", "V2": "MA201", "V3": "MA202", "V4": "MA204", "V5": "MA205"}
    found = judged(csv(labels=labels("amd64", "s390x")), {MANAGER: TWO})
    assert {each.finding.rule: each.finding.upstream for each in found} == {
        "MA201": "V2",
        "MA202": "V3",
        "MA205": "V5",
        "MA207": "",
    }


# The whole bundle -----------------------------------------------------------------------------------------------------


@pytest.mark.req("MF-074")
def test_all_manifests_of_a_bundle_are_judged() -> None:
    job = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: job}\nspec: {containers: [{name: a, image: quay.io/acme/job:1}]}\n"
    )
    found = bundle(csv(related={"x": OPERAND}), job=job)
    assert bundle_run.images(found) == (MANAGER, OPERAND, "quay.io/acme/job:1")
    problems = bundle_run.validate(found, answers({MANAGER: ONE, OPERAND: ONE, "quay.io/acme/job:1": ["linux/arm64"]}))
    assert [each.finding.rule for each in problems if each.finding.file == "acme/manifests/job.yaml"] == ["MA101"]
    assert problems == tuple(sorted(problems, key=lambda each: each.finding.order)), "a fixed order"


def test_MA209_is_judged_against_the_bundle() -> None:
    document = csv({"containers": [container()], "affinity": EXACT})
    override = dumped(
        {
            "apiVersion": "operators.coreos.com/v1alpha1",
            "kind": "Subscription",
            "metadata": {"name": "acme"},
            "spec": {"config": {"affinity": {"nodeAffinity": {}}}},
        }
    )
    found = bundle_run.validate(
        bundle(document), answers({MANAGER: ONE}), subscriptions=[scanned(override, "sub.yaml")]
    )
    (problem,) = of(found, "MA209")
    assert (problem.finding.file, problem.finding.sub) == ("sub.yaml", "replaces-node-affinity")
    assert "deployment d0" in problem.finding.message
    other = csv()
    assert (
        of(bundle_run.validate(bundle(other), answers({MANAGER: ONE}), subscriptions=[scanned(override)]), "MA209")
        == []
    )


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        (["linux/amd64"], False),
        ({"neutral": True}, False),
        (["linux/amd64", "linux/arm64"], True),
        (["linux/arm64"], True),
        (["linux/amd64/v2", "linux/amd64"], True),
    ],
)
def test_MA208_a_bundle_image_is_for_one_platform(answer: Any, reported: bool) -> None:
    found = bundle_run.validate(bundle(csv()), answers({MANAGER: ONE}), bundle_image=shipped(answer))
    assert bool(of(found, "MA208")) == reported


def test_MA208_names_the_platforms() -> None:
    found = bundle_run.validate(bundle(csv()), answers({MANAGER: ONE}), bundle_image=shipped(TWO))
    assert "quay.io/acme/bundle:1 of ClusterServiceVersion acme.v1 has linux/amd64, linux/arm64" in (
        of(found, "MA208")[0].finding.message
    )


def test_the_architectures_that_builds_should_have() -> None:
    """MA302 compares builds with what is labelled."""
    assert promised_architectures(scanned(dumped(csv(labels=labels("s390x", "amd64"))))) == ("s390x", "amd64")
    assert promised_architectures(scanned(dumped(csv()))) == ()


def test_an_answer_for_the_bundle_image_may_be_an_error() -> None:
    """MA208 needs an answer."""
    gone = Inspection(parse(SHIPPED), "error")  # type: ignore[arg-type]
    found = bundle_run.validate(bundle(csv()), answers({MANAGER: ONE}), bundle_image=BundleImageAnswer(SHIPPED, gone))
    assert of(found, "MA208") == []


@pytest.mark.req("MF-032")
def test_what_somebody_gave_a_reason_for_does_not_count() -> None:
    document = csv(labels=labels("amd64"), annotations={"ignore-check.polyarch.dev/MA207": "pinned by the release"})
    found = bundle_run.validate(bundle(document), answers({MANAGER: ONE}))
    assert [each.finding.suppressed for each in of(found, "MA207")] == ["pinned by the release"]
