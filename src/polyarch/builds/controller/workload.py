"""Unfinished build Jobs and pods without a node, counted by difference (BD-154, BD-244, BD-348).

Every plan asks how many Jobs are under way in the cluster, and every change of a Job or pod is shown in the metrics:
so neither may read all of them.
"""

from collections import Counter

from polyarch.builds import names
from polyarch.builds.controller.watches import is_finished
from polyarch.builds.facts.jobs import JobObject, PodObject
from polyarch.builds.metrics import BuildMetrics
from polyarch.kube.store import Change
from polyarch.objects import ObjectMeta


class Workload:
    """What is under way, as the watches of Jobs and pods tell it."""

    def __init__(self, metrics: BuildMetrics) -> None:
        self._metrics = metrics
        self._active: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self.active_jobs = 0
        """Unfinished Jobs that build an architecture, in the whole cluster."""

    def job_changed(self, change: Change[JobObject]) -> None:
        """Handler of the watch of Jobs."""
        for job, step in ((change.old, -1), (change.new, 1)):
            if job is None or is_finished(job):
                continue
            self._active[_label(job.metadata, names.ARCHITECTURE_LABEL)] += step
            if _label(job.metadata, names.ROLE_LABEL) == names.ARCH_ROLE:
                self.active_jobs += step
        self._show()

    def pod_changed(self, change: Change[PodObject]) -> None:
        """Handler of the watch of pods."""
        for pod, step in ((change.old, -1), (change.new, 1)):
            if pod is not None and pod.status.phase == "Pending" and not pod.spec.node_name:
                self._waiting[_label(pod.metadata, names.ARCHITECTURE_LABEL)] += step
        self._show()

    def _show(self) -> None:
        self._metrics.show_jobs(
            {each: count for each, count in self._active.items() if each},
            {each: count for each, count in self._waiting.items() if each},
        )


def _label(metadata: ObjectMeta, key: str) -> str:
    return (metadata.labels or {}).get(key, "")
