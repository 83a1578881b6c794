"""Fingerprints of saved objects against saved pods."""

from typing import Any

import msgspec
import pytest

from polyarch.numa.api.topology import NodeResourceTopology
from polyarch.numa.facts import Container, ListedPod
from polyarch.numa.fingerprint import (
    ApiPod,
    SavedPod,
    StatusFileContent,
    fingerprint,
    saved_pod_of_api,
    saved_pods_of_kubelet,
    saved_pods_of_status_file,
    verify_fingerprint,
)

DEVICE, NOWHERE = "vendor.example/nic", "vendor.example/nowhere"


def topology(
    text: str | None, method: str | None = "all", *, exclude: str | None = None, **more: Any
) -> NodeResourceTopology:
    attributes = {
        "nodeTopologyPodsFingerprint": text,
        "nodeTopologyPodsFingerprintMethod": method,
        "numa.polyarch.dev/pod-exclude": exclude,
    }
    return msgspec.convert(
        {
            "metadata": {"name": "node-a", **more},
            "attributes": [{"name": name, "value": value} for name, value in attributes.items() if value is not None],
            "zones": [
                {"name": "node-0", "type": "Node", "resources": [{"name": DEVICE, "capacity": "1"}]},
                {"name": "node-1", "type": "Node", "resources": [{"name": NOWHERE, "capacity": "0"}]},
            ],
        },
        NodeResourceTopology,
    )


PODS = [SavedPod("demo", "web"), SavedPod("demo", "cache", exclusive=False), SavedPod("demo", "done", terminal=True)]


def of(*names: str) -> str:
    return fingerprint([("demo", name) for name in names])


@pytest.mark.req("NE-082", "NE-161")
@pytest.mark.parametrize(
    ("published", "verdict"),
    [
        (of("cache", "web"), "ok"),
        (of("web", "done", "cache"), "ok"),
        (of("web"), "mismatch"),
        (of("cache", "web").upper().replace("PFP0V001", "pfp0v001"), "mismatch"),
        (of("cache", "web").replace("v001", "v002"), "incompatible-version"),
        ("pfp0v001", "malformed"),
        ("sha256:0000000000000000", "malformed"),
    ],
)
def test_a_fingerprint_of_all_pods_that_a_kubelet_may_list(published: str, verdict: str):
    assert verify_fingerprint(topology(published), PODS).verdict == verdict


@pytest.mark.req("NE-161")
def test_by_the_other_method_pods_with_exclusive_resources_count():
    method = "with-exclusive-resources"
    assert verify_fingerprint(topology(of("web"), method), PODS).verdict == "ok"
    assert verify_fingerprint(topology(of("web", "cache"), method), PODS).verdict == "mismatch"


@pytest.mark.req("NE-161")
def test_a_device_counts_if_a_cell_has_it():
    pods = [
        SavedPod("demo", "nic", exclusive=False, devices=frozenset({DEVICE})),
        SavedPod("demo", "licence", exclusive=False, devices=frozenset({"vendor.example/licence"})),
        SavedPod("demo", "nowhere", exclusive=False, devices=frozenset({NOWHERE})),
    ]
    assert verify_fingerprint(topology(of("nic"), "with-exclusive-resources"), pods).verdict == "ok"


@pytest.mark.req("NE-161")
def test_pods_that_the_object_says_are_left_out_do_not_count():
    exclude = '[{"namespacePattern":"demo","namePattern":"c*"}]'
    assert verify_fingerprint(topology(of("web"), exclude=exclude), PODS).verdict == "ok"
    for damaged in ("damaged", '[{"x":' + "[" * 50_000 + "]" * 50_000 + "}]"):
        assert verify_fingerprint(topology(of("web"), exclude=damaged), PODS).verdict == "mismatch"


@pytest.mark.req("NE-161")
def test_a_mismatch_says_what_was_expected():
    found = verify_fingerprint(topology(of("web")), PODS)
    assert found.note == f"2 pods by method all: {of('web', 'cache')}"
    assert verify_fingerprint(topology(of("other")), PODS[:1]).note == f"1 pod by method all: {of('web')}"


@pytest.mark.req("NE-161")
def test_without_pods_the_form_alone_is_judged():
    found = verify_fingerprint(topology(of("web")), None)
    assert (found.verdict, found.note) == ("ok", "the form alone, as no pods are given")
    assert verify_fingerprint(topology("pfp0v002ef46db3751d8e999"), None).verdict == "incompatible-version"


@pytest.mark.req("NE-161")
def test_an_object_of_an_older_exporter_has_its_fingerprint_in_an_annotation():
    annotations = {"topology.node.k8s.io/fingerprint": of("web", "cache")}
    assert verify_fingerprint(topology(None, None, annotations=annotations), PODS).verdict == "ok"


@pytest.mark.req("NE-161")
def test_an_object_without_a_fingerprint_is_not_ok():
    found = verify_fingerprint(topology(None), PODS)
    assert (found.verdict, found.note) == ("malformed", "the object has no fingerprint")


# -- what saved pods say -----------------------------------------------------------------------------------------------


def api_pod(
    quality: str, *requests: dict[str, Any], phase: str = "Running", sidecar: dict[str, Any] | None = None
) -> SavedPod:
    pod = {
        "metadata": {"name": "web", "namespace": "demo"},
        "spec": {
            "nodeName": "node-a",
            "containers": [{"resources": {"limits": each}} for each in requests],
            "initContainers": [
                {"resources": {"limits": {"cpu": "4", "memory": "1Gi"}}},
                *([{"restartPolicy": "Always", "resources": {"requests": sidecar}}] if sidecar else []),
            ],
        },
        "status": {"phase": phase, "qosClass": quality},
    }
    return saved_pod_of_api(msgspec.convert(pod, ApiPod))


@pytest.mark.req("NE-161")
@pytest.mark.parametrize(
    ("quality", "asked", "exclusive"),
    [
        ("Guaranteed", {"cpu": "2"}, True),
        ("Guaranteed", {"cpu": 2}, True),
        ("Guaranteed", {"cpu": "2000m"}, True),
        ("Guaranteed", {"cpu": "1500m"}, False),
        ("Guaranteed", {"cpu": "0"}, False),
        ("Guaranteed", {"cpu": "some"}, False),
        ("Guaranteed", {"cpu": "500m", "memory": "1Gi"}, True),
        ("Guaranteed", {"cpu": "500m", "memory": "0"}, False),
        ("Guaranteed", {"cpu": "500m", "hugepages-2Mi": "4Mi"}, True),
        ("Burstable", {"cpu": "2", "memory": "1Gi"}, False),
        ("", {"cpu": "2"}, False),
    ],
)
def test_what_a_pod_of_the_api_holds_is_told_from_its_spec(quality: str, asked: dict[str, Any], exclusive: bool):
    assert api_pod(quality, {"cpu": "100m"}, asked).exclusive is exclusive


@pytest.mark.req("NE-161")
def test_a_sidecar_counts_and_an_init_container_that_ends_does_not():
    assert not api_pod("Guaranteed", {"cpu": "100m"}).exclusive
    assert api_pod("Guaranteed", {"cpu": "100m"}, sidecar={"cpu": "1"}).exclusive


@pytest.mark.req("NE-161")
def test_devices_and_ends_of_a_pod_of_the_api():
    pod = api_pod("Burstable", {"cpu": "1", DEVICE: "1"}, phase="Failed")
    assert (pod.devices, pod.terminal) == (frozenset({DEVICE}), True)


@pytest.mark.req("NE-161")
def test_a_status_file_and_a_listing_say_exactly_which_pods_count():
    status = msgspec.convert({"nodeName": "node-a", "pods": [{"Namespace": "demo", "Name": "web"}]}, StatusFileContent)
    assert saved_pods_of_status_file(status) == [SavedPod("demo", "web")]
    listed = [ListedPod("demo", "web", (Container(name="c", cpus=(1,)),)), ListedPod("demo", "cache")]
    assert [each.exclusive for each in saved_pods_of_kubelet(listed)] == [True, False]
