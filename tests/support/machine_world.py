"""A world with a MachineOSConfig, its pool and its MachineOSBuilds, in which plans are carried out.

It keeps to what their API allows: how conditions may follow each other, what may never change, and what a terminal
status freezes (the rules that the definitions of the cluster tests state in CEL).
"""

import copy
from collections.abc import Mapping
from typing import Any

import msgspec
from builds_world import BASE, START, BuildPlanWorld, _ended, _merge, index_of, node, places_left

from polyarch.builds import names
from polyarch.builds.facts.build_facts import BuildFacts, BuildLookup, SecretFacts, WriteFailure, seconds, written
from polyarch.builds.facts.objects import JobObject, PodObject, job_facts
from polyarch.builds.machineos import api
from polyarch.builds.machineos.api import ExecutionConfigMap, MachineOSConfigFacts, controlled_by
from polyarch.builds.machineos.plan import plan_machine_os
from polyarch.builds.machineos.records import EXECUTION_FILE, TERMINAL, stage_of
from polyarch.builds.machineos.request import Pool, machine_facts, pool_nodes
from polyarch.builds.plan.document import BuildPlan, Write
from polyarch.selectors import Selector

FOUR_ARCHITECTURES = ("amd64", "arm64", "ppc64le", "s390x")
"""Those of the images that machines are built from, whichever nodes are taken to have."""

OS_IMAGE = "registry.example.com/release/os:4.19"
EXTENSIONS_IMAGE = "registry.example.com/release/os-extensions:4.19"
PUSH_SPEC = "registry.example.com/os/worker:latest"
WORKER = "node-role.kubernetes.io/worker"
MOVES = {
    None: {""},
    "": {"Prepared", "Building", *TERMINAL},
    "Prepared": {"Prepared", "Building", *TERMINAL},
    "Building": {"Building", *TERMINAL},
}


class MachineWorld(BuildPlanWorld):
    """One pool ``worker`` with its config of the same name."""

    def __init__(self, *, architectures: tuple[str, ...] = ("amd64", "arm64"), **spec: Any) -> None:
        super().__init__(architectures=())
        self.nodes = [machine_node(each) for each in architectures]
        self.bases = {
            each: index_of(each, FOUR_ARCHITECTURES) for each in (BASE, OS_IMAGE, EXTENSIONS_IMAGE, *self.bases)
        }
        self.secrets = {
            "push": SecretFacts(type="kubernetes.io/dockerconfigjson", keys=frozenset({".dockerconfigjson"})),
            api.GLOBAL_PULL_SECRET: SecretFacts(type="kubernetes.io/dockercfg", keys=frozenset({".dockercfg"})),
        }
        self.copies: dict[str, dict[str, Any]] = {}
        """Copies of Secrets and MachineConfigs by name, as ``prepare`` asked for them."""
        self.named: dict[str, dict[str, Any]] = {}
        """ConfigMaps that are not the builder's."""
        self.trust = ""
        """The CAs that nodes trust in addition."""
        self.stages: list[tuple[str, str]] = []
        """Every stage that a build went through."""
        self.mosbs: dict[str, dict[str, Any]] = {}
        self.rendered = {"rendered-worker-1": rendered("rendered-worker-1")}
        self.pool: dict[str, Any] = {
            "metadata": {"name": "worker", "uid": self.uid()},
            "spec": {
                "configuration": {"name": "rendered-worker-1"},
                "nodeSelector": {"matchLabels": {WORKER: ""}},
            },
            "status": {"conditions": [{"type": "Updated", "status": "True"}]},
        }
        self.config: dict[str, Any] = {
            "metadata": {"name": "worker", "uid": self.uid(), "generation": 1, "creationTimestamp": written(self.now)},
            "spec": {
                "machineConfigPool": {"name": "worker"},
                "imageBuilder": {"imageBuilderType": "Job"},
                "renderedImagePushSecret": {"name": "push"},
                "renderedImagePushSpec": PUSH_SPEC,
                "containerFile": [{"containerfileArch": "NoArch", "content": "FROM configs AS final\nRUN true\n"}],
                **spec,
            },
        }

    # -- people --------------------------------------------------------------------------------------------------------

    def annotate(self, key: str, text: str | None) -> None:
        _merge(self.config, {"metadata": {"annotations": {key: text}}})

    def configure(self, **spec: Any) -> None:
        self.config["spec"] |= spec
        self.config["metadata"]["generation"] += 1

    def roll(self, name: str, **spec: Any) -> None:
        """The pool gets another rendered config."""
        self.rendered[name] = rendered(name, **spec)
        self.pool["spec"]["configuration"] = {"name": name}

    # -- facts and plans -----------------------------------------------------------------------------------------------

    def case(self) -> MachineOSConfigFacts:
        return MachineOSConfigFacts(
            namespace=api.NAMESPACE,
            document=self.config,
            pool=self.pool,
            rendered=self.rendered.get(self.pool["spec"]["configuration"]["name"]),
            trust=self.trust,
            builds=controlled_by(self.mosbs.values(), self.config["metadata"]["uid"]),
            records=tuple(self._records()),
        )

    def _records(self) -> list[ExecutionConfigMap]:
        return [
            ExecutionConfigMap(
                name=name,
                build=each["metadata"]["labels"][names.RUN_LABEL],
                owners=frozenset(owner["uid"] for owner in each["metadata"]["ownerReferences"]),
                architectures=each["data"].get(names.ARCHITECTURES_FILE, ""),
                execution=each["data"].get(EXECUTION_FILE, ""),
            )
            for name, each in self.config_maps.items()
            if name.startswith("arch-")
        ]

    def facts(self, name: str = "worker", **changes: Any) -> BuildFacts:
        pools = [Pool("worker", Selector.parse({"matchLabels": {WORKER: ""}}))]
        jobs = [
            job_facts(msgspec.convert(each, JobObject), [msgspec.convert(pod, PodObject) for pod in self.pods.values()])
            for each in self.jobs.values()
        ]
        found = machine_facts(
            self.case(),
            pool_nodes("worker", pools, self.nodes),
            tuple(self.nodes),
            jobs=jobs,
            settings=self.settings,
            now=self.now,
            places=places_left(sum(not _ended(each) for each in self.jobs.values()), self.settings.max_active_jobs),
        )
        return msgspec.structs.replace(found, **changes)

    def plan(self, name: str = "worker", **changes: Any) -> BuildPlan:
        facts = self.facts(**changes)
        for _ in range(20):
            found = plan_machine_os(facts, self.case())
            if not found.lookups:
                return found
            facts = self._answered(facts, found.lookups)
        raise AssertionError(f"the planner goes on asking: {found.lookups}")

    def _answered(self, facts: BuildFacts, lookups: tuple[BuildLookup, ...]) -> BuildFacts:
        known = super()._answered(facts, lookups)
        asked = {each.reference: self.named.get(each.reference) for each in lookups if each.what == "configmap"}
        inputs = msgspec.structs.replace(known.inputs, config_maps={**known.inputs.config_maps, **asked})
        return msgspec.structs.replace(known, inputs=inputs)

    # -- carrying out --------------------------------------------------------------------------------------------------

    def _carry_out(self, write: Write, uids: dict[str, str]) -> WriteFailure | None:
        uid = uids.get(write.uid.removeprefix("${uid:").removesuffix("}"), write.uid)
        body = _with_uids(write.body, uids)
        match write.verb, write.kind:
            case "create", "MachineOSBuild":
                if write.name not in self.mosbs:
                    stored = copy.deepcopy(dict(body))
                    stored["metadata"] |= {"uid": self.uid(), "creationTimestamp": written(self.now)}
                    self.mosbs[write.name] = stored
                uids[f"MachineOSBuild/{write.name}"] = self.mosbs[write.name]["metadata"]["uid"]
            case "status", "MachineOSBuild":
                assert self.mosbs[write.name]["metadata"]["uid"] == uid
                self._status(write.name, body["status"])
            case "patch", "MachineOSBuild":
                _merge(self.mosbs[write.name], body)
            case "delete", "MachineOSBuild":
                if self.mosbs.get(write.name, {}).get("metadata", {}).get("uid") == uid:
                    del self.mosbs[write.name]
                    self._collect(uid)
            case "status", "MachineOSConfig":
                self.config["status"] = body["status"]
            case "patch", "MachineOSConfig":
                _merge(self.config, body)
            case "status", "MachineConfigPool":
                self.pool["status"] = body["status"]
            case "patch", "MachineConfigPool":
                _merge(self.pool, body)
            case "prepare", _:
                assert not _keys(body) & {"data", "stringData"}, "plans hold no content"
                self.copies[write.name] = copy.deepcopy(dict(body))
            case "patch", "Secret":
                _merge(self.copies[write.name], body)
            case "patch", "ConfigMap" if write.name not in self.config_maps and write.how == "merge":
                _merge(self.copies[write.name], body)
            case "delete", "ConfigMap":
                self.config_maps.pop(write.name, None)
                self.copies.pop(write.name, None)
            case "delete", "Job":
                if self.jobs.get(write.name, {}).get("metadata", {}).get("uid") == uid:
                    self.delete_job(write.name)
                    self._collect(uid)
            case _:
                failure = super()._carry_out(write, uids)
                if write.verb == "create" and write.kind == "Job" and failure is None:
                    for volume in self.jobs[write.name]["spec"]["template"]["spec"]["volumes"]:
                        self._mounted(volume)
                return failure
        return None

    def _mounted(self, volume: Mapping[str, Any]) -> None:
        sources = volume.get("projected", {}).get("sources", [volume])
        for source in sources:
            for kind, name in (("secret", "secretName"), ("configMap", "name")):
                wanted = source.get(kind, {}).get("name") or source.get(kind, {}).get(name)
                if wanted and not source[kind].get("optional"):
                    theirs = self.secrets.get(wanted) if kind == "secret" else self.named.get(wanted)
                    own = wanted in self.copies or wanted in self.config_maps
                    assert own or theirs is not None, f"a Job mounts {kind} {wanted}"

    def _collect(self, uid: str) -> None:
        """Garbage collection of what only this owner had."""
        for place in (self.config_maps, self.copies, self.jobs):
            for name, each in list(place.items()):
                owners = each["metadata"].get("ownerReferences") or []
                if owners and all(owner["uid"] == uid for owner in owners):
                    (self.delete_job if place is self.jobs else place.pop)(name)

    def _status(self, name: str, status: dict[str, Any]) -> None:
        stored = self.mosbs[name].get("status") or {}
        before, after = stage_of(stored), stage_of(status)
        assert len(status["conditions"]) == 5
        assert sum(each["status"] == "True" for each in status["conditions"]) <= 1
        assert before not in TERMINAL, f"{name}: frozen"
        assert after in MOVES[before], f"{name}: {before} → {after}"
        for fixed in ("buildStart", "buildEnd"):
            assert fixed not in stored or stored[fixed] == status[fixed]
        if after in TERMINAL:
            assert (seconds(status["buildEnd"]) or 0) > (seconds(status["buildStart"]) or 0)
        assert ("digestedImagePushSpec" in status) is (after == "Succeeded")
        assert all(each["group"] for each in status.get("relatedObjects", ()))
        if before != after:
            self.stages.append((name, after or "none"))
        self.mosbs[name]["status"] = copy.deepcopy(status)

    # -- what came of it -----------------------------------------------------------------------------------------------

    def build_all(self, name: str = "worker") -> BuildPlan:
        return super().build_all(name)

    def stage(self, name: str) -> str:
        return stage_of(self.mosbs[name].get("status") or {}) or ""

    @property
    def build(self) -> dict[str, Any]:
        """The only MachineOSBuild."""
        (found,) = self.mosbs.values()
        return found

    def degraded(self) -> tuple[str, str, str]:
        """Status, reason and message of the pool's condition."""
        found = next(each for each in self.pool["status"]["conditions"] if each["type"] == "ImageBuildDegraded")
        return found["status"], found["reason"], found["message"]


def machine_node(architecture: str, name: str = "") -> Any:
    made = node(architecture, name)
    return msgspec.structs.replace(made, labels={**made.labels, WORKER: ""})


def rendered(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "annotations": {api.RELEASE: "4.19.1", api.CONTROLLER: "abc"},
        },
        "spec": {"osImageURL": OS_IMAGE, "baseOSExtensionsContainerImage": EXTENSIONS_IMAGE, **spec},
    }


def _keys(value: Any) -> set[str]:
    if not isinstance(value, Mapping):
        return set()
    return {*value, *(key for each in value.values() for key in _keys(each))}


def _with_uids(value: Any, uids: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for key, uid in uids.items():
            value = value.replace(f"${{uid:{key}}}", uid)
        return value
    if isinstance(value, Mapping):
        return {key: _with_uids(each, uids) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_uids(each, uids) for each in value]
    return value


NOW = START
