"""A whole pass over a NUMAResourcesOperator: what fails in it is told."""

from types import SimpleNamespace
from typing import Any

import pytest
from fake_api import FakeApi
from fake_recorder import FakeRecorder
from manual_clock import ManualClock
from numa_cluster import PRIVILEGED, WORKER, operator

from polyarch.kube.apply import ApplyResult
from polyarch.kube.errors import Forbidden
from polyarch.kube.metrics import Metrics
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import Resource
from polyarch.numa import names
from polyarch.numa.api.resources import OPERATORS
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.objects import ObjectMeta, PartialObjectMetadata, Unstructured
from polyarch.operator import certificates
from polyarch.operator.cluster import ImageArchitectures
from polyarch.operator.components.numa_cluster import NumaMetrics, NumaStatusWriter
from polyarch.operator.components.numa_exporter_reconciler import EXPORTERS_KEY, ExporterReconciler, ExporterUninstaller
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings


class Applied:
    """Operands that are always as they should be."""

    is_complete = True

    def serve(self, kinds: Any) -> None:
        pass

    def cached(self) -> list[Any]:
        return []

    async def apply(self, documents: Any, *, keeps: Any) -> ApplyResult:
        return ApplyResult((), (), (), ())


class ExporterReconcilerWorld:
    """One group with one node; the certificate is made by others, and the definition left alone."""

    def __init__(self) -> None:
        self.clock, self.api = ManualClock(), FakeApi()
        self.read: list[str] = []
        """The images whose architectures were asked for."""
        api: Any = self.api
        document = operator({"poolName": "worker"}, annotations={names.API_DEFINITION: "cluster"})
        document["metadata"] |= {"finalizers": [names.FINALIZER]}
        api.put(OPERATORS, document)
        shown: Any = api.informer(OPERATORS, Unstructured)
        settings = OperatorSettings(namespace="home")
        node = PartialObjectMetadata(metadata=ObjectMeta(name="n1", labels={WORKER: ""}))
        watched: Any = SimpleNamespace(
            operators=shown,
            definition=SimpleNamespace(store={}),
            has_synced=True,
            expect=lambda _: None,
            namespace=ObjectMeta(name="home", labels=PRIVILEGED),
            api_server_ports=(6443,),
            tls_profile=None,
            nodes=SimpleNamespace(store={"n1": node}),
            schedulers=SimpleNamespace(store={}),
            pools=(),
        )
        series, told, sets = NumaMetrics(Metrics()), FakeRecorder(), Applied()
        parts: dict[str, Any] = {
            "namespace": SimpleNamespace(is_terminating=False),
            "discovery": SimpleNamespace(
                cluster=ClusterCapabilities(),
                images=ImageArchitectures(self._no_answer, clock=self.clock),
                served=frozenset({certificates.ISSUERS, certificates.CERTIFICATES}),
            ),
            "platforms": SimpleNamespace(find=self._plain),
            "kubelets": SimpleNamespace(expect=lambda _: True, documents={}),
            "sets": sets,
            "uninstaller": ExporterUninstaller(api, sets, told, namespace="home", clock=self.clock),  # type: ignore[arg-type]
        }
        self.reconciler = ExporterReconciler(
            api,
            settings,
            informers=watched,
            status_writer=NumaStatusWriter(api, OPERATORS, shown, recorder=told, metrics=series, clock=self.clock),  # type: ignore[arg-type]
            metrics=series,
            image_restricted=True,
            clock=self.clock,
            look_at_kubelets=lambda: None,
            **parts,
        )

    async def _no_answer(self, image: str) -> None:
        self.read.append(image)

    async def _plain(self, *, openshift: bool) -> str:
        return "kubernetes"

    def condition(self, name: str) -> Any:
        live = Unstructured(self.api.read(OPERATORS, names.OPERATOR_SINGLETON))
        return next((each for each in live.status.get("conditions") or () if each["type"] == name), None)


@pytest.mark.req("NO-041")
async def test_no_registry_is_asked_for_an_image_that_the_operator_does_not_take() -> None:
    world = ExporterReconcilerWorld()
    await world.api.patch(
        OPERATORS, names.OPERATOR_SINGLETON, MergePatch({"spec": {"imageSpec": "elsewhere.example/x"}})
    )
    await world.reconciler.reconcile(EXPORTERS_KEY)
    assert world.condition("Degraded")["reason"] == "CustomUserImage"
    assert "elsewhere.example/x" not in world.read


@pytest.mark.req("NO-046", "NO-090")
async def test_topologies_that_may_not_be_read_are_told_and_not_only_logged() -> None:
    """A missing right is Degraded, with verb and resource, and nothing else; exporters run meanwhile."""
    world = ExporterReconcilerWorld()

    async def refused(verb: str, resource: Resource, name: str) -> None:
        if (verb, resource) == ("list", TOPOLOGIES):
            raise Forbidden(403, verb="list", resource=str(TOPOLOGIES))

    world.api.hook = refused
    with pytest.raises(Forbidden):
        await world.reconciler.reconcile(EXPORTERS_KEY)
    degraded = world.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "InternalError")
    assert f"FailedRTESync: list {TOPOLOGIES}" in degraded["message"]
    told = world.api.read(OPERATORS, names.OPERATOR_SINGLETON)["status"]["conditions"]
    assert [each["type"] for each in told if each["status"] == "True"] == ["Degraded"]
    assert len({each["type"] for each in told}) == len(told)
    world.api.hook = None
    await world.reconciler.reconcile(EXPORTERS_KEY)
