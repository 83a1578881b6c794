"""Waits for what others do: the API server with definitions, the operator with its Deployments."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from polyarch.builds import names as build_names
from polyarch.clock import Clock, SystemClock
from polyarch.installation.operator import BUILDS_SWITCH, OPERATOR
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import CRDS, DEPLOYMENTS, LEASES, MUTATING_WEBHOOKS, PODS, Resource
from polyarch.numa import names as numa_names
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.taints import names as taint_names
from polyarch.taints.api import ARCHITECTURE_TAINTS

Document = dict[str, Any]

ESTABLISHED_SECONDS: Final = 60.0
DEGRADED_SECONDS: Final = 30.0
"""For how long placement that is available and has a problem is waited for."""
AVAILABLE_BUT: Final = "placement is available, but: "
REPLACING: Final = "available, but pods are being replaced: "
UNSETTLED: Final = "available, but the operator is being replaced: "
SILENT: Final = f"{UNSETTLED}it has not looked at everything yet"
SILENT_SECONDS: Final = 10.0
"""An operator that leads and does not say by then that it has looked at everything is one that never says it."""
REPLACED: Final = (names.CONTROLLER, names.WEBHOOK, names.ENOEXEC_HANDLER, taint_names.ROLE, build_names.ROLE)
"""Deployments of roles that are available while their pods are replaced."""
POLL: Final = 0.2
POLL_INTERVAL: Final = 1.0
"""Usual seconds between looks at what takes seconds."""


class WaitTimeout(Exception):  # noqa: N818 - what happened
    """It took longer than was given; the text says what is missing."""


def conditions(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """``status.conditions`` by type."""
    found = (document.get("status") or {}).get("conditions") or ()
    return {each["type"]: each for each in found}


def is_true(document: Mapping[str, Any], type: str) -> bool:
    """Whether a condition is there and True."""
    return conditions(document).get(type, {}).get("status") == "True"


async def established(client: Client, definitions: Iterable[str], *, clock: Clock | None = None) -> None:
    """Until the API server serves these CustomResourceDefinitions. Raises :class:`WaitTimeout`."""
    clock = clock or SystemClock()
    end = clock.monotonic() + ESTABLISHED_SECONDS
    for name in definitions:
        while not is_true(definition := await client.get(CRDS, name), "Established"):
            if clock.monotonic() >= end:
                said = "; ".join(str(each.get("message")) for each in conditions(definition).values())
                raise WaitTimeout(
                    f"{name} is not established after {ESTABLISHED_SECONDS:.0f} s: {said or 'no condition'}"
                )
            await clock.sleep(POLL)


async def available(
    client: Client,
    namespace: str,
    *,
    switched_on: Collection[Resource],
    seconds: float,
    tell: Callable[[str], None],
    every: float = POLL_INTERVAL,
    clock: Clock | None = None,
) -> None:
    """Until the operator runs, and what custom resources of the kinds ``switched_on`` ask for is available.

    What is available but Degraded is waited for a little: after a takeover the Deployments of before are available.
    While the operator itself is replaced, its predecessor's word is all there is: until the new one leads and says in
    its Lease that it has looked at everything. Then the pods that it replaces are waited for.
    ``tell`` gets each new word about what is waited for. Raises :class:`WaitTimeout` with the last one.
    """
    clock = clock or SystemClock()
    begun, said = clock.monotonic(), ""
    end, patience = begun + seconds, begun + min(seconds, DEGRADED_SECONDS)
    silent: float | None = None
    """Since when an operator leads that has not said anything."""
    while True:
        is_heard = silent is None or clock.monotonic() < silent + SILENT_SECONDS
        missing = await _missing(client, namespace, switched_on, is_heard=is_heard)
        if missing is None:
            return
        if is_heard:
            silent = (silent or clock.monotonic()) if missing == SILENT else None
        enough = end if missing.startswith((REPLACING, UNSETTLED)) else patience
        if missing.startswith((AVAILABLE_BUT, REPLACING, UNSETTLED)) and clock.monotonic() >= enough:
            tell(missing)
            return
        if missing != said:
            said = missing
            tell(said)
        if clock.monotonic() >= end:
            raise WaitTimeout(f"not available after {seconds:.0f} s: {said}")
        await clock.sleep(every)


async def _missing(client: Client, namespace: str, switched_on: Collection[Resource], *, is_heard: bool) -> str | None:
    """``is_heard``: the operator's leader is waited for until it says that it has looked at everything."""
    try:
        deployment = await client.get(DEPLOYMENTS, OPERATOR, namespace=namespace)
    except NotFound:
        return f"there is no Deployment {namespace}/{OPERATOR}"
    pods = await client.list(PODS, namespace=namespace, label_selector=f"{names.CONTROLLER_LABEL}={OPERATOR}")
    if (lacking := _not_rolled_out(deployment)) is not None:
        return f"{lacking}{_why_not(pods.items)}"
    missing = await _missing_of_builds(client, namespace) if _builds_are_on(deployment) else None
    if missing is None and ARCHITECTURE_TAINTS in switched_on:
        missing = await _missing_of_taints(client, namespace)
    missing = missing or await _missing_of_numa(client, switched_on)
    if missing is None and CPPCS in switched_on:
        missing = await _missing_of_placement(client)
    missing = missing or await _unsettled(client, deployment, pods.items, is_heard=is_heard)
    # What was available is asked about again: it may have been the word of the predecessor.
    missing = missing or await _missing_of_numa(client, switched_on)
    return missing or await _being_replaced(client, namespace)


def _builds_are_on(deployment: Document) -> bool:
    """By the flags of the operator's Deployment: no custom resource turns builds on."""
    containers = deployment["spec"].get("template", {}).get("spec", {}).get("containers", ())
    variables = (each for container in containers for each in container.get("env", ()))
    return any((each["name"], each.get("value")) == (BUILDS_SWITCH, "on") for each in variables)


async def _missing_of_builds(client: Client, namespace: str) -> str | None:
    try:
        deployment = await client.get(DEPLOYMENTS, build_names.ROLE, namespace=namespace)
    except NotFound:
        return "builds: the operator has not begun"
    if (deployment.get("status") or {}).get("availableReplicas"):
        return None
    selector = f"{names.CONTROLLER_LABEL}={build_names.ROLE}"
    pods = await client.list(PODS, namespace=namespace, label_selector=selector)
    return f"builds: no pod is available{_why_not(pods.items)}"


async def _missing_of_numa(client: Client, switched_on: Collection[Resource]) -> str | None:
    for resource, name in ((OPERATORS, numa_names.OPERATOR_SINGLETON), (SCHEDULERS, numa_names.SCHEDULER_SINGLETON)):
        if resource in switched_on and (missing := await _missing_of(client, resource, name)) is not None:
            return missing
    return None


async def _missing_of(client: Client, resource: Resource, name: str) -> str | None:
    """What the operator says: exporters run on every node of a group, or the scheduler runs."""
    try:
        found = await client.get(resource, name)
    except NotFound:
        return f"there is no {resource.kind} {name}"
    said = conditions(found)
    available = said.get("Available", {})
    is_current = available.get("observedGeneration", 0) >= found["metadata"].get("generation", 0)
    return None if is_true(found, "Available") and is_current else _words(said, f"numa: {resource.kind}")


async def _missing_of_taints(client: Client, namespace: str) -> str | None:
    """The role adds tolerations once its webhook is registered, which it is once a pod is available."""
    try:
        taints = await client.get(ARCHITECTURE_TAINTS, names.SINGLETON)
    except NotFound:
        return f"there is no {ARCHITECTURE_TAINTS.kind} {names.SINGLETON}"
    try:
        deployment = await client.get(DEPLOYMENTS, taint_names.ROLE, namespace=namespace)
    except NotFound:
        return "taints: the operator has not begun"
    if not (deployment.get("status") or {}).get("availableReplicas"):
        pods = await client.list(
            PODS, namespace=namespace, label_selector=f"{names.CONTROLLER_LABEL}={taint_names.ROLE}"
        )
        return f"taints: no pod is available{_why_not(pods.items)}"
    if (taints.get("spec") or {}).get("state", "active") != "active":
        return None  # nothing is registered then
    try:
        await client.get(MUTATING_WEBHOOKS, taint_names.ROLE)
    except NotFound:
        return "taints: the webhook is not registered yet"
    return None


async def _missing_of_placement(client: Client) -> str | None:
    try:
        cppc = await client.get(CPPCS, names.SINGLETON)
    except NotFound:
        return f"there is no {CPPCS.kind} {names.SINGLETON}"
    if not is_true(cppc, "Available"):
        return _words(conditions(cppc), "placement")
    degraded = conditions(cppc).get("Degraded", {})
    return f"{AVAILABLE_BUT}{degraded.get('message')}" if degraded.get("status") == "True" else None


async def _unsettled(client: Client, deployment: Document, pods: Iterable[Document], *, is_heard: bool) -> str | None:
    """A former pod may still lead; one that ends gives its Lease back."""
    status = deployment.get("status") or {}
    is_ending = any(each["metadata"].get("deletionTimestamp") for each in pods)
    if is_ending or status.get("replicas", 0) > status.get("updatedReplicas", 0):
        return f"{UNSETTLED}a former pod has not ended"
    try:
        lease = await client.get(LEASES, names.OPERATOR_LEASE, namespace=deployment["metadata"]["namespace"])
    except NotFound:
        lease = {"metadata": {}, "spec": {}}
    leader = lease["spec"].get("holderIdentity")
    if not leader:
        return f"{UNSETTLED}none of its pods leads yet"
    told = (lease["metadata"].get("annotations") or {}).get(names.OPERATOR_SETTLED)
    return SILENT if is_heard and told != leader else None


async def _being_replaced(client: Client, namespace: str) -> str | None:
    """Roles are available all the time while their pods are replaced; until then some do as they did before."""
    behind = []
    for name in REPLACED:
        try:
            deployment = await client.get(DEPLOYMENTS, name, namespace=namespace)
        except NotFound:
            continue  # it is off, or a condition says so as soon as it matters
        wanted, status = deployment["spec"].get("replicas", 1), deployment.get("status") or {}
        current = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
        new = status.get("updatedReplicas", 0) if current else 0
        if not current or new < wanted or status.get("replicas", 0) > new:
            behind.append(f"Deployment {name} ({new} of {wanted} are new)")
    return f"{REPLACING}{', '.join(behind)}" if behind else None


def _not_rolled_out(deployment: Document) -> str | None:
    wanted, status = deployment["spec"].get("replicas", 1), deployment.get("status") or {}
    current = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    ready = min(status.get("updatedReplicas", 0), status.get("availableReplicas", 0)) if current else 0
    if ready >= min(wanted, 1) and current and status.get("updatedReplicas", 0) >= wanted:
        return None
    failed = conditions(deployment).get("ReplicaFailure") or {}
    problem = f": {failed['message']}" if failed.get("status") == "True" and failed.get("message") else ""
    return f"operator: {ready} of {wanted} pods are ready{problem}"


def _why_not(pods: Iterable[Document]) -> str:
    """What the node says of the first pod that waits for something."""
    for pod in pods:
        for each in (pod.get("status") or {}).get("containerStatuses") or ():
            state = each.get("state") or {}
            waiting = state.get("waiting") or (each.get("lastState") or {}).get("terminated") or {}
            if not each.get("ready") and waiting.get("reason"):
                message = waiting.get("message")
                return f" ({pod['metadata']['name']}: {waiting['reason']}{f': {message}' if message else ''})"
    return ""


def _words(found: Mapping[str, Mapping[str, Any]], what: str) -> str:
    """What conditions say about why a custom resource is not available, in a few words."""
    for name in ("Deprovisioning", "Degraded", "Progressing", "Available"):
        each = found.get(name, {})
        if each.get("message") and (each.get("status") == "True" or name == "Available"):
            return f"{what}: {each['message']}"
    return f"{what}: the operator has not begun"
