"""What a ClusterServiceVersion promises and lists, against what its images are (MA201 to MA207, MA211)."""

from typing import Any

import pytest
import yaml
from bundling import (
    ARCH,
    CHILD,
    DIGEST,
    MANAGER,
    ONE,
    OPERAND,
    OS,
    PROXY,
    TWO,
    container,
    csv,
    dumped,
    in_terms,
    judged,
    known,
    labels,
    of,
    repaired,
)
from linting import answers, deployment, problems, scanned

from polyarch.manifests.finding import Severity
from polyarch.manifests.rules.engine import lint
from polyarch.manifests.rules.options import FixOptions, LintOptions
from polyarch.manifests.scan.sets import ImageInspections
from polyarch.oci.inspection import Inspection, InspectionWarning, SourceUsed, Status
from polyarch.oci.reference import parse

REMOVE = FixOptions(remove_labels=True)


def messages(found: Any, rule: str) -> list[str]:
    return [each.finding.message for each in of(found, rule)]


# MA201 ----------------------------------------------------------------------------------------------------------------


def test_MA201_a_label_that_an_image_does_not_keep() -> None:
    document = csv(labels=labels("amd64", "arm64"))
    (problem,) = of(judged(document, {MANAGER: ONE}), "MA201")
    assert problem.finding.severity is Severity.ERROR
    assert problem.finding.path.endswith("arch.arm64")
    assert problem.finding.message == (
        "ClusterServiceVersion acme.v1 has the label operatorframework.io/arch.arm64 and promises arm64, "
        "but quay.io/acme/manager:1 has only linux/amd64"
    )
    assert problem.finding.images == (MANAGER,)
    assert problem.finding.span.line == 7, "the label's own line"


@pytest.mark.req("MF-072")
def test_MA201_all_images_count_MF_072() -> None:
    pod = {"containers": [container()], "initContainers": [container("init", PROXY)]}
    document = csv(pod, labels=labels("amd64", "arm64"), related={"operand": OPERAND, "manager": MANAGER})
    (problem,) = of(judged(document, {MANAGER: TWO, PROXY: ONE, OPERAND: ["linux/arm64", "linux/amd64"]}), "MA201")
    assert problem.finding.images == (PROXY,)
    (problem,) = of(judged(document, {MANAGER: TWO, PROXY: TWO, OPERAND: ONE}), "MA201")
    assert problem.finding.images == (OPERAND,)


@pytest.mark.req("MF-072")
def test_MA201_no_label_promises_amd64_on_linux_MF_072() -> None:
    (problem,) = of(judged(csv(), {MANAGER: ["linux/arm64"]}), "MA201")
    assert "no label operatorframework.io/arch.*, which means amd64" in problem.finding.message
    (problem,) = of(judged(csv(), {MANAGER: ["windows/amd64"]}), "MA201")[1:]
    assert "promises linux" in problem.finding.message


@pytest.mark.req("MF-072")
def test_MA201_any_key_of_the_prefix_removes_the_default_MF_072() -> None:
    document = csv(labels={f"{ARCH}amd64": "false", f"{ARCH}arm64": "supported"})
    assert of(judged(document, {MANAGER: ["linux/arm64"]}), "MA201") == []


@pytest.mark.req("MF-072")
def test_MA201_has_no_product_of_systems_and_architectures_MF_072() -> None:
    document = csv(labels=labels("amd64", "arm64", "os.linux", "os.windows"))
    platforms = ["linux/amd64", "linux/arm64", "windows/amd64"]
    assert of(judged(document, {MANAGER: platforms}), "MA201") == []
    (problem,) = of(judged(document, {MANAGER: ["linux/amd64", "linux/arm64"]}), "MA201")
    assert problem.finding.path.endswith("os.windows")


@pytest.mark.req("MF-072")
@pytest.mark.parametrize(
    ("answer", "reported"), [({"unknown": True}, 1), ({"error": "not-found"}, 1), ({"neutral": True}, 0)]
)
def test_MA201_leaves_out_what_nobody_knows_MF_072(answer: Any, reported: int) -> None:
    document = csv(labels=labels("amd64", "arm64"), related={"operand": OPERAND})
    found = judged(document, {MANAGER: TWO, OPERAND: answer})
    assert of(found, "MA201") == []
    assert len(of(found, "MA001")) == reported


def test_MA201_removes_the_label_only_when_told_to() -> None:
    document = csv(labels=labels("amd64", "arm64"))
    (problem,) = of(judged(document, {MANAGER: ONE}), "MA201")
    assert problem.repair is not None
    assert problem.repair.note.startswith("--remove-labels")
    (problem,) = of(judged(document, {MANAGER: ONE}, fixes=REMOVE), "MA201")
    assert repaired(document, problem)["metadata"]["labels"] == labels("amd64")


def test_MA201_does_not_remove_the_last_label_if_the_default_would_lie() -> None:
    document = csv(labels=labels("arm64"))
    (problem,) = of(judged(document, {MANAGER: ["linux/s390x"]}, fixes=REMOVE), "MA201")
    assert problem.repair is not None
    assert not problem.repair.operations
    assert "would promise amd64" in problem.repair.note
    (problem,) = of(judged(document, {MANAGER: ONE}, fixes=REMOVE), "MA201")
    assert repaired(document, problem)["metadata"]["labels"] == {}


@pytest.mark.req("MF-053")
def test_labels_of_which_one_stands_twice_are_not_repaired_MF_053() -> None:
    """Which one counts is nobody's to guess."""
    text = yaml.safe_dump(csv(labels=labels("amd64", "arm64")))
    twice = text.replace("  labels:\n", f"  labels:\n    {ARCH}amd64: unsupported\n")
    (problem,) = of(lint(scanned(twice), answers({MANAGER: ONE}), LintOptions(fixes=REMOVE)), "MA201")
    assert problem.repair is not None
    assert problem.repair.note == f"the key {ARCH}amd64 is duplicated in its labels; remove one first"


# MA202 ----------------------------------------------------------------------------------------------------------------


def test_MA202_support_without_a_label() -> None:
    document = csv(labels=labels("amd64"))
    (problem,) = of(judged(document, {MANAGER: TWO}), "MA202")
    assert problem.finding.severity is Severity.WARNING
    assert "has no label for arm64" in problem.finding.message
    assert repaired(document, problem)["metadata"]["labels"] == labels("amd64", "arm64")


@pytest.mark.req("MF-073")
@pytest.mark.parametrize("metadata", [{}, {"labels": None}, {"labels": {}}, {"labels": {"team": "a"}}])
def test_MA202_adds_the_implicit_label_too_MF_073(metadata: dict[str, Any]) -> None:
    document = csv(**metadata)
    (problem,) = of(judged(document, {MANAGER: TWO}), "MA202")
    assert f"{ARCH}amd64, {ARCH}arm64" in problem.finding.hint
    expected = labels("amd64", "arm64") | (metadata.get("labels") or {})
    assert repaired(document, problem)["metadata"]["labels"] == expected


@pytest.mark.req("MF-073")
def test_MA202_is_silent_about_the_default_alone_MF_073() -> None:
    assert of(judged(csv(), {MANAGER: ONE}), "MA202") == []


@pytest.mark.req("MF-073")
def test_MA202_counts_what_every_image_has_on_a_labelled_system_MF_073() -> None:
    document = csv(labels=labels("amd64"), related={"operand": OPERAND, "manager": MANAGER})
    assert of(judged(document, {MANAGER: TWO, OPERAND: ONE}), "MA202") == []
    found = of(judged(document, {MANAGER: [*TWO, "windows/s390x"], OPERAND: [*TWO, "windows/s390x"]}), "MA202")
    assert [each.finding.message.split("no label for ")[1].split(",")[0] for each in found] == ["arm64"]


@pytest.mark.req("MF-073")
def test_MA202_does_the_same_for_systems_MF_073() -> None:
    document = csv(labels=labels("amd64"))
    (problem,) = of(judged(document, {MANAGER: ["linux/amd64", "windows/amd64"]}), "MA202")
    after = repaired(document, problem)["metadata"]["labels"]
    assert after == labels("amd64", "os.linux", "os.windows")


def test_MA202_writes_nothing_while_an_image_is_unknown() -> None:
    document = csv(labels=labels("amd64"), related={"operand": OPERAND, "manager": MANAGER})
    (problem,) = of(judged(document, {MANAGER: TWO, OPERAND: {"error": "timeout"}}), "MA202")
    assert "whose platforms are known" in problem.finding.message
    assert problem.repair is not None
    assert (problem.repair.operations, OPERAND in problem.repair.note) == ((), True)


def test_MA202_respects_a_label_that_says_no() -> None:
    assert of(judged(csv(labels=labels("amd64") | {f"{ARCH}arm64": "false"}), {MANAGER: TWO}), "MA202") == []


# MA203 ----------------------------------------------------------------------------------------------------------------


def test_MA203_an_alias_becomes_the_name() -> None:
    document = csv(labels={f"{ARCH}x86_64": "supported", f"{ARCH}arm64": "supported"})
    (problem,) = of(judged(document, {MANAGER: TWO}), "MA203")
    assert problem.finding.sub == "unknown"
    assert f"write {ARCH}amd64" in problem.finding.hint
    assert repaired(document, problem)["metadata"]["labels"] == labels("amd64", "arm64")


def test_MA203_an_alias_beside_the_name_goes() -> None:
    document = csv(labels={f"{ARCH}aarch64": "supported"} | labels("arm64", "amd64"))
    (problem,) = of(judged(document, {MANAGER: TWO}), "MA203")
    assert repaired(document, problem)["metadata"]["labels"] == labels("arm64", "amd64")


def test_MA203_two_aliases_become_one_name() -> None:
    document = csv(labels={f"{ARCH}x86_64": "supported", f"{ARCH}x86-64": "supported"})
    first, second = of(judged(document, {MANAGER: ONE}), "MA203", "unknown")
    assert list(repaired(document, first)["metadata"]["labels"]) == [f"{ARCH}amd64", f"{ARCH}x86-64"]
    assert list(repaired(document, second)["metadata"]["labels"]) == [f"{ARCH}x86_64"]


def test_MA203_a_name_nobody_knows_has_no_repair() -> None:
    document = csv(labels=labels("amd64", "amd46"))
    (problem,) = of(judged(document, {MANAGER: ONE}), "MA203")
    assert (problem.repair, "amd46 is no known architecture" in problem.finding.message) == (None, True)


@pytest.mark.parametrize(("value", "fixable"), [("Supported", True), ("true", False), ("", False)])
def test_MA203_a_value_other_than_supported(value: str, fixable: bool) -> None:
    document = csv(labels=labels("amd64") | {f"{OS}linux": "supported", f"{ARCH}arm64": value})
    (problem,) = of(judged(document, {MANAGER: TWO}), "MA203")
    assert (problem.finding.sub, problem.finding.fixable) == ("value", fixable)
    assert "counts as not supported" in problem.finding.message
    if fixable:
        assert repaired(document, problem)["metadata"]["labels"][f"{ARCH}arm64"] == "supported"


def test_MA203_hidden_where_nothing_is_supported() -> None:
    document = csv(labels={f"{ARCH}amd64": "no"})
    found = of(judged(document, {MANAGER: ONE}), "MA203")
    assert sorted(each.finding.sub for each in found) == ["hidden", "value"]
    (hidden,) = of(found, "MA203", "hidden")
    assert "on no cluster, not even on amd64" in hidden.finding.message


@pytest.mark.req("MF-074")
def test_MA203_ignores_keys_that_only_contain_the_prefix_MF_074() -> None:
    assert of(judged(csv(labels={f"x.{ARCH}zzz": "supported"}), {MANAGER: ONE}), "MA203") == []


# MA204 ----------------------------------------------------------------------------------------------------------------


def test_MA204_an_image_behind_the_manager() -> None:
    document = csv(labels=labels("amd64"), related={"operand": OPERAND, "manager": MANAGER})
    (problem,) = of(judged(document, {MANAGER: TWO, OPERAND: ONE}), "MA204")
    assert problem.finding.images == (OPERAND,)
    assert "could support arm64, as its manager does" in problem.finding.message
    assert problem.finding.platforms.missing == ("linux/arm64",)


def test_MA204_is_silent_about_what_is_labelled() -> None:
    document = csv(labels=labels("amd64", "arm64"), related={"operand": OPERAND, "manager": MANAGER})
    assert of(judged(document, {MANAGER: TWO, OPERAND: ONE}), "MA204") == [], "MA201 says it"


@pytest.mark.req("MF-073")
def test_MA204_without_a_container_manager_the_proxy_is_none_MF_073() -> None:
    pod = {"containers": [container("kube-rbac-proxy", PROXY), container("operator")]}
    document = csv(pod, labels=labels("amd64"))
    (problem,) = of(judged(document, {MANAGER: TWO, PROXY: ONE}), "MA204")
    assert problem.finding.images == (PROXY,)


@pytest.mark.req("MF-073")
def test_MA204_every_deployment_has_its_manager_MF_073() -> None:
    second = {"containers": [container("manager", OPERAND)]}
    document = csv({"containers": [container()]}, second, labels=labels("amd64"))
    assert of(judged(document, {MANAGER: TWO, OPERAND: ONE}), "MA204") == [], "the managers have amd64 in common"


# MA205 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "images", "base"),
    [
        ({}, TWO, "MA101"),
        ({"affinity": in_terms({"arch": ["amd64", "arm64"], "os": ["linux"]})}, ONE, "MA102"),
        ({"affinity": in_terms({"arch": ["amd64"], "os": ["linux"]})}, TWO, "MA103"),
        ({"affinity": in_terms({"arch": ["amd64", "arm64"]})}, TWO, "MA106"),
        ({"affinity": in_terms({"arch": ["amd64"], "os": ["linux"]}, {"zone": ["a"]})}, ONE, "MA107"),
        ({"nodeSelector": {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}}, TWO, "MA109"),
    ],
)
def test_MA205_wraps_the_rules_on_constraints(pod: dict[str, Any], images: list[str], base: str) -> None:
    found = judged(csv({**pod, "containers": [container()]}), {MANAGER: images})
    assert base in [each.finding.sub for each in of(found, "MA205")]
    assert of(found, base) == []
    assert all(each.finding.upstream == "V5" for each in of(found, "MA205"))


# MA206 ----------------------------------------------------------------------------------------------------------------


def variable(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}


def test_MA206_a_used_image_that_mirrors_do_not_copy() -> None:
    pod = {"containers": [container(env=[variable("RELATED_IMAGE_DATA_BASE", OPERAND)]), container("proxy", PROXY)]}
    document = csv(pod, related={"manager": MANAGER})
    found = of(judged(document, {MANAGER: ONE, PROXY: ONE, OPERAND: ONE}), "MA206")
    assert sorted(each.finding.images for each in found) == [(OPERAND,), (PROXY,)]
    assert {each.finding.sub for each in found} == {"missing"}
    assert repaired(document, found[0])["spec"]["relatedImages"] == [
        {"name": "manager", "image": MANAGER},
        {"name": "proxy", "image": PROXY},
        {"name": "data-base", "image": OPERAND},
    ]
    assert found[0].repair == found[1].repair, "one repair for all, so that names are unique"


def test_MA206_gives_entries_names_of_their_own() -> None:
    pod = {"containers": [container(), container("manager", PROXY)]}
    document = csv(pod, related={"manager": OPERAND})
    problem = of(judged(document, {MANAGER: ONE, PROXY: ONE, OPERAND: ONE}), "MA206", "missing")[0]
    names = [each["name"] for each in repaired(document, problem)["spec"]["relatedImages"]]
    assert names == ["manager", "manager-2", "manager-3"]


def test_MA206_needs_a_list() -> None:
    assert of(judged(csv(), {MANAGER: ONE}), "MA206") == []
    assert of(judged(csv(related={}), {MANAGER: ONE}), "MA206") == []


def test_MA206_knows_other_spellings_of_the_same_image() -> None:
    pod = {"containers": [container(image="nginx:1.27")]}
    document = csv(pod, related={"web": "docker.io/library/nginx:1.27"})
    assert of(judged(document, {"nginx:1.27": ONE}), "MA206") == []


def test_MA206_a_listed_image_that_nothing_uses() -> None:
    document = csv(related={"manager": MANAGER, "operand": OPERAND})
    (problem,) = of(judged(document, {MANAGER: ONE, OPERAND: ONE}), "MA206")
    assert (problem.finding.sub, problem.finding.severity) == ("stale", Severity.INFO)
    assert problem.finding.path == "/spec/relatedImages/1/image"


def test_MA206_an_argument_or_an_example_is_a_use() -> None:
    pod = {"containers": [container(args=[f"--operand={OPERAND}"])]}
    assert of(judged(csv(pod, related={"m": MANAGER, "o": OPERAND}), {}), "MA206") == []
    document = csv(related={"m": MANAGER, "o": OPERAND}, annotations={"alm-examples": f'[{{"image": "{OPERAND}"}}]'})
    assert of(judged(document, {}), "MA206") == []


# MA207 ----------------------------------------------------------------------------------------------------------------


def test_MA207_a_tag_is_pinned_everywhere_at_once() -> None:
    pod = {
        "containers": [
            container(env=[variable("RELATED_IMAGE_SELF", MANAGER)], args=[f"--self={MANAGER}", "--other=x"])
        ]
    }
    document = csv(pod, related={"manager": MANAGER})
    (problem,) = of(judged(document, {MANAGER: {"platforms": TWO, "digest": DIGEST}}), "MA207")
    assert (problem.finding.sub, problem.finding.severity) == ("tag", Severity.INFO)
    after = repaired(document, problem)
    pinned = f"quay.io/acme/manager@{DIGEST}"
    manager = after["spec"]["install"]["spec"]["deployments"][0]["spec"]["template"]["spec"]["containers"][0]
    assert (manager["image"], manager["env"][0]["value"], manager["args"]) == (
        pinned,
        pinned,
        [f"--self={pinned}", "--other=x"],
    )
    assert after["spec"]["relatedImages"] == [{"name": "manager", "image": pinned}]
    assert of(judged(after, {pinned: {"platforms": TWO}}), "MA206") == []


def test_MA207_keeps_the_port_of_the_registry() -> None:
    image = "registry.acme.test:5000/manager:1"
    document = csv({"containers": [container(image=image)]})
    (problem,) = of(judged(document, {image: {"platforms": TWO, "digest": DIGEST}}), "MA207")
    assert f"registry.acme.test:5000/manager@{DIGEST}" in problem.finding.hint


def test_MA207_without_a_digest_says_so() -> None:
    (problem,) = of(judged(csv(), {MANAGER: TWO}), "MA207")
    assert problem.repair is not None
    assert (problem.repair.operations, "digest" in problem.repair.note) == ((), True)


def test_MA207_a_digest_is_fine() -> None:
    image = f"quay.io/acme/manager@{DIGEST}"
    assert of(judged(csv({"containers": [container(image=image)]}), {image: TWO}), "MA207") == []


def test_MA207_the_digest_of_one_platform() -> None:
    image = f"quay.io/acme/manager:1@{CHILD}"
    document = csv({"containers": [container(image=image)]})
    index = known(
        csv(), {MANAGER: {"children": {"linux/amd64": CHILD, "linux/arm64": "sha256:" + "c" * 64}, "digest": DIGEST}}
    ).images[MANAGER]
    child = Inspection(parse(image), Status.RESOLVED, "image", digest=CHILD, entries=index.entries[:1])
    found = lint(scanned(dumped(document)), ImageInspections({image: child}, {image: index}))
    (problem,) = of(found, "MA207")
    assert (problem.finding.sub, problem.finding.severity) == ("child", Severity.WARNING)
    assert "one platform (linux/amd64)" in problem.finding.message
    containers = repaired(document, problem)["spec"]["install"]["spec"]["deployments"][0]["spec"]["template"]["spec"]
    assert containers["containers"][0]["image"] == f"quay.io/acme/manager@{DIGEST}"


# MA211 and the rules for images that no pod runs ----------------------------------------------------------------------


@pytest.mark.parametrize("related", [None, {"operand": OPERAND}])
def test_MA211_a_mirror_without_all_platforms(related: dict[str, str] | None) -> None:
    image = OPERAND if related else MANAGER
    incomplete = Inspection(
        parse(image),
        Status.RESOLVED,
        "index",
        warnings=(InspectionWarning("child-missing", f"{CHILD} is not there"),),
        source=SourceUsed("mirror.acme.test", mirror=True),
    )
    (problem,) = of(lint(scanned(dumped(csv(related=related))), ImageInspections({image: incomplete})), "MA211")
    assert problem.finding.severity is Severity.ERROR
    assert "mirror.acme.test lacks a part" in problem.finding.message
    assert CHILD in problem.finding.message


def test_MA211_holds_for_any_workload() -> None:
    incomplete = Inspection(
        parse("quay.io/acme/web:2"), Status.RESOLVED, "index", warnings=(InspectionWarning("child-missing", ""),)
    )
    found = lint(scanned(deployment("")), ImageInspections({"quay.io/acme/web:2": incomplete}))
    assert "quay.io lacks a part" in of(found, "MA211")[0].finding.message


@pytest.mark.req("MF-072")
def test_related_images_are_judged_as_those_of_pods_are_MF_072() -> None:
    document = csv(related={"operand": OPERAND, "manager": MANAGER})
    found = judged(document, {MANAGER: {"error": "not-found"}, OPERAND: {"error": "denied"}})
    assert [each.finding.sub for each in of(found, "MA001")].count("not-found") == 1, "once, though named twice"
    (denied,) = of(found, "MA001", "denied")
    assert denied.finding.path == "/spec/relatedImages/0/image"
    assert denied.finding.upstream == "V1"


def test_the_rules_of_bundles_are_silent_about_other_kinds() -> None:
    found = problems(deployment("nodeSelector: {}"), {"quay.io/acme/web:2": TWO})
    assert not [each for each in found if each.finding.rule.startswith("MA2")]
