"""Random clusters with taints, and what kube-scheduler has to be asked to judge a plan for them.

A cluster is nodes, templates, RuntimeClasses and a configuration, as documents; images are known, by name. The states
of a plan are the cluster as it is, with tolerations but no new taint, without the taints that it loses, and with one
architecture tainted after the other.
"""

import copy
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from polyarch.images.node_fit import BY_CONTROLLER
from polyarch.images.pod_images import images_of
from polyarch.objects import DaemonSet, Node, Pod, RuntimeClass, Workload
from polyarch.oci.inspection import Entry, Inspection, Status
from polyarch.oci.reference import parse
from polyarch.platforms import Platform
from polyarch.taints.inventory import ClusterSnapshot
from polyarch.taints.node_rules import Kind, in_order
from polyarch.taints.plan import ClusterEvaluation, PlanBuilder, TemplateEvaluation
from polyarch.taints.settings import TaintSettings

Json = dict[str, Any]
ARCH, OS = "kubernetes.io/arch", "kubernetes.io/os"
IMAGES = {
    "intel": ("linux/amd64",),
    "arm": ("linux/arm64",),
    "both": ("linux/amd64", "linux/arm64"),
    "three": ("linux/amd64", "linux/arm64", "linux/s390x"),
    "win": ("windows/amd64",),
    "anywhere": ("linux/amd64", "linux/arm64", "windows/amd64"),
    "z": ("linux/s390x",),
}
PLATFORMS = (("linux", "amd64"),) * 3 + (("linux", "arm64"),) * 3 + (("linux", "s390x"), ("windows", "amd64"))
PASSING = "node.kubernetes.io/not-ready"
KEYS = ("supported-arch", "arch", "dedicated", "sla", PASSING, PASSING)
EFFECTS = ("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule")
VALUES_OF_LABELS = ("amd64", "amd64", "arm64", "arm64", "linux", "linux", "windows", "s390x", "a", "10", "a b", "-1")
SELECTORS = ({ARCH: "arm64"}, {ARCH: "amd64"}, {OS: "linux"}, {OS: "windows"}, {"zone": "a"})
VALUES = ("arm64", "amd64", "gpu", "", "900", "950", "-3")


class Question(NamedTuple):
    """One state of a cluster for the scheduler, and the templates that its pods stand for."""

    case: Json
    templates: tuple[TemplateEvaluation, ...]


class Played(NamedTuple):
    """One cluster, its plan, and its states in their order: the first is the present one, the last the planned one."""

    nodes: tuple[Json, ...]
    evaluation: ClusterEvaluation
    states: tuple[Question, ...]
    healthy: tuple[Question, Question]
    """The first and the last state without cordons and taints that go away by themselves."""


def play(chance: random.Random) -> Played:
    """One cluster."""
    settings = TaintSettings.of(_spec(chance))
    nodes = [_node(chance, number, settings) for number in range(chance.randint(1, 7))]
    classes = [_runtime_class(chance, name) for name in ("one", "two") if chance.random() < 0.7]
    workloads = [_workload(chance, f"w{number}", nodes, settings) for number in range(6)]
    agents = [_workload(chance, f"d{number}", nodes, settings) for number in range(3)]
    bound = [_bound(agent, node) for agent in agents for node in nodes if chance.random() < 0.6]
    snapshot = ClusterSnapshot(
        nodes=tuple(msgspec.convert(each, Node) for each in nodes),
        pods=tuple(msgspec.convert(each, Pod) for each in bound),
        daemon_sets=tuple(msgspec.convert(each, DaemonSet) for each in agents),
        workloads={"Deployment": tuple(msgspec.convert(each, Workload) for each in workloads)},
        namespaces={},
        runtime_classes={each["metadata"]["name"]: msgspec.convert(each, RuntimeClass) for each in classes},
    )
    evaluation = PlanBuilder(snapshot, settings, answers).judgement()
    specs = {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in (*workloads, *agents)}
    states = tuple(_states(nodes, classes, specs, evaluation))
    return Played(tuple(nodes), evaluation, states, (_healthy(states[0]), _healthy(states[-1])))


def _healthy(state: Question) -> Question:
    nodes = copy.deepcopy(state.case["nodes"])
    for node in nodes:
        node["spec"]["taints"] = [each for each in node["spec"].get("taints", ()) if each["key"] != PASSING]
        node["spec"]["unschedulable"] = False
    return state._replace(case={**state.case, "nodes": nodes})


def answers(pod: Pod) -> dict[str, Inspection]:
    """What the images of a pod say."""
    return {
        use.text: Inspection(
            parse(use.text),
            Status.RESOLVED,
            "index",
            digest="sha256:" + "a" * 64,
            entries=tuple(Entry(Platform.parse(each), "sha256:" + "b" * 64) for each in IMAGES[use.text]),
        )
        for use in images_of(pod)
    }


def runs(spec: Json, node: Json) -> bool:
    """What no scheduler asks: whether the node can run the images of a pod, for its operating system."""
    info = node["status"]["nodeInfo"]
    platform = f"{info['operatingSystem']}/{info['architecture']}"
    if spec.get("os", {}).get("name", info["operatingSystem"]) != info["operatingSystem"]:
        return False
    return all(platform in IMAGES[each["image"]] for each in spec["containers"])


def _states(
    nodes: list[Json], classes: list[Json], specs: dict[str, Json], evaluation: ClusterEvaluation
) -> Iterator[Question]:
    templates = evaluation.templates
    settings = evaluation.settings
    lasting = [_lasting(each) for each in classes]
    before = [_pod(each, specs[each.template.key.name], settings, with_tolerations=False) for each in templates]
    after = [_pod(each, specs[each.template.key.name], settings, with_tolerations=True) for each in templates]

    def question(machines: list[Json], pods: list[Json]) -> Question:
        return Question({"nodes": machines, "pods": pods, "runtimeClasses": lasting}, templates)

    yield question(nodes, before)
    yield question(nodes, after)
    present = copy.deepcopy(nodes)
    numbers = Counter(each.decision.architecture for each in evaluation.nodes)
    for architecture in ("", *in_order(numbers, settings.primary)):
        for at, each in enumerate(evaluation.nodes):
            loses = each.decision.kind is Kind.REMOVE
            if loses if not architecture else each.decision.architecture == architecture:
                present[at]["spec"]["taints"] = [msgspec.to_builtins(taint) for taint in each.taints_after]
        yield question(copy.deepcopy(present), after)


def _pod(each: TemplateEvaluation, spec: Json, settings: TaintSettings, *, with_tolerations: bool) -> Json:
    """As the API server gets it: with what admission or the template's controller adds, and a DaemonSet's with what its
    controller does. A toleration that expires keeps no pod on a node."""
    held = [dict(toleration) for toleration in spec.get("tolerations", ())]
    tolerations = [toleration for toleration in held if _lasts(toleration)]
    if each.template.is_daemon_set:
        tolerations += [msgspec.to_builtins(toleration) for toleration in BY_CONTROLLER]
    if with_tolerations and not (each.template.is_daemon_set and settings.templates != "reconcile"):
        tolerations += [msgspec.to_builtins(settings.toleration(name)) for name in each.decision.added]
    metadata = {"name": each.template.key.name, "namespace": "shop"}
    return {"metadata": metadata, "spec": {**spec, "tolerations": tolerations}}


def _lasts(toleration: Json) -> bool:
    """One that expires keeps no pod on a node, though the scheduler takes it for one."""
    return "tolerationSeconds" not in toleration


def _lasting(runtime_class: Json) -> Json:
    scheduling = runtime_class.get("scheduling", {})
    if "tolerations" not in scheduling:
        return runtime_class
    return {**runtime_class, "scheduling": {**scheduling, "tolerations": [*filter(_lasts, scheduling["tolerations"])]}}


# -- chances -----------------------------------------------------------------------------------------------------------


def _spec(chance: random.Random) -> Json:
    effect = chance.choice(("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"))
    taint: Json = {"effect": effect, "acknowledgeEviction": True}
    if chance.random() < 0.3:
        taint |= {"preset": "custom", "key": "arch"}
    if chance.random() < 0.3:
        taint["ownership"] = chance.choice(("adopt", "recorded"))
    return {
        "mode": chance.choice(("secondary-only", "tolerations", "both")),
        "primaryArchitectures": chance.choice((["amd64"], ["arm64"], ["amd64", "s390x"])),
        "taint": taint,
        "nodes": {"operatingSystems": chance.choice((["linux"], ["linux", "windows"]))},
        "pods": {"excludeNamespaces": chance.choice(([], [], ["shop"]))},
        "daemonSets": {"templates": chance.choice(("reconcile", "reconcile", "ignore"))},
    }


def _node(chance: random.Random, number: int, settings: TaintSettings) -> Json:
    os, architecture = chance.choice(PLATFORMS)
    labels = {ARCH: architecture, OS: os, "zone": chance.choice("ab"), "size": chance.choice(("3", "10", "big"))}
    if chance.random() < 0.1:
        labels[ARCH] = chance.choice(("amd64", "arm64"))  # the kubelet reports another one
    if chance.random() < 0.1:
        del labels[OS]
    taints = {}
    for _ in range(chance.choice((0, 0, 0, 1, 2))):
        taint = _taint(chance)
        taints[taint["key"], taint["effect"]] = taint
    if chance.random() < 0.15:
        taints[settings.key, settings.effect] = {
            "key": settings.key, "value": chance.choice(("amd64", "arm64")), "effect": settings.effect
        }  # fmt: skip
    metadata: Json = {"name": f"n{number}", "labels": labels}
    spec = {"taints": list(taints.values()), "unschedulable": chance.random() < 0.1}
    return {
        "metadata": metadata,
        "spec": spec,
        "status": {"nodeInfo": {"architecture": architecture, "operatingSystem": os}},
    }


def _taint(chance: random.Random) -> Json:
    return {"key": chance.choice(KEYS), "value": chance.choice(VALUES), "effect": chance.choice(EFFECTS)}


def _toleration(chance: random.Random, settings: TaintSettings) -> Json:
    operator = chance.choice(("Exists", "Equal", "Equal", "", "Gt", "Lt"))
    found: Json = {"key": chance.choice((*KEYS, settings.key)), "operator": operator}
    if operator == "Exists" and chance.random() < 0.3:
        del found["key"]
    if operator != "Exists":
        found["value"] = chance.choice(VALUES)
    if chance.random() < 0.6:
        found["effect"] = chance.choice(EFFECTS)
    if found.get("effect") == "NoExecute" and chance.random() < 0.3:
        found["tolerationSeconds"] = 300
    return found


def _runtime_class(chance: random.Random, name: str) -> Json:
    scheduling: Json = {}
    if chance.random() < 0.7:
        scheduling["nodeSelector"] = chance.choice(({ARCH: "arm64"}, {OS: "windows"}, {"zone": "a"}, {ARCH: "amd64"}))
    if chance.random() < 0.7:
        scheduling["tolerations"] = [_toleration(chance, TaintSettings()) for _ in range(chance.randint(1, 2))]
    found: Json = {"metadata": {"name": name}, "handler": "runc"}
    return {**found, "scheduling": scheduling} if chance.random() < 0.8 else found


def _requirement(chance: random.Random) -> Json:
    key = chance.choice((ARCH, ARCH, OS, "zone", "size", "none"))
    operator = chance.choice(("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    found: Json = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        found["values"] = chance.sample(
            ("amd64", "arm64", "linux", "windows", "a", "10", "s390x"), chance.randint(1, 3)
        )
    elif operator in ("Gt", "Lt"):
        found["values"] = [chance.choice(("5", "10", "-1"))]
    return found


def _term(chance: random.Random, nodes: list[Json]) -> Json:
    term: Json = {}
    if chance.random() < 0.85:
        term["matchExpressions"] = [_requirement(chance) for _ in range(chance.randint(1, 2))]
    if chance.random() < 0.2:
        name = chance.choice(nodes)["metadata"]["name"]
        operator = chance.choice(("In", "NotIn"))
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [name]}]
    return term


def _workload(chance: random.Random, name: str, nodes: list[Json], settings: TaintSettings) -> Json:
    images = [chance.choice(tuple(IMAGES)) for _ in range(chance.choice((1, 1, 2)))]
    spec: Json = {"containers": [{"name": f"c{at}", "image": image} for at, image in enumerate(images)]}
    if chance.random() < 0.3:
        spec["nodeSelector"] = chance.choice(
            ({ARCH: "arm64"}, {ARCH: "amd64"}, {OS: "linux"}, {OS: "windows"}, {"zone": "a"})
        )
    if chance.random() < 0.35:
        terms = [_term(chance, nodes) for _ in range(chance.randint(0, 2))]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    if chance.random() < 0.5:
        spec["tolerations"] = [_toleration(chance, settings) for _ in range(chance.randint(1, 2))]
    if chance.random() < 0.3:
        spec["runtimeClassName"] = chance.choice(("one", "two", "gone"))
    if chance.random() < 0.15:
        spec["os"] = {"name": chance.choice(("linux", "windows"))}
    if chance.random() < 0.1:
        spec["nodeName"] = chance.choice(nodes)["metadata"]["name"]
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 1}
    return {"metadata": metadata, "spec": {"template": {"spec": spec}}}


def _bound(agent: Json, node: Json) -> Json:
    name = agent["metadata"]["name"]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": f"uid-{name}", "controller": True}
    on = node["metadata"]["name"]
    metadata = {"name": f"{name}-{on}", "namespace": "shop", "uid": f"uid-{name}-{on}", "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {**agent["spec"]["template"]["spec"], "nodeName": on}}
