"""Admissions in, patches out: the pod webhook against facts and registries in memory."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from manual_clock import ManualClock
from placement_world import (
    OPERATOR,
    FakeInspector,
    FakeMutator,
    FakeSecrets,
    FakeWatches,
    cppc,
    facts_of,
    placement_metrics,
    pod,
    policy,
    value,
)

from polyarch.clock import SystemClock
from polyarch.images.pod_mutation import MutationContext, PodMutation, PodMutator
from polyarch.images.pull_secrets import PullSecrets
from polyarch.images.resolver import AdmissionLookups
from polyarch.kube.admission import (
    AdmissionRequest,
    AdmissionResponse,
    GroupVersionKind,
    GroupVersionResource,
    NotAReview,
    Reviewer,
    UserInfo,
)
from polyarch.kube.patches import Operation, apply_patch
from polyarch.objects import Pod
from polyarch.oci.auth.credentials import Document
from polyarch.placement import names
from polyarch.placement.decision import RecordSigner
from polyarch.placement.facts import ClusterFacts
from polyarch.placement.webhook import MAX_CONCURRENT_AUDITS, PodWebhook

pytestmark = pytest.mark.req("PL-100", "PL-104", "PL-111", "PL-115", "PL-116")


class Answer(msgspec.Struct):
    """What the API server gets back."""

    response: dict[str, Any]
    pod: dict[str, Any]
    """The pod after the patch."""

    @property
    def operations(self) -> list[dict[str, Any]]:
        return self.response.get("patch") or []

    @property
    def warnings(self) -> list[str]:
        return self.response.get("warnings") or []

    @property
    def labels(self) -> dict[str, str]:
        return self.pod["metadata"].get("labels") or {}

    @property
    def is_gated(self) -> bool:
        return {"name": names.GATE} in (self.pod["spec"].get("schedulingGates") or [])

    @property
    def decision(self) -> dict[str, Any]:
        return json.loads(self.pod["metadata"]["annotations"][names.DECISION_ANNOTATION])


class Admissions:
    """A webhook process; ``await review(pod)`` is one admission."""

    def __init__(self, *, synced: bool = True, mutator: PodMutator | None = None, **configuration: Any) -> None:
        self.clock = ManualClock(start=1000)
        self.watches = FakeWatches()
        operator = ClusterFacts(self.watches, operator_namespace=OPERATOR, clock=self.clock)
        self.facts = facts_of(self.watches, self.clock, **configuration) if synced else operator
        self.registry = FakeInspector(self.clock)
        self.reader = FakeSecrets()
        self.lives = True
        self.metrics, placement = placement_metrics()
        self.secrets = PullSecrets(self.reader, self.clock)
        self.lookups = AdmissionLookups(self.registry, self.secrets, self.clock, placement.lookups)
        self.webhook = PodWebhook(
            facts=self.facts,
            secrets=self.secrets,
            controller_lives=lambda: self.lives,
            clock=self.clock,
            metrics=placement,
            lookups=self.lookups,
            mutator=mutator,
        )
        self.reviewer: Reviewer[Any] = Reviewer(self.webhook.route(), self.clock)
        self.reviews = 0
        self.is_proven = True
        """The reviews come from an API server."""
        self.denies = False
        """Another feature refuses the pods of this test; placement never does."""

    def review(self, document: dict[str, Any], **request: Any) -> "asyncio.Task[Answer]":
        return asyncio.create_task(self._review(document, **request))

    async def admit(self, document: dict[str, Any], *, seconds: float = 0.0, **request: Any) -> Answer:
        """One admission; time passes until it is answered, but no more than ``seconds``."""
        task = self.review(document, **request)
        await self.clock.run(seconds)
        assert task.done(), "the admission has not been answered yet"
        return task.result()

    async def _review(self, document: dict[str, Any], timeout: float = 5.0, **request: Any) -> Answer:
        self.reviews += 1
        uid = f"review-{self.reviews}"
        body = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": uid,
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "operation": "CREATE",
                "namespace": document["metadata"].get("namespace", "team"),
                "object": document,
                **request,
            },
        }
        answer = await self.reviewer.answer(
            json.dumps(body).encode(),
            timeout=timeout,
            arrived_at=self.clock.monotonic(),
            is_proven=self.is_proven,
        )
        review = json.loads(answer)
        response = review["response"]
        assert response["uid"] == uid
        assert response["allowed"] is not self.denies
        if "patch" in response:
            response["patch"] = msgspec.json.decode(msgspec.json.decode(json.dumps(response["patch"]), type=bytes))
        operations = msgspec.convert(response.get("patch") or [], tuple[Operation, ...])
        return Answer(response, apply_patch(document, operations))

    async def close(self) -> None:
        await self.webhook.close()
        await self.lookups.close()
        await self.secrets.aclose()


@pytest.fixture
async def processes() -> AsyncIterator[Any]:
    made: list[Admissions] = []

    def make(**configuration: Any) -> Admissions:
        made.append(Admissions(**configuration))
        return made[-1]

    yield make
    for each in made:
        await each.close()


@pytest.fixture
async def process(processes) -> Admissions:
    return processes()


# -- inline and gated --------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-110")
async def test_a_pod_whose_images_are_known_is_placed_at_admission(process):
    process.registry.know("app:1", "linux/amd64", "linux/arm64")
    answer = await process.admit(pod("app:1"))
    assert not answer.is_gated
    assert answer.labels[names.SCHEDULING_GATE_LABEL] == names.REMOVED
    assert answer.labels[names.MULTI_ARCH_LABEL] == ""
    assert answer.decision["by"] == "admission"
    assert answer.decision["arch"] == ["amd64", "arm64"]
    assert process.registry.asked == []
    assert process.reader.gets.total() == 0


@pytest.mark.req("PL-802")
async def test_a_warm_admission_waits_for_nothing(process):
    """It is answered within the turn of the loop in which it is read."""
    process.registry.know("app:1", "linux/amd64")
    body = json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u",
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "operation": "CREATE",
                "namespace": "team",
                "object": pod("app:1"),
            },
        }
    ).encode()
    reviewer: Reviewer[Any] = Reviewer(process.webhook.route(), SystemClock())
    answering = reviewer.answer(body, timeout=5.0, arrived_at=SystemClock().monotonic(), is_proven=True)
    task = asyncio.get_running_loop().create_task(answering)
    await asyncio.sleep(0)
    assert task.done()
    assert b'"patch"' in task.result()


@pytest.mark.req("PL-113", "PL-802")
async def test_a_cold_admission_is_answered_when_its_budget_is_used_up(processes):
    process = processes(policy={"inline": {"budget": "200ms"}})
    process.registry.seconds = 3.0
    task = process.review(pod("app:1"))
    await process.clock.run(0.19)
    assert not task.done()
    await process.clock.run(0.01)
    assert task.done()
    assert task.result().is_gated


@pytest.mark.req("PL-105")
async def test_a_pod_whose_images_are_not_known_gets_the_gate_and_nothing_else(processes):
    process = processes(policy={"inline": {"budget": "0s"}})
    document = pod("app:1", schedulingGates=[{"name": "foreign"}], labels={"own": "label"})
    answer = await process.admit(document)
    assert answer.pod["spec"]["schedulingGates"] == [{"name": "foreign"}, {"name": names.GATE}]
    assert answer.labels == {
        "own": "label",
        names.SCHEDULING_GATE_LABEL: names.GATED,
        names.NODE_AFFINITY_LABEL: names.NOT_SET,
    }
    assert "affinity" not in answer.pod["spec"]
    assert process.registry.asked == []


@pytest.mark.req("PL-101", "PL-900")
async def test_fields_we_do_not_know_come_out_as_they_went_in(process):
    process.registry.know("app:1", "linux/amd64")
    document = pod("app:1", brandNewField={"deep": [1, None]})
    answer = await process.admit(document)
    assert answer.pod["spec"] == {**document["spec"], "affinity": answer.pod["spec"]["affinity"]}


@pytest.mark.req("PL-106")
async def test_a_gate_of_ours_on_a_pod_that_is_not_eligible_is_taken_away(process):
    document = pod("app:1", gated=True, annotations={names.SKIP_ANNOTATION: "true"})
    answer = await process.admit(document)
    assert not answer.is_gated
    assert answer.labels[names.SCHEDULING_GATE_LABEL] == names.NOT_SET


@pytest.mark.req("PL-114")
async def test_a_second_call_on_our_own_output_changes_nothing(process):
    process.registry.know("app:1", "linux/amd64")
    first = await process.admit(pod("app:1"))
    second = await process.admit(first.pod)
    assert second.operations == []


@pytest.mark.req("PL-114")
async def test_a_reinvocation_after_another_webhook_changed_the_image_ends_where_a_first_call_would(process):
    process.registry.know("app:1", "linux/amd64")
    process.registry.know("other:1", "linux/s390x")
    first = await process.admit(pod("app:1"))
    first.pod["spec"]["containers"][0]["image"] = "other:1"
    again = await process.admit(first.pod)
    fresh = await process.admit(pod("other:1"))
    assert again.pod == fresh.pod


@pytest.mark.req("PL-114")
async def test_a_reinvocation_with_an_image_that_is_not_known_leaves_no_trace_of_the_first(processes):
    process = processes(policy={"inline": {"budget": "0s"}})
    process.registry.know("app:1", "linux/amd64")
    first = await process.admit(pod("app:1"))
    first.pod["spec"]["containers"][0]["image"] = "other:1"
    again = await process.admit(first.pod)
    assert again.is_gated
    assert "linux" not in json.dumps(again.pod["spec"].get("affinity", {}))
    assert "amd64" not in json.dumps(again.pod)


@pytest.mark.req("PL-107")
async def test_a_dead_controller_means_no_gate_but_a_warning(processes):
    process = processes(policy={"inline": {"budget": "0s"}})
    process.lives = False
    answer = await process.admit(pod("app:1"))
    assert not answer.is_gated
    assert answer.labels[names.SCHEDULING_GATE_LABEL] == names.NOT_SET
    assert answer.response["auditAnnotations"]["decision"].startswith("ControllerUnavailable")
    assert answer.warnings
    assert value(process.metrics, "polyarch_webhook_admissions_total", outcome="unavailable") == 1


@pytest.mark.req("PL-107")
async def test_a_dead_controller_does_not_hinder_inline_placement(process):
    process.lives = False
    process.registry.know("app:1", "linux/amd64")
    assert (await process.admit(pod("app:1"))).decision["reason"] == "ArchitecturesSet"


@pytest.mark.req("PL-107")
async def test_with_hold_a_dead_controller_does_not_let_pods_through(processes):
    process = processes(policy={"inline": {"budget": "0s"}, "onUnresolved": {"action": "hold"}})
    process.lives = False
    assert (await process.admit(pod("app:1"))).is_gated


@pytest.mark.req("PL-107", "PL-118")
async def test_nothing_is_gated_while_the_cppc_is_being_deleted(processes):
    """And the user is told that this is why."""
    process = processes(policy={"inline": {"budget": "0s"}})
    deleting = cppc()
    deleting["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}
    process.watches["clusterpodplacementconfigs"].put(deleting)
    answer = await process.admit(pod("app:1"))
    assert not answer.is_gated
    (warning,) = answer.warnings
    assert "the ClusterPodPlacementConfig is being deleted" in warning
    assert "away" not in warning


@pytest.mark.req("PL-117")
async def test_a_namespace_that_is_not_known_yet_gates_even_known_images(processes):
    override = {"name": "a", "namespaceSelector": {"matchLabels": {"x": "y"}}, "mode": "audit"}
    process = processes(policy={"overrides": [override]})
    process.registry.know("app:1", "linux/amd64")
    assert (await process.admit(pod("app:1"))).is_gated


@pytest.mark.req("PL-110")
async def test_inline_placement_can_be_switched_off(processes):
    process = processes(policy={"inline": {"enabled": False}})
    process.registry.know("app:1", "linux/amd64")
    answer = await process.admit(pod("app:1"))
    assert answer.is_gated
    assert process.registry.asked == []


@pytest.mark.req("PL-110")
async def test_no_common_platform_is_left_to_the_controller_and_the_user_is_warned(process):
    process.registry.know("one:1", "linux/amd64")
    process.registry.know("two:1", "linux/arm64")
    answer = await process.admit(pod("one:1", "two:1"))
    assert answer.is_gated
    assert any("one:1" in warning for warning in answer.warnings)


# -- the budget --------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-113")
async def test_an_answer_within_the_budget_places_the_pod(process):
    process.registry.seconds = 0.09
    process.registry.set("app:1", "linux/arm64")
    answer = await process.admit(pod("app:1"), seconds=0.1)
    assert answer.decision["arch"] == ["arm64"]


@pytest.mark.req("PL-113")
async def test_images_are_asked_for_in_parallel(process):
    process.registry.seconds = 0.09
    images = [f"app-{number}:1" for number in range(20)]
    for image in images:
        process.registry.set(image, "linux/arm64")
    answer = await process.admit(pod(*images), seconds=0.1)
    assert not answer.is_gated


@pytest.mark.req("PL-113")
async def test_what_misses_the_budget_gates_the_pod(process):
    process.registry.seconds = 0.2
    process.registry.set("app:1", "linux/arm64")
    answer = await process.admit(pod("app:1"), seconds=0.1)
    assert answer.is_gated


@pytest.mark.req("PL-113")
async def test_the_budget_never_exceeds_half_of_the_requests_own_timeout(processes):
    process = processes(policy={"inline": {"budget": "2s"}})
    process.registry.seconds = 0.7
    process.registry.set("app:1", "linux/arm64")
    task = process.review(pod("app:1"), timeout=1.0)
    await process.clock.run(0.5)
    assert task.done()
    assert task.result().is_gated


@pytest.mark.req("PL-113")
@pytest.mark.parametrize("reason", ["failed lately", "host is busy", "others wait"])
async def test_no_budget_is_spent_where_it_would_be_wasted(process, reason):
    process.registry.set("app:1", "linux/arm64")
    if reason == "failed lately":
        process.registry.set("app:1", error="network")
        await process.admit(pod("app:1"), seconds=0.1)
    elif reason == "host is busy":
        process.registry.busy.add("docker.io")
    else:
        process.registry.seconds = 10.0
        waiting = [process.review(pod(f"app-{number}:1")) for number in range(64)]
        await process.clock.settle()
    asked = len(process.registry.asked)
    answer = await process.admit(pod("app:1"))
    assert answer.is_gated
    assert len(process.registry.asked) == asked
    if reason == "others wait":
        await process.clock.run(1)
        assert all(task.result().is_gated for task in waiting)


@pytest.mark.req("PL-113")
async def test_an_image_that_failed_is_asked_for_again_after_thirty_seconds(process):
    process.registry.set("app:1", error="network")
    await process.admit(pod("app:1"))
    process.registry.set("app:1", "linux/arm64")
    process.clock.advance(30)
    assert not (await process.admit(pod("app:1"))).is_gated


@pytest.mark.req("PL-112")
async def test_always_is_checked_during_the_admission(process):
    process.registry.know("app:1", "linux/amd64", age=10)
    process.registry.set("app:1", "linux/arm64")
    answer = await process.admit(pod("app:1", pull="Always"))
    assert process.registry.count("app:1") == 1
    assert answer.decision["arch"] == ["arm64"]


@pytest.mark.req("PL-112")
async def test_a_digest_needs_no_check(process):
    image = "app@sha256:" + "a" * 64
    process.registry.know(image, "linux/amd64")
    answer = await process.admit(pod(image, pull="Always"))
    assert answer.decision["arch"] == ["amd64"]
    assert process.registry.asked == []


@pytest.mark.req("PL-407")
async def test_a_stale_reading_places_the_pod_while_the_registry_is_away(process):
    process.registry.know("app:1", "linux/s390x", age=3600)
    process.registry.set("app:1", error="network")
    first = await process.admit(pod("app:1"))
    assert first.decision["arch"] == ["s390x"]
    assert first.decision["stale"] is True
    asked = len(process.registry.asked)
    second = await process.admit(pod("app:1"))
    assert second.pod == first.pod
    assert len(process.registry.asked) == asked, "no budget is spent on an image that failed a moment ago"


@pytest.mark.req("PL-306")
async def test_a_bug_met_in_an_image_gates_the_pod(process):
    process.registry.set("app:1", raises=RuntimeError("bug"))
    assert (await process.admit(pod("app:1"))).is_gated
    assert value(process.metrics, "polyarch_internal_errors_total") == 1


@pytest.mark.req("PL-102")
async def test_a_pull_secret_is_read_once_within_the_budget(process):
    image = process.registry.set("registry.example/app:1", "linux/amd64")
    process.registry.needs_credentials.add(image)
    process.reader.put("team", "pull")
    for _ in range(3):
        answer = await process.admit(pod("registry.example/app:1", secrets=["pull"]))
        assert not answer.is_gated
    assert process.reader.gets["team", "pull"] == 1


@pytest.mark.req("PL-109")
async def test_nothing_is_left_behind_by_a_dry_run(process):
    """The look-up that it began is shared and bounded like any other; nothing waits for the pod."""
    process.registry.seconds = 60.0
    answer = await process.admit(pod("app:1"), seconds=0.1, dryRun=True)
    assert answer.is_gated
    assert process.registry.under_way == 1
    await process.clock.run(30)
    assert process.registry.under_way == 0
    assert process.clock.sleepers == 0
    assert len(asyncio.all_tasks()) == 1


# -- left alone --------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-103")
async def test_without_a_cppc_pods_pass_unchanged(process):
    process.watches["clusterpodplacementconfigs"].remove("cluster")
    answer = await process.admit(pod("app:1", nodeSelector={names.ARCH_KEY: "amd64"}))
    assert answer.operations == []
    assert answer.warnings == []


@pytest.mark.req("PL-103", "PL-900")
async def test_an_architecture_selector_without_a_cppc_is_no_error(process):
    process.watches["clusterpodplacementconfigs"].remove("cluster")
    answer = await process.admit(pod("app:1", nodeSelector={names.ARCH_KEY: "amd64"}))
    assert answer.response["allowed"] is True
    assert value(process.metrics, "polyarch_webhook_admissions_total", outcome="error") == 0


@pytest.mark.req("PL-103")
async def test_before_the_caches_are_synced_pods_pass_unchanged(processes):
    process = processes(synced=False)
    assert (await process.admit(pod("app:1"))).operations == []


@pytest.mark.req("PL-201")
async def test_excluded_namespaces_are_left_wholly_untouched(processes):
    process = processes(policy={"excludedNamespaces": ["vendor-*"]})
    answer = await process.admit(pod("app:1", namespace="vendor-x", labels={names.SCHEDULING_GATE_LABEL: "mine"}))
    assert answer.operations == []


@pytest.mark.req("PL-118")
async def test_an_opt_out_that_does_not_count_is_told(process):
    process.registry.know("app:1", "linux/amd64")
    answer = await process.admit(pod("app:1", annotations={names.SKIP_ANNOTATION: "yes"}))
    assert answer.decision["reason"] == "ArchitecturesSet"
    assert any(names.SKIP_ANNOTATION in warning for warning in answer.warnings)


@pytest.mark.req("PL-119")
async def test_the_audit_log_gets_reason_values_and_path(process):
    process.registry.know("app:1", "linux/amd64", "linux/arm64")
    answer = await process.admit(pod("app:1"))
    assert answer.response["auditAnnotations"] == {"decision": "ArchitecturesSet amd64,arm64 inline"}


@pytest.mark.req("PL-750")
@pytest.mark.parametrize(
    "change",
    [
        {"resource": {"group": "apps", "version": "v1", "resource": "deployments"}},
        {"operation": "UPDATE"},
        {"subResource": "binding"},
    ],
    ids=["another resource", "another operation", "a subresource"],
)
async def test_a_review_of_something_else_is_allowed_without_a_patch(process, change):
    answer = await process.admit(pod("app:1"), **change)
    assert answer.operations == []


@pytest.mark.req("PL-103", "PL-750")
async def test_a_pod_with_fields_of_unexpected_types_is_allowed_with_a_warning(process):
    document = pod("app:1")
    document["spec"]["containers"] = "not a list"
    answer = await process.admit(document)
    assert answer.operations == []
    assert answer.warnings
    assert value(process.metrics, "polyarch_webhook_admissions_total", outcome="error") == 1


@pytest.mark.req("PL-750")
async def test_what_is_no_review_is_refused_in_a_sentence(process):
    with pytest.raises(NotAReview, match="AdmissionReview"):
        await process.reviewer.answer(b'{"kind": "Pod"}', timeout=5, arrived_at=0)


@pytest.mark.req("PL-103")
async def test_a_bug_of_ours_lets_the_pod_pass_with_a_warning(process):
    def bug(*_: Any, **__: Any) -> AdmissionResponse:
        raise RuntimeError("bug")

    process.registry.peek = bug  # type: ignore[method-assign]
    answer = await process.admit(pod("app:1"))
    assert answer.operations == []
    assert answer.warnings
    assert value(process.metrics, "polyarch_webhook_admissions_total", outcome="error") == 1
    assert value(process.metrics, "polyarch_internal_errors_total") == 1


@pytest.mark.req("PL-750")
async def test_an_invalid_reference_is_gated(process):
    assert (await process.admit(pod("Upper/Case:1"))).is_gated
    assert process.registry.asked == []


# -- audit -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-130")
async def test_audit_writes_the_annotation_and_nothing_else(processes):
    process = processes(policy={"mode": "audit"})
    process.registry.know("app:1", "linux/amd64")
    answer = await process.admit(pod("app:1"))
    assert [operation["path"] for operation in answer.operations] == ["/metadata/annotations"]
    assert answer.decision["mode"] == "audit"
    assert answer.decision["reason"] == "ArchitecturesSet"
    assert answer.decision["arch"] == ["amd64"]
    labels = {"reason": "ArchitecturesSet", "by": "admission", "mode": "audit"}
    assert value(process.metrics, "polyarch_placement_decisions_total", **labels) == 1


@pytest.mark.req("PL-130")
async def test_unknown_images_are_looked_up_in_the_background_and_counted_when_known(processes):
    process = processes(policy={"mode": "audit"})
    process.registry.seconds = 3.0
    process.registry.set("app:1", "linux/amd64")
    answer = await process.admit(pod("app:1"))
    assert answer.decision["reason"] == "ImagesNotResolvedYet"
    labels = {"reason": "ArchitecturesSet", "by": "admission", "mode": "audit"}
    assert value(process.metrics, "polyarch_placement_decisions_total", **labels) == 0
    await process.clock.run(4)
    assert value(process.metrics, "polyarch_placement_decisions_total", **labels) == 1


@pytest.mark.req("PL-130", "PL-854")
async def test_audits_beyond_the_bound_are_counted_as_dropped(processes):
    process = processes(policy={"mode": "audit"})
    process.registry.seconds = 3.0
    for number in range(MAX_CONCURRENT_AUDITS + 3):
        await process.admit(pod(f"app{number}:1"))
    assert value(process.metrics, "polyarch_placement_audits_dropped_total") == 3


@pytest.mark.req("PL-131")
async def test_a_pod_that_already_carries_our_gate_is_finished_as_in_enforce(processes):
    process = processes(policy={"mode": "audit"})
    process.registry.know("app:1", "linux/amd64")
    answer = await process.admit(pod("app:1", gated=True))
    assert not answer.is_gated
    assert answer.decision["mode"] == "enforce"


# -- what another feature adds -----------------------------------------------------------------------------------------

TOLERATION = {"key": "supported-arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}
TOLERATED = PodMutation(
    (
        Operation("add", "/metadata/annotations", {"polyarch.dev/tolerations": "arm64"}),
        Operation("add", "/spec/tolerations", [TOLERATION]),
    ),
    warnings=("said by the other one",),
)


@pytest.mark.req("PL-303", "TN-003")
async def test_what_is_added_goes_into_the_same_patch(processes):
    """One patch, in the order labels, annotations, tolerations, affinity; the annotations of both."""
    mutator = FakeMutator(TOLERATED)
    process = processes(mutator=mutator)
    process.registry.know("app:1", "linux/amd64", "linux/arm64")
    answer = await process.admit(pod("app:1"))
    assert [each["path"] for each in answer.operations] == [
        "/metadata/labels",
        "/metadata/annotations",
        "/spec/tolerations",
        "/spec/affinity",
    ]
    assert answer.pod["metadata"]["annotations"]["polyarch.dev/tolerations"] == "arm64"
    assert answer.decision["reason"] == "ArchitecturesSet"
    assert answer.warnings == ["said by the other one"]
    assert mutator.asked == [("app", ["app:1"], MutationContext())], "it decides by the same answers"


@pytest.mark.req("TN-040", "TN-046")
async def test_the_other_feature_is_told_that_placement_gates_the_pod(processes):
    """Then it adds no gate of its own. Both wait for registries until the same time."""
    mutator = FakeMutator(PodMutation())
    process = processes(mutator=mutator)
    process.registry.seconds = 3.0
    process.registry.set("cold:1", "linux/amd64")
    arrived = process.clock.monotonic()
    assert (await process.admit(pod("cold:1"), seconds=0.2)).is_gated
    assert mutator.asked == [("app", [], MutationContext(gated=True))]
    assert mutator.until == [arrived + process.facts.of("team").settings.inline_budget]


@pytest.mark.req("TN-040")
@pytest.mark.parametrize(
    ("namespace", "change"),
    [
        pytest.param("kube-system", {}, id="in a system namespace"),
        pytest.param("team", {"nodeSelector": {"kubernetes.io/arch": "arm64"}}, id="that has an architecture already"),
    ],
)
async def test_a_pod_that_placement_leaves_alone_gets_the_addition(processes, namespace, change):
    """Exclusion from one feature does not exempt from the other one."""
    process = processes(mutator=FakeMutator(TOLERATED))
    document = pod("app:1", namespace=namespace)
    document["spec"] |= change
    answer = await process.admit(document, namespace=namespace)
    assert answer.pod["spec"]["tolerations"] == [TOLERATION]
    assert process.registry.asked == []


@pytest.mark.req("TN-003")
async def test_without_a_configuration_of_placement_only_the_addition_is_made(processes):
    """While placement is being removed the API server may still call its webhook."""
    process = processes(mutator=FakeMutator(TOLERATED))
    process.watches["clusterpodplacementconfigs"].remove("cluster")
    answer = await process.admit(pod("app:1"))
    assert [each["path"] for each in answer.operations] == ["/metadata/annotations", "/spec/tolerations"]


@pytest.mark.req("TN-047")
async def test_a_pod_that_the_other_feature_refuses_is_refused_with_its_words(processes):
    """403, and no patch."""
    process = processes(mutator=FakeMutator(PodMutation(denial="app:1 and old:1 have no architecture in common")))
    process.denies = True
    process.registry.know("app:1", "linux/amd64")
    answer = await process.admit(pod("app:1"))
    assert answer.response["status"] == {"code": 403, "message": "app:1 and old:1 have no architecture in common"}
    assert answer.operations == []


# -- figures -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-700")
async def test_what_is_counted_for_admissions(process):
    process.registry.know("app:1", "linux/amd64")
    await process.admit(pod("app:1"))
    process.registry.seconds = 1.0
    await process.admit(pod("cold:1"), seconds=0.2)
    metrics = process.metrics
    assert value(metrics, "mto_ppo_wh_pods_processed_total") == 2
    assert value(metrics, "mto_ppo_wh_pods_gated_total") == 1
    assert value(metrics, "mto_ppo_wh_response_time_seconds_count") == 2
    assert value(metrics, "polyarch_webhook_admissions_total", outcome="inline") == 1
    assert value(metrics, "polyarch_webhook_admissions_total", outcome="gated") == 1
    assert value(metrics, "polyarch_webhook_seconds_count", outcome="gated") == 1


@pytest.mark.req("PL-701")
def test_every_family_is_exported_before_anything_happened():
    metrics, _ = placement_metrics()
    exposed = metrics.render()[0].decode()
    for name in (
        "mto_ppo_ctrl_time_to_process_pod_seconds",
        "mto_ppo_ctrl_time_to_process_gated_pod_seconds",
        "mto_ppo_ctrl_time_to_inspect_image_seconds",
        "mto_ppo_ctrl_time_to_inspect_pod_images_seconds",
        "mto_ppo_ctrl_processed_pods_total",
        "mto_ppo_ctrl_failed_image_inspection_total",
        "mto_ppo_wh_pods_processed_total",
        "mto_ppo_wh_pods_gated_total",
        "mto_ppo_wh_response_time_seconds",
        "mto_ppo_pods_gated",
        "mto_inspection_cache_size",
        "mto_cache_hit_processing_duration_seconds",
        "mto_cache_miss_processing_duration_seconds",
        "mto_enoexecevents_total",
        "mto_enoexecevents_invalid_total",
    ):
        assert f"\n{name} " in exposed or f'\n{name}_bucket{{le="64.0"}} ' in exposed, name


@pytest.mark.req("PL-801")
async def test_the_warm_path_awaits_nothing(process):
    """Not one turn of the event loop lies between the request and its answer."""
    process.registry.know("app:1", "linux/amd64")
    request = AdmissionRequest(
        uid="u",
        operation="CREATE",
        object=msgspec.convert(pod("app:1"), Pod),
        old_object=None,
        kind=GroupVersionKind(),
        resource=GroupVersionResource(),
        sub_resource="",
        name="",
        namespace="team",
        dry_run=False,
        user=UserInfo(),
        timeout_seconds=5.0,
        arrived_at=process.clock.monotonic(),
        is_proven=True,
        body=b"",
    )
    with pytest.raises(StopIteration) as ended:
        process.webhook.handle(request).send(None)
    assert ended.value.value.patch


@pytest.mark.req("PL-114", "PL-853")
@pytest.mark.parametrize("sent", [False, True], ids=["second round of an admission", "copy of a placed pod"])
async def test_a_record_on_a_pod_with_other_images(process, sent):
    """The API server says which annotations the pod's creator sent."""
    process.facts.take(RecordSigner([b"k" * 32]))
    process.registry.know("before:1", "linux/amd64")
    process.registry.know("after:1", "linux/s390x")
    document = (await process.admit(pod("before:1"))).pod
    document["spec"]["containers"][0]["image"] = "after:1"
    annotations = {"f:annotations": {f"f:{names.DECISION_ANNOTATION}": {}}} if sent else {}
    fields = {"f:metadata": {"f:labels": {}, **annotations}}
    document["metadata"]["managedFields"] = [{"manager": "kubectl", "operation": "Update", "fieldsV1": fields}]
    answer = await process.admit(document)
    required = answer.pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    [expression] = required["nodeSelectorTerms"][0]["matchExpressions"]
    assert expression["values"] == (["amd64"] if sent else ["s390x"])
    assert bool(answer.warnings) is sent


@pytest.mark.req("PL-407", "PL-423", "PL-852", "RG-111")
async def test_what_the_global_secret_opened_does_not_stand_in_for_a_failure_once_it_is_gone(process):
    """The failure of a moment ago was remembered with the reading that the secret opened, and
    for half a minute every namespace got its architectures."""
    auths = {"registry.example": {"username": "user", "password": "s3cr3t"}}
    process.secrets.set_global([Document("the global secret", msgspec.json.encode({"auths": auths}))])
    process.registry.needs_credentials.add(process.registry.set("registry.example/private:1", "linux/arm64"))
    assert not (await process.admit(pod("registry.example/private:1"))).is_gated
    process.registry.set("registry.example/private:1", error="network")
    assert (await process.admit(pod("registry.example/private:1"))).decision["stale"] is True
    process.secrets.set_global([])
    process.registry.kept.clear()  # its proofs are dropped
    process.lookups.revoke()
    answer = await process.admit(pod("registry.example/private:1", namespace="other"))
    assert answer.is_gated


@pytest.mark.req("PL-407", "PL-421", "RG-111")
async def test_what_pull_secrets_opened_stands_in_for_no_failure_once_none_may_be_read(process):
    """``images.secretAccess: none`` counts at once, also for the failures of a moment ago."""
    image = "registry.example/private:1"
    process.reader.put("team", "pull")
    process.registry.needs_credentials.add(process.registry.set(image, "linux/arm64"))
    assert not (await process.admit(pod(image, secrets=["pull"]))).is_gated
    process.registry.set(image, error="network")
    assert (await process.admit(pod(image, secrets=["pull"]))).decision["stale"] is True
    process.watches["placementpolicies"].put(policy(images={"secretAccess": "none"}))
    process.registry.kept.clear()  # without the secrets there is no proof
    assert (await process.admit(pod(image, secrets=["pull"]))).is_gated


# -- reviews that anybody may have made up ----------------------------------------------------------------------------


@pytest.mark.req("PL-871")
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="enforce"),
        pytest.param({"mode": "audit"}, id="audit"),
        pytest.param({"onUnresolved": {"action": "hold"}}, id="hold"),
        pytest.param({"inline": {"budget": "1s"}}, id="with a budget"),
    ],
)
async def test_a_review_without_proof_uses_no_credentials_and_tells_nothing_of_an_image(settings):
    """Whatever is known, and whatever the policy is."""
    process = Admissions(policies=[policy(**settings)])
    process.facts.take(RecordSigner([b"k" * 32]))
    process.registry.know("private:1", "linux/arm64")
    process.is_proven = False
    answer = await process.admit(pod("private:1", "cold:1", imagePullSecrets=[{"name": "pull"}]), seconds=5)
    assert "arm64" not in json.dumps(answer.response)
    assert '"sig"' not in json.dumps(answer.response)
    assert process.registry.asked == []
    assert process.reader.gets == {}
    await process.close()


@pytest.mark.req("PL-871")
async def test_a_review_without_proof_gates_the_pod_so_that_the_controller_decides():
    process = Admissions()
    process.registry.know("known:1", "linux/arm64")
    process.is_proven = False
    assert (await process.admit(pod("known:1"))).is_gated
    process.is_proven = True
    assert not (await process.admit(pod("known:1"))).is_gated, "nothing of the first answer is remembered"
    process.is_proven = False
    assert (await process.admit(pod("known:1"))).is_gated, "and nothing of the second one is told"
    process.lives = False
    assert not (await process.admit(pod("known:1"))).is_gated, "nobody would remove the gate"
    await process.close()
