"""A MachineOSConfig as a wish of the planner (BD-262, BD-267, BD-274, BD-279, BD-285). Pure.

Fields that their API has not come from annotations; what cannot be built is said in the wish's problems, all at once.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

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
from polyarch.builds.facts.facts import Execution, Facts, JobFacts, MachineInputs, NodeFacts, Settings, Wish
from polyarch.builds.facts.history import own_executions
from polyarch.builds.facts.problem import Problem
from polyarch.builds.facts.times import seconds
from polyarch.builds.keys import handles
from polyarch.builds.machineos import annotations as asked
from polyarch.builds.machineos import push_spec, vocabulary
from polyarch.builds.machineos.annotations import Knobs
from polyarch.builds.machineos.case import Case, Document, condition, uid_of
from polyarch.builds.machineos.naming import readiness
from polyarch.builds.machineos.pools import Members
from polyarch.builds.machineos.recording import records
from polyarch.builds.names import ARCHITECTURES_ANNOTATION
from polyarch.selectors import LabelSelector

HASH_DIGITS: Final = 32
"""Of a name, after the config's and a dash."""
JOB_BUILDER: Final = "Job"
OTHER_TROUBLE: Final = ("NodeDegraded", "RenderDegraded", "PinnedImageSetsDegraded", "SynchronizerDegraded")
"""Conditions of a pool under which no build starts (BD-278)."""


def facts(
    case: Case,
    members: Members,
    nodes: tuple[NodeFacts, ...] | None,
    *,
    jobs: Iterable[JobFacts],
    settings: Settings,
    now: float,
    active_jobs: int = 0,
) -> Facts:
    """The facts about one MachineOSConfig. ``nodes``: all that there are; None: not known."""
    executions = records.executions(case)
    known = {each.architecture for each in nodes or ()} - {""}
    unsupported = sorted(known - set(vocabulary.SUPPORTED))
    found = Facts(
        now=now,
        wish=wish(case, members, executions, unsupported=unsupported),
        nodes=nodes,
        members=frozenset(each.name for each in members.nodes),
        executions=executions,
        jobs=tuple(jobs),
        active_jobs=active_jobs,
        settings=settings,
    )
    rebuild = _rebuild(case, found)
    spec = msgspec.structs.replace(found.wish.spec, rebuild=rebuild)
    return msgspec.structs.replace(found, wish=msgspec.structs.replace(found.wish, spec=spec))


def wish(case: Case, members: Members, executions: Iterable[Execution], *, unsupported: Iterable[str] = ()) -> Wish:
    """What the config asks for; a rebuild is told apart by who knows the executions."""
    knobs = asked.knobs(case.name, case.annotations)
    metadata: Document = case.config.get("metadata") or {}
    status: Mapping[str, Any] = case.config.get("status") or {}
    excluded = sorted(set(unsupported))
    return Wish(
        kind="MachineOSConfig",
        namespace=case.namespace,
        name=case.name,
        uid=uid_of(case.config),
        generation=int(metadata.get("generation") or 0),
        created=seconds(metadata.get("creationTimestamp")) or 0.0,
        spec=_spec(case, knobs, has_members=bool(members.nodes), excluded=excluded),
        machine=_machine(case),
        pins=records.pins(case),
        current=str((status.get("machineOSBuild") or {}).get("name") or ""),
        status={
            "conditions": status.get("conditions") or [],
            "image": status.get("currentImagePullSpec") or "",
            "architectures": [each for each in case.annotations.get(ARCHITECTURES_ANNOTATION, "").split(",") if each],
        },
        annotations=case.annotations,
        problems=(*_problems(case), *knobs.warnings, *members.warnings, *_unsupported(case, excluded)),
    )


def trouble(case: Case) -> Problem | None:
    """What of the pool keeps a build from being started (BD-278)."""
    found = [each for each in OTHER_TROUBLE if condition(case.pool, each) == "True"]
    if not found:
        return None
    message = f"MachineConfigPool {case.pool_name} is {', '.join(found)}: a build starts once it is not."
    return Problem(reason="PoolDegraded", message=message)


def _spec(case: Case, knobs: Knobs, *, has_members: bool, excluded: list[str]) -> ImageBuildSpec:
    spec = case.spec
    return ImageBuildSpec(
        source=_source(spec.get("containerFile"), knobs),
        architectures=Architectures(
            exclude=excluded or None,
            # A pool's nodes count whatever their labels are; without any, those count that a build takes by itself.
            node_selector=LabelSelector() if has_members else None,
            on_new_architecture=knobs.on_new_architecture,
        ),
        output=Output(
            repository=push_spec.repository(str(spec.get("renderedImagePushSpec") or "")),
            push_secret=NameReference(case.push_secret) if case.push_secret else None,
            pull_secrets=[NameReference(case.pull_secret)],
            index=knobs.index,
        ),
        strategy=knobs.strategy,
        fail_fast=knobs.fail_fast,
        timeouts=Timeouts(node_wait=knobs.node_wait, build=knobs.build_timeout),
        scheduling=Scheduling(max_parallel=knobs.max_parallel),
        reproducible=Reproducible(enabled=False),
    )


def _source(entries: Any, knobs: Knobs) -> Source:
    """The entry of an architecture, else that of none, else what ``missing-containerfile`` says (BD-262)."""
    texts = {
        str(each.get("containerfileArch") or vocabulary.ANY_ARCHITECTURE): str(each.get("content") or "")
        for each in entries or ()
    }
    common = texts.pop(vocabulary.ANY_ARCHITECTURE, None)
    if common is None and (not texts or knobs.missing_containerfile == "BaseOnly"):
        common = ""
    overrides = [
        Override(architecture=vocabulary.ARCHITECTURES[name], containerfile=text)
        for name, text in sorted(texts.items())
        if name in vocabulary.ARCHITECTURES
    ]
    return Source(containerfile=common, overrides=overrides or None)


def _machine(case: Case) -> MachineInputs:
    spec: Mapping[str, Any] = (case.rendered or {}).get("spec") or {}
    kernel = str(spec.get("kernelType") or "")
    return MachineInputs(
        os_image=str(spec.get("osImageURL") or ""),
        extensions_image=str(spec.get("baseOSExtensionsContainerImage") or ""),
        kernel_type="" if kernel == "default" else kernel,
        extensions=tuple(sorted(set(spec.get("extensions") or ()))),
        kernel_arguments=tuple(spec.get("kernelArguments") or ()),
        trust=hashlib.sha256(case.trust.encode()).hexdigest() if case.trust else "",
        entitled=vocabulary.entitlements(case.pool_name),
    )


def _problems(case: Case) -> list[Problem]:
    found = [
        Problem(reason="InputMissing", message=f"{each[:1].upper()}{each[1:]}.")
        for each in readiness.missing(case.pool, case.config, case.rendered)
    ]
    if (wrong := push_spec.problem(case.name, str(case.spec.get("renderedImagePushSpec") or ""))) is not None:
        found.append(wrong)
    builder = str((case.spec.get("imageBuilder") or {}).get("imageBuilderType") or "")
    if builder != JOB_BUILDER:
        message = (
            f"MachineOSConfig {case.name}: spec.imageBuilder.imageBuilderType is {builder[:60]!r}: only {JOB_BUILDER} "
            "is supported."
        )
        found.append(Problem(reason="InvalidSpec", message=message))
    if len(case.name) + 1 + HASH_DIGITS > handles.LONGEST_TAG:
        message = (
            f"MachineOSConfig {case.name[:60]}…: names of its builds would be longer than {handles.LONGEST_TAG} "
            f"characters, and they are tags: give it a name of at most {handles.LONGEST_TAG - HASH_DIGITS - 1}."
        )
        found.append(Problem(reason="NameTooLong", message=message))
    return found


def _unsupported(case: Case, architectures: Iterable[str]) -> list[Problem]:
    return [
        Problem(
            reason="ArchitectureUnsupported",
            message=f"MachineOSConfig {case.name} cannot name {each}: its nodes get no image of this build. "
            f"Supported: {', '.join(vocabulary.SUPPORTED)}.",
            architecture=each,
            severity="Warning",
        )
        for each in architectures
    ]


def _rebuild(case: Case, found: Facts) -> Rebuild:
    """The rebuild that is asked for, or that the newest build was made for: the same until another is asked for.

    Their annotation may say the same twice, so a token has a number: how many builds of this config that are kept were
    made for the same text before.
    """
    own = own_executions(found)
    asking = asked.rebuild(case.annotations)
    newest = own[-1] if own else None
    honoured = newest.forced if newest is not None else None
    if newest is not None and honoured is not None:
        build = case.build(newest.name)
        record = records.read(case.record(build)) if build is not None else records.ExecutionRecord()
        if asking is None or record.rebuild == "Asked":
            return Rebuild(honoured.token, list(honoured.architectures or ()) or None)
    if asking is None:
        return Rebuild()
    text = ",".join(asking.architectures) or "all"
    taken = {each.forced.token for each in own if each.forced is not None}
    number = next(each for each in range(1, len(taken) + 2) if f"{text}#{each}" not in taken)
    return Rebuild(f"{text}#{number}", list(asking.architectures) or None)
