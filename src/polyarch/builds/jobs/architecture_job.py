"""The Job that builds and pushes the image of one architecture (BD-140 to BD-145, BD-155)."""

import base64
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from polyarch.builds import names
from polyarch.builds.api.settings import BuildTimes, build_seconds
from polyarch.builds.jobs import contract, pods
from polyarch.builds.jobs.order import ArchitectureOrder, Given
from polyarch.builds.jobs.pods import Body
from polyarch.builds.jobs.probe import probe
from polyarch.builds.jobs.script import build_script
from polyarch.builds.jobs.security import PROFILES, Profile

REQUESTS: Final = {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "4Gi"}
_LAYOUT_LIMIT: Final = "32Gi"
_STORAGE_LIMIT: Final = "64Gi"
_CONTEXT_LIMIT: Final = "4Gi"
_SECRET_KEY: Final = ".dockerconfigjson"


def manifests(order: ArchitectureOrder) -> tuple[Body, ...]:
    """What has to be created, in order: the ConfigMaps of the Job's inputs, then the Job (S4).

    A Job is made whether or not a node of its architecture exists: a pending pod is what makes an autoscaler act.
    """
    return (*_inputs(order), _job(order))


def _inputs(order: ArchitectureOrder) -> list[Body]:
    identity = order.identity
    data = {
        contract.CONTAINERFILE: order.containerfile,
        contract.BUILD_SCRIPT: build_script(order),
        contract.BUILD_DOCUMENT: msgspec.json.encode(build_document(order), order="deterministic").decode(),
        **pods.registry_files(order.settings),
    }
    program = probe(order.architecture) if order.emulated else None
    binary = {contract.PROBE: base64.b64encode(program).decode()} if program is not None else None
    found = [pods.config_map(identity, pods.inputs_name(identity), data, binary)]
    if order.context_data is not None:
        context = order.context_data
        found.append(
            pods.config_map(
                identity,
                contract.context_name(identity.job),
                context.get("data") or {},
                context.get("binaryData") or {},
            )
        )
    return found


def build_document(order: ArchitectureOrder) -> contract.BuildDocument:
    """The same build as the script's, for programs."""
    spec = order.spec
    return contract.BuildDocument(
        architecture=order.architecture,
        format=spec.output.format,
        target=spec.source.target,
        arguments=dict(sorted(order.arguments.items())),
        labels=dict(sorted((spec.output.labels or {}).items())),
        timestamp=spec.reproducible.timestamp if spec.reproducible.enabled else None,
        images={written: image.pull for image in sorted(order.images) for written in sorted(image.written)},
        secrets=tuple(each.id for each in spec.source.secrets or ()),
        context=spec.source.context.type,
        emulated=order.emulated,
    )


def _job(order: ArchitectureOrder) -> Body:
    spec, times = order.spec, BuildTimes.of(order.spec)
    return pods.job(
        order.identity,
        deadline=times.node_wait + build_seconds(spec, order.architecture),
        retries=spec.retries,
        pod=_pod(order),
        annotations={names.REPOSITORY_ANNOTATION: order.repository},
    )


def _pod(order: ArchitectureOrder) -> Body:
    scheduling, profile = order.scheduling, PROFILES[order.profile]
    pod: Body = {
        "serviceAccountName": order.spec.builder.service_account,
        "nodeSelector": {**(scheduling.node_selector or {}), names.ARCH_KEY: order.host, names.OS_KEY: "linux"},
        "tolerations": [
            *({"key": key, "operator": "Equal", "value": order.host} for key in order.settings.arch_taint_keys),
            *(scheduling.tolerations or ()),
        ],
        **profile.pod,
        "initContainers": [_build_container(order, profile)],
        "containers": [_push_container(order)],
        "volumes": _volumes(order),
    }
    if scheduling.runtime_class_name:
        pod["runtimeClassName"] = scheduling.runtime_class_name
    if scheduling.priority_class_name:
        pod["priorityClassName"] = scheduling.priority_class_name
    return pod


def _build_container(order: ArchitectureOrder, profile: Profile) -> Body:
    spec, settings = order.spec, order.settings
    mounts = [
        *pods.own_mounts(order.identity, order.settings),
        pods.mount(contract.LAYOUT_VOLUME, contract.LAYOUT_MOUNT, writable=True),
        pods.mount(contract.STORAGE_VOLUME, contract.STORAGE, writable=True),
        pods.mount(contract.CONTEXT_VOLUME, contract.CONTEXT, writable=order.context_data is None and not order.given),
    ]
    if spec.output.pull_secrets:
        mounts.append(pods.mount(contract.PULL_VOLUME, contract.PULL))
    if spec.source.secrets:
        mounts.append(pods.mount(contract.SECRETS_VOLUME, contract.SECRETS))
    if _git_credentials(order):
        mounts.append(pods.mount(contract.GIT_VOLUME, contract.GIT))
    if order.given is not None:
        mounts.append(pods.mount(contract.CONTAINERS_VOLUME, contract.CONTAINERS))
        mounts += [pods.mount(each.name, f"{contract.ENTITLED}/{each.name}") for each in order.given.entitled]
    # No XDG_RUNTIME_DIR: rootless buildah wants it to be its user's own, and a volume belongs to the node's root.
    environment = {"HOME": contract.STORAGE, "TMPDIR": contract.STORAGE}
    if settings.registries_conf:
        environment["CONTAINERS_REGISTRIES_CONF"] = f"{contract.IN}/{contract.REGISTRIES_CONF}"
    if settings.trust_bundle:
        environment["SSL_CERT_DIR"] = f"{contract.TRUST}:/etc/ssl/certs:/etc/pki/tls/certs"
    return {
        "name": contract.BUILD_CONTAINER,
        "image": spec.builder.image or settings.builder_image,
        "command": [*profile.command, *contract.BUILD_COMMAND],
        "env": pods.variables((*environment.items(), *settings.proxies)),
        "volumeMounts": mounts,
        "resources": _resources(order.scheduling.resources or {}),
        "securityContext": dict(profile.container),
        **pods.TERMINATION,
    }


def _push_container(order: ArchitectureOrder) -> Body:
    output, settings = order.spec.output, order.settings
    mounts = [
        *pods.own_mounts(order.identity, order.settings),
        pods.mount(contract.LAYOUT_VOLUME, contract.LAYOUT_MOUNT),
    ]
    if output.push_secret is not None:
        mounts.append(pods.mount(contract.PUSH_VOLUME, contract.PUSH))
    flags = contract.push_arguments(
        repository=order.repository,
        architecture=order.architecture,
        tag=order.tag,
        authenticated=output.push_secret is not None,
    )
    return pods.own_container(
        contract.PUSH_CONTAINER,
        image=order.spec.builder.push_image or settings.push_image,
        command=(*contract.PUSH_COMMAND, *flags, *pods.registry_arguments(settings)),
        mounts=mounts,
        settings=settings,
    )


def _volumes(order: ArchitectureOrder) -> list[Body]:
    spec = order.spec
    volumes = [
        *pods.own_volumes(order.identity, order.settings),
        pods.empty(contract.LAYOUT_VOLUME, _LAYOUT_LIMIT),
        pods.empty(contract.STORAGE_VOLUME, _STORAGE_LIMIT),
    ]
    if order.given is not None:
        volumes += _given_volumes(order.given)
    elif order.context_data is not None:
        volumes.append(pods.from_config_map(contract.CONTEXT_VOLUME, contract.context_name(order.identity.job)))
    else:
        volumes.append(pods.empty(contract.CONTEXT_VOLUME, _CONTEXT_LIMIT))
    if pull := spec.output.pull_secrets:
        parts = [(each.name, _SECRET_KEY, f"{at}.json") for at, each in enumerate(pull)]
        volumes.append(pods.from_secrets(contract.PULL_VOLUME, parts))
    if secrets := spec.source.secrets:
        parts = [(each.secret.name, each.secret.key, str(at)) for at, each in enumerate(secrets)]
        volumes.append(pods.from_secrets(contract.SECRETS_VOLUME, parts))
    if git := _git_credentials(order):
        volumes.append(pods.from_secret(contract.GIT_VOLUME, git, {"username": "username", "password": "password"}))
    if spec.output.push_secret is not None:
        volumes.append(push_volume(spec.output.push_secret.name))
    return volumes


def _given_volumes(given: Given) -> list[Body]:
    entitled = (
        pods.from_config_map(each.name, each.object)
        if each.kind == "ConfigMap"
        else pods.from_secret(each.name, each.object, {})
        for each in given.entitled
    )
    return [
        pods.from_config_maps(contract.CONTEXT_VOLUME, given.context),
        pods.from_config_maps(contract.CONTAINERS_VOLUME, given.containers, optional=True),
        *entitled,
    ]


def push_volume(secret: str) -> Body:
    return pods.from_secret(contract.PUSH_VOLUME, secret, {_SECRET_KEY: contract.PUSH_FILE})


def _git_credentials(order: ArchitectureOrder) -> str:
    git = order.spec.source.context.git
    return git.credentials.name if git is not None and git.credentials is not None else ""


def _resources(given: Mapping[str, Any]) -> Body:
    """The user's, and our requests where the user says neither a request nor a limit of that kind."""
    requests, limits = dict(given.get("requests") or {}), given.get("limits") or {}
    usual = {name: amount for name, amount in REQUESTS.items() if name not in limits}
    return {**given, "requests": {**usual, **requests}}
