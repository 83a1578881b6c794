"""Which files of tests against a cluster follow each other in one worker, and in which order the workers take them.

What is one in a cluster (an installation, a taint of all nodes) belongs to one test at a time. Were such files given to
several workers, all but one would wait at a lock. So the files that share such a sandbox are a *lane*: one worker runs
them one after another, and the sandbox can end when the lane does (``endings``).

Lanes come longest first; a file that began last would keep the whole run waiting for it alone. But the sandboxes of the
fault suite, with the roles that stand in them, end with their worker: their lanes come last, so that they do not idle
through the whole run. ``make cluster`` prints at its end how long each lane took; the orders below follow it.
"""

import collections
from collections.abc import Iterable, Mapping

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

FIRST: Mapping[str, tuple[str, ...]] = {
    "placed": (
        "test_sandbox_polyarch",
        "test_examples",
        "test_placement_audit",
        "test_placement_gated",
        "test_placement_differences",
        "test_placement_images",
        "test_placement_inline",
        "test_placement_neighbours",
        "test_placement_sharing",
    ),
    "operated-features": (
        "test_taints_operator",
        "test_numa_operator",
        "test_operator_webhooks",
        "test_operator_monitoring",
        "test_operator_settings",
        "test_operator_repairs",
        "test_operator_reachability",
        "test_operator_edits",
        "test_builds_operator",
    ),
    "operated": ("test_operator_lifecycle", "test_operator_monitor", "test_operator_taken_away"),
    "the first sandbox's controllers": (
        "test_taints_pods",
        "test_placement_sweep",
        "test_taints_admission",
        "test_placement_warm_up",
        "test_taints_schema",
        "test_report_kept",
        "test_placement_run",
        "test_placement_assumptions",
    ),
    "building": ("test_builds_walk", "test_builds_old_runs", "test_builds_registry_access"),
    "empty": ("test_installation_commands", "test_installation_manifests"),
    "preempting": ("test_numa_preemption",),
    "commanded": ("test_taint_commands", "test_taint_clean"),
    "scheduled": ("test_numa_scheduling",),
    "guide": ("test_guide_commands",),
    "running": (
        "test_packaging_chart_life",
        "test_credential_plugins",
        "test_operator_node_loss",
        "test_packaging_bundle",
    ),
    "image": ("test_packaging_image",),
    "exporters": ("test_numa_exporter",),
    "owner": ("test_owner_operator",),
    "sandbox's pods": ("test_sandbox_pods",),
    "life": ("test_sandbox_life",),
    "tainted": ("test_taints_nodes",),
    "buildah": ("test_builds_buildah",),
    "growing": ("test_taints_daemonsets", "test_sandbox_growth"),
}
"""Name of a lane to its files, longest lane first."""
LAST: Mapping[str, tuple[str, ...]] = {
    "roles under faults": (
        "test_api_faults",
        "test_control_plane_faults",
        "test_machine_faults",
        "test_replica_faults",
        "test_registry_faults",
        "test_long_faults",
        "test_taints_node_faults",
        "test_watch_faults",
    ),
    "mixed fleets under faults": ("test_taints_faults", "test_builds_faults"),
    "exporters and registries under faults": (
        "test_numa_exporter_faults",
        "test_builds_registry_faults",
        "test_numa_extender_faults",
    ),
    "installations under faults": ("test_installed_faults", "test_operator_faults", "test_numa_operator_faults"),
}
"""The same, after all that is in no lane. A file that is in none is its own lane."""
EXCLUSIVE = {
    "operated_sandbox": ("operated", "operated-features"),
    **{f"{lane}_sandbox": (lane,) for lane in ("running", "growing", "commanded", "tainted", "empty")},
}
"""Fixtures to the lanes of their users; each lane has a sandbox of its own."""
_LANE_OF = {file: lane for lanes in (FIRST, LAST) for lane, files in lanes.items() for file in files}
_BETWEEN = sum(map(len, FIRST.values()))
_RANK = {file: rank if rank < _BETWEEN else rank + 1 for rank, file in enumerate(_LANE_OF)}


def lane_of(nodeid: str) -> str:
    """The lane of a test, by the file in its id."""
    path = nodeid.split("::", 1)[0]
    return _LANE_OF.get(path.rsplit("/", 1)[-1].removesuffix(".py"), path)


def sandbox_of(fixture: str, nodeid: str) -> str:
    """What tells the sandbox of this fixture from others: the lane of the test, if each lane has its own."""
    return lane_of(nodeid) if fixture in EXCLUSIVE else fixture.removesuffix("_sandbox").replace("_", "-")


def order(items: list[pytest.Item]) -> None:
    """In the order of the lanes; what is in none comes between those two kinds and stays as it is."""
    items.sort(key=lambda item: _RANK.get(item.path.stem, _BETWEEN))


def strays(items: Iterable[pytest.Item]) -> list[str]:
    """What would wait at a lock: files that use the sandbox of a lane and are not in it."""
    found = {
        f"{item.path.name} uses {fixture}: put it into the lane {' or '.join(EXCLUSIVE[fixture])} of tests/lanes.py"
        for item in items
        for fixture in getattr(item, "fixturenames", ())
        if fixture in EXCLUSIVE and lane_of(item.nodeid) not in EXCLUSIVE[fixture]
    }
    return sorted(found)


def durations(tests: Iterable[tuple[str, float]]) -> list[str]:
    """Seconds of workers by lane, longest first, from the ids of tests and how long each (or a part of it) took."""
    lanes: collections.Counter[str] = collections.Counter()
    for nodeid, seconds in tests:
        lanes[lane_of(nodeid)] += round(seconds)
    return [f"{seconds:6} s  {lane}" for lane, seconds in lanes.most_common() if seconds]


class LaneScheduling(LoadScopeScheduling):
    """pytest-xdist's ``--dist loadfile``, by lane."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self.log = Producer("lanes") if log is None else log.lanes

    def _split_scope(self, nodeid: str) -> str:
        return lane_of(nodeid)
