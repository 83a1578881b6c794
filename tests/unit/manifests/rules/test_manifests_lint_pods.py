"""The rules on pods beside the chain of five on their architectures."""

import json
from typing import Any

import pytest
from linting import answers, deployment, fixed, names, problems, repaired, required, rule, scanned, terms_of

from polyarch.manifests.finding import Severity
from polyarch.manifests.rules.engine import lint
from polyarch.manifests.rules.options import FixOptions, LintOptions, Selection, Taints
from polyarch.manifests.scan.pod_specs import PREFERRED
from polyarch.placement.crd import PREVIEW_MESSAGE
from polyarch.platforms import ASSUMED_ARCHITECTURES, NodePlatform

BETA = "{matchExpressions: [{key: beta.kubernetes.io/os, operator: In, values: [linux]}]}"
WEB = "quay.io/acme/web:2"
TWO = {WEB: ["linux/amd64", "linux/arm64"]}
FOUR = {WEB: [f"linux/{each}" for each in ASSUMED_ARCHITECTURES]}
BOTH = {WEB: [*FOUR[WEB], "windows/amd64"]}
WIDEN = FixOptions(widen=True)


def pod_of(document: Any) -> Any:
    return document["spec"]["template"]["spec"]


@pytest.mark.req("MF-052")
@pytest.mark.parametrize(
    ("spec", "terms"),
    [
        (required("arch In arm64; os In linux"), [["arch In arm64,amd64", "os In linux"]]),
        (
            required("arch In amd64; os In linux; zone In a", "arch In amd64; os In linux; zone In b"),
            [["arch In amd64,arm64", "os In linux", "zone In a"], ["arch In amd64,arm64", "os In linux", "zone In b"]],
        ),
        (required("arch NotIn arm64; os In linux"), None),
    ],
)
def test_platforms_left_out(spec: str, terms: list[list[str]] | None) -> None:
    """MA103: --widen adds to In lists; what NotIn excludes is meant."""
    images = TWO if terms else FOUR
    plain = rule(problems(deployment(spec), images), "MA103")
    assert plain.repair is not None
    assert plain.repair.note.startswith("--widen")
    assert plain.finding.platforms.missing
    problem = rule(problems(deployment(spec), images, fixes=WIDEN), "MA103")
    if terms is None:
        assert problem.repair is not None
        assert "another operator than In" in problem.repair.note
    else:
        assert terms_of(repaired(deployment(spec), problem)) == terms


def test_a_system_that_is_not_asked_for_is_not_left_out() -> None:
    """MA103 is about architectures: a linux pod loses nothing by an image's windows entry."""
    spec = required("arch In amd64,arm64; os In linux")
    assert problems(deployment(spec), {WEB: [*TWO[WEB], "windows/amd64"]}) == ()


@pytest.mark.parametrize(
    ("rest", "expected"),
    [("", {"zone": "a"}), ("  disk: ssd\n", {"zone": "a", "disk": "ssd"})],
)
def test_a_node_selector_becomes_affinity(rest: str, expected: dict[str, str]) -> None:
    """MA109 instead of MA103 where only the node selector names an architecture."""
    text = deployment(f"nodeSelector:\n  zone: a\n  kubernetes.io/arch: amd64\n{rest}")
    found = problems(text, TWO, fixes=WIDEN)
    assert names(found) == ["MA109", "MA106"] or names(found) == ["MA106", "MA109"]
    document = repaired(text, rule(found, "MA109"))
    assert pod_of(document)["nodeSelector"] == expected
    assert terms_of(document) == [["arch In amd64,arm64", "os In linux"]]


def test_a_node_selector_of_an_architecture_alone_goes_wholly() -> None:
    """MA109."""
    text = deployment("nodeSelector:\n  kubernetes.io/arch: amd64")
    assert "nodeSelector" not in pod_of(repaired(text, rule(problems(text, TWO, fixes=WIDEN), "MA109")))


@pytest.mark.parametrize(
    ("spec", "terms"),
    [
        (required("arch In amd64,arm64"), [["arch In amd64,arm64", "os In linux"]]),
        (
            required("arch In amd64,arm64; os In linux", "arch In amd64; disk Exists"),
            [["arch In amd64,arm64", "os In linux"], ["arch In amd64", "disk Exists", "os In linux"]],
        ),
        ("nodeSelector: {kubernetes.io/arch: amd64}", [["os In linux"]]),
    ],
)
def test_an_architecture_without_a_system(spec: str, terms: list[list[str]]) -> None:
    """MA106."""
    text = deployment(spec)
    problem = rule(problems(text, TWO), "MA106")
    assert problem.finding.severity is Severity.INFO
    assert terms_of(repaired(text, problem)) == terms


def test_the_missing_system_is_a_warning_where_there_is_more_than_linux() -> None:
    """MA106."""
    found = problems(deployment(required("arch In amd64")), {WEB: ["linux/amd64", "windows/amd64"]})
    assert rule(found, "MA106").finding.severity is Severity.WARNING


@pytest.mark.parametrize(
    "spec",
    [
        "nodeSelector: {kubernetes.io/os: linux}\n" + required("arch In amd64,arm64"),
        required("arch In amd64,arm64; os In linux", ""),
        required("disk Exists; os In linux"),
    ],
)
def test_a_system_that_is_asked_for_somewhere_suffices(spec: str) -> None:
    """MA106."""
    assert "MA106" not in names(problems(deployment(spec), TWO))


@pytest.mark.req("MF-020")
def test_a_required_node_affinity_that_is_null_requires_nothing() -> None:
    """The API server takes it."""
    text = deployment("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: null}}")
    found = problems(text, TWO)
    assert names(found) == ["MA101"]
    assert terms_of(repaired(text, found[0])) == [["arch In amd64,arm64", "os In linux"]]


@pytest.mark.req("MF-020")
@pytest.mark.parametrize(
    ("required_member", "expected"),
    [
        ("{}", "MA107/no-terms"),
        ("{nodeSelectorTerms: []}", "MA107/no-terms"),
        ("{nodeSelectorTerms: null}", "MA107/no-terms"),
        ("{nodeSelectorTerms: [{}]}", "MA107/empty-term"),
        ("{nodeSelectorTerms: [null, {matchExpressions: []}]}", "MA107/empty-term"),
    ],
)
def test_affinity_that_matches_no_node_at_all(required_member: str, expected: str) -> None:
    """MA107 comes before MA104 here, because it says why."""
    text = deployment(
        f"affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {required_member}}}}}"
    )
    found = problems(text, TWO)
    assert set(names(found)) == {expected}
    assert all(each.finding.severity is Severity.ERROR for each in found)
    if expected == "MA107/no-terms":
        assert terms_of(repaired(text, found[0])) == [["arch In amd64,arm64", "os In linux"]]
    else:
        assert not any(each.finding.fixable for each in found)


def test_one_empty_term_is_a_warning_besides() -> None:
    """MA107: reported besides the five."""
    found = problems(deployment(required("arch In s390x,amd64; os In linux", "")), TWO)
    assert sorted(names(found)) == ["MA102", "MA103", "MA107/empty-term"]
    assert rule(found, "MA107").finding.severity is Severity.WARNING


@pytest.mark.req("MF-001")
def test_neutral_images_keep_affinity_rules_silent() -> None:
    assert problems(deployment(required("", "arch In amd64")), {WEB: {"neutral": True}}) == ()


@pytest.mark.parametrize(
    ("spec", "path", "expected"),
    [
        (
            "nodeSelector: {beta.kubernetes.io/arch: amd64}",
            ("nodeSelector",),
            {"kubernetes.io/arch": "amd64"},
        ),
        (
            f"affinity: {{nodeAffinity: {{{PREFERRED}: [{{weight: 1, preference: {BETA}}}]}}}}",
            ("affinity", "nodeAffinity", PREFERRED, 0, "preference"),
            {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]},
        ),
    ],
)
def test_deprecated_keys(spec: str, path: tuple[str | int, ...], expected: Any) -> None:
    """MA108."""
    text = deployment(spec)
    member = pod_of(repaired(text, rule(problems(text, FOUR), "MA108")))
    for step in path:
        member = member[step]
    assert member == expected


@pytest.mark.parametrize(
    "spec",
    [
        "nodeSelector: {beta.kubernetes.io/arch: amd64, kubernetes.io/arch: amd64}",
        required("beta.kubernetes.io/arch In amd64; arch In amd64"),
    ],
)
def test_both_spellings_side_by_side_are_left_to_people(spec: str) -> None:
    """MA108."""
    problem = rule(problems(deployment(spec), FOUR), "MA108")
    assert not problem.finding.fixable
    assert problem.repair is not None
    assert "both spellings" in problem.repair.note


def test_values_that_are_no_names() -> None:
    """MA110: an alias is replaced, a repetition goes, what nobody knows stays."""
    spec = required("arch In x86_64,amd64,AARCH64,arm64v8,s390x; os In Linux")
    found = [each for each in problems(deployment(spec), FOUR) if each.finding.rule == "MA110"]
    assert [each.finding.path.rpartition("/")[2] for each in found] == ["0", "2", "3", "0"]
    assert "'arm64v8', which is no architecture" in found[2].finding.message
    assert [each.finding.fixable for each in found] == [True, True, False, True]
    text, applied = fixed(deployment(spec), FOUR, only=["MA110"])
    assert set(applied) == {"MA110"}
    (left,) = [each for each in problems(text, FOUR) if each.finding.rule == "MA110"]
    assert "arm64v8" in left.finding.message
    selector = deployment("nodeSelector: {kubernetes.io/arch: x86_64}")
    document = repaired(selector, rule(problems(selector, FOUR), "MA110"))
    assert pod_of(document)["nodeSelector"] == {"kubernetes.io/arch": "amd64"}


def preferred(*terms: str) -> str:
    return "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [" + ", ".join(terms) + "]}}"


ARM = "{matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [arm64]}]}"


@pytest.mark.req("MF-023")
@pytest.mark.parametrize(
    ("weight", "said"),
    [
        ("null", "without a weight"),
        ("[1]", "with a weight that is no whole number from 1 to 100"),
        ("{}", "with a weight that is no whole number from 1 to 100"),
        ('"1"', 'with a weight "1" that is no whole number from 1 to 100'),
        ('""', 'with a weight "" that is no whole number from 1 to 100'),
        ("1.5", "with a weight 1.5 that is no whole number from 1 to 100"),
        ("true", "with a weight true that is no whole number from 1 to 100"),
        ("101", "with a weight 101 that is no whole number from 1 to 100"),
        *((weight, "") for weight in ("5.0", "1e1", "0x10", "0o20", "1_0", "+5", "5.", ".5e1", "08", "0b1", "1_0.0")),
        ("0x65", "with a weight 101 that is no whole number from 1 to 100"),
        ("1e3", "with a weight 1000.0 that is no whole number from 1 to 100"),
        ("0.0", "with a weight 0.0 that is no whole number from 1 to 100"),
        ("'5.0'", 'with a weight "5.0" that is no whole number from 1 to 100'),
        ("_5", 'with a weight "_5" that is no whole number from 1 to 100'),
        ("$(WEIGHT)", ""),
        ("'{{ weight }}'", ""),
    ],
)
def test_what_is_said_of_a_weight_is_what_the_text_says(weight: str, said: str) -> None:
    """MA111; what a later step fills in is not judged."""
    found = problems(deployment(preferred(f"{{weight: {weight}, preference: {ARM}}}")), FOUR)
    assert [each.finding.message.partition("affinity term ")[2] for each in found] == [said] * bool(said)
    if weight in ("[1]", "{}"):
        assert not found[0].finding.fixable


@pytest.mark.parametrize(
    ("term", "sub", "expected"),
    [
        (f"{{preference: {ARM}}}", "weight", {"weight": 1}),
        (f"{{weight: null, preference: {ARM}}}", "weight", {"weight": 1}),
        (f"{{weight: 0, preference: {ARM}}}", "weight", {"weight": 1}),
        (f"{{weight: 500, preference: {ARM}}}", "weight", {"weight": 100}),
        (f'{{weight: "50", preference: {ARM}}}', "weight", {"weight": 50}),
        (f"{{weight: 0x65, preference: {ARM}}}", "weight", {"weight": 100}),
        (f"{{weight: 0.0, preference: {ARM}}}", "weight", {"weight": 1}),
        (f"{{weight: 1.5, preference: {ARM}}}", "weight", None),
        (f"{{weight: .inf, preference: {ARM}}}", "weight", None),
        (f"{{weight: many, preference: {ARM}}}", "weight", None),
        (ARM, "shape", {"weight": 50, "preference": {}}),
        (f"{{weight: 7, {ARM[1:]}", "shape", {"weight": 7, "preference": {}}),
    ],
)
def test_preferred_terms_that_cannot_work(term: str, sub: str, expected: dict[str, Any] | None) -> None:
    """MA111."""
    text = deployment(preferred(term))
    found = problems(text, FOUR)
    assert names(found) == [f"MA111/{sub}"]
    if expected is None:
        assert not found[0].finding.fixable
        return
    document = repaired(text, found[0])
    (after,) = pod_of(document)["affinity"]["nodeAffinity"][PREFERRED]
    clause = {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}
    assert after["weight"] == expected["weight"]
    assert after == {"weight": after["weight"], "preference": {"matchExpressions": [clause]}}


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        (["arm64, s390x"], [["arm64"]]),
        (["s390x", "arm64"], [["arm64"]]),
        (["s390x"], None),
    ],
)
def test_a_preference_for_what_the_images_lack(terms: list[str], expected: list[list[str]] | None) -> None:
    """MA111: the value goes, with its last value the term, with the last term the list."""
    expressions = (f"[{{key: kubernetes.io/arch, operator: In, values: [{each}]}}]" for each in terms)
    text = deployment(
        "nodeSelector: {kubernetes.io/os: linux}\n"
        + preferred(*(f"{{weight: 5, preference: {{matchExpressions: {each}}}}}" for each in expressions))
    )
    problem = rule(problems(text, TWO), "MA111")
    assert (problem.finding.sub, problem.finding.severity) == ("unsupported", Severity.WARNING)
    affinity = pod_of(repaired(text, problem))["affinity"]["nodeAffinity"]
    left = affinity.get(PREFERRED)
    shown = left and [each["preference"]["matchExpressions"][0]["values"] for each in left]
    assert shown == expected


def test_configured_preferences() -> None:
    """MA112 runs when configured; --prefer adds what is missing and supported."""
    assert "MA112" not in names(problems(deployment(""), FOUR))
    prefer = {"arm64": 80, "riscv64": 9}
    text = deployment(preferred("{weight: 3, preference: {matchExpressions: [{key: disk, operator: Exists}]}}"))
    problem = rule(problems(text, FOUR, prefer=prefer), "MA112")
    assert "arm64" in problem.finding.message
    assert "80" in problem.finding.message
    assert not problem.finding.fixable
    assert "(polyarch fix --prefer arm64=80,riscv64=9)" in problem.finding.hint, "as it has to be typed"
    text, applied = fixed(text, FOUR, prefer=prefer, fixes=FixOptions(prefer=True))
    assert applied == ["MA112"]
    assert "MA112" not in names(problems(text, FOUR, prefer=prefer))


@pytest.mark.req("TN-030", "TN-031", "TN-032")
def test_a_daemonset_tolerates_the_taints_of_its_architectures() -> None:
    """MA113, TN-030 to TN-032: only what is missing is added, at the end."""
    spec = required("arch In amd64,arm64; os In linux") + (
        "\ntolerations:\n- {key: supported-arch, operator: Equal, value: amd64}\n- {key: other, operator: Exists}"
    )
    text = deployment(spec, kind="DaemonSet")
    taints = Taints("supported-arch")
    problem = rule(problems(text, FOUR, taints=taints), "MA113")
    assert "supported-arch=arm64:NoSchedule" in problem.finding.message
    assert "supported-arch=amd64" not in problem.finding.message
    assert "s390x" not in problem.finding.message
    tolerations = pod_of(repaired(text, problem))["tolerations"]
    assert tolerations[2:] == [{"key": "supported-arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}]
    assert "MA113" not in names(problems(deployment(spec), FOUR, taints=taints))
    limited = Taints("supported-arch", architectures=("amd64",))
    assert "MA113" not in names(problems(text, FOUR, taints=limited))


@pytest.mark.req("TN-030")
@pytest.mark.parametrize(
    ("toleration", "effect", "covered"),
    [
        ({"operator": "Exists"}, "NoSchedule", True),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, "NoSchedule", False),
        ({"key": "k", "value": "arm64"}, "NoSchedule", True),
        ({"key": "k", "operator": "Equal", "value": "amd64"}, "NoSchedule", False),
        ({"operator": "Equal", "value": "arm64"}, "NoSchedule", False),
        ({"key": "k", "operator": "Exists", "tolerationSeconds": 9}, "NoExecute", False),
        ({"key": "k", "operator": "Exists", "tolerationSeconds": 9}, "NoSchedule", True),
        ({"key": "k", "operator": "Exists", "effect": None}, "NoSchedule", True),
        ({"key": "k", "operator": "Exists", "value": 5}, "NoSchedule", False),
        (None, "NoSchedule", False),
    ],
)
def test_what_a_toleration_covers(toleration: Any, effect: str, covered: bool) -> None:
    """MA113, TN-030."""
    text = deployment(f"tolerations: [{json.dumps(toleration)}]", kind="DaemonSet")
    taints = Taints("k", effect, architectures=("arm64",))
    assert ("MA113" in names(problems(text, FOUR, taints=taints))) is not covered


def test_an_init_container_that_limits_the_pod() -> None:
    """MA114."""
    text = deployment("initContainers:\n- {name: setup, image: quay.io/acme/setup:1}")
    found = problems(text, {**TWO, "quay.io/acme/setup:1": ["linux/amd64", "linux/s390x"]})
    finding = rule(found, "MA114").finding
    assert finding.platforms.missing == ("linux/arm64",)
    assert finding.images == ("quay.io/acme/setup:1",)


@pytest.mark.req("MF-020")
@pytest.mark.parametrize(
    ("spec", "images", "expected"),
    [
        ("os: {name: windows}", TWO, ["MA115"]),
        ("os: {name: linux}", TWO, ["MA101"]),
        ("os: {name: linux}\nnodeSelector: {kubernetes.io/os: windows}", BOTH, ["MA115"]),
        ("os: {name: linux}\nnodeSelector: {kubernetes.io/os: windows}", FOUR, ["MA115", "MA104"]),
        ("os: {name: linux}\nnodeSelector: {kubernetes.io/os: windows}", {WEB: {"neutral": True}}, ["MA115"]),
    ],
)
def test_spec_os_name(spec: str, images: dict[str, Any], expected: list[str]) -> None:
    """MA115: emptiness by spec.os.name alone is this and none of the five."""
    assert names(problems(deployment(spec), images)) == expected


def test_images_that_are_passed_on() -> None:
    """MA116 runs when included."""
    extra = """
        env:
        - {name: RELATED_IMAGE_DB, value: "quay.io/acme/db:1"}
        - {name: WORKER_IMAGE, value: "quay.io/acme/worker:1"}
        - {name: OTHER, value: "quay.io/acme/db:1"}
        args: ["--sidecar-image=quay.io/acme/db:1", "--image", "--verbose=true"]
"""
    text = deployment("") + extra.lstrip("\n")
    images = {**FOUR, "quay.io/acme/db:1": ["linux/amd64"], "quay.io/acme/worker:1": FOUR[WEB]}
    included = LintOptions(selection=Selection(include=("MA116",)))
    found = lint(scanned(text), answers(images), included)
    assert names(found) == ["MA116", "MA116"]
    assert [each.finding.path.rpartition("containers/0")[2] for each in found] == ["/env/0/value", "/args/0"]
    assert lint(scanned(text), answers(images)) == ()


@pytest.mark.req("PL-060", "PL-061")
@pytest.mark.parametrize("field", ["logVerbosityLevel", "logVerbosity"])
def test_an_obsolete_configuration_is_rewritten(field: str) -> None:
    """MA117, PL-061: with a policy that keeps what the preview promised."""
    text = (
        "apiVersion: multiarch.openshift.io/v1alpha1\nkind: PodPlacementConfig\nmetadata: {name: old, namespace: x}\n"
        f"spec:\n  {field}: Debug\n  namespaceSelector: {{matchLabels: {{a: b}}}}\n"
    )
    (problem,) = problems(text, {})
    assert repaired(text, problem) == {
        "apiVersion": "multiarch.openshift.io/v1beta1",
        "kind": "ClusterPodPlacementConfig",
        "metadata": {"name": "cluster"},
        "spec": {"logVerbosity": "Debug", "namespaceSelector": {"matchLabels": {"a": "b"}}},
    }
    said, _, cure = PREVIEW_MESSAGE.partition(": ")
    assert (
        problem.finding.message.partition(" of ")[2] == said.partition(" of ")[2]
    )  # as the API server's refusal, PL-060
    assert cure.startswith("polyarch fix")
    assert problem.finding.hint.startswith("polyarch fix")
    (policy,) = problem.documents
    assert policy == {
        "apiVersion": "polyarch.dev/v1alpha1",
        "kind": "PlacementPolicy",
        "metadata": {"name": "cluster"},
        "spec": {"excludedNamespaces": ["openshift-*", "hypershift-*"]},
    }
    (again,) = problems(f"{text}---\napiVersion: polyarch.dev/v1alpha1\nkind: PlacementPolicy\n", {})
    assert again.documents == ()
    current = text.replace("v1alpha1", "v1beta1")
    assert problems(current, {}) == ()


@pytest.mark.req("MF-051")
def test_repairs_can_be_cut_to_the_universe() -> None:
    platforms = (NodePlatform("linux", "amd64"), NodePlatform("linux", "riscv64"))
    text = deployment("")
    cut = FixOptions(limit_to_universe=True)
    problem = rule(problems(text, TWO, platforms=platforms, fixes=cut), "MA101")
    assert terms_of(repaired(text, problem)) == [["arch In amd64", "os In linux"]]
