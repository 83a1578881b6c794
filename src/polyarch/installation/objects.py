"""All objects of an installation, from its settings, in the order in which they are applied.

``polyarch install``, the chart, the kustomize base, the OLM bundle and the sandbox take them from here, and a test
compares. The operator makes everything else: Deployments of the other roles, their rights, webhook configurations,
certificates (``operator/components/placement_objects.py``). Pure.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from polyarch.builds import names as build_names
from polyarch.builds.api import crd as build_definitions
from polyarch.installation import operator
from polyarch.installation.settings import BUILDS, NUMA, REGISTRIES_CONFIGMAP, InstallationSettings, recorded
from polyarch.kube.resources import DEPLOYMENTS, Resource
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.numa import names as numa_names
from polyarch.numa.api import crds as numa_definitions
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.operator import owned_objects
from polyarch.operator.components import numa_scheduler_plan, placement_objects
from polyarch.operator.components.numa_facts import takes_exporter_image
from polyarch.operator.components.numa_scheduler_plan import ImageRules
from polyarch.operator.owned_objects import service_account
from polyarch.operator.settings import ClusterCapabilities
from polyarch.placement import crd as placement_definitions
from polyarch.placement import names
from polyarch.placement.api import CPPCS, POLICIES, PPCS
from polyarch.taints import crd as taint_definitions
from polyarch.taints.api import ARCHITECTURE_TAINTS

Document = dict[str, Any]
VALUES: Final = f"{names.OWN_GROUP}/values"
"""Annotation: the values of the installation that differ from the defaults, as JSON."""


def documents(settings: InstallationSettings, *, namespace: str = DEFAULT_NAMESPACE) -> tuple[Document, ...]:
    """CustomResourceDefinitions, namespace, ServiceAccount and rights, configuration, Deployment, custom resources."""
    return (
        *definitions(settings),
        *own_namespace(settings, namespace=namespace),
        *operator_objects(settings, namespace=namespace),
        *configuration(settings),
    )


def definitions(settings: InstallationSettings) -> tuple[Document, ...]:
    """The CustomResourceDefinitions. The operator watches most kinds, chosen or not, and whoever creates one of them
    later turns that component on."""
    wanted = [each for each in COMPONENTS.values() if each.defined_always or each.name in settings.components]
    return _marked(settings, (each for component in wanted for each in component.definitions()))


def own_namespace(settings: InstallationSettings, *, namespace: str = DEFAULT_NAMESPACE) -> tuple[Document, ...]:
    """The namespace; Helm and OLM have made it already."""
    privileged = settings.has_numa or settings.operator_settings(namespace).mounts_plugins_of_nodes
    return _marked(settings, [placement_objects.namespace_document(namespace, privileged=privileged)])


def operator_objects(settings: InstallationSettings, *, namespace: str = DEFAULT_NAMESPACE) -> tuple[Document, ...]:
    """Everything of the operator, without the namespace."""
    cluster = ClusterCapabilities(openshift=bool(settings.openshift))
    own = settings.operator_settings(namespace)
    made = [
        service_account(operator.OPERATOR, namespace),
        *operator.rights(own, cluster),
        *_registries(settings, namespace),
    ]
    return _marked(settings, [*made, *operator.workload_objects(settings, own, cluster)])


def configuration(settings: InstallationSettings) -> tuple[Document, ...]:
    """The custom resources that turn the chosen components on."""
    return _marked(settings, (each for component in chosen(settings) for each in component.configuration(settings)))


def remembering(made: Iterable[Document], settings: InstallationSettings) -> tuple[Document, ...]:
    """The documents, with the values on the operator's Deployment, from which an upgrade reads them."""
    marked = []
    for each in made:
        if (each["kind"], each["metadata"]["name"]) == (DEPLOYMENTS.kind, operator.OPERATOR):
            annotations = {**each["metadata"].get("annotations", {}), VALUES: recorded(settings)}
            each = {**each, "metadata": {**each["metadata"], "annotations": annotations}}
        marked.append(each)
    return tuple(marked)


# -- images ------------------------------------------------------------------------------------------------------------


class InstallationImage(NamedTuple):
    """An image that pods of an installation run."""

    name: str
    reference: str
    """As the pod names it."""
    value: str
    """The value of the installation that says it."""


def images(settings: InstallationSettings, *, version: str = "") -> tuple[InstallationImage, ...]:
    """The images that nodes pull for an installation. What users name, as in an ImageBuild, is not among them.

    ``version``: the API server's ``gitVersion``, see :func:`needs_version`; empty: the stock kube-scheduler is left
    out. This is the only list: mirrors, checks and the bundle take it from here.
    """
    variables, own = settings.operator.environment, settings.image.reference
    found = [InstallationImage("polyarch", own, "image")]
    if plugins := settings.registries.credential_providers.image:
        found.append(InstallationImage("credential-providers", plugins, "registries.credentialProviders.image"))
    if BUILDS in settings.components:
        pushing = _variable(variables, "POLYARCH_PUSH_IMAGE")
        building = _variable(variables, "POLYARCH_BUILDER_IMAGE") or settings.builds.builder_image
        found.append(InstallationImage("buildah", building, "builds.builderImage"))
        if pushing and pushing != own:
            found.append(InstallationImage("push", pushing, "operator.environment.POLYARCH_PUSH_IMAGE"))
    exporting = (settings.numa.configuration or {}).get("imageSpec")
    if NUMA in settings.components and exporting and takes_exporter_image(variables):
        found.append(InstallationImage("numa-exporter", str(exporting), "numa.configuration.imageSpec"))
    if _has_scheduler(settings) and (version or not needs_version(settings)):
        scheduling = numa_scheduler_plan.chosen(_scheduler_image(settings), ImageRules.of(variables), version=version)
        found.append(InstallationImage("kube-scheduler", scheduling.image, "numa.scheduler.imageSpec"))
    return tuple(found)


def needs_version(settings: InstallationSettings) -> bool:
    """Whether an image depends on the version of the cluster: the kube-scheduler's, unless the values say another."""
    rules = ImageRules.of(settings.operator.environment)
    return _has_scheduler(settings) and not (_scheduler_image(settings) or rules.override)


def _has_scheduler(settings: InstallationSettings) -> bool:
    return NUMA in settings.components and settings.numa.scheduler is not None


def _scheduler_image(settings: InstallationSettings) -> str:
    return str((settings.numa.scheduler or {}).get("imageSpec") or "")


def _variable(variables: Mapping[str, str], name: str) -> str:
    """A variable of the operator's container; it may refer to another one, as a bundle's does."""
    text = variables.get(name, "")
    return variables.get(text[2:-1], text) if text.startswith("$(") and text.endswith(")") else text


def _registries(settings: InstallationSettings, namespace: str) -> list[Document]:
    data = settings.registries.files
    if settings.registries.mounted != REGISTRIES_CONFIGMAP or not data:
        return []
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": owned_objects.metadata(REGISTRIES_CONFIGMAP, operator.OPERATOR, namespace=namespace),
            "data": data,
        }
    ]


def _marked(settings: InstallationSettings, made: Iterable[Document]) -> tuple[Document, ...]:
    """The objects with the label by which they are found again, and with the labels and annotations of the settings."""
    return tuple(_labelled(settings, each) for each in made)


def _labelled(settings: InstallationSettings, document: Document) -> Document:
    document = copy.deepcopy(document)  # whoever changes it changes neither the settings nor a schema
    metadata = document["metadata"]
    metadata["labels"] = {**settings.labels, **metadata.get("labels", {}), operator.PART_OF: operator.PRODUCT}
    if annotations := {**settings.annotations, **metadata.get("annotations", {})}:
        metadata["annotations"] = annotations
    return document


# -- components: what each needs besides the operator ------------------------------------------------------------------
# A new component is a row of COMPONENTS.

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
            # PodPlacementConfigs first, because the deletion of the ClusterPodPlacementConfig waits for them.
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


def chosen(settings: InstallationSettings) -> list[Component]:
    """The components of an installation, in the order of the table."""
    return [component for name, component in COMPONENTS.items() if name in settings.components]
