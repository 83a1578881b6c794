"""What the builder's metrics count, and when."""

from typing import Any

import pytest

from polyarch.builds.metrics import BuildMetrics
from polyarch.kube.metrics import Metrics

LABELS = {
    "polyarch_build_executions": {"kind", "result"},
    "polyarch_build_architectures": {"arch", "result"},
    "polyarch_build_architecture_seconds": {"arch", "part"},
    "polyarch_build_makespan_seconds": set(),
    "polyarch_build_overhead_seconds": set(),
    "polyarch_build_active": {"arch"},
    "polyarch_build_waiting_for_node": {"arch"},
    "polyarch_build_registry_requests": {"operation", "code"},
    "polyarch_build_images_deleted": set(),
    "polyarch_build_plan_seconds": set(),
}


class Meter:
    """The metrics of one process, and their values."""

    def __init__(self) -> None:
        self._registry = Metrics()
        self.metrics = BuildMetrics(self._registry)

    def value(self, name: str, **labels: str) -> float | None:
        return self._registry.registry.get_sample_value(name, labels)

    def families(self) -> dict[str, set[str]]:
        """Family → the labels that its samples have."""
        return {
            family.name: {label for sample in family.samples for label in sample.labels if label != "le"}
            for family in self._registry.registry.collect()
        }


@pytest.fixture
def meter() -> Meter:
    return Meter()


def status(phase: str = "", start: str = "", end: str = "", **architectures: tuple[str, str, str]) -> dict[str, Any]:
    """Of a run; each architecture with phase, start and end. Times are minutes and seconds."""
    found = [
        {"architecture": name, "phase": its, "startTime": _time(begun), "completionTime": _time(ended)}
        for name, (its, begun, ended) in architectures.items()
    ]
    return {"phase": phase, "startTime": _time(start), "completionTime": _time(end), "architectures": found}


def _time(text: str) -> str | None:
    return f"2026-01-01T00:{text}Z" if text else None


@pytest.mark.req("BD-244")
def test_there_are_these_families_and_no_label_holds_a_name_or_a_digest(meter: Meter) -> None:
    meter.metrics.took("arm64", {"wait": 1.0})
    meter.metrics.show_jobs({"arm64": 1}, {"arm64": 0})
    meter.metrics.adopted("arm64")
    meter.metrics.execution_ended("ImageBuild", "failed", "team")
    assert 'polyarch_build_failures_total{namespace="team"} 1.0' in meter.metrics._metrics.render()[0].decode()
    meter.metrics.counting(_Traffic()).request("quay.io", "head", "200", 0.1)
    families = meter.families()
    assert {name: families.get(name) for name in LABELS} == LABELS


@pytest.mark.req("BD-244")
def test_a_status_that_is_written_twice_counts_once(meter: Meter) -> None:
    """And each architecture when it ends, not when its execution does."""
    before = status("Building", "00:00", amd64=("Building", "00:00", ""), arm64=("Reused", "", ""))
    after = status("Building", "00:00", amd64=("Built", "00:00", "01:00"), arm64=("Reused", "", ""))
    meter.metrics.run_written("team", {}, before)
    meter.metrics.run_written("team", before, after)
    meter.metrics.run_written("team", after, after)
    assert meter.value("polyarch_build_architectures_total", arch="amd64", result="built") == 1
    assert meter.value("polyarch_build_architectures_total", arch="arm64", result="reused") == 1
    assert meter.value("polyarch_build_executions_total", kind="ImageBuild", result="succeeded") is None


@pytest.mark.req("BD-244")
def test_makespan_and_what_of_it_is_not_the_longest_architecture(meter: Meter) -> None:
    before = status("Assembling", "00:00")
    after = status("Succeeded", "00:00", "05:10", amd64=("Built", "00:02", "01:00"), arm64=("Built", "00:05", "05:05"))
    meter.metrics.run_written("team", before, after)
    assert meter.value("polyarch_build_executions_total", kind="ImageBuild", result="succeeded") == 1
    assert meter.value("polyarch_build_makespan_seconds_sum") == 310
    assert meter.value("polyarch_build_overhead_seconds_sum") == 10


@pytest.mark.req("BD-244")
def test_what_was_reused_only_is_all_overhead(meter: Meter) -> None:
    meter.metrics.run_written("team", {}, status("Succeeded", "00:00", "00:03", amd64=("Reused", "", "")))
    assert meter.value("polyarch_build_overhead_seconds_sum") == 3


@pytest.mark.req("BD-244")
@pytest.mark.parametrize("phase", ["Failed", "Interrupted", "Superseded"])
def test_an_execution_without_a_result_has_no_makespan(meter: Meter, phase: str) -> None:
    meter.metrics.run_written("team", {}, status(phase, "00:00", "00:30", arm64=("Cancelled", "00:00", "00:30")))
    assert meter.value("polyarch_build_executions_total", kind="ImageBuild", result=phase.lower()) == 1
    assert meter.value("polyarch_build_makespan_seconds_count") == 0
    assert meter.value("polyarch_build_architectures_total", arch="arm64", result="cancelled") == 1


@pytest.mark.req("BD-244")
def test_an_architecture_without_jobs_shows_0_and_does_not_vanish(meter: Meter) -> None:
    """So that an alert on waiting pods ends."""
    meter.metrics.show_jobs({"arm64": 2}, {"arm64": 1})
    meter.metrics.show_jobs({"amd64": 1}, {})
    assert meter.value("polyarch_build_active", arch="arm64") == 0
    assert meter.value("polyarch_build_waiting_for_node", arch="arm64") == 0
    assert meter.value("polyarch_build_active", arch="amd64") == 1


@pytest.mark.req("BD-244")
def test_architectures_that_specs_make_up_share_one_label(meter: Meter) -> None:
    """Each name would be a series that stays for ever, and a spec may name sixteen new ones every minute."""
    meter.metrics.show_jobs({"zz1": 2, "zz2": 3, "riscv64": 1}, {"zz3": 1})
    meter.metrics.adopted("zz4")
    assert meter.value("polyarch_build_active", arch="other") == 5
    assert meter.value("polyarch_build_waiting_for_node", arch="other") == 1
    assert meter.value("polyarch_build_active", arch="riscv64") == 1
    assert meter.value("polyarch_build_architectures_total", arch="other", result="adopted") == 1
    assert meter.value("polyarch_build_active", arch="zz1") is None


@pytest.mark.req("BD-244")
def test_requests_to_registries_are_counted_here_and_where_they_were(meter: Meter) -> None:
    traffic = _Traffic()
    counting = meter.metrics.counting(traffic)
    counting.request("quay.io", "head", "404", 0.1)
    counting.request("docker.io", "head", "404", 0.1)
    assert meter.value("polyarch_build_registry_requests_total", operation="head", code="404") == 2
    assert traffic.seen == ["quay.io", "docker.io"]


@pytest.mark.req("BD-244")
def test_a_time_of_an_architecture_that_is_not_known_is_left_out(meter: Meter) -> None:
    meter.metrics.took("arm64", {"wait": 2.0, "build": 60.0})
    assert meter.value("polyarch_build_architecture_seconds_sum", arch="arm64", part="build") == 60
    assert meter.value("polyarch_build_architecture_seconds_count", arch="arm64", part="push") is None


class _Traffic:
    """Metrics of registries that only remember hosts."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.inspection = self.cache = self.rate_limit = self.in_flight = self.host_seen = lambda *_: None

    def request(self, host: str, operation: str, result: str, seconds: float) -> None:
        self.seen.append(host)
