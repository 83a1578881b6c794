"""The components of polyarch that can be installed: what each needs besides the operator (IN-001).

A new component is a row of :data:`COMPONENTS`. Pure.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from polyarch.builds import names as build_names
from polyarch.builds.api import crds as build_definitions
from polyarch.installation.settings import BUILDS, NUMA, InstallationSettings
from polyarch.kube.resources import Resource
from polyarch.numa import names as numa_names
from polyarch.numa.api import crds as numa_definitions
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.placement import names
from polyarch.placement.api import crds as placement_definitions
from polyarch.placement.api.resources import CPPCS, POLICIES, PPCS
from polyarch.taints import crd as taint_definitions
from polyarch.taints.api import ARCHITECTURE_TAINTS

Document = dict[str, Any]

PLANNED: Final = ("monitor", "report")
"""Names of components that this version does not have."""


class Component(NamedTuple):
    """One component."""

    name: str
    meaning: str
    definitions: Callable[[], Iterable[Document]]
    """Its CustomResourceDefinitions."""
    switches: tuple[Resource, ...]
    """Its custom resources in the order in which an uninstall deletes them."""
    configuration: Callable[[InstallationSettings], list[Document]]
    """The custom resources that turn it on."""
    defined_always: bool = True
    """Whether the definitions are there although it is not chosen: whoever creates a custom resource turns it on."""


class UnknownComponent(ValueError):  # noqa: N818 - what is the case
    """There is no such component, at least in this version."""

    def __init__(self, name: str) -> None:
        known = ", ".join(COMPONENTS)
        problem = "is not part of this version" if name in PLANNED else "does not exist"
        super().__init__(f"component {name!r} {problem}; components of this version: {known}")


def component(name: str) -> Component:
    """Raises :class:`UnknownComponent`."""
    try:
        return COMPONENTS[name]
    except KeyError:
        raise UnknownComponent(name) from None


def cluster_configuration(spec: Document | None = None) -> Document:
    """The ClusterPodPlacementConfig that turns placement on; all defaults unless ``spec`` says more."""
    return _singleton(CPPCS, spec or {})


def _placement(settings: InstallationSettings) -> list[Document]:
    values = settings.placement
    # The policy first: placement starts with the mode and the exclusions that it sets.
    made = [] if values.policy is None else [_singleton(POLICIES, values.policy)]
    return made if values.configuration is None else [*made, cluster_configuration(values.configuration)]


def _taints(settings: InstallationSettings) -> list[Document]:
    spec = settings.taints.configuration
    return [] if spec is None else [_singleton(ARCHITECTURE_TAINTS, spec)]


def _builds(_: InstallationSettings) -> list[Document]:
    return []  # the operator's flag turns the builder on; what is built is for users to say


def _numa(settings: InstallationSettings) -> list[Document]:
    # The exporters first: their objects are what the scheduler reads.
    values = settings.numa
    wanted = (
        (OPERATORS, numa_names.OPERATOR_SINGLETON, values.configuration),
        (SCHEDULERS, numa_names.SCHEDULER_SINGLETON, values.scheduler),
    )
    return [_singleton(resource, spec, name) for resource, name, spec in wanted if spec is not None]


def _singleton(resource: Resource, spec: Document, name: str = names.SINGLETON) -> Document:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


COMPONENTS: Final = {
    each.name: each
    for each in (
        Component(
            "placement",
            "constrains every pod to the architectures that all of its images support",
            placement_definitions.crds,
            # PodPlacementConfigs first, because the deletion of the ClusterPodPlacementConfig waits for them (PL-011).
            # The policy last, so that what it says holds until placement is off.
            (PPCS, CPPCS, POLICIES),
            _placement,
        ),
        Component(
            "taints",
            "taints nodes with their architecture, and gives pods the tolerations that their images justify",
            taint_definitions.crds,
            (ARCHITECTURE_TAINTS,),
            _taints,
        ),
        Component(
            BUILDS,
            "builds images natively for every architecture, and joins them in one index",
            build_definitions.crds,
            # An ImageBuild takes its runs along; what is left of them is deleted after it.
            (build_names.IMAGE_BUILDS, build_names.IMAGE_BUILD_RUNS),
            _builds,
            # Who has no use for it gives the operator no rights for it.
            defined_always=False,
        ),
        Component(
            NUMA,
            "publishes the NUMA zones of nodes, for schedulers that place pods by them",
            numa_definitions.crds,
            # The scheduler first: it reads what the exporters publish.
            (SCHEDULERS, OPERATORS),
            _numa,
            # Another operator may have definitions of these names; and without it ours has no rights for them.
            defined_always=False,
        ),
    )
}
