"""An image is built for every architecture of the cluster; then, after a change for one of them, for that one alone.

The nodes play what builds images; the Jobs, the scheduler, the pushes and the registry are real. Component builds is
installed for it, and stays: the build can be tried further.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from polyarch.builds.api.resources import ImageBuild, ImageBuildRun
from polyarch.builds.names import IMAGE_BUILD_RUNS, IMAGE_BUILDS
from polyarch.kube.client import Client
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import NAMESPACES
from polyarch.objects import Condition
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.document import DemoBuild
from polyarch.sandbox.errors import ProcessFailed
from polyarch.sandbox.progress import Silent
from polyarch.sandbox.tasks import until

NAMESPACE: Final = "demo-builds"
NAME: Final = "shop"
SECONDS: Final = 180.0
LOOK_SECONDS: Final = 0.2
BASE: Final = "docker.io/library/nginx:1.27"
CHANGED: Final = "arm64"
"""The architecture that gets a build argument of its own, where there are nodes of it."""


async def build(sandbox: Sandbox, client: Client) -> DemoBuild:
    """Both builds. polyarch must be installed; when this returns, component builds is, too."""
    wanted = msgspec.structs.replace(sandbox.state.settings, builds=True)
    await Sandbox.start(wanted, home=sandbox.folder.root.parent, progress=Silent())
    architectures = sorted({architecture for _, architecture, _ in await sandbox.nodes()})
    changed = CHANGED if CHANGED in architectures else architectures[0]
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    begun = time.monotonic()
    made = await client.create(
        IMAGE_BUILDS, document(f"{sandbox.registry.address}/{NAMESPACE}/{NAME}"), namespace=NAMESPACE, type=ImageBuild
    )
    first = await _published(client, made.metadata.generation)
    built = time.monotonic()
    override = {"architecture": changed, "buildArgs": {"TUNED": "yes"}}
    patch = MergePatch({"spec": {"source": {"overrides": [override]}}})
    patched = await client.patch(IMAGE_BUILDS, NAME, patch, namespace=NAMESPACE, type=ImageBuild)
    second = await _published(client, patched.metadata.generation)
    return DemoBuild(
        image=second.status.image,
        built=_in_phase(await _run_of(client, first), "Built"),
        seconds=round(built - begun, 1),
        built_again=_in_phase(again := await _run_of(client, second), "Built"),
        reused=_in_phase(again, "Reused"),
        seconds_again=round(time.monotonic() - built, 1),
    )


def document(repository: str) -> dict[str, Any]:
    """The ImageBuild."""
    containerfile = f'FROM {BASE}\nARG TARGETARCH\nARG TUNED=no\nRUN echo "$TARGETARCH, tuned: $TUNED" > /about\n'
    return {
        "apiVersion": IMAGE_BUILDS.api_version,
        "kind": IMAGE_BUILDS.kind,
        "metadata": {"name": NAME},
        "spec": {"source": {"containerfile": containerfile}, "output": {"repository": repository, "tags": ["latest"]}},
    }


async def _published(client: Client, generation: int) -> ImageBuild:
    """The build when this generation of it is published. Raises ProcessFailed if it is not."""
    found: list[ImageBuild] = []

    async def is_over() -> bool:
        found[:] = [await client.get(IMAGE_BUILDS, NAME, namespace=NAMESPACE, type=ImageBuild)]
        return is_published(found[0], generation) or bool(problem_of(found[0]))

    await until(is_over, seconds=SECONDS, every=LOOK_SECONDS)
    if not is_published(found[0], generation):
        problem = problem_of(found[0]) or f"not published after {SECONDS:.0f} s"
        raise ProcessFailed(f"image build {NAMESPACE}/{NAME}: {problem}; see the logs of polyarch's pods")
    return found[0]


def is_published(build: ImageBuild, generation: int) -> bool:
    """Whether the image of this generation is the one that is published. Pure."""
    conditions = _conditions(build)
    ready, progressing = conditions.get("Ready"), conditions.get("Progressing")
    is_seen = build.status.observed_generation >= generation
    return is_seen and (ready is not None and ready.reason == "Published") and _is(progressing, "False")


def problem_of(build: ImageBuild) -> str:
    """Why it will not be published by itself; empty if it may be. Pure."""
    conditions = _conditions(build)
    wrong, degraded = conditions.get("InputsValid"), conditions.get("Degraded")
    if wrong is not None and _is(wrong, "False"):
        return wrong.message
    return degraded.message if degraded is not None and _is(degraded, "True") else ""


def _conditions(build: ImageBuild) -> Mapping[str, Condition]:
    return {each.type: each for each in build.status.conditions or ()}


def _is(condition: Condition | None, status: str) -> bool:
    return condition is not None and condition.status == status


async def _run_of(client: Client, build: ImageBuild) -> ImageBuildRun:
    return await client.get(IMAGE_BUILD_RUNS, build.status.current_run, namespace=NAMESPACE, type=ImageBuildRun)


def _in_phase(run: ImageBuildRun, phase: str) -> list[str]:
    return [each.architecture for each in run.status.architectures or () if each.phase == phase]
