"""Which peers there are, and where this machine has them."""

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from polyarch.sandbox.binaries import TAGS, cache_home, usable
from polyarch.sandbox.versions import host_architecture

MODULE: Final = Path(__file__).parent / "gomodule"
ACTIONLINT: Final = "github.com/rhysd/actionlint"
CRIO: Final = "github.com/cri-o/cri-o"
CRIO_TAGS: Final = "containers_image_openpgp,exclude_graphdriver_btrfs"
"""Without what needs C: signatures by GPG, and a file system."""
PROBLEMS: Final = "problems.json"


class Origin(Enum):
    """Who brings a peer."""

    GO = "built from the pinned Go module"
    ENVIRONMENT = "a requirement of the development environment"
    SYSTEM = "a package of the system"


class Peer(NamedTuple):
    """A program by the name under which tests ask for it."""

    name: str
    origin: Origin
    module: str = ""
    """Of a Go program: the module whose version in ``go.mod`` is the peer's."""
    package: str = ""
    """And the package of its ``main``. Of a system's package: its name, where it is not the program's."""
    source: Path = MODULE
    """And the folder whose ``go.mod`` that is."""
    long: bool = False
    """Only tests of ``make long`` and ``make real`` run it."""
    tags: str = TAGS
    """Build tags of a Go program."""


PEERS: Final = (
    Peer("kubectl", Origin.GO, "k8s.io/kubectl", "./kubectl"),
    Peer("helm-3", Origin.GO, "helm.sh/helm/v3", "helm.sh/helm/v3/cmd/helm"),
    Peer("helm-4", Origin.GO, "helm.sh/helm/v4", "helm.sh/helm/v4/cmd/helm"),
    Peer("multiarch-validator", Origin.GO, "github.com/operator-framework/api", "./multiarch-validator"),
    Peer("ignorefile", Origin.GO, "github.com/moby/patternmatcher", "./ignorefile"),
    Peer("containerfiles", Origin.GO, "github.com/moby/buildkit", "./judge", MODULE.parent / "containerfiles"),
    Peer("kubelet-managers", Origin.GO, "k8s.io/kubernetes", "./kubelet-managers", MODULE.parent / "managers"),
    Peer(
        "kubelet-managers-1.30", Origin.GO, "k8s.io/kubernetes", "./kubelet-managers", MODULE.parent / "managers-1.30"
    ),
    Peer("scheduler-filters", Origin.GO, "k8s.io/kubernetes", "./scheduler-filters", MODULE.parent / "managers"),
    Peer("credential-providers", Origin.GO, "k8s.io/kubernetes", "./credential-providers", MODULE.parent / "managers"),
    Peer(
        "ecr-credential-provider",
        Origin.GO,
        "k8s.io/cloud-provider-aws",
        "k8s.io/cloud-provider-aws/cmd/ecr-credential-provider",
        MODULE.parent / "credential-plugins",
    ),
    Peer(
        "dockerfile-parser",
        Origin.GO,
        "github.com/moby/buildkit",
        "./dockerfile-parser",
        MODULE.parent / "containerfiles",
    ),
    Peer(
        "kind-schemas",
        Origin.GO,
        "github.com/argoproj/argo-workflows/v3",
        "./kind-schemas",
        MODULE.parent / "kinds",
        long=True,
    ),
    Peer("actionlint", Origin.GO, ACTIONLINT, f"{ACTIONLINT}/cmd/actionlint", MODULE.parent / "actionlint"),
    Peer(
        "karpenter-pools",
        Origin.GO,
        "sigs.k8s.io/karpenter",
        "./karpenter-pools",
        MODULE.parent / "autoscalers",
        long=True,
    ),
    Peer("image-runtimes", Origin.GO, "github.com/containerd/platforms", "./judge", MODULE.parent / "runtimes"),
    Peer("podresources-server", Origin.GO, "k8s.io/kubelet", "./server", MODULE.parent / "podresources"),
    Peer(
        "numa-plugin", Origin.GO, "sigs.k8s.io/scheduler-plugins", "./plugin", MODULE.parent / "numa-plugin", long=True
    ),
    Peer("crio", Origin.GO, CRIO, f"{CRIO}/cmd/crio", MODULE.parent / "crio", long=True, tags=CRIO_TAGS),
    Peer("pre-commit", Origin.ENVIRONMENT),
    Peer("shellcheck", Origin.ENVIRONMENT),
    Peer("skopeo", Origin.SYSTEM),
    Peer("buildah", Origin.SYSTEM),
    Peer("conmon", Origin.SYSTEM, long=True),
    Peer("mmdebstrap", Origin.SYSTEM),
    Peer("chromium", Origin.SYSTEM),
    Peer("promtool", Origin.SYSTEM, package="prometheus"),
    Peer("qemu-aarch64-static", Origin.SYSTEM, package="qemu-user-static"),
)
BY_NAME: Final = {peer.name: peer for peer in PEERS}


class Found(NamedTuple):
    """A peer that is there."""

    program: str
    version: str


class Absent(NamedTuple):
    """A peer that is not there, why, and whether that is in order where nothing may be missing (``CI=true``)."""

    why: str
    excused: bool = False


def continuous_integration(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether everything that can be there has to be."""
    return environ.get("CI", "").lower() in {"true", "1"}


def folder(environ: Mapping[str, str] = os.environ, source: Path | None = None) -> Path:
    """Where the Go programs of a module are kept: another version, source or architecture never uses these."""
    content = hashlib.sha256()
    source = source or MODULE
    for path in sorted(each for each in source.rglob("*") if each.is_file()):
        content.update(f"{path.relative_to(source)}\0".encode() + path.read_bytes())
    return cache_home(environ) / f"peers-{content.hexdigest()[:12]}-{host_architecture()}"


def pinned(peer: Peer) -> str:
    """The version that ``go.mod`` says, without its ``v``."""
    match = re.search(
        rf"^(?:require)?\s+{re.escape(peer.module)} v(\S+)", (peer.source / "go.mod").read_text(), re.MULTILINE
    )
    if match is None:
        raise LookupError(f"{peer.source / 'go.mod'} requires no {peer.module}")
    return match[1]


def found(name: str, environ: Mapping[str, str] = os.environ) -> Found | Absent:
    """Where a peer is, or why it is not there and what to do."""
    peer = BY_NAME[name]
    match peer.origin:
        case Origin.GO:
            program = folder(environ, peer.source) / name
            if usable(program):
                return Found(str(program), pinned(peer))
            return Absent(_problems(environ).get(name) or "it has not been built: python -m tools.peers")
        case Origin.ENVIRONMENT:
            # shellcheck has no wheel for every architecture: there it is whatever the system has.
            path = f"{Path(sys.executable).parent}{os.pathsep}{environ.get('PATH', '')}"
            if on_path := shutil.which(name, path=path):
                return Found(on_path, _said_version(on_path))
            return Absent("it is not in this environment: make .venv/.ready")
        case Origin.SYSTEM:
            if on_path := shutil.which(name, path=environ.get("PATH")):
                return Found(on_path, _said_version(on_path))
            problem = _problems(environ).get(name)
            why = problem or f"it is not installed (Debian, Ubuntu: apt install {peer.package or name})"
            return Absent(why, excused=installer(environ) is None)


def installer(environ: Mapping[str, str] = os.environ) -> str | None:
    """The program with which this process may install a package of the system: Debian's, as root."""
    return shutil.which("apt-get", path=environ.get("PATH")) if os.geteuid() == 0 else None


def remember(problems: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> None:
    """Keep why peers could not be had, for those who miss them."""
    path = folder(environ) / PROBLEMS
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dict(problems)))


def _problems(environ: Mapping[str, str]) -> dict[str, str]:
    path = folder(environ) / PROBLEMS
    return dict(json.loads(path.read_text())) if path.exists() else {}


@functools.cache
def _said_version(program: str) -> str:
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    version = re.search(r"\d+(?:\.\d+)+\S*", answer)
    return version[0] if version else "of a version that it does not say"
