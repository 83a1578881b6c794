"""Names of builds and runs as a shell completes them."""

import asyncio
import json
from pathlib import Path

import pytest
from scripted_server import ScriptedServer, listing, serving, status

from polyarch.cli.app import app
from polyarch.cli.completion import completions

pytestmark = pytest.mark.req("BD-300")

BUILDS = listing(
    {"metadata": {"name": "shop"}, "status": {"summary": "2/2"}},
    {"metadata": {"name": "admin"}, "status": {"summary": "1/2 arm64: BuildFailed"}},
)
RUNS = listing(
    {"metadata": {"name": "shop-1"}, "spec": {"imageBuild": {"name": "shop"}}, "status": {"phase": "Succeeded"}},
    {"metadata": {"name": "admin-1"}, "spec": {"imageBuild": {"name": "admin"}}, "status": {"phase": "Failed"}},
)


@pytest.fixture
async def api():
    async with serving() as api:
        yield api


async def complete(api: ScriptedServer, folder: Path, *words: str) -> list[tuple[str, str]]:
    """What a shell is told, with the cluster's kubeconfig on the command line."""
    file = folder / "kubeconfig"
    context = {"cluster": "c", "user": "u", "namespace": "home"}
    file.write_text(
        json.dumps({
            "clusters": [{"name": "c", "cluster": {"server": api.url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": context}],
            "current-context": "c",
        })
    )  # fmt: skip
    *before, current = words
    found = await asyncio.to_thread(completions, app, [*before, "--kubeconfig", str(file), current])
    return list(found.values)


@pytest.mark.req("BD-303")
@pytest.mark.parametrize("command", ["run", "plan", "status", "logs"])
async def test_names_come_with_how_the_build_is(api: ScriptedServer, tmp_path: Path, command: str) -> None:
    api.script(BUILDS)
    assert await complete(api, tmp_path, "build", command, "") == [("admin", "1/2 arm64: BuildFailed"), ("shop", "2/2")]
    assert api.requests[0].path.endswith("/namespaces/home/imagebuilds")


@pytest.mark.req("BD-303")
async def test_of_the_namespace_of_the_command_line(api: ScriptedServer, tmp_path: Path) -> None:
    api.script(BUILDS)
    assert await complete(api, tmp_path, "build", "status", "-n", "team", "s") == [("shop", "2/2")]
    assert api.requests[0].path.endswith("/namespaces/team/imagebuilds")


@pytest.mark.req("BD-304")
async def test_runs_are_those_of_the_build(api: ScriptedServer, tmp_path: Path) -> None:
    api.script(RUNS, RUNS)
    assert await complete(api, tmp_path, "build", "logs", "shop", "--namespace=team", "--run=") == [
        ("shop-1", "Succeeded")
    ]
    assert api.requests[0].path.endswith("/namespaces/team/imagebuildruns")
    assert [name for name, _ in await complete(api, tmp_path, "build", "logs", "--run=")] == ["admin-1", "shop-1"]


async def test_a_cluster_that_refuses_completes_nothing(api: ScriptedServer, tmp_path: Path) -> None:
    api.otherwise = status(403, "Forbidden", "imagebuilds is forbidden")
    assert await complete(api, tmp_path, "build", "status", "") == []


def test_no_cluster_completes_nothing(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    assert completions(app, ["build", "status", "--kubeconfig", missing, ""]).values == []
