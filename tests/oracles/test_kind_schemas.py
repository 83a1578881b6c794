"""Where kinds have pods, by the types into which their operators decode them (``tools/peers/kinds``)."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

RECORDED = Path(__file__).parents[1] / "unit" / "manifests" / "scan" / "kinds.jsonl"


@pytest.mark.req("MF-011")
def test_the_recorded_schemas_are_those_of_the_operators_types(peer: Callable[[str], str]) -> None:
    """``test_manifests_kinds`` compares the table of kinds with the file."""
    said = subprocess.run([peer("kind-schemas")], capture_output=True, text=True, check=True, timeout=300).stdout
    assert said.splitlines() == RECORDED.read_text().splitlines()
