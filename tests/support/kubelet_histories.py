"""Random histories of one node for a real kubelet and the simulated one: machines, pods, and what happens to them.

A history is made before it is played, so a step may be about a pod that was refused or is gone: then nothing happens.
"""

import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.kubelet_model.layout import NumaLayout

Json = dict[str, Any]

IMAGE: Final = "docker.io/library/redis:7"
FOREIGN_IMAGE: Final = "quay.io/acme/foreign:1"
"""A single image of another architecture."""
IMAGES: Final[Mapping[str, Any]] = {FOREIGN_IMAGE: {"platforms": ["linux/s390x"], "kind": "image"}}
MISSING_IMAGE: Final = "quay.io/acme/missing:1"
OTHER_PLATFORMS_IMAGE: Final = "quay.io/acme/mainframe-bridge:4.1"
"""An index without the node's platform."""
OVERHEAD: Final = {"cpu": "250m", "memory": "64Mi"}
RUNTIME_CLASS: Final[Json] = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "heavy"},
    "handler": "runc",
    "overhead": {"podFixed": OVERHEAD},
}
GATE: Final = "example.com/registered"
LABEL: Final = "example.com/disk"
TAINT: Final = {"key": "example.com/broken", "value": "yes", "effect": "NoExecute"}
POD_LIMIT: Final = 9


class Create(msgspec.Struct, frozen=True, tag="create"):
    """A pod is created that is bound to the node."""

    pod: Json


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    name: str
    grace: int | None
    """Seconds; None: the pod's own."""


class Label(msgspec.Struct, frozen=True, tag="label"):
    """The node's label is set, or removed."""

    value: str | None


class Taint(msgspec.Struct, frozen=True, tag="taint"):
    """The node has the taint from now on, or not."""

    present: bool


class OpenGate(msgspec.Struct, frozen=True, tag="open"):
    """The condition of the pod's readiness gate is set."""

    name: str
    status: str


class Restart(msgspec.Struct, frozen=True, tag="restart"):
    """The kubelet is killed and started again."""


Step = Create | Delete | Label | Taint | OpenGate | Restart


class History(msgspec.Struct, frozen=True):
    """A machine, and what happens on it."""

    layout: NumaLayout
    steps: tuple[Step, ...]


def history(seed: int, steps: int) -> History:
    """The one of this seed."""
    chance = random.Random(seed)
    made = layout(chance)
    return History(made, (*_steps(chance, made, steps),))


def layout(chance: random.Random) -> NumaLayout:
    zones, threads = chance.choice((1, 2, 2, 3, 4)), chance.choice((1, 1, 2))
    options = {
        "policy": chance.choice(("none", "best-effort", "restricted", "single-numa-node", "single-numa-node")),
        "scope": chance.choice(("container", "pod")),
        "reserved": str(chance.choice((1, 1, 2, 0) if zones > 1 else (1, 1, 2))),
        "threads": str(threads),
        "memory": f"{chance.choice((6, 8, 16))}Gi",
        "pods": str(POD_LIMIT),
    }
    if chance.random() < 0.4:
        options["pages"] = "2Mi:512"
    if chance.random() < 0.2 and options["reserved"] != "0":
        options["full-pcpus-only"] = "true"
    if chance.random() < 0.3:
        options["prefer-closest-numa-nodes"] = "true"
    size = f"{zones}x{chance.choice((2, 4, 4, 6))}"
    try:
        return NumaLayout.parse(",".join([size, *(f"{name}={value}" for name, value in options.items())]))
    except SandboxError:
        return layout(chance)


def _steps(chance: random.Random, made: NumaLayout, count: int) -> Iterator[Step]:
    names: list[str] = []
    gated: list[str] = []
    tainted = False
    for number in range(count):
        choice = chance.random()
        if names and choice < 0.27:
            yield Delete(chance.choice(names[-6:]), chance.choice((None, None, 1, 0)))
        elif choice < 0.32:
            yield Label(chance.choice(("fast", "slow", None)))
        elif choice < 0.37 or (tainted and choice < 0.55):
            tainted = not tainted
            yield Taint(tainted)
        elif choice < 0.43:
            yield Restart()
        elif gated and choice < 0.55:
            yield OpenGate(chance.choice(gated), chance.choice(("True", "True", "False")))
        else:
            name = f"pod-{number}"
            names.append(name)
            created = pod(chance, name, made)
            if "readinessGates" in created["spec"]:
                gated.append(name)
            yield Create(created)


def pod(chance: random.Random, name: str, made: NumaLayout) -> Json:
    """One without ``nodeName``."""
    is_guaranteed = chance.random() < 0.7
    spec: Json = {
        "terminationGracePeriodSeconds": chance.choice((0, 2, 10)),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": chance.choice(("Always", "Always", "Always", "Never", "OnFailure")),
        "containers": [
            _container(chance, f"app-{index}", made, is_guaranteed=is_guaranteed)
            for index in range(chance.choice((1, 1, 2)))
        ],
    }
    init = [
        _container(chance, f"init-{index}", made, is_guaranteed=is_guaranteed)
        | ({"restartPolicy": "Always"} if chance.random() < 0.4 else {})
        for index in range(chance.choice((0, 0, 0, 1, 2)))
    ]
    if init:
        spec["initContainers"] = init
    metadata: Json = {"name": name}
    for odds, change in _EXTRAS:
        if chance.random() < odds:
            change(chance, metadata, spec)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _container(chance: random.Random, name: str, made: NumaLayout, *, is_guaranteed: bool) -> Json:
    image = chance.choices((IMAGE, FOREIGN_IMAGE, MISSING_IMAGE, OTHER_PLATFORMS_IMAGE), weights=(92, 4, 2, 2))[0]
    most = made.zones * made.cpus
    cpus = chance.choice(("1", "1", "2", "2", "3", str(made.cpus), str(made.cpus + 1), str(most), "500m", "1500m"))
    memory = chance.choice((*("256Mi", "1Gi", "1Gi", "2Gi", "5Gi"), f"{made.memory_of_cell >> 30}Gi"))
    resources: Json = {"requests": {"cpu": cpus, "memory": memory}}
    if is_guaranteed:
        resources["limits"] = dict(resources["requests"])
        if made.pages and chance.random() < 0.3:
            pages = chance.choice(("2Mi", "200Mi", "1Gi", "3Gi"))
            resources = {kind: {**amounts, "hugepages-2Mi": pages} for kind, amounts in resources.items()}
    elif chance.random() < 0.3:
        resources = {}
    return {"name": name, "image": image, "resources": resources}


def _selector(chance: random.Random, _: Json, spec: Json) -> None:
    spec["nodeSelector"] = {LABEL: chance.choice(("fast", "slow"))}


def _affinity(chance: random.Random, _: Json, spec: Json) -> None:
    expression = {"key": LABEL, "operator": chance.choice(("In", "NotIn")), "values": ["fast"]}
    if chance.random() < 0.3:
        expression = {"key": LABEL, "operator": chance.choice(("Exists", "DoesNotExist"))}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _ports(chance: random.Random, _: Json, spec: Json) -> None:
    port: Json = {"containerPort": 8080, "hostPort": chance.choice((18080, 18081))}
    if chance.random() < 0.3:
        port["protocol"] = "UDP"
    if chance.random() < 0.3:
        port["hostIP"] = chance.choice(("127.0.0.1", "127.0.0.2"))
    spec["containers"][0]["ports"] = [port]


def _host_network(_: random.Random, __: Json, spec: Json) -> None:
    spec["hostNetwork"] = True
    spec["containers"][0]["ports"] = [{"containerPort": 18080}]


def _tolerations(chance: random.Random, _: Json, spec: Json) -> None:
    toleration: Json = {"key": TAINT["key"], "operator": "Exists"}
    if chance.random() < 0.4:
        toleration["effect"] = "NoExecute"
        toleration["tolerationSeconds"] = 600
    spec["tolerations"] = [toleration]


def _overhead(_: random.Random, __: Json, spec: Json) -> None:
    spec["runtimeClassName"] = RUNTIME_CLASS["metadata"]["name"]


def _of_pod(chance: random.Random, _: Json, spec: Json) -> None:
    """Resources of the pod as a whole, more than those of its containers."""
    amounts = {"cpu": chance.choice(("4", "9")), "memory": "6Gi"}
    spec["resources"] = {"requests": amounts} | ({"limits": amounts} if chance.random() < 0.6 else {})


def _os(chance: random.Random, metadata: Json, spec: Json) -> None:
    if chance.random() < 0.5:
        spec["os"] = {"name": "windows"}
    else:
        metadata["labels"] = {"kubernetes.io/os": "windows"}


def _unknown(_: random.Random, __: Json, spec: Json) -> None:
    """A resource that no node has; a kubelet does not mind."""
    for kind in ("requests", "limits"):
        spec["containers"][0]["resources"].setdefault(kind, {})["example.com/none"] = "1"


def _gate(_: random.Random, __: Json, spec: Json) -> None:
    spec["readinessGates"] = [{"conditionType": GATE}]


_EXTRAS: Final = (
    (0.08, _selector),
    (0.06, _affinity),
    (0.15, _ports),
    (0.04, _host_network),
    (0.35, _tolerations),
    (0.08, _overhead),
    (0.05, _of_pod),
    (0.03, _os),
    (0.03, _unknown),
    (0.08, _gate),
)
