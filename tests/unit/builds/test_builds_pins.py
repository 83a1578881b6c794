"""Which child of a base image each architecture builds on."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from build_wishes import BASE, NOW, digest, facts, failed, image, index, node, wish

from polyarch.builds.api.resources import BaseImages, Emulation, Source, Substitute
from polyarch.builds.base_images import PinSet, child_of, pin_images
from polyarch.builds.facts.build_facts import BuildFacts, BuildLookup, PinnedBase
from polyarch.builds.keys import effective_inputs
from polyarch.oci.inspection import Entry, Inspection
from polyarch.platforms import Platform

BOTH = ("amd64", "arm64")
PINNED = f"quay.io/team/base@{digest('f')}"


def pin(*, top: str = "f", age: float = 3600.0, reference: str = BASE, **children: str) -> PinnedBase:
    """What ``status.bases`` holds: architecture → letter of the child's digest."""
    found = {name: digest(letter) for name, letter in children.items()}
    return PinnedBase(reference=reference, digest=digest(top), children=found, resolved=NOW - age)


def given(
    *answers: Inspection, pins: tuple[PinnedBase, ...] = (), fresh: bool = False, policy: str = "OnBuild", **spec: Any
) -> BuildFacts:
    base_images = BaseImages(policy=policy, interval="1h" if policy == "Interval" else "")
    build = msgspec.structs.replace(wish(**{"base_images": base_images, **spec}), pins=pins)
    images = {each.reference.canonical: each for each in answers}
    return facts(node("a"), node("b", "arm64"), of=build, images=images, pins_fresh=fresh)


def pinned(of: BuildFacts, architectures: tuple[str, ...] = BOTH) -> PinSet:
    return pin_images(of, architectures, effective_inputs(of.request, of.inputs, architectures))


def letters(of: BuildFacts) -> Mapping[str, str]:
    """Architecture → letter of the digest that the base is pinned to."""
    return {name: found[BASE][7] for name, found in pinned(of).pins.items() if BASE in found}


def asked(of: BuildFacts) -> list[tuple[str, bool]]:
    return [(each.reference, each.revalidate) for each in pinned(of).lookups]


@pytest.mark.req("BD-061")
def test_a_reference_without_a_pin_is_asked_for_once_for_all_architectures() -> None:
    found = pinned(given())
    assert found.lookups == (BuildLookup(reference=BASE, what="inspect"),)
    assert found.pins == {"amd64": {}, "arm64": {}}


@pytest.mark.req("BD-061")
def test_each_architecture_is_pinned_to_its_own_child() -> None:
    answered = given(index(BASE, amd64="a", arm64="b", s390x="c"))
    assert letters(answered) == {"amd64": "a", "arm64": "b"}
    (base,) = pinned(answered).bases
    assert (base.reference, base.digest, base.resolved) == (BASE, digest("f"), NOW)
    assert set(base.children) == {"amd64", "arm64", "s390x"}, "one that joins later needs no registry"


@pytest.mark.req("BD-061")
def test_a_plain_image_is_pinned_to_itself() -> None:
    assert letters(given(image(BASE, "arm64", "e"))) == {"arm64": "e"}


@pytest.mark.req("BD-061")
def test_a_child_whose_digest_is_not_known_is_no_pin() -> None:
    assert letters(given(index(BASE, "linux/amd64", arm64="b"))) == {"arm64": "b"}


MOVED = index(BASE, top="9", amd64="1", arm64="2")
OLD = (pin(amd64="a", arm64="b"),)
POLICIES: dict[str, tuple[BuildFacts, dict[str, str], list[tuple[str, bool]]]] = {
    "OnBuild plans with the pins that there are": (given(MOVED, pins=OLD), {"amd64": "a", "arm64": "b"}, []),
    "OnBuild takes the new answer once the plan needs a Job": (
        given(MOVED, pins=OLD, fresh=True),
        {"amd64": "1", "arm64": "2"},
        [],
    ),
    "Never keeps the pin": (given(MOVED, pins=OLD, policy="Never"), {"amd64": "a", "arm64": "b"}, []),
    "Never keeps it also when others are fresh": (
        given(MOVED, pins=OLD, policy="Never", fresh=True),
        {"amd64": "a", "arm64": "b"},
        [],
    ),
    "Interval keeps it until the interval is over": (
        given(MOVED, pins=(pin(amd64="a", arm64="b", age=3599),), policy="Interval", fresh=True),
        {"amd64": "a", "arm64": "b"},
        [],
    ),
    "Interval asks again then": (given(MOVED, pins=OLD, policy="Interval"), {}, [(BASE, True)]),
    "and takes the answer": (
        given(MOVED, pins=OLD, policy="Interval", fresh=True),
        {"amd64": "1", "arm64": "2"},
        [],
    ),
}


@pytest.mark.req("BD-061", "BD-111")
@pytest.mark.parametrize("case", POLICIES, ids=str)
def test_what_a_base_that_moved_means(case: str) -> None:
    of, expected, questions = POLICIES[case]
    assert letters(of) == expected
    assert asked(of) == questions


@pytest.mark.req("BD-061")
@pytest.mark.parametrize("policy", ["Never", "OnBuild", "Interval"])
def test_an_architecture_that_joins_takes_its_child_from_the_pinned_index(policy: str) -> None:
    """Not from the tag, which has moved."""
    pins = (pin(amd64="a", age=60),)
    before = given(MOVED, pins=pins, policy=policy)
    assert asked(before) == [(PINNED, False)]
    after = given(MOVED, index(PINNED, amd64="a", arm64="b"), pins=pins, policy=policy)
    assert letters(after) == {"amd64": "a", "arm64": "b"}
    (base,) = pinned(after).bases
    assert (base.digest, base.resolved) == (digest("f"), NOW - 60)
    assert base.children == {"amd64": digest("a"), "arm64": digest("b")}, "so that it is not asked for again"


@pytest.mark.req("BD-061")
def test_one_that_the_pinned_index_does_not_have_stays_unpinned() -> None:
    of = given(index(PINNED, amd64="a"), pins=(pin(amd64="a"),))
    assert letters(of) == {"amd64": "a"}
    assert asked(of) == []


@pytest.mark.req("BD-112")
def test_an_index_that_moved_with_equal_children_changes_no_pin() -> None:
    of = given(index(BASE, top="9", amd64="a", arm64="b"), pins=OLD, fresh=True)
    assert letters(of) == {"amd64": "a", "arm64": "b"}
    assert pinned(of).bases[0].digest == digest("9")


def test_a_pin_that_is_what_it_was_is_recorded_as_it_was() -> None:
    """Otherwise every execution would change the status for nothing."""
    of = given(index(BASE, amd64="a", arm64="b"), pins=OLD, fresh=True)
    assert pinned(of).bases == OLD


@pytest.mark.parametrize("code", ["timeout", "not-found", "denied"])
def test_a_registry_that_gives_no_answer_takes_no_pin_away(code: str) -> None:
    for policy in ("OnBuild", "Interval"):
        of = given(failed(BASE, code), pins=OLD, fresh=True, policy=policy)
        assert letters(of) == {"amd64": "a", "arm64": "b"}
        assert pinned(of).bases == OLD


@pytest.mark.req("BD-061")
def test_when_an_interval_is_over_next() -> None:
    assert pinned(given(pins=(pin(amd64="a", arm64="b", age=3000),), policy="Interval")).requeue_after == 600.0
    assert pinned(given(MOVED, pins=OLD, policy="Interval", fresh=True)).requeue_after == 3600.0
    assert pinned(given(failed(BASE, "timeout"), pins=OLD, policy="Interval", fresh=True)).requeue_after == 60.0
    assert pinned(given(pins=OLD)).requeue_after is None


@pytest.mark.req("BD-062")
def test_a_substitution_says_where_and_the_key_knows_the_name() -> None:
    substitute = BaseImages(substitute=[Substitute(source=BASE, to="mirror.example.com/base:1")])
    of = given(index("mirror.example.com/base:1", amd64="a", arm64="b"), base_images=substitute)
    assert letters(of) == {"amd64": "a", "arm64": "b"}
    assert pinned(of).bases[0].reference == "mirror.example.com/base:1"


@pytest.mark.req("BD-075")
def test_a_stage_that_runs_on_the_builder_counts_for_the_architecture_and_pulls_for_the_host() -> None:
    text = f"FROM --platform=$BUILDPLATFORM {BASE} AS tools\nFROM {BASE}\nCOPY --from=tools /x /x\n"
    of = given(
        index(BASE, amd64="a", arm64="b"),
        source=Source(containerfile=text),
        strategy="Emulated",
        emulation=Emulation(hosts=["amd64"]),
    )
    found = pinned(of, ("arm64",))
    assert found.pins == {"arm64": {BASE: digest("b")}}
    assert found.pulled == {(BASE, "amd64"): digest("a"), (BASE, "arm64"): digest("b")}


@pytest.mark.req("BD-178")
def test_where_only_jobs_may_ask_nothing_is_asked_or_pinned() -> None:
    found = pinned(given(MOVED, pins=OLD, registry_access="Job"))
    assert found == PinSet()


@pytest.mark.req("BD-061")
def test_several_references_are_asked_in_one_round() -> None:
    text = f"FROM {BASE} AS one\nFROM quay.io/team/other:2\nCOPY --from=one /x /x\n"
    of = given(source=Source(containerfile=text))
    assert asked(of) == [(BASE, False), ("quay.io/team/other:2", False)]


@pytest.mark.req("BD-059")
@pytest.mark.parametrize(
    ("platforms", "expected"),
    [
        ({"linux/amd64/v3": "3", "linux/amd64": "1", "linux/amd64/v2": "2"}, "1"),
        ({"linux/amd64/v3": "3", "linux/amd64/v2": "2"}, "2"),
        ({"windows/amd64": "9", "linux/amd64": "1"}, "1"),
    ],
    ids=["the variant of every node before others", "the lowest of several", "linux and not windows"],
)
def test_the_child_does_not_depend_on_the_order_of_the_index(platforms: dict[str, str], expected: str) -> None:

    entries = tuple(Entry(Platform.parse(name), digest(letter)) for name, letter in platforms.items())
    for order in (entries, entries[::-1]):
        answer = msgspec.structs.replace(index(BASE), entries=order)
        assert child_of(answer, "amd64") == digest(expected)


@pytest.mark.req("BD-174")
def test_an_arm_node_takes_the_best_variant_that_it_can_run() -> None:

    entries = [Entry(Platform.parse(f"linux/arm/{each}"), digest(each[1])) for each in ("v5", "v8", "v6")]
    answer = msgspec.structs.replace(index(BASE), entries=tuple(entries))
    assert child_of(answer, "arm") == digest("6")
    best = msgspec.structs.replace(answer, entries=(*entries, Entry(Platform.parse("linux/arm/v7"), digest("7"))))
    assert child_of(best, "arm") == digest("7")
