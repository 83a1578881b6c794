"""Which files of tests against a cluster follow each other in one worker, and in which order the workers take them.

What is one in a cluster (an installation, a taint of all nodes) belongs to one test at a time. Were such files given to
several workers, all but one would wait at a lock. So the files that share such a sandbox are a *lane*: one worker runs
them one after another, and the sandbox can end when the lane does (``endings``). Lanes come longest first; a file that
began last would keep the whole run waiting for it alone.
"""

from collections.abc import Iterable, Mapping

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

LANES: Mapping[str, tuple[str, ...]] = {
    "operated": ("test_operator_lifecycle", "test_operator_monitor", "test_operator_taken_away"),
    "roles under faults": (
        "test_api_faults",
        "test_operator_faults",
        "test_replica_faults",
        "test_registry_faults",
        "test_long_faults",
        "test_taints_node_faults",
        "test_watch_faults",
    ),
    "installations under faults": ("test_installed_faults", "test_numa_operator_faults"),
    "life": ("test_sandbox_life",),
    "image": ("test_packaging_image",),
    "guide": ("test_guide_commands",),
    "operated-features": (
        "test_operator_monitoring",
        "test_operator_webhooks",
        "test_taints_operator",
        "test_numa_operator",
        "test_builds_operator",
    ),
    "mixed fleets under faults": ("test_taints_faults", "test_builds_faults"),
    "running": ("test_packaging_chart_life", "test_packaging_bundle"),
    "growing": ("test_taints_daemonsets", "test_sandbox_growth"),
    "wheel": ("test_packaging_wheel",),
    "commanded": ("test_taint_clean", "test_taint_commands"),
    "tainted": ("test_taints_nodes",),
    "empty": ("test_installation_manifests", "test_installation_commands"),
    "the first sandbox's taints": (
        "test_taints_pods",
        "test_taints_admission",
        "test_taints_run",
        "test_placement_run",
        "test_taints_schema",
    ),
}
"""Name of a lane to its files, both longest first. A file that is in none is its own lane and comes after these."""
EXCLUSIVE = {
    "operated_sandbox": ("operated", "operated-features"),
    **{f"{lane}_sandbox": (lane,) for lane in ("running", "growing", "commanded", "tainted", "empty")},
}
"""Fixtures to the lanes of their users; each lane has a sandbox of its own."""
_LANE_OF = {file: lane for lane, files in LANES.items() for file in files}
_RANK = {file: rank for rank, file in enumerate(_LANE_OF)}


def lane_of(nodeid: str) -> str:
    """The lane of a test, by the file in its id."""
    path = nodeid.split("::", 1)[0]
    return _LANE_OF.get(path.rsplit("/", 1)[-1].removesuffix(".py"), path)


def sandbox_of(fixture: str, nodeid: str) -> str:
    """What tells the sandbox of this fixture from others: the lane of the test, if each lane has its own."""
    return lane_of(nodeid) if fixture in EXCLUSIVE else fixture.removesuffix("_sandbox").replace("_", "-")


def order(items: list[pytest.Item]) -> None:
    """Files of lanes first, in the order of the lanes; what is in none stays as it is."""
    items.sort(key=lambda item: _RANK.get(item.path.stem, len(_RANK)))


def strays(items: Iterable[pytest.Item]) -> list[str]:
    """What would wait at a lock: files that use the sandbox of a lane and are not in it."""
    found = {
        f"{item.path.name} uses {fixture}: put it into the lane {' or '.join(EXCLUSIVE[fixture])} of tests/lanes.py"
        for item in items
        for fixture in getattr(item, "fixturenames", ())
        if fixture in EXCLUSIVE and lane_of(item.nodeid) not in EXCLUSIVE[fixture]
    }
    return sorted(found)


class LaneScheduling(LoadScopeScheduling):
    """pytest-xdist's ``--dist loadfile``, by lane."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self.log = Producer("lanes") if log is None else log.lanes

    def _split_scope(self, nodeid: str) -> str:
        return lane_of(nodeid)
