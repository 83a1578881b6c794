"""Names of builds and runs for a shell that completes them, read from the cluster that the command line names.

Nobody waits for a completion: what does not answer at once, or refuses, gives none, and nothing is said about it."""

import asyncio
from collections.abc import Mapping
from typing import Final

from polyarch.builds.api.resources import ImageBuild, ImageBuildRun
from polyarch.builds.names import IMAGE_BUILD_RUNS, IMAGE_BUILDS
from polyarch.cli.output.messages import errors_only
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import ConfigurationError, KubernetesError
from polyarch.kube.settings import Configuration

PATIENCE: Final = 2.0
"""Seconds for an answer."""
Names = list[tuple[str, str]]
"""Each with its meaning."""


def builds(given: Mapping[str, str]) -> Names:
    """Names of ImageBuilds, each with its summary. ``given``: the options of the command line, by their long names."""
    return _asked(given, runs=False)


def runs(given: Mapping[str, str]) -> Names:
    """Names of the runs of the build that is the command's argument, or of all, each with its phase."""
    return _asked(given, runs=True)


def _asked(given: Mapping[str, str], *, runs: bool) -> Names:
    errors_only()
    try:
        access = config.load(given.get("--kubeconfig"), given.get("--kube-context"))
        namespace = given.get("--namespace") or access.namespace or "default"
        return asyncio.run(_read(access, namespace, given.get("NAME", ""), runs=runs))
    except (ConfigurationError, KubernetesError, TimeoutError):
        return []


async def _read(access: Configuration, namespace: str, build: str, *, runs: bool) -> Names:
    async with asyncio.timeout(PATIENCE), Client(access, role="cli") as client:
        if not runs:
            found = await client.list(IMAGE_BUILDS, namespace=namespace, type=ImageBuild)
            return sorted((each.metadata.name, each.status.summary) for each in found.items)
        made = await client.list(IMAGE_BUILD_RUNS, namespace=namespace, type=ImageBuildRun)
        own = (each for each in made.items if build in ("", each.spec.image_build.name))
        return sorted((each.metadata.name, each.status.phase) for each in own)
