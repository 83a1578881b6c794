"""The parts that all pods of builds have in common (BD-142, BD-143, BD-145)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from polyarch.builds import names
from polyarch.builds.facts.facts import Settings
from polyarch.builds.jobs import contract
from polyarch.builds.jobs.order import Identity
from polyarch.builds.jobs.security import CONFINED

GRACE_SECONDS: Final = 10
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_OWN_REQUESTS: Final = {"cpu": "100m", "memory": "256Mi"}
_OWN_LIMITS: Final = {"memory": "512Mi"}
_READABLE: Final = 0o444

Body = dict[str, Any]


def config_map(identity: Identity, name: str, data: Mapping[str, str], binary: Mapping[str, str] | None = None) -> Body:
    """An immutable ConfigMap of a Job."""
    body: Body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(identity, name),
        "immutable": True,
        "data": dict(sorted(data.items())),
    }
    if binary:
        body["binaryData"] = dict(sorted(binary.items()))
    return body


def job(
    identity: Identity, *, deadline: float, retries: int, pod: Mapping[str, Any], annotations: Mapping[str, str]
) -> Body:
    """One pod to completion: evictions and drains cost no attempt, what cannot be mended ends it at once (BD-142)."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(identity, identity.job, annotations),
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
                    "labels": dict(identity.labels),
                    "annotations": {**identity.annotations, SAFE_TO_EVICT: "false"},
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


def own_container(name: str, *, image: str, command: Sequence[str], mounts: Sequence[Body], settings: Settings) -> Body:
    """A container of our own image, confined."""
    return {
        "name": name,
        "image": image,
        "command": list(command),
        **({"env": variables(settings.proxies)} if settings.proxies else {}),
        "volumeMounts": [*mounts, {"name": contract.TEMPORARY_VOLUME, "mountPath": contract.TEMPORARY}],
        "resources": {"requests": dict(_OWN_REQUESTS), "limits": dict(_OWN_LIMITS)},
        "securityContext": dict(CONFINED),
        **TERMINATION,
    }


def variables(pairs: Iterable[tuple[str, str]]) -> list[Body]:
    return [{"name": name, "value": value} for name, value in pairs]


TERMINATION: Final = {
    "terminationMessagePath": contract.TERMINATION_LOG,
    "terminationMessagePolicy": "FallbackToLogsOnError",
}


def mount(volume: str, path: str, *, writable: bool = False) -> Body:
    return {"name": volume, "mountPath": path, **({} if writable else {"readOnly": True})}


def empty(volume: str, limit: str) -> Body:
    """An emptyDir; none is without a limit (BD-143)."""
    return {"name": volume, "emptyDir": {"sizeLimit": limit}}


def from_config_map(volume: str, name: str, *, optional: bool = False, keys: Iterable[str] = ()) -> Body:
    source: Body = {"name": name}
    if optional:
        source["optional"] = True
    if items := [{"key": key, "path": key} for key in keys]:
        source["items"] = items
    return {"name": volume, "configMap": source}


def from_config_maps(volume: str, names: Iterable[str], *, optional: bool = False) -> Body:
    """The files of all of them in one folder."""
    more = {"optional": True} if optional else {}
    return {"name": volume, "projected": {"sources": [{"configMap": {"name": each, **more}} for each in names]}}


def from_secret(volume: str, name: str, files: Mapping[str, str]) -> Body:
    """``files``: key → path; without any, all keys as they are called. The mode lets users other than root read them;
    only one container mounts them."""
    items = [{"key": key, "path": path} for key, path in files.items()]
    selected = {"items": items} if items else {}
    return {"name": volume, "secret": {"secretName": name, **selected, "defaultMode": _READABLE}}


def from_secrets(volume: str, parts: Sequence[tuple[str, str, str]]) -> Body:
    """Secrets in one folder; ``parts``: name, key, path."""
    sources = [{"secret": {"name": name, "items": [{"key": key, "path": path}]}} for name, key, path in parts]
    return {"name": volume, "projected": {"sources": sources, "defaultMode": _READABLE}}


def own_volumes(identity: Identity, settings: Settings) -> list[Body]:
    """What every pod has: inputs, ``/tmp``, the execution's list of architectures (BD-049), CAs if there are any."""
    inputs = inputs_name(identity)
    volumes = [from_config_map(contract.IN_VOLUME, inputs), empty(contract.TEMPORARY_VOLUME, "64Mi")]
    if identity.record:
        files = [names.ARCHITECTURES_FILE]
        volumes.append(from_config_map(contract.ARCHITECTURES_VOLUME, identity.record, optional=True, keys=files))
    if settings.trust_bundle:
        volumes.append(from_config_map(contract.TRUST_VOLUME, inputs, keys=[contract.TRUST_FILE]))
    return volumes


def own_mounts(identity: Identity, settings: Settings) -> list[Body]:
    """What every container mounts of :func:`own_volumes`."""
    mounts = [mount(contract.IN_VOLUME, contract.IN)]
    if identity.record:
        mounts.append(mount(contract.ARCHITECTURES_VOLUME, contract.ARCHITECTURES))
    if settings.trust_bundle:
        mounts.append(mount(contract.TRUST_VOLUME, contract.TRUST))
    return mounts


def registry_files(settings: Settings) -> dict[str, str]:
    """The files among the inputs that say how registries are reached, where the role has them."""
    files = {contract.REGISTRIES_CONF: settings.registries_conf, contract.TRUST_FILE: settings.trust_bundle}
    return {name: text for name, text in files.items() if text}


def registry_arguments(settings: Settings) -> tuple[str, ...]:
    """The flags of our own commands that say the same."""
    return (
        *([f"--registries-conf={contract.IN}/{contract.REGISTRIES_CONF}"] if settings.registries_conf else []),
        *([f"--ca={contract.TRUST}/{contract.TRUST_FILE}"] if settings.trust_bundle else []),
    )


def inputs_name(identity: Identity) -> str:
    return identity.inputs or contract.configmap_name(identity.job)


def _metadata(identity: Identity, name: str, annotations: Mapping[str, str] | None = None) -> Body:
    metadata: Body = {
        "name": name,
        "namespace": identity.namespace,
        "labels": dict(identity.labels),
        "ownerReferences": [dict(each) for each in identity.owners],
    }
    if found := {**identity.annotations, **(annotations or {})}:
        metadata["annotations"] = found
    return metadata
