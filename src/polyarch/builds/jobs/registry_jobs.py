"""Jobs that do the builder's registry work where it has no route to the registry or may not read push secrets (BD-178).

Each runs our own image only, confined, on nodes of any architecture, with the push secret and nothing else.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from polyarch.builds.api.resources import ImageBuildSpec
from polyarch.builds.api.settings import BuildTimes
from polyarch.builds.facts.facts import Settings
from polyarch.builds.jobs import contract, pods
from polyarch.builds.jobs.architecture_job import push_volume
from polyarch.builds.jobs.order import Identity
from polyarch.builds.jobs.pods import Body
from polyarch.builds.names import OS_KEY


class RegistryOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Work on one repository. ``document`` is what the program is told, as JSON."""

    identity: Identity
    spec: ImageBuildSpec
    settings: Settings
    document: Mapping[str, Any]


def index_manifests(order: RegistryOrder) -> tuple[Body, ...]:
    """The index Job: ``document`` is a ``publishing.Publication``."""
    return _manifests(order, contract.INDEX_CONTAINER, contract.INDEX_DOCUMENT, contract.INDEX_COMMAND)


def prune_manifests(order: RegistryOrder) -> tuple[Body, ...]:
    """The Job that deletes images: ``document`` is a :class:`contract.PruneDocument`."""
    return _manifests(order, contract.PRUNE_CONTAINER, contract.PRUNE_DOCUMENT, contract.PRUNE_COMMAND)


def _manifests(order: RegistryOrder, container: str, file: str, command: Sequence[str]) -> tuple[Body, ...]:
    identity, settings, spec = order.identity, order.settings, order.spec
    text = msgspec.json.encode(order.document, order="deterministic").decode()
    inputs = pods.config_map(identity, pods.inputs_name(identity), {file: text, **pods.registry_files(settings)})
    mounts, volumes = pods.own_mounts(identity, settings), pods.own_volumes(identity, settings)
    authenticated = spec.output.push_secret is not None
    if spec.output.push_secret is not None:
        mounts.append(pods.mount(contract.PUSH_VOLUME, contract.PUSH))
        volumes.append(push_volume(spec.output.push_secret.name))
    flags = contract.registry_job_arguments(file, authenticated=authenticated)
    times = BuildTimes.of(spec)
    pod: Body = {
        "serviceAccountName": spec.builder.service_account,
        "nodeSelector": {OS_KEY: "linux"},
        "tolerations": [{"key": key, "operator": "Exists"} for key in settings.arch_taint_keys],
        "containers": [
            pods.own_container(
                container,
                image=spec.builder.push_image or settings.push_image,
                command=(*command, *flags, *pods.registry_arguments(settings)),
                mounts=mounts,
                settings=settings,
            )
        ],
        "volumes": volumes,
    }
    job = pods.job(identity, deadline=times.node_wait + times.index, retries=spec.retries, pod=pod, annotations={})
    return inputs, job
