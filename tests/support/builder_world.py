"""A builder's reconciler against an API server and a registry in memory."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from fake_api import FakeApi
from manual_clock import ManualClock

from polyarch.builds import names
from polyarch.builds.api.resources import ImageBuildSpec
from polyarch.builds.controller.informers import BuildRef, WrittenCache
from polyarch.builds.controller.reconciler import BuildReconciler, RepositoryLocks
from polyarch.builds.controller.resolver import BuildResolver, NamedObjects
from polyarch.builds.controller.writes import BuildExpectations, ObjectWrites, WriteResult
from polyarch.builds.facts.build_facts import BuildFacts, BuildRequest, Execution, HeadResult, SecretFacts, WriteFailure
from polyarch.builds.metrics import BuildMetrics
from polyarch.builds.plan.document import BuildPlan, Write
from polyarch.kube.errors import Forbidden
from polyarch.kube.events import Regarding
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import CONFIGMAPS, JOBS, Resource
from polyarch.objects import ObjectMeta
from polyarch.oci.auth.credential_stores import NoCredentials
from polyarch.oci.inspection import Inspection, Status
from polyarch.oci.reference import parse

REF = BuildRef("ImageBuild", "team", "web")
KINDS: dict[str, Resource] = {
    each.kind: each for each in (names.IMAGE_BUILDS, names.IMAGE_BUILD_RUNS, JOBS, CONFIGMAPS)
}


class Cached(msgspec.Struct, frozen=True, rename="camel"):
    """An object of any of these kinds as a cache has it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None
    data: dict[str, str] | None = None


class FakeRegistry:
    """Knows every image; counts what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.forbidden = False

    async def inspect(self, reference: str, **options: Any) -> Inspection:
        self._check()
        self.asked.append(("fresh inspect" if options["fresh"] else "inspect", reference))
        return Inspection(parse(reference), Status.RESOLVED)

    def _check(self) -> None:
        if self.forbidden:
            raise Forbidden(403, reason="Forbidden")

    async def head(self, reference: str, **options: Any) -> HeadResult:
        self._check()
        self.asked.append(("head", reference))
        if "broken" in reference:
            return HeadResult(error="timeout")
        return HeadResult(digest="sha256:" + "a" * 64)


class FakeInputs:
    def __init__(self) -> None:
        self.again: float | None = None
        self.forgotten: list[BuildRef] = []
        self.forbidden = False

    async def fill(self, ref: BuildRef, facts: BuildFacts) -> BuildFacts:
        return facts

    def credentials(self, namespace: str, names: tuple[str, ...]) -> NoCredentials:
        return NoCredentials()

    def forget(self, ref: BuildRef) -> None:
        self.forgotten.append(ref)

    def again_in(self, facts: BuildFacts) -> float | None:
        return self.again

    async def config_map(self, ref: BuildRef, name: str) -> Mapping[str, Any] | None:
        return {"data": {"Containerfile": "FROM scratch"}}

    async def secret(self, ref: BuildRef, name: str) -> SecretFacts | None:
        if self.forbidden:
            raise Forbidden(403, reason="Forbidden")
        return None


class FakeRegistryWrites:
    def __init__(self) -> None:
        self.done: list[Write] = []
        self.answer: WriteResult | WriteFailure = WriteResult.DONE

    async def carry_out(self, ref: BuildRef, write: Write, credentials: object) -> WriteResult | WriteFailure:
        self.done.append(write)
        return self.answer


class BuilderWorld:
    """One front-end whose plans the test makes; everything below is real but the API server and the registry.

    Caches show what is there when the test says so: ``show``.
    """

    kind = "ImageBuild"
    resources = KINDS

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.api = FakeApi(self.clock)
        self.api.holds_back = True
        self.informers = {kind: self.api.informer(resource, Cached) for kind, resource in KINDS.items()}
        self.caches = {
            kind: WrittenCache(KINDS[kind], known.store, known.writes) for kind, known in self.informers.items()
        }
        self.expectations: BuildExpectations[BuildRef] = BuildExpectations(self.clock)
        self.registry = FakeRegistry()
        self.inputs = FakeInputs()
        self.registry_writes = FakeRegistryWrites()
        self.metrics = Metrics()
        self.events: list[tuple[str, str]] = []
        self.about: list[Regarding] = []
        self.plans: Callable[[BuildFacts], BuildPlan] = lambda facts: planned()
        self.seen: list[BuildFacts] = []
        self.there = True
        self.executions: tuple[Execution, ...] = ()
        self.leads = True
        self.led = math.inf
        """Seconds for which this process has led."""
        self.locks = RepositoryLocks()
        self.looked_up = 0
        self.stored: Any = None
        self.writes = ObjectWrites(self.api, self, self.expectations, self.clock)
        self.passes = self.made()

    def made(self) -> BuildReconciler:
        return BuildReconciler(
            self,
            resolver=BuildResolver(self.registry, self.inputs, self.clock, named=NamedObjects(self.api)),
            inputs=self.inputs,
            objects=self.writes,
            registries=self.registry_writes,
            expectations=self.expectations,
            recorder=self,
            metrics=BuildMetrics(self.metrics),
            clock=self.clock,
            locks=self.locks,
            is_leading=lambda: self.leads,
            leading_for=lambda: self.led,
        )

    def show(self, *kinds: str) -> None:
        """The caches of these kinds, or of all, catch up with the API server."""
        self.api.catch_up(*(KINDS[kind] for kind in kinds))

    async def do(self, write: Write) -> WriteResult | WriteFailure:
        return await self.writes.carry_out(REF, write)

    async def look(self) -> Any:
        return await self.passes.reconcile(REF)

    # as a front-end

    def facts(self, key: BuildRef) -> BuildFacts | None:
        self.looked_up += 1
        ref = BuildRequest(
            kind="ImageBuild", namespace="team", name="web", uid="u", generation=1, spec=ImageBuildSpec()
        )
        return BuildFacts(now=0.0, request=ref, executions=self.executions) if self.there else None

    def plan(self, facts: BuildFacts) -> BuildPlan:
        self.seen.append(facts)
        return self.plans(facts)

    def credentials(self, facts: BuildFacts) -> tuple[str, ...]:
        return ()

    def regarding(self, facts: BuildFacts) -> Regarding:
        return Regarding("polyarch.dev/v1alpha1", "ImageBuild", "team", "web", "u")

    def status_written(self, write: Write, stored: Any) -> None:
        self.stored = stored

    # as a recorder

    def event(self, regarding: Regarding, *, type: str, reason: str, note: str, action: str) -> None:
        self.events.append((reason, note))
        self.about.append(regarding)


def planned(*writes: Write, **more: Any) -> BuildPlan:
    return BuildPlan(**{"decision": "UpToDate", "reason": "Test", "message": "", "writes": tuple(writes), **more})
