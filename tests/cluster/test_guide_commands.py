"""The commands of the guide, as they stand there, on a cluster (IN-041).

A block of a page is run if its info string says so (``console run``): every line that begins with ``$`` is a command,
and the lines after it are what it prints, where ``…`` stands for anything. A block with the name of a file
(``yaml policy.yaml``) is that file. The blocks of a page run one after another, as somebody would who reads it. In the
environment, ``REGISTRY`` is the address of a registry that takes pushes.
"""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pytest
from installing import PROJECT
from left_behind import Kubectl, leave_behind, taken_over
from numa_left_behind import leave_numa_behind, numa_taken_over

from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.kubelet_model.layout import Numa
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
    "numa.md": (nothing, nothing),
    "numa-scheduling.md": (nothing, nothing),
    "numa-migration.md": (leave_numa_behind, numa_taken_over),
    "builds.md": (nothing, nothing),
}
"""With what there has to be in the cluster before, and what has to be so afterwards."""
MIXED: Final = Settings(nodes={"amd64": 1, "arm64": 1}, polyarch=False)
CELLED: Final = Settings(nodes={"amd64": 2}, numa=Numa.parse("2x8"), polyarch=False)
WIDE: Final = msgspec.structs.replace(CELLED, numa=Numa.parse("2x16"))
CLUSTERS: Final = {"numa.md": CELLED, "numa-scheduling.md": WIDE, "numa-migration.md": CELLED}
"""Of pages that need another one than :data:`MIXED`."""
FOLLOWED: Final = {
    "builds.md": ("builds-anywhere.md", "builds-ci.md"),
    "taints.md": ("inspect-images.md", "lint.md", "report.md"),
}
"""Pages that go on with the cluster and the files of another one."""
ASKING: Final = FOLLOWED["taints.md"]
"""Pages whose commands ask registries by themselves: here that of the sandbox."""
CODE: Final = "echo $?"
"""A step that prints with which code the one before it has ended; any other has to end with 0."""
FILES: Final = ("yaml", "text", "html")
BLOCK = re.compile(r"^```(\w+) ([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANYTHING = "…"
SECONDS = 280


class Step(NamedTuple):
    """A command and what it prints, or a file and its content."""

    command: str
    expected: tuple[str, ...] = ()
    file: str = ""


def steps(page: str) -> Iterator[Step]:
    for language, said, content in BLOCK.findall(page):
        if language == "console" and said == "run":
            for part in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
                command, *expected = part.splitlines()
                yield Step(command, tuple(line for line in expected if line))
        elif language in FILES:
            yield Step(content, file=said)


def differs(expected: tuple[str, ...], printed: list[str]) -> str | None:
    """The first expected line that is not printed where it should be; None if all are."""
    rest = iter(printed)
    for line in expected:
        if line == ANYTHING:
            continue
        parts = [re.escape(part.strip()) for part in line.split(ANYTHING)]
        pattern = re.compile(r".*?".join(r"\s+".join(part.split(r"\ ")) for part in parts))
        if not any(pattern.fullmatch(each.strip()) for each in rest):
            return line
    return None


@pytest.fixture
async def guide_sandbox(page: str) -> AsyncIterator[Sandbox]:
    settings = msgspec.structs.replace(CLUSTERS.get(page, MIXED), name=f"guide-{os.getpid()}")
    sandbox = await Sandbox.start(settings, owner=os.getpid())
    yield sandbox
    await sandbox.delete()  # the next page begins with a cluster that has never seen polyarch


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES)
async def test_in_041_the_commands_of_the_page_do_what_it_says(
    page: str, guide_sandbox: Sandbox, peer: Callable[[str], str], tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(peer("kubectl"))
    (programs / "helm").symlink_to(peer("helm-4"))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "deploy").symlink_to(PROJECT / "deploy")
    (folder / "values.yaml").symlink_to(guide_sandbox.folder.values)
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
        run += await follow((PROJECT / "docs" / "guide" / each).read_text(encoding="utf-8"), folder, there)
    assert run
    await asyncio.to_thread(afterwards, kubectl)


async def follow(page: str, folder: Path, environment: dict[str, str]) -> int:
    """Does what the page says; returns how many commands that were."""
    run, done = 0, None
    for step, after in pairwise([*steps(page), Step("")]):
        if step.file:
            (folder / step.file).parent.mkdir(exist_ok=True)
            (folder / step.file).write_text(step.command)
            continue
        if step.command == CODE and done is not None:
            assert step.expected == (str(done.returncode),), f"$ {done.args[-1]}\n{done.stdout}"
            continue
        done = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-ec", step.command],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert done.returncode == 0 or after.command == CODE, f"$ {step.command}\n{done.stdout}"
        missing = differs(step.expected, done.stdout.splitlines())
        assert missing is None, f"$ {step.command}\nprinted\n{done.stdout}\nand not: {missing}"
        run += 1
    return run
