"""What a pod admits against what its images support."""

import pytest
from linting import deployment, fixed, names, problems, repaired, required, rule, terms_of

from polyarch.manifests.finding import PlatformSets, Severity
from polyarch.manifests.rules.options import FixOptions
from polyarch.platforms import ASSUMED_ARCHITECTURES, NodePlatform

pytestmark = pytest.mark.req("MF-004", "MF-050")

WEB = "quay.io/acme/web:2"
TWO = {WEB: ["linux/amd64", "linux/arm64"]}
EVERY = [f"linux/{each}" for each in ASSUMED_ARCHITECTURES]
FOUR = {WEB: EVERY}
BEYOND = tuple(each for each in EVERY if each not in TWO[WEB])
BOTH = ["arch In amd64,arm64", "os In linux"]


@pytest.mark.req("MF-020", "MF-023", "MF-051")
def test_a_pod_without_constraints_that_may_land_where_its_image_does_not_run() -> None:
    """MA101 of MF-020: the sentence stands alone (MF-023) and the repair is one term with both keys (MF-051)."""
    text = deployment("")
    found = problems(text, TWO)
    finding = rule(found, "MA101").finding
    assert names(found) == ["MA101"]
    assert finding.message == (
        f"Deployment web admits {', '.join(BEYOND)}, but quay.io/acme/web:2 has only linux/amd64, linux/arm64"
    )
    assert finding.severity is Severity.WARNING
    assert (finding.span.line, finding.span.column) == (8, 7)
    assert finding.path == "/spec/template/spec"
    assert finding.images == (WEB,)
    assert finding.platforms == PlatformSets(
        admitted=tuple(EVERY),
        supported=("linux/amd64", "linux/arm64"),
        excess=BEYOND,
    )
    assert finding.fixable
    assert len(finding.fingerprint) == 16
    assert terms_of(repaired(text, rule(found, "MA101"))) == [BOTH]


@pytest.mark.req("MF-002", "MF-020")
def test_ma101_is_an_error_where_the_universe_is_explicit() -> None:
    platforms = (NodePlatform("linux", "amd64"), NodePlatform("linux", "s390x"))
    finding = rule(problems(deployment(""), TWO, platforms=platforms), "MA101").finding
    assert finding.severity is Severity.ERROR
    assert finding.platforms.excess == ("linux/s390x",)
    assert "--platforms" not in finding.hint
    usual = rule(problems(deployment(""), TWO), "MA101").finding.hint
    assert usual.endswith(f"; nodes may be {', '.join(ASSUMED_ARCHITECTURES)}, unless --platforms names yours")


def test_a_pod_whose_node_is_chosen_goes_nowhere_else() -> None:
    """MA101: with ``spec.nodeName`` no scheduler looks for a node."""
    assert names(problems(deployment("nodeName: worker-1"), TWO)) == []
    assert names(problems(deployment('nodeName: ""'), TWO)) == ["MA101"]
    assert names(problems(deployment("nodeName: w\nnodeSelector: {kubernetes.io/arch: s390x}"), TWO))[0] == "MA104"


@pytest.mark.req("MF-023")
def test_a_pod_whose_own_constraints_exclude_each_other() -> None:
    """MA104, MF-023: no image is to blame, and none is named, also where nobody could be asked about it."""
    text = deployment(required("arch In s390x; arch In amd64; os In linux"))
    for images, architectures in ((TWO, "amd64, arm64"), ({}, "the architectures meant")):
        finding = rule(problems(text, images), "MA104").finding
        assert finding.message == (
            "Deployment web can run nowhere: its node selector and required node affinity admit no platform"
        )
        assert finding.hint == f"require {architectures} (polyarch fix --replace), and nothing that excludes it"


@pytest.mark.req("MF-001")
def test_nothing_to_say_about_an_image_for_every_platform_or_for_none() -> None:
    """Neutral images do not constrain."""
    assert problems(deployment(""), FOUR) == ()
    assert problems(deployment("nodeSelector: {kubernetes.io/arch: amd64}"), {WEB: {"neutral": True}}) == ()


@pytest.mark.req("MF-003", "MF-052")
@pytest.mark.parametrize(
    ("spec", "platforms", "place", "terms"),
    [
        pytest.param(
            required("arch In amd64,s390x,arm64; os In linux"),
            ["linux/amd64", "linux/arm64"],
            "/matchExpressions/0/values/1",
            [["arch In amd64,arm64", "os In linux"]],
            id="values that no image has go, the order of the rest stays",
        ),
        pytest.param(
            required("arch NotIn s390x; os In linux"),
            ["linux/amd64", "linux/arm64"],
            "/matchExpressions/0",
            [["arch NotIn s390x", "os In linux", "arch In amd64,arm64"]],
            id="another operator stays and gets an In beside it",
        ),
        pytest.param(
            required("arch In s390x; os In linux", "arch In amd64; os In linux"),
            ["linux/amd64"],
            "/matchExpressions/0/values/0",
            [["arch In s390x", "os In linux", "arch In amd64"], ["arch In amd64", "os In linux"]],
            id="where no value would stay an In is added, which matches nothing any more",
        ),
        pytest.param(
            required("arch In aarch64,X86_64,ppc64el; os In linux"),
            ["linux/amd64", "linux/arm64"],
            "/matchExpressions/0/values/2",
            [["arch In aarch64,X86_64", "os In linux"]],
            id="other spellings count as what they mean",
        ),
        pytest.param(
            required("arch In amd64,arm64; os In linux,windows"),
            ["linux/amd64", "linux/arm64"],
            "/matchExpressions/0",
            [["arch In amd64,arm64", "os In linux,windows", "os In linux"]],
            id="a system that no image has is excluded by an In beside it",
        ),
    ],
)
def test_a_pod_that_asks_for_what_its_image_lacks(
    spec: str, platforms: list[str], place: str, terms: list[list[str]]
) -> None:
    """MA102."""
    text = deployment(spec)
    found = problems(text, {WEB: platforms})
    problem = rule(found, "MA102")
    assert problem.finding.severity is Severity.ERROR
    assert problem.finding.path.endswith(place)
    assert "MA101" not in names(found)
    assert terms_of(repaired(text, problem)) == terms


@pytest.mark.req("MF-052")
def test_a_node_selector_stays_and_the_system_is_added_beside_it() -> None:
    """Nothing in nodeSelector is changed without --replace."""
    text = deployment("nodeSelector:\n  kubernetes.io/arch: amd64")
    platforms = (NodePlatform("linux", "amd64"), NodePlatform("windows", "amd64"))
    problem = rule(problems(text, TWO, platforms=platforms), "MA102")
    document = repaired(text, problem)
    assert terms_of(document) == [["os In linux"]]
    assert document["spec"]["template"]["spec"]["nodeSelector"] == {"kubernetes.io/arch": "amd64"}


@pytest.mark.req("MF-022")
def test_images_without_a_common_platform() -> None:
    """MA105 names a minimal set of images and nothing else of the five is said."""
    images = {"a": ["linux/amd64", "linux/arm64"], "b": ["linux/arm64"], "c": ["linux/amd64"], "d": ["linux/s390x"]}
    found = problems(deployment(required("arch In ppc64le"), images=tuple(images)), images)
    assert [each for each in names(found) if each != "MA106"] == ["MA105"]
    finding = rule(found, "MA105").finding
    assert finding.images == ("a", "d")
    assert finding.path == "/spec/template/spec/containers/0/image"
    assert finding.message == (
        "Deployment web can run nowhere: its images have no platform in common "
        "(a has only linux/amd64, linux/arm64; d has only linux/s390x)"
    )
    assert not finding.fixable


def test_an_image_without_any_platform() -> None:
    """MA105: one image is a minimal set."""
    found = problems(deployment("", images=("a", "empty")), {"a": ["linux/amd64"], "empty": {"platforms": []}})
    assert rule(found, "MA105").finding.images == ("empty",)


@pytest.mark.req("MF-052")
def test_what_is_asked_for_and_what_there_is_have_nothing_in_common() -> None:
    """MA104; only --replace changes it."""
    text = deployment(required("arch In s390x,ppc64le; os In linux"))
    found = problems(text, TWO)
    assert names(found) == ["MA104"]
    problem = rule(found, "MA104")
    assert not problem.finding.fixable
    assert problem.repair is not None
    assert problem.repair.note.startswith("--replace")
    replaced = rule(problems(text, TWO, fixes=FixOptions(replace=True)), "MA104")
    assert terms_of(repaired(text, replaced)) == [["arch In amd64,arm64", "os In linux"]]


@pytest.mark.req("MF-051")
def test_systems_with_different_architectures_get_a_term_each() -> None:
    """The product of a term's values must not admit what no image has."""
    text = deployment(required("zone In a; disk Exists"))
    platforms = ["linux/amd64", "linux/arm64", "windows/amd64"]
    problem = rule(problems(text, {WEB: platforms}), "MA101")
    assert terms_of(repaired(text, problem)) == [
        ["zone In a", "disk Exists", "arch In amd64,arm64", "os In linux"],
        ["zone In a", "disk Exists", "arch In amd64", "os In windows"],
    ]


@pytest.mark.req("MF-054")
def test_a_fix_settles_everything_and_a_second_one_changes_nothing() -> None:
    text, applied = fixed(deployment(required("arch In amd64,s390x", "zone In a")), TWO)
    assert applied == ["MA107", "MA102"] or "MA107" in applied
    assert problems(text, TWO) == () or names(problems(text, TWO)) == ["MA103"]
    assert fixed(text, TWO) == (text, [])


@pytest.mark.req("MF-053")
@pytest.mark.parametrize(
    ("images", "options", "note"),
    [
        ({WEB: ["linux/amd64"]}, {}, "quay.io/acme/side:1 are unknown"),
        (
            {WEB: ["linux/amd64"]},
            {"fixes": FixOptions(assume=(NodePlatform("linux", "arm64"),))},
            "no platform is left",
        ),
    ],
)
def test_repairs_that_are_refused_say_why(images: dict[str, list[str]], options: dict[str, object], note: str) -> None:
    """P is not exact."""
    text = deployment("", images=(WEB, "quay.io/acme/side:1"))
    problem = rule(problems(text, images, **options), "MA101")
    assert problem.repair is not None
    assert problem.repair.operations == ()
    assert note in problem.repair.note
    assert not problem.finding.fixable


@pytest.mark.req("MF-053")
def test_assume_stands_in_for_an_image_without_an_answer() -> None:
    text = deployment("", images=(WEB, "quay.io/acme/side:1"))
    assume = FixOptions(assume=(NodePlatform("linux", "arm64"), NodePlatform("linux", "s390x")))
    problem = rule(problems(text, TWO, fixes=assume), "MA101")
    assert terms_of(repaired(text, problem)) == [["arch In arm64", "os In linux"]]
