"""What differs between ImageBuilds and MachineOSConfigs for the builder: where facts come from, and how plans are made.

A front-end reads its caches and never asks anybody: what is missing there the plan asks for. It decides nothing."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from polyarch.builds.facts.build_facts import BuildFacts, RequestKind
from polyarch.builds.plan.document import BuildPlan, Write
from polyarch.kube.events import Regarding
from polyarch.kube.resources import Resource
from polyarch.kube.store import OwnWrites, Store
from polyarch.objects import Key


class BuildRef(NamedTuple):
    """One build, of either kind: what a queue holds."""

    kind: RequestKind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


class WrittenCache(NamedTuple):
    """The cache of a kind that plans write: its objects, and the own writes that it has not seen yet."""

    resource: Resource
    store: Store[Any]
    writes: OwnWrites[Any]


class FrontEnd(Protocol):
    """One kind of build. All methods read caches only, and return at once."""

    @property
    def kind(self) -> RequestKind: ...

    @property
    def resources(self) -> Mapping[str, Resource]:
        """Every kind that plans of this front-end write, by its name."""
        ...

    @property
    def caches(self) -> Mapping[str, WrittenCache]:
        """Those of these kinds that are watched."""
        ...

    def facts(self, key: BuildRef) -> BuildFacts | None:
        """The facts as the caches show them, without answers; None if the build is gone or going."""
        ...

    def plan(self, facts: BuildFacts) -> BuildPlan: ...

    def credentials(self, facts: BuildFacts) -> tuple[str, ...]:
        """Names of the Secrets with which registries are asked, in the build's namespace, the push secret first."""
        ...

    def regarding(self, facts: BuildFacts) -> Regarding:
        """What Events are about."""
        ...

    def status_written(self, write: Write, stored: Mapping[str, Any]) -> None:
        """A status was written over the one that was ``stored``: for who counts what has ended."""
        ...

    def known(self) -> list[BuildRef]:
        """Every build in the cache."""
        ...

    def subscribe(self, enqueue: Callable[[BuildRef], None]) -> None:
        """Calls ``enqueue`` with every build that something has changed for."""
        ...
