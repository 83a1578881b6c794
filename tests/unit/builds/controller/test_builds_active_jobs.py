"""Unfinished Jobs and waiting pods are counted by difference, in whatever order."""

import msgspec
import pytest

from polyarch.builds import names
from polyarch.builds.controller.informers import STARTING, ActiveJobs, BuildRef
from polyarch.builds.facts.build_facts import written
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
        self.runs = {"run": 1000}
        """How many Jobs each Run knows of."""
        self.workload = ActiveJobs(BuildMetrics(self.metrics), lambda run: self.runs.get(run.name, 0))
        self.jobs, self.pods = Store(), Store()
        self.version = 0

    def _metadata(self, name, architecture, role=names.ARCH_ROLE, run="run"):
        self.version += 1
        labels = {names.ARCHITECTURE_LABEL: architecture, names.ROLE_LABEL: role, names.RUN_LABEL: run}
        return {"name": name, "namespace": "team", "uid": name, "resourceVersion": str(self.version), "labels": labels}

    def job(self, name, architecture, *, conditions=(), role=names.ARCH_ROLE, created=0, run="run"):
        metadata = self._metadata(name, architecture, role, run) | {"creationTimestamp": written(created)}
        document = {"metadata": metadata, "status": {"conditions": list(conditions)}}
        for change in self.jobs.take(Apply(msgspec.convert(document, JobObject))):
            self.workload.job_changed(change)

    def pod(self, name, architecture, *, phase="Pending", node="", job="", unschedulable=False):
        """Whether a Job may have given its place back."""
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": True}
        metadata = self._metadata(name, architecture) | ({"ownerReferences": [owner]} if job else {})
        conditions = [{"type": "PodScheduled", "status": "False"}] if unschedulable else []
        document = {
            "metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase, "conditions": conditions}
        }  # fmt: skip
        return [
            self.workload.pod_changed(change) for change in self.pods.take(Apply(msgspec.convert(document, PodObject)))
        ] == [True]

    def at_work(self, now=0.0):
        return sum(each.at_work for each in self.workload.loads(now).values())

    def load(self, now=0.0, namespace="team"):
        load = self.workload.loads(now).get(namespace)
        return (load.at_work, load.waiting) if load is not None else (0, 0)

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
    assert place.at_work() == 3
    assert (place.shown("active", "arm64"), place.shown("active", "amd64")) == (2, 1)
    place.job("one", "arm64", conditions=COMPLETE)
    place.gone("three")
    assert place.at_work() == 1
    place.gone("one")
    assert place.at_work() == 1
    assert (place.shown("active", "arm64"), place.shown("active", "amd64")) == (1, 0)


@pytest.mark.req("BD-154")
def test_what_builds_no_architecture_takes_no_place(place):
    place.job("index", "", role=names.INDEX_ROLE)
    assert place.at_work() == 0


@pytest.mark.req("BD-244")
def test_a_pod_waits_until_it_has_a_node(place):
    place.pod("pod", "s390x")
    assert place.shown("waiting_for_node", "s390x") == 1
    place.pod("pod", "s390x", node="z1")
    assert place.shown("waiting_for_node", "s390x") == 0


@pytest.mark.req("BD-156")
def test_a_job_takes_a_place_of_the_cluster_unless_it_waits_for_a_node(place):
    place.job("one", "arm64", created=100)
    assert place.load(now=101) == (1, 0)
    assert not place.pod("one-x", "arm64", job="one")
    assert place.load(now=102) == (1, 0)
    assert place.pod("one-x", "arm64", job="one", unschedulable=True)
    assert place.load(now=102) == (0, 1)
    assert not place.pod("one-x", "arm64", job="one", node="n1")
    assert place.load(now=3000) == (1, 0)
    assert place.pod("one-x", "arm64", job="one", node="n1", phase="Failed")
    assert place.load(now=3000) == (0, 1)


@pytest.mark.req("BD-156")
def test_a_job_whose_pod_nobody_may_make_gives_its_place_back(place):
    """A quota, a LimitRange, Pod Security or a suspended Job: no pod, and no word in the Job's status."""
    place.job("one", "arm64", created=100)
    assert place.load(now=100 + STARTING - 1) == (1, 0)
    assert place.load(now=100 + STARTING) == (0, 1)


@pytest.mark.req("BD-156")
def test_a_pod_of_another_namespace_says_nothing_of_a_job(place):
    place.job("one", "arm64", created=100)
    place.pod("one-x", "arm64", job="one", node="n1")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "one", "uid": "one", "controller": True}
    document = {
        "metadata": {
            "name": "forged", "namespace": "evil", "uid": "forged", "resourceVersion": "99",
            "ownerReferences": [owner],
        },
        "spec": {}, "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]},
    }  # fmt: skip
    for change in place.pods.take(Apply(msgspec.convert(document, PodObject))):
        place.workload.pod_changed(change)
    assert (place.load(now=500), place.load(now=500, namespace="evil")) == ((1, 0), (0, 0))


@pytest.mark.req("BD-156")
def test_jobs_that_no_run_knows_of_take_no_place(place):
    """Whoever may create Jobs can label them like ours, also with a Run that is there."""
    place.runs |= {"mine": 2, "queued": 0}
    for each in range(5):
        place.job(f"forged-{each}", "arm64", run="nobody")
        place.job(f"queued-{each}", "arm64", run="queued")
        place.job(f"mine-{each}", "arm64", run="mine")
    assert (place.load(now=1), place.load(now=100)) == ((2, 0), (0, 2))


@pytest.mark.req("BD-156")
def test_jobs_that_a_plan_makes_take_their_places_at_once(place):
    """Their Run says nothing of them yet, or is not even there."""
    run, build = ObjectKey("team", "new"), BuildRef("ImageBuild", "team", "web")
    place.workload.planned(build, [(run, "new-amd64"), (run, "new-arm64")])
    assert place.load() == (2, 0)
    place.job("new-amd64", "amd64", run="new")
    assert place.load() == (2, 0)
    place.job("forged", "amd64", run="new")
    assert place.load() == (3, 0)
    place.runs["new"] = 2
    place.job("new-arm64", "arm64", run="new")
    place.gone("forged")
    place.workload.planned(build)
    assert place.load() == (2, 0)
    place.workload.planned(build, [(run, "new-arm64")])
    place.gone("new-arm64")
    place.workload.planned(build)
    assert place.load() == (1, 0)
