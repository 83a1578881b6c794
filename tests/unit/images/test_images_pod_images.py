"""The images of a pod and what an answer says of each."""

from typing import Any

import msgspec
import pytest
from placement_cases import APP, SIDE, answers, controlled, failure, index, look, neutral, pod, settings, unknown

from polyarch.images import pod_images as images
from polyarch.images.pod_images import ImageEffect, ImageUse, image_facts, images_of, usable_now
from polyarch.objects import Pod
from polyarch.oci.inspection import Inspection, InspectionError, SourceUsed
from polyarch.placement.decision import LookupProgress, Reason
from polyarch.placement.rules import decide

VOLUME = "quay.io/team/data:3"


def uses(document: dict[str, Any]) -> tuple[ImageUse, ...]:
    return images_of(look(document).pod)


def with_volume(document: dict[str, Any], reference: str = VOLUME, policy: str = "") -> dict[str, Any]:
    image = {"reference": reference, "pullPolicy": policy}
    document["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {}}, {"name": "data", "image": image}]
    return document


@pytest.mark.req("PL-210")
def test_each_reference_once_containers_first_then_init_containers_then_volumes() -> None:
    init = [{"name": "i", "image": "quay.io/team/init:1"}, {"name": "again", "image": SIDE}]
    document = with_volume(pod(APP, SIDE, APP, initContainers=init))
    assert [use.text for use in uses(document)] == [APP, SIDE, "quay.io/team/init:1", VOLUME]


@pytest.mark.req("PL-210")
def test_ephemeral_containers_are_not_looked_at() -> None:
    document = pod(APP, ephemeralContainers=[{"name": "debug", "image": "quay.io/team/debug:1"}])
    assert [use.text for use in uses(document)] == [APP]


@pytest.mark.req("PL-210")
def test_fresh_if_any_container_with_the_reference_pulls_always() -> None:
    document = pod(APP, SIDE, initContainers=[{"name": "i", "image": APP, "imagePullPolicy": "Always"}])
    assert [(use.text, use.always) for use in uses(document)] == [(APP, True), (SIDE, False)]


@pytest.mark.req("PL-210")
@pytest.mark.parametrize(
    ("reference", "always"),
    [("nginx", True), ("nginx:latest", True), ("nginx:1.27", False), (f"nginx@sha256:{'a' * 64}", False)],
)
def test_a_manifest_without_pull_policy_gets_what_the_api_server_would_fill_in(reference: str, always: bool) -> None:
    (use,) = uses(pod(reference, policy=""))
    assert use.always is always


@pytest.mark.req("PL-211")
def test_an_image_volume_with_an_index_constrains() -> None:
    document = with_volume(pod(APP))
    case = look(document)
    decision = decide(case, answers(index(APP, "amd64", "arm64"), index(VOLUME, "arm64")))
    assert decision.architectures == ("arm64",)


@pytest.mark.req("PL-211")
@pytest.mark.parametrize(
    "answer",
    [
        index(VOLUME, "arm64", kind="image"),
        index(VOLUME),
        neutral(VOLUME),
        unknown(VOLUME),
    ],
    ids=["single manifest", "index without platforms", "artifact", "manifest without architecture"],
)
def test_an_image_volume_is_neutral_unless_it_is_an_index_with_platforms(answer: Inspection) -> None:
    decision = decide(look(with_volume(pod(APP))), answers(index(APP, "amd64", "arm64"), answer))
    assert decision.reason is Reason.ARCHITECTURES_SET
    assert decision.architectures == ("amd64", "arm64")
    assert [finding.effect for finding in decision.images] == [ImageEffect.CONSTRAINS, ImageEffect.NEUTRAL]


@pytest.mark.req("PL-211")
def test_an_image_that_also_runs_constrains_although_it_is_mounted_too() -> None:
    document = with_volume(pod(APP), reference=APP)
    decision = decide(look(document), answers(index(APP, "arm64", kind="image")))
    assert decision.architectures == ("arm64",)


@pytest.mark.req("PL-211", "PL-900 row 16")
def test_systems_without_nodes_and_variants_do_not_count() -> None:
    decision = decide(look(pod(APP)), answers(index(APP, "darwin/arm64", "s390x", "linux/arm/v6", "linux/arm/v7")))
    assert decision.architectures == ("arm", "s390x")


@pytest.mark.req("PL-211")
def test_unknown_is_unresolved() -> None:
    decision = decide(look(pod(APP)), answers(unknown(APP)))
    assert decision.reason is Reason.IMAGES_NOT_RESOLVED_YET
    assert decision.images[0].effect is ImageEffect.UNRESOLVED


@pytest.mark.req("PL-212")
def test_an_image_never_pulled_is_local_if_its_registry_does_not_know_it() -> None:
    decision = decide(look(pod(APP, policy="Never")), answers(failure(APP, "not-found", 404)))
    assert decision.reason is Reason.ALL_IMAGES_NEUTRAL
    assert decision.images[0].note == "local"


@pytest.mark.req("PL-212")
def test_an_image_never_pulled_is_asked_for_and_constrains_if_it_is_known() -> None:
    case = look(pod(APP, policy="Never"))
    assert [use.text for use in case.images] == [APP]
    assert decide(case, {}).reason is Reason.IMAGES_NOT_RESOLVED_YET
    assert decide(case, answers(index(APP, "s390x"))).architectures == ("s390x",)


@pytest.mark.req("PL-212")
def test_one_other_use_makes_a_failure_count() -> None:
    document = pod(APP, policy="Never", initContainers=[{"name": "i", "image": APP, "imagePullPolicy": "IfNotPresent"}])
    assert decide(look(document), answers(failure(APP))).reason is Reason.IMAGES_NOT_RESOLVED_YET


@pytest.mark.req("PL-750")
@pytest.mark.parametrize(
    ("reference", "said"),
    [("Nginx", "nginx"), ("", "empty"), ("a//b", "//"), ("oci:/srv/layout", "directory"), ("nginx:", "tag")],
)
def test_an_invalid_reference_is_unresolved_and_says_what_is_wrong(reference: str, said: str) -> None:
    decision = decide(look(pod(APP, reference)), answers(index(APP, "amd64")), LookupProgress.ENDED)
    assert decision.reason is Reason.PARTIALLY_CONSTRAINED
    assert decision.images[1].note == "invalid-reference"
    assert said in decision.message
    assert repr(reference) in decision.message


class TestUsableNow:
    """What an admission may decide by without asking."""

    BY_DIGEST = f"quay.io/team/app@sha256:{'b' * 64}"

    @staticmethod
    def usable(reference: str, answer: Inspection, policy: str = "IfNotPresent", **times: Any) -> bool:
        (use,) = uses(pod(reference, policy=policy))
        return usable_now(use, answer, **({"arrived_at": 1000.0, "now": 1000.1} | times))

    @pytest.mark.req("PL-112")
    @pytest.mark.parametrize(
        ("checked_at", "policy", "usable"),
        [
            (999.0, "IfNotPresent", True),
            (400.2, "IfNotPresent", True),
            (399.0, "IfNotPresent", False),
            (999.9, "Always", False),
            (1000.05, "Always", True),
        ],
        ids=["just checked", "within the ttl", "ttl over", "always, checked before", "always, checked since"],
    )
    def test_tags(self, checked_at: float, policy: str, usable: bool) -> None:
        assert self.usable(APP, index(APP, "amd64", checked_at=checked_at), policy) is usable

    @pytest.mark.req("PL-112")
    @pytest.mark.parametrize("policy", ["Always", "IfNotPresent"])
    def test_a_digest_never_ages(self, policy: str) -> None:
        assert self.usable(self.BY_DIGEST, index(self.BY_DIGEST, "amd64", checked_at=1.0), policy)

    @pytest.mark.req("PL-112")
    def test_a_stale_reading_serves_while_the_registry_fails_but_not_always(self) -> None:
        stale = index(APP, "amd64", checked_at=100.0, stale=True)
        assert self.usable(APP, stale, stale_for=1000.0)
        assert not self.usable(APP, stale, stale_for=800.0)
        assert not self.usable(APP, stale, "Always", stale_for=1000.0)

    @pytest.mark.req("PL-112")
    def test_an_error_is_usable_only_for_images_that_may_be_local(self) -> None:
        assert not self.usable(APP, failure(APP))
        assert self.usable(APP, failure(APP), "Never")

    @pytest.mark.req("PL-112")
    def test_content_that_does_not_say_is_no_answer(self) -> None:
        assert not self.usable(APP, unknown(APP))


class TestOutage:
    """The last good reading stands in for a check that failed."""

    @staticmethod
    def failing(code: str = "server-error", age: float = 100.0) -> dict[str, Inspection]:
        good = index(APP, "amd64", "arm64")
        return answers(failure(APP, code, last_good=good, last_good_age=age))

    @pytest.mark.req("PL-407")
    @pytest.mark.parametrize("code", ["server-error", "network", "timeout", "rate-limited"])
    def test_at_once_for_other_policies(self, code: str) -> None:
        decision = decide(look(pod(APP)), self.failing(code))
        assert decision.reason is Reason.ARCHITECTURES_SET
        assert decision.stale

    @pytest.mark.req("PL-407")
    def test_not_beyond_stale_for(self) -> None:
        case = look(pod(APP), using=settings(images_stale_for=60.0))
        assert decide(case, self.failing(age=61.0)).reason is Reason.IMAGES_NOT_RESOLVED_YET

    @pytest.mark.req("PL-407")
    @pytest.mark.parametrize("code", ["not-found", "unauthorized", "malformed", "tls"])
    def test_not_for_other_failures(self, code: str) -> None:
        assert decide(look(pod(APP)), self.failing(code)).reason is Reason.IMAGES_NOT_RESOLVED_YET

    @pytest.mark.req("PL-751")
    def test_a_page_is_told_with_the_host_that_answered_it(self) -> None:
        """Where a redirect led, and for which registry."""
        error = InspectionError.of("not-a-registry", "", status=200, host="login.example")
        answer = msgspec.structs.replace(failure(APP), error=error, source=SourceUsed("quay.io"))
        decision = decide(look(pod(APP)), answers(answer))
        assert "login.example (for quay.io) answered with a web page or the like" in decision.message
        assert decision.unresolved[0].error_class == "transient"

    @pytest.mark.req("PL-407")
    def test_for_always_only_when_the_window_ends(self) -> None:
        document = pod(APP, policy="Always")
        assert decide(look(document), self.failing()).reason is Reason.IMAGES_NOT_RESOLVED_YET
        late = controlled(document, self.failing(), progress=LookupProgress.ENDED)
        assert late.decision.reason is Reason.ARCHITECTURES_SET
        assert late.decision.stale

    @pytest.mark.req("PL-407")
    def test_a_reading_the_inspector_calls_stale_is_treated_alike(self) -> None:
        stale = answers(msgspec.structs.replace(index(APP, "amd64"), stale=True))
        assert decide(look(pod(APP)), stale).stale
        always = look(pod(APP, policy="Always"))
        assert decide(always, stale).reason is Reason.IMAGES_NOT_RESOLVED_YET
        assert decide(always, stale, LookupProgress.ENDED).architectures == ("amd64",)


@pytest.mark.req("PL-854")
@pytest.mark.parametrize(("length", "remembered"), [(images.MAX_REFERENCE, True), (images.MAX_REFERENCE + 1, False)])
def test_a_text_that_no_reference_has_is_not_remembered(length: int, remembered: bool) -> None:
    """Four thousand texts of a megabyte would be all that a webhook may use, and more."""
    text = ("no image " * length)[:length]
    (first,), (second,) = uses(pod(text)), uses(pod(text))
    assert first == second
    assert (first.problem is second.problem) is remembered


@pytest.mark.req("PL-854")
@pytest.mark.parametrize(("count", "remembered"), [(images.MAX_ENTRIES, True), (images.MAX_ENTRIES + 1, False)])
def test_the_platforms_of_a_very_long_index_are_not_remembered(count: int, remembered: bool) -> None:
    """The memory for readings is bounded by bytes, and must not be kept from letting go of one."""
    stated = answers(index(APP, *(f"x{number}" for number in range(count))))
    (first,), (second,) = (image_facts(uses(pod(APP)), stated, final=False, stale_for=0.0) for _ in range(2))
    assert len(first.platforms) == count
    assert first.platforms == second.platforms
    assert (first.platforms is second.platforms) is remembered


@pytest.mark.req("PL-424")
@pytest.mark.parametrize(
    ("text", "searched", "canonical"),
    [
        ("app:1", False, "docker.io/library/app:1"),
        ("app:1", True, "*/app:1"),
        ("team/app", True, "*/team/app:latest"),
        ("library/app:1", True, "*/library/app:1"),
        ("docker.io/library/app:1", True, "docker.io/library/app:1"),
        ("localhost/app:1", True, "localhost/app:1"),
        ("quay.io:5000/app:1", True, "quay.io:5000/app:1"),
        ("app@sha256:" + "a" * 64, True, "*/app@sha256:" + "a" * 64),
    ],
)
def test_a_short_name_is_an_image_of_its_own_where_nodes_search_for_it(text, searched, canonical):
    """Not Docker Hub's, which may have another one of that name."""
    pod = msgspec.convert({"metadata": {}, "spec": {"containers": [{"name": "a", "image": text}]}}, Pod)
    (use,) = images_of(pod, searched=searched)
    assert use.reference.canonical == canonical
    assert use.text == text
