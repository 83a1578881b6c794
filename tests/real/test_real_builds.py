"""Images built by pods on real nodes: by each profile, with the machine's buildah in builder images of each kind."""

import base64
import json
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from real_kubelets import Document, eventually, pod_document, pod_of

from polyarch.builds.names import IMAGE_BUILD_RUNS, IMAGE_BUILDS
from polyarch.installation import apply, objects, preflight
from polyarch.kube.client import Client
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import DEPLOYMENTS, NODES, PODS, ROLE_BINDINGS, SECRETS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.objects import Unstructured
from polyarch.sandbox import operator
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.real.configuration import REGISTRY
from polyarch.sandbox.real.images import CAPABILITIES, ImageFiles, manifest, of_builder, of_programs
from polyarch.sandbox.versions import host_architecture

pytestmark = [pytest.mark.timeout(900), pytest.mark.req("BD-151")]

BASE = f"{REGISTRY}/base/shell:1"
BUILD_SECONDS = 300.0
ENDED = {"Succeeded", "Failed"}

CONTAINERFILE = """\
FROM {base}
ARG TARGETARCH
RUN mkdir /data && echo "{name} for $TARGETARCH" >/data/about && chown 33:33 /data/about && cat /data/about
CMD ["/usr/bin/cat", "/data/about"]
"""


def shell() -> ImageFiles:
    """An image in which ``RUN`` works: programs of this machine."""
    return ImageFiles(of_programs(("mkdir", "cat", "chown")), ("/bin/sh", "-c"), {"PATH": "/usr/bin:/bin"})


def builder(folder: Path, kind: str) -> ImageFiles:
    """A builder image of this machine's buildah, which differs from the sandbox's by what ``kind`` says."""
    made = of_builder(folder)
    files = dict(made.files)
    match kind:
        case "setuid newuidmap":
            files |= newuidmap(folder, is_setuid=True)
        case "file capabilities, user and subordinate ids":
            files |= newuidmap(folder, is_setuid=False)
            texts = {"passwd": "root:x:0:0::/root:/bin/sh\nbuild:x:1000:1000::/home/build:/bin/sh\n"}
            texts |= dict.fromkeys(("subuid", "subgid"), "build:1:999\nbuild:1001:64535\n")
            for name, text in texts.items():
                (folder / f"upstream-{name}").write_text(text)
                files[f"etc/{name}"] = folder / f"upstream-{name}"
        case "no unshare":
            del files["usr/bin/unshare"]
        case "no buildah":
            del files["usr/bin/buildah"]
        case "no policy":
            del files["etc/containers/policy.json"]
        case "buildah of another machine":
            (folder / "buildah").write_bytes(b"\x7fELF" + bytes(60))
            (folder / "buildah").chmod(0o755)
            files["usr/bin/buildah"] = folder / "buildah"
        case _:
            raise ValueError(kind)
    return made._replace(files=files)


def newuidmap(folder: Path, *, is_setuid: bool) -> dict[str, Path]:
    """``newuidmap`` and ``newgidmap`` with the rights that Debian gives them, or those that Fedora does."""
    files = of_programs(("newuidmap", "newgidmap"))
    for name, capability in (("newuidmap", 7), ("newgidmap", 6)):
        program = folder / name
        shutil.copyfile(files[f"usr/bin/{name}"], program)
        program.chmod(0o4755 if is_setuid else 0o755)
        if not is_setuid:
            value = bytes((1, 0, 0, 2)) + (1 << capability).to_bytes(4, "little") + bytes(12)
            os.setxattr(program, CAPABILITIES, value)
        files[f"usr/bin/{name}"] = program
    return files


@pytest.fixture
async def base(cluster: Sandbox) -> str:
    await push(cluster, BASE, shell())
    return BASE


async def push(cluster: Sandbox, image: str, files: ImageFiles) -> None:
    """To the registry of the sandbox, under the name by which pods know it."""
    local = image.replace(REGISTRY, cluster.registry.address)
    await cluster.registry.push(local, manifest(files, host_architecture()))


async def build(client: Client, namespace: str, name: str, *, base: str, **spec: Any) -> None:
    output = {"repository": f"{REGISTRY}/{namespace}/{name}", **spec.pop("output", {})}
    document = {
        "apiVersion": IMAGE_BUILDS.api_version,
        "kind": IMAGE_BUILDS.kind,
        "metadata": {"name": name},
        "spec": {"source": {"containerfile": CONTAINERFILE.format(base=base, name=name)}, "output": output, **spec},
    }
    await client.create(IMAGE_BUILDS, document, namespace=namespace)


async def runs(client: Client, namespace: str) -> dict[str, Document]:
    """The newest run of each ImageBuild that has one."""
    found = await client.list(IMAGE_BUILD_RUNS, namespace=namespace, type=Unstructured)
    return {each.document["metadata"]["ownerReferences"][0]["name"]: each.document for each in found.items}


async def ended(client: Client, namespace: str, *names: str) -> dict[str, Document]:
    """The runs of these ImageBuilds once all have ended."""
    found: dict[str, Document] = {}

    async def are_ended() -> bool:
        found.update(await runs(client, namespace))
        return all(found.get(name, {}).get("status", {}).get("phase") in ENDED for name in names)

    def told() -> str:
        return json.dumps({name: each.get("status") for name, each in found.items()})

    await eventually(are_ended, told, BUILD_SECONDS)
    return {name: found[name] for name in names}


def outcome(run: Mapping[str, Any]) -> tuple[str, str, int]:
    """Phase, and reason and attempts of its only architecture."""
    (architecture,) = run["status"]["architectures"]
    return run["status"]["phase"], architecture.get("reason", ""), architecture.get("attempts", 0)


async def condition(client: Client, namespace: str, name: str, kind: str) -> Document:
    document = (await client.get(IMAGE_BUILDS, name, namespace=namespace, type=Unstructured)).document
    return next((each for each in document.get("status", {}).get("conditions", ()) if each["type"] == kind), {})


async def until_refused(client: Client, namespace: str, name: str, reason: str) -> str:
    """Wait until nothing is started for this reason; the message."""

    seen: Document = {}

    async def is_refused() -> bool:
        seen.update(await condition(client, namespace, name, "InputsValid"))
        return seen.get("reason") == reason

    await eventually(is_refused, lambda: f"{name} is not refused with {reason}: {seen}")
    assert name not in await runs(client, namespace)
    return str((await condition(client, namespace, name, "InputsValid"))["message"])


async def allow_privileged(cluster: Sandbox, client: Client, *, allowed: bool) -> None:
    """As an administrator who changes the values of the installation."""
    values = operator.installation(cluster.layout, cluster.state.settings)
    builds = msgspec.structs.replace(values.builds, allow_privileged=allowed)
    wanted = objects.documents(msgspec.structs.replace(values, builds=builds))
    await apply.apply_all(client, wanted, await preflight.gather(client, wanted))

    async def is_rolled_out() -> bool:
        found = await client.get(DEPLOYMENTS, "polyarch-builder", namespace=DEFAULT_NAMESPACE, type=Unstructured)
        spec, status = found.document["spec"], found.status
        told = "--allow-privileged-builds" in json.dumps(spec["template"])
        counts = {status.get(each) for each in ("replicas", "updatedReplicas", "availableReplicas")}
        return told == allowed and status.get("observedGeneration") == found.metadata.generation and counts == {1}

    await eventually(is_rolled_out, "the builder is not rolled out")


@pytest.fixture
async def privileged(cluster: Sandbox, client: Client) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Lets the installation allow the profile Privileged, until the end of the test."""
    is_changed = False

    async def allow() -> None:
        nonlocal is_changed
        is_changed = True
        await allow_privileged(cluster, client, allowed=True)

    yield allow
    if is_changed:
        await allow_privileged(cluster, client, allowed=False)


async def test_each_profile_builds_with_builder_images_of_each_kind(
    cluster: Sandbox,
    client: Client,
    namespace: str,
    base: str,
    privileged: Callable[[], Awaitable[None]],
    tmp_path: Path,
) -> None:
    kinds = {"setuid": "setuid newuidmap", "upstream": "file capabilities, user and subordinate ids"}
    for name, kind in kinds.items():
        await push(cluster, f"{REGISTRY}/builders/{name}:1", builder(tmp_path / name, kind))
        image = {"image": f"{REGISTRY}/builders/{name}:1", "securityProfile": "Rootless"}
        await build(client, namespace, name, base=base, builder=image)
    await build(client, namespace, "auto", base=base)
    await build(client, namespace, "docker", base=base, output={"format": "Docker"})
    await build(client, namespace, "privileged", base=base, builder={"securityProfile": "Privileged"})
    await build(client, namespace, "userns", base=base, builder={"securityProfile": "UserNamespace"})
    assert "builds.allowPrivileged" in await until_refused(client, namespace, "privileged", "ProfileForbidden")
    # containerd before 2.0 has no user namespaces of pods; with a newer one the build is one of those that succeed.
    if await has_user_namespaces(client):
        kinds["userns"] = ""
    else:
        said = await until_refused(client, namespace, "userns", "UserNamespaceUnavailable")
        assert "reports no user namespaces" in said
    built = await ended(client, namespace, *kinds, "auto", "docker")
    assert {outcome(each) for each in built.values()} == {("Succeeded", "", 1)}
    await privileged()
    built |= await ended(client, namespace, "privileged")
    assert outcome(built["privileged"]) == ("Succeeded", "", 1)
    for name, each in built.items():
        container = {"name": "app", "image": each["status"]["result"]}
        await client.create(PODS, pod_document(name, container, restartPolicy="Never"), namespace=namespace)

    async def have_run() -> bool:
        found = [await pod_of(client, namespace, name) for name in built]
        return {each["status"].get("phase") for each in found} == {"Succeeded"}

    await eventually(have_run, "a built image does not run")


async def has_user_namespaces(client: Client) -> bool:
    found = await client.list(NODES, type=Unstructured)
    handlers = [each.status.get("runtimeHandlers") or () for each in found.items]
    return all(any((each.get("features") or {}).get("userNamespaces") for each in of_node) for of_node in handlers)


async def test_a_builder_image_that_lacks_something_ends_the_build_at_the_first_attempt(
    cluster: Sandbox, client: Client, namespace: str, base: str, tmp_path: Path
) -> None:
    lacking = {name: f"no {name}" for name in ("unshare", "buildah", "policy")}
    kinds = lacking | {"foreign": "buildah of another machine"}
    for name, kind in kinds.items():
        await push(cluster, f"{REGISTRY}/builders/{name}:1", builder(tmp_path / name, kind))
        image = {"image": f"{REGISTRY}/builders/{name}:1", "securityProfile": "Rootless"}
        await build(client, namespace, name, base=base, builder=image)
    found = await ended(client, namespace, *kinds)
    expected = ("Failed", "BuilderImageUnusable", 1)
    assert {name: outcome(each) for name, each in found.items()} == dict.fromkeys(kinds, expected)
    for name in lacking:
        (architecture,) = found[name]["status"]["architectures"]
        assert f"has no {'/etc/containers/policy.json' if name == 'policy' else name}" in architecture["message"]
    # The repaired image behind the same tag goes on when the builder looks it up again, or is asked to.
    await push(cluster, f"{REGISTRY}/builders/unshare:1", of_builder(tmp_path / "repaired"))
    change = {"spec": {"rebuild": {"token": "again"}}}
    await client.patch(IMAGE_BUILDS, "unshare", MergePatch(change), namespace=namespace)

    async def is_built() -> bool:
        return (await condition(client, namespace, "unshare", "Ready")).get("status") == "True"

    await eventually(is_built, "the repaired builder image is not used", BUILD_SECONDS)


@pytest.mark.parametrize("scheme", ["bearer", "basic"])
async def test_private_registries_are_used_with_the_right_credentials_only(
    cluster: Sandbox, client: Client, namespace: str, scheme: str
) -> None:
    private = f"{REGISTRY}/{namespace}/private"
    access = {"users": {"builder": "right"}, "scheme": scheme, "private": True}
    local = private.replace(REGISTRY, cluster.registry.address)
    described = {"platforms": [f"linux/{host_architecture()}"], **access}
    names = [f"{local}/{each}:1" for each in ("base", "good", "nobody", "unknown", "anonymous", "refused")]
    await cluster.registry.seed(dict.fromkeys(names, described))
    await push(cluster, f"{private}/base:1", shell())
    for name, password in (("right", "right"), ("wrong", "wrong")):
        token = base64.b64encode(f"builder:{password}".encode()).decode()
        document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": json.dumps({"auths": {REGISTRY: {"auth": token}}})},
        }
        await client.create(SECRETS, document, namespace=namespace)
    binding = {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": ROLE_BINDINGS.kind,
        "metadata": {"name": "polyarch-builds"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "polyarch-builds"},
        "subjects": [{"kind": "ServiceAccount", "name": "polyarch-builder", "namespace": DEFAULT_NAMESPACE}],
    }
    await client.create(ROLE_BINDINGS, binding, namespace=namespace)
    right, wrong = {"name": "right"}, {"name": "wrong"}
    for name, pull, push_secret in (
        ("good", [wrong, right], right),
        ("nobody", [wrong], wrong),
        ("unknown", [wrong], right),
        ("anonymous", [], right),
        ("refused", [right], wrong),
    ):
        output = {"repository": f"{private}/{name}", "pullSecrets": pull}
        await build(client, namespace, name, base=f"{private}/base:1", output={**output, "pushSecret": push_secret})
    await until_refused(client, namespace, "nobody", "BaseImageUnauthorized")
    found = await ended(client, namespace, "good", "unknown", "anonymous", "refused")
    for name in ("unknown", "anonymous"):  # the builder may read with the push secret, and its pod may not
        assert outcome(found[name]) == ("Failed", "BaseImageUnauthorized", 1)
    assert outcome(found["good"]) == ("Succeeded", "", 1)
    assert outcome(found["refused"]) == ("Failed", "PushDenied", 1)
    container = {"name": "app", "image": found["good"]["status"]["result"]}
    pod = pod_document("good", container, restartPolicy="Never", imagePullSecrets=[right])
    await client.create(PODS, pod, namespace=namespace)

    async def has_run() -> bool:
        return (await pod_of(client, namespace, "good"))["status"].get("phase") == "Succeeded"

    await eventually(has_run, "the built image is not pulled")
