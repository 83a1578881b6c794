"""The extender's engine with nodes in it, for tests; and what kube-scheduler sends."""

from typing import Any

import msgspec

from polyarch.kube.metrics import Metrics
from polyarch.numa.extender.engine import Engine, SchedulerCache
from polyarch.numa.extender.metrics import ExtenderMetrics
from polyarch.numa.extender.settings import ExtenderSettings
from polyarch.numa.fit.facts import NodeFacts

OURS = "topo-aware-scheduler"


class Extender:
    """Engine, books and metrics; they have started."""

    def __init__(self, *nodes: NodeFacts, **settings: Any) -> None:
        self.settings = ExtenderSettings(**settings)
        self.registry = Metrics()
        self.metrics = ExtenderMetrics(self.registry)
        self.books = SchedulerCache(self.settings, self.metrics)
        self.engine = Engine(self.settings, self.books, self.metrics)
        for number, each in enumerate(nodes):
            self.books.node_seen(msgspec.structs.replace(each, resource_version=str(number + 1)), 0.0)
        self.books.start(0.0, 0.0)

    def page(self) -> str:
        return self.registry.render()[0].decode()


def document(name: str = "web", *, uid: str = "", scheduler: str = OURS, cpu: str = "2", **spec: Any) -> dict[str, Any]:
    """A Guaranteed Pod as the API server has it."""
    amounts = {"cpu": cpu, "memory": "1Gi"}
    container = {"name": "app", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "metadata": {"name": name, "namespace": "demo", "uid": uid or f"uid-{name}"},
        "spec": {"schedulerName": scheduler, "containers": [container], **spec},
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    }


def arguments(pod: dict[str, Any] | None, *names: str) -> bytes:
    """ExtenderArgs as Go writes them."""
    return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": list(names)})
