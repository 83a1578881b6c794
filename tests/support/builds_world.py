"""A world in which plans are carried out: an API server, Jobs and a registry, as far as builds see them.

Bodies are stored as the planner wrote them and read back as facts by the code that reads the real API server, so a plan
that leaves something out is found. Nothing happens by itself: a test says which Jobs end, how, and when a write is cut
off. Digests follow from keys and a counter, so that a child that is built twice is seen.
"""

import copy
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from polyarch.builds import names
from polyarch.builds.api.resources import ImageBuildSpec
from polyarch.builds.facts.build_facts import (
    BuildFacts,
    BuildLookup,
    Execution,
    HeadResult,
    InputData,
    NodeFacts,
    PlanSettings,
    SecretFacts,
    WriteFailure,
    written,
)
from polyarch.builds.facts.objects import (
    BuildObject,
    JobObject,
    PodObject,
    RunObject,
    build_request,
    execution_of,
    found_job,
    job_facts,
)
from polyarch.builds.jobs import contract
from polyarch.builds.places import JobPlaces, NamespaceLoad
from polyarch.builds.plan.document import BuildPlan, PlannedEvent, Write
from polyarch.builds.plan.planner import plan_build
from polyarch.builds.pruning import count_references, expired, unreferenced
from polyarch.oci.documents import OCI_INDEX, OCI_MANIFEST
from polyarch.oci.inspection import Entry, Inspection, InspectionError, Status
from polyarch.oci.reference import parse
from polyarch.oci.write.assembly import Child, assemble
from polyarch.platforms import Platform

NAMESPACE = "team"
REPOSITORY = "registry.example.com/team/web"
BASE = "docker.io/library/busybox:1.36"
TOOLS = ("registry.example.com/tools/buildah:1", "registry.example.com/tools/polyarch:1")
EVERY = ("amd64", "arm64", "ppc64le", "riscv64", "s390x")
START = 1_800_000_000.0
SPEC: Mapping[str, Any] = {
    "source": {"containerfile": "FROM busybox:1.36\nRUN true\n"},
    "output": {"repository": REPOSITORY},
}


class CutOff(Exception):  # noqa: N818 - what happened to the builder
    """The builder was killed before this write."""


def digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


class BuildPlanWorld:
    """One namespace with one ImageBuild, unless a test makes more."""

    def __init__(self, spec: Mapping[str, Any] = SPEC, *, architectures: tuple[str, ...] = ("amd64", "arm64")) -> None:
        self.now = START
        self.nodes = [node(each) for each in architectures]
        self.builds: dict[str, dict[str, Any]] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.config_maps: dict[str, dict[str, Any]] = {}
        self.inputs: dict[str, dict[str, Any] | None] = {}
        self.secrets: dict[str, SecretFacts | None] = {}
        self.manifests: dict[str, tuple[str, tuple[str, ...]]] = {}
        """``repository@digest`` → media type, digests of children."""
        self.tags: dict[str, str] = {}
        self.bases: dict[str, Inspection] = {BASE: index_of(BASE, EVERY)}
        for tool in TOOLS:
            self.bases[tool] = index_of(tool, EVERY)
        self.unreachable = False
        self.settings = PlanSettings(builder_image=TOOLS[0], push_image=TOOLS[1])
        self.runtime_classes: dict[str, str] = {}
        """Handlers by the name of their class."""
        self.heads: dict[str, str] = {}
        """References whose look-up fails, with the code."""
        self.made: list[str] = []
        """Every Job that was made, as ``architecture key[:8]``."""
        self.puts: list[str] = []
        self.asked: list[str] = []
        self.told: list[PlannedEvent] = []
        self.refused: dict[str, str] = {}
        """Names of objects that the API server refuses to create, and why."""
        self.push_trouble: WriteFailure | None = None
        self._uid = 0
        self.add("web", spec)

    # -- wishes --------------------------------------------------------------------------------------------------------

    def add(self, name: str, spec: Mapping[str, Any]) -> None:
        self.builds[name] = {
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "uid": self.uid(),
                "generation": 1,
                "creationTimestamp": written(self.now),
            },
            "spec": copy.deepcopy(dict(spec)),
        }

    def edit(self, change: Callable[[dict[str, Any]], object], name: str = "web") -> None:
        """A user's edit; the generation counts only if it changes something."""
        before = copy.deepcopy(self.builds[name]["spec"])
        change(self.builds[name]["spec"])
        if self.builds[name]["spec"] != before:
            self.builds[name]["metadata"]["generation"] += 1

    def set(self, path: str, value: Any, name: str = "web") -> None:
        """Sets one field of the spec by its dotted path; None takes it away."""

        def change(spec: dict[str, Any]) -> None:
            *parents, last = path.split(".")
            for parent in parents:
                spec = spec.setdefault(parent, {})
            if value is None:
                spec.pop(last, None)
            else:
                spec[last] = value

        self.edit(change, name)

    def recreate(self, name: str = "web") -> None:
        """Deleted and made again under the same name, its runs still there."""
        spec = self.builds[name]["spec"]
        self.add(name, spec)

    def status(self, name: str = "web") -> dict[str, Any]:
        return self.builds[name].get("status") or {}

    def condition(self, type: str, name: str = "web") -> tuple[str, str]:
        found = next(each for each in self.status(name)["conditions"] if each["type"] == type)
        return found["status"], found["reason"]

    @property
    def events(self) -> list[tuple[str, str]]:
        """Reason and architecture of every event."""
        return [(each.reason, each.architecture) for each in self.told]

    # -- facts and plans -----------------------------------------------------------------------------------------------

    def facts(self, name: str = "web", **changes: Any) -> BuildFacts:
        build = msgspec.convert(self.builds[name], BuildObject)
        spec = build.spec
        unread = {each.name for each in (*(spec.output.pull_secrets or ()),)}
        unread |= {spec.output.push_secret.name} if spec.output.push_secret is not None else set()
        facts = BuildFacts(
            now=self.now,
            request=build_request(build),
            nodes=tuple(self.nodes),
            executions=tuple(self.execution(each) for each in self.runs),
            jobs=tuple(
                job_facts(
                    msgspec.convert(each, JobObject),
                    [msgspec.convert(pod, PodObject) for pod in self.pods.values()],
                )
                for each in self.jobs.values()
                if names.RUN_LABEL in each["metadata"]["labels"]  # what a watch by label shows
            ),
            inputs=InputData(
                config_maps=dict(self.inputs), secrets={k: v for k, v in self.secrets.items() if k not in unread}
            ),
            places=places_left(sum(not _ended(each) for each in self.jobs.values()), self.settings.max_active_jobs),
            settings=self.settings,
        )
        return msgspec.structs.replace(facts, **changes)

    def execution(self, name: str) -> Execution:
        record = self.config_maps.get(f"{name}-arch")
        text = record["data"][names.ARCHITECTURES_FILE] if record is not None else None
        return execution_of(msgspec.convert(self.runs[name], RunObject), recorded=text)

    def plan(self, name: str = "web", **changes: Any) -> BuildPlan:
        """The plan once every question was answered."""
        facts = self.facts(name, **changes)
        for _ in range(20):
            found = plan_build(facts)
            if not found.lookups:
                return found
            facts = self._answered(facts, found.lookups)
        raise AssertionError(f"the planner goes on asking: {found.lookups}")

    def _answered(self, facts: BuildFacts, lookups: tuple[BuildLookup, ...]) -> BuildFacts:
        images, existing, fresh = dict(facts.images), dict(facts.existing), facts.pins_fresh
        found_jobs, handlers = dict(facts.found_jobs), dict(facts.runtime_handlers)
        secrets = dict(facts.inputs.secrets)
        for lookup in lookups:
            self.asked.append(f"{lookup.what} {lookup.reference}")
            match lookup.what:
                case "inspect":
                    images[lookup.reference] = self._inspect(lookup.reference)
                    fresh = fresh or lookup.revalidate
                case "head":
                    existing[lookup.reference] = self._head(lookup.reference)
                case "secret":
                    secrets[lookup.reference] = self.secrets.get(lookup.reference)
                case "job":
                    job = self.jobs.get(lookup.reference)
                    found_jobs[lookup.reference] = found_job(msgspec.convert(job, JobObject)) if job else None
                case "runtimeclass":
                    handlers[lookup.reference] = self.runtime_classes.get(lookup.reference)
        inputs = msgspec.structs.replace(facts.inputs, secrets=secrets)
        known = msgspec.structs.replace(facts, images=images, existing=existing, found_jobs=found_jobs)
        known = msgspec.structs.replace(known, runtime_handlers=handlers)
        return msgspec.structs.replace(known, pins_fresh=fresh, inputs=inputs)

    def _inspect(self, reference: str) -> Inspection:
        parsed = parse(reference)
        if self.unreachable:
            error = InspectionError.of("network", "connection refused")
            return Inspection(parsed, Status.ERROR, error=error)
        known = self.bases.get(reference)
        if known is not None:
            return known
        for each in self.bases.values():
            if parsed.digest and each.digest == parsed.digest:
                return msgspec.structs.replace(each, reference=parsed)
        if parsed.digest and f"{parsed.name}@{parsed.digest}" in self.manifests:
            architecture = next((a for a in EVERY if digest_is_for(parsed.digest, a, self)), "amd64")
            entry = Entry(Platform.of("linux", architecture), parsed.digest, 500)
            return Inspection(
                parsed, Status.RESOLVED, kind="image", digest=parsed.digest, media_type=OCI_MANIFEST, entries=(entry,)
            )
        return Inspection(parsed, Status.ERROR, error=InspectionError.of("not-found", "there is none"))

    def _head(self, reference: str) -> HeadResult:
        if self.unreachable:
            return HeadResult(error="network")
        if reference in self.heads:
            return HeadResult(error=self.heads[reference])
        found = reference if "@" in reference else None
        if found is None and reference in self.tags:
            found = f"{reference.rpartition(':')[0]}@{self.tags[reference]}"
        if found is None or found not in self.manifests:
            return HeadResult()
        return HeadResult(digest=found.partition("@")[2], size=500, media_type=self.manifests[found][0])

    # -- carrying out --------------------------------------------------------------------------------------------------

    def reconcile(self, name: str = "web", *, rounds: int = 1, stop_before: int | None = None) -> BuildPlan:
        """Plans and carries out, ``rounds`` times. ``stop_before``: the builder dies before that write."""
        found = self.plan(name)
        for _ in range(rounds):
            found = self.plan(name)
            failures: tuple[WriteFailure, ...] = ()
            while (failure := self.carry_out(found, name, stop_before=stop_before)) is not None:
                failures, stop_before = (*failures, failure), None
                found = self.plan(name, failures=failures)
                again = [each.name for each in found.writes if any(_is_same(each, known) for known in failures)]
                assert not again, f"failed writes are planned again: {again}"
        return found

    def settle(self, name: str = "web", *, most: int = 8) -> BuildPlan:
        """Until a plan has no writes."""
        for _ in range(most):
            found = self.plan(name)
            if not found.writes:
                return found
            self.reconcile(name)
        raise AssertionError(f"no end: {[(w.verb, w.kind, w.name, w.step) for w in found.writes]}")

    def carry_out(self, found: BuildPlan, name: str = "web", *, stop_before: int | None = None) -> WriteFailure | None:
        uids: dict[str, str] = {}
        for at, write in enumerate(found.writes):
            if at == stop_before:
                raise CutOff
            failure = self._carry_out(write, uids)
            if failure is not None:
                return failure
        self.told += found.events
        return None

    def _carry_out(self, write: Write, uids: dict[str, str]) -> WriteFailure | None:
        body = _with_uids(write.body, uids)
        match write.verb, write.kind:
            case "create", kind:
                return self._create(write, kind, body, uids)
            case "status", "ImageBuildRun":
                self.runs[write.name]["status"] = body["status"]
            case "status", "ImageBuild":
                self.builds[write.name]["status"] = body["status"]
            case "patch", "ConfigMap":
                if write.how == "apply":
                    self.config_maps[write.name] = body
                else:
                    _merge(self.config_maps[write.name], body)
            case "patch", "Job":
                assert self.jobs[write.name]["metadata"]["uid"] == write.uid
                _merge(self.jobs[write.name], body)
            case "patch", "ImageBuild":
                _merge(self.builds[write.name], body)
            case "delete", "Job":
                job = self.jobs.get(write.name)
                if job is not None and job["metadata"]["uid"] == write.uid:
                    self.delete_job(write.name)
            case "push-index", _:
                return self._push(write, body)
            case "tag", _:
                if self.push_trouble is not None:
                    return msgspec.structs.replace(self.push_trouble, verb="tag", name=write.name, step=write.step)
                repository, _, reference = write.reference.partition("@")
                for tag in body["tags"]:
                    self.tags[f"{repository}:{tag}"] = reference
            case other:
                raise AssertionError(other)
        return None

    def _create(self, write: Write, kind: str, body: dict[str, Any], uids: dict[str, str]) -> WriteFailure | None:
        if write.name in self.refused:
            return WriteFailure(
                verb="create", step=write.step, kind=kind, name=write.name, code="Forbidden",
                message=self.refused[write.name],
            )  # fmt: skip
        place = {"ImageBuildRun": self.runs, "Job": self.jobs, "ConfigMap": self.config_maps}[kind]
        existing = place.get(write.name)
        if existing is not None:
            mine = [each["uid"] for each in body["metadata"].get("ownerReferences", ())]
            theirs = [each["uid"] for each in existing["metadata"].get("ownerReferences", ())]
            if mine != theirs:
                return WriteFailure(
                    verb="create", step=write.step, kind=kind, name=write.name, code="NameConflict", message="taken"
                )
            uids[f"{kind}/{write.name}"] = existing["metadata"]["uid"]
            return None
        stored = copy.deepcopy(body)
        stored["metadata"] |= {"uid": self.uid(), "creationTimestamp": written(self.now), "resourceVersion": "1"}
        place[write.name] = stored
        uids[f"{kind}/{write.name}"] = stored["metadata"]["uid"]
        if kind == "Job":
            labels, notes = stored["metadata"]["labels"], stored["metadata"]["annotations"]
            what = labels.get(names.ARCHITECTURE_LABEL, labels[names.ROLE_LABEL])
            self.made.append(f"{what} {notes[names.KEY_ANNOTATION][:8]}")
        return None

    def _push(self, write: Write, body: dict[str, Any]) -> WriteFailure | None:
        if self.push_trouble is not None:
            return msgspec.structs.replace(self.push_trouble, verb="push-index", name=write.name, step=write.step)
        repository = body["repository"]
        gone = tuple(each["architecture"] for each in body["children"] if each["reference"] not in self.manifests)
        if gone:
            return WriteFailure(
                verb="push-index", step=write.step, name=write.name, code="blob-unknown", message="gone", missing=gone
            )
        members = []
        for each in body["children"]:
            child = each["reference"].partition("@")[2]
            self.put(f"{repository}@{child}", OCI_MANIFEST)
            members.append(
                Child(OCI_MANIFEST, child, 500, Platform.of("linux", each["architecture"]), each["architecture"])
            )
        if body["single"]:
            made = members[0].digest
        else:
            index = assemble(members, annotations=body["annotations"])
            made = index.digest
            self.put(f"{repository}@{made}", OCI_INDEX, tuple(each.digest for each in members))
        assert made == body["digest"], "the plan's digest is not that of the index"
        for tag in body["tags"]:
            self.tags[f"{repository}:{tag}"] = made
        return None

    def put(self, reference: str, media_type: str, children: tuple[str, ...] = ()) -> None:
        if reference in self.manifests:
            return
        repository = reference.partition("@")[0]
        missing = [each for each in children if f"{repository}@{each}" not in self.manifests]
        assert not missing, f"index {reference} lacks {missing}"
        self.manifests[reference] = (media_type, children)
        self.puts.append(reference)

    # -- what Jobs and people do ---------------------------------------------------------------------------------------

    def job_of(self, architecture: str) -> str:
        """The live Job of an architecture; of ``index`` the one that publishes."""
        found = [name for name, job in self.jobs.items() if made_by(job) == architecture and not _ended(job)]
        assert len(found) == 1, f"{architecture}: live Jobs {found} of {list(self.jobs)}"
        return found[0]

    def schedule(self, architecture: str) -> None:
        self._pod(self.job_of(architecture), "Running", node=f"node-{architecture}")

    def unschedulable(self, architecture: str, message: str = "0/2 nodes are available") -> None:
        name = self.job_of(architecture)
        self._pod(name, "Pending")
        self.pods[name]["status"]["conditions"] = [
            {
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                "lastTransitionTime": written(self.now),
            }
        ]  # fmt: skip

    def stall(self, architecture: str, message: str = "not found") -> None:
        """A node has the pod and cannot pull its image."""
        name = self.job_of(architecture)
        self._pod(name, "Pending", node=f"node-{architecture}")
        waiting = {"reason": "ImagePullBackOff", "message": message}
        self.pods[name]["status"]["initContainerStatuses"] = [{"name": "build", "state": {"waiting": waiting}}]

    def succeed(self, architecture: str, *, again: int = 0, message: str | None = None, failed: int = 0) -> str:
        """The Job pushes its child and is complete. ``again``: how often its inputs were built with other bytes."""
        name = self.job_of(architecture)
        job = self.jobs[name]
        key = job["metadata"]["annotations"][names.KEY_ANNOTATION]
        child = digest(f"{key} {again}")
        repository = job["metadata"]["annotations"][names.REPOSITORY_ANNOTATION]
        self.put(f"{repository}@{child}", OCI_MANIFEST)
        args = [
            arg
            for each in job["spec"]["template"]["spec"]["containers"]
            for arg in each.get("args", each.get("command", []))
        ]
        for arg in args:
            if arg.startswith("--tag="):
                self.tags[f"{repository}:{arg.removeprefix('--tag=')}"] = child
        said = {
            "v": 1, "digest": child, "size": 500, "mediaType": OCI_MANIFEST, "os": "linux",
            "architecture": architecture, "variant": "", "config": digest("config"),
        }  # fmt: skip
        text = msgspec.json.encode(said).decode() if message is None else message
        self._pod(name, "Succeeded", node=f"node-{architecture}", message=text)
        self._complete(job, failed)
        return child

    def publish(self, message: str | None = None) -> dict[str, Any]:
        """The index Job does what its document says, or names what is missing; what its pod said."""
        name = self.job_of(names.INDEX_ROLE)
        job = self.jobs[name]
        volumes = job["spec"]["template"]["spec"]["volumes"]
        inputs = next(each["configMap"]["name"] for each in volumes if each["name"] == contract.IN_VOLUME)
        body = msgspec.json.decode(self.config_maps[inputs]["data"][contract.INDEX_DOCUMENT])
        failure = self._push(Write(verb="push-index", name=name), body)
        said = (
            {"v": 1, "missing": failure.missing}
            if failure is not None
            else {"v": 1, "digest": body["digest"], "size": 9}
        )
        text = msgspec.json.encode(said).decode() if message is None else message
        self._pod(name, "Succeeded", node="node-amd64", message=text)
        self._complete(job)
        return said

    def _complete(self, job: dict[str, Any], failed: int = 0) -> None:
        job["status"] = {
            "succeeded": 1,
            "failed": failed,
            "startTime": written(self.now),
            "conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": written(self.now)}],
        }

    def fail(self, architecture: str, *, code: int = 1, message: str = "RUN make: exit 2", reason: str = "") -> None:
        name = self.job_of(architecture)
        self._pod(name, "Failed", node=f"node-{architecture}", message=message, code=code)
        self.jobs[name]["status"] = {
            "failed": 1,
            "startTime": written(self.now),
            "conditions": [
                {
                    "type": "Failed", "status": "True", "reason": reason or "BackoffLimitExceeded",
                    "lastTransitionTime": written(self.now),
                }
            ],
        }  # fmt: skip

    def delete_job(self, name: str) -> None:
        self.jobs.pop(name)
        self.pods.pop(name, None)

    def unlabel(self, name: str) -> None:
        """Somebody takes off the label by which the Job is watched."""
        self.jobs[name]["metadata"]["labels"].pop(names.RUN_LABEL, None)

    def vanish(self, digest: str) -> None:
        """Somebody deleted it from the registry, with every index that names it."""
        for reference, (_, children) in list(self.manifests.items()):
            if reference.endswith(f"@{digest}") or digest in children:
                del self.manifests[reference]

    def build_all(self, name: str = "web") -> BuildPlan:
        """To the end: every Job succeeds."""
        for _ in range(12):
            self.reconcile(name)
            live = [job for job in self.jobs.values() if not _ended(job)]
            if not live and not self.plan(name).writes:
                return self.plan(name)
            for job in live:
                if made_by(job) == names.INDEX_ROLE:
                    self.publish()
                else:
                    self.succeed(made_by(job))
        raise AssertionError("no end")

    # -- pruning -------------------------------------------------------------------------------------------------------

    def prune(self, name: str = "web", *, images: int | None = None) -> None:
        """Old runs go, then their images, then they are gone. ``images``: the builder dies after so many."""
        status, history = self.status(name), self.builds[name]["spec"].get("history") or {}
        executions = [self.execution(each) for each in self.runs]
        published = [str(status.get("image") or ""), *(each["reference"] for each in status.get("images") or ())]
        old = expired(
            executions,
            owner_uid=self.builds[name]["metadata"]["uid"],
            current=str(status.get("currentRun") or ""),
            active=str(status.get("activeRun") or ""),
            successful=history.get("successful", 3),
            failed=history.get("failed", 1),
            running=count_references((), published=published),
        )
        for each in old:
            self.runs[each.name]["metadata"]["deletionTimestamp"] = written(self.now)
        leaving = [each for each in map(self.execution, self.runs) if each.deleting]
        kept = [each for each in map(self.execution, self.runs) if not each.deleting]
        going = unreferenced(leaving, count_references(kept, published=published), known=[*leaving, *kept])
        for image in going[:images]:
            self.manifests.pop(image.reference, None)
            for tag in image.tags:
                self.tags.pop(f"{image.repository}:{tag}", None)
        if images is not None and len(going) > images:
            raise CutOff
        for each in leaving:
            del self.runs[each.name]
            self.config_maps.pop(f"{each.name}-arch", None)
            for job in [job for job, document in self.jobs.items() if _is_owned(document, each.uid)]:
                self.delete_job(job)

    def uid(self) -> str:
        self._uid += 1
        return f"uid-{self._uid}"

    def _pod(self, job: str, phase: str, *, node: str = "", message: str = "", code: int = 0) -> None:
        status: dict[str, Any] = {"phase": phase}
        if phase in ("Succeeded", "Failed"):
            ended = {"exitCode": code, "message": message, "finishedAt": written(self.now)}
            status["containerStatuses"] = [{"name": "push", "state": {"terminated": ended}}]
        metadata = self.jobs[job]["metadata"]
        self.pods[job] = {
            "metadata": {
                "name": f"{job}-pod",
                "namespace": NAMESPACE,
                "uid": self.uid(),
                "creationTimestamp": written(self.now),
                "ownerReferences": [{"kind": "Job", "name": job, "uid": metadata["uid"], "controller": True}],
            },
            "spec": {"nodeName": node},
            "status": status,
        }


def node(architecture: str, name: str = "", *, ready: bool = True, created: float = START - 86_400) -> NodeFacts:
    return NodeFacts(
        name=name or f"node-{architecture}",
        architecture=architecture,
        operating_system="linux",
        labels={names.ARCH_KEY: architecture, names.OS_KEY: "linux"},
        created=created,
        ready=ready,
        user_namespaces=frozenset({""}),
    )


def index_of(reference: str, architectures: tuple[str, ...], version: str = "") -> Inspection:
    """A base image with a child for each architecture; another ``version`` has other digests."""
    entries = tuple(
        Entry(Platform.of("linux", each), digest(f"{reference} {each} {version}"), 500) for each in architectures
    )
    whole = digest(f"{reference} {architectures} {version}")
    return Inspection(
        parse(reference), Status.RESOLVED, kind="index", digest=whole, media_type=OCI_INDEX, entries=entries
    )


def digest_is_for(child: str, architecture: str, world: BuildPlanWorld) -> bool:
    for job in world.jobs.values():
        notes = job["metadata"]["annotations"]
        if made_by(job) == architecture and digest(f"{notes[names.KEY_ANNOTATION]} 0") == child:
            return True
    return False


def made_by(job: Mapping[str, Any]) -> str:
    """The architecture that a Job builds, or ``index``."""
    labels = job["metadata"]["labels"]
    return str(labels.get(names.ARCHITECTURE_LABEL, labels[names.ROLE_LABEL]))


def spec_of(document: Mapping[str, Any]) -> ImageBuildSpec:
    return msgspec.convert(document, ImageBuildSpec)


def places_left(at_work: int, limit: int, *, queued: int = 0) -> JobPlaces:
    """What is left to a namespace that builds alone; ``queued``: architectures of its older Runs that wait."""
    loads = {"team": NamespaceLoad(at_work=at_work)}
    return JobPlaces.of("team", loads, limit, before=queued, predecessor="older-1" if queued else "")


def _ended(job: Mapping[str, Any]) -> bool:
    return bool((job.get("status") or {}).get("conditions"))


def _is_owned(document: Mapping[str, Any], uid: str) -> bool:
    return any(each["uid"] == uid for each in document["metadata"].get("ownerReferences", ()))


def _is_same(write: Write, failure: WriteFailure) -> bool:
    return (write.verb, write.kind, write.name, write.step) == (
        failure.verb, failure.kind, failure.name, failure.step,
    )  # fmt: skip


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


def _merge(target: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """RFC 7386."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, Mapping):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = copy.deepcopy(value)
