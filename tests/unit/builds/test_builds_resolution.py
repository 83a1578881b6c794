"""Which architectures a build is wanted for."""

from typing import Any

import msgspec
import pytest
from build_wishes import CONTROL_PLANE, NOW, execution, facts, node, wanted, wish

from polyarch.builds.architectures import forbids, resolve_architectures
from polyarch.builds.facts.build_facts import BuildFacts, NodeFacts
from polyarch.selectors import LabelSelector

pytestmark = pytest.mark.req("BD-050")

GPU = {"matchLabels": {"pool": "gpu"}}


def of(*nodes: NodeFacts, **architectures: Any) -> BuildFacts:
    return facts(*nodes, of=wish(**wanted(**architectures)))


COUNTED: dict[str, tuple[BuildFacts, tuple[str, ...]]] = {
    "every architecture of a worker": (of(node("a"), node("b", "arm64")), ("amd64", "arm64")),
    "not of one that is being deleted": (of(node("a"), node("b", "arm64", deleting=True)), ("amd64",)),
    "not of windows": (of(node("a"), node("b", "arm64", operating_system="windows")), ("amd64",)),
    "of one that is not ready": (of(node("a"), node("b", "arm64", ready=False)), ("amd64", "arm64")),
    "of one that is cordoned": (of(node("a"), node("b", "arm64", schedulable=False)), ("amd64", "arm64")),
    "of one that is tainted": (
        of(node("a"), node("b", "arm64", taints=(("x", "y", "NoSchedule"),))),
        ("amd64", "arm64"),
    ),
    "only what the selector matches": (
        of(node("a"), node("b", "arm64", labels={"pool": "gpu"}), nodeSelector=GPU),
        ("arm64",),
    ),
    "a node without an architecture does not count": (of(node("a"), node("b", "")), ("amd64",)),
    "the control plane does not count by default": (
        of(node("a"), node("m", "arm64", labels=CONTROL_PLANE)),
        ("amd64",),
    ),
    "nor under its old name": (
        of(node("a"), node("m", "arm64", labels={"node-role.kubernetes.io/master": ""})),
        ("amd64",),
    ),
    "but where there is nothing else": (of(node("m", "arm64", labels=CONTROL_PLANE)), ("arm64",)),
    "a selector that matches nothing means the workers": (
        of(node("a"), node("m", "arm64", labels=CONTROL_PLANE), nodeSelector=GPU),
        ("amd64",),
    ),
    "and all nodes if there are no workers": (
        of(node("m", "arm64", labels=CONTROL_PLANE), nodeSelector=GPU),
        ("arm64",),
    ),
    "an empty selector matches every node": (
        of(node("a"), node("m", "arm64", labels=CONTROL_PLANE), nodeSelector={}),
        ("amd64", "arm64"),
    ),
    "Wait takes nothing instead": (of(node("a"), nodeSelector=GPU, empty="Wait"), ()),
    "Wait waits for workers too": (of(node("m", labels=CONTROL_PLANE), empty="Wait"), ()),
    "Wait waits whatever is included": (
        of(node("a"), nodeSelector=GPU, empty="Wait", include=["s390x"]),
        (),
    ),
    "include adds": (of(node("a"), include=["s390x"]), ("amd64", "s390x")),
    "exclude takes away": (of(node("a"), node("b", "arm64"), exclude=["amd64"]), ("arm64",)),
    "Explicit is the list, whatever the nodes are": (
        of(node("a"), mode="Explicit", list=["s390x", "arm64"]),
        ("arm64", "s390x"),
    ),
    "Explicit without any node": (of(mode="Explicit", list=["arm64"]), ("arm64",)),
    "an architecture that nobody knows": (of(node("a", "riscv64"), node("b", "sw64")), ("riscv64", "sw64")),
}


@pytest.mark.parametrize("case", COUNTED, ids=str)
def test_the_architectures_of_a_build_are_those_of_the_nodes_it_is_for(case: str) -> None:
    given, expected = COUNTED[case]
    resolved = resolve_architectures(given)
    assert resolved.architectures == expected
    assert resolved.wait == ("" if expected else "NoNodes")


@pytest.mark.req("BD-040")
def test_a_node_that_says_nothing_is_named() -> None:
    resolved = resolve_architectures(of(node("a"), *(node(f"mute-{each}", "") for each in range(7))))
    assert resolved.unplaced == tuple(f"mute-{each}" for each in range(7))
    assert "mute-0, mute-1, mute-2, mute-3, mute-4 and 2 more" in resolved.message


@pytest.mark.req("BD-040")
def test_a_node_whose_labels_contradict_it_is_named() -> None:
    given = of(node("b", "arm64", mismatch=True), node("a"), node("w", mismatch=True, operating_system="windows"))
    assert resolve_architectures(given).mismatched == ("b",)


@pytest.mark.req("BD-040", "BD-100")
def test_how_many_nodes_there_are_is_nowhere_in_the_answer() -> None:
    """A message that counted them would be a status write for every node."""
    few = resolve_architectures(of(node("a"), node("b", "arm64")))
    many = resolve_architectures(of(*(node(f"a{each}") for each in range(9)), node("b", "arm64")))
    assert few == many


@pytest.mark.req("BD-043")
def test_without_any_node_the_build_waits() -> None:
    resolved = resolve_architectures(of())
    assert (resolved.wait, resolved.reason, resolved.requeue_after) == ("NoNodes", "NoNodes", None)
    assert resolved.message == (
        "There are no linux nodes that are workers; add one, or name architectures in spec.architectures.list."
    )


WORDS: dict[str, tuple[BuildFacts, str]] = {
    "workers": (of(node("a")), "amd64: the architectures of the linux nodes that are workers."),
    "only a control plane": (
        of(node("m", labels=CONTROL_PLANE)),
        "amd64: the architectures of all linux nodes, as there are no linux nodes that are workers.",
    ),
    "a selector": (
        of(node("a", labels={"pool": "gpu"}), nodeSelector=GPU, include=["s390x"]),
        (
            "amd64, s390x: the architectures of the linux nodes that spec.architectures.nodeSelector matches, with "
            "what include and exclude say."
        ),
    ),
    "a selector that matches nothing": (
        of(node("a"), nodeSelector=GPU),
        (
            "amd64: the architectures of all workers, as there are no linux nodes that spec.architectures.nodeSelector "
            "matches."
        ),
    ),
    "everything excluded": (
        of(node("a"), node("b", "arm64"), exclude=["arm64", "amd64"]),
        (
            "No architecture is left: spec.architectures.exclude names all that the linux nodes that are workers have "
            "(amd64, arm64); exclude fewer, or add nodes of another one."
        ),
    ),
    "a list": (of(mode="Explicit", list=["arm64"]), "arm64: what spec.architectures.list says."),
}


@pytest.mark.req("BD-241")
@pytest.mark.parametrize("case", WORDS, ids=str)
def test_the_message_says_where_the_architectures_come_from(case: str) -> None:
    given, expected = WORDS[case]
    assert resolve_architectures(given).message == expected


@pytest.mark.req("BD-043")
def test_everything_excluded_is_no_architecture_either() -> None:
    assert resolve_architectures(of(node("a"), exclude=["amd64"])).wait == "NoNodes"


BUILT = execution("web-1", "amd64")


def grown(*nodes: NodeFacts, executions: Any = (BUILT,), current: str = "web-1", **architectures: Any) -> BuildFacts:
    """A build whose result is for amd64."""
    return facts(*nodes, of=wish(current=current, **wanted(**architectures)), executions=tuple(executions))


@pytest.mark.req("BD-042")
def test_a_new_architecture_counts_once_its_oldest_node_has_settled() -> None:
    young = grown(node("a"), node("b", "arm64", age=10), node("c", "arm64", age=25))
    resolved = resolve_architectures(young)
    assert resolved.architectures == ("amd64",)
    assert resolved.newcomers == ("arm64",)
    assert (resolved.reason, resolved.requeue_after) == ("Settling", 5.0)
    assert "arm64 counts once a node of it is 30s old" in resolved.message
    settled = resolve_architectures(msgspec.structs.replace(young, now=NOW + 5))
    assert (settled.architectures, settled.newcomers, settled.reason) == (("amd64", "arm64"), (), "Resolved")
    assert settled.requeue_after is None


@pytest.mark.req("BD-043")
def test_the_first_newcomer_that_is_old_enough_is_waited_for() -> None:
    given = grown(node("a"), node("b", "arm64", age=10), node("c", "s390x", age=22))
    assert resolve_architectures(given).requeue_after == 8.0


NO_NEWCOMER: dict[str, BuildFacts] = {
    "before the first execution": grown(node("b", "arm64", age=1), executions=()),
    "an execution of another object of the same name is none": grown(
        node("b", "arm64", age=1), executions=[execution("web-0", "amd64", owner="uid-former")]
    ),
    "one old node is enough": grown(node("b", "arm64", age=1), node("c", "arm64")),
    "the current result has it": grown(node("b", "arm64", age=1), executions=[execution("web-1", "amd64", "arm64")]),
    "the active execution has it": grown(
        node("b", "arm64", age=1), executions=[BUILT, execution("web-2", "arm64", phase="Building", created=NOW)]
    ),
    "settle is nothing": grown(node("b", "arm64", age=0), settle="0s"),
    "it is included": grown(node("b", "arm64", age=1), include=["arm64"]),
}


@pytest.mark.req("BD-042")
@pytest.mark.parametrize("case", NO_NEWCOMER, ids=str)
def test_no_newcomer(case: str) -> None:
    resolved = resolve_architectures(NO_NEWCOMER[case])
    assert resolved.architectures == ("arm64",)
    assert (resolved.newcomers, resolved.requeue_after) == ((), None)


@pytest.mark.req("BD-042")
def test_a_flapping_node_is_young_each_time() -> None:
    """Nothing remembers that it was there before."""
    for age in (3, 20, 1):
        assert resolve_architectures(grown(node("a"), node("b", "arm64", age=age))).newcomers == ("arm64",)


@pytest.mark.req("BD-042")
def test_an_excluded_newcomer_is_not_waited_for() -> None:
    resolved = resolve_architectures(grown(node("a"), node("b", "arm64", age=1), exclude=["arm64"]))
    assert (resolved.newcomers, resolved.reason, resolved.requeue_after) == ((), "Resolved", None)


@pytest.mark.req("BD-043")
def test_newcomers_alone_are_no_architecture_yet() -> None:
    """A replaced pool of another architecture: nothing is planned until it has settled."""
    resolved = resolve_architectures(grown(node("b", "arm64", age=10)))
    assert (resolved.architectures, resolved.wait, resolved.reason) == ((), "NoNodes", "Settling")
    assert resolved.requeue_after == 20.0


@pytest.mark.req("BD-044")
def test_only_the_architectures_that_are_wanted_make_a_build_multi() -> None:
    both = (node("a"), node("b", "arm64"))
    assert resolve_architectures(of(*both)).is_multi
    assert not resolve_architectures(of(*both, exclude=["arm64"])).is_multi
    assert resolve_architectures(of(node("a"), include=["arm64"])).is_multi


@pytest.mark.req("BD-045", "BD-120", "BD-121")
def test_an_architecture_is_forbidden_by_the_spec_and_not_by_its_absence() -> None:
    """Passive loss changes nothing, active loss drops it."""
    result = [execution("web-1", "amd64", "arm64")]
    gone = resolve_architectures(grown(node("a"), executions=result))
    assert (gone.architectures, gone.dropped) == (("amd64",), ())
    excluded = resolve_architectures(grown(node("a"), node("b", "arm64"), executions=result, exclude=["arm64"]))
    assert (excluded.architectures, excluded.dropped) == (("amd64",), ("arm64",))
    listed = resolve_architectures(grown(node("a"), executions=result, mode="Explicit", list=["amd64"]))
    assert (listed.architectures, listed.dropped) == (("amd64",), ("arm64",))


@pytest.mark.req("BD-045")
def test_forbidden() -> None:
    explicit = wanted(mode="Explicit", list=["amd64"])["architectures"]
    assert forbids(explicit, "arm64")
    assert not forbids(explicit, "amd64")
    auto = wanted(exclude=["arm64"])["architectures"]
    assert forbids(auto, "arm64")
    assert not forbids(auto, "s390x")


@pytest.mark.req("BD-046")
def test_next_build_postpones_what_the_result_lacks() -> None:
    given = grown(node("a"), node("b", "arm64"), onNewArchitecture="NextBuild")
    resolved = resolve_architectures(given)
    assert resolved.architectures == ("amd64", "arm64")
    assert (resolved.pending, resolved.needed) == (("arm64",), ("amd64",))


@pytest.mark.req("BD-046")
def test_without_a_result_nothing_is_postponed() -> None:
    failed = execution("web-1", "amd64", phase="Failed")
    given = grown(node("a"), node("b", "arm64"), executions=[failed], current="", onNewArchitecture="NextBuild")
    assert resolve_architectures(given).pending == ()


@pytest.mark.req("BD-119", "BD-122")
def test_an_architecture_joins_leaves_and_comes_back() -> None:
    """What D becomes; what is built then is the planner's."""
    joined = resolve_architectures(grown(node("a"), node("b", "arm64")))
    assert (joined.architectures, joined.needed) == (("amd64", "arm64"), ("amd64", "arm64"))
    result = [execution("web-2", "amd64", "arm64")]
    left = resolve_architectures(grown(node("a"), executions=result, current="web-2"))
    assert left.architectures == ("amd64",)
    back = resolve_architectures(grown(node("a"), node("c", "arm64", age=1), executions=result, current="web-2"))
    assert (back.architectures, back.newcomers) == (("amd64", "arm64"), ())


@pytest.mark.req("BD-047")
@pytest.mark.parametrize(
    ("architectures", "status", "last"),
    [
        ({}, {"architectures": ["arm64", "amd64"]}, ("amd64", "arm64")),
        ({}, {}, ()),
        ({"mode": "Explicit", "list": ["s390x"]}, {"architectures": ["amd64"]}, ("s390x",)),
    ],
    ids=["the last ones stay", "there is no default architecture", "a list is known without nodes"],
)
def test_nodes_that_are_not_known(architectures: Any, status: Any, last: tuple[str, ...]) -> None:
    given = BuildFacts(now=NOW, request=wish(status=status, **wanted(**architectures)), nodes=None)
    resolved = resolve_architectures(given)
    assert (resolved.wait, resolved.reason, resolved.architectures) == ("NodesUnknown", "NodesUnknown", last)


@pytest.mark.req("BD-041")
def test_a_selector_may_use_expressions() -> None:
    selector = {"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["gpu"]}]}
    given = of(node("a"), node("b", "arm64", labels={"pool": "gpu"}), nodeSelector=selector)
    assert resolve_architectures(given).architectures == ("amd64",)
    assert isinstance(given.request.spec.architectures.node_selector, LabelSelector)
