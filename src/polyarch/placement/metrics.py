"""Metrics of the placement roles: the predecessor's, with their meaning, and ours.

Every family is exported from the first scrape on, so that dashboards show zero instead of a gap. Label
children are bound once, so the admission path looks nothing up by name.
"""

from collections.abc import Callable, Container
from typing import Final

from prometheus_client import Counter

from polyarch.images.metrics import BUCKETS, LookupMetrics
from polyarch.kube.metrics import Metrics, NamespaceGauge

OUTCOMES: Final = ("ignored", "inline", "gated", "audit", "unavailable", "error")
"""Values of the label ``outcome`` of ``polyarch_webhook_admissions_total``."""

OPTIONAL_FACTS: Final = ("namespaces", "nodes")
"""Resources that a policy may require and the role may lack the right to read."""


class PlacementMetrics:
    """The metric families that every placement role exports, including those that only another role updates."""

    def __init__(self, metrics: Metrics, lookups: LookupMetrics) -> None:
        self.lookups = lookups
        self.internal_errors = lookups.internal_errors
        histogram, counter, gauge = metrics.histogram, metrics.counter, metrics.gauge
        self.process_pod = histogram(
            "mto_ppo_ctrl_time_to_process_pod_seconds", "Time of one pass of the controller over a pod", buckets=BUCKETS
        )
        self.process_gated_pod = histogram(
            "mto_ppo_ctrl_time_to_process_gated_pod_seconds",
            "Time from first seeing a gated pod until it was finished, inspection included",
            buckets=BUCKETS,
        )
        self.inspect_pod_images = histogram(
            "mto_ppo_ctrl_time_to_inspect_pod_images_seconds",
            "Time from a pod's first look-up until all its images were known",
            buckets=BUCKETS,
        )
        self.processed_pods = counter("mto_ppo_ctrl_processed_pods_total", "Pods the controller finished with")
        self.admissions = counter("mto_ppo_wh_pods_processed_total", "Pods the webhook answered for")
        self.gated = counter("mto_ppo_wh_pods_gated_total", "Pods the webhook gated")
        self.response_time = histogram(
            "mto_ppo_wh_response_time_seconds", "Time the webhook took to answer", buckets=BUCKETS
        )
        self.pods_gated = gauge(
            "mto_ppo_pods_gated", "Pods that carry polyarch's gate now; only the leader counts them"
        )
        counter("mto_enoexecevents_total", "Reports of executables in a foreign format")
        counter("mto_enoexecevents_invalid_total", "Reports of executables in a foreign format that named no known pod")

        self._decisions = counter(
            "polyarch_placement_decisions_total", "Decisions by their reason", ("reason", "by", "mode")
        )
        self._bound_decisions: dict[tuple[str, str, str], Counter] = {}
        self.gate_seconds = histogram(
            "polyarch_placement_gate_seconds",
            "Time from seeing a pod gated until its gate was removed",
            buckets=BUCKETS,
        )
        self.held_pods = NamespaceGauge(
            gauge("polyarch_placement_held_pods", "Pods held because the policy says so", ("namespace",))
        )
        self.oldest_gate = NamespaceGauge(
            gauge(
                "polyarch_placement_oldest_gate_seconds",
                "Age of the oldest pod that carries polyarch's gate now and is not held; only the leader knows it",
                ("namespace",),
            ),
            rest=max,
        )
        self.stray_gates = counter(
            "polyarch_placement_stray_gates_total", "Pods with polyarch's gate that did not carry its label"
        )
        self.patch_conflicts = counter(
            "polyarch_placement_patch_conflicts_total", "Patches refused because the pod had changed"
        )
        self.no_matching_node = counter(
            "polyarch_placement_no_matching_node_total", "Pods whose architectures no node has"
        )
        self.unplaced_pods = NamespaceGauge(
            gauge("polyarch_placement_unplaced_pods", "Pending pods that the webhook missed", ("namespace",))
        )
        self.misplaced_pods = NamespaceGauge(
            gauge(
                "polyarch_placement_misplaced_pods",
                "Pods that the webhook missed, on nodes that their images do not support",
                ("namespace",),
            )
        )
        self.evictions = counter(
            "polyarch_placement_evictions_total", "Pods evicted because the webhook had missed them"
        )
        admissions = counter("polyarch_webhook_admissions_total", "Admissions by outcome", ("outcome",))
        seconds = histogram(
            "polyarch_webhook_seconds", "Time of an admission by outcome", ("outcome",), buckets=BUCKETS
        )
        self.admission_outcomes = {name: (admissions.labels(name), seconds.labels(name)) for name in OUTCOMES}
        self.audits_dropped = counter(
            "polyarch_placement_audits_dropped_total",
            "Audited pods whose images were not looked up because too many look-ups were running",
        )
        self._facts_left_out = gauge(
            "polyarch_placement_facts_left_out",
            "1 while pods are decided without a resource that the policy requires, because it cannot be read",
            ("resource",),
        )

    def decided(self, reason: str, by: str, mode: str) -> None:
        """Counts a decision that was written, or in audit mode would have been."""
        key = (reason, by, mode)
        bound = self._bound_decisions.get(key)
        if bound is None:
            bound = self._bound_decisions[key] = self._decisions.labels(*key)
        bound.inc()

    def watch_facts(self, left_out: Callable[[], Container[str]]) -> None:
        """Reads at each scrape which resources decisions are made without."""

        def follow(resource: str) -> None:
            self._facts_left_out.labels(resource).set_function(lambda: float(resource in left_out()))

        for resource in OPTIONAL_FACTS:
            follow(resource)
