"""The work of ``polyarch build plan``: what would be built, and why (BD-003, BD-302). Reads only.

From a facts file nothing is asked anywhere. From a cluster the same facts are read that the builder would read, and
registries are asked with the credentials of whoever runs the command.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec

from polyarch.builds.facts.build_facts import BuildFacts, BuildLookup, own_executions
from polyarch.builds.facts.offline import FactsFile
from polyarch.builds.machineos.plan import plan_machine_os as machine_plan
from polyarch.builds.plan.document import BuildPlan
from polyarch.builds.plan.planner import plan_build
from polyarch.builds.registry import head_image
from polyarch.cli.build import composition
from polyarch.cli.build.forecast.cluster_facts import read_cluster
from polyarch.cli.build.forecast.machine_facts import machine_cases
from polyarch.cli.build.forecast.plan_output import Former, Shown, former, rendered
from polyarch.cli.build.options import WhereFlags
from polyarch.cli.build.submission import usual_namespace
from polyarch.cli.errors import UsageError
from polyarch.cli.input.facts_file import load_facts_file
from polyarch.cli.installation.cluster import Access, on_cluster
from polyarch.cli.options.outputs import Output, emit
from polyarch.cli.options.registries import RegistryOptions
from polyarch.cli.output.messages import Messages
from polyarch.kube.client import Client
from polyarch.objects import Key
from polyarch.oci.concurrent import map_concurrently
from polyarch.oci.inspect import Inspector
from polyarch.oci.opening import Wiring, open_inspector
from polyarch.oci.settings import InspectorSettings

WORK: Final = frozenset({"Retag", "Repoint", "Reassemble", "Build", "Held", "Wait"})
"""Decisions with something left to do."""
AT_ONCE: Final = 8


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The command line of ``plan`` without the options that it shares."""

    name: str | None = None
    file: str | None = None
    facts: str | None = None
    keys: bool = False
    jobs: bool = False
    check: bool = False


def run_plan(
    asked: Asked, where: WhereFlags, registries: RegistryOptions, chosen: Sequence[Output], *, messages: Messages
) -> int:
    """Returns the exit code: 2 for a build that is wrong, with ``--check`` 1 if there is something to do."""
    files = composition.read_builds(asked.file) if asked.file is not None else []
    composition.check(files)
    if asked.facts is not None:
        if files:
            raise UsageError("build plan: a facts file holds its ImageBuilds itself; remove -f, or --facts")
        shown = _offline(asked, asked.facts, where)
    else:
        if asked.name is None and not files:
            raise UsageError("build plan: give NAME, -f FILE with ImageBuilds, or --facts FILE")
        namespace = usual_namespace(where)
        placed = [composition.placed(each, where.namespace, namespace) for each in files]
        given = {_key(each): each for each in placed if asked.name in (None, each["metadata"]["name"])}
        if files and not given:
            raise UsageError(f"{asked.file}: no ImageBuild named {asked.name}")
        wanted: Mapping[Key, Mapping[str, Any] | None] = given or {Key(namespace, str(asked.name)): None}

        async def work(client: Client) -> list[Shown]:
            return await _live(client, wanted, registries, messages)

        shown = asyncio.run(on_cluster("build plan", Access(where.kubeconfig, where.kube_context), work))
    emit(chosen, lambda form, colour: rendered(shown, form, keys=asked.keys, jobs=asked.jobs, colour=colour))
    return max((_code(each.plan, check=asked.check) for each in shown), default=0)


def _code(made: BuildPlan, *, check: bool) -> int:
    if made.decision == "Invalid":
        return 2
    return 1 if check and made.decision in WORK else 0


def _key(manifest: Mapping[str, Any]) -> Key:
    return Key(manifest["metadata"]["namespace"], manifest["metadata"]["name"])


def _offline(asked: Asked, path: str, where: WhereFlags) -> list[Shown]:
    """The plans of a facts file: of the build that is named, else of all."""
    known = load_facts_file(path)
    machines = [
        (case, facts)
        for case, facts in machine_cases(known)
        if asked.name in (None, case.name) and where.namespace in (None, case.namespace)
    ]
    wishes = [
        each for each in known.wishes if asked.name in (None, each.name) and where.namespace in (None, each.namespace)
    ]
    if not wishes and not machines:
        named = f" named {asked.name}" if asked.name else ""
        there = ", ".join(f"{each.namespace}/{each.name}" for each in known.wishes) or "none at all"
        raise UsageError(f"--facts {path}: no ImageBuild{named}; the file has {there}")
    found = []
    for wish in wishes:
        facts = known.facts(wish)
        found.append(Shown(wish.namespace, wish.name, known.planned(facts, plan_build), _former(known, facts)))
    for case, facts in machines:
        made = known.planned(facts, partial(machine_plan, case=case))
        found.append(Shown(case.namespace, case.name, made, _former(known, facts)))
    return found


def _former(known: FactsFile, facts: BuildFacts) -> list[Former]:
    newest = sorted(own_executions(facts), key=lambda each: (each.created, each.serial, each.name), reverse=True)
    maps = [each.document for each in known.documents if each.kind == "ConfigMap"]
    return former([each.name for each in newest], maps, facts.wish.namespace)


async def _live(
    client: Client, wanted: Mapping[Key, Mapping[str, Any] | None], registries: RegistryOptions, messages: Messages
) -> list[Shown]:
    wiring = Wiring(
        settings=InspectorSettings(timeout=registries.timeout, max_wait=registries.max_wait),
        configuration=registries.configuration(),
        trust=registries.trust(),
    )
    found = []
    async with open_inspector(wiring, credentials=registries.credentials(), notice=messages.remark) as inspector:
        for key, given in wanted.items():
            known = await read_cluster(client, key, given, datetime.now(UTC))
            (wish,) = (each for each in known.wishes if (each.namespace, each.name) == key)
            facts = known.facts(wish)
            found.append(Shown(key.namespace, key.name, await _planned(facts, known, inspector), _former(known, facts)))
    return found


async def _planned(facts: BuildFacts, known: FactsFile, inspector: Inspector) -> BuildPlan:
    """The plan once it has no more questions; registries are asked, objects were read before."""
    made, asked = plan_build(facts), set[BuildLookup]()
    while not asked.issuperset(made.questions):
        asked.update(made.questions)
        facts = await _answered(facts, made.questions, known, inspector)
        made = plan_build(facts)
    return made


async def _answered(
    facts: BuildFacts, questions: Sequence[BuildLookup], known: FactsFile, inspector: Inspector
) -> BuildFacts:
    facts = known.answer(facts, [each for each in questions if each.what not in ("inspect", "head")])
    inspected = [each for each in questions if each.what == "inspect"]
    heads = [each for each in questions if each.what == "head"]

    async def inspect(question: BuildLookup) -> Any:
        return await inspector.inspect(question.reference, fresh=question.revalidate)

    async def ask(question: BuildLookup) -> Any:
        return await head_image(inspector.connection, question.reference)

    images = await map_concurrently(inspect, inspected, at_once=AT_ONCE)
    existing = await map_concurrently(ask, heads, at_once=AT_ONCE)
    return msgspec.structs.replace(
        facts,
        images={**facts.images, **dict(zip((each.reference for each in inspected), images, strict=True))},
        existing={**facts.existing, **dict(zip((each.reference for each in heads), existing, strict=True))},
        pins_fresh=facts.pins_fresh or any(each.revalidate for each in inspected),
    )
