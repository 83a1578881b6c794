"""What a plan is made of, read once from a cluster into the form of a facts file (BD-003).

So a plan made here and one made from a file are made of the same facts, and the output of this reading could be saved
as one. Secrets are read by name, only those that the build names.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from polyarch.builds import names
from polyarch.builds.api.resources import ImageBuildSpec
from polyarch.builds.controller.resolver import NamedObjects
from polyarch.builds.facts.objects import named_by
from polyarch.builds.facts.offline import FactsFile, InvalidFacts
from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden, NotFound
from polyarch.kube.resources import (
    CONFIGMAPS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    RUNTIME_CLASSES,
    SECRETS,
    Resource,
)
from polyarch.objects import Key, Unstructured

Objects = list[dict[str, Any]]
OURS: Final = f"{names.MANAGED_BY}={names.MANAGER}"
_FLAGS: Final = {
    "--builder-image": "builderImage",
    "--push-image": "pushImage",
    "--max-active-jobs": "maxActiveJobs",
    "--allow-privileged-builds": "allowPrivileged",
    "--arch-taint-key": "archTaintKeys",
}
"""Flags of the builder's Deployment → settings of a facts file."""


async def read_cluster(client: Client, key: Key, given: Mapping[str, Any] | None, now: datetime) -> FactsFile:
    """The facts about one build; ``given`` is an object that is planned for in place of the stored one."""
    build = await _build(client, key, given)
    try:
        spec = msgspec.convert(build.get("spec") or {}, ImageBuildSpec)
    except msgspec.ValidationError as error:
        raise UsageError(f"ImageBuild {key}: {error}") from None
    named = named_by(spec)
    objects = [build]
    objects += await _listed(client, names.IMAGE_BUILD_RUNS, key.namespace)
    objects += await _listed(client, NODES)
    objects += await _listed(client, JOBS, label_selector=OURS)
    objects += await _listed(client, PODS, key.namespace, label_selector=OURS)
    objects += await _listed(client, CONFIGMAPS, key.namespace, label_selector=OURS)
    objects += await _got(client, NAMESPACES, [key.namespace])
    objects += await _got(client, CONFIGMAPS, named.config_maps, key.namespace)
    objects += await _got(client, SECRETS, named.secrets, key.namespace)
    objects += await _runtime_classes(client, spec)
    settings = await _settings(client)
    if named.secrets:
        settings |= await _hmac(client)
    unique = {(each["kind"], *_place(each)): each for each in objects}
    data = {"now": now.isoformat(), "objects": list(unique.values()), "settings": settings}
    try:
        return FactsFile(data)
    except InvalidFacts as error:
        raise CouldNotComplete(f"build plan: {error}") from None


async def _build(client: Client, key: Key, given: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = await client.get(names.IMAGE_BUILDS, key.name, namespace=key.namespace)
    except NotFound:
        if given is None:
            raise UsageError(f"build plan: there is no ImageBuild {key}; give -f FILE to plan for one") from None
        return {**given, "metadata": {**given["metadata"], "uid": "", "generation": 1}}
    if given is None:
        return stored
    metadata = {**stored["metadata"], "generation": stored["metadata"].get("generation", 0) + 1}
    return {**stored, "metadata": metadata, "spec": given["spec"]}


async def _listed(client: Client, resource: Resource, namespace: str = "", *, label_selector: str = "") -> Objects:
    found = await client.list(resource, namespace=namespace, label_selector=label_selector, type=Unstructured)
    kind = {"kind": resource.kind, "apiVersion": resource.api_version}
    return [{**each.document, **kind} for each in found.items]


async def _got(client: Client, resource: Resource, wanted: Iterable[str], namespace: str = "") -> Objects:
    """Those of these objects that exist."""
    found: Objects = []
    for name in sorted(wanted):
        try:
            document: dict[str, Any] = await client.get(resource, name, namespace=namespace)
        except NotFound:
            continue
        except Forbidden as error:
            raise CouldNotComplete(f"build plan: the plan depends on it, but {error}") from None
        found.append({**document, "kind": resource.kind, "apiVersion": resource.api_version})
    return found


async def _runtime_classes(client: Client, spec: ImageBuildSpec) -> Objects:
    """Those that the build names. Whoever may not read one is told the plan for a handler of the same name."""
    wanted = {each.runtime_class_name for each in spec.scheduling.per_architecture or ()} - {""}
    found: Objects = []
    for name in sorted(wanted):
        handler = await NamedObjects(client).runtime_handler(name)
        if handler is not None:
            kind = {"apiVersion": RUNTIME_CLASSES.api_version, "kind": RUNTIME_CLASSES.kind}
            found.append({**kind, "metadata": {"name": name}, "handler": handler})
    return found


async def _settings(client: Client) -> dict[str, Any]:
    """Those of the builder that runs in this cluster; the usual ones if there is none."""
    found = await client.list(DEPLOYMENTS, field_selector=f"metadata.name={names.ROLE}", type=Unstructured)
    settings: dict[str, Any] = {}
    for deployment in found.items:
        containers = deployment.document["spec"]["template"]["spec"].get("containers") or ()
        for argument in (word for each in containers for word in each.get("args") or ()):
            flag, _, value = argument.partition("=")
            if (name := _FLAGS.get(flag)) is None:
                continue
            if name == "archTaintKeys":
                settings.setdefault(name, []).append(value)
            else:
                settings[name] = int(value) if name == "maxActiveJobs" else value or True
    return settings


async def _hmac(client: Client) -> dict[str, str]:
    """The key under which the builder hashes Secrets, if whoever asks may read it."""
    found = await client.list(DEPLOYMENTS, field_selector=f"metadata.name={names.ROLE}", type=Unstructured)
    for deployment in found.items:
        try:
            secret: dict[str, Any] = await client.get(
                SECRETS, names.HMAC_SECRET, namespace=deployment.metadata.namespace
            )
        except (NotFound, Forbidden):
            continue
        for value in (secret.get("data") or {}).values():
            return {"hmacKey": msgspec.json.decode(f'"{value}"'.encode(), type=bytes).hex()}
    return {}


def _place(document: Mapping[str, Any]) -> Key:
    metadata = document.get("metadata") or {}
    return Key(metadata.get("namespace", ""), metadata.get("name", ""))
