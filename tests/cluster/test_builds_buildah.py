"""Build pods with real buildah, a real registry and real emulation.

Nothing is installed here: where buildah, mmdebstrap or the emulator is not there, the tests are skipped by name, and in
continuous integration they fail instead.
"""

import asyncio
import json
import os
import platform
import secrets
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from build_orders import SETTINGS, identity, order
from build_pod import UNAVAILABLE, BuildPod, Built

from polyarch.builds.jobs import contract
from polyarch.builds.jobs.results import index_message, push_message
from polyarch.builds.jobs.spec import ArchitectureJobSpec, PulledImage
from polyarch.builds.registry import ChildImage, Publication
from polyarch.cli.build import context_archive
from polyarch.sandbox.cluster import Sandbox

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the ids of a user namespace are root's to give"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="arm64 is emulated on amd64 here"),
    pytest.mark.req("BD-148", "BD-178"),
]

BASE = "FROM scratch\nCOPY busybox /bin/busybox\nCOPY busybox /bin/sh\n"
COMMON = """\
ARG VERSION=1
FROM base.example.com/busybox:${VERSION} AS made
ARG TARGETARCH
RUN if [ "$TARGETARCH" = arm64 ]; then echo weak memory order; else echo strong memory order; fi > /kind
RUN /bin/busybox uname -m > /machine
FROM scratch
COPY --from=made /kind /machine /
"""
WRITTEN = ("base.example.com/busybox:${VERSION}", "base.example.com/busybox:1")


class BuildahWorld(NamedTuple):
    """What all builds of these tests share."""

    sandbox: Sandbox
    emulator: str
    shells: dict[str, Path]
    folder: Path
    bases: dict[str, str] = {}  # noqa: RUF012 - filled once, by the fixture

    def pod(self, *, flags: str = "F", emulator: bool = True) -> BuildPod:
        folder = self.folder / secrets.token_hex(4)
        folder.mkdir()
        return BuildPod(folder, emulator=self.emulator if emulator else "", flags=flags)

    @property
    def registries_conf(self) -> str:
        """The registry has no TLS, as one on loopback need not."""
        return f'[[registry]]\nlocation = "{self.sandbox.registry.address}"\ninsecure = true\n'

    def repository(self) -> str:
        return f"{self.sandbox.registry.address}/builds/{secrets.token_hex(4)}"

    def order(self, architecture: str, document: dict[str, Any] | None = None, **more: Any) -> ArchitectureJobSpec:
        images = [PulledImage(written=WRITTEN, pull=self.bases[architecture])] if architecture in self.bases else []
        settings = msgspec.structs.replace(SETTINGS, registries_conf=self.registries_conf)
        given = {"architecture": architecture, "host": "amd64", "containerfile": COMMON, "images": images}
        return order(document, **{**given, "settings": settings, "metadata": identity(record=""), **more})

    def push(self, built: Built, repository: str, architecture: str) -> contract.PushMessage:
        """The container ``push``, with the program and flags that its pod has."""
        flags = contract.push_arguments(
            repository=repository, architecture=architecture, tag=architecture, authenticated=False
        )
        text = self.run(*contract.PUSH_COMMAND[1:], *(self._moved(each, built) for each in flags))
        found = push_message(text, architecture=architecture)
        assert found is not None, text
        return found

    def run(self, *arguments: str) -> str:
        """Our own program, with the sandbox's registries; returns its termination message."""
        log = self.folder / secrets.token_hex(4)
        words = [f"--termination-log={log}" if each.startswith("--termination-log") else each for each in arguments]
        configuration = self.folder / "registries.conf"
        configuration.write_text(self.registries_conf)
        command = [sys.executable, "-m", "polyarch", *words, f"--registries-conf={configuration}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return log.read_text()

    def _moved(self, flag: str, built: Built) -> str:
        return f"--layout={built.layout}" if flag.startswith("--layout") else flag


@pytest.fixture(scope="module")
def shells(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Path]]:
    """Debian's static busybox of both architectures: downloaded, unpacked, not run."""
    made: dict[str, Path] = {}

    def provide(mmdebstrap: str) -> dict[str, Path]:
        if made:
            return made
        folder = tmp_path_factory.mktemp("shells")
        release = platform.freedesktop_os_release()["VERSION_CODENAME"]
        options = ["--quiet", "--variant=extract", "--include=busybox-static"]
        running = {
            each: subprocess.Popen(
                [mmdebstrap, *options, f"--architectures={each}", release, str(folder / f"{each}.tar")],
                stderr=subprocess.PIPE,
                text=True,
            )
            for each in ("amd64", "arm64")
        }
        for architecture, process in running.items():
            _, said = process.communicate(timeout=300)
            assert process.returncode == 0, said
            with tarfile.open(folder / f"{architecture}.tar") as archive:
                archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
                archive.extract("./bin/busybox", folder / architecture)
            made[architecture] = folder / architecture / "bin" / "busybox"
        return made

    return provide


@pytest.fixture
def world(
    sandbox: Sandbox,
    peer: Callable[[str], str],
    shells: Callable[[str], dict[str, Path]],
    open_folder: Path,
) -> BuildahWorld:
    """The bases are built and pushed as everything else is: by build pods."""
    peer("buildah")
    made = BuildahWorld(sandbox, peer("qemu-aarch64-static"), shells(peer("mmdebstrap")), open_folder, {})
    repository = made.repository()
    for architecture in ("amd64", "arm64"):
        asked = made.order(architecture, containerfile=BASE)
        built = made.pod().build(asked, {"busybox": made.shells[architecture]})
        if built.code == UNAVAILABLE:
            pytest.skip(f"this kernel gives a user namespace no mounts or no binfmt_misc of its own: {built.output}")
        assert built.code == 0, built.output
        made.bases[architecture] = f"{repository}@{made.push(built, repository, architecture).digest}"
    return made


def files(built: Built) -> dict[str, str]:
    """What the layers of an image hold."""
    found = {}
    for layer in document(built, document(built)["manifests"][0]["digest"])["layers"]:
        with tarfile.open(blob(built, layer["digest"])) as archive:
            for member in archive:
                if member.isfile():
                    content = archive.extractfile(member)
                    assert content is not None
                    found[member.name] = content.read().decode(errors="replace")
    return found


def blob(built: Built, digest: str) -> Path:
    return built.layout / "blobs" / "sha256" / digest.partition(":")[2]


def document(built: Built, digest: str = "") -> Any:
    return json.loads((blob(built, digest) if digest else built.layout / "index.json").read_bytes())


def digest_of(built: Built) -> str:
    return str(document(built)["manifests"][0]["digest"])


@pytest.mark.req("BD-392")
async def test_one_text_gives_each_architecture_its_own_content_reproducibly(world: BuildahWorld) -> None:
    """Twice each: amd64 natively, arm64 emulated; then pushed and joined in an index, by the pods' own programs."""
    digests: dict[str, str] = {}
    repository = world.repository()
    children = []
    for architecture, kind, machine in (
        ("amd64", "strong memory order", "x86_64"),
        ("arm64", "weak memory order", "aarch64"),
    ):
        first, second = [await asyncio.to_thread(world.pod().build, world.order(architecture)) for _ in range(2)]
        assert (first.code, second.code) == (0, 0), first.output + second.output
        assert files(first) == {"kind": f"{kind}\n", "machine": f"{machine}\n"}
        assert digest_of(first) == digest_of(second)
        digests[architecture] = digest_of(first)
        child = world.push(second, repository, architecture)
        assert (child.digest, child.architecture) == (digests[architecture], architecture)
        children.append(ChildImage(architecture=architecture, reference=f"{repository}@{child.digest}"))
    assert digests["amd64"] != digests["arm64"]
    path = world.folder / "index.json"
    asked = Publication(repository=repository, children=tuple(children), tags=("run",))
    path.write_bytes(msgspec.json.encode(asked))
    told = index_message(world.run(*contract.INDEX_COMMAND[1:], f"--document={path}", "--termination-log="))
    assert told is not None
    assert told.digest


@pytest.mark.req("BD-063", "BD-146")
async def test_what_is_only_copied_is_of_the_platform_that_is_named(world: BuildahWorld) -> None:
    """No emulator: nothing of the other architecture runs. A stage that nothing needs is not pulled either."""
    other, own = world.bases["arm64"], world.bases["amd64"]
    text = (
        "FROM nowhere.example.com/no:1 AS unused\n"
        "FROM --platform=linux/arm64 data.example.com/d:1 AS data\nWORKDIR /x\n"
        "FROM base.example.com/b:1\nCOPY --from=data /bin/busybox /other\n"
    )
    images = [
        PulledImage(written=("data.example.com/d:1",), pull=other),
        PulledImage(written=("base.example.com/b:1",), pull=own),
    ]
    asked = world.order("amd64", containerfile=text, images=images)
    built = await asyncio.to_thread(world.pod(emulator=False).build, asked)
    assert built.code == 0, built.output
    shell = world.shells["arm64"].read_bytes().decode(errors="replace")
    assert files(built)["other"] == shell


@pytest.mark.req("BD-147")
async def test_without_an_emulator_nothing_of_the_user_runs(world: BuildahWorld) -> None:
    for pod in (world.pod(emulator=False), world.pod(flags="")):
        built = await asyncio.to_thread(pod.build, world.order("arm64"))
        assert built.code == 41, built.output
        assert json.loads(built.message)["reason"] == "EmulatorMissing"
        assert "STEP" not in built.output


@pytest.mark.req("BD-147")
async def test_what_a_run_ends_with_is_never_the_status_of_the_container(world: BuildahWorld) -> None:
    text = f"FROM {WRITTEN[1]}\nRUN exit 42\n"
    built = await asyncio.to_thread(world.pod().build, world.order("amd64", containerfile=text))
    assert (built.code, built.message) == (1, "")
    assert "exit status 42" in built.output


@pytest.mark.req("BD-147")
async def test_what_the_context_does_not_have_is_not_tried_again(world: BuildahWorld) -> None:
    """What a RUN says meanwhile is shown. What another stage has not made this time, it may make the next."""
    ignored = world.folder / ".containerignore"
    ignored.write_text("ignored\n")
    given = {"ignored": world.shells["amd64"], ".containerignore": ignored}
    for copies, code in (
        ("COPY forgotten /", 42),
        ("ADD forgotten /", 42),
        ("COPY forgotten* /", 42),
        ("COPY ignored /", 42),
        ("COPY --from=0 forgotten /", 1),
    ):
        text = f"FROM {WRITTEN[1]}\nFROM {WRITTEN[1]}\nRUN echo said by a RUN >&2\n{copies}\n"
        built = await asyncio.to_thread(world.pod().build, world.order("amd64", containerfile=text), given)
        assert built.code == code, built.output
        said = json.loads(built.message or "{}")
        assert said.get("reason") == ("ContainerfileInvalid" if code == 42 else None)
        assert copies in said.get("message", copies)
        assert "said by a RUN\n" in built.output, built.output


@pytest.mark.req("BD-300")
def test_the_ignore_file_that_counts_is_the_one_that_buildah_reads(peer: Callable[[str], str], tmp_path: Path) -> None:
    """Whichever of them are there. Each leaves out the file that has its name behind a ``not``."""
    program = peer("buildah")
    policy = tmp_path / "policy.json"
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    stores = [f"--root={tmp_path}/root", f"--runroot={tmp_path}/run", "--storage-driver=vfs"]
    names = (".dockerignore", ".containerignore", "x.dockerignore", "x.containerignore")
    for number in range(2 ** len(names)):
        there = [name for place, name in enumerate(names) if number >> place & 1]
        context, out = tmp_path / f"{number}" / "context", tmp_path / f"{number}" / "out"
        context.mkdir(parents=True)
        (context / "x").write_text("FROM scratch\nCOPY . /\n")
        for name in names:
            (context / f"not{name}").write_text("")
        for name in there:
            (context / name).write_text(f"\ufeffnot{name}\r\n")
        flags = ["--isolation=chroot", f"--signature-policy={policy}", f"--file={context / 'x'}"]
        built = subprocess.run(
            [program, *stores, "build", *flags, f"--output=type=local,dest={out}", str(context)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert built.returncode == 0, built.stderr
        rules = context_archive.ignore_rules(context, str(context / "x"))
        ignored = [name for name in names if context_archive.is_ignored(f"not{name}", rules.patterns)]
        assert ignored == [name for name in names if not (out / f"not{name}").exists()], there


@pytest.mark.req("BD-149")
async def test_user_code_cannot_write_the_message(world: BuildahWorld) -> None:
    """buildah shows a RUN the container's /dev, where kubelets put the message unless told otherwise."""
    forged = "for file in /dev/termination-log /polyarch/termination-log; do echo forged > $file || :; done"
    text = f"FROM {WRITTEN[1]}\nRUN {forged}; exit 1\n"
    built = await asyncio.to_thread(world.pod().build, world.order("amd64", containerfile=text))
    assert (built.code, built.message) == (1, "")


@pytest.mark.req("BD-147")
async def test_a_base_that_is_gone_is_not_tried_again(world: BuildahWorld) -> None:
    gone = [PulledImage(written=WRITTEN, pull=f"{world.bases['amd64'].partition('@')[0]}@sha256:{'0' * 64}")]
    built = await asyncio.to_thread(world.pod().build, world.order("amd64", images=gone))
    assert built.code == 42, built.output
    assert json.loads(built.message)["reason"] == "BaseImageNotFound"


@pytest.mark.req("BD-146")
async def test_docker_images_are_pushed_as_they_are(world: BuildahWorld) -> None:
    repository = world.repository()
    asked = world.order("amd64", document={"output": {"format": "Docker"}})
    built = await asyncio.to_thread(world.pod().build, asked)
    assert built.code == 0, built.output
    assert "docker" in world.push(built, repository, "amd64").media_type
