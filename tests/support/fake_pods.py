"""Pods, and DaemonSets, of the fake API server as controllers see them."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

from fake_api import FakeApi

from polyarch.kube.resources import DAEMONSETS, PODS, Resource
from polyarch.kube.store import ObjectChange
from polyarch.objects import DaemonSet, ObjectKey, Pod
from polyarch.placement import names as placement
from polyarch.taints import names as taints

Json = dict[str, Any]


class _Objects:
    """Objects of one kind: what a test does to them, and the view that a watch with a selector gives."""

    def __init__(self, api: FakeApi | None, resource: Resource, type: Any, shows: Callable[[Any], bool]) -> None:
        self.api = api or FakeApi()
        self.store: dict[ObjectKey, Any] = {}
        self.on_event: Callable[[ObjectKey], None] = lambda key: None
        self._resource = resource
        self._shows = shows
        self._informer = self.api.informer(resource, type)
        self._informer.add_handler(self._seen)

    def _seen(self, change: ObjectChange[Any]) -> None:
        if change.new is not None and self._shows(change.new):
            self.store[change.key] = change.new
        else:
            self.store.pop(change.key, None)
        self.on_event(change.key)

    def _admits(self, admit: Callable[[Json, Json], None]) -> None:
        earlier = self.api.admit

        def both(before: Json, after: Json) -> None:
            earlier(before, after)
            admit(before, after)

        self.api.admit = both

    # the view of the controller

    def get(self, key: ObjectKey) -> Any:
        return self.store.get(key)

    def keys(self) -> Iterable[ObjectKey]:
        return self.store.keys()

    def known(self) -> list[ObjectKey]:
        return list(self.store)

    # what tests do and see

    @property
    def stored(self) -> dict[ObjectKey, Json]:
        """As the API server has them, whatever watches show."""
        return {
            ObjectKey(namespace, name): document
            for (resource, namespace, name), document in self.api.objects.items()
            if resource == self._resource
        }

    @property
    def patched(self) -> list[ObjectKey]:
        return [key for key, _ in self.api.patches]

    def change(self, key: ObjectKey, **metadata: Any) -> None:
        """Somebody else changes metadata; the watch has not told yet."""
        held, self.api.holds_back = self.api.holds_back, True
        self.api.change(self._resource, key, lambda document: document["metadata"].update(metadata))
        self.api.holds_back = held

    def refuse(self, error: Exception) -> None:
        """Patches get this error."""
        self.api.refuse(self._resource, "patch", error=error)

    def delete(self, key: ObjectKey) -> None:
        self.api.remove(self._resource, key.name, key.namespace)

    def tell(self, key: ObjectKey) -> None:
        """The watch tells of what is stored."""
        if key in self.stored:
            self._informer.show(copy.deepcopy(self.stored[key]))
        else:
            self.api.version += 1
            self._informer.remove(key.name, key.namespace, version=self.api.version)

    def annotations(self, key: ObjectKey) -> Json:
        return self.stored[key]["metadata"].get("annotations") or {}

    def labels(self, key: ObjectKey) -> Json:
        return self.stored[key]["metadata"].get("labels") or {}


class FakePods(_Objects):
    """``shows`` is the selector of the watch."""

    def __init__(self, api: FakeApi | None = None, *, shows: Callable[[Pod], bool]) -> None:
        super().__init__(api, PODS, Pod, shows)
        self.undoes = ""
        """What a webhook of the cluster undoes: ``labels``, or ``all``, be it that our gate is removed."""
        self._admits(self._undo)

    def _undo(self, before: Json, after: Json) -> None:
        if before and (self.undoes == "all" or (self.undoes == "labels" and after["spec"] == before["spec"])):
            after.clear()
            after.update(copy.deepcopy(before))

    def create(self, document: Json) -> ObjectKey:
        self.api.put(PODS, document)
        return ObjectKey(document["metadata"]["namespace"], document["metadata"]["name"])

    def unscheduled(self) -> list[Pod]:
        return [pod for pod in self.store.values() if not pod.spec.node_name]

    def is_gated(self, key: ObjectKey, gate: str = placement.GATE) -> bool:
        return any(found["name"] == gate for found in self.stored[key]["spec"].get("schedulingGates") or ())

    def has_gate(self, key: ObjectKey) -> bool:
        """That of the role ``taints``."""
        return self.is_gated(key, taints.GATE)

    def architectures(self, key: ObjectKey) -> list[str] | None:
        """Values of the expression in the first required term, or None if there is none."""
        affinity = self.stored[key]["spec"].get("affinity") or {}
        required = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
        if not required:
            return None
        for expression in required["nodeSelectorTerms"][0].get("matchExpressions") or ():
            if expression["key"] == placement.ARCH_KEY:
                return list(expression["values"])
        return None

    def tolerations(self, key: ObjectKey) -> list[dict[str, str]]:
        return self.stored[key]["spec"].get("tolerations") or []

    def tolerated(self, key: ObjectKey, taint: str = "supported-arch") -> list[str]:
        """Architectures whose taint with our key the pod tolerates, in order."""
        return [each["value"] for each in self.tolerations(key) if each.get("key") == taint]


class FakeDaemonSets(_Objects):
    """Their controller begins a rollout with each change of a template, and goes on when the test says so."""

    def __init__(self, api: FakeApi | None = None) -> None:
        super().__init__(api, DAEMONSETS, DaemonSet, lambda daemon_set: True)
        self._admits(self._begin_rollout)

    def _begin_rollout(self, before: Json, after: Json) -> None:
        if before and "template" in after["spec"] and before["spec"] != after["spec"]:
            after["status"] = {**after["status"], "updatedNumberScheduled": 0}

    def create(self, name: str, *images: str, namespace: str = "team", pods: int = 3, **options: Any) -> ObjectKey:
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": 1}
        metadata |= {"annotations": options.pop("annotations")} if "annotations" in options else {}
        strategy = options.pop("strategy", "RollingUpdate")
        containers = [{"name": f"c{at}", "image": image} for at, image in enumerate(images)]
        spec = {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {}, "spec": {"containers": containers, **options}},
            "updateStrategy": {"type": strategy},
        }
        status = {"observedGeneration": 1, "desiredNumberScheduled": pods, "updatedNumberScheduled": pods}
        self.api.put(DAEMONSETS, {"metadata": metadata, "spec": spec, "status": status})
        return ObjectKey(namespace, name)

    def advance(self, key: ObjectKey, *, updated: int = 3, unavailable: int = 0) -> None:
        """The DaemonSet controller replaces pods."""

        def progress(found: Json) -> None:
            found["status"] |= {
                "observedGeneration": found["metadata"]["generation"],
                "updatedNumberScheduled": updated,
                "numberUnavailable": unavailable,
            }

        self.api.change(DAEMONSETS, key, progress)

    def annotate(self, key: ObjectKey, **annotations: str) -> None:
        self.api.change(
            DAEMONSETS, key, lambda found: found["metadata"].setdefault("annotations", {}).update(annotations)
        )

    def sync(self, key: ObjectKey) -> None:
        """A tool applies the original manifest again, which has no tolerations; all pods are replaced at once."""

        def restore(found: Json) -> None:
            found["metadata"]["generation"] += 1
            found["spec"]["template"]["spec"].pop("tolerations", None)

        self.api.change(DAEMONSETS, key, restore)
        self.advance(key)

    def begin_to_delete(self, key: ObjectKey) -> None:
        """Finalizers keep it, such as that of a deletion in the foreground."""
        self.change(key, deletionTimestamp="2026-01-01T00:00:00Z")
        self.tell(key)

    def tolerated(self, key: ObjectKey) -> list[str]:
        return [each["value"] for each in self.stored[key]["spec"]["template"]["spec"].get("tolerations") or ()]

    def record(self, key: ObjectKey) -> str | None:
        return self.annotations(key).get(taints.ADDED_TOLERATIONS_ANNOTATION)
