"""The generated messages are what ``podresources.proto`` says, and the protobuf that is asked for can load them."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from tools.generate import podresources_messages

ROOT = Path(__file__).parents[4]


@pytest.mark.req("NE-050")
def test_the_committed_messages_are_what_protoc_writes() -> None:
    """``make generate`` writes them. grpcio-tools has this protoc, grpclib the plugin of the stub."""
    files = podresources_messages.files()
    names = [f"podresources_{each}" for each in ("grpc.py", "pb2.py", "pb2.pyi")]
    assert sorted(Path(each).name for each in files) == names
    for path, text in files.items():
        assert (ROOT / path).read_text() == text, f"{path} differs: make generate"


@pytest.mark.req("NE-050")
def test_the_oldest_protobuf_that_installs_can_load_the_messages() -> None:
    """Generated code refuses a runtime that is older than its compiler, and one of another major version."""
    generated = (ROOT / "src" / podresources_messages.FOLDER / "podresources_pb2.py").read_text()
    compiler = re.search(r"# Protobuf Python Version: (\S+)", generated)
    assert compiler is not None
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    protobuf = next(Requirement(each) for each in wanted if each.startswith("protobuf"))
    bounds = {each.operator: Version(each.version) for each in protobuf.specifier}
    assert bounds[">="] >= Version(compiler[1])
    assert bounds["<"] <= Version(f"{Version(compiler[1]).major + 1}")
