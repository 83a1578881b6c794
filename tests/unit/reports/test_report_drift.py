"""What runs and what would run next."""

import pytest
from report_world import (
    BOTH,
    DIGEST,
    OLD_DIGEST,
    ONLY,
    READINGS,
    cluster,
    pod,
    reading,
    report_of,
    workload,
)

from polyarch.reports.facts import ImageInspections
from polyarch.reports.verdicts import running_reference, to_ask

REPOSITORY = "quay.io/acme/only"


@pytest.mark.req("RP-004")
def test_an_image_that_was_pushed_again_with_other_platforms_is_drift() -> None:
    running = pod("w-1", "m1", image_id=f"{REPOSITORY}@{OLD_DIGEST}")
    old = reading(f"{REPOSITORY}@{OLD_DIGEST}", "linux/amd64", "linux/arm64", digest=OLD_DIGEST)
    (row,) = report_of(cluster(workload("w", ONLY, pods=(running,))), old).workloads
    (drift,) = row.drift
    assert (drift.running_platforms, drift.next_platforms) == (("amd64", "arm64"), ("amd64",))


@pytest.mark.req("RP-004")
def test_the_same_digest_and_the_digest_of_a_child_are_no_drift_and_cost_no_question() -> None:
    child = "sha256:" + f"{2:064x}"
    pods = (pod("w-1", "a1", image_id=f"{REPOSITORY}@{DIGEST}"), pod("w-2", "a1", image_id=f"{REPOSITORY}@{child}"))
    facts = cluster(workload("w", ONLY, pods=pods))
    assert to_ask(facts, ImageInspections(READINGS)) == ()
    assert report_of(facts).workloads[0].drift == ()


@pytest.mark.req("RP-004")
def test_a_child_of_several_is_no_drift() -> None:
    child = "sha256:" + f"{3:064x}"
    facts = cluster(workload("w", BOTH, pods=(pod("w-1", "m1", image_id=f"quay.io/acme/both@{child}"),)))
    assert to_ask(facts, ImageInspections(READINGS)) == ()


@pytest.mark.req("RP-004")
def test_another_digest_is_asked_about_once() -> None:
    pods = tuple(pod(f"w-{at}", "a1", image_id=f"docker-pullable://{REPOSITORY}@{OLD_DIGEST}") for at in range(3))
    facts = cluster(workload("w", ONLY, pods=pods))
    assert to_ask(facts, ImageInspections(READINGS)) == (f"{REPOSITORY}@{OLD_DIGEST}",)


@pytest.mark.req("RP-004")
def test_what_only_another_namespace_knows_is_asked_about() -> None:
    running = f"{REPOSITORY}@{OLD_DIGEST}"
    facts = cluster(workload("w", ONLY, pods=(pod("w-1", "a1", image_id=running),)))
    for namespace, asked in (("bank", (running,)), ("shop", ()), ("", ())):
        known = reading(running, "linux/arm64", namespace=namespace)
        assert to_ask(facts, ImageInspections((*READINGS, known))) == asked


@pytest.mark.req("RP-004")
def test_an_image_id_that_names_no_repository_says_nothing() -> None:
    assert running_reference("sha256:" + "5" * 64) == ""
    assert running_reference("quay.io/UPPER@sha256:5") == ""


@pytest.mark.req("RP-025")
def test_pods_that_their_node_could_not_start_again_are_listed_by_node() -> None:
    moved = workload("moved", ONLY, pods=(pod("moved-1", "m1"), pod("moved-2", "a1")))
    fine = workload("fine", BOTH, pods=(pod("fine-1", "m1"),))
    (drift,) = report_of(cluster(moved, fine), node_drift=True).node_drift or ()
    assert (drift.node, drift.platform, drift.pods) == ("m1", "arm64", ("shop/moved-1",))
    assert ONLY in drift.reasons[0]
    assert report_of(cluster(moved)).node_drift is None
