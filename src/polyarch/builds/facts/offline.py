"""A facts file: everything that a plan is made of, without a cluster and without a registry.

``now``, Kubernetes ``objects``, what the ``registry`` answers, and the role's ``settings``. Objects of other kinds are
passed over, lists count as their items. A registry answers what the file lists, and ``not-found``
otherwise; nothing is asked anywhere.

Pure: the caller parses the text. Errors name the member as a path, so that a caller who knows the lines can say one."""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from polyarch.builds import names
from polyarch.builds.api.crd import image_builds
from polyarch.builds.facts.build_facts import (
    BuildFacts,
    BuildLookup,
    BuildRequest,
    Execution,
    HeadResult,
    InputData,
    JobFacts,
    NodeFacts,
    PlanSettings,
    seconds,
)
from polyarch.builds.facts.objects import (
    BuildObject,
    ConfigMapObject,
    InputNames,
    JobObject,
    NodeObject,
    PodObject,
    RunObject,
    RuntimeClassObject,
    SecretObject,
    build_request,
    config_map_data,
    execution_of,
    job_facts,
    named_by,
    node_facts,
    pod_security,
    secret_facts,
)
from polyarch.builds.places import JobPlaces, NamespaceLoad
from polyarch.kube.schema import mistyped, stored_schema, without_nulls
from polyarch.objects import Namespace, ObjectMeta
from polyarch.oci.inspection import Inspection, InspectionError, Status
from polyarch.oci.platforms_file import AnswerFile, InvalidAnswers
from polyarch.oci.reference import InvalidReference, Reference, parse

MemberPath = tuple[str | int, ...]
"""Members and indexes, from the whole file down."""

MEMBERS: Final = ("now", "objects", "registry", "settings")
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_SAYS_SOMETHING: Final = frozenset({"platforms", "children", "neutral", "unknown", "error"})
_KINDS: Final[Mapping[str, tuple[str, type[msgspec.Struct]]]] = {
    "Node": ("v1", NodeObject),
    "Namespace": ("v1", Namespace),
    "RuntimeClass": ("node.k8s.io/v1", RuntimeClassObject),
    "ConfigMap": ("v1", ConfigMapObject),
    "Secret": ("v1", SecretObject),
    "Pod": ("v1", PodObject),
    "Job": ("batch/v1", JobObject),
    names.IMAGE_BUILDS.kind: (names.IMAGE_BUILDS.api_version, BuildObject),
    names.IMAGE_BUILD_RUNS.kind: (names.IMAGE_BUILD_RUNS.api_version, RunObject),
}
T = TypeVar("T", bound=msgspec.Struct)


class InvalidFacts(ValueError):  # noqa: N818 - what is the case
    """The file cannot be used: ``path`` is the member that is wrong."""

    def __init__(self, path: MemberPath, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{self.member}: {problem}" if path else problem)

    @property
    def member(self) -> str:
        """The path as text: ``objects[3].spec.output``."""
        steps = (f"[{each}]" if isinstance(each, int) or "." in each else f".{each}" for each in self.path)
        return "".join(steps).removeprefix(".")


class FileSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``settings`` of the file: those of the role that a plan depends on."""

    hmac_key: str = ""
    allow_privileged: bool = False
    arch_taint_keys: tuple[str, ...] = PlanSettings().arch_taint_keys
    max_active_jobs: int = PlanSettings().max_active_jobs
    machine_os: str = msgspec.field(default="auto", name="machineOS")
    builder_image: str = ""
    push_image: str = ""


class FileObject(msgspec.Struct, frozen=True):
    """An object of the file, and where it stands."""

    path: MemberPath
    document: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.document.get("kind") or "")


class HasLookups(Protocol):
    """A plan, as far as its lookups go."""

    @property
    def lookups(self) -> tuple[BuildLookup, ...]: ...


P = TypeVar("P", bound=HasLookups)


class FactsFile:
    """The content of a facts file."""

    def __init__(self, data: object) -> None:
        """Raises :class:`InvalidFacts`."""
        members = _mapping((), data)
        for name in members:
            if name not in MEMBERS:
                raise InvalidFacts((str(name),), _unknown(str(name), MEMBERS))
        self.now = _now(members.get("now"))
        self.settings, self._key = _settings(members.get("settings"))
        self.documents: tuple[FileObject, ...] = tuple(_documents(members.get("objects")))
        """Every object of the file."""
        self._answers = _answers(members.get("registry"))
        self._objects: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
        self._places: dict[tuple[str, str, str], MemberPath] = {}
        for found in self.documents:
            self._take(found)

    @property
    def requests(self) -> tuple[BuildRequest, ...]:
        """The ImageBuilds of the file, by namespace and name."""
        builds = (build_request(each) for each in self._objects[names.IMAGE_BUILDS.kind])
        return tuple(sorted(builds, key=lambda each: (each.namespace, each.name)))

    @property
    def nodes(self) -> tuple[NodeFacts, ...]:
        return tuple(node_facts(each) for each in self._objects["Node"])

    def facts(self, request: BuildRequest) -> BuildFacts:
        """The facts for a build request, before any lookup."""
        jobs = self.jobs()
        return BuildFacts(
            now=self.now,
            request=request,
            nodes=self.nodes,
            executions=self.executions(request.namespace),
            jobs=tuple(each for each in jobs if each.namespace == request.namespace),
            inputs=self.inputs(request.namespace, named_by(request.spec)),
            places=self.places(request.namespace),
            settings=self.settings,
        )

    def places(self, namespace: str) -> JobPlaces:
        """What the Jobs of the file leave to a namespace."""
        at_work, waiting = Counter[str](), Counter[str]()
        for job in self.jobs():
            if job.complete is None and job.failure is None and job.role == names.ARCH_ROLE:
                waits = job.pod is not None and job.pod.unscheduled_since is not None
                (waiting if waits else at_work)[job.namespace] += 1
        loads = {each: NamespaceLoad(at_work=at_work[each], waiting=waiting[each]) for each in {*at_work, *waiting}}
        return JobPlaces.of(namespace, loads, self.settings.max_active_jobs)

    def executions(self, namespace: str) -> tuple[Execution, ...]:
        """The ImageBuildRuns of a namespace."""
        runs = [each for each in self._objects[names.IMAGE_BUILD_RUNS.kind] if each.metadata.namespace == namespace]
        return tuple(execution_of(each, recorded=self._recorded(each.metadata)) for each in runs)

    def jobs(self) -> tuple[JobFacts, ...]:
        """The Jobs of builds, of all namespaces, with their pods."""
        pods: list[PodObject] = self._objects["Pod"]
        found = (job_facts(each, pods) for each in self._objects["Job"])
        return tuple(each for each in found if each.run)

    def inputs(self, namespace: str, named: InputNames) -> InputData:
        """ConfigMaps and Secrets with these names; None for those that the file does not have."""
        maps: dict[str, ConfigMapObject] = self._within("ConfigMap", namespace)
        secrets: dict[str, SecretObject] = self._within("Secret", namespace)
        spaces = {each.metadata.name: each for each in self._objects["Namespace"]}
        return InputData(
            config_maps={
                name: config_map_data(maps[name]) if name in maps else None for name in sorted(named.config_maps)
            },
            secrets={
                name: secret_facts(secrets[name], self._key) if name in secrets else None
                for name in sorted(named.secrets)
            },
            pod_security=pod_security(spaces.get(namespace)),
        )

    def answer(self, facts: BuildFacts, lookups: Iterable[BuildLookup]) -> BuildFacts:
        """The facts with the results of these lookups."""
        images, existing = dict(facts.images), dict(facts.existing)
        config_maps, secrets = set(facts.inputs.config_maps), set(facts.inputs.secrets)
        found_jobs, handlers = dict(facts.found_jobs), dict(facts.runtime_handlers)
        classes = {each.metadata.name: each.handler for each in self._objects["RuntimeClass"]}
        fresh = facts.pins_fresh
        for lookup in lookups:
            match lookup.what:
                case "inspect":
                    images[lookup.reference] = self.inspect(lookup.reference)
                    fresh = fresh or lookup.revalidate
                case "head":
                    existing[lookup.reference] = self.head(lookup.reference)
                case "configmap":
                    config_maps.add(lookup.reference)
                case "secret":
                    secrets.add(lookup.reference)
                case "job":
                    found_jobs[lookup.reference] = None  # the facts have every Job of the file, labelled or not
                case "runtimeclass":
                    handlers[lookup.reference] = classes.get(lookup.reference)
        return msgspec.structs.replace(
            facts,
            images=images,
            existing=existing,
            found_jobs=found_jobs,
            runtime_handlers=handlers,
            inputs=self.inputs(facts.request.namespace, InputNames(frozenset(config_maps), frozenset(secrets))),
            pins_fresh=fresh,
        )

    def planned(self, facts: BuildFacts, plan: Callable[[BuildFacts], P]) -> P:
        """The plan without lookups: it asks for images, then for what is made of them, then for tags."""
        planned, asked = plan(facts), set[BuildLookup]()
        while not asked.issuperset(planned.lookups):
            asked.update(planned.lookups)
            facts = self.answer(facts, planned.lookups)
            planned = plan(facts)
        return planned

    def inspect(self, reference: str) -> Inspection:
        """What a registry would say about a canonical reference."""
        try:
            parsed = parse(reference)
        except InvalidReference as error:
            return _not_found(Reference("docker", "", reference), str(error))
        return self._answers.get(parsed) or _not_found(parsed, "the facts file does not list it")

    def head(self, reference: str) -> HeadResult:
        """What a HEAD of ``repository@digest`` or ``repository:tag`` would find; nothing at what is no place."""
        try:
            parsed = parse(reference)
        except InvalidReference:
            return HeadResult(error="not-found")
        answer = self._answers.get(parsed)
        if answer is None:
            return HeadResult()
        if answer.error is not None:
            return HeadResult(error="" if answer.error.error_class == "absent" else answer.error.code)
        return HeadResult(digest=parsed.digest or answer.digest, media_type=answer.media_type)

    def _take(self, found: FileObject) -> None:
        wanted = _KINDS.get(found.kind)
        if wanted is None or found.document.get("apiVersion", wanted[0]) != wanted[0]:
            return
        if found.kind == names.IMAGE_BUILDS.kind:
            for field, problem in mistyped(stored_schema(image_builds()), without_nulls(found.document)):
                raise InvalidFacts((*found.path, *_steps(field)), problem)
        read = _converted(found.path, found.document, wanted[1])
        metadata: ObjectMeta = read.metadata  # type: ignore[attr-defined]
        if not metadata.name:
            raise InvalidFacts((*found.path, "metadata"), f"the {found.kind} has no name; give it metadata.name")
        if found.kind not in ("Node", "Namespace", "RuntimeClass") and not metadata.namespace:
            metadata = msgspec.structs.replace(metadata, namespace="default")
            read = msgspec.structs.replace(read, metadata=metadata)
        other = self._places.setdefault((found.kind, *metadata.key), found.path)
        if other != found.path:
            first = InvalidFacts(other, "").member
            raise InvalidFacts(found.path, f"{first} is {found.kind} {metadata.key} already; keep one of them")
        self._objects[found.kind].append(read)

    def _within(self, kind: str, namespace: str) -> dict[str, Any]:
        return {each.metadata.name: each for each in self._objects[kind] if each.metadata.namespace == namespace}

    def _recorded(self, run: ObjectMeta) -> str | None:
        """The text of the architecture record that an execution owns."""
        maps: Sequence[ConfigMapObject] = self._objects["ConfigMap"]
        for each in maps:
            owners = each.metadata.owner_references or ()
            if each.metadata.namespace == run.namespace and any(
                (owner.name, owner.uid) == (run.name, run.uid) for owner in owners
            ):
                return (each.data or {}).get(names.ARCHITECTURES_FILE)
        return None


def _not_found(reference: Reference, message: str) -> Inspection:
    return Inspection(reference, Status.ERROR, error=InspectionError.of("not-found", message))


def _documents(objects: object) -> Iterator[FileObject]:
    if objects is None:
        return
    if not isinstance(objects, list | tuple):
        raise InvalidFacts(("objects",), f"must be a list of Kubernetes objects, not {_kind(objects)}")
    for index, each in enumerate(objects):
        yield from _document(("objects", index), each)


def _document(path: MemberPath, each: object) -> Iterator[FileObject]:
    document = _mapping(path, each)
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        raise InvalidFacts(path, "has no kind; expected a Kubernetes object")
    items = document.get("items")
    if kind.endswith("List") and isinstance(items, list | tuple):
        for index, item in enumerate(items):
            # Items of a typed list, as the API server writes it, say neither kind nor version.
            if isinstance(item, Mapping) and "kind" not in item and kind != "List":
                item = {"kind": kind.removesuffix("List"), "apiVersion": document.get("apiVersion"), **item}
            yield from _document((*path, "items", index), item)
        return
    yield FileObject(path, document)


def _now(text: object) -> float:
    if text is None:
        raise InvalidFacts(("now",), 'is missing; give the time of the plan, such as "2026-01-31T12:00:00Z"')
    found = seconds(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidFacts(("now",), f'{text!r:.60} is not a time such as "2026-01-31T12:00:00Z"')
    return found


def _settings(given: object) -> tuple[PlanSettings, bytes]:
    members = _mapping(("settings",), given if given is not None else {})
    known = [each.encode_name for each in msgspec.structs.fields(FileSettings)]
    for name in members:
        if name not in known:
            raise InvalidFacts(("settings", str(name)), _unknown(str(name), known))
    read = _converted(("settings",), members, FileSettings)
    if read.machine_os not in ("auto", "on", "off"):
        raise InvalidFacts(("settings", "machineOS"), f"{read.machine_os!r:.40} is not auto, on or off")
    try:
        key = bytes.fromhex(read.hmac_key)
    except ValueError:
        raise InvalidFacts(("settings", "hmacKey"), "is not hexadecimal; give 64 digits for the key's bytes") from None
    usual = PlanSettings()
    return PlanSettings(
        allow_privileged=read.allow_privileged,
        arch_taint_keys=read.arch_taint_keys,
        max_active_jobs=read.max_active_jobs,
        machine_os=read.machine_os,
        builder_image=read.builder_image,
        push_image=read.push_image,
        operator_namespace=usual.operator_namespace,
    ), key or bytes(32)


def _answers(registry: object) -> AnswerFile:
    """An entry with nothing but a digest or a kind states that it exists."""
    members = _mapping(("registry",), registry if registry is not None else {})
    if "schemaVersion" not in members:
        members = {name: _existing(answer) for name, answer in members.items()}
    try:
        return AnswerFile.from_mapping(members, origin="the facts file")
    except InvalidAnswers as error:
        key = error.key.partition(": ")[0] if error.key not in members else error.key
        rest = error.key.removeprefix(key).removeprefix(": ")
        problem = f"{rest}: {error.problem}" if rest else error.problem
        raise InvalidFacts(("registry", key) if key else ("registry",), problem) from None


def _existing(answer: object) -> object:
    if answer is None:
        answer = {}
    if isinstance(answer, Mapping) and not _SAYS_SOMETHING & set(answer) and answer.get("kind") != "artifact":
        return {**answer, "unknown": True}
    return answer


def _converted(path: MemberPath, document: Mapping[str, Any], type: type[T]) -> T:
    try:
        return msgspec.convert(document, type)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).rstrip("`").partition(" - at `")
        raise InvalidFacts((*path, *_steps(where.removeprefix("$."))), problem[:1].lower() + problem[1:]) from None


def _steps(field: str) -> MemberPath:
    return tuple(name or int(index) for name, index in _STEP.findall(f".{field}"))


def _mapping(path: MemberPath, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidFacts(path, f"must be a mapping, not {_kind(value)}")
    return value


def _unknown(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"is unknown; did you mean {near[0]}?" if near else f"is unknown; expected one of {', '.join(known)}"


def _kind(value: object) -> str:
    kinds = {list: "a list", str: "a text", bool: "a truth value", int: "a number", float: "a number"}
    return "empty" if value is None else kinds.get(type(value), type(value).__name__)
