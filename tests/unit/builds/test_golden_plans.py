"""The plans of 200 random histories are those that were recorded: a change that is meant to keep them keeps them.

A case is a number: it seeds a history of an ImageBuild or of a MachineOSConfig in which people edit, nodes come and go,
Jobs end in every way, registries are away and the builder dies, and after it facts that no such history leads to. All
plans are compared, by one digest for each thing that happens. What is compared is what reaches the outside (objects,
patches, deletions, conditions, events, pauses, what registries are asked), under names that are written here, so that
classes and fields may be renamed.

A change that is meant to alter plans records them again; the differences are then read and committed with it::

    PYTHONPATH=src:tests/support python tests/unit/builds/test_golden_plans.py record
    PYTHONPATH=src:tests/support python tests/unit/builds/test_golden_plans.py write FOLDER  # every plan, for `diff -r`
"""

import contextlib
import copy
import hashlib
import json
import random
import sys
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builds_world import BASE, EVERY, REPOSITORY, BuildPlanWorld, CutOff, index_of, made_by, node, places_left
from machine_world import EXTENSIONS_IMAGE, FOUR_ARCHITECTURES, OS_IMAGE, MachineWorld, machine_node

from polyarch.builds import names
from polyarch.builds.api.formats import ExecutionPhase, Phase
from polyarch.builds.facts.build_facts import BuildFacts, ChildRecord, JobFacts, PodFacts, SecretFacts, WriteFailure
from polyarch.builds.jobs.contract import EXIT_REASONS
from polyarch.builds.machineos import api
from polyarch.builds.plan.document import BuildPlan

CASES = 200
WHOLE = 10
"""So many cases have their last plan in the file as a whole, for whoever looks for what has changed."""
RECORDED = Path(__file__).with_name("golden_plans.json")
Json = dict[str, Any]


# -- what reaches the outside ------------------------------------------------------------------------------------------


def outside(plan: BuildPlan) -> Json:
    """The plan under names of its own. Steps are only how writes are ordered, so they are not in it."""
    return {
        "decision": plan.decision,
        "reason": plan.reason,
        "message": plan.message,
        "architectures": plan.architectures,
        "keys": plan.keys,
        "buildKey": plan.build_key,
        "execution": plan.execution,
        "perArchitecture": [
            [each.architecture, each.action, each.phase, each.job, each.digest, each.source, each.reason, each.message]
            for each in plan.per_architecture
        ],
        "index": [plan.index.action, plan.index.media_type, plan.index.digest],
        "tags": plan.tags,
        "conditions": [[each.type, each.status, each.reason, each.message] for each in plan.conditions],
        "events": [
            [each.type, each.reason, each.message, each.architecture, each.execution]
            + ([each.about.kind, each.about.name, each.about.uid] if each.about is not None else [])
            for each in plan.events
        ],
        "writes": [
            {
                "verb": each.verb,
                "object": [each.kind, each.namespace, each.name],
                "reference": each.reference,
                "how": each.how,
                "preconditions": [each.uid, each.resource_version],
                "body": each.body,
            }
            for each in plan.writes
        ],
        "requeueSeconds": plan.requeue_after,
        "questions": [[each.what, each.reference, each.revalidate] for each in plan.lookups],
        "keyDocuments": plan.key_documents,
    }


def text_of(plans: Json | Sequence[Json]) -> str:
    """Canonical."""
    return json.dumps(msgspec.to_builtins(plans), sort_keys=True, indent=1, ensure_ascii=False)


def digest_of(plans: Sequence[Json]) -> str:
    return hashlib.sha256(text_of(plans).encode()).hexdigest()[:10]


# -- histories ---------------------------------------------------------------------------------------------------------

TEXTS = (
    *(f"FROM busybox:1.36\nRUN echo {word}\n" for word in ("one", "two")),
    "FROM busybox:1.36 AS tools\nRUN --mount=type=secret,id=token true\nFROM busybox:1.36\nCOPY --from=tools /x /x\n",
    "FROM registry.example.com/gone:1\n",
    "FRM busybox\n",
)
EDITS: dict[str, Sequence[Any]] = {
    "source.containerfile": (*TEXTS[:3], *TEXTS[:3], *TEXTS),
    "source.overrides": ([], [{"architecture": "arm64", "containerfile": TEXTS[1]}],
                         [{"architecture": "s390x", "buildArgs": {"MODE": "slow"}}]),
    "source.buildArgs": ({}, {"MODE": "fast"}),
    "source.secrets": ([], [{"id": "token", "secret": {"name": "token", "key": "t"}}],
                       [{"id": "token", "secret": {"name": "token", "key": "t"}, "rebuildOnChange": True}]),
    "source.context": ({"type": "None"}, {"type": "ConfigMap", "configMap": {"name": "context"}},
                       {"type": "Git", "git": {"url": "https://git.example.com/x", "commit": "c" * 40}}),
    "output.tags": ([], ["latest"], ["stable", "latest"]),
    "output.index": ("Auto", "Always", "Never"),
    "output.annotations": ({}, {"a": "b"}),
    "output.labels": ({}, {"l": "m"}),
    "output.format": ("OCI", "Docker"),
    "output.attestations": ("Drop", "Keep"),
    "output.archTags": ("Keep", "None"),
    "output.partial": (None, {"required": ["amd64"]}),
    "output.repository": (REPOSITORY, f"{REPOSITORY}2"),
    "output.pushSecret": (None, {"name": "push"}, {"name": "nobody"}),
    "architectures.exclude": ([], ["arm64"]),
    "architectures.include": ([], ["ppc64le"]),
    "architectures.onNewArchitecture": ("Build", "NextBuild"),
    "architectures.empty": ("WorkerNodes", "Wait"),
    "baseImages": ({}, {"policy": "Never"}, {"policy": "Interval", "interval": "10m"}, {"preflight": "Warn"}),
    "strategy": ("Native", "PreferNative", "Emulated"),
    "failFast": (True, False),
    "retries": (0, 1, 3),
    "timeouts": ({}, {"nodeWait": "1m", "build": "10m"}),
    "scheduling": ({}, {"maxParallel": 1}, {"maxParallel": 2},
                   {"perArchitecture": [{"architecture": "arm64", "nodeSelector": {"a": "b"}}]}),
    "builder": ({}, {"securityProfile": "Rootless"}, {"securityProfile": "Privileged"}),
    "suspend": (True, False, False),
    "registryAccess": ("Controller", "Job"),
    "rebuild": ({}, {"token": "1"}, {"token": "2", "architectures": ["amd64"]}, {"token": "3"},
                {"token": "4", "architectures": ["arm64", "mips64"]}),
    "history": ({}, {"successful": 1, "failed": 0, "images": "Delete"}),
}  # fmt: skip
CODES = (
    *("NameConflict", "Forbidden", "Invalid", "RegistryUnreachable", "PushDenied", "ReuseFailed"),
    *("ArchitectureMismatch", "LayoutInvalid"),
)
ENDS = (
    *((1, "", "RUN make: exit 2"), (1, "", "RUN make: exit 2"), (137, "", ""), (0, "DeadlineExceeded", "")),
    *((code, "PodFailurePolicy", "") for code in sorted(EXIT_REASONS)),
    *(
        (code, "PodFailurePolicy", json.dumps({"v": 1, "reason": reason, "message": "so it is"}))
        for code, reasons in sorted(EXIT_REASONS.items())
        for reason in reasons
    ),
)
"""Exit code of the pod, reason of the Job, what the container says."""
OFTEN = ("output.tags",) * 6 + ("rebuild",) * 4 + ("registryAccess", "scheduling", "strategy") * 3
KNOBS: dict[str, Sequence[str | None]] = {
    api.STRATEGY: (None, "PreferNative", "quick"),
    api.FAIL_FAST: (None, "true"),
    api.MISSING: (None, "BaseOnly"),
    api.ON_NEW: (None, "NextBuild"),
    api.INDEX: (None, "Always"),
    api.NODE_WAIT: (None, "1m"),
    api.MAX_PARALLEL: (None, "1"),
    api.REBUILD: (None, "", "arm64", "s390x"),
    api.PRE_BUILT: (None, f"registry.example.com/os/worker@sha256:{'1' * 64}"),
}
NO_ARCH = {"containerfileArch": "NoArch", "content": "FROM configs AS final\nRUN true\n"}
CONTAINER_FILES = (
    [NO_ARCH],
    [],
    [{**NO_ARCH, "content": "RUN other\n"}],
    [NO_ARCH, {"containerfileArch": "ARM64", "content": "RUN arm\n"}],
    [{"containerfileArch": "ARM64", "content": "RUN arm\n"}],
)
COMMON = (
    *("reconcile", "reconcile", "reconcile", "reconcile", "build all", "build all", *["back"] * 5),
    *("die", "succeed", "succeed", "fail", "fail", "start", "wait for a node", "says nonsense", "delete a Job"),
    *("lose pods", "join", "leave", "base moves", "time", "time", "registry", "refuse", "push fails"),
    *("vanish", "inputs", "taint", "refuse", "due", "due", "due", "fail again", "fail again"),
    *("partly", "partly", "take over", "take over"),
)
SEED_IMAGE = index_of("registry.example.com/os/worker", FOUR_ARCHITECTURES)


class History:
    """A world, what happens in it by chance, and every plan that was made: a list for each thing that happened."""

    def __init__(self, case: int) -> None:
        self.chance = random.Random(f"golden {case}")
        self.is_machine = case % 4 == 3
        architectures = tuple(self.chance.sample(FOUR_ARCHITECTURES, self.chance.choice((1, 2, 2, 3))))
        self.world: BuildPlanWorld
        if self.is_machine:
            self.world = MachineWorld(architectures=architectures)
        else:
            self.world = BuildPlanWorld(architectures=architectures)
            self.world.secrets = {
                "push": SecretFacts(type="kubernetes.io/dockerconfigjson", keys=frozenset({".dockerconfigjson"})),
                "token": SecretFacts(type="Opaque", keys=frozenset({"t"}), fingerprints={"t": "f" * 64}),
            }
            self.world.inputs = {"context": {"data": {"a": "b"}}}
        self.made: list[Json] = []
        """Plans since the last note."""
        plan = self.world.plan

        def noted(*name: str, **changes: Any) -> BuildPlan:
            found = plan(*name, **changes)
            self.made.append(outside(found))
            return found

        self.world.plan = noted  # type: ignore[method-assign]
        for _ in range(self.chance.choice((0, 1, 3, 4))):
            self.edit()
        self.specs: list[Json] = []
        """That were built."""
        self.plans: list[list[Json]] = []

    def told(self) -> list[list[Json]]:
        for _ in range(self.chance.randint(5, 18)):
            self.happen(self.chance.choice(COMMON if self.chance.random() < 0.7 else ("edit",)))
            self.note(lambda facts: facts)
        for _ in range(4):
            self.note(self.invented)
        return self.plans

    def note(self, changes: Callable[[BuildFacts], BuildFacts]) -> None:
        """Plans once more, with what was planned since the last time."""
        world = self.world
        facts = changes(world.facts())
        try:
            world.plan(**{each: getattr(facts, each) for each in facts.__struct_fields__})
        except (AssertionError, ValueError) as error:  # of facts that contradict each other
            self.made.append({"decision": "Refused", "message": str(error), "writes": []})
        self.plans.append([*self.made, {"decision": "Asked", "asked": [*world.asked], "writes": []}])
        self.made.clear()
        world.asked.clear()

    def happen(self, kind: str) -> None:
        world, chance = self.world, self.chance
        world.now += 1
        jobs = sorted(name for name, job in world.jobs.items() if not (job.get("status") or {}).get("conditions"))
        job = chance.choice(jobs) if jobs else ""
        match kind:
            case "edit":
                self.edit()
            case "reconcile":
                world.reconcile()
            case "back":
                if self.specs:
                    self.back(copy.deepcopy(chance.choice(self.specs)))
            case "build all":
                with contextlib.suppress(AssertionError):  # that a build has no end is no matter here
                    world.build_all()
                if not self.is_machine and world.status().get("image"):
                    self.specs.append(copy.deepcopy(world.builds["web"]["spec"]))
            case "die":
                with contextlib.suppress(CutOff):
                    world.reconcile(stop_before=chance.randrange(12))
            case "join":
                self.join(chance.choice(FOUR_ARCHITECTURES if self.is_machine else EVERY))
            case "leave":
                if len(world.nodes) > 1:
                    world.nodes.remove(chance.choice(world.nodes))
            case "taint":
                at = chance.randrange(len(world.nodes))
                world.nodes[at] = msgspec.structs.replace(
                    world.nodes[at],
                    taints=chance.choice(((), (("a", "b", "NoSchedule"),))),
                    ready=chance.random() < 0.7,
                    schedulable=chance.random() < 0.8,
                )
            case "base moves":
                moved = chance.choice((OS_IMAGE, EXTENSIONS_IMAGE)) if self.is_machine else BASE
                known = tuple(sorted(chance.sample(EVERY, chance.choice((3, 4, 5)))))
                world.bases[moved] = index_of(moved, known, str(chance.randrange(3)))
            case "time":
                world.now += chance.choice((1, 60, 1000, 4000, 100_000))
            case "lose pods":
                world.pods.clear()
            case "registry":
                world.unreachable = chance.random() < 0.2
                world.heads = {
                    reference: chance.choice(("network", "unauthorized", "rate-limited"))
                    for reference in sorted(world.manifests)
                    if chance.random() < 0.2
                }
            case "refuse":
                jobs = [each.name for each in world.plan().writes if each.verb == "create" and each.kind == "Job"]
                world.refused = dict.fromkeys(jobs[:1], "exceeded quota")
                for _ in range(chance.choice((1, 2, 9))):
                    world.reconcile()
                    world.now += 130
            case "due":
                self.wait()
            case "fail again":
                self.fail_again()
            case "partly" if not self.is_machine:
                self.partly(chance.choice(world.nodes).architecture)
            case "take over" if not self.is_machine:
                world.set("strategy", chance.choice(("Native", "Emulated")))
                world.reconcile()
                world.set("source.overrides", [{"architecture": "arm64", "buildArgs": {"NUMBER": str(world.now)}}])
                world.reconcile()
            case _ if job:
                self.end(kind, job)

    def edit(self) -> None:
        chance = self.chance
        if not isinstance(self.world, MachineWorld):
            path = chance.choice((*EDITS, *OFTEN))
            self.world.set(path, chance.choice(EDITS[path]))
        elif (choice := chance.random()) < 0.5:
            knob = chance.choice(tuple(KNOBS))
            self.world.annotate(knob, chance.choice(KNOBS[knob]))
        elif choice < 0.8:
            self.world.configure(containerFile=chance.choice(CONTAINER_FILES))
        else:
            extensions = chance.choice(([], ["usbguard"]))
            self.world.roll(f"rendered-worker-{chance.randrange(3)}", extensions=extensions)

    def fail_again(self) -> None:
        """The same trouble, some times in a row: of a Job, or of the registry once every Job has succeeded."""
        world, chance = self.world, self.chance
        end = chance.choice(ENDS)
        is_push = chance.random() < 0.4
        if is_push:
            world.push_trouble = WriteFailure(
                verb="push-index", code="RegistryUnreachable", message="connection refused"
            )
        for _ in range(chance.randint(1, 5)):
            world.reconcile()
            for job in sorted(world.jobs):
                is_image = made_by(world.jobs[job]) != names.INDEX_ROLE
                self.end("succeed" if is_push and is_image else "fail", job, end)
            world.reconcile()
            self.wait()
        world.push_trouble = None

    def partly(self, required: str) -> None:
        """Every Job fails but that of the architecture that suffices."""
        world = self.world
        world.set("output.partial", {"required": [required]})
        world.reconcile()
        for job in sorted(world.jobs):
            self.end("succeed" if made_by(world.jobs[job]) == required else "fail", job)
        world.reconcile()

    def wait(self) -> None:
        """Almost until the plan wanted to be made again, or a little longer."""
        self.world.now += (self.world.plan().requeue_after or 60) + self.chance.choice((-1, 1, 1))

    def back(self, former: Json) -> None:
        """To what was wanted before, and is in the registry; often after something else was built."""
        if self.chance.random() < 0.6:
            self.world.set("source.buildArgs", {"NUMBER": str(self.world.now)})
            with contextlib.suppress(AssertionError):
                self.world.build_all()
        for path in (*self.world.builds["web"]["spec"], *former):
            self.world.set(path, former.get(path))

    def join(self, architecture: str) -> None:
        created = self.world.now - self.chance.choice((1, 20, 3600))
        made = (machine_node if self.is_machine else node)(
            architecture, f"joined-{len(self.world.nodes)}-{architecture}"
        )
        self.world.nodes.append(msgspec.structs.replace(made, created=created))

    def inputs(self) -> None:
        name = self.chance.choice(sorted(self.world.secrets)) if self.world.secrets else ""
        if not self.is_machine:
            self.world.inputs["context"] = self.chance.choice(({"data": {"a": "b"}}, {"data": {"a": "c"}}, None))
            self.world.secrets[name] = self.chance.choice(
                (
                    SecretFacts(type="kubernetes.io/dockerconfigjson", keys=frozenset({".dockerconfigjson"})),
                    SecretFacts(type="Opaque", keys=frozenset({"t"}), fingerprints={"t": "e" * 64}),
                    SecretFacts(type="Opaque", invalid="it has no keys"),
                    None,
                )
            )

    def end(self, kind: str, job: str, end: tuple[int, str, str] | None = None) -> None:
        """Where an architecture has two live Jobs, the world does not know which is meant."""
        world, made = self.world, made_by(self.world.jobs[job])
        live = [each for each in world.jobs.values() if not (each.get("status") or {}).get("conditions")]
        if sum(made_by(each) == made for each in live) != 1:
            return
        is_index = made == names.INDEX_ROLE
        match kind:
            case "succeed" if is_index:
                world.publish()
            case "succeed":
                world.succeed(made, again=self.chance.choice((0, 0, 1)))
            case "says nonsense" if not is_index:
                world.succeed(made, message=self.chance.choice(("", "nonsense", '{"v":1,"digest":"sha256:0"}')))
            case "fail":
                code, reason, message = end or self.chance.choice(ENDS)
                world.fail(made, code=code, reason=reason, message=message)
            case "start":
                world.schedule(made)
            case "wait for a node":
                world.unschedulable(made)
            case "delete a Job":
                world.delete_job(job)

    # -- facts to which no history leads -------------------------------------------------------------------------------

    def invented(self, facts: BuildFacts) -> BuildFacts:
        """Other clocks, failures of this round, records that somebody edited, Jobs in every state."""
        chance = self.chance
        executions = tuple(self.execution(each) for each in facts.executions)
        jobs = tuple(self.job(each, facts.now) for each in facts.jobs if chance.random() < 0.95)
        changes: Json = {
            "executions": executions,
            "jobs": jobs,
            "now": facts.now + chance.choice((0, 0, 30, 1000, 90_000, -50)),
        }
        at_work, queued = chance.choice((sum(each.active for each in jobs), 19, 20, 50)), chance.choice((0, 0, 3))
        privileged, limit = chance.random() < 0.3, chance.choice((1, 20))
        changes["places"] = places_left(at_work, limit, queued=queued)
        changes["settings"] = msgspec.structs.replace(
            facts.settings,
            allow_privileged=privileged,
            max_active_jobs=limit,
            proxies=chance.choice(((), (("HTTPS_PROXY", "http://proxy.example.com"),))),
        )
        if chance.random() < 0.1:
            changes["nodes"] = None
        if chance.random() < 0.4:
            writes = self.world.plan().writes
            failed = chance.sample(writes, min(len(writes), chance.choice((1, 1, 2))))
            changes["failures"] = tuple(self.failure(each.verb, each.step, each.kind, each.name) for each in failed)
        return msgspec.structs.replace(facts, **changes)

    def failure(self, verb: str, step: str, kind: str, name: str) -> WriteFailure:
        chance = self.chance
        return WriteFailure(
            verb=verb,
            step=step,
            kind=kind,
            name=name,
            code=chance.choice(CODES),
            message="it was refused",
            retry_after=chance.choice((None, None, 17.0)),
            architecture=chance.choice(("", *sorted({each.architecture for each in self.world.nodes}))),
            missing=chance.choice(((), (), ("amd64",))),
            passing=chance.random() < 0.5,
        )  # fmt: skip

    def execution(self, execution: Any) -> Any:
        chance = self.chance
        if chance.random() < 0.7:
            return execution
        changes: Json = {
            "phase": chance.choice((execution.phase, execution.phase, *typing.get_args(ExecutionPhase))),
            "children": tuple(self.child(each) for each in execution.children),
            "deleting": chance.random() < 0.1,
        }
        if chance.random() < 0.15:
            changes["owner_uid"] = "uid-of-another"
        return msgspec.structs.replace(execution, **changes)

    def child(self, child: ChildRecord) -> ChildRecord:
        chance = self.chance
        if chance.random() < 0.6:
            return child
        return msgspec.structs.replace(
            child,
            phase=chance.choice(typing.get_args(Phase)),
            attempts=chance.choice((child.attempts, 1, 3)),
            digest=chance.choice((child.digest, "")),
            reason=chance.choice((child.reason, "BuildFailed", "NoNode")),
            completed=chance.choice((child.completed, self.world.now - 5)),
        )

    def job(self, job: JobFacts, now: float) -> JobFacts:
        chance = self.chance
        if chance.random() < 0.6:
            return job
        pod = PodFacts(
            name=f"{job.name}-pod",
            node=chance.choice(("", "node-amd64")),
            unscheduled_since=chance.choice((None, None, now - 30, now - 5000)),
            unscheduled_message="0/2 nodes are available",
            phase=chance.choice(("Pending", "Running", "Succeeded", "Failed")),
            started=chance.choice((None, now - 100)),
            scheduled=chance.choice((None, now - 200)),
            message=chance.choice(("", "RUN make: exit 2", '{"v":1}')),
            exit_code=chance.choice((None, 0, 1, 137)),
            container=chance.choice(("", "build", "push")),
            disrupted=chance.random() < 0.2,
        )
        ended = chance.choice(("", "", "complete", "failure"))
        return msgspec.structs.replace(
            job,
            active=chance.choice((0, 1)),
            failed=chance.choice((0, 1, 3)),
            succeeded=int(ended == "complete"),
            complete=now - 3 if ended == "complete" else None,
            failure=now - 3 if ended == "failure" else None,
            failure_reason=chance.choice(("BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy")),
            failure_message="told by the Job",
            started=chance.choice((job.started, None, now - 500)),
            deleting=chance.random() < 0.15,
            pod=chance.choice((job.pod, None, pod, pod)),
        )


def played(case: int) -> list[list[Json]]:
    return History(case).told()


# -- the comparison ----------------------------------------------------------------------------------------------------


@pytest.mark.req("BD-004", "BD-006")
@pytest.mark.parametrize("first", range(0, CASES, 20))
def test_plans_are_those_that_were_recorded(first: int) -> None:
    """What each plan does, says and waits for."""
    recorded = json.loads(RECORDED.read_text())
    for case in range(first, first + 20):
        plans = played(case)
        if case < WHOLE:
            assert json.loads(text_of(plans[-1][-2])) == recorded["plans"][case], f"case {case}, its last plan"
        digests = [digest_of(each) for each in plans]
        assert digests == recorded["digests"][case].split(), f"case {case}: see the docstring of this file"


@pytest.mark.req("BD-006")
def test_the_recorded_plans_have_every_decision_and_every_kind_of_write() -> None:
    recorded = json.loads(RECORDED.read_text())
    assert len(recorded["digests"]) == CASES
    assert recorded["kinds"] == sorted(recorded["kinds"])
    assert set(recorded["kinds"]) >= {
        *("UpToDate", "Retag", "Repoint", "InProgress", "Reassemble", "Build", "Held", "Wait", "Invalid"),
        *("create Job", "create ConfigMap", "create ImageBuildRun", "create MachineOSBuild", "patch Job", "delete Job"),
        *("status ImageBuild", "status ImageBuildRun", "status MachineOSConfig", "push-index", "tag", "prepare Secret"),
        *("status MachineOSBuild", "delete MachineOSBuild", "patch MachineConfigPool", "delete ConfigMap"),
    }


def kinds(plans: Sequence[Json]) -> Iterator[str]:
    for plan in plans:
        yield plan["decision"]
        yield from (f"{write['verb']} {write['object'][0]}".strip() for write in plan["writes"])


def record() -> Json:
    found = [played(case) for case in range(CASES)]
    seen = Counter(kind for happened in found for plans in happened for kind in kinds(plans))
    print("\n".join(f"{count:6} {kind}" for kind, count in seen.most_common()), file=sys.stderr)  # noqa: T201
    return {
        "kinds": sorted(seen),
        "digests": [" ".join(map(digest_of, plans)) for plans in found],
        "plans": [msgspec.to_builtins(plans[-1][-2]) for plans in found[:WHOLE]],
    }


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for case in range(CASES):
        for number, plans in enumerate(played(case)):
            (folder / f"{case:03}-{number:02}.json").write_text(text_of(plans) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "record":
        RECORDED.write_text(json.dumps(record(), indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    else:
        write(Path(sys.argv[2]))
