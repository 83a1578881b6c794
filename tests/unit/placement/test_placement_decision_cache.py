"""Pods of one series are decided once, and whatever a rule reads makes another series."""

from typing import Any

import msgspec
import pytest
from placement_cases import APP, SIDE, answers, arch, index

from polyarch.images.decision_cache import MAX_INSPECTION_ENTRIES, MAX_KEY_BYTES
from polyarch.objects import ObjectMeta, Pod
from polyarch.placement import names
from polyarch.placement.admission import CACHE_BYTES, Admission, CachedDecision, decision_cache
from polyarch.placement.decision import RecordSigner
from polyarch.placement.patch import AdmissionPath
from polyarch.placement.rules import PodFacts
from polyarch.placement.settings import ScoringSource, Settings

SETTINGS = Settings()
NO_SOURCES = ()
NODES: frozenset[str] = frozenset()


def facts(document: dict[str, Any], **changes: Any) -> PodFacts:
    pod = msgspec.convert(document, Pod)
    return PodFacts(
        pod=pod, namespace="team", **({"settings": SETTINGS, "sources": NO_SOURCES, "nodes": NODES} | changes)
    )


def replica(number: int = 0, **spec: Any) -> dict[str, Any]:
    """As a ReplicaSet's pod arrives: without a name, the token's volume with one of its own."""
    return {
        "metadata": {"generateName": "web-", "labels": {"app": "web"}, "uid": f"u-{number}"},
        "spec": {
            "containers": [{"name": "c", "image": APP, "env": [{"name": "N", "value": "v"}]}],
            "volumes": [{"name": f"kube-api-access-{number}", "projected": {}}],
            **spec,
        },
    }


def admit(
    look: CachedDecision, platforms: tuple[str, ...] = ("amd64",), *, lives: bool = True, leaving: bool = False
) -> Admission:
    return look.admission(answers(index(APP, *platforms)), controller_available=lives, deprovisioning=leaving)


@pytest.mark.req("PL-801")
def test_replicas_are_one_series_and_decided_once() -> None:
    """What differs between siblings is nothing that a rule reads."""
    known = decision_cache()
    first, second = known.get(facts(replica(1))), known.get(facts(replica(2)))
    assert second is first
    assert admit(second) is admit(first)
    assert admit(first).decision.architectures == ("amd64",)


@pytest.mark.req("PL-801")
@pytest.mark.parametrize(
    "changed",
    [
        {"containers": [{"name": "c", "image": SIDE}]},
        {"containers": [{"name": "c", "image": APP, "imagePullPolicy": "Always"}]},
        {"initContainers": [{"name": "i", "image": SIDE}]},
        {"volumes": [{"name": "v", "image": {"reference": SIDE}}]},
        {"nodeSelector": {"kubernetes.io/arch": "arm64"}},
        {"schedulingGates": [{"name": "other"}]},
        {"imagePullSecrets": [{"name": "pull"}]},
        {"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [arch("x")]}]}
        }}},
    ],
    ids=lambda changed: next(iter(changed)),
)  # fmt: skip
def test_another_spec_is_another_series(changed: dict[str, Any]) -> None:
    known = decision_cache()
    assert known.get(facts(replica(**changed))) is not known.get(facts(replica()))


@pytest.mark.req("PL-801")
@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"app": "other"}},
        {"labels": None},
        {"annotations": {names.SKIP_ANNOTATION: "true"}},
        {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]},
    ],
    ids=["label", "no labels", "annotation", "owner"],
)
def test_other_metadata_is_another_series(metadata: dict[str, Any]) -> None:
    known, other = decision_cache(), replica()
    other["metadata"] |= metadata
    assert known.get(facts(other)) is not known.get(facts(replica()))


def test_another_namespace_is_another_series() -> None:
    known, given = decision_cache(), facts(replica())
    assert known.get(msgspec.structs.replace(given, namespace="other")) is not known.get(given)


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": Settings(mode="audit")},
        {"settings": Settings()},
        {"sources": (ScoringSource("ClusterPodPlacementConfig", (("arm64", 1),)),)},
        {"nodes": frozenset({"arm64"})},
        {"signer": RecordSigner([b"k" * 32])},
    ],
    ids=["settings", "settings compiled anew", "sources", "nodes", "key of records"],
)
def test_facts_that_changed_are_looked_at_again(changes: dict[str, Any]) -> None:
    """And the new look takes the place of the old one."""
    known = decision_cache()
    before, changed = known.get(facts(replica())), facts(replica(), **changes)
    after = known.get(changed)
    assert after is not before
    assert msgspec.structs.replace(after.case.facts, pod=changed.pod) == changed
    assert known.get(facts(replica(2), **changes)) is after
    assert len(known) == 1


def test_answers_that_changed_decide_again() -> None:
    """A tag that moved, or a failure that ended, is seen by the next pod."""
    look = decision_cache().get(facts(replica()))
    assert admit(look, ("amd64",)).decision.architectures == ("amd64",)
    assert admit(look, ("arm64", "s390x")).decision.architectures == ("arm64", "s390x")
    assert look.admission({}, controller_available=True, deprovisioning=False).path is AdmissionPath.GATED


def test_answers_are_kept_as_they_were() -> None:
    """The caller goes on using its dictionary."""
    look, mine = decision_cache().get(facts(replica())), answers(index(APP, "amd64"))
    first = look.admission(mine, controller_available=True, deprovisioning=False)
    mine[APP] = index(APP, "arm64")
    assert look.admission(mine, controller_available=True, deprovisioning=False) is not first


@pytest.mark.req("PL-107")
def test_a_controller_that_went_away_is_seen_by_the_next_pod() -> None:
    look = decision_cache().get(facts(replica()))
    gated = look.admission({}, controller_available=True, deprovisioning=False)
    let_through = look.admission({}, controller_available=False, deprovisioning=False)
    leaving = look.admission({}, controller_available=False, deprovisioning=True)
    assert [each.path for each in (gated, let_through, leaving)] == [
        AdmissionPath.GATED,
        AdmissionPath.UNAVAILABLE,
        AdmissionPath.UNAVAILABLE,
    ]
    assert let_through.decision.message != leaving.decision.message


@pytest.mark.req("PL-854")
def test_what_is_remembered_is_bounded() -> None:
    """The least recently asked for goes first; a pod of more than 32 KiB is not kept at all."""
    known = decision_cache(capacity=2)
    first = known.get(facts(replica(containers=[{"image": "a"}])))
    known.get(facts(replica(containers=[{"image": "b"}])))
    assert known.get(facts(replica(containers=[{"image": "a"}]))) is first
    known.get(facts(replica(containers=[{"image": "c"}])))
    assert len(known) == 2
    assert known.get(facts(replica(containers=[{"image": "a"}]))) is first
    known.get(facts(replica(nodeSelector={"k": "x" * MAX_KEY_BYTES})))
    assert len(known) == 2


@pytest.mark.req("PL-854")
def test_all_series_together_are_bounded() -> None:
    """Who sends dry runs of large pods, each with another label, fills no more than a part of the limit."""
    known = decision_cache()
    for number in range(64):
        known.get(facts(replica(volumes=[{}] * 10_000, nodeSelector={"number": str(number)})))
    assert len(known) == CACHE_BYTES // (10_000 * len("{},"))
    assert known.get(facts(replica(volumes=[{}] * 10_000, nodeSelector={"number": "63"}))) is known.get(
        facts(replica(volumes=[{}] * 10_000, nodeSelector={"number": "63"}))
    ), "the youngest are there"


@pytest.mark.req("PL-854")
def test_a_series_that_was_looked_at_again_takes_the_room_of_one() -> None:
    """Its facts change a hundred times, and the others stay."""
    known = decision_cache()
    first = known.get(facts(replica()))
    for number in range(100):
        known.get(facts(replica(volumes=[{}] * 10_000), settings=Settings(hold_limit=float(number))))
    assert known.get(facts(replica())) is first


@pytest.mark.req("PL-801", "PL-854")
def test_of_a_pod_only_its_likeness_is_remembered() -> None:
    """A pod may be small in what rules read and large elsewhere; and no rule can see more of it."""
    document = replica()
    document["metadata"] |= {"name": "web-1", "finalizers": [f"f{number}" for number in range(10_000)]}
    remembered = decision_cache().get(facts(document)).case
    for seen in (remembered.pod, remembered.view.pod):
        assert seen.metadata == ObjectMeta(labels={"app": "web"})
        assert seen.spec == facts(document).pod.spec


@pytest.mark.req("PL-854")
def test_answers_that_are_very_long_are_not_remembered() -> None:
    """Whose registry it is may state a thousand platforms; the readings' own memory is bounded by bytes."""
    look, stated = (
        decision_cache().get(facts(replica())),
        tuple(f"x{number}" for number in range(MAX_INSPECTION_ENTRIES + 1)),
    )
    assert admit(look, stated) is not admit(look, stated)
    assert admit(look, stated[1:]) is admit(look, stated[1:])
