"""The container image, built twice and run: one image for every role."""

import asyncio
import gzip
import io
import json
import os
import signal
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import own_roles
import pytest
from built_image import BASE, EPOCH, ROOT, Builder, contained, role, told
from placement_cluster import architectures, until
from placement_process import gated_pod, placed

from polyarch import __version__
from polyarch.kube.client import Client
from polyarch.kube.resources import NAMESPACES
from polyarch.placement import names
from polyarch.sandbox.certificates import kubeconfig_with_token
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import write_json
from polyarch.sandbox.state import NAMESPACE

pytestmark = pytest.mark.timeout(1200)
NAME = "localhost/polyarch:test"
JOIN = ROOT / "deploy" / "image" / "join"
MOST_BEYOND_BASE = 170 * 1024 * 1024
"""Unpacked; about 50 MiB are numpy and its OpenBLAS, for the scheduler's extender."""
SHELLS = ("sh", "bash", "dash", "rbash")
COMPILERS = ("gcc", "cc", "c++", "g++", "ld", "as", "rustc", "cargo", "go")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("image")


@pytest.fixture(scope="module")
def dist(folder: Path) -> Path:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    told([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")], environment, ROOT)
    return folder / "dist"


class Images:
    """Built when the first test asks, for what builds it is known only within a test (``peer``)."""

    def __init__(self, folder: Path, dist: Path) -> None:
        self.folder, self.dist = folder, dist
        self.builder: Builder | None = None
        self.root = Path()

    def built(self, buildah: str, mmdebstrap: str) -> Builder:
        if self.builder is None:
            builder = Builder(buildah, self.folder)
            builder.base(mmdebstrap)
            builder.polyarch(NAME, self.dist)
            self.root = Path(builder("mount", builder("from", NAME).strip()).strip())
            self.builder = builder
        return self.builder


@pytest.fixture(scope="module")
def images(folder: Path, dist: Path) -> Iterator[Images]:
    images = Images(folder, dist)
    yield images
    if images.builder:
        images.builder.removed()


@pytest.fixture
def builder(images: Images, peer: Callable[[str], str]) -> Builder:
    mmdebstrap, buildah = peer("mmdebstrap"), peer("buildah")
    if os.geteuid() != 0:
        pytest.skip("buildah: only root can mount the image that it built")
    return images.built(buildah, mmdebstrap)


@pytest.fixture
def root(builder: Builder, images: Images) -> Path:
    """The image's files, as a container of it would see them."""
    return images.root


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """What a test gives a container; it sees it at /mnt."""
    (tmp_path / "volume").mkdir()
    return tmp_path / "volume"


def documents(layout: Path) -> tuple[dict[str, Any], list[bytes]]:
    """The manifest of an OCI layout, and its layers unpacked."""
    blobs = layout / "blobs" / "sha256"
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads((blobs / index["manifests"][0]["digest"].removeprefix("sha256:")).read_text())
    return manifest, [gzip.decompress((blobs / each["digest"][7:]).read_bytes()) for each in manifest["layers"]]


@pytest.mark.req("IN-020")
def test_the_same_commit_and_base_make_the_same_image(builder: Builder, dist: Path) -> None:
    """Built again from nothing, it has the same digest: signatures and caches of it hold."""
    builder.polyarch("localhost/polyarch:again", dist)
    assert builder.pushed("localhost/polyarch:again", "again") == builder.pushed(NAME, "first")


@pytest.mark.req("IN-020")
def test_it_is_small_and_has_neither_compiler_nor_installer(builder: Builder) -> None:
    builder.pushed(NAME, "layout")
    manifest, layers = documents(builder.folder / "layout")
    assert manifest["config"]["mediaType"].endswith("+json")
    base = len(builder.inspected(BASE)["rootfs"]["diff_ids"])
    ours = layers[base:]
    assert 0 < sum(map(len, ours)) <= MOST_BEYOND_BASE
    with tarfile.open(fileobj=io.BytesIO(ours[0])) as archive:
        members = archive.getmembers()
    names = {Path(each.name).name for each in members}
    assert not names & {*COMPILERS, "pip", "pip3"}
    assert not any("site-packages/pip/" in each.name for each in members)
    assert {(each.uid, each.gid) for each in members} == {(0, 0)}
    loose = [each.name for each in members if not each.issym() and each.mode & (stat.S_IWOTH | stat.S_ISUID)]
    assert loose == []


@pytest.mark.req("IN-020")
def test_it_says_what_it_is_and_runs_as_nobody_in_particular(builder: Builder) -> None:
    image = builder.inspected(NAME)
    config = image["config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["/opt/polyarch/bin/polyarch"]
    assert not config.keys() & {"Healthcheck", "Volumes", "ExposedPorts"}
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in config["Labels"].items()}
    assert labels.keys() >= {"title", "description", "licenses", "base.name"}
    assert (labels["version"], labels["revision"]) == (__version__, "0" * 40)
    assert (labels["created"], image["created"][:19]) == ("2023-11-14T22:13:20Z", "2023-11-14T22:13:20")


@pytest.mark.req("PL-855")
def test_no_shell_and_no_root_is_needed(root: Path, volume: Path) -> None:
    """Shells are taken out of the image, its root is read-only, and the user is the image's."""
    shells = [each for name in SHELLS for each in root.glob(f"**/bin/{name}") if each.exists()]
    kept = {each: each.stat().st_mode for each in shells if not each.is_symlink()}
    for each in kept:
        each.chmod(0)
    try:
        said = subprocess.run(
            contained(root, volume, "/opt/polyarch/bin/polyarch", "--version"),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (said.returncode, said.stdout, said.stderr) == (0, f"{__version__}\n", "")
    finally:
        for each, mode in kept.items():
            each.chmod(mode)


@pytest.mark.req("IN-020")
def test_its_root_cannot_be_written(root: Path, volume: Path) -> None:
    """As it is run here; that polyarch starts all the same is what the other tests show."""
    program = "import os, pathlib; print(os.getuid()); pathlib.Path('/opt/polyarch/x').write_text('')"
    said = subprocess.run(
        contained(root, volume, "/opt/polyarch/bin/python", "-c", program),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (said.returncode, said.stdout) == (1, "65532\n")
    assert "Read-only file system" in said.stderr or "Permission denied" in said.stderr


@pytest.mark.req("IN-020")
def test_nothing_is_compiled_when_it_starts(root: Path) -> None:
    """On a read-only root a missing .pyc costs every start again."""
    sources = list(root.glob("opt/polyarch/lib/python3*/site-packages/polyarch/**/*.py"))
    assert sources
    for each in sources:
        (compiled,) = (each.parent / "__pycache__").glob(f"{each.stem}.cpython-*.pyc")
        # Bit 0 of the flags: valid by content; bit 1 unset: never checked (PEP 552).
        assert int.from_bytes(compiled.read_bytes()[4:8], "little") == 1


@pytest.mark.req("IN-020")
async def test_a_role_of_the_image_places_pods(
    root: Path, volume: Path, sandbox: Sandbox, client: Client, sole_controller: None
) -> None:
    """With the rights of its ServiceAccount, at the real API server, which it reaches over this machine's network."""
    await own_roles.install(client)
    await sandbox.registry.seed({"quay.io/image/app:1": ["linux/s390x"]})
    token = (await client.token(NAMESPACE, names.CONTROLLER)).token
    account = kubeconfig_with_token(names.CONTROLLER, sandbox.layout.api_server, sandbox.layout.pki.ca, token)
    write_json(volume / "kubeconfig", account)
    (volume / "registries.conf").write_bytes(Path(sandbox.registries_conf).read_bytes())
    for each in (volume, *volume.iterdir()):
        each.chmod(0o755)
    flags = ("--kubeconfig=/mnt/kubeconfig", "--registries-conf=/mnt/registries.conf", "--allow-address=127.0.0.0/8")
    ports = ("--metrics-port=0", "--health-port=0")
    async with role(root, volume, "placement-controller", f"--namespace={NAMESPACE}", *ports, *flags) as polyarch:
        await until(polyarch.ready)
        where, name = await gated_pod(client, "quay.io/image/app:1")
        assert architectures(await placed(client, where, name)) == ["s390x"]
        await client.delete(NAMESPACES, where)
        polyarch.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await polyarch.process.wait() == 0, (volume / "role.log").read_text()


@pytest.mark.req("IN-020")
async def test_images_of_architectures_are_joined_by_polyarch_itself(
    builder: Builder, sandbox: Sandbox, tmp_path: Path
) -> None:
    """What the release does with the real ones: here that of this machine and one that stands for another."""
    repository = f"{sandbox.registry.address}/polyarch/polyarch"
    await sandbox.registry.seed({f"{repository}:0.1.0-arm64": ["linux/arm64"]})
    architecture = builder.inspected(NAME)["architecture"]
    builder(
        "push",
        "--quiet",
        "--tls-verify=false",
        NAME,
        f"docker://{repository}:0.1.0-{architecture}",
    )
    path = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    insecure = ("--insecure", sandbox.registry.address)
    wanted = f"{architecture},arm64"
    digest = told([str(JOIN), repository, "0.1.0", wanted, *insecure], path, tmp_path).strip()
    assert digest.startswith("sha256:")
    again = told([str(JOIN), repository, "0.1.0", wanted, *insecure], path, tmp_path).strip()
    assert again == digest
    said = told(["polyarch", "inspect", *insecure, "--require", wanted, f"{repository}@{digest}"], path, tmp_path)
    assert "linux/arm64" in said
    with pytest.raises(AssertionError, match="s390x"):
        told([str(JOIN), repository, "0.1.0", f"{wanted},s390x", *insecure], path, tmp_path)
