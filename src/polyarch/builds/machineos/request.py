"""A MachineOSConfig as a build request: its pool, push spec, annotations, and what is wrong with them. Pure.

Options that their API lacks are annotations, so that the fields that names are made of stay as they are. A wrong
value is a Warning and the default: an annotation never keeps an operating system from being built.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from polyarch.builds.api.formats import TIMEOUT
from polyarch.builds.api.resources import (
    Architectures,
    ImageBuildSpec,
    NameReference,
    Output,
    Override,
    Rebuild,
    Reproducible,
    Scheduling,
    Source,
    Timeouts,
)
from polyarch.builds.facts.build_facts import (
    BuildFacts,
    BuildRequest,
    Execution,
    JobFacts,
    MachineOSInputs,
    NodeFacts,
    PlanSettings,
    Problem,
    own_executions,
    seconds,
)
from polyarch.builds.machineos import api
from polyarch.builds.machineos.api import Document, MachineOSConfigFacts, stored_condition, uid_of
from polyarch.builds.machineos.records import ExecutionRecord, read_record, recorded_executions, recorded_pins
from polyarch.builds.names import ARCHITECTURES_ANNOTATION, MAX_TAG
from polyarch.builds.places import NO_OTHERS, JobPlaces
from polyarch.durations import is_within
from polyarch.oci import reference
from polyarch.platforms import is_architecture, normal_architecture
from polyarch.selectors import InvalidSelector, LabelSelector, Selector


class AnnotationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The values, or the defaults."""

    strategy: str = "Native"
    fail_fast: bool = False
    missing_containerfile: str = "Error"
    on_new_architecture: str = "Build"
    index: str = "Auto"
    node_wait: str = "15m"
    build_timeout: str = "1h"
    max_parallel: int = 0
    warnings: tuple[Problem, ...] = ()


class RebuildRequest(msgspec.Struct, frozen=True):
    """A rebuild that is asked for. Without architectures: all of a good build, the failed ones of another."""

    architectures: tuple[str, ...] = ()


def annotation_options(config: str, annotations: Mapping[str, str]) -> AnnotationOptions:
    """The options of a MachineOSConfig, with a Warning for every invalid value."""
    values: dict[str, Any] = {}
    warnings: list[Problem] = []
    for annotation, (field, read, allowed) in _OPTIONS.items():
        text = annotations.get(annotation)
        if text is None:
            continue
        value = read(text)
        if value is None:
            message = (
                f"MachineOSConfig {config}: annotation {annotation} is {text[:60]!r}; allowed: {allowed}. "
                "The default is used; correct or remove it."
            )
            warnings.append(Problem(reason="AnnotationInvalid", message=message, severity="Warning"))
        else:
            values[field] = value
    return AnnotationOptions(**values, warnings=tuple(warnings))


def rebuild_request(annotations: Mapping[str, str]) -> RebuildRequest | None:
    """The rebuild that is asked for: of the architectures that are named, or of all where anything else is said."""
    text = annotations.get(api.REBUILD)
    if text is None:
        return None
    words = [each.strip() for each in text.split(",")]
    if not all(is_architecture(each) for each in words):
        return RebuildRequest()
    return RebuildRequest(tuple(sorted({normal_architecture(each) for each in words})))


def _one_of(*allowed: str) -> tuple[Callable[[str], str | None], str]:
    return lambda text: text if text in allowed else None, ", ".join(allowed)


def _duration(text: str) -> str | None:
    return text if is_within(text, TIMEOUT) else None


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


_OPTIONS: Final[Mapping[str, tuple[str, Callable[[str], Any], str]]] = {
    api.STRATEGY: ("strategy", *_one_of("Native", "PreferNative", "Emulated")),
    api.FAIL_FAST: ("fail_fast", lambda text: {"true": True, "false": False}.get(text), "true, false"),
    api.MISSING: ("missing_containerfile", *_one_of("Error", "BaseOnly")),
    api.ON_NEW: ("on_new_architecture", *_one_of("Build", "NextBuild")),
    api.INDEX: ("index", *_one_of("Auto", "Always", "Never")),
    api.NODE_WAIT: ("node_wait", _duration, "durations from 10s to 168h, such as 15m"),
    api.BUILD_TIMEOUT: ("build_timeout", _duration, "durations from 10s to 168h, such as 1h"),
    api.MAX_PARALLEL: ("max_parallel", _count, "whole numbers; 0 is no limit"),
}
"""Annotation → field, what reads it (None: not allowed), and what is allowed."""


# -- push spec ---------------------------------------------------------------------------------------------------------


_HOST: Final = r"(?:[a-zA-Z0-9-]+\.)+[a-zA-Z0-9-]+(?::[0-9]{2,5})?"
_LAST: Final = r"[a-zA-Z0-9_.-]+"
_WITH_TAG: Final = re.compile(rf"{_HOST}/(?:[a-zA-Z0-9_-]{{1,61}}/)*{_LAST}:[a-zA-Z0-9._-]+", re.ASCII)
_SERVICE: Final = re.compile(r"[^./:]+\.[^./:]+\.svc:[0-9]+/[^/]+/[^/:]+:[^/:]+", re.ASCII)
_BY_DIGEST: Final = re.compile(rf"{_HOST}/(?:[a-zA-Z0-9_-]{{1,61}}/)?{_LAST}", re.ASCII)


def push_spec_repository(push_spec: str) -> str:
    """Without the tag, which is ignored: every build has a tag of its own."""
    name, colon, tag = push_spec.rpartition(":")
    return name if colon and "/" not in tag else push_spec


def push_spec_problem(config: str, push_spec: str) -> Problem | None:
    """What keeps a result from being published under this push spec."""
    if not (_WITH_TAG.fullmatch(push_spec) or _SERVICE.fullmatch(push_spec)):
        return _problem(
            "InvalidSpec",
            config,
            push_spec,
            "it must be HOST/PATH:TAG, with a dot in the host; parts of the path have at most 61 letters, digits, "
            "'_' and '-', and the last may have dots",
        )
    try:
        reference.parse(push_spec_repository(push_spec))
    except reference.InvalidReference as error:
        cure = f"; {error.hint}" if error.hint else ""
        return _problem("InvalidSpec", config, push_spec, f"no registry takes it: {error.problem}{cure}")
    if not _BY_DIGEST.fullmatch(push_spec_repository(push_spec)):
        return _problem(
            "DigestFormUnsupported",
            config,
            push_spec,
            "the result cannot be named by digest: status.digestedImagePushSpec takes at most one part of a path "
            "before the last; push to HOST/NAME:TAG or HOST/PROJECT/NAME:TAG",
        )
    return None


def _problem(reason: str, config: str, push_spec: str, sentence: str) -> Problem:
    return Problem(
        reason=reason,
        message=f"MachineOSConfig {config}: spec.renderedImagePushSpec is {push_spec[:120]!r}: {sentence}.",
    )


# -- nodes of a pool ---------------------------------------------------------------------------------------------------


MASTER = "master"
WORKER = "worker"


class Pool(msgspec.Struct, frozen=True):
    """A MachineConfigPool, as far as membership goes. One without a selector, or with an empty one, has no nodes."""

    name: str
    selector: Selector | None = None
    invalid: str = ""
    """What is wrong with its selector: nobody knows its nodes."""


def pool_of(document: Document) -> Pool:
    """A pool as it is stored. Pools are other people's objects, and may be of a kind that admission did not judge."""
    spec = document.get("spec")
    written = spec.get("nodeSelector") if isinstance(spec, Mapping) else None
    try:
        selector = Selector.parse(written) if written is not None else None
    except InvalidSelector as error:
        return Pool(api.name_of(document), invalid=f"spec.nodeSelector.{error}" if error.field else f"{error}")
    return Pool(api.name_of(document), selector if selector is not None and selector.requirements else None)


class PoolNodes(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a pool."""

    nodes: tuple[NodeFacts, ...] = ()
    warnings: tuple[Problem, ...] = ()


def pool_nodes(pool: str, pools: Iterable[Pool], nodes: Iterable[NodeFacts]) -> PoolNodes:
    """The nodes whose primary pool it is. A node in two custom pools belongs to none, and is named."""
    known = sorted(pools, key=lambda each: each.name)
    selectors = {each.name: each.selector for each in known if each.selector is not None}
    found: list[NodeFacts] = []
    warnings = [_unreadable(each, own=each.name == pool) for each in known if each.invalid]
    for node in sorted(nodes, key=lambda each: each.name):
        matching = _matching(node.labels, selectors)
        custom = [name for name in matching if name not in (MASTER, WORKER)]
        if len(custom) > 1:
            if pool in matching:
                warnings.append(_ambiguous(node.name, custom))
        elif primary(matching) == pool:
            found.append(node)
    return PoolNodes(nodes=tuple(found), warnings=tuple(warnings))


def primary(matching: Iterable[str]) -> str:
    """The primary pool of a node, by those that match: ``master``, else the only custom one, else ``worker``."""
    names = set(matching)
    if MASTER in names:
        return MASTER
    return next(iter(names - {WORKER}), WORKER if WORKER in names else "")


def _matching(labels: Mapping[str, str], selectors: Mapping[str, Selector]) -> list[str]:
    return [name for name, selector in selectors.items() if selector.matches(labels)]


def _unreadable(pool: Pool, *, own: bool) -> Problem:
    """Builds of other pools go on without the nodes of one that nobody can tell."""
    message = f"MachineConfigPool {pool.name}: {pool.invalid}: nobody can tell its nodes"
    if own:
        return Problem(reason="InvalidSpec", message=f"{message}; correct the selector.")
    sentence = f"{message}, and they count where another pool has them; correct the selector."
    return Problem(reason="PoolInvalid", message=sentence, severity="Warning")


def _ambiguous(node: str, custom: list[str]) -> Problem:
    message = (
        f"Node {node} matches {len(custom)} custom pools ({', '.join(custom)}) and belongs to none of them; "
        "change its labels so that one is left."
    )
    return Problem(reason="NodeInSeveralPools", message=message, severity="Warning")


# -- what a name is made of --------------------------------------------------------------------------------------------


PREFIX: Final = "machineconfiguration.openshift.io/"
RELEASE_ANNOTATION: Final = f"{PREFIX}release-image-version"
CONTROLLER_ANNOTATION: Final = f"{PREFIX}generated-by-controller-version"
RENDERED: Final = "rendered-"


def missing_objects(
    pool: Mapping[str, Any] | None, config: Mapping[str, Any] | None, rendered: Mapping[str, Any] | None
) -> tuple[str, ...]:
    """Sentences that name what is missing, all at once; none when a name can be made. Objects are taken as stored."""
    wanted = str((((config or {}).get("spec") or {}).get("machineConfigPool") or {}).get("name") or "")
    found = []
    if not pool:
        named = (
            f" {wanted}, which spec.machineConfigPool.name names"
            if wanted
            else ": spec.machineConfigPool.name is empty"
        )
        found.append(f"there is no MachineConfigPool{named}; create it or correct the name")
    if not config:
        found.append("there is no MachineOSConfig")
    if pool and config and _name(pool) != wanted:
        found.append(
            f"MachineOSConfig {_name(config)} is for the pool {wanted!r}, not for {_name(pool)!r}; "
            "correct spec.machineConfigPool.name"
        )
    if not rendered:
        if pool:
            configuration = ((pool.get("spec") or {}).get("configuration") or {}).get("name")
            named = f" {configuration}, which MachineConfigPool {_name(pool)} names" if configuration else ""
            found.append(f"there is no rendered MachineConfig{named}; wait until the pool has one")
        return tuple(found)
    name = _name(rendered)
    if not name.startswith(RENDERED):
        found.append(f"MachineConfig {name} is not a rendered one: its name does not begin with {RENDERED!r}")
    annotations = (rendered.get("metadata") or {}).get("annotations") or {}
    found += [
        f"MachineConfig {name} has no annotation {each}; the machine-config controller sets it"
        for each in (RELEASE_ANNOTATION, CONTROLLER_ANNOTATION)
        if not annotations.get(each)
    ]
    return tuple(found)


def _name(stored: Mapping[str, Any]) -> str:
    return str((stored.get("metadata") or {}).get("name") or "")


# -- messages ----------------------------------------------------------------------------------------------------------


_REBUILT: Final = f"annotation {api.REBUILD} on the MachineOSConfig"
_NO_ARGUMENTS: Final = "by ARG"
WORDS: Final[Mapping[str, str]] = {
    "name another one in spec.baseImages.substitute, or leave the architecture out in spec.architectures": (
        "or move the nodes of the architecture to another pool"
    ),
    "name one that has it in spec.builder.image": "have the administrator set builds.builderImage to one that has it",
    "name one that has it in spec.builder.pushImage": (
        "have the administrator name one that has it in --push-image of the builder"
    ),
    "name a Secret that may in spec.output.pullSecrets": "name a Secret that may in spec.baseImagePullSecret.name",
    "another change of the spec or a new spec.rebuild.token": f"another change of the spec or {_REBUILT}",
    "a new spec.rebuild.token makes that now": f"{_REBUILT} makes that now",
    "a new spec.rebuild.token": _REBUILT,
    "spec.rebuild.architectures names": f"{_REBUILT} names",
    "add one to source.overrides for it, or a common one as source.containerfile": (
        "add an entry to spec.containerFile for it, or one with containerfileArch NoArch"
    ),
    "in source.buildArgs or by ARG": _NO_ARGUMENTS,
    "add one, or name architectures in spec.architectures.list": "add one to the pool",
    "linux nodes that spec.architectures.nodeSelector matches": "linux nodes of the pool",
    "spec.architectures.exclude names all that": "MachineOSConfigs can name none of what",
    "exclude fewer, or add nodes of another one": f"add nodes of {', '.join(api.SUPPORTED)}",
    ", with what include and exclude say": "",
    "spec.output.index is Never": f"annotation {api.INDEX} is Never",
    "set it to Auto, or name one in spec.architectures.list": "set it to Auto, or keep nodes of one in the pool",
    "which spec.output.repository names": "which spec.renderedImagePushSpec names",
    "spec.output.pushSecret": "spec.renderedImagePushSecret",
    "spec.output.pullSecrets": "spec.baseImagePullSecret",
    "spec.strategy": f"annotation {api.STRATEGY}",
    "spec.timeouts": f"annotation {api.NODE_WAIT} or {api.BUILD_TIMEOUT}",
    "spec.scheduling.maxParallel is": f"annotation {api.MAX_PARALLEL} is",
    "spec.architectures.onNewArchitecture: NextBuild": f"annotation {api.ON_NEW}: NextBuild",
    "ImageBuildRun ": "MachineOSBuild ",
}
"""What messages about ImageBuilds say, and what of a MachineOSConfig is meant: its API has other fields."""


# -- the build request -------------------------------------------------------------------------------------------------


HASH_DIGITS: Final = 32
"""Hex digits of a build's name, after the config's name and a dash."""
JOB_BUILDER: Final = "Job"
OTHER_BUILDER: Final = ("NodeDegraded", "RenderDegraded", "PinnedImageSetsDegraded", "SynchronizerDegraded")
"""Conditions of a pool under which no build starts."""


def machine_facts(
    config: MachineOSConfigFacts,
    members: PoolNodes,
    nodes: tuple[NodeFacts, ...] | None,
    *,
    jobs: Iterable[JobFacts],
    settings: PlanSettings,
    now: float,
    places: JobPlaces = NO_OTHERS,
) -> BuildFacts:
    """The facts about one MachineOSConfig. ``nodes``: all that there are; None: not known."""
    executions = recorded_executions(config)
    known = {each.architecture for each in nodes or ()} - {""}
    unsupported = sorted(known - set(api.SUPPORTED))
    found = BuildFacts(
        now=now,
        request=build_request(config, members, executions, unsupported=unsupported),
        nodes=nodes,
        members=frozenset(each.name for each in members.nodes),
        executions=executions,
        jobs=tuple(jobs),
        places=places,
        settings=settings,
    )
    rebuild = _rebuild(config, found)
    spec = msgspec.structs.replace(found.request.spec, rebuild=rebuild)
    return msgspec.structs.replace(found, request=msgspec.structs.replace(found.request, spec=spec))


def build_request(
    config: MachineOSConfigFacts,
    members: PoolNodes,
    executions: Iterable[Execution],
    *,
    unsupported: Iterable[str] = (),
) -> BuildRequest:
    """What the config asks for; a rebuild is told apart by who knows the executions."""
    options = annotation_options(config.name, config.annotations)
    metadata: Document = config.document.get("metadata") or {}
    status: Mapping[str, Any] = config.document.get("status") or {}
    excluded = sorted(set(unsupported))
    return BuildRequest(
        kind="MachineOSConfig",
        namespace=config.namespace,
        name=config.name,
        uid=uid_of(config.document),
        generation=int(metadata.get("generation") or 0),
        created=seconds(metadata.get("creationTimestamp")) or 0.0,
        spec=_spec(config, options, has_members=bool(members.nodes), excluded=excluded),
        machine=_machine(config),
        pins=recorded_pins(config),
        current=str((status.get("machineOSBuild") or {}).get("name") or ""),
        status={
            "conditions": status.get("conditions") or [],
            "image": status.get("currentImagePullSpec") or "",
            "architectures": [each for each in config.annotations.get(ARCHITECTURES_ANNOTATION, "").split(",") if each],
        },
        annotations=config.annotations,
        words=WORDS,
        problems=(*_problems(config), *options.warnings, *members.warnings, *_unsupported(config, excluded)),
    )


def rollout_blocker(config: MachineOSConfigFacts) -> Problem | None:
    """What of the pool keeps a build from being started."""
    found = [each for each in OTHER_BUILDER if stored_condition(config.pool, each) == "True"]
    if not found:
        return None
    message = f"MachineConfigPool {config.pool_name} is {', '.join(found)}: a build starts once it is not."
    return Problem(reason="PoolDegraded", message=message)


def _spec(
    config: MachineOSConfigFacts, options: AnnotationOptions, *, has_members: bool, excluded: list[str]
) -> ImageBuildSpec:
    spec = config.spec
    return ImageBuildSpec(
        source=_source(spec.get("containerFile"), options),
        architectures=Architectures(
            exclude=excluded or None,
            # A pool's nodes count whatever their labels are; without any, those count that a build takes by itself.
            node_selector=LabelSelector() if has_members else None,
            on_new_architecture=options.on_new_architecture,
        ),
        output=Output(
            repository=push_spec_repository(str(spec.get("renderedImagePushSpec") or "")),
            push_secret=NameReference(config.push_secret) if config.push_secret else None,
            pull_secrets=[NameReference(config.pull_secret)],
            index=options.index,
        ),
        strategy=options.strategy,
        fail_fast=options.fail_fast,
        timeouts=Timeouts(node_wait=options.node_wait, build=options.build_timeout),
        scheduling=Scheduling(max_parallel=options.max_parallel),
        reproducible=Reproducible(enabled=False),
    )


def _source(entries: Any, options: AnnotationOptions) -> Source:
    """The entry of an architecture, else that of none, else what ``missing-containerfile`` says."""
    texts = {
        str(each.get("containerfileArch") or api.ANY_ARCHITECTURE): str(each.get("content") or "")
        for each in entries or ()
    }
    common = texts.pop(api.ANY_ARCHITECTURE, None)
    if common is None and (not texts or options.missing_containerfile == "BaseOnly"):
        common = ""
    overrides = [
        Override(architecture=api.ARCHITECTURES[name], containerfile=text)
        for name, text in sorted(texts.items())
        if name in api.ARCHITECTURES
    ]
    return Source(containerfile=common, overrides=overrides or None)


def _machine(config: MachineOSConfigFacts) -> MachineOSInputs:
    spec: Mapping[str, Any] = (config.rendered or {}).get("spec") or {}
    kernel = str(spec.get("kernelType") or "")
    return MachineOSInputs(
        os_image=str(spec.get("osImageURL") or ""),
        extensions_image=str(spec.get("baseOSExtensionsContainerImage") or ""),
        kernel_type="" if kernel == "default" else kernel,
        extensions=tuple(sorted(set(spec.get("extensions") or ()))),
        kernel_arguments=tuple(spec.get("kernelArguments") or ()),
        trust=hashlib.sha256(config.trust.encode()).hexdigest() if config.trust else "",
        entitled=api.entitlements(config.pool_name),
    )


def _problems(config: MachineOSConfigFacts) -> list[Problem]:
    found = [
        Problem(reason="InputMissing", message=f"{each[:1].upper()}{each[1:]}.")
        for each in missing_objects(config.pool, config.document, config.rendered)
    ]
    if (wrong := push_spec_problem(config.name, str(config.spec.get("renderedImagePushSpec") or ""))) is not None:
        found.append(wrong)
    builder = str((config.spec.get("imageBuilder") or {}).get("imageBuilderType") or "")
    if builder != JOB_BUILDER:
        message = (
            f"MachineOSConfig {config.name}: spec.imageBuilder.imageBuilderType is {builder[:60]!r}: "
            f"only {JOB_BUILDER} is supported."
        )
        found.append(Problem(reason="InvalidSpec", message=message))
    if len(config.name) + 1 + HASH_DIGITS > MAX_TAG:
        message = (
            f"MachineOSConfig {config.name[:60]}…: names of its builds would be longer than {MAX_TAG} "
            f"characters, and they are tags: give it a name of at most {MAX_TAG - HASH_DIGITS - 1}."
        )
        found.append(Problem(reason="NameTooLong", message=message))
    return found


def _unsupported(config: MachineOSConfigFacts, architectures: Iterable[str]) -> list[Problem]:
    return [
        Problem(
            reason="ArchitectureUnsupported",
            message=f"MachineOSConfig {config.name} cannot name {each}: its nodes get no image of this build. "
            f"Supported: {', '.join(api.SUPPORTED)}.",
            architecture=each,
            severity="Warning",
        )
        for each in architectures
    ]


def _rebuild(config: MachineOSConfigFacts, found: BuildFacts) -> Rebuild:
    """The rebuild that is asked for, or that the newest build was made for: the same until another is asked for.

    Their annotation may say the same twice, so a token has a number: how many builds of this config that are kept were
    made for the same text before.
    """
    own = own_executions(found)
    asking = rebuild_request(config.annotations)
    newest = own[-1] if own else None
    honoured = newest.forced if newest is not None else None
    if newest is not None and honoured is not None:
        build = config.build(newest.name)
        record = read_record(config.record(build)) if build is not None else ExecutionRecord()
        if asking is None or record.rebuild == "Asked":
            return Rebuild(honoured.token, list(honoured.architectures or ()) or None)
    if asking is None:
        return Rebuild()
    text = ",".join(asking.architectures) or "all"
    taken = {each.forced.token for each in own if each.forced is not None}
    number = next(each for each in range(1, len(taken) + 2) if f"{text}#{each}" not in taken)
    return Rebuild(f"{text}#{number}", list(asking.architectures) or None)
