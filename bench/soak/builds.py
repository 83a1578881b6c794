"""ImageBuilds that change, and some that come and go; at the end each is published and whole, nothing is left over."""

import asyncio
import contextlib
import itertools
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
from registry_reader import Reader

from bench import load
from bench.soak.stage import BUILT, Stage
from bench.soak.trial import AWAY, Trial
from polyarch.builds import names
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CONFIGMAPS, JOBS, PODS

SPACE: Final = "soak-builds"
KEPT: Final = {"one": ("amd64", "arm64"), "two": ("arm64", "s390x"), "three": ("amd64", "ppc64le")}
PASSING: Final = ("amd64",)
PAUSE: Final = 12.0
SETTLE_SECONDS: Final = 300.0
ORPHAN_SECONDS: Final = 120.0
BASE: Final = "docker.io/library/nginx:1.27"
Json = dict[str, Any]


class Builds:
    """Those that stay by name and architectures, and one at a time that passes."""

    def __init__(self, trial: Trial, stage: Stage) -> None:
        self._trial, self._stage, self._client = trial, stage, trial.client
        self._passing = ""

    async def prepare(self) -> None:
        await load.make_namespace(self._client, SPACE)
        for name, architectures in KEPT.items():
            await self._client.create(names.IMAGE_BUILDS, self._document(name, architectures), namespace=SPACE)

    def _document(self, name: str, architectures: tuple[str, ...]) -> Json:
        return {
            "apiVersion": names.IMAGE_BUILDS.api_version,
            "kind": names.IMAGE_BUILDS.kind,
            "metadata": {"name": name},
            "spec": {
                "source": {"containerfile": f"FROM {BASE}\nARG VERSION=0\nRUN make {name}\n"},
                "architectures": {"mode": "Explicit", "list": list(architectures)},
                "output": {"repository": f"{self._stage.hosts[BUILT].address}/{SPACE}/{name}", "tags": ["latest"]},
            },
        }

    async def churn(self) -> None:
        for number in itertools.count():
            await asyncio.sleep(PAUSE)
            if not self._trial.churning:
                return
            if number % 4 == 3:
                await self._pass_by(number)
            else:
                await self._change(self._trial.dice.choice(sorted(KEPT)), number)

    async def _change(self, name: str, number: int) -> None:
        """All of it is built again, or only the first architecture."""
        source: Json = {"buildArgs": {"VERSION": str(number)}}
        if number % 2:
            source = {"overrides": [{"architecture": KEPT[name][0], "buildArgs": {"TUNED": str(number)}}]}
        request = self._client.patch(
            names.IMAGE_BUILDS, name, MergePatch({"spec": {"source": source}}), namespace=SPACE
        )
        await self._trial.tried("ImageBuilds changed", request)

    async def _pass_by(self, number: int) -> None:
        """A new one, and the one before it goes, whatever it is doing."""
        name = f"passing-{number}"
        document = self._document(name, PASSING)
        made = await self._trial.tried(
            "ImageBuilds made", self._client.create(names.IMAGE_BUILDS, document, namespace=SPACE)
        )
        if self._passing:
            with contextlib.suppress(NotFound, *AWAY):
                await self._client.delete(names.IMAGE_BUILDS, self._passing, namespace=SPACE)
                self._trial.counts["ImageBuilds deleted"] += 1
        self._passing = name if made else self._passing

    # -- the end -------------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Each is published as it was asked for last, every part of its index is there, and no Job or ConfigMap of a
        Run that has ended."""
        await self._trial.cleared("stuck", self._stuck, seconds=SETTLE_SECONDS)
        await self._trial.cleared("orphan", self._orphans, seconds=ORPHAN_SECONDS)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            reader = Reader(session, self._stage.sandbox.registry.address)
            for name, architectures in KEPT.items():
                await self._check(reader, name, architectures)

    async def _check(self, reader: Reader, name: str, architectures: tuple[str, ...]) -> None:
        try:
            digest, platforms = await reader.whole(f"{SPACE}/{name}", "latest")
        except AssertionError as error:
            self._trial.problem("wrong", f"image of ImageBuild {name} is not whole: {error}")
            return
        if sorted(platforms) != sorted(f"linux/{each}" for each in architectures):
            self._trial.problem("wrong", f"image of ImageBuild {name} is for {platforms}, not for {architectures}")
        found = await self._client.get(names.IMAGE_BUILDS, name, namespace=SPACE)
        if not str(found["status"].get("image", "")).endswith(digest):
            self._trial.problem(
                "wrong", f"ImageBuild {name} says {found['status'].get('image')}, its tag names {digest}"
            )

    async def _stuck(self) -> list[str]:
        stuck = []
        for found in (await self._client.list(names.IMAGE_BUILDS, namespace=SPACE)).items:
            status = found.get("status") or {}
            conditions = {each["type"]: each for each in status.get("conditions") or ()}
            ready = conditions.get("Ready", {}).get("reason") == "Published"
            known = status.get("observedGeneration") == found["metadata"]["generation"]
            if not (ready and known) or status.get("activeRun") or "deletionTimestamp" in found["metadata"]:
                told = {name: f"{each['status']} {each['reason']}" for name, each in conditions.items()}
                stuck.append(f"ImageBuild {found['metadata']['name']}: {told}, run {status.get('activeRun')}")
        return stuck

    async def _orphans(self) -> list[str]:
        """Nothing is built any more: so no Job, no pod of one, and ConfigMaps of Runs that are there."""
        runs = (await self._client.list(names.IMAGE_BUILD_RUNS, namespace=SPACE)).items
        builds = {each["metadata"]["uid"] for each in (await self._client.list(names.IMAGE_BUILDS)).items}
        known = {each["metadata"]["uid"] for each in runs}
        found = [f"ImageBuildRun {_name(each)}" for each in runs if _owners(each).isdisjoint(builds)]
        found += [f"Job {_name(each)}" for each in (await self._client.list(JOBS, namespace=SPACE)).items]
        maps = await self._client.list(CONFIGMAPS, namespace=SPACE, label_selector=names.RUN_LABEL)
        found += [f"ConfigMap {_name(each)}" for each in maps.items if _owners(each).isdisjoint(known | builds)]
        pods = await self._client.list(PODS, namespace=SPACE)
        return found + [f"pod {_name(each)}" for each in pods.items]


def _name(document: Mapping[str, Any]) -> str:
    return str(document["metadata"]["name"])


def _owners(document: Mapping[str, Any]) -> set[str]:
    return {each["uid"] for each in document["metadata"].get("ownerReferences") or ()}
