"""Build pods with real buildah and git: the profile Rootless, and contexts from a Git server.

No image is pulled and no shell is needed: what a RUN executes is the program that tests emulators.
"""

import asyncio
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from build_orders import identity, order
from build_pod import UNAVAILABLE, BuildPod, Built
from git_server import PASSWORD, USER, served

from polyarch.builds.jobs.script import emulation_check

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the ids of a user namespace are root's to give"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the program is one for amd64"),
]

TEXT = 'FROM scratch\nCOPY start notes /\nRUN ["/start"]\n'
REPOSITORY = "shop.git"
MISSING = "0" * 40


class Repository(NamedTuple):
    """``shop.git``: its folder, and the commit before its last one."""

    folder: Path
    commit: str


@pytest.fixture
def repository(tmp_path: Path, peer: Callable[[str], str]) -> Repository:
    peer("buildah")
    for needed in ("git", "unshare", "nsenter", "setpriv"):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    work, bare = tmp_path / "work", tmp_path / "served" / REPOSITORY
    (work / "src").mkdir(parents=True)
    program = work / "src" / "start"
    program.write_bytes(emulation_check("amd64") or b"")
    program.chmod(0o755)

    def git(*words: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.com")
        done = subprocess.run(["git", "-C", str(work), *who, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "--quiet")
    commits = []
    for notes in ("first", "second"):
        (work / "src" / "notes").write_text(notes)
        git("add", ".")
        git("commit", "--quiet", "-m", notes)
        commits.append(git("rev-parse", "HEAD"))
    git("clone", "--quiet", "--bare", ".", str(bare))
    subprocess.run(["git", "-C", str(bare), "update-server-info"], check=True)
    return Repository(bare.parent, commits[0])


async def built(pod: BuildPod, profile: str, url: str, commit: str, *, password: str = "", text: str = TEXT) -> Built:
    git: dict[str, Any] = {"url": url, "commit": commit, "directory": "src"}
    secrets = {"git/username": USER, "git/password": password} if password else {}
    if password:
        git["credentials"] = {"name": "git"}
    asked = order(
        {"source": {"context": {"type": "Git", "git": git}}},
        architecture="amd64",
        profile=profile,
        containerfile=text,
        metadata=identity(record=""),
    )
    found = await asyncio.to_thread(pod.build, asked, secrets=secrets)
    if found.code == UNAVAILABLE:
        pytest.skip(f"this kernel gives a process no mounts of its own: {found.output}")
    return found


def layers(found: Built) -> bytes:
    """Everything of an image, as buildah wrote it: blobs compressed or not."""
    listed = subprocess.run(
        ["sh", "-c", 'for each in "$0"/blobs/sha256/*; do gzip -dcf "$each"; done', str(found.layout)],
        capture_output=True,
        check=True,
    )
    return listed.stdout


@pytest.mark.req("BD-144", "BD-151")
async def test_a_rootless_pod_builds_from_a_git_server_that_wants_a_password(
    repository: Repository, open_folder: Path
) -> None:
    """With two capabilities and volumes that belong to root; ``push`` runs as another user and reads it all."""
    with served(repository.folder, REPOSITORY) as server:
        found = await built(BuildPod(open_folder), "Rootless", server.url, repository.commit, password=PASSWORD)
    assert found.code == 0, found.output
    assert b"first" in layers(found)
    assert b"second" not in layers(found), "it is the commit that counts, not the branch"
    assert PASSWORD not in found.output
    assert server.refused, "git sends a password only where it is asked for"
    modes = [each.stat().st_mode & 0o777 for each in (found.layout, *found.layout.rglob("*"))]
    assert all(mode & 0o004 for mode in modes), [oct(mode) for mode in modes]


@pytest.mark.req("BD-147")
async def test_a_commit_that_is_not_there_ends_a_rootless_build_for_good(
    repository: Repository, open_folder: Path
) -> None:
    """Its user can write the termination message, which the kubelet made."""
    with served(repository.folder, REPOSITORY) as server:
        found = await built(BuildPod(open_folder), "Rootless", server.url, MISSING, password=PASSWORD)
    assert found.code == 46, found.output
    assert json.loads(found.message)["reason"] == "InputMissing"
    assert "STEP" not in found.output


@pytest.mark.req("BD-147")
async def test_a_file_that_the_commit_does_not_have_ends_a_rootless_build_for_good(
    repository: Repository, open_folder: Path
) -> None:
    """A rootless buildah runs another one in a user namespace, which is the one that says why."""
    with served(repository.folder, REPOSITORY) as server:
        text = f"{TEXT}COPY start forgotten /\n"
        commit, pod = repository.commit, BuildPod(open_folder)
        found = await built(pod, "Rootless", server.url, commit, password=PASSWORD, text=text)
    assert found.code == 42, found.output
    said = json.loads(found.message)
    assert said["reason"] == "ContainerfileInvalid"
    assert "COPY start forgotten /" in said["message"]
    assert '"/forgotten": no such file or directory' in said["message"]


@pytest.mark.req("BD-151")
@pytest.mark.parametrize("capability", ["SETUID", "SETGID"])
async def test_a_rootless_pod_that_lacks_a_capability_ends_for_good(
    repository: Repository, open_folder: Path, capability: str
) -> None:
    """As where a policy took it away: the kernel refuses the map, and nothing of the user runs."""
    asked = order(architecture="amd64", profile="Rootless", containerfile=TEXT, metadata=identity(record=""))
    found = await asyncio.to_thread(BuildPod(open_folder).build, asked, without=capability)
    assert found.code == 40, found.output
    assert json.loads(found.message)["reason"] == "UserNamespaceUnavailable"
    assert "STEP" not in found.output


@pytest.mark.req("BD-146")
async def test_a_git_context_comes_from_plain_files_as_well(repository: Repository, open_folder: Path) -> None:
    """Such a server cannot send one commit: everything is fetched, and the commit taken from it."""
    with served(repository.folder, REPOSITORY, plain=True) as server:
        found = await built(BuildPod(open_folder), "UserNamespace", server.url, repository.commit)
    assert found.code == 0, found.output
    assert b"first" in layers(found)


@pytest.mark.req("BD-147")
async def test_a_wrong_password_ends_the_build_for_good(repository: Repository, open_folder: Path) -> None:
    with served(repository.folder, REPOSITORY) as server:
        found = await built(BuildPod(open_folder), "UserNamespace", server.url, repository.commit, password="wrong")
    assert found.code == 46, found.output
    assert "Authentication failed" in json.loads(found.message)["message"]
