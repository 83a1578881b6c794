"""Waits for what others do: the API server with definitions, the operator with its Deployments."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from polyarch import names as shared
from polyarch.builds import names as build_names
from polyarch.clock import Clock, SystemClock
from polyarch.installation.operator import BUILDS_SWITCH, NUMA_NAMESPACE, OPERATOR
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import CRDS, DEPLOYMENTS, EVENTS, LEASES, MUTATING_WEBHOOKS, PODS, Resource
from polyarch.numa import names as numa_names
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.objects import Unstructured
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
MAX_PODS: Final = 500
"""Pods of one role that are looked at."""
MAX_REASONS: Final = 3
"""Different reasons why pods do not run that one line tells."""
PLACEMENT_ROLES: Final = (names.WEBHOOK, names.CONTROLLER, names.ENOEXEC_HANDLER, names.ENOEXEC_DAEMON)
OWN_GATES: Final = (names.GATE, taint_names.GATE)


class WaitReason(NamedTuple):
    """What is waited for."""

    text: str
    roles: tuple[str, ...] = ()
    """Deployments and DaemonSets whose pods may say why; empty: no pod is waited for."""
    namespace: str = ""
    """Of these pods; empty: the operator's."""


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
    ``tell`` gets each new word about what is waited for, with what keeps its pods from running. Raises
    :class:`WaitTimeout` with the last one.
    """
    clock = clock or SystemClock()
    begun, told = clock.monotonic(), set[str]()
    end, patience = begun + seconds, begun + min(seconds, DEGRADED_SECONDS)
    silent: float | None = None
    """Since when an operator leads that has not said anything."""
    while True:
        is_heard = silent is None or clock.monotonic() < silent + SILENT_SECONDS
        missing = await _missing(client, namespace, switched_on, is_heard=is_heard)
        if missing is None:
            return
        said = f"{missing.text}{await _why_not(client, missing, namespace)}"
        if is_heard:
            silent = (silent or clock.monotonic()) if missing.text == SILENT else None
        enough = end if missing.text.startswith((REPLACING, UNSETTLED)) else patience
        if missing.text.startswith((AVAILABLE_BUT, REPLACING, UNSETTLED)) and clock.monotonic() >= enough:
            tell(said)
            return
        if said not in told:  # a kubelet that cannot pull says so in two ways by turns
            told.add(said)
            tell(said)
        if clock.monotonic() >= end:
            raise WaitTimeout(f"not available after {seconds:.0f} s: {said}")
        await clock.sleep(every)


async def _missing(
    client: Client, namespace: str, switched_on: Collection[Resource], *, is_heard: bool
) -> WaitReason | None:
    """``is_heard``: the operator's leader is waited for until it says that it has looked at everything."""
    try:
        deployment = await client.get(DEPLOYMENTS, OPERATOR, namespace=namespace)
    except NotFound:
        return WaitReason(f"there is no Deployment {namespace}/{OPERATOR}")
    if (lacking := _not_rolled_out(deployment)) is not None:
        return WaitReason(lacking, (OPERATOR,))
    missing = await _missing_of_builds(client, namespace) if _variable(deployment, BUILDS_SWITCH) == "on" else None
    if missing is None and ARCHITECTURE_TAINTS in switched_on:
        missing = await _missing_of_taints(client, namespace)
    numa = _variable(deployment, NUMA_NAMESPACE)
    missing = missing or await _missing_of_numa(client, switched_on, numa)
    if missing is None and CPPCS in switched_on:
        missing = await _missing_of_placement(client)
    missing = missing or await _unsettled(client, deployment, is_heard=is_heard)
    # What was available is asked about again: it may have been the word of the predecessor.
    missing = missing or await _missing_of_numa(client, switched_on, numa)
    return missing or await _being_replaced(client, namespace)


def _variable(deployment: Document, name: str) -> str:
    """A variable of the operator's containers: its settings, of which no custom resource tells."""
    containers = deployment["spec"].get("template", {}).get("spec", {}).get("containers", ())
    variables = (each for container in containers for each in container.get("env", ()))
    return next((each.get("value") or "" for each in variables if each["name"] == name), "")


async def _missing_of_builds(client: Client, namespace: str) -> WaitReason | None:
    try:
        deployment = await client.get(DEPLOYMENTS, build_names.ROLE, namespace=namespace)
    except NotFound:
        return WaitReason("builds: the operator has not begun")
    if (deployment.get("status") or {}).get("availableReplicas"):
        return None
    return WaitReason(f"builds: no pod is available{_replica_failure(deployment)}", (build_names.ROLE,))


async def _missing_of_numa(client: Client, switched_on: Collection[Resource], namespace: str) -> WaitReason | None:
    for resource, name, role in (
        (OPERATORS, numa_names.OPERATOR_SINGLETON, shared.NUMA_EXPORTER),
        (SCHEDULERS, numa_names.SCHEDULER_SINGLETON, shared.NUMA_SCHEDULER),
    ):
        if resource in switched_on and (text := await _missing_of(client, resource, name)) is not None:
            return WaitReason(text, (role,), namespace)
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


async def _missing_of_taints(client: Client, namespace: str) -> WaitReason | None:
    """The role adds tolerations once its webhook is registered, which it is once a pod is available."""
    try:
        taints = await client.get(ARCHITECTURE_TAINTS, names.SINGLETON)
    except NotFound:
        return WaitReason(f"there is no {ARCHITECTURE_TAINTS.kind} {names.SINGLETON}")
    try:
        deployment = await client.get(DEPLOYMENTS, taint_names.ROLE, namespace=namespace)
    except NotFound:
        return WaitReason("taints: the operator has not begun")
    if not (deployment.get("status") or {}).get("availableReplicas"):
        return WaitReason(f"taints: no pod is available{_replica_failure(deployment)}", (taint_names.ROLE,))
    if (taints.get("spec") or {}).get("state", "active") != "active":
        return None  # nothing is registered then
    try:
        await client.get(MUTATING_WEBHOOKS, taint_names.ROLE)
    except NotFound:
        return WaitReason("taints: the webhook is not registered yet")
    return None


async def _missing_of_placement(client: Client) -> WaitReason | None:
    try:
        cppc = await client.get(CPPCS, names.SINGLETON)
    except NotFound:
        return WaitReason(f"there is no {CPPCS.kind} {names.SINGLETON}")
    if not is_true(cppc, "Available"):
        return WaitReason(_words(conditions(cppc), "placement"), PLACEMENT_ROLES)
    degraded = conditions(cppc).get("Degraded", {})
    if degraded.get("status") != "True":
        return None
    return WaitReason(f"{AVAILABLE_BUT}{degraded.get('message')}", PLACEMENT_ROLES)


async def _unsettled(client: Client, deployment: Document, *, is_heard: bool) -> WaitReason | None:
    """A former pod may still lead; one that ends gives its Lease back."""
    namespace, status = deployment["metadata"]["namespace"], deployment.get("status") or {}
    pods = await _pods_of(client, namespace, OPERATOR)
    is_ending = any(each["metadata"].get("deletionTimestamp") for each in pods)
    if is_ending or status.get("replicas", 0) > status.get("updatedReplicas", 0):
        return WaitReason(f"{UNSETTLED}a former pod has not ended", (OPERATOR,))
    try:
        lease = await client.get(LEASES, names.OPERATOR_LEASE, namespace=namespace)
    except NotFound:
        lease = {"metadata": {}, "spec": {}}
    leader = lease["spec"].get("holderIdentity")
    if not leader:
        return WaitReason(f"{UNSETTLED}none of its pods leads yet", (OPERATOR,))
    told = (lease["metadata"].get("annotations") or {}).get(names.OPERATOR_SETTLED)
    return WaitReason(SILENT) if is_heard and told != leader else None


async def _being_replaced(client: Client, namespace: str) -> WaitReason | None:
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
            behind.append((name, f"Deployment {name} ({new} of {wanted} are new{_replica_failure(deployment)})"))
    if not behind:
        return None
    return WaitReason(f"{REPLACING}{', '.join(text for _, text in behind)}", tuple(name for name, _ in behind))


def _not_rolled_out(deployment: Document) -> str | None:
    wanted, status = deployment["spec"].get("replicas", 1), deployment.get("status") or {}
    current = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    ready = min(status.get("updatedReplicas", 0), status.get("availableReplicas", 0)) if current else 0
    if ready >= min(wanted, 1) and current and status.get("updatedReplicas", 0) >= wanted:
        return None
    return f"operator: {ready} of {wanted} pods are ready{_replica_failure(deployment)}"


def _replica_failure(deployment: Document) -> str:
    """Why its pods are not even made, as by a quota or a Pod Security level; empty: they are."""
    failed = conditions(deployment).get("ReplicaFailure") or {}
    return f": {failed['message']}" if failed.get("status") == "True" and failed.get("message") else ""


# -- why pods do not run -----------------------------------------------------------------------------------------------


async def _pods_of(client: Client, namespace: str, role: str) -> Sequence[Document]:
    """Of a daemon on thousands of nodes some."""
    selected = ListOptions(namespace, f"{names.CONTROLLER_LABEL}={role}")
    page = await client.list_page(PODS, selected, type=Unstructured, limit=MAX_PODS)
    return [each.document for each in page.objects]


async def _why_not(client: Client, missing: WaitReason, namespace: str) -> str:
    """What keeps pods of what is missing from running, in brackets: each reason once, with the first such pod."""
    home = missing.namespace or namespace
    reasons: dict[str, str] = {}
    """The first pod of each reason."""
    asked = 0
    for role in missing.roles:
        for pod in await _pods_of(client, home, role):
            reason = reason_of(pod)
            if not reason and asked < MAX_REASONS and _is_being_prepared(pod):
                reason, asked = await _last_warning(client, pod), asked + 1
            if reason:
                reasons.setdefault(reason, pod["metadata"]["name"])
    told = "; ".join(f"{pod}: {reason}" for reason, pod in list(reasons.items())[:MAX_REASONS])
    return f" ({told})" if told else ""


def reason_of(pod: Document) -> str:
    """Why a pod does not run: its gates, what the scheduler says, or what its node does; empty: it runs, or is on its
    way."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp") or status.get("phase") == "Succeeded":
        return ""
    if gates := [each["name"] for each in spec.get("schedulingGates") or ()]:
        own = ", which polyarch itself has set" if set(gates) & set(OWN_GATES) else ""
        return f"SchedulingGated: it waits for {', '.join(gates)}{own}"
    scheduled = conditions(pod).get("PodScheduled", {})
    if scheduled.get("status") == "False" and not spec.get("nodeName"):
        return _reason(scheduled)
    if status.get("phase") == "Failed":  # as when its node refuses it; another one takes its place
        return _reason(status) or "Failed"
    of_containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    return next(filter(None, map(_reason_of_container, of_containers)), "")


def _reason_of_container(container: Document) -> str:
    state = container.get("state") or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    ended = ended or (container.get("lastState") or {}).get("terminated") or {}
    if container.get("ready") or waiting.get("reason") in ON_ITS_WAY:
        return ""
    if ended and waiting.get("reason") in ("", None, "CrashLoopBackOff"):  # whose message counts seconds
        code = ended.get("exitCode")
        what = ended.get("message") or ("" if code is None else f"exit code {code}; kubectl logs --previous says more")
        return _reason({"reason": waiting.get("reason") or ended.get("reason"), "message": what})
    return _reason(waiting)


ON_ITS_WAY: Final = ("ContainerCreating", "PodInitializing")
"""Reasons of containers that the kubelet gives whatever keeps them; its events say more."""


def _is_being_prepared(pod: Document) -> bool:
    """The kubelet has it, and runs none of its containers yet: volumes, sandbox, network."""
    found = (pod.get("status") or {}).get("containerStatuses") or ()
    waiting = [(each.get("state") or {}).get("waiting") or {} for each in found]
    return bool(found) and all(each.get("reason") in ON_ITS_WAY for each in waiting)


async def _last_warning(client: Client, pod: Document) -> str:
    metadata = pod["metadata"]
    fields = f"regarding.name={metadata['name']},regarding.uid={metadata.get('uid', '')},type=Warning"
    found = (await client.list(EVENTS, namespace=metadata.get("namespace", ""), field_selector=fields)).items
    of_its_node = (each for each in found if each.get("reason") != "FailedScheduling")  # it has a node by now
    last = max(of_its_node, key=_time_of, default=None)
    return _reason({"reason": last.get("reason"), "message": last.get("note")}) if last else ""


def _time_of(event: Document) -> str:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("deprecatedLastTimestamp"), event.get("eventTime"))
    return next((str(each) for each in times if each), "")


def _reason(told: Mapping[str, Any]) -> str:
    """``reason: message``; the reason alone, or nothing, where there is no more."""
    return ": ".join(str(told[key]).strip() for key in ("reason", "message") if told.get(key))


def _words(found: Mapping[str, Mapping[str, Any]], what: str) -> str:
    """What conditions say about why a custom resource is not available, in a few words."""
    for name in ("Deprovisioning", "Degraded", "Progressing", "Available"):
        each = found.get(name, {})
        if each.get("message") and (each.get("status") == "True" or name == "Available"):
            return f"{what}: {each['message']}"
    return f"{what}: the operator has not begun"
