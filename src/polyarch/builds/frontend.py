"""What differs between ImageBuilds and MachineOSConfigs for the builder: where facts come from, and how plans are made.

A front-end reads its caches and never asks anybody: what is missing there the plan asks for. It decides nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from polyarch.builds.facts.facts import Facts, Kind
from polyarch.builds.plan.document import Plan, Write
from polyarch.kube.events import Regarding
from polyarch.kube.resources import Resource
from polyarch.kube.store import OwnWrites, Store
from polyarch.objects import Key


class WishKey(NamedTuple):
    """One build, of either kind: what a queue holds."""

    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


class Cache(NamedTuple):
    """The cache of a kind that plans write: its objects, and the own writes that it has not seen yet."""

    resource: Resource
    store: Store[Any]
    writes: OwnWrites[Any]


class FrontEnd(Protocol):
    """One kind of build. All methods read caches only, and return at once."""

    @property
    def kind(self) -> Kind: ...

    @property
    def resources(self) -> Mapping[str, Resource]:
        """Every kind that plans of this front-end write, by its name."""
        ...

    @property
    def caches(self) -> Mapping[str, Cache]:
        """Those of these kinds that are watched."""
        ...

    def facts(self, key: WishKey) -> Facts | None:
        """The facts as the caches show them, without answers; None if the build is gone or going."""
        ...

    def plan(self, facts: Facts) -> Plan: ...

    def credentials(self, facts: Facts) -> tuple[str, ...]:
        """Names of the Secrets with which registries are asked, in the build's namespace, the push secret first."""
        ...

    def regarding(self, facts: Facts) -> Regarding:
        """What Events are about."""
        ...

    def status_written(self, write: Write, stored: Mapping[str, Any]) -> None:
        """A status was written over the one that was ``stored``: for who counts what has ended."""
        ...

    def known(self) -> list[WishKey]:
        """Every build in the cache."""
        ...

    def subscribe(self, enqueue: Callable[[WishKey], None]) -> None:
        """Calls ``enqueue`` with every build that something has changed for."""
        ...
