"""Which pods the webhook missed, and which may be evicted: the rules alone."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from placement_cases import APP, SIDE, admitted, answers, arch, failure, index, neutral, pod, settings, source, term

from polyarch.objects import Pod
from polyarch.placement import names
from polyarch.placement.decision import NO_SIGNER, RecordSigner
from polyarch.placement.rules import PodFacts
from polyarch.placement.sweep_rules import MissReason, evicted_event, find_candidate, find_missed, unplaced_event

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NODES = {"a": "amd64", "b": "arm64"}
SEAL = RecordSigner([b"k" * 32])
NOT_SET = {names.SCHEDULING_GATE_LABEL: "not-set"}


def facts(document, *, namespace="shop", signer=NO_SIGNER, sources=(), phase="Pending", **changes):
    stored = msgspec.convert({**document, "status": {"phase": phase}}, Pod)
    return PodFacts(pod=stored, namespace=namespace, settings=settings(**changes), signer=signer, sources=sources)


def is_suspect(document, **given):
    return find_candidate(facts(document, **given), younger=None) is not None


def found(document, known=(), nodes=NODES, **given):
    suspected = find_candidate(facts(document, **given), younger=None)
    return find_missed(suspected, answers(*known), nodes) if suspected is not None else None


def owned(document=None, kind="ReplicaSet"):
    document = document or pod()
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "owner-1", "controller": True}
    document["metadata"]["ownerReferences"] = [owner]
    return document


# -- who is found ------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-370")
@pytest.mark.parametrize("labels", [{}, NOT_SET], ids=["no label", "not-set"])
def test_a_pending_pod_without_a_finished_decision_is_unplaced(labels):
    assert found(pod(labels=labels)).reason is MissReason.UNPLACED


@pytest.mark.req("PL-311", "PL-370")
@pytest.mark.parametrize("signer", [NO_SIGNER, SEAL], ids=["unsigned", "signed"])
@pytest.mark.parametrize("known", [index(APP, "arm64"), neutral(APP), index(APP)], ids=["set", "neutral", "none"])
def test_a_placed_pod_is_fine_even_if_its_labels_are_gone(known, signer):
    """The decision counts, not the label."""
    placed = admitted(pod(), answers(known), signer=signer).pod
    assert not is_suspect(placed, signer=signer)
    if known.entries or known.status == "neutral":
        placed["metadata"]["labels"] = {}
        assert not is_suspect(placed, signer=signer)


@pytest.mark.req("PL-370", "PL-503")
def test_what_the_predecessor_placed_is_fine():
    """It writes the label and no annotation."""
    assert not is_suspect(pod(labels={names.SCHEDULING_GATE_LABEL: "removed"}))


@pytest.mark.req("PL-201", "PL-370")
@pytest.mark.parametrize(
    ("document", "given"),
    [
        pytest.param(pod(gates=[names.GATE]), {}, id="with our gate: the controller's"),
        pytest.param(pod(), {"mode": "audit"}, id="audited"),
        pytest.param(pod(), {"sweep_action": "off"}, id="the policy says off"),
        pytest.param(pod(), {"provisional": True}, id="the namespace is not known yet"),
        pytest.param(pod(), {"leaving": True}, id="placement is being uninstalled"),
        pytest.param(pod(), {"namespace": "polyarch-system"}, id="row 1"),
        pytest.param(pod(), {"namespace": "kube-system"}, id="row 2"),
        pytest.param(pod(), {"excluded_namespaces": ("sh*",)}, id="row 3"),
        pytest.param(pod(annotations={names.SKIP_ANNOTATION: "true"}), {}, id="row 4"),
        pytest.param(pod(nodeSelector={"node-role.kubernetes.io/master": ""}), {}, id="row 6"),
        pytest.param(owned(kind="DaemonSet"), {}, id="row 7"),
        pytest.param(pod(terms=[term(arch("amd64"))]), {}, id="row 8"),
        pytest.param(pod(), {"phase": "Succeeded"}, id="succeeded"),
        pytest.param(pod(), {"phase": "Failed"}, id="failed"),
    ],
)
def test_who_is_not_looked_for(document, given):
    assert not is_suspect(document, **given)


@pytest.mark.req("PL-370")
def test_a_pod_that_is_being_deleted_is_left_alone():
    document = pod()
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not is_suspect(document)


@pytest.mark.req("PL-370")
@pytest.mark.parametrize(
    ("created", "is_found"), [("2026-01-01T11:57:59Z", True), ("2026-01-01T11:58:01Z", False), ("nonsense", True)]
)
def test_young_pods_wait_for_the_next_round(created, is_found):
    """PL-370 minAge."""
    document = pod()
    document["metadata"]["creationTimestamp"] = created
    suspected = find_candidate(facts(document), younger=NOW - timedelta(minutes=2))
    assert (suspected is not None) is is_found
    assert find_candidate(facts(document), younger=None) is not None


# -- stale decisions ---------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-115", "PL-372")
@pytest.mark.parametrize("signer", [NO_SIGNER, SEAL], ids=["unsigned", "signed"])
@pytest.mark.parametrize("extra", [0, 12], ids=["few images", "more than are named"])
def test_a_pod_placed_for_other_images_counts_as_unplaced(extra, signer):
    """And it is decided without the expressions of the former decision."""
    others = [f"quay.io/team/x{number}:1" for number in range(extra)]
    all_known = answers(index(APP, "amd64"), index(SIDE, "arm64"), *(index(each, "amd64", "arm64") for each in others))
    document = admitted(pod(APP, *others), all_known, signer=signer).pod
    assert not is_suspect(document, signer=signer)
    document["spec"]["containers"][0]["image"] = SIDE
    judged = found(owned(document), all_known.values(), signer=signer)
    assert judged.reason is MissReason.STALE
    assert judged.decision.architectures == ("arm64",)
    assert judged.evictable


@pytest.mark.req("PL-204", "PL-372")
def test_a_decision_about_preferences_alone_names_no_images_and_is_not_stale():
    document = admitted(pod(terms=[term(arch("amd64"))]), {}, sources=(source(arm64=5),), signer=SEAL).pod
    assert names.DECISION_ANNOTATION in document["metadata"]["annotations"]
    assert not is_suspect(document, sources=(source(arm64=5),), signer=SEAL)
    bare = admitted(pod(terms=[term(arch("amd64"))]), {}, sources=(source(arm64=5),)).pod
    assert not is_suspect(bare, sources=(source(arm64=5),))


@pytest.mark.req("PL-853")
def test_a_forged_decision_makes_nobody_believe_that_an_expression_is_ours():
    """What it names stays the user's, so the pod is not unplaced."""
    document = admitted(pod(APP), answers(index(APP, "amd64")), signer=RecordSigner([b"x" * 32])).pod
    document["spec"]["containers"][0]["image"] = SIDE
    assert not is_suspect(document, signer=SEAL)


# -- on the wrong node -------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-370")
@pytest.mark.parametrize(
    ("node", "known", "fault"),
    [
        ("a", [index(APP, "arm64")], MissReason.MISPLACED),
        ("b", [index(APP, "arm64")], None),
        ("a", [index(APP)], MissReason.MISPLACED),
        ("a", [neutral(APP)], None),
        ("a", [failure(APP)], None),
        ("a", [], None),
        ("gone", [index(APP, "arm64")], None),
    ],
    ids=["wrong", "right", "no platform", "neutral", "failed", "not known", "node not known"],
)
def test_a_pod_on_a_node_that_its_images_do_not_support_is_misplaced(node, known, fault):
    """PL-370 scope: all."""
    judged = found(pod(nodeName=node), known, phase="Running")
    assert (judged.reason if judged is not None else None) is fault


# -- who may be evicted ------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-371")
@pytest.mark.parametrize(
    ("document", "known", "nodes", "evictable"),
    [
        (owned(), [index(APP, "arm64")], NODES, True),
        (pod(), [index(APP, "arm64")], NODES, False),
        (owned(kind="Node"), [index(APP, "arm64")], NODES, False),
        (owned(), [index(APP, "amd64", "arm64")], NODES, False),
        (owned(), [index(APP, "amd64", "arm64", "s390x")], NODES, False),
        (owned(), [neutral(APP)], NODES, False),
        (owned(), [failure(APP)], NODES, False),
        (owned(), [], NODES, False),
        (owned(pod(APP, SIDE)), [index(APP, "arm64"), failure(SIDE)], NODES, False),
        (owned(), [index(APP)], NODES, False),
        (owned(), [index(APP, "s390x")], NODES, False),
        (owned(), [index(APP, "arm64")], {}, False),
        (owned(), [index(APP, "arm64")], {"b": "arm64"}, False),
        (owned(pod(nodeName="a")), [index(APP, "arm64")], NODES, True),
        (pod(nodeName="a"), [index(APP, "arm64")], NODES, False),
        (owned(pod(nodeName="a"), kind="Node"), [index(APP, "arm64")], NODES, False),
        (owned(pod(nodeName="a")), [index(APP, "s390x")], NODES, False),
        (owned(pod(nodeName="a")), [index(APP)], NODES, False),
    ],
    ids=[
        "a new pod would be placed otherwise",
        "nobody creates a new one",
        "a static pod's mirror",
        "runs on every node",
        "runs on every node and more",
        "neutral",
        "failed",
        "not known",
        "one image failed",
        "no platform",
        "no node for the new one",
        "nodes not known",
        "no other nodes",
        "misplaced",
        "misplaced, nobody creates a new one",
        "misplaced, a static pod's mirror",
        "misplaced, no node for the new one",
        "misplaced, no platform",
    ],
)
def test_only_those_are_evicted_of_which_a_new_pod_is_placed_otherwise(document, known, nodes, evictable):
    judged = found(document, known, nodes, phase="Running" if document["spec"].get("nodeName") else "Pending")
    assert judged is None or judged.evictable is evictable
    assert judged is not None or not evictable


@pytest.mark.req("PL-371")
@given(
    supported=st.sets(st.sampled_from(["amd64", "arm64", "s390x"])),
    nodes=st.dictionaries(st.sampled_from("abc"), st.sampled_from(["amd64", "arm64", "s390x", "ppc64le"])),
    node=st.sampled_from(["", "a", "b", "c", "d"]),
)
def test_who_is_evicted_has_a_node_to_go_to_and_one_to_stay_away_from(supported, nodes, node):
    """A property over images and nodes."""
    document = owned(pod(nodeName=node) if node else pod())
    judged = found(document, [index(APP, *sorted(supported))], nodes)
    if judged is None or not judged.evictable:
        return
    assert supported & set(nodes.values())
    assert set(nodes.values()) - supported
    if node:
        assert nodes[node] not in supported


# -- what is said ------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-370", "PL-710", "PL-751")
@pytest.mark.parametrize(
    ("document", "known", "words"),
    [
        (
            owned(),
            [index(APP, "arm64")],
            (
                "Pod was created without placement: nothing keeps it from nodes that cannot run its images "
                "(they support arm64); delete it, and its owner creates a new one, which is placed."
            ),
        ),
        (
            pod(),
            [],
            (
                "Pod was created without placement: nothing keeps it from nodes that cannot run its images; delete it "
                "and create it again."
            ),
        ),
        (
            pod(nodeName="a"),
            [index(APP, "arm64")],
            (
                "Pod was not placed and is on node a (amd64), which its images do not support: they support arm64; "
                "delete it and create it again."
            ),
        ),
        (
            pod(),
            [neutral(APP)],
            "Pod was created without placement, but its images run on any architecture; delete it and create it again.",
        ),
    ],
    ids=["with an owner", "not known", "misplaced", "neutral"],
)
def test_the_event_says_what_is_wrong_and_what_to_do(document, known, words):
    event = unplaced_event(found(document, known))
    assert (event.reason, event.type) == ("PolyarchUnplacedPod", "Warning")
    assert event.note == words


@pytest.mark.req("PL-371", "PL-710")
def test_the_event_of_an_eviction_says_where_the_new_pod_may_run():
    event = evicted_event(found(owned(), [index(APP, "arm64")]))
    assert (event.reason, event.type) == ("PolyarchPodEvicted", "Normal")
    assert event.note.endswith("evicted, so that its owner creates a new one, which is constrained to arm64.")
