"""Unfinished Jobs and waiting pods are counted by difference, in whatever order."""

import msgspec
import pytest

from polyarch.builds import names
from polyarch.builds.controller.informers import ActiveJobs
from polyarch.builds.facts.objects import JobObject, PodObject
from polyarch.builds.metrics import BuildMetrics
from polyarch.kube.metrics import Metrics
from polyarch.kube.store import Store
from polyarch.kube.watch import Apply, Delete
from polyarch.objects import ObjectKey

pytestmark = pytest.mark.req("BD-348")

COMPLETE = [{"type": "Complete", "status": "True"}]


class Place:
    """The caches of Jobs and pods, with the workload as their handler."""

    def __init__(self):
        self.metrics = Metrics()
        self.workload = ActiveJobs(BuildMetrics(self.metrics))
        self.jobs, self.pods = Store(), Store()
        self.version = 0

    def _metadata(self, name, architecture, role=names.ARCH_ROLE):
        self.version += 1
        labels = {names.ARCHITECTURE_LABEL: architecture, names.ROLE_LABEL: role}
        return {"name": name, "namespace": "team", "uid": name, "resourceVersion": str(self.version), "labels": labels}

    def job(self, name, architecture, *, conditions=(), role=names.ARCH_ROLE):
        document = {"metadata": self._metadata(name, architecture, role), "status": {"conditions": list(conditions)}}
        for change in self.jobs.take(Apply(msgspec.convert(document, JobObject))):
            self.workload.job_changed(change)

    def pod(self, name, architecture, *, phase="Pending", node=""):
        document = {
            "metadata": self._metadata(name, architecture), "spec": {"nodeName": node}, "status": {"phase": phase}
        }  # fmt: skip
        for change in self.pods.take(Apply(msgspec.convert(document, PodObject))):
            self.workload.pod_changed(change)

    def gone(self, name):
        self.version += 1
        for change in self.jobs.take(Delete(ObjectKey("team", name), str(self.version))):
            self.workload.job_changed(change)

    def shown(self, family, architecture):
        return self.metrics.registry.get_sample_value(f"polyarch_build_{family}", {"arch": architecture})


@pytest.fixture
def place():
    return Place()


@pytest.mark.req("BD-154")
def test_jobs_count_until_they_have_ended_or_are_gone(place):
    place.job("one", "arm64")
    place.job("two", "arm64")
    place.job("three", "amd64")
    place.job("two", "arm64")
    assert place.workload.active_jobs == 3
    assert (place.shown("active", "arm64"), place.shown("active", "amd64")) == (2, 1)
    place.job("one", "arm64", conditions=COMPLETE)
    place.gone("three")
    assert place.workload.active_jobs == 1
    place.gone("one")
    assert place.workload.active_jobs == 1
    assert (place.shown("active", "arm64"), place.shown("active", "amd64")) == (1, 0)


@pytest.mark.req("BD-154")
def test_what_builds_no_architecture_takes_no_place(place):
    place.job("index", "", role=names.INDEX_ROLE)
    assert place.workload.active_jobs == 0


@pytest.mark.req("BD-244")
def test_a_pod_waits_until_it_has_a_node(place):
    place.pod("pod", "s390x")
    assert place.shown("waiting_for_node", "s390x") == 1
    place.pod("pod", "s390x", node="z1")
    assert place.shown("waiting_for_node", "s390x") == 0
