"""The manifests of Jobs and of the ConfigMaps that they mount.

One Job builds and pushes the image of one architecture; another does the work at registries, where the builder
leaves that to Jobs.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds import names
from polyarch.builds.api.formats import BuildTimes, build_seconds
from polyarch.builds.api.resources import ImageBuildSpec
from polyarch.builds.facts.build_facts import PlanSettings
from polyarch.builds.jobs import contract
from polyarch.builds.jobs.script import build_script, emulation_check
from polyarch.builds.jobs.spec import (
    CONFINED,
    PROFILES,
    ArchitectureJobSpec,
    JobMetadata,
    MachineJobMounts,
    SecurityProfile,
    pod_settings,
)
from polyarch.builds.keys import canonical_json
from polyarch.builds.names import OS_KEY

GRACE_SECONDS: Final = 10
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_OWN_REQUESTS: Final = {"cpu": "100m", "memory": "256Mi"}
_OWN_LIMITS: Final = {"memory": "512Mi"}
_READABLE: Final = 0o444

Body = dict[str, Any]


def config_map_object(
    metadata: JobMetadata, name: str, data: Mapping[str, str], binary: Mapping[str, str] | None = None
) -> Body:
    """An immutable ConfigMap of a Job."""
    body: Body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(metadata, name),
        "immutable": True,
        "data": dict(sorted(data.items())),
    }
    if binary:
        body["binaryData"] = dict(sorted(binary.items()))
    return body


def job_object(
    metadata: JobMetadata, *, deadline: float, retries: int, pod: Mapping[str, Any], annotations: Mapping[str, str]
) -> Body:
    """One pod to completion: evictions and drains cost no attempt, what cannot be mended ends it at once."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(metadata, metadata.job, annotations),
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": retries,
            "activeDeadlineSeconds": max(1, round(deadline)),
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": sorted(contract.EXIT_REASONS)}},
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                ]
            },
            "template": {
                "metadata": {
                    "labels": dict(metadata.labels),
                    "annotations": {**metadata.annotations, SAFE_TO_EVICT: "false"},
                },
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": GRACE_SECONDS,
                    **pod,
                },
            },
        },
    }


def own_container(
    name: str, *, image: str, command: Sequence[str], mounts: Sequence[Body], settings: PlanSettings
) -> Body:
    """A container of our own image, confined."""
    return {
        "name": name,
        "image": image,
        "command": list(command),
        **({"env": env_variables(settings.proxies)} if settings.proxies else {}),
        "volumeMounts": [*mounts, {"name": contract.TEMPORARY_VOLUME, "mountPath": contract.TEMPORARY}],
        "resources": {"requests": dict(_OWN_REQUESTS), "limits": dict(_OWN_LIMITS)},
        "securityContext": dict(CONFINED),
        **TERMINATION,
    }


def env_variables(pairs: Iterable[tuple[str, str]]) -> list[Body]:
    return [{"name": name, "value": value} for name, value in pairs]


TERMINATION: Final = {
    "terminationMessagePath": contract.TERMINATION_LOG,
    "terminationMessagePolicy": "FallbackToLogsOnError",
}


def volume_mount(volume: str, path: str, *, writable: bool = False) -> Body:
    return {"name": volume, "mountPath": path, **({} if writable else {"readOnly": True})}


def empty_volume(volume: str, limit: str) -> Body:
    """An emptyDir; none is without a limit."""
    return {"name": volume, "emptyDir": {"sizeLimit": limit}}


def config_map_volume(volume: str, name: str, *, optional: bool = False, keys: Iterable[str] = ()) -> Body:
    source: Body = {"name": name}
    if optional:
        source["optional"] = True
    if items := [{"key": key, "path": key} for key in keys]:
        source["items"] = items
    return {"name": volume, "configMap": source}


def config_maps_volume(volume: str, names: Iterable[str], *, optional: bool = False) -> Body:
    """The files of all of them in one folder."""
    more = {"optional": True} if optional else {}
    return {"name": volume, "projected": {"sources": [{"configMap": {"name": each, **more}} for each in names]}}


def secret_volume(volume: str, name: str, files: Mapping[str, str]) -> Body:
    """``files``: key → path; without any, all keys as they are called. The mode lets users other than root read them;
    only one container mounts them."""
    items = [{"key": key, "path": path} for key, path in files.items()]
    selected = {"items": items} if items else {}
    return {"name": volume, "secret": {"secretName": name, **selected, "defaultMode": _READABLE}}


def secrets_volume(volume: str, parts: Sequence[tuple[str, str, str]]) -> Body:
    """Secrets in one folder; ``parts``: name, key, path."""
    sources = [{"secret": {"name": name, "items": [{"key": key, "path": path}]}} for name, key, path in parts]
    return {"name": volume, "projected": {"sources": sources, "defaultMode": _READABLE}}


def own_volumes(metadata: JobMetadata, settings: PlanSettings) -> list[Body]:
    """What every pod has: inputs, ``/tmp``, the execution's list of architectures, CAs if there are any."""
    inputs = inputs_name(metadata)
    volumes = [config_map_volume(contract.IN_VOLUME, inputs), empty_volume(contract.TEMPORARY_VOLUME, "64Mi")]
    if metadata.record:
        files = [names.ARCHITECTURES_FILE]
        volumes.append(config_map_volume(contract.ARCHITECTURES_VOLUME, metadata.record, optional=True, keys=files))
    if settings.trust_bundle:
        volumes.append(config_map_volume(contract.TRUST_VOLUME, inputs, keys=[contract.TRUST_FILE]))
    return volumes


def own_mounts(metadata: JobMetadata, settings: PlanSettings) -> list[Body]:
    """What every container mounts of :func:`own_volumes`."""
    mounts = [volume_mount(contract.IN_VOLUME, contract.IN)]
    if metadata.record:
        mounts.append(volume_mount(contract.ARCHITECTURES_VOLUME, contract.ARCHITECTURES))
    if settings.trust_bundle:
        mounts.append(volume_mount(contract.TRUST_VOLUME, contract.TRUST))
    return mounts


def registry_files(settings: PlanSettings) -> dict[str, str]:
    """The files among the inputs that say how registries are reached, where the role has them."""
    files = {contract.REGISTRIES_CONF: settings.registries_conf, contract.TRUST_FILE: settings.trust_bundle}
    return {name: text for name, text in files.items() if text}


def registry_arguments(settings: PlanSettings) -> tuple[str, ...]:
    """The flags of our own commands that say the same."""
    return (
        *([f"--registries-conf={contract.IN}/{contract.REGISTRIES_CONF}"] if settings.registries_conf else []),
        *([f"--ca={contract.TRUST}/{contract.TRUST_FILE}"] if settings.trust_bundle else []),
    )


def inputs_name(metadata: JobMetadata) -> str:
    return metadata.inputs or contract.configmap_name(metadata.job)


def _metadata(metadata: JobMetadata, name: str, annotations: Mapping[str, str] | None = None) -> Body:
    every = {**metadata.annotations, **(annotations or {})}
    return {
        "name": name,
        "namespace": metadata.namespace,
        "labels": dict(metadata.labels),
        "ownerReferences": [dict(each) for each in metadata.owners],
        **({"annotations": every} if every else {}),
    }


# -- the Job of one architecture ---------------------------------------------------------------------------------------


REQUESTS: Final = {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "4Gi"}
_LAYOUT_LIMIT: Final = "32Gi"
_STORAGE_LIMIT: Final = "64Gi"
_CONTEXT_LIMIT: Final = "4Gi"
_SECRET_KEY: Final = ".dockerconfigjson"


def architecture_manifests(job_spec: ArchitectureJobSpec) -> tuple[Body, ...]:
    """What has to be created, in order: the ConfigMaps of the Job's inputs, then the Job.

    A Job is made whether or not a node of its architecture exists: a pending pod is what makes an autoscaler act.
    """
    return (*_inputs(job_spec), _job(job_spec))


def _inputs(job_spec: ArchitectureJobSpec) -> list[Body]:
    metadata = job_spec.metadata
    data = {
        contract.CONTAINERFILE: job_spec.containerfile,
        contract.BUILD_SCRIPT: build_script(job_spec),
        contract.BUILD_DOCUMENT: msgspec.json.encode(build_document(job_spec), order="deterministic").decode(),
        **registry_files(job_spec.settings),
    }
    program = emulation_check(job_spec.architecture) if job_spec.emulated else None
    binary = {contract.PROBE: base64.b64encode(program).decode()} if program is not None else None
    found = [config_map_object(metadata, inputs_name(metadata), data, binary)]
    if job_spec.context_data is not None:
        context = job_spec.context_data
        found.append(
            config_map_object(
                metadata,
                contract.context_name(metadata.job),
                context.get("data") or {},
                context.get("binaryData") or {},
            )
        )
    return found


def build_document(job_spec: ArchitectureJobSpec) -> contract.BuildDocument:
    """The same build as the script's, for programs."""
    spec = job_spec.spec
    return contract.BuildDocument(
        architecture=job_spec.architecture,
        format=spec.output.format,
        target=spec.source.target,
        arguments=dict(sorted(job_spec.arguments.items())),
        labels=dict(sorted((spec.output.labels or {}).items())),
        timestamp=spec.reproducible.timestamp if spec.reproducible.enabled else None,
        images={written: image.pull for image in sorted(job_spec.images) for written in sorted(image.written)},
        secrets=tuple(each.id for each in spec.source.secrets or ()),
        context=spec.source.context.type,
        emulated=job_spec.emulated,
    )


def _job(job_spec: ArchitectureJobSpec) -> Body:
    spec, times = job_spec.spec, BuildTimes.of(job_spec.spec)
    return job_object(
        job_spec.metadata,
        deadline=times.node_wait + build_seconds(spec, job_spec.architecture),
        retries=spec.retries,
        pod=_pod(job_spec),
        annotations={
            names.REPOSITORY_ANNOTATION: job_spec.repository,
            names.SETTINGS_ANNOTATION: canonical_json(pod_settings(spec, job_spec.architecture)).decode(),
        },
    )


def _pod(job_spec: ArchitectureJobSpec) -> Body:
    scheduling, profile = job_spec.scheduling, PROFILES[job_spec.profile]
    pod: Body = {
        "serviceAccountName": job_spec.spec.builder.service_account,
        "nodeSelector": {**(scheduling.node_selector or {}), names.ARCH_KEY: job_spec.host, names.OS_KEY: "linux"},
        "tolerations": [
            *({"key": key, "operator": "Equal", "value": job_spec.host} for key in job_spec.settings.arch_taint_keys),
            *(scheduling.tolerations or ()),
        ],
        **profile.pod,
        "initContainers": [_build_container(job_spec, profile)],
        "containers": [_push_container(job_spec)],
        "volumes": _volumes(job_spec),
    }
    if scheduling.runtime_class_name:
        pod["runtimeClassName"] = scheduling.runtime_class_name
    if scheduling.priority_class_name:
        pod["priorityClassName"] = scheduling.priority_class_name
    return pod


def _build_container(job_spec: ArchitectureJobSpec, profile: SecurityProfile) -> Body:
    spec, settings = job_spec.spec, job_spec.settings
    mounts = [
        *own_mounts(job_spec.metadata, job_spec.settings),
        volume_mount(contract.LAYOUT_VOLUME, contract.LAYOUT_MOUNT, writable=True),
        volume_mount(contract.STORAGE_VOLUME, contract.STORAGE, writable=True),
        volume_mount(
            contract.CONTEXT_VOLUME, contract.CONTEXT, writable=job_spec.context_data is None and not job_spec.given
        ),
    ]
    if spec.output.pull_secrets:
        mounts.append(volume_mount(contract.PULL_VOLUME, contract.PULL))
    if spec.source.secrets:
        mounts.append(volume_mount(contract.SECRETS_VOLUME, contract.SECRETS))
    if _git_credentials(job_spec):
        mounts.append(volume_mount(contract.GIT_VOLUME, contract.GIT))
    if job_spec.given is not None:
        mounts.append(volume_mount(contract.CONTAINERS_VOLUME, contract.CONTAINERS))
        mounts += [volume_mount(each.name, f"{contract.ENTITLED}/{each.name}") for each in job_spec.given.entitled]
    # No XDG_RUNTIME_DIR: rootless buildah wants it to be its user's own, and a volume belongs to the node's root.
    environment = {"HOME": contract.STORAGE, "TMPDIR": contract.STORAGE}
    if settings.registries_conf:
        environment["CONTAINERS_REGISTRIES_CONF"] = f"{contract.IN}/{contract.REGISTRIES_CONF}"
    if settings.trust_bundle:
        environment["SSL_CERT_DIR"] = f"{contract.TRUST}:/etc/ssl/certs:/etc/pki/tls/certs"
    return {
        "name": contract.BUILD_CONTAINER,
        "image": spec.builder.image or settings.builder_image,
        "command": list(contract.BUILD_COMMAND),
        "env": env_variables((*environment.items(), *settings.proxies)),
        "volumeMounts": mounts,
        "resources": _resources(job_spec.scheduling.resources or {}),
        "securityContext": dict(profile.container),
        **TERMINATION,
    }


def _push_container(job_spec: ArchitectureJobSpec) -> Body:
    output, settings = job_spec.spec.output, job_spec.settings
    mounts = [
        *own_mounts(job_spec.metadata, job_spec.settings),
        volume_mount(contract.LAYOUT_VOLUME, contract.LAYOUT_MOUNT),
    ]
    if output.push_secret is not None:
        mounts.append(volume_mount(contract.PUSH_VOLUME, contract.PUSH))
    flags = contract.push_arguments(
        repository=job_spec.repository,
        architecture=job_spec.architecture,
        tag=job_spec.tag,
        authenticated=output.push_secret is not None,
    )
    return own_container(
        contract.PUSH_CONTAINER,
        image=job_spec.spec.builder.push_image or settings.push_image,
        command=(*contract.PUSH_COMMAND, *flags, *registry_arguments(settings)),
        mounts=mounts,
        settings=settings,
    )


def _volumes(job_spec: ArchitectureJobSpec) -> list[Body]:
    spec = job_spec.spec
    volumes = [
        *own_volumes(job_spec.metadata, job_spec.settings),
        empty_volume(contract.LAYOUT_VOLUME, _LAYOUT_LIMIT),
        empty_volume(contract.STORAGE_VOLUME, _STORAGE_LIMIT),
    ]
    if job_spec.given is not None:
        volumes += _given_volumes(job_spec.given)
    elif job_spec.context_data is not None:
        volumes.append(config_map_volume(contract.CONTEXT_VOLUME, contract.context_name(job_spec.metadata.job)))
    else:
        volumes.append(empty_volume(contract.CONTEXT_VOLUME, _CONTEXT_LIMIT))
    if pull := spec.output.pull_secrets:
        parts = [(each.name, _SECRET_KEY, f"{at}.json") for at, each in enumerate(pull)]
        volumes.append(secrets_volume(contract.PULL_VOLUME, parts))
    if secrets := spec.source.secrets:
        parts = [(each.secret.name, each.secret.key, str(at)) for at, each in enumerate(secrets)]
        volumes.append(secrets_volume(contract.SECRETS_VOLUME, parts))
    if git := _git_credentials(job_spec):
        volumes.append(secret_volume(contract.GIT_VOLUME, git, {"username": "username", "password": "password"}))
    if spec.output.push_secret is not None:
        volumes.append(push_volume(spec.output.push_secret.name))
    return volumes


def _given_volumes(given: MachineJobMounts) -> list[Body]:
    entitled = (
        config_map_volume(each.name, each.object)
        if each.kind == "ConfigMap"
        else secret_volume(each.name, each.object, {})
        for each in given.entitled
    )
    return [
        config_maps_volume(contract.CONTEXT_VOLUME, given.context),
        config_maps_volume(contract.CONTAINERS_VOLUME, given.containers, optional=True),
        *entitled,
    ]


def push_volume(secret: str) -> Body:
    return secret_volume(contract.PUSH_VOLUME, secret, {_SECRET_KEY: contract.PUSH_FILE})


def _git_credentials(job_spec: ArchitectureJobSpec) -> str:
    git = job_spec.spec.source.context.git
    return git.credentials.name if git is not None and git.credentials is not None else ""


def _resources(given: Mapping[str, Any]) -> Body:
    """The user's, and our requests where the user says neither a request nor a limit of that kind."""
    requests, limits = dict(given.get("requests") or {}), given.get("limits") or {}
    usual = {name: amount for name, amount in REQUESTS.items() if name not in limits}
    return {**given, "requests": {**usual, **requests}}


# -- Jobs for registry work --------------------------------------------------------------------------------------------


class RegistryJobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Work on one repository. ``document`` is what the program is told, as JSON."""

    metadata: JobMetadata
    spec: ImageBuildSpec
    settings: PlanSettings
    document: Mapping[str, Any]


def index_manifests(job_spec: RegistryJobSpec) -> tuple[Body, ...]:
    """The index Job: ``document`` is a ``publishing.Publication``."""
    return _manifests(job_spec, contract.INDEX_CONTAINER, contract.INDEX_DOCUMENT, contract.INDEX_COMMAND)


def prune_manifests(job_spec: RegistryJobSpec) -> tuple[Body, ...]:
    """The Job that deletes images: ``document`` is a :class:`contract.PruneDocument`."""
    return _manifests(job_spec, contract.PRUNE_CONTAINER, contract.PRUNE_DOCUMENT, contract.PRUNE_COMMAND)


def _manifests(job_spec: RegistryJobSpec, container: str, file: str, command: Sequence[str]) -> tuple[Body, ...]:
    metadata, settings, spec = job_spec.metadata, job_spec.settings, job_spec.spec
    text = msgspec.json.encode(job_spec.document, order="deterministic").decode()
    inputs = config_map_object(metadata, inputs_name(metadata), {file: text, **registry_files(settings)})
    mounts, volumes = own_mounts(metadata, settings), own_volumes(metadata, settings)
    authenticated = spec.output.push_secret is not None
    if spec.output.push_secret is not None:
        mounts.append(volume_mount(contract.PUSH_VOLUME, contract.PUSH))
        volumes.append(push_volume(spec.output.push_secret.name))
    flags = contract.registry_job_arguments(file, authenticated=authenticated)
    times = BuildTimes.of(spec)
    pod: Body = {
        "serviceAccountName": spec.builder.service_account,
        "nodeSelector": {OS_KEY: "linux"},
        "tolerations": [{"key": key, "operator": "Exists"} for key in settings.arch_taint_keys],
        "containers": [
            own_container(
                container,
                image=spec.builder.push_image or settings.push_image,
                command=(*command, *flags, *registry_arguments(settings)),
                mounts=mounts,
                settings=settings,
            )
        ],
        "volumes": volumes,
    }
    job = job_object(metadata, deadline=times.node_wait + times.index, retries=spec.retries, pod=pod, annotations={})
    return inputs, job
