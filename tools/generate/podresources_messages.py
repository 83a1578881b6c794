"""The messages and the stub of the kubelet's podresources API, generated from its proto.

``protoc`` and its plugins come with the development environment: grpcio-tools for the messages and their types, grpclib
for the stub.
"""

import functools
import subprocess
import sys
import tempfile
from pathlib import Path

from polyarch.cli.errors import UsageError

FOLDER = "polyarch/numa/host"
PROTO = f"{FOLDER}/podresources.proto"
SOURCES = Path(__file__).parents[2] / "src"
"""Where the packages are: Python names generated modules by their path below it."""


def files() -> dict[str, str]:
    """Path within the project and content of every generated file. Raises UsageError where protoc is missing."""
    return {f"src/{path}": text for path, text in _generated((SOURCES / PROTO).read_bytes()).items()}


@functools.cache
def _generated(proto: bytes) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        (tree / FOLDER).mkdir(parents=True)
        (tree / PROTO).write_bytes(proto)
        plugin = Path(sys.executable).with_name("protoc-gen-grpclib_python")
        outputs = [f"--{each}=." for each in ("python_out", "pyi_out", "grpclib_python_out")]
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--plugin={plugin}", "-I.", *outputs, PROTO]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(f"{PROTO} cannot be compiled with grpcio-tools (make .venv/.ready):\n{done.stderr}")
        (tree / PROTO).unlink()
        return {
            str(path.relative_to(tree)): path.read_text(encoding="utf-8")
            for path in sorted(tree.glob(f"{FOLDER}/*.py*"))
        }
