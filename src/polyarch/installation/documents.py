"""All objects of an installation, from its settings, in the order in which they are applied (IN-001, IN-002).

``polyarch install``, the chart, the kustomize base, the OLM bundle and the sandbox take them from here, and a test
compares. The operator makes everything else: Deployments of the other roles, their rights, webhook configurations,
certificates (``placement/operator/operands.py``). Pure.
"""

import copy
from collections.abc import Iterable
from typing import Any, Final

from polyarch.installation import operator
from polyarch.installation.components import COMPONENTS, Component
from polyarch.installation.settings import BUILDS, REGISTRIES_CONFIGMAP, InstallationSettings, recorded
from polyarch.kube.resources import DEPLOYMENTS
from polyarch.operating import labels
from polyarch.operating.rights import service_account
from polyarch.operating.settings import DEFAULT_NAMESPACE, Cluster
from polyarch.placement import names
from polyarch.placement.operator import operands

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
    return _marked(settings, [operands.namespace(namespace, privileged=settings.has_numa)])


def operator_objects(settings: InstallationSettings, *, namespace: str = DEFAULT_NAMESPACE) -> tuple[Document, ...]:
    """Everything of the operator, without the namespace."""
    cluster = Cluster(openshift=bool(settings.openshift))
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
    """The documents, with the values on the operator's Deployment, from which an upgrade reads them (IN-004)."""
    marked = []
    for each in made:
        if (each["kind"], each["metadata"]["name"]) == (DEPLOYMENTS.kind, operator.OPERATOR):
            annotations = {**each["metadata"].get("annotations", {}), VALUES: recorded(settings)}
            each = {**each, "metadata": {**each["metadata"], "annotations": annotations}}
        marked.append(each)
    return tuple(marked)


def chosen(settings: InstallationSettings) -> list[Component]:
    """The components of an installation, in the order of the table."""
    return [component for name, component in COMPONENTS.items() if name in settings.components]


def images(settings: InstallationSettings) -> tuple[str, ...]:
    """The images that an installation pulls (IN-040); one has every role, and builds take place in another."""
    building = (settings.builds.builder_image,) if BUILDS in settings.components else ()
    return (settings.image.reference, *building)


def _registries(settings: InstallationSettings, namespace: str) -> list[Document]:
    given = {"registries.conf": settings.registries.configuration, "ca.crt": settings.registries.authorities}
    data = {name: text for name, text in given.items() if text}
    if settings.registries.mounted != REGISTRIES_CONFIGMAP or not data:
        return []
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": labels.metadata(REGISTRIES_CONFIGMAP, operator.OPERATOR, namespace=namespace),
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
