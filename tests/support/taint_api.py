"""An API server in memory for the steps of the commands: lists with selectors, evictions, dry runs."""

import copy
from collections.abc import Callable
from typing import Any

import msgspec
from memory_api import MemoryApi, plain

from polyarch.kube.requests import FIELD_MANAGER
from polyarch.kube.resources import PODS, Resource
from polyarch.kube.responses import ListResult

POLICIES = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingadmissionpolicies",
    "MutatingAdmissionPolicy",
    namespaced=False,
)
BINDINGS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingadmissionpolicybindings",
    "MutatingAdmissionPolicyBinding",
    namespaced=False,
)


class TaintApi(MemoryApi):
    """``evictions`` are the pods that were evicted; ``budget`` may raise for one. A dry run changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.served: tuple[Resource, ...] = (POLICIES, BINDINGS)
        self.evictions: list[str] = []
        self.budget: Callable[[str], None] = lambda name: None

    def writes(self) -> list[tuple[str, str, str]]:
        return [request for request in self.requests if request[0] not in ("get", "list")]

    async def list(
        self, resource: Resource, *, type: Any = dict, label_selector: str = "", field_selector: str = ""
    ) -> ListResult[Any]:
        await self._before("list", resource, "")
        found = [copy.deepcopy(document) for (kind, _, _), document in self.objects.items() if kind == resource]
        if label_selector:
            key, _, value = label_selector.partition("=")
            labels = [(each["metadata"].get("labels") or {}).get(key) for each in found]
            found = [
                each
                for each, label in zip(found, labels, strict=True)
                if label is not None and (not value or label == value)
            ]
        if field_selector == "spec.nodeName=":
            found = [each for each in found if not each["spec"].get("nodeName")]
        elif field_selector:
            field, _, value = field_selector.partition("=")
            assert field == "metadata.name", "no other field is selected by"
            found = [each for each in found if each["metadata"]["name"] == value]
        return ListResult([msgspec.convert(each, type) for each in found], str(self.version))

    async def patch(self, resource: Resource, name: str, patch: Any, *, dry_run: bool = False, **options: Any) -> Any:
        return await self._tried(dry_run, super().patch(resource, name, patch, **options))

    async def create(self, resource: Resource, document: Any, *, dry_run: bool = False, **options: Any) -> Any:
        return await self._tried(dry_run, super().create(resource, document, **options))

    async def apply(self, resource: Resource, document: Any, *, dry_run: bool = False) -> Any:
        """Server-side apply by us: the object is the document, and all of it is ours."""
        name = document["metadata"]["name"]
        await self._before("apply", resource, name)
        fields = {f"f:{key}": {} for key in document if key not in ("apiVersion", "kind", "metadata")}
        entry = {
            "manager": FIELD_MANAGER,
            "operation": "Apply",
            "apiVersion": document["apiVersion"],
            "fieldsV1": fields,
        }
        stored = {**plain(document), "metadata": {"name": name, "managedFields": [entry]}}
        if not dry_run:
            self._store(resource, stored)

    async def delete(  # type: ignore[override]  # the client's, not the one of the objects' owners
        self, resource: Resource, name: str, *, namespace: str = "", dry_run: bool = False
    ) -> None:
        await self._before("delete", resource, name)
        self._known(resource, namespace, name)
        if not dry_run:
            del self.objects[resource, namespace, name]

    async def evict(self, namespace: str, pod: str, *, uid: str | None = None, dry_run: bool = False) -> None:
        await self._before("evict", PODS, pod)
        self.budget(pod)
        if not dry_run:
            self.evictions.append(pod)
            self.objects.pop((PODS, namespace, pod), None)

    async def discover(self, group: str) -> tuple[Resource, ...]:
        return tuple(each for each in self.served if each.group == group)

    async def _tried(self, dry_run: bool, request: Any) -> Any:
        before, version = copy.deepcopy(self.objects), self.version
        try:
            return await request
        finally:
            if dry_run:
                self.objects, self.version = before, version
