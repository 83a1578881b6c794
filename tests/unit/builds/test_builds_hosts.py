"""Where the image of an architecture is built."""

from typing import Any

import pytest
from build_wishes import facts, node, wish

from polyarch.builds.api.resources import ArchitectureScheduling, Emulation, Scheduling
from polyarch.builds.architectures import auto_profile, host_of, is_available
from polyarch.builds.facts.build_facts import BuildFacts, NodeFacts, PlanSettings

DEDICATED = (("dedicated", "ci", "NoSchedule"),)


def of(strategy: str, *nodes: NodeFacts, hosts: list[str] | None = None, **scheduling: Any) -> BuildFacts:
    """A build of arm64; ``scheduling`` is that of arm64."""
    own = [ArchitectureScheduling(architecture="arm64", **scheduling)] if scheduling else None
    spec: dict[str, Any] = {
        "strategy": strategy,
        "emulation": Emulation(hosts=hosts),
        "scheduling": Scheduling(per_architecture=own),
    }
    return facts(*nodes, of=wish(**spec))


CASES: dict[str, tuple[BuildFacts, tuple[str, str]]] = {
    "Native has its own nodes": (of("Native", node("b", "arm64")), ("Native", "arm64")),
    "Native never runs elsewhere": (of("Native", node("a")), ("Native", "arm64")),
    "Emulated takes the host": (of("Emulated", node("a"), node("b", "arm64")), ("Emulated", "amd64")),
    "Emulated takes the first host with a node": (
        of("Emulated", node("p", "ppc64le"), node("a"), hosts=["s390x", "ppc64le", "amd64"]),
        ("Emulated", "ppc64le"),
    ),
    "Emulated on its own architecture is native": (
        of("Emulated", node("a"), node("b", "arm64"), hosts=["arm64", "amd64"]),
        ("Native", "arm64"),
    ),
    "Emulated waits for the first host if there is no node": (
        of("Emulated", hosts=["s390x", "amd64"]),
        ("Emulated", "s390x"),
    ),
    "PreferNative is native where a node is": (of("PreferNative", node("a"), node("b", "arm64")), ("Native", "arm64")),
    "PreferNative is emulated where none is": (of("PreferNative", node("a")), ("Emulated", "amd64")),
    "PreferNative does not count nodes that are not ready": (
        of("PreferNative", node("a"), node("b", "arm64", ready=False)),
        ("Emulated", "amd64"),
    ),
    "PreferNative does not count cordoned nodes": (
        of("PreferNative", node("a"), node("b", "arm64", schedulable=False)),
        ("Emulated", "amd64"),
    ),
    "PreferNative does not count windows": (
        of("PreferNative", node("a"), node("b", "arm64", operating_system="windows")),
        ("Emulated", "amd64"),
    ),
    "PreferNative waits natively if nobody can": (of("PreferNative", node("s", "s390x")), ("Native", "arm64")),
    "a host whose taint is not tolerated does not fit": (
        of("PreferNative", node("a", taints=DEDICATED)),
        ("Native", "arm64"),
    ),
    "a taint that only makes a node less wanted keeps nobody away": (
        of("PreferNative", node("a", taints=(("x", "", "PreferNoSchedule"),))),
        ("Emulated", "amd64"),
    ),
    "the architecture taint of the host is tolerated": (
        of("PreferNative", node("a", taints=(("kubernetes.io/arch", "amd64", "NoExecute"),))),
        ("Emulated", "amd64"),
    ),
    "that of another architecture is not": (
        of("PreferNative", node("a", taints=(("kubernetes.io/arch", "arm64", "NoExecute"),))),
        ("Native", "arm64"),
    ),
    "what the user tolerates fits": (
        of(
            "PreferNative",
            node("a", taints=DEDICATED),
            tolerations=[{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
        ),
        ("Emulated", "amd64"),
    ),
    "the user's selector has to match": (
        of("PreferNative", node("a"), node("c", labels={"disk": "ssd"}), node_selector={"disk": "hdd"}),
        ("Native", "arm64"),
    ),
    "and matches": (
        of("PreferNative", node("a"), node("c", labels={"disk": "hdd"}), node_selector={"disk": "hdd"}),
        ("Emulated", "amd64"),
    ),
}


@pytest.mark.req("BD-141")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_native_or_emulated_and_where(case: str) -> None:
    given, expected = CASES[case]
    host = host_of(given, "arm64")
    assert (host.execution, host.architecture) == expected
    assert host.why


@pytest.mark.req("BD-141")
def test_taint_keys_are_settings() -> None:
    own = facts(
        node("a", taints=(("example.com/cpu", "amd64", "NoSchedule"),)),
        of=wish(strategy="PreferNative"),
        settings=PlanSettings(arch_taint_keys=("example.com/cpu",)),
    )
    assert host_of(own, "arm64").architecture == "amd64"


@pytest.mark.req("BD-215")
@pytest.mark.parametrize(
    ("nodes", "available"),
    [
        ([node("b", "arm64")], True),
        ([node("b", "arm64", taints=DEDICATED)], True),
        ([node("b", "arm64", ready=False)], False),
        ([node("b", "arm64", schedulable=False)], False),
        ([node("b", "arm64", deleting=True)], False),
        ([node("a")], False),
        ([], False),
    ],
    ids=["ready", "tainted", "not ready", "cordoned", "being deleted", "of another architecture", "none"],
)
def test_a_node_is_available_whether_the_job_fits_there_or_not(nodes: list[NodeFacts], available: bool) -> None:
    """So ``Unschedulable`` is told from ``NoNodeForArchitecture``."""
    assert is_available(facts(*nodes), "arm64") is available


GVISOR = ArchitectureScheduling(architecture="arm64", runtime_class_name="gvisor")
PROFILES: dict[str, tuple[list[NodeFacts], bool, str]] = {
    "every node has them": ([node("b", "arm64"), node("c", "arm64")], False, "UserNamespace"),
    "one node has not": ([node("b", "arm64"), node("c", "arm64", user_namespaces=frozenset())], False, "Rootless"),
    "only a cordoned one has not": (
        [node("b", "arm64"), node("c", "arm64", user_namespaces=frozenset(), schedulable=False)],
        False,
        "UserNamespace",
    ),
    "one that is not ready counts": (
        [node("b", "arm64"), node("c", "arm64", user_namespaces=frozenset(), ready=False)],
        False,
        "Rootless",
    ),
    "nodes of other architectures do not count": (
        [node("b", "arm64"), node("a", user_namespaces=frozenset())],
        False,
        "UserNamespace",
    ),
    "there is no node yet": ([node("a", user_namespaces=frozenset())], False, "UserNamespace"),
    "the handler in use has not": ([node("b", "arm64")], True, "Rootless"),
    "the handler in use has": ([node("b", "arm64", user_namespaces=frozenset({"gvisor"}))], True, "UserNamespace"),
}


@pytest.mark.req("BD-152")
@pytest.mark.parametrize("case", PROFILES, ids=str)
def test_the_profile_that_auto_stands_for(case: str) -> None:
    nodes, has_handler, expected = PROFILES[case]
    scheduling = Scheduling(per_architecture=[GVISOR] if has_handler else None)
    profile = auto_profile(facts(*nodes, of=wish(scheduling=scheduling)), "arm64", "arm64")
    assert profile.name == expected
    assert ("gvisor" in profile.why) is has_handler


@pytest.mark.req("BD-152")
def test_the_nodes_are_those_of_the_host() -> None:
    given = facts(node("a", user_namespaces=frozenset()), node("b", "arm64"))
    profile = auto_profile(given, "arm64", "amd64")
    assert profile.name == "Rootless"
    assert "node a" in profile.why
