"""Whatever arrives at the webhook's port ends in an answer, or in one refusal of ours."""

import asyncio
import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyarch.clock import SystemClock
from polyarch.kube.admission import AdmissionRequest, AdmissionResponse, NotAReview, Reviewer, Route
from polyarch.kube.resources import PODS
from polyarch.objects import Pod
from polyarch.placement.admission import decision_cache
from polyarch.placement.rules import PodFacts
from polyarch.placement.settings import Settings

REVIEW: dict[str, Any] = {
    "kind": "AdmissionReview",
    "apiVersion": "admission.k8s.io/v1",
    "request": {
        "uid": "0b5ad7f5-5a5b-4b6e-8f3f-0f5f0f5f0f5f",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "demo",
        "operation": "CREATE",
        "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
        "object": {
            "metadata": {"generateName": "web-", "labels": {"app": "web"}, "annotations": {}},
            "spec": {
                "containers": [{"name": "c", "image": "nginx:1", "env": [{"name": "A", "value": "b"}]}],
                "volumes": [{"name": "v", "image": {"reference": "quay.io/a/b:1"}}],
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {}]
                        }
                    }
                },
            },
        },
        "oldObject": None,
        "dryRun": False,
    },
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


async def _handle(request: AdmissionRequest[Pod]) -> AdmissionResponse:
    """The rules with nothing known: what a pod of any shape goes through."""
    look = decision_cache().get(
        PodFacts(pod=request.object, namespace=request.namespace, settings=Settings(), sources=())
    )
    admission = look.admission({}, controller_available=True, deprovisioning=False)
    return AdmissionResponse(patch=admission.operations, warnings=admission.warnings)


def _answered(body: bytes) -> dict[str, Any] | None:
    """The response; None for the refusal that becomes HTTP 400."""
    clock = SystemClock()
    route = Route(path="/pods", name="placement", type=Pod, handler=_handle, on_error="allow", resource=PODS)
    try:
        encoded = asyncio.run(Reviewer(route, clock).answer(body, timeout=10, arrived_at=clock.monotonic()))
    except NotAReview:
        return None
    response: dict[str, Any] = json.loads(encoded)["response"]
    return response


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += _places(inner, (*path, key))
    return found


@pytest.mark.req("PL-750", "RG-163")
@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_refused_and_nothing_else(body: bytes) -> None:
    """HTTP 400 with a sentence, never a stack trace."""
    assert _answered(body) is None


@pytest.mark.req("PL-103")
@settings(max_examples=400, deadline=None)
@given(st.sampled_from(_places(REVIEW)), JSON)
def test_a_review_with_any_value_in_any_place_is_allowed_or_refused_as_no_review(
    place: tuple[Any, ...], value: Any
) -> None:
    """A pod that is not understood is allowed; only what is no AdmissionReview v1 is refused."""
    review = copy.deepcopy(REVIEW)
    parent = review
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    response = _answered(json.dumps(review).encode())
    if response is None:
        assert place[:2] != ("request", "object"), "what a user wrote is never refused"
        return
    assert response["allowed"] is True
    if place[:2] == ("request", "object"):
        assert response["uid"] == REVIEW["request"]["uid"]


@pytest.mark.req("PL-854")
@settings(max_examples=200, deadline=None)
@given(st.integers(min_value=1, max_value=len(json.dumps(REVIEW)) - 1))
def test_a_review_cut_off_anywhere_is_refused(length: int) -> None:
    """Half a body never becomes half a decision."""
    assert _answered(json.dumps(REVIEW).encode()[:length]) is None
