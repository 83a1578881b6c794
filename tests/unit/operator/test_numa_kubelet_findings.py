"""What speaks against NUMA placement on a node."""

from typing import Any

import msgspec
import pytest

from polyarch.numa.api.topology import NodeResourceTopology
from polyarch.operator.components.numa_facts import (
    CPU_MANAGER,
    MEMORY_MANAGER,
    NO_RESERVATION,
    TOPOLOGY_POLICY,
    findings,
)

OWN = "numa.polyarch.dev/"
GOOD = {"topologyManagerPolicy": "single-numa-node", f"{OWN}cpu-manager-policy": "static"}
GOOD |= {f"{OWN}memory-manager-policy": "Static"}


def of(attributes: dict[str, str], *cpus: tuple[Any, Any]) -> tuple[str, ...]:
    zones = [
        {"name": f"node-{index}", "resources": [{"name": "cpu", "capacity": capacity, "allocatable": allocatable}]}
        for index, (capacity, allocatable) in enumerate(cpus)
    ]
    said = [{"name": name, "value": value} for name, value in attributes.items()]
    return findings(msgspec.convert({"attributes": said, "zones": zones}, NodeResourceTopology))


@pytest.mark.req("NO-091")
def test_nothing_speaks_against_it() -> None:
    """CPUs reserved in one zone are enough."""
    assert of(GOOD, ("4", "3"), ("4", "4")) == ()
    assert of({**GOOD, "topologyManagerPolicy": "restricted"}, ("4", "3")) == ()


@pytest.mark.req("NO-091")
@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({f"{OWN}cpu-manager-policy": "none"}, CPU_MANAGER),
        ({f"{OWN}memory-manager-policy": "None"}, MEMORY_MANAGER),
        ({"topologyManagerPolicy": "best-effort"}, TOPOLOGY_POLICY),
    ],
)
def test_each_finding(change: dict[str, str], finding: str) -> None:
    assert of({**GOOD, **change}, ("4", "3")) == (finding,)


@pytest.mark.req("NO-091")
def test_no_reserved_cpus() -> None:
    """The static manager does not start without."""
    assert of(GOOD, ("4", "4"), ("4", "4")) == (NO_RESERVATION,)


@pytest.mark.req("NO-091")
def test_what_an_object_does_not_tell_is_no_finding() -> None:
    """Other producers write fewer attributes."""
    assert of({}) == ()
