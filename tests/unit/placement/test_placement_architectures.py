"""What the images of a pod have in common, and for which operating system."""

from collections.abc import Sequence
from typing import Any

import pytest
from placement_cases import (
    APP,
    SIDE,
    admitted,
    answers,
    arch,
    failure,
    index,
    look,
    neutral,
    os_is,
    pod,
    required,
    settings,
    term,
    unknown,
    zone,
)

from polyarch.oci.inspection import Inspection
from polyarch.placement.decision import LookupProgress, PlacementDecision, Reason
from polyarch.placement.patch import AdmissionPath
from polyarch.placement.rules import decide

MIXED = ("linux/amd64", "linux/arm64", "windows/amd64")


def of(
    document: dict[str, Any],
    *inspections: Inspection,
    nodes: Sequence[str] = (),
    coming: Sequence[str] = (),
    runtimes: dict[str, str] | None = None,
    **changes: Any,
) -> PlacementDecision:
    case = look(document, using=settings(**changes), nodes=nodes, coming=coming, runtimes=runtimes)
    return decide(case, answers(*inspections))


@pytest.mark.req("PL-213")
def test_the_intersection_of_all_constraining_images() -> None:
    both = pod(APP, SIDE)
    decision = of(both, index(APP, "s390x", "amd64", "arm64"), index(SIDE, "arm64", "ppc64le", "amd64"))
    assert decision.reason is Reason.ARCHITECTURES_SET
    assert decision.architectures == ("amd64", "arm64")


@pytest.mark.req("PL-213")
def test_neutral_images_do_not_constrain() -> None:
    assert of(pod(APP, SIDE), index(APP, "arm64"), neutral(SIDE)).architectures == ("arm64",)
    assert of(pod(APP, SIDE), neutral(APP), neutral(SIDE)).reason is Reason.ALL_IMAGES_NEUTRAL


@pytest.mark.req("PL-214")
def test_values_are_sorted_by_byte_value() -> None:
    assert of(pod(), index(APP, "riscv64", "amd64", "386", "arm64")).architectures == (
        "386",
        "amd64",
        "arm64",
        "riscv64",
    )


@pytest.mark.req("PL-214", "PL-215")
@pytest.mark.parametrize(
    ("document", "platforms", "architectures", "written"),
    [
        (pod(os={"name": "windows"}), MIXED, ("amd64",), ""),
        (pod(os={"name": "linux"}, nodeSelector={"kubernetes.io/os": "windows"}), MIXED, ("amd64", "arm64"), ""),
        (pod(nodeSelector={"kubernetes.io/os": "windows"}), MIXED, ("amd64",), ""),
        (pod(nodeSelector={"beta.kubernetes.io/os": "windows"}), MIXED, ("amd64",), ""),
        (
            pod(nodeSelector={"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "windows"}),
            MIXED,
            ("amd64", "arm64"),
            "",
        ),
        (pod(terms=[term(os_is("windows")), term(os_is("windows"), zone("a")), {}]), MIXED, ("amd64",), ""),
        (pod(terms=[term(os_is("windows")), term(zone("a"))]), MIXED, ("amd64", "arm64"), "linux"),
        (pod(terms=[term(os_is("windows")), term(os_is("linux"))]), MIXED, ("amd64", "arm64"), ""),
        (pod(), ("windows/amd64", "windows/arm64"), ("amd64", "arm64"), "windows"),
        (pod(), ("linux/amd64", "linux/arm64"), ("amd64", "arm64"), ""),
        (pod(), MIXED, ("amd64", "arm64"), "linux"),
        (pod(), ("windows/amd64", "linux/s390x"), ("s390x",), "linux"),
    ],
    ids=[
        "1 spec.os.name",
        "1 before 2",
        "2 nodeSelector",
        "2 beta",
        "2 before beta",
        "3 every non-empty term",
        "3 not if one term is silent",
        "3 not if terms differ",
        "4 the only system",
        "4 linux alone needs no expression",
        "5 linux among several",
        "5 linux counts for the set too",
    ],
)
def test_the_steps_to_the_operating_system(
    document: dict[str, Any], platforms: tuple[str, ...], architectures: tuple[str, ...], written: str
) -> None:
    decision = of(document, index(APP, *platforms))
    assert decision.architectures == architectures
    assert decision.os == written


@pytest.mark.req("PL-215")
@pytest.mark.parametrize(
    ("constraint", "platforms", "written"),
    [
        ("auto", ("linux/amd64",), ""),
        ("auto", MIXED, "linux"),
        ("auto", ("windows/amd64",), "windows"),
        ("always", ("linux/amd64",), "linux"),
        ("always", ("windows/amd64",), "windows"),
        ("off", ("windows/amd64",), ""),
        ("off", MIXED, ""),
    ],
)
def test_os_constraint(constraint: Any, platforms: tuple[str, ...], written: str) -> None:
    assert of(pod(), index(APP, *platforms), os_constraint=constraint).os == written


@pytest.mark.req("PL-215")
@pytest.mark.parametrize(
    ("document", "platforms", "nodes", "assumed", "written"),
    [
        (pod(), ("linux/amd64",), ["linux/amd64", "linux/arm64"], (), ""),
        (pod(), ("linux/amd64",), ["linux/amd64", "windows/amd64"], (), "linux"),
        (pod(), ("linux/amd64",), ["windows/amd64"], (), "linux"),
        (pod(), ("linux/amd64",), ["linux/amd64"], ("windows",), "linux"),
        (pod(), ("windows/amd64",), ["windows/amd64"], (), "windows"),
        (pod(os={"name": "linux"}), ("linux/amd64",), ["windows/amd64"], (), "linux"),
        (pod(os={"name": "linux"}), ("linux/amd64",), ["linux/amd64"], (), ""),
        (pod(nodeSelector={"kubernetes.io/os": "linux"}), ("linux/amd64",), ["windows/amd64"], (), ""),
        (pod(terms=[term(os_is("linux"))]), ("linux/amd64",), ["windows/amd64"], (), ""),
    ],
    ids=[
        "linux alone",
        "an image of linux among nodes of windows",
        "no node of its system",
        "a pool of windows that may come",
        "windows is always said",
        "the scheduler does not look at spec.os",
        "spec.os among nodes of linux",
        "the nodeSelector says it",
        "the terms say it",
    ],
)
def test_the_system_is_written_where_nodes_have_another(
    document: dict[str, Any], platforms: tuple[str, ...], nodes: list[str], assumed: Any, written: str
) -> None:
    decision = of(document, index(APP, *platforms), nodes=nodes, assume_systems=assumed)
    assert decision.os == written


@pytest.mark.req("PL-218")
@pytest.mark.parametrize("mode", ["report", "narrow"])
def test_a_node_of_another_system_does_not_count_as_one_of_the_architecture(mode: Any) -> None:
    decision = of(pod(), index(APP, "linux/amd64"), nodes=["windows/amd64", "linux/arm64"], node_aware=mode)
    assert (decision.no_matching_node, decision.architectures, decision.os) == (True, ("amd64",), "linux")
    assert "no node of linux" in decision.message
    decision = of(pod(), index(APP, "windows/amd64"), nodes=["windows/amd64", "linux/arm64"], node_aware=mode)
    assert (decision.no_matching_node, decision.architectures) == (False, ("amd64",))


@pytest.mark.req("PL-215")
@pytest.mark.parametrize(
    ("platforms", "coming", "written"),
    [
        pytest.param(["linux/amd64"], ["windows/amd64"], "linux", id="a pool of windows at zero"),
        pytest.param(["linux/amd64"], ["windows/"], "linux", id="one that names no architecture"),
        pytest.param(["linux/amd64"], ["linux/arm64"], "", id="a pool of linux"),
        pytest.param(["windows/amd64"], ["windows/amd64"], "windows", id="an image of windows"),
        pytest.param(["linux/386"], ["windows/amd64"], "linux", id="an image of 32 bits"),
        pytest.param(["linux/arm/v7"], ["windows/arm64"], "linux", id="one of 32-bit ARM"),
    ],
)
def test_the_system_is_written_where_templates_may_make_nodes_of_another(platforms, coming, written) -> None:
    assert of(pod(), index(APP, *platforms), nodes=["linux/amd64"], coming=coming).os == written


@pytest.mark.req("PL-218")
@pytest.mark.parametrize(
    ("platforms", "nodes", "coming", "changes", "narrowed"),
    [
        pytest.param(["amd64", "arm64"], ["linux/amd64"], [], {}, ("amd64",), id="those that are there"),
        pytest.param(["amd64", "arm64"], ["linux/amd64"], ["linux/arm64"], {}, ("amd64", "arm64"), id="may come"),
        pytest.param(["amd64", "arm64"], ["linux/amd64"], ["linux/"], {}, ("amd64", "arm64"), id="may be any"),
        pytest.param(["amd64", "arm64"], ["linux/amd64"], ["windows/arm64"], {}, ("amd64",), id="another system"),
        pytest.param(
            ["linux/amd64", "windows/arm64"],
            ["linux/amd64", "linux/arm64"],
            [],
            {"os_constraint": "off"},
            ("amd64",),
            id="of no node's system, where systems are not constrained",
        ),
        pytest.param(
            ["linux/amd64", "windows/arm64"],
            ["linux/amd64", "windows/arm64"],
            [],
            {"os_constraint": "off"},
            ("amd64", "arm64"),
            id="each of its own system",
        ),
        pytest.param(
            ["windows/amd64", "linux/arm64"],
            [],
            [],
            {"os_constraint": "off", "assume_architectures": ("amd64",), "assume_systems": ("windows",)},
            ("amd64",),
            id="assumed of an assumed system",
        ),
    ],
)
def test_node_awareness_judges_platforms(platforms, nodes, coming, changes, narrowed) -> None:
    decision = of(pod(), index(APP, *platforms), nodes=nodes, coming=coming, node_aware="narrow", **changes)
    assert (decision.architectures, decision.no_matching_node) == (narrowed, False)


@pytest.mark.req("PL-218")
def test_a_pod_whose_system_no_node_has_matches_no_node() -> None:
    image = index(APP, "linux/amd64", "windows/arm64")
    nodes = ["linux/arm64", "windows/amd64"]
    assert of(pod(), image, nodes=nodes, node_aware="report", os_constraint="off").no_matching_node


CONTAINERD, CRI_O = "containerd://2.1.4", "cri-o://1.34.1"


@pytest.mark.req("PL-219")
@pytest.mark.parametrize(
    ("platforms", "runtimes", "architectures", "said"),
    [
        pytest.param(["386"], {"amd64": CONTAINERD}, ("386", "amd64"), "run the 386 programs of", id="containerd"),
        pytest.param(["386"], {"amd64": "docker://29.1.0"}, ("386", "amd64"), "run the 386", id="Docker"),
        pytest.param(["386"], {"amd64": CRI_O}, ("386",), "constrained to 386", id="CRI-O"),
        pytest.param(["386"], {"amd64": f"{CONTAINERD} {CRI_O}"}, ("386", "amd64"), "amd64 disagree", id="both"),
        pytest.param(["386"], None, ("386", "amd64"), "CRI-O does not choose", id="nobody knows"),
        pytest.param(["386"], {"arm64": CRI_O}, ("386", "amd64"), "run the 386 programs of", id="no node of amd64"),
        pytest.param(["386", "arm64"], {"amd64": CRI_O}, ("386", "arm64"), "", id="another one is left"),
        pytest.param(["arm/v7"], {"arm64": CONTAINERD}, ("arm", "arm64"), "32-bit mode", id="32-bit ARM, containerd"),
        pytest.param(["linux/arm/v7"], {"arm64": CRI_O}, ("arm",), "", id="32-bit ARM, CRI-O"),
        pytest.param(
            ["linux/arm/v7"], {"arm64": f"{CRI_O} {CONTAINERD}"}, ("arm", "arm64"), "arm64 disagree", id="ARM, both"
        ),
        pytest.param(["amd64", "arm64"], {"amd64": f"{CRI_O} {CONTAINERD}"}, ("amd64", "arm64"), "", id="no dispute"),
    ],
)
def test_the_runtimes_of_nodes_decide_what_they_take_from_an_index(platforms, runtimes, architectures, said) -> None:
    image = index(APP, *(each if each.startswith("linux") else f"linux/{each}" for each in platforms))
    decision = of(pod(), image, runtimes=runtimes)
    assert decision.architectures == architectures
    assert said in decision.message
    assert ("disagree" in decision.message) == ("disagree" in said)


@pytest.mark.req("PL-219")
def test_a_manifest_that_is_no_index_is_pulled_by_every_runtime() -> None:
    """Nor does anybody look at its variant: kaniko writes v8 into images of amd64."""
    for platform, architectures in (
        ("linux/386", ("386", "amd64")),
        ("linux/arm/v7", ("arm", "arm64")),
        ("linux/amd64/v8", ("amd64",)),
        ("linux/arm64/v1", ("arm64",)),
    ):
        image = index(APP, platform, kind="image")
        assert of(pod(), image, runtimes={"amd64": CRI_O, "arm64": CRI_O}).architectures == architectures


@pytest.mark.req("PL-219")
@pytest.mark.parametrize(
    ("platforms", "architectures"),
    [
        pytest.param(["linux/amd64/v3"], ("amd64",), id="nodes may be told to"),
        pytest.param(["linux/amd64/v8"], (), id="there are no such processors"),
        pytest.param(["linux/386/v3"], (), id="nor of 386"),
        pytest.param(["linux/arm/v9"], (), id="nor of 32-bit ARM"),
        pytest.param(["linux/amd64/v8", "linux/arm64"], ("arm64",), id="another entry is left"),
    ],
)
def test_an_entry_of_an_index_counts_if_some_runtime_may_take_it(platforms, architectures) -> None:
    assert of(pod(), index(APP, *platforms)).architectures == architectures


@pytest.mark.req("PL-219")
def test_images_that_no_runtime_of_the_nodes_takes_together_are_told_apart() -> None:
    images = (index(APP, "linux/386"), index(SIDE, "linux/amd64"))
    decision = of(pod(APP, SIDE), *images, runtimes={"amd64": CRI_O})
    assert decision.reason is Reason.NO_SUPPORTED_ARCHITECTURE
    assert "linux/386" in decision.message


@pytest.mark.req("PL-219")
@pytest.mark.parametrize(
    ("images", "architectures", "said"),
    [
        ([("linux/386",)], ("386", "amd64"), "run the 386 programs of"),
        ([("linux/386",), ("linux/amd64",)], ("amd64",), "run the 386 programs of"),
        ([("linux/386", "linux/amd64")], ("386", "amd64"), ""),
        ([("linux/386", "linux/arm64")], ("386", "amd64", "arm64"), "CRI-O does not choose them"),
        ([("linux/arm/v7",)], ("arm", "arm64"), "32-bit mode"),
        ([("linux/arm/v5",), ("linux/arm/v6", "linux/amd64")], ("arm", "arm64"), "32-bit mode"),
        ([("linux/arm/v7",), ("linux/arm64",)], ("arm64",), "32-bit mode"),
        ([("linux/arm/v7", "linux/amd64")], ("amd64", "arm"), ""),
        ([("linux/arm/v7", "linux/arm64")], ("arm", "arm64"), ""),
        ([("linux/arm/v7",), ("linux/amd64",)], (), ""),
        ([("linux/amd64/v3", "linux/arm64")], ("arm64",), ""),
        ([("linux/amd64/v3",)], ("amd64",), ""),
        ([("linux/amd64/v3", "linux/amd64")], ("amd64",), ""),
    ],
)
def test_what_nodes_run_of_other_architectures_counts(
    images: list[tuple[str, ...]], architectures: tuple[str, ...], said: str
) -> None:
    names_ = [APP, SIDE][: len(images)]
    known = answers(*(index(name, *platforms) for name, platforms in zip(names_, images, strict=True)))
    decision = decide(look(pod(*names_)), known)
    assert decision.architectures == architectures
    assert (said in decision.message) if said else ("; nodes of" not in decision.message)


@pytest.mark.req("PL-211")
def test_webassembly_restricts_nothing() -> None:
    """A shim runs it on nodes of every architecture; a container beside it still restricts the pod."""
    module = neutral(APP, "wasm")
    alone = decide(look(pod(APP)), answers(module))
    assert (alone.reason, alone.architectures) == (Reason.ALL_IMAGES_NEUTRAL, ())
    assert "needs a RuntimeClass" in alone.message
    beside = decide(look(pod(APP, SIDE)), answers(module, index(SIDE, "arm64")))
    assert (beside.reason, beside.architectures) == (Reason.ARCHITECTURES_SET, ("arm64",))


@pytest.mark.req("PL-211")
def test_an_image_of_webassembly_and_linux_counts_by_what_nodes_run() -> None:
    decision = decide(look(pod(APP)), answers(index(APP, "wasi/wasm", "linux/arm64")))
    assert decision.architectures == ("arm64",)


@pytest.mark.req("PL-215")
def test_always_writes_nothing_where_the_pod_names_its_system() -> None:
    assert of(pod(os={"name": "linux"}), index(APP, *MIXED), os_constraint="always").os == ""


@pytest.mark.req("PL-214")
def test_off_ignores_the_operating_system_altogether() -> None:
    apart = (index(APP, "linux/amd64", "linux/arm64"), index(SIDE, "windows/amd64"))
    assert of(pod(APP, SIDE), *apart, os_constraint="off").architectures == ("amd64",)
    assert of(pod(APP, SIDE), *apart).reason is Reason.NO_SUPPORTED_ARCHITECTURE


@pytest.mark.req("PL-215")
def test_the_os_expression_follows_the_architecture_and_is_left_out_where_a_term_has_its_own() -> None:
    document = pod(
        terms=[
            term(zone("a")),
            term({"key": "beta.kubernetes.io/os", "operator": "Exists"}),
            term(os_is("linux"), zone("b")),
            term(arch("arm64")),
        ]
    )
    after = required(admitted(document, answers(index(APP, *MIXED))).pod)
    assert after == [
        term(zone("a"), arch("amd64", "arm64"), os_is("linux")),
        term({"key": "beta.kubernetes.io/os", "operator": "Exists"}, arch("amd64", "arm64")),
        term(os_is("linux"), zone("b"), arch("amd64", "arm64")),
        term(arch("arm64")),
    ]


@pytest.mark.req("PL-216", "PL-401")
def test_an_index_with_nothing_to_run_is_no_supported_architecture_and_no_error() -> None:
    assert of(pod(), index(APP)).reason is Reason.NO_SUPPORTED_ARCHITECTURE
    assert of(pod(), index(APP, "darwin/arm64")).reason is Reason.NO_SUPPORTED_ARCHITECTURE


@pytest.mark.req("PL-216")
def test_no_architecture_for_the_system_that_the_pod_names() -> None:
    decision = of(pod(os={"name": "windows"}), index(APP, "linux/amd64"))
    assert decision.reason is Reason.NO_SUPPORTED_ARCHITECTURE
    assert "operating system" in decision.message


@pytest.mark.req("PL-217")
@pytest.mark.parametrize("other", [failure("quay.io/x:1"), unknown("quay.io/x:1"), None], ids=["error", "?", "pending"])
def test_a_conflict_is_final_whatever_is_still_unresolved(other: Inspection | None) -> None:
    known = answers(index(APP, "amd64"), index(SIDE, "arm64"), *([other] if other is not None else []))
    decision = decide(look(pod(APP, SIDE, "quay.io/x:1")), known)
    assert decision.reason is Reason.NO_SUPPORTED_ARCHITECTURE
    assert APP in decision.message
    assert SIDE in decision.message


@pytest.mark.req("PL-217")
def test_a_conflict_for_the_pods_own_system() -> None:
    decision = decide(look(pod(APP, SIDE, os={"name": "windows"})), answers(index(APP, "linux/amd64")))
    assert decision.reason is Reason.NO_SUPPORTED_ARCHITECTURE


class TestNodeAware:
    @pytest.mark.req("PL-218")
    @pytest.mark.parametrize(
        ("mode", "nodes", "assumed", "values", "told"),
        [
            ("off", ["s390x"], (), ("amd64", "arm64"), False),
            ("report", ["arm64"], (), ("amd64", "arm64"), False),
            ("report", ["s390x"], (), ("amd64", "arm64"), True),
            ("report", [], (), ("amd64", "arm64"), True),
            ("report", ["s390x"], ("arm64",), ("amd64", "arm64"), False),
            ("narrow", ["arm64", "s390x"], (), ("arm64",), False),
            ("narrow", ["s390x"], ("amd64",), ("amd64",), False),
            ("narrow", ["s390x"], (), ("amd64", "arm64"), True),
        ],
    )
    def test_what_nodes_there_are_narrows_or_is_told(
        self, mode: Any, nodes: list[str], assumed: tuple[str, ...], values: tuple[str, ...], told: bool
    ) -> None:
        using = settings(node_aware=mode, assume_architectures=assumed)
        result = admitted(pod(), answers(index(APP, "amd64", "arm64")), using=using, nodes=nodes)
        assert result.decision.no_matching_node is told
        assert result.admission.path is (AdmissionPath.GATED if told else AdmissionPath.INLINE)
        assert result.decision.architectures == values

    @pytest.mark.req("PL-218")
    def test_labels_follow_the_values_written(self) -> None:
        using = settings(node_aware="narrow")
        result = admitted(pod(), answers(index(APP, "amd64", "arm64")), using=using, nodes=["arm64"])
        assert "multiarch.openshift.io/single-arch" in result.labels
        assert "multiarch.openshift.io/amd64" not in result.labels

    @pytest.mark.req("PL-218")
    def test_a_fallback_is_narrowed_too(self) -> None:
        using = settings(node_aware="narrow", fallback_architectures=("amd64", "arm64"))
        decision = decide(look(pod(), using=using, nodes=["arm64"]), answers(failure(APP)), LookupProgress.ENDED)
        assert decision.architectures == ("arm64",)
