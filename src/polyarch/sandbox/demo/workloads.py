"""The pods of the demo, their state over time, and polyarch's requests for them.

The images are common mixes, a private one and a slow one, and one pod can run nowhere. Pure.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from polyarch.oci.reference import parse
from polyarch.placement import names
from polyarch.placement.decision import read_record
from polyarch.placement.names import POD_WEBHOOK
from polyarch.platforms import Platform
from polyarch.sandbox.document import Milliseconds
from polyarch.sandbox.nodes.pods import Pod
from polyarch.sandbox.registry.images import FAMILIAR, read_descriptions

USER, PASSWORD = "demo", "open-sesame"
PULL_SECRET = "registry"

IMAGES: Mapping[str, Any] = {
    **FAMILIAR,
    "quay.io/acme/vault:3.0": {
        "platforms": ["linux/amd64", "linux/s390x"],
        "private": True,
        "users": {USER: PASSWORD},
    },
    # Too slow for the webhook's time budget: this pod is held by a scheduling gate for a moment.
    "registry.example.com/overseas/reports:1.8": {"platforms": ["linux/ppc64le", "linux/arm64"], "delay": 400},
}


class DemoWorkload(msgspec.Struct, frozen=True):
    """One pod of the demo."""

    name: str
    images: tuple[str, ...]
    private: bool = False
    architecture: str = ""
    """The architecture in the pod's own nodeSelector."""

    def document(self, namespace: str) -> dict[str, Any]:
        containers = [
            {"name": parse(image).repository.rpartition("/")[2], "image": image, "imagePullPolicy": "IfNotPresent"}
            for image in self.images
        ]
        spec: dict[str, Any] = {"containers": containers, "terminationGracePeriodSeconds": 0}
        if self.private:
            spec["imagePullSecrets"] = [{"name": PULL_SECRET}]
        if self.architecture:
            spec["nodeSelector"] = {"kubernetes.io/arch": self.architecture}
        metadata = {"name": self.name, "namespace": namespace, "labels": {"app": self.name}}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


WORKLOADS = (
    DemoWorkload("web", ("nginx:1.27",)),
    DemoWorkload("shop", ("nginx:1.27", "mysql:8.4")),
    DemoWorkload("billing", ("quay.io/acme/billing:2.3",)),
    DemoWorkload("edge", ("quay.io/acme/edge-agent:1.0", "redis:7")),
    DemoWorkload("bridge", ("quay.io/acme/mainframe-bridge:4.1",)),
    DemoWorkload("vault", ("quay.io/acme/vault:3.0",), private=True),
    DemoWorkload("reports", ("registry.example.com/overseas/reports:1.8",)),
    DemoWorkload("pinned", ("redis:7",), architecture="arm64"),
    DemoWorkload("impossible", ("quay.io/acme/billing:2.3", "quay.io/acme/mainframe-bridge:4.1")),
)


def platforms(image: str) -> list[str]:
    """The platforms of an image of the demo; empty for an unknown image."""
    wanted = parse(image).canonical
    for described in read_descriptions(IMAGES, "demo"):
        if described.reference.canonical == wanted:
            return [str(Platform.parse(text)) for text in described.description.platforms]
    return []


def can_run(workload: DemoWorkload, node_architectures: Sequence[str]) -> bool:
    """Whether all its images and its nodeSelector allow the architecture of at least one node."""
    possible = {workload.architecture} if workload.architecture else set(node_architectures)
    for image in workload.images:
        possible &= {Platform.parse(text).architecture for text in platforms(image)}
    return bool(possible & set(node_architectures))


def pull_secret(namespace: str, registry: str) -> dict[str, Any]:
    """A pull secret. Its key is the registry's real address: credentials are sent to no other host."""
    pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    config = msgspec.json.encode({"auths": {registry: {"auth": pair}}})
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": PULL_SECRET, "namespace": namespace},
        "data": {".dockerconfigjson": base64.b64encode(config).decode()},
    }


# -- the state of a pod: each version from the API server updates its row ----------------------------------------------


FAILURES = frozenset({"CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})


ENDED = "Error"
"""Reason of a container's first failure; it is restarted at once, so the pod has not settled."""


class DemoRow(msgspec.Struct, frozen=True, kw_only=True):
    """The present state of one pod; times are milliseconds since its create request."""

    name: str
    path: str = ""
    reason: str = ""
    architectures: tuple[str, ...] = ()
    node: str = ""
    phase: str = ""
    problem: str = ""
    """Why it does not run: a reason of the kubelet or the scheduler; empty while it may still start."""
    times: Milliseconds = Milliseconds()
    requests: int = 0

    @property
    def settled(self) -> bool:
        """Whether the outcome is final: it runs, has ended, or has failed more than once."""
        if self.problem:
            return not self.problem.startswith(ENDED)
        return self.phase in {"Running", "Succeeded", "Failed"}


def created(row: DemoRow, pod: Pod, milliseconds: float) -> DemoRow:
    """The row after the create request was answered: the pod's path through admission."""
    gates = {gate.name for gate in pod.spec.scheduling_gates or ()}
    label = (pod.metadata.labels or {}).get(names.SCHEDULING_GATE_LABEL, "")
    path = "gated" if names.GATE in gates else "inline" if label == names.REMOVED else "ignored" if label else ""
    times = msgspec.structs.replace(row.times, admission=milliseconds)
    return seen(msgspec.structs.replace(row, path=path, times=times), pod, milliseconds)


def seen(row: DemoRow, pod: Pod, milliseconds: float) -> DemoRow:
    """The row after one more look at the pod. Times are of the first look at which a step had happened."""
    decision = read_record(pod.metadata.annotations)
    times = row.times
    if row.path == "gated" and times.released is None and not pod.spec.scheduling_gates:
        times = msgspec.structs.replace(times, released=milliseconds)
    if times.bound is None and pod.spec.node_name:
        times = msgspec.structs.replace(times, bound=milliseconds)
    problem = problem_of(pod)
    if times.running is None and pod.status.phase == "Running" and not problem:
        times = msgspec.structs.replace(times, running=milliseconds)
    return msgspec.structs.replace(
        row,
        reason=decision.reason if decision is not None else row.reason,
        architectures=decision.arch if decision is not None else row.architectures,
        node=pod.spec.node_name,
        phase=pod.status.phase,
        problem=problem,
        times=times,
    )


def problem_of(pod: Pod) -> str:
    """Why the pod does not run; empty if it runs or may still start."""
    for status in pod.status.container_statuses or ():
        waiting, ended = status.state.waiting, status.state.terminated
        last = ended or status.last_state.terminated
        if ended is not None and ended.exit_code:
            return f"{ENDED}: exec format error" if "exec format error" in ended.message else ENDED
        if waiting is not None and waiting.reason in FAILURES:
            if last is not None and "exec format error" in last.message:
                return f"{waiting.reason}: exec format error"
            if "no match for platform" in waiting.message:
                return f"{waiting.reason}: no match for platform"
            return waiting.reason
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.reason == "Unschedulable":
            return "Unschedulable"
    return ""


# -- polyarch's API requests for each pod, from the API server's audit log ---------------------------------------------


DECISION = f"{POD_WEBHOOK}/decision"


class User(msgspec.Struct, frozen=True, gc=False):
    username: str = ""


class ObjectReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class AuditEvent(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One line of the audit log (audit.k8s.io/v1 Event), reduced to what counting needs."""

    stage: str = ""
    verb: str = ""
    user: User = User()
    object_ref: ObjectReference | None = None
    annotations: dict[str, str] | None = None


_decode = msgspec.json.Decoder(AuditEvent).decode


def read(lines: Iterable[bytes]) -> list[AuditEvent]:
    """The events of all complete lines; a line that is still being written is left out."""
    return [_decode(line) for line in lines if line.endswith(b"\n")]


def count(
    events: Iterable[AuditEvent],
    *,
    accounts: str,
    namespace: str,
    pods: Iterable[str],
    secrets: Mapping[str, str],
) -> dict[str, int]:
    """Requests by pod of the users whose names begin with ``accounts``.

    ``secrets`` maps each pull secret of the namespace to the pod that it is fetched for.

    Event objects count for the pod in their name, ``<pod>.<unique suffix>``.

    Only requests by the ServiceAccounts of polyarch's roles count; those of the administrator, the nodes and Kubernetes
    do not. Watches and Leases do not count either, as they belong to no pod.
    """
    counts = dict.fromkeys(pods, 0)
    for event in events:
        at = event.object_ref
        if event.stage != "ResponseComplete" or not event.user.username.startswith(accounts) or at is None:
            continue
        if at.namespace != namespace or event.verb == "watch":
            continue
        match at.resource:
            case "pods":
                pod = at.name
            case "events":
                pod = at.name.rpartition(".")[0] or at.name
            case "secrets":
                pod = secrets.get(at.name, "")
            case _:
                pod = ""
        if pod in counts:
            counts[pod] += 1
    return counts


def decisions(events: Iterable[AuditEvent], *, namespace: str) -> dict[str, str]:
    """The webhook's audit annotation for each created pod: reason, values if any, path."""
    noted: dict[str, str] = {}
    for event in events:
        at = event.object_ref
        if at is None or (event.verb, at.resource, at.namespace) != ("create", "pods", namespace):
            continue
        if (text := (event.annotations or {}).get(DECISION)) is not None:
            noted[at.name] = text
    return noted
