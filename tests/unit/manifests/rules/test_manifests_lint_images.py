"""What is wrong with images themselves (MA001 to MA011)."""

from typing import Any

import pytest
from linting import answers, deployment, names, problems, repaired, rule, scanned

from polyarch.manifests.finding import Severity
from polyarch.manifests.rules.engine import lint, wanted, wanted_indexes
from polyarch.manifests.rules.images import SPELLINGS, architecture_in_name
from polyarch.manifests.rules.options import LintOptions, LockEntry, Selection
from polyarch.manifests.scan.sets import ImageInspections
from polyarch.oci.reference import parse
from polyarch.platforms import ASSUMED_ARCHITECTURES, NodePlatform, is_architecture

pytestmark = pytest.mark.req("MF-020")

WEB = "quay.io/acme/web:2"
AMD64, ARM64 = NodePlatform("linux", "amd64"), NodePlatform("linux", "arm64")
ALL = [f"linux/{each}" for each in ASSUMED_ARCHITECTURES]


@pytest.mark.req("MF-075")
@pytest.mark.parametrize(
    ("image", "answer", "sub", "part"),
    [
        (WEB, {"error": "not-found"}, "not-found", "unknown: not-found"),
        (WEB, {"unknown": True}, "empty-architecture", "names no architecture"),
        (WEB, None, "offline-miss", "no registry was asked"),
        ("$(IMAGE)", None, "not-a-reference", "'$(IMAGE)', which is not an image reference"),
        ('""', None, "not-a-reference", "container c0 names no image"),
    ],
)
def test_an_image_of_which_nothing_is_known(image: str, answer: Any, sub: str, part: str) -> None:
    """MA001; MF-075 numbers it as upstream does."""
    found = problems(deployment("", images=(image,)), {} if answer is None else {image: answer})
    assert names(found) == [f"MA001/{sub}"]
    assert part in found[0].finding.message
    assert found[0].finding.severity is Severity.WARNING
    assert found[0].finding.upstream == "V1"
    assert found[0].finding.path == "/spec/template/spec/containers/0/image"
    strict = problems(deployment("", images=(image,)), {} if answer is None else {image: answer}, strict=True)
    assert strict[0].finding.severity is Severity.ERROR


@pytest.mark.req("MF-074")
def test_an_image_used_twice_in_an_object_is_complained_about_once() -> None:
    """One MA001 for an image."""
    found = problems(deployment("", images=(WEB, WEB, "quay.io/acme/other:1")), {})
    assert [each.finding.images for each in found] == [(WEB,), ("quay.io/acme/other:1",)]


@pytest.mark.req("MF-040")
@pytest.mark.parametrize(
    ("code", "silent"), [("timeout", True), ("tls", True), ("rate-limited", True), ("denied", False)]
)
def test_unresolved_ignore_silences_what_is_nobodys_fault(code: str, silent: bool) -> None:
    found = problems(deployment(""), {WEB: {"error": code}}, unresolved="ignore")
    assert (found == ()) is silent
    assert names(problems(deployment(""), {WEB: {"error": code}}, unresolved="finding")) == [f"MA001/{code}"]


@pytest.mark.parametrize(
    ("platforms", "require", "expected", "severity"),
    [
        (["linux/amd64"], (AMD64, ARM64), "MA002", Severity.ERROR),
        (["linux/amd64"], (ARM64,), "MA002", Severity.ERROR),
        (["linux/amd64", "linux/s390x"], (AMD64, ARM64), "MA003", Severity.ERROR),
        (["linux/amd64/v3"], (AMD64,), "MA002", Severity.ERROR),
        (["linux/amd64/v8"], (AMD64,), "MA003", Severity.ERROR),
        (["linux/amd64/v3", "linux/arm64/v8"], (AMD64, ARM64), "MA002", Severity.ERROR),
        ({"platforms": ["linux/amd64/v8"], "kind": "image"}, (AMD64,), None, None),
        (["linux/amd64/v1", "linux/arm64/v8"], (AMD64, ARM64), None, None),
        ([], (AMD64,), "MA003", Severity.ERROR),
        (["linux/amd64", "linux/arm64"], (AMD64, ARM64), None, None),
        ({"neutral": True}, (AMD64, ARM64), None, None),
    ],
)
def test_required_platforms(
    platforms: Any, require: tuple[NodePlatform, ...], expected: str | None, severity: Severity | None
) -> None:
    """MA002 and MA003 exclude each other."""
    found = [
        each.finding
        for each in problems(deployment(""), {WEB: platforms}, require=require)
        if each.finding.rule in ("MA002", "MA003")
    ]
    assert [(each.rule, each.severity) for each in found] == ([(expected, severity)] if expected else [])


def test_an_image_for_one_platform_says_what_to_build() -> None:
    """MA002: the platforms that are there, required, and to be built."""
    finding = rule(problems(deployment(""), {WEB: ["linux/amd64"]}, require=(AMD64, ARM64)), "MA002").finding
    assert finding.message == (
        f"Deployment web: {WEB} is built for linux/amd64 only; linux/amd64, linux/arm64 are required"
    )
    assert finding.hint == "also build it for linux/arm64, and publish one multi-platform image"
    assert finding.platforms.missing == ("linux/arm64",)


def pinned(digest: str) -> tuple[str, ImageInspections]:
    index = {"platforms": ALL, "digest": f"sha256:{'a' * 64}", "children": {"linux/amd64": f"sha256:{'b' * 64}"}}
    file = answers({WEB: index})
    image = f"{WEB}@sha256:{digest * 64}"
    images = {image: answers({WEB: index}, [image]).images.get(image, file.images[WEB])}
    return image, ImageInspections(images, {image: file.images[WEB]})


def test_a_digest_of_one_platform_becomes_that_of_the_index() -> None:
    """MA004."""
    image, known = pinned("b")
    text = deployment("", images=(image,))
    problem = rule(lint(scanned(text), known), "MA004")
    assert "pins quay.io/acme/web:2@sha256:bbb" in problem.finding.message
    assert "linux/amd64 manifest" in problem.finding.message
    fixed = repaired(text, problem)["spec"]["template"]["spec"]["containers"][0]["image"]
    assert fixed == f"{WEB}@sha256:{'a' * 64}"
    image, known = pinned("a")
    assert "MA004" not in names(lint(scanned(deployment("", images=(image,))), known))


@pytest.mark.req("MF-090")
def test_which_images_have_to_be_resolved() -> None:
    """Each once; for a digest with a tag also what the tag shows (MA004)."""
    image = f"acme/web:2@sha256:{'b' * 64}"
    text = deployment("", images=(WEB, image, WEB, '""', "$(X)"))
    text += "        env:\n        - {name: RELATED_IMAGE_X, value: quay.io/acme/x:1}\n"
    scan = scanned(text)
    assert wanted(scan, LintOptions()) == (WEB, image, "$(X)")
    passed = wanted(scan, LintOptions(selection=Selection(include=("MA116",))))
    assert passed == (WEB, image, "$(X)", "quay.io/acme/x:1")
    assert wanted_indexes([WEB, image, "@", f"web@sha256:{'b' * 64}"]) == {image: "docker.io/acme/web:2"}


@pytest.mark.parametrize(
    ("warning", "expected"),
    [
        ("mislabelled", "MA005/mislabelled error"),
        ("wrong-binary", "MA005/wrong-binary error"),
        ("no-platforms", "MA006/no-platforms error"),
        ("duplicate-platform", "MA006/duplicate-platform warning"),
        ("empty-os", "MA007 warning"),
        ("schema1", "MA010 error"),
        ("digest-header-mismatch", None),
    ],
)
def test_warnings_of_the_inspection(warning: str, expected: str | None) -> None:
    """MA005 to MA007, MA010."""
    found = problems(deployment(""), {WEB: {"platforms": ALL, "warnings": [warning]}})
    assert [f"{name} {each.finding.severity}" for name, each in zip(names(found), found, strict=True)] == (
        [expected] if expected else []
    )


def test_an_unsupported_media_type_is_named_besides() -> None:
    """MA010."""
    found = problems(deployment(""), {WEB: {"error": "unsupported-media-type"}})
    assert sorted(names(found)) == ["MA001/unsupported-media-type", "MA010"]


@pytest.mark.req("MF-034")
@pytest.mark.parametrize(
    ("digest", "platforms", "expected"),
    [
        ("a", ALL, []),
        ("b", ALL, [("MA008", "moved", Severity.WARNING)]),
        ("b", ["linux/arm64"], [("MA008", "lost-platform", Severity.ERROR)]),
    ],
)
def test_what_was_locked(digest: str, platforms: list[str], expected: list[Any]) -> None:
    """MA008, MF-034: an image that cannot be resolved is MA001 and never lost."""
    lock = {WEB: LockEntry(f"sha256:{'a' * 64}", (AMD64, ARM64))}
    answer = {"platforms": platforms, "digest": f"sha256:{digest * 64}"}
    found = problems(deployment(""), {WEB: answer}, lock=lock)
    locked = [each.finding for each in found if each.finding.rule == "MA008"]
    assert [(each.rule, each.sub, each.severity) for each in locked] == expected
    assert names(problems(deployment(""), {WEB: {"error": "timeout"}}, lock=lock)) == ["MA001/timeout"]


@pytest.mark.parametrize(
    ("platform", "part"),
    [
        ("linux/amd64/v3", "runtimes take linux/amd64, unless they are told to take linux/amd64/v3"),
        ("linux/amd64/v8", "there is no processor of amd64/v8: publish it as linux/amd64"),
        ("linux/arm/v9", "there is no processor of arm/v9"),
        ("linux/arm/v6", "arm/v6"),
        ("windows(10.0.20348.1)/amd64", "windows-build: 10.0.20348"),
        ("linux/arm64/v9", None),
        ("linux/arm/v7", None),
        ("darwin/amd64/v3", None),
    ],
)
def test_what_labels_do_not_tell(platform: str, part: str | None) -> None:
    """MA009."""
    found = [each.finding for each in problems(deployment(""), {WEB: [*ALL, platform]}) if each.finding.rule == "MA009"]
    assert len(found) == (part is not None)
    assert all((part or "") in each.hint for each in found)


@pytest.mark.parametrize(
    ("platforms", "hint"),
    [
        (["linux/amd64/v3"], "publish linux/amd64, too: no runtime takes linux/amd64/v3 unless it is told to"),
        (["linux/amd64/v2", "linux/arm64"], "publish linux/amd64, too: no runtime takes linux/amd64/v2"),
        (["linux/amd64/v8"], "there is no processor of amd64/v8: publish it as linux/amd64"),
        (["linux/ppc64le/power9"], "publish linux/ppc64le, too: no runtime takes linux/ppc64le/power9"),
    ],
)
def test_no_label_helps_with_a_variant_that_runtimes_do_not_take(platforms: list[str], hint: str) -> None:
    """MA009."""
    found = [each.finding for each in problems(deployment(""), {WEB: platforms}) if each.finding.rule == "MA009"]
    assert len(found) == 1
    assert hint in found[0].hint
    assert "label" not in found[0].hint


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("quay.io/acme/web-amd64:2", ("amd64", "quay.io/acme/web:2")),
        ("web_x86_64", ("x86_64", "web:latest")),
        ("quay.io/acme/web:2.0-aarch64", ("aarch64", "quay.io/acme/web:2.0")),
        ("quay.io/acme/web.arm", ("arm", "quay.io/acme/web:latest")),
        ("arm64v8/nginx:1", ("arm64v8", "nginx:1")),
        (f"quay.io/acme/web-s390x:1@sha256:{'a' * 64}", ("s390x", "quay.io/acme/web:1")),
        ("quay.io/acme/web:2.14-386", ("386", "quay.io/acme/web:2.14")),
        ("quay.io/acme/web.386", ("386", "quay.io/acme/web:latest")),
        ("quay.io/acme/web:2.14.386", None),
        ("quay.io/acme/web:v1.386", None),
        ("quay.io/acme/alarm", None),
        ("quay.io/amd64er/web", None),
        ("quay.io/acme/amd64", None),
        ("quay.io/acme/web:amd64", None),
    ],
)
def test_architectures_in_names(image: str, expected: tuple[str, str] | None) -> None:
    """MA011."""
    assert architecture_in_name(parse(image)) == expected


@pytest.mark.req("RG-020")
def test_every_spelling_is_an_architecture() -> None:
    """MA011: the list cannot drift from RG-020."""
    assert all(is_architecture(name) for name in SPELLINGS if name not in ("arm64v8", "arm32v7"))
