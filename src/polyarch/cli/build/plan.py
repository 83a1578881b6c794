"""The work of ``polyarch build plan``: what would be built, and why. Reads only.

A plan is made of the same facts whether they are read from a cluster or from a facts file. Secrets are read by name,
and only those that the build names.
"""

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import msgspec
import yaml

from polyarch.builds import names
from polyarch.builds.api.resources import ImageBuildSpec
from polyarch.builds.controller.resolver import NamedObjects
from polyarch.builds.facts.build_facts import BuildFacts, BuildLookup, own_executions
from polyarch.builds.facts.objects import named_by
from polyarch.builds.facts.offline import FactsFile, InvalidFacts, MemberPath
from polyarch.builds.keys import OUTLINES_FILE, KeyOutline, difference_sentence, key_differences, key_outline
from polyarch.builds.machineos import api
from polyarch.builds.machineos.api import (
    Document,
    ExecutionConfigMap,
    MachineOSConfigFacts,
    controlled_by,
    name_of,
    uid_of,
)
from polyarch.builds.machineos.job_objects import trust_bundle
from polyarch.builds.machineos.plan import plan_machine_os as machine_plan
from polyarch.builds.machineos.records import EXECUTION_FILE
from polyarch.builds.machineos.request import machine_facts, pool_nodes, pool_of
from polyarch.builds.names import record_name
from polyarch.builds.plan.document import SCHEMA, BuildPlan, PlannedArchitecture
from polyarch.builds.plan.planner import plan_build
from polyarch.builds.registry import head_image
from polyarch.cli.build import image_builds
from polyarch.cli.build.options import NamespaceFlags
from polyarch.cli.build.run import usual_namespace
from polyarch.cli.cluster import on_cluster
from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.input.objects import StrictLoader
from polyarch.cli.options.common import Output, emit
from polyarch.cli.options.images import RegistryOptions
from polyarch.cli.output.documents import document_text, manifest_text
from polyarch.cli.output.messages import Messages
from polyarch.cli.output.tables import Row, table
from polyarch.cli.output.terminal import printable, styled
from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden, NotFound
from polyarch.kube.resources import (
    CONFIGMAPS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    RUNTIME_CLASSES,
    SECRETS,
    Resource,
)
from polyarch.objects import ObjectKey, Unstructured
from polyarch.oci.concurrency import map_concurrently
from polyarch.oci.inspector import Inspector, InspectorOptions, open_inspector
from polyarch.oci.settings import InspectorSettings

WORK: Final = frozenset({"Retag", "Repoint", "Reassemble", "Build", "Held", "Wait"})
"""Decisions with something left to do."""
AT_ONCE: Final = 8


@dataclass(frozen=True, kw_only=True)
class BuildPlanOptions:
    """The command line of ``plan`` without the options that it shares."""

    name: str | None = None
    file: str | None = None
    facts: str | None = None
    keys: bool = False
    jobs: bool = False
    check: bool = False


def run_plan(
    asked: BuildPlanOptions,
    where: NamespaceFlags,
    registries: RegistryOptions,
    chosen: Sequence[Output],
    *,
    messages: Messages,
) -> int:
    """Returns the exit code: 2 for a build that is wrong, with ``--check`` 1 if there is something to do."""
    files = image_builds.read_builds(asked.file) if asked.file is not None else []
    image_builds.check(files)
    if asked.facts is not None:
        if files:
            raise UsageError("build plan: a facts file holds its ImageBuilds itself; remove -f, or --facts")
        shown = _offline(asked, asked.facts, where)
    else:
        if asked.name is None and not files:
            raise UsageError("build plan: give NAME, -f FILE with ImageBuilds, or --facts FILE")
        namespace = usual_namespace(where)
        placed = [image_builds.placed(each, where.namespace, namespace) for each in files]
        given = {_key(each): each for each in placed if asked.name in (None, each["metadata"]["name"])}
        if files and not given:
            raise UsageError(f"{asked.file}: no ImageBuild named {asked.name}")
        wanted: Mapping[ObjectKey, Mapping[str, Any] | None] = given or {ObjectKey(namespace, str(asked.name)): None}

        async def work(client: Client) -> list[BuildPlanView]:
            return await _live(client, wanted, registries, messages)

        shown = asyncio.run(on_cluster("build plan", where.cluster, work))
    emit(chosen, lambda form, colour: rendered(shown, form, keys=asked.keys, jobs=asked.jobs, colour=colour))
    return max((_code(each.plan, check=asked.check) for each in shown), default=0)


def _code(made: BuildPlan, *, check: bool) -> int:
    if made.decision == "Invalid":
        return 2
    return 1 if check and made.decision in WORK else 0


def _key(manifest: Mapping[str, Any]) -> ObjectKey:
    return ObjectKey(manifest["metadata"]["namespace"], manifest["metadata"]["name"])


class FormerExecution(NamedTuple):
    """What an earlier execution was made of, by architecture."""

    execution: str
    outlines: Mapping[str, KeyOutline]


class BuildPlanView(NamedTuple):
    """The plan of one build, and what earlier executions of it were made of, the newest first."""

    namespace: str
    name: str
    plan: BuildPlan
    former: Sequence[FormerExecution] = ()


def _offline(asked: BuildPlanOptions, path: str, where: NamespaceFlags) -> list[BuildPlanView]:
    """The plans of a facts file: of the build that is named, else of all."""
    known = load_facts_file(path)
    machines = [
        (case, facts)
        for case, facts in machine_cases(known)
        if asked.name in (None, case.name) and where.namespace in (None, case.namespace)
    ]
    requests = [
        each for each in known.requests if asked.name in (None, each.name) and where.namespace in (None, each.namespace)
    ]
    if not requests and not machines:
        named = f" named {asked.name}" if asked.name else ""
        there = ", ".join(f"{each.namespace}/{each.name}" for each in known.requests) or "none at all"
        raise UsageError(f"--facts {path}: no ImageBuild{named}; the file has {there}")
    found = []
    for request in requests:
        facts = known.facts(request)
        found.append(
            BuildPlanView(request.namespace, request.name, known.planned(facts, plan_build), _former(known, facts))
        )
    for case, facts in machines:
        made = known.planned(facts, partial(machine_plan, config=case))
        found.append(BuildPlanView(case.namespace, case.name, made, _former(known, facts)))
    return found


def _former(known: FactsFile, facts: BuildFacts) -> list[FormerExecution]:
    newest = sorted(own_executions(facts), key=lambda each: (each.created, each.serial, each.name), reverse=True)
    maps = [each.document for each in known.documents if each.kind == "ConfigMap"]
    return former([each.name for each in newest], maps, facts.request.namespace)


async def _live(
    client: Client,
    wanted: Mapping[ObjectKey, Mapping[str, Any] | None],
    registries: RegistryOptions,
    messages: Messages,
) -> list[BuildPlanView]:
    wiring = InspectorOptions(
        settings=InspectorSettings(timeout=registries.timeout, max_wait=registries.max_wait),
        configuration=registries.configuration(),
        trust=registries.trust(),
    )
    found = []
    async with open_inspector(wiring, credentials=registries.credentials(), notice=messages.remark) as inspector:
        for key, given in wanted.items():
            known = await read_cluster(client, key, given, datetime.now(UTC))
            (request,) = (each for each in known.requests if (each.namespace, each.name) == key)
            facts = known.facts(request)
            found.append(
                BuildPlanView(key.namespace, key.name, await _planned(facts, known, inspector), _former(known, facts))
            )
    return found


async def _planned(facts: BuildFacts, known: FactsFile, inspector: Inspector) -> BuildPlan:
    """The plan without lookups; registries are asked, objects were read before."""
    made, asked = plan_build(facts), set[BuildLookup]()
    while not asked.issuperset(made.lookups):
        asked.update(made.lookups)
        facts = await _answered(facts, made.lookups, known, inspector)
        made = plan_build(facts)
    return made


async def _answered(
    facts: BuildFacts, lookups: Sequence[BuildLookup], known: FactsFile, inspector: Inspector
) -> BuildFacts:
    facts = known.answer(facts, [each for each in lookups if each.what not in ("inspect", "head")])
    inspected = [each for each in lookups if each.what == "inspect"]
    heads = [each for each in lookups if each.what == "head"]

    async def inspect(lookup: BuildLookup) -> Any:
        return await inspector.inspect(lookup.reference, fresh=lookup.revalidate)

    async def ask(lookup: BuildLookup) -> Any:
        return await head_image(inspector.connection, lookup.reference)

    images = await map_concurrently(inspect, inspected, at_once=AT_ONCE)
    existing = await map_concurrently(ask, heads, at_once=AT_ONCE)
    return msgspec.structs.replace(
        facts,
        images={**facts.images, **dict(zip((each.reference for each in inspected), images, strict=True))},
        existing={**facts.existing, **dict(zip((each.reference for each in heads), existing, strict=True))},
        pins_fresh=facts.pins_fresh or any(each.revalidate for each in inspected),
    )


# -- output: text and documents


GOOD: Final = frozenset({"UpToDate", "InProgress", "Repoint", "Retag"})
NOTES: Final = {"Normal": "note", "Warning": "warning"}
COLOURS: Final = {"Build": "yellow", "Reassemble": "yellow", "Invalid": "red", "Held": "red", "Wait": "yellow"}


def former(
    executions: Iterable[str], config_maps: Iterable[Mapping[str, Any]], namespace: str
) -> list[FormerExecution]:
    """Of these executions those whose record says it; ``config_maps`` are documents."""
    texts = {
        each.get("metadata", {}).get("name", ""): (each.get("data") or {}).get(OUTLINES_FILE)
        for each in config_maps
        if each.get("metadata", {}).get("namespace", "default") == namespace
    }
    found = []
    for execution in executions:
        text = texts.get(record_name(execution))
        try:
            read = msgspec.json.decode(text, type=dict[str, dict[str, str]]) if text else {}
        except msgspec.DecodeError:
            continue  # somebody edited it; it only explains
        if read:
            found.append(FormerExecution(execution, read))
    return found


def rendered(shown: Sequence[BuildPlanView], form: str, *, keys: bool, jobs: bool, colour: bool) -> str:
    """The text of all plans, or the document: one plan, or ``plans`` of several."""
    if form == "text":
        return "\n".join(_text(each, keys=keys, jobs=jobs, colour=colour) for each in shown)
    documents = [_document(each) for each in shown]
    return document_text(documents[0] if len(documents) == 1 else {"schemaVersion": SCHEMA, "plans": documents}, form)


def _document(shown: BuildPlanView) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(shown.plan)
    document["writes"] = [{_camel(name): value for name, value in each.items()} for each in document["writes"]]
    said = {_camel(name): value for name, value in document.items() if name not in _INTERNAL}
    for told, each in zip(said["perArchitecture"], shown.plan.per_architecture, strict=True):
        told["why"] = why(shown, each)
    return {
        "schemaVersion": SCHEMA,
        "namespace": shown.namespace,
        "name": shown.name,
        **said,
    }


_INTERNAL: Final = ("lookups",)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)


def _text(shown: BuildPlanView, *, keys: bool, jobs: bool, colour: bool) -> str:
    made = shown.plan
    style = COLOURS.get(made.decision, "green")
    where = printable(f"{shown.namespace}/{shown.name}")
    lines = [f"{where}: {styled(made.decision, style, colour=colour)} ({made.reason})\n"]
    lines += [f"  {printable(made.message)}\n"] if made.message else []
    lines += [f"  execution {printable(made.execution)}\n"] if made.execution else []
    told = [each for each in made.events if not each.execution and each.message not in made.message]
    lines += [f"  {NOTES[each.type]}: {printable(each.message)}\n" for each in told]
    if made.per_architecture:
        rows = [Row((each.architecture, each.action, why(shown, each))) for each in made.per_architecture]
        printed = table(("ARCHITECTURE", "ACTION", "WHY"), rows, colour=colour)
        lines += [f"\n{printed}\n"]
        lines += [f"profile of {each.architecture}: {each.profile}\n" for each in made.per_architecture if each.profile]
    if made.index.action != "None":
        what = {"Push": "index to be pushed", "Exists": "index is there", "Single": "the child alone, without an index"}
        digest = f": {printable(made.index.digest)}" if made.index.digest else ""
        lines += [f"{what[made.index.action]}{digest}\n"]
    lines += [f"tags: {printable(', '.join(made.tags))}\n"] if made.tags else []
    lines += [f"looked at again in {made.requeue_after:.0f} s\n"] if made.requeue_after is not None else []
    if keys:
        documents = [
            {"architecture": a, "key": made.keys.get(a, ""), "inputs": d} for a, d in made.key_documents.items()
        ]
        lines += ["\n", manifest_text(msgspec.to_builtins(documents))]
    if jobs:
        bodies = [each.body for each in made.writes if each.verb == "create" and each.kind in ("Job", "ConfigMap")]
        lines += ["\n", manifest_text(msgspec.to_builtins(bodies))] if bodies else ["\nno Job would be made\n"]
    return "".join(lines)


def why(shown: BuildPlanView, each: PlannedArchitecture) -> str:
    """``key equal, from web-1a2b-3``, or ``containerfile changed since web-1a2b-3``."""
    if each.action in ("Reuse", "Adopt"):
        return f"key equal, from {each.source}" if each.source else each.message or "key equal"
    if each.action != "Build":
        return each.message or each.reason
    document = shown.plan.key_documents.get(each.architecture)
    for known in shown.former:
        before = known.outlines.get(each.architecture)
        if before is not None and document is not None:
            changed = difference_sentence(key_differences(before, key_outline(document)))
            return f"{changed} since {known.execution}" if changed else each.message or "no child with this key is left"
    return each.message or ("not built before" if document is not None else each.reason)


# -- facts of a cluster


Objects = list[dict[str, Any]]
OURS: Final = f"{names.MANAGED_BY}={names.MANAGER}"
_FLAGS: Final = {
    "--builder-image": "builderImage",
    "--push-image": "pushImage",
    "--max-active-jobs": "maxActiveJobs",
    "--allow-privileged-builds": "allowPrivileged",
    "--arch-taint-key": "archTaintKeys",
}
"""Flags of the builder's Deployment → settings of a facts file."""


async def read_cluster(client: Client, key: ObjectKey, given: Mapping[str, Any] | None, now: datetime) -> FactsFile:
    """The facts about one build; ``given`` is an object that is planned for in place of the stored one."""
    build = await _build(client, key, given)
    try:
        spec = msgspec.convert(build.get("spec") or {}, ImageBuildSpec)
    except msgspec.ValidationError as error:
        raise UsageError(f"ImageBuild {key}: {error}") from None
    named = named_by(spec)
    objects = [build]
    objects += await _listed(client, names.IMAGE_BUILD_RUNS, key.namespace)
    objects += await _listed(client, NODES)
    objects += await _listed(client, JOBS, label_selector=OURS)
    objects += await _listed(client, PODS, key.namespace, label_selector=OURS)
    objects += await _listed(client, CONFIGMAPS, key.namespace, label_selector=OURS)
    objects += await _got(client, NAMESPACES, [key.namespace])
    objects += await _got(client, CONFIGMAPS, named.config_maps, key.namespace)
    objects += await _got(client, SECRETS, named.secrets, key.namespace)
    objects += await _runtime_classes(client, spec)
    settings = await _settings(client)
    if named.secrets:
        settings |= await _hmac(client)
    unique = {(each["kind"], *_place(each)): each for each in objects}
    data = {"now": now.isoformat(), "objects": list(unique.values()), "settings": settings}
    try:
        return FactsFile(data)
    except InvalidFacts as error:
        raise CouldNotComplete(f"build plan: {error}") from None


async def _build(client: Client, key: ObjectKey, given: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = await client.get(names.IMAGE_BUILDS, key.name, namespace=key.namespace)
    except NotFound:
        if given is None:
            raise UsageError(f"build plan: there is no ImageBuild {key}; give -f FILE to plan for one") from None
        return {**given, "metadata": {**given["metadata"], "uid": "", "generation": 1}}
    if given is None:
        return stored
    metadata = {**stored["metadata"], "generation": stored["metadata"].get("generation", 0) + 1}
    return {**stored, "metadata": metadata, "spec": given["spec"]}


async def _listed(client: Client, resource: Resource, namespace: str = "", *, label_selector: str = "") -> Objects:
    found = await client.list(resource, namespace=namespace, label_selector=label_selector, type=Unstructured)
    kind = {"kind": resource.kind, "apiVersion": resource.api_version}
    return [{**each.document, **kind} for each in found.items]


async def _got(client: Client, resource: Resource, wanted: Iterable[str], namespace: str = "") -> Objects:
    """Those of these objects that exist."""
    found: Objects = []
    for name in sorted(wanted):
        try:
            document: dict[str, Any] = await client.get(resource, name, namespace=namespace)
        except NotFound:
            continue
        except Forbidden as error:
            raise CouldNotComplete(f"build plan: the plan depends on it, but {error}") from None
        found.append({**document, "kind": resource.kind, "apiVersion": resource.api_version})
    return found


async def _runtime_classes(client: Client, spec: ImageBuildSpec) -> Objects:
    """Those that the build names. Whoever may not read one is told the plan for a handler of the same name."""
    wanted = {each.runtime_class_name for each in spec.scheduling.per_architecture or ()} - {""}
    found: Objects = []
    for name in sorted(wanted):
        handler = await NamedObjects(client).runtime_handler(name)
        if handler is not None:
            kind = {"apiVersion": RUNTIME_CLASSES.api_version, "kind": RUNTIME_CLASSES.kind}
            found.append({**kind, "metadata": {"name": name}, "handler": handler})
    return found


async def _settings(client: Client) -> dict[str, Any]:
    """Those of the builder that runs in this cluster; the usual ones if there is none."""
    found = await client.list(DEPLOYMENTS, field_selector=f"metadata.name={names.ROLE}", type=Unstructured)
    settings: dict[str, Any] = {}
    for deployment in found.items:
        containers = deployment.document["spec"]["template"]["spec"].get("containers") or ()
        for argument in (word for each in containers for word in each.get("args") or ()):
            flag, _, value = argument.partition("=")
            if (name := _FLAGS.get(flag)) is None:
                continue
            if name == "archTaintKeys":
                settings.setdefault(name, []).append(value)
            else:
                settings[name] = int(value) if name == "maxActiveJobs" else value or True
    return settings


async def _hmac(client: Client) -> dict[str, str]:
    """The key under which the builder hashes Secrets, if whoever asks may read it."""
    found = await client.list(DEPLOYMENTS, field_selector=f"metadata.name={names.ROLE}", type=Unstructured)
    for deployment in found.items:
        try:
            secret: dict[str, Any] = await client.get(
                SECRETS, names.HMAC_SECRET, namespace=deployment.metadata.namespace
            )
        except (NotFound, Forbidden):
            continue
        for value in (secret.get("data") or {}).values():
            return {"hmacKey": msgspec.json.decode(f'"{value}"'.encode(), type=bytes).hex()}
    return {}


def _place(document: Mapping[str, Any]) -> ObjectKey:
    metadata = document.get("metadata") or {}
    return ObjectKey(metadata.get("namespace", ""), metadata.get("name", ""))


# -- facts of MachineOSConfigs


def machine_cases(known: FactsFile) -> Iterator[tuple[MachineOSConfigFacts, BuildFacts]]:
    """Every MachineOSConfig of the file, by name, before any question is answered."""
    pools = _of_kind(known, api.POOLS)
    selectors = [pool_of(each) for each in pools.values()]
    jobs = known.jobs()
    for _, config in sorted(_of_kind(known, api.CONFIGS).items()):
        case = _case(known, config, pools)
        facts = machine_facts(
            case,
            pool_nodes(case.pool_name, selectors, known.nodes),
            known.nodes,
            jobs=[each for each in jobs if each.namespace == case.namespace],
            settings=known.settings,
            now=known.now,
            places=known.places(case.namespace),
        )
        yield case, facts


def _case(known: FactsFile, config: Document, pools: Mapping[str, Document]) -> MachineOSConfigFacts:
    case = MachineOSConfigFacts(namespace=api.NAMESPACE, document=config)
    case = msgspec.structs.replace(case, pool=pools.get(case.pool_name))
    return msgspec.structs.replace(
        case,
        rendered=_of_kind(known, api.RENDERED).get(case.rendered_name),
        trust=_trust(known),
        builds=controlled_by(_of_kind(known, api.BUILDS).values(), uid_of(config)),
        records=tuple(_records(known, case.name)),
    )


def _trust(known: FactsFile) -> str:
    found = _of_kind(known, api.CONTROLLER_CONFIGS).get(api.CONTROLLER_CONFIG) or {}
    return trust_bundle(str((found.get("spec") or {}).get("additionalTrustBundle") or "")) or ""


def _records(known: FactsFile, config: str) -> Iterator[ExecutionConfigMap]:
    for found in known.documents:
        metadata: Mapping[str, Any] = found.document.get("metadata") or {}
        notes = metadata.get("annotations") or {}
        if found.kind != "ConfigMap" or notes.get(api.CONFIG_LABEL) != config:
            continue
        data: Mapping[str, str] = found.document.get("data") or {}
        yield ExecutionConfigMap(
            name=name_of(found.document),
            build=notes.get(names.RUN_LABEL) or (metadata.get("labels") or {}).get(names.RUN_LABEL, ""),
            owners=frozenset(str(each.get("uid")) for each in metadata.get("ownerReferences") or ()),
            architectures=data.get(names.ARCHITECTURES_FILE, ""),
            execution=data.get(EXECUTION_FILE, ""),
        )


def _of_kind(known: FactsFile, kind: Resource) -> dict[str, Document]:
    return {
        name_of(each.document): each.document
        for each in known.documents
        if each.kind == kind.kind and each.document.get("apiVersion", kind.api_version) == kind.api_version
    }


# -- facts files


OPTION: Final = "--facts"
_TIME: Final = "tag:yaml.org,2002:timestamp"


class _TextTimes(StrictLoader):
    """Leaves times as they are written."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIME]
        for first, resolvers in StrictLoader.yaml_implicit_resolvers.items()
    }


def load_facts_file(path: str) -> FactsFile:
    """The facts of the file, ``-`` for standard input; ``UsageError`` with file, line, member and reason."""
    shown = "standard input" if path == "-" else path
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError(
            f"{OPTION} {path}: {error.strerror}; give a YAML or JSON file with now, objects, registry and settings"
        ) from None
    data, node = _quickly(content), None
    if data is None:
        data, node = _with_places(content, shown)
    try:
        return FactsFile(data)
    except InvalidFacts as error:
        if node is None:
            _, node = _with_places(content, shown)
        raise UsageError(f"{shown}:{_line(node, error.path)}: {error}") from None


def _quickly(content: bytes) -> Any:
    """The content if it is JSON."""
    if not content.lstrip().startswith(b"{"):
        return None
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return None


def _with_places(content: bytes, shown: str) -> tuple[Any, yaml.Node | None]:
    """The content, and the nodes that know where it stands."""
    try:
        loader = _TextTimes(content)
        node = loader.get_single_node()
        return (loader.construct_document(node) if node is not None else None), node
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{shown}:{mark.line + 1}:{mark.column + 1}" if mark is not None else shown
        raise UsageError(f"{place}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{shown}: not YAML ({' '.join(str(error).split())})") from None


def _line(node: yaml.Node | None, path: MemberPath) -> int:
    """The line of the deepest member on the path that the file has: of its key, if it has one."""
    line = int(node.start_mark.line) if node is not None else 0
    for step in path:
        match node:
            case yaml.MappingNode():
                found = next(((key, value) for key, value in node.value if key.value == step), None)
                if found is None:
                    break
                key, node = found
                line = int(key.start_mark.line)
            case yaml.SequenceNode() if isinstance(step, int) and step < len(node.value):
                node = node.value[step]
                line = int(node.start_mark.line)
            case _:
                break
    return line + 1
