"""The commands of the guide, as they stand there, on a cluster.

Which blocks those are, ``guide_pages`` says. In the environment, ``REGISTRY`` is the address of a registry that takes
pushes.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import msgspec
import pytest
from archaware_left_behind import archaware_taken_over, leave_archaware_behind
from guide_pages import SECONDS, follow
from installing import PROJECT
from left_behind import Kubectl, leave_behind, taken_over
from numa_left_behind import leave_numa_behind, numa_taken_over

from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.state import Settings


def nothing(kubectl: Kubectl) -> None:
    pass


PAGES: dict[str, tuple[Callable[[Kubectl], None], Callable[[Kubectl], None]]] = {
    "installation.md": (nothing, nothing),
    "helm.md": (nothing, nothing),
    "kustomize.md": (nothing, nothing),
    "olm.md": (nothing, nothing),
    "migration.md": (leave_behind, taken_over),
    "taints.md": (nothing, nothing),
    "archaware.md": (leave_archaware_behind, archaware_taken_over),
    "numa.md": (nothing, nothing),
    "numa-scheduling.md": (nothing, nothing),
    "numa-migration.md": (leave_numa_behind, numa_taken_over),
    "builds.md": (nothing, nothing),
}
"""With what there has to be in the cluster before, and what has to be so afterwards."""
MIXED: Final = Settings(nodes={"amd64": 1, "arm64": 1}, polyarch=False)
CELLED: Final = Settings(nodes={"amd64": 2}, numa=NumaLayout.parse("2x8"), polyarch=False)
WIDE: Final = msgspec.structs.replace(CELLED, numa=NumaLayout.parse("2x16"))
CLUSTERS: Final = {"numa.md": CELLED, "numa-scheduling.md": WIDE, "numa-migration.md": CELLED}
"""Of pages that need another one than :data:`MIXED`."""
FOLLOWED: Final = {
    "builds.md": ("builds-anywhere.md", "builds-ci.md", "security.md"),
    "taints.md": (
        "inspect-images.md",
        "lint.md",
        "report.md",
        "first-steps.md",
        "explain.md",
        "placement.md",
        "image-indexes.md",
        "symptoms.md",  # its last command switches placement off
    ),
}
"""Pages that go on with the cluster and the files of another one."""
ASKING: Final = (*FOLLOWED["taints.md"], "archaware.md")
"""Pages whose commands ask registries by themselves: here that of the sandbox."""


@pytest.fixture
async def guide_sandbox(page: str) -> AsyncIterator[Sandbox]:
    settings = msgspec.structs.replace(CLUSTERS.get(page, MIXED), name=f"guide-{os.getpid()}")
    sandbox = await Sandbox.start(settings, owner=os.getpid())
    yield sandbox
    await sandbox.delete()  # the next page begins with a cluster that has never seen polyarch


@pytest.mark.req("IN-041")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES)
async def test_the_commands_of_the_page_do_what_it_says(
    page: str, guide_sandbox: Sandbox, peer: Callable[[str], str], tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(peer("kubectl"))
    (programs / "helm").symlink_to(peer("helm-4"))
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("deploy", "tools"):  # the pages are read in a checkout
        (folder / name).symlink_to(PROJECT / name)
    (folder / "values.yaml").symlink_to(guide_sandbox.folder.values)
    (folder / "registries.conf").symlink_to(guide_sandbox.registries_conf)
    (folder / "host").symlink_to(guide_sandbox.folder.root / "nodes" / "amd64-1" / "host")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("POLYARCH_")},
        "KUBECONFIG": str(guide_sandbox.kubeconfig),
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "NO_COLOR": "1",
        "REGISTRY": guide_sandbox.registry.address,
    }

    def kubectl(*arguments: str, stdin: str = "") -> str:
        command = [peer("kubectl"), *arguments]
        return subprocess.run(
            command, input=stdin, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=SECONDS
        ).stdout

    before, afterwards = PAGES[page]
    await asyncio.to_thread(before, kubectl)
    run = 0
    for each in (page, *FOLLOWED.get(page, ())):
        there = environment | (
            {"CONTAINERS_REGISTRIES_CONF": str(guide_sandbox.registries_conf)} if each in ASKING else {}
        )
        run += await follow(each, folder, there)
    assert run
    await asyncio.to_thread(afterwards, kubectl)
