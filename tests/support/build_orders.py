"""Orders of build Jobs, and a pod in which ``build.sh`` meets a buildah that only writes down what it is told."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from polyarch.builds import names
from polyarch.builds.api.resources import ImageBuildSpec, Output
from polyarch.builds.facts.build_facts import PlanSettings
from polyarch.builds.jobs import contract
from polyarch.builds.jobs.manifests import architecture_manifests
from polyarch.builds.jobs.spec import ArchitectureJobSpec, JobMetadata

DIGEST = "sha256:" + "c" * 64
REPOSITORY = "registry.example.com/team/shop"
OWNER = {
    "apiVersion": "polyarch.dev/v1alpha1",
    "kind": "ImageBuildRun",
    "name": "shop-1",
    "uid": "u",
    "controller": True,
}
SETTINGS = PlanSettings(builder_image="quay.io/buildah/stable:v1.37", push_image="quay.io/polyarch/polyarch:1")


def identity(job: str = "shop-1-arm64", **more: Any) -> JobMetadata:
    labels = {names.MANAGED_BY: names.MANAGER, names.BUILD_LABEL: "shop", names.ARCHITECTURE_LABEL: "arm64"}
    given: dict[str, Any] = {
        "namespace": "team",
        "job": job,
        "owners": [OWNER],
        "labels": labels,
        "annotations": {names.KEY_ANNOTATION: "a" * 64},
        "record": "shop-1-arch",
    }
    return JobMetadata(**{**given, **more})


def spec(document: dict[str, Any] | None = None) -> ImageBuildSpec:
    """As the API server would hand it out; ``output.repository`` is filled in."""
    found = msgspec.convert(document or {}, ImageBuildSpec)
    output = msgspec.structs.replace(found.output, repository=found.output.repository or REPOSITORY)
    return msgspec.structs.replace(found, output=output if isinstance(output, Output) else found.output)


def order(document: dict[str, Any] | None = None, **more: Any) -> ArchitectureJobSpec:
    architecture = more.get("architecture", "arm64")
    given: dict[str, Any] = {
        "metadata": identity(),
        "spec": spec(document),
        "architecture": architecture,
        "host": architecture,
        "profile": "UserNamespace",
        "containerfile": "FROM scratch\nCOPY . /\n",
        "repository": REPOSITORY,
        "tag": "shop-1-arm64",
        "settings": SETTINGS,
    }
    return ArchitectureJobSpec(**{**given, **more})


class Ran(NamedTuple):
    """What came of a run of ``build.sh``."""

    code: int
    calls: list[list[str]]
    """The argument vectors of buildah."""
    said: dict[str, Any] | None
    """The termination message."""
    output: str

    def flags(self, command: str) -> list[str]:
        """The arguments of the last call of this subcommand, without the global ones."""
        call = [each for each in self.calls if command in each][-1]
        return call[call.index(command) + 1 :]

    def values(self, flag: str) -> list[str]:
        return [each.partition("=")[2] for each in self.flags("build") if each.startswith(f"{flag}=")]


class FakePod:
    """``/polyarch`` of a pod in a folder. ``outcomes``: subcommand → (status, stderr), for all calls of it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "polyarch"
        self.bin = folder / "bin"
        self.log = folder / "calls"
        self.uid_map = folder / "uid_map"
        self.uid_map.write_text("         0     100000      65536\n")
        self.outcomes = folder / "outcomes.json"
        self.outcomes.write_text("{}")
        self.bin.mkdir()
        fake = self.bin / "buildah"
        fake.write_text(f"#!{sys.executable} -I\n" + _FAKE.format(log=str(self.log), outcomes=str(self.outcomes)))
        fake.chmod(0o755)
        for name, flags in (("unshare", 1), ("nsenter", 3), ("mount", 99)):
            (self.bin / name).write_text(f'#!/bin/sh\n[ $# -ge {flags} ] || exit 0\nshift {flags}\nexec "$@"\n')
            (self.bin / name).chmod(0o755)

    def let(self, command: str, status: int, says: str = "") -> None:
        known = json.loads(self.outcomes.read_text())
        self.outcomes.write_text(json.dumps({**known, command: [status, says]}))

    def run(self, asked: ArchitectureJobSpec, *, shell: str = "/bin/sh", path: str = os.environ["PATH"]) -> Ran:
        """``path``: where programs are found besides those of ``bin``."""
        for name in ("in", "layout", "storage", "context", "git"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        bodies = architecture_manifests(asked)
        for name, text in bodies[0]["data"].items():
            (self.root / "in" / name).write_text(self.moved(text))
        for name, encoded in bodies[0].get("binaryData", {}).items():
            (self.root / "in" / name).write_bytes(base64.b64decode(encoded))
        for body in bodies[1:-1]:
            for name, text in body["data"].items():
                (self.root / "context" / name).write_text(text)
        done = subprocess.run(
            [shell, str(self.root / "in" / contract.BUILD_SCRIPT)],
            env={"PATH": f"{self.bin}:{path}", "HOME": str(self.root / "storage")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        message = self.root / "termination-log"
        return Ran(
            done.returncode,
            [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else [],
            json.loads(message.read_text()) if message.exists() else None,
            done.stdout + done.stderr,
        )

    def moved(self, text: str) -> str:
        """The script with this folder in place of ``/polyarch``."""
        moved = text.replace(f"{contract.ROOT}/", f"{self.root}/").replace("/proc/self/uid_map", str(self.uid_map))
        return moved.replace("/proc/$holder/", f"{self.root}/")


_FAKE = """
import json, os, sys
arguments = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(arguments) + chr(10))
commands = [each for each in arguments if not each.startswith("-")]
status, says = json.load(open({outcomes!r})).get(commands[0], (0, ""))
if commands[0] == "build" and "--target=polyarch-syntax-check" in arguments:
    status, says = json.load(open({outcomes!r})).get(
        "syntax", (125, "Error: The target was not found in the provided Dockerfile"))
if says:
    print(says, file=sys.stderr)
if status:
    sys.exit(status)
if commands[0] == "from":
    print("working-container")
if commands[0] == "mount":
    print(os.path.join(os.environ["HOME"], "mounted"))
for each in arguments:
    if each.startswith("--iidfile="):
        open(each.partition("=")[2], "w").write("sha256:" + "1" * 64)
    if each.startswith("dir:"):
        os.makedirs(each[4:])
        for name in ("manifest.json", "version", "2" * 64):
            open(os.path.join(each[4:], name), "w").write(name)
"""
