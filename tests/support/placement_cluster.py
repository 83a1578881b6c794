"""A cluster with polyarch in it, as tests of placement use it: namespaces by policy, pods, images, the audit log.

One PlacementPolicy serves all tests: what a test wants is chosen by a label on its namespace, so tests can run at the
same time. What is one in a cluster (the global pull secret) belongs to one test.
"""

import asyncio
import base64
import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from namespaces import create_namespace
from own_roles import USERS

from polyarch.kube.client import Client
from polyarch.kube.errors import AlreadyExists
from polyarch.kube.resources import EVENTS, NAMESPACES, PODS, SECRETS
from polyarch.placement import names
from polyarch.placement.api import POLICIES
from polyarch.sandbox.cluster import Sandbox

CASE = "placement-test"
SECONDS = 20.0
PATIENCE = 4
"""Several workers start control planes beside a test."""
POLICY: dict[str, Any] = {
    "apiVersion": POLICIES.api_version,
    "kind": POLICIES.kind,
    "metadata": {"name": names.SINGLETON},
    "spec": {
        "inline": {"budget": "500ms"},
        "excludedNamespaces": ["excluded-*"],
        "nodeAware": {"mode": "report"},
        "overrides": [
            {"name": name, "namespaceSelector": {"matchLabels": {CASE: name}}, **spec}
            for name, spec in {
                "gated": {"inline": {"enabled": False}},
                "full": {"inline": {"enabled": False}, "events": "full"},
                "audit": {"mode": "audit"},
                "cold": {"inline": {"budget": "0s"}},
                "hold": {"onUnresolved": {"action": "hold", "retryWindow": "5s"}},
                "fallback": {
                    "onUnresolved": {
                        "action": "fallback",
                        "retryWindow": "5s",
                        "fallbackArchitectures": ["ppc64le", "s390x"],
                    }
                },
                "release": {"onUnresolved": {"action": "release", "retryWindow": "5s"}},
                "strict": {"podOptOut": "forbidden"},
            }.items()
        ],
    },
}


class PlacementCluster:
    """The administrator's view."""

    def __init__(self, sandbox: Sandbox, client: Client) -> None:
        self.sandbox = sandbox
        self.client = client

    async def configure(self) -> None:
        """The one policy of all tests; one that is there is left, as another test may have added to it."""
        with contextlib.suppress(AlreadyExists):
            await self.client.create(POLICIES, POLICY)

    @asynccontextmanager
    async def namespace(self, case: str = "", *, prefix: str = "placement") -> AsyncIterator[str]:
        """A namespace to which the override of that name applies."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        await create_namespace(self.client, name, {CASE: case} if case else {})
        try:
            yield name
        finally:
            await self.client.delete(NAMESPACES, name)

    async def seed(self, images: dict[str, Any]) -> None:
        await self.sandbox.registry.seed(images)

    async def create(self, document: dict[str, Any], namespace: str, **options: Any) -> dict[str, Any]:
        return await self.client.create(PODS, document, namespace=namespace, type=dict, **options)

    async def get(self, namespace: str, name: str) -> dict[str, Any]:
        return await self.client.get(PODS, name, namespace=namespace)

    async def released(self, namespace: str, name: str, *, seconds: float = SECONDS) -> dict[str, Any]:
        """The pod once our gate has gone."""

        async def gone() -> bool:
            return not is_gated(await self.get(namespace, name))

        await until(gone, seconds=seconds)
        return await self.get(namespace, name)

    async def labelled(
        self, namespace: str, name: str, key: str, value: str, *, seconds: float = SECONDS
    ) -> dict[str, Any]:
        async def there() -> bool:
            return labels(await self.get(namespace, name)).get(key) == value

        await until(there, seconds=seconds)
        return await self.get(namespace, name)

    async def running(self, namespace: str, name: str, *, seconds: float = SECONDS) -> dict[str, Any]:
        async def runs() -> bool:
            return (await self.get(namespace, name)).get("status", {}).get("phase") == "Running"

        await until(runs, seconds=seconds)
        return await self.get(namespace, name)

    async def events(self, namespace: str, name: str) -> list[dict[str, Any]]:
        """Polyarch's events about a pod, oldest first."""
        found = (await self.client.list(EVENTS, namespace=namespace)).items
        ours = [
            event
            for event in found
            if event.get("regarding", {}).get("name") == name
            and event.get("reportingController", "").startswith("polyarch.dev/")
        ]
        return sorted(ours, key=lambda event: event["eventTime"])

    async def pull_secret(self, namespace: str, name: str, host: str, **entry: str) -> None:
        """``entry``: username and password, or what else an entry of a docker configuration has."""
        config = base64.b64encode(json.dumps({"auths": {host: entry}}).encode()).decode()
        document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": config},
        }
        await self.client.create(SECRETS, document, namespace=namespace)

    def audit(self) -> list[dict[str, Any]]:
        """Everything the API server has logged so far."""
        lines = self.sandbox.audit_log.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines]

    async def requests(self, namespace: str, *, after: float = 1.5) -> list[str]:
        """What polyarch's own identities asked in a namespace: ``verb resource name``; watches and Leases left out.

        The log is written with a delay of at most a second, hence ``after``.
        """
        await asyncio.sleep(after)
        return [
            f"{event['verb']} {event['objectRef']['resource']} {event['objectRef'].get('name', '')}".strip()
            for event in self.audit()
            if event["user"].get("username", "") in USERS
            and event.get("objectRef", {}).get("namespace") == namespace
            and event["verb"] != "watch"
        ]


async def until(condition: Callable[[], Any], *, seconds: float = SECONDS, pause: float = 0.1) -> None:
    """Waits until the condition holds; fails after ``PATIENCE`` times the ``seconds`` that a machine at rest needs.

    What passes does not take longer for it.
    """
    end = time.monotonic() + PATIENCE * seconds
    while not await condition():
        assert time.monotonic() < end, f"not so within {PATIENCE * seconds:g} s"
        await asyncio.sleep(pause)


def pod(*images: str, name: str = "app", secrets: Iterable[str] = (), **spec: Any) -> dict[str, Any]:
    """A pod that a user might write; ``name=""`` uses ``generateName``."""
    containers = [
        {"name": f"c{at}", "image": image, "imagePullPolicy": "IfNotPresent"} for at, image in enumerate(images)
    ]
    spec = {"containers": containers, "terminationGracePeriodSeconds": 0, **spec}
    if secrets:
        spec["imagePullSecrets"] = [{"name": each} for each in secrets]
    metadata = {"name": name} if name else {"generateName": "app-"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def is_gated(document: dict[str, Any]) -> bool:
    return {"name": names.GATE} in (document["spec"].get("schedulingGates") or [])


def labels(document: dict[str, Any]) -> dict[str, str]:
    return document["metadata"].get("labels") or {}


def decision(document: dict[str, Any]) -> dict[str, Any]:
    return json.loads(document["metadata"]["annotations"][names.DECISION_ANNOTATION])


def architectures(document: dict[str, Any]) -> list[str] | None:
    """Values of our expression in the first required term."""
    affinity = (document["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return None
    for expression in required["nodeSelectorTerms"][0].get("matchExpressions") or ():
        if expression["key"] == names.ARCH_KEY:
            return list(expression["values"])
    return None
