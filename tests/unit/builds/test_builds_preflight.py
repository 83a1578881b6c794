"""What a build stands on is looked at before any Job exists."""

from typing import Any

import msgspec
import pytest
from build_wishes import BASE, NOW, digest, facts, failed, image, index, node, wish

from polyarch.builds.api.resources import BaseImages, Builder, Emulation, Source
from polyarch.builds.base_images import PreflightResult, preflight
from polyarch.builds.facts.build_facts import BuildFacts, MachineOSInputs, PinnedBase, PlanSettings
from polyarch.builds.keys import effective_inputs
from polyarch.oci.inspection import Inspection, Status

BOTH = ("amd64", "arm64")
BUILDER = "quay.io/buildah/stable:v1.39"
PUSH = "quay.io/polyarch/polyarch:1"
GOOD = index(BASE, amd64="a", arm64="b")
TOOLS = (index(BUILDER, amd64="a", arm64="b"), index(PUSH, amd64="a", arm64="b"))
ROLE = PlanSettings(builder_image=BUILDER, push_image=PUSH)


def given(*answers: Inspection, fresh: bool = False, pins: tuple[PinnedBase, ...] = (), **spec: Any) -> BuildFacts:
    images = {each.reference.canonical: each for each in answers}
    build = msgspec.structs.replace(wish(**spec), pins=pins)
    return facts(node("a"), node("b", "arm64"), of=build, images=images, pins_fresh=fresh, settings=ROLE)


def judged(of: BuildFacts, architectures: tuple[str, ...] = BOTH) -> PreflightResult:
    return preflight(of, architectures, effective_inputs(of.request, of.inputs, architectures))


@pytest.mark.req("BD-059")
def test_every_image_is_asked_for_once_before_anything_is_said() -> None:
    verdict = judged(given(index(BASE, amd64="a")))
    assert [each.reference for each in verdict.lookups] == [BUILDER, PUSH]
    assert not verdict.problems


@pytest.mark.req("BD-059")
def test_a_build_that_has_everything_has_no_problem() -> None:
    assert judged(given(GOOD, *TOOLS)) == PreflightResult()


PROBLEMS: dict[str, tuple[tuple[Inspection, ...], str, str, str]] = {
    "an index without the architecture": (
        (index(BASE, "linux/s390x", "windows/arm64", amd64="a"), *TOOLS),
        "BaseImageArchitectureMissing",
        "arm64",
        f"The base image {BASE} has nothing for linux/arm64 (it has linux/amd64, linux/s390x, windows/arm64)",
    ),
    "a plain image of another architecture": (
        (image(BASE, "amd64"), *TOOLS),
        "BaseImageArchitectureMissing",
        "arm64",
        f"The base image {BASE} has nothing for linux/arm64 (it is linux/amd64 only)",
    ),
    "a builder image without the architecture": (
        (GOOD, index(BUILDER, amd64="a"), TOOLS[1]),
        "BuilderImageArchitectureMissing",
        "arm64",
        f"The builder image {BUILDER} has nothing for linux/arm64 (it has linux/amd64)",
    ),
    "a push image without the architecture": (
        (GOOD, TOOLS[0], index(PUSH, arm64="b")),
        "BuilderImageArchitectureMissing",
        "amd64",
        f"The push image {PUSH} has nothing for linux/amd64 (it has linux/arm64)",
    ),
    "an image that does not exist": (
        (failed(BASE, "not-found"), *TOOLS),
        "BaseImageNotFound",
        "",
        f"The base image {BASE} does not exist; correct its name or tag, or push it (not-found: the server says so).",
    ),
    "an image that needs a credential": (
        (failed(BASE, "unauthorized"), *TOOLS),
        "BaseImageUnauthorized",
        "",
        "name a Secret that may in spec.output.pullSecrets (unauthorized",
    ),
    "content that nobody can use": (
        (failed(BASE, "too-large"), *TOOLS),
        "BaseImageUnusable",
        "",
        "cannot be used (too-large",
    ),
    "a policy that forbids it": ((failed(BASE, "blocked"), *TOOLS), "BaseImageUnusable", "", "(blocked"),
    "content without any platform": (
        (msgspec.structs.replace(index(BASE), status=Status.UNKNOWN), *TOOLS),
        "BaseImageUnusable",
        "",
        "says nothing about its platform",
    ),
}


@pytest.mark.req("BD-060")
@pytest.mark.parametrize("case", PROBLEMS, ids=str)
def test_outcomes(case: str) -> None:
    answers, reason, architecture, words = PROBLEMS[case]
    verdict = judged(given(*answers))
    (problem,) = verdict.problems
    assert (problem.reason, problem.architecture, problem.severity) == (reason, architecture, "Error")
    assert words in problem.message
    assert (verdict.reason, verdict.message) == (reason, problem.message)


@pytest.mark.req("BD-060")
@pytest.mark.parametrize("code", ["rate-limited", "timeout", "network", "server-error"])
def test_a_registry_that_cannot_be_reached_is_no_verdict(code: str) -> None:
    verdict = judged(given(failed(BASE, code, retry_after=7.0), *TOOLS))
    assert verdict.problems == ()
    assert [each.reason for each in verdict.unreachable] == ["RegistryUnreachable"]
    assert verdict.retry_after == 7.0


@pytest.mark.req("BD-060")
def test_one_message_lists_every_problem() -> None:
    text = f"FROM {BASE} AS one\nFROM quay.io/team/gone:1\nCOPY --from=one /x /x\n"
    verdict = judged(
        given(
            index(BASE, s390x="c"),
            failed("quay.io/team/gone:1", "not-found"),
            index(BUILDER, amd64="a"),
            TOOLS[1],
            source=Source(containerfile=text),
        )
    )
    assert [each.reason for each in verdict.problems] == [
        "BaseImageArchitectureMissing",
        "BuilderImageArchitectureMissing",
        "BaseImageNotFound",
    ]
    assert "has nothing for linux/amd64, linux/arm64 (it has linux/s390x)" in verdict.message
    assert BUILDER in verdict.message
    assert "quay.io/team/gone:1" in verdict.message


@pytest.mark.req("BD-060")
@pytest.mark.parametrize("access", ["Required", "Warn"])
def test_warn_goes_on_where_an_index_lacks_an_architecture(access: str) -> None:
    answers = (index(BASE, amd64="a"), index(BUILDER, amd64="a"), TOOLS[1])
    verdict = judged(given(*answers, base_images=BaseImages(preflight=access)))
    warned = [(each.reason, each.severity) for each in verdict.warnings]
    reasons = ["BaseImageArchitectureMissing", "BuilderImageArchitectureMissing"]
    assert warned == ([(each, "Warning") for each in reasons] if access == "Warn" else [])
    assert [each.reason for each in verdict.problems] == ([] if access == "Warn" else reasons)


@pytest.mark.req("BD-060")
def test_warn_is_about_platforms_only() -> None:
    verdict = judged(given(failed(BASE, "not-found"), *TOOLS, base_images=BaseImages(preflight="Warn")))
    assert verdict.reason == "BaseImageNotFound"


@pytest.mark.req("BD-063")
def test_one_image_of_another_architecture_is_never_built_on() -> None:
    verdict = judged(given(image(BASE, "amd64"), *TOOLS, base_images=BaseImages(preflight="Warn")))
    assert verdict.reason == "BaseImageArchitectureMissing"


EMULATED: dict[str, Any] = {"strategy": "Emulated", "emulation": Emulation(hosts=["amd64"])}


@pytest.mark.req("BD-059")
def test_builder_and_push_images_are_judged_for_where_they_run() -> None:
    tools = (index(BUILDER, amd64="a"), index(PUSH, amd64="a"))
    assert judged(given(GOOD, *tools, **EMULATED)) == PreflightResult()
    assert judged(given(GOOD, *tools)).reason == "BuilderImageArchitectureMissing"


@pytest.mark.req("BD-059")
def test_stages_of_the_build_platform_are_judged_for_where_they_run() -> None:
    tools = "quay.io/team/compiler:1"
    text = f"FROM --platform=$BUILDPLATFORM {tools} AS tools\nFROM {BASE}\nCOPY --from=tools /x /x\n"
    source = Source(containerfile=text)
    emulated = judged(given(GOOD, index(tools, amd64="a"), *TOOLS, source=source, **EMULATED))
    assert emulated == PreflightResult()
    native = judged(given(GOOD, index(tools, amd64="a"), *TOOLS, source=source))
    assert [(each.reason, each.architecture) for each in native.problems] == [("BaseImageArchitectureMissing", "arm64")]
    lacking = judged(given(GOOD, index(tools, arm64="a"), *TOOLS, source=source, **EMULATED), ("arm64", "s390x"))
    assert "needed for" not in lacking.message
    assert "has nothing for linux/amd64" in lacking.message


@pytest.mark.req("BD-059")
def test_own_images_of_a_build_come_before_those_of_the_role() -> None:
    builder = Builder(image="quay.io/team/builder:1", push_image="quay.io/team/push:1")
    verdict = judged(given(GOOD, builder=builder))
    assert [each.reference for each in verdict.lookups] == ["quay.io/team/builder:1", "quay.io/team/push:1"]


@pytest.mark.req("BD-059")
def test_images_of_a_machine_os_are_judged_too() -> None:
    os_image = f"quay.io/team/os@{digest('c')}"
    of = given(*TOOLS, index(os_image, amd64="a"), source=Source(containerfile=""))
    machine = msgspec.structs.replace(of.request, machine=MachineOSInputs(os_image=os_image))
    verdict = judged(msgspec.structs.replace(of, request=machine))
    assert [(each.reason, each.architecture) for each in verdict.problems] == [
        ("BaseImageArchitectureMissing", "arm64")
    ]


PIN = PinnedBase(
    reference=BASE, digest=digest("f"), children={"amd64": digest("a"), "arm64": digest("b")}, resolved=NOW - 60
)


@pytest.mark.req("BD-061")
def test_on_build_the_tag_is_asked_about_again_before_a_job_is_made() -> None:
    of = given(*TOOLS, pins=(PIN,))
    assert [(each.reference, each.revalidate) for each in judged(of).lookups] == [(BASE, True)]
    again = given(*TOOLS, index(BASE, top="9", amd64="1"), pins=(PIN,), fresh=True)
    assert judged(again).reason == "BaseImageArchitectureMissing"


@pytest.mark.req("BD-061")
@pytest.mark.parametrize("policy", ["Never", "Interval"])
def test_other_policies_trust_their_pins(policy: str) -> None:
    base_images = BaseImages(policy=policy, interval="1h" if policy == "Interval" else "")
    assert judged(given(*TOOLS, pins=(PIN,), base_images=base_images)) == PreflightResult()


@pytest.mark.req("BD-061")
def test_a_digest_does_not_move() -> None:
    fixed = f"quay.io/team/base@{digest('f')}"
    pin = msgspec.structs.replace(PIN, reference=fixed)
    of = given(*TOOLS, pins=(pin,), source=Source(containerfile=f"FROM {fixed}\n"))
    assert judged(of) == PreflightResult()


@pytest.mark.req("BD-061")
def test_a_pin_whose_registry_is_away_does_not_make_a_job() -> None:
    of = given(*TOOLS, failed(BASE, "timeout"), pins=(PIN,), fresh=True)
    assert judged(of).reason == "RegistryUnreachable"


@pytest.mark.req("BD-178")
def test_where_only_jobs_may_ask_nothing_is_judged() -> None:
    assert judged(given(registry_access="Job")) == PreflightResult()


def test_an_artifact_fits_every_architecture() -> None:
    text = f"FROM {BASE}\nCOPY --from=quay.io/team/data:1 /x /x\n"
    data = msgspec.structs.replace(index("quay.io/team/data:1"), status=Status.NEUTRAL, kind="artifact")
    assert judged(given(GOOD, data, *TOOLS, source=Source(containerfile=text))) == PreflightResult()
