"""Whatever a host's files say, reading them ends in facts or in the announced error."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_trees import two_cells
from manual_clock import ManualClock

from polyarch.numa.facts import KubeletSettings, TopologyPolicy, cpu_list_text, parse_cpu_list
from polyarch.numa.host.kubelet import (
    CPU_CHECKPOINT,
    MEMORY_CHECKPOINT,
    CheckpointFiles,
    InvalidKubeletConfiguration,
    settings_from_configz,
    settings_from_files,
)
from polyarch.numa.host.machine import HostRoot, MachineReader, UnreadableMachine, host_files

FEW = settings(max_examples=100)
KEYS = ("topologyManagerPolicy", "topologyManagerPolicyOptions", "featureGates", "kubeReserved", "reservedSystemCPUs")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.req("NE-016", "NE-032")
@given(st.frozensets(st.integers(0, 5000), max_size=50))
def test_a_list_of_cpus_reads_back(numbers: frozenset[int]) -> None:
    assert parse_cpu_list(cpu_list_text(numbers)) == numbers


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = two_cells(tmp_path_factory.mktemp("machine")).cpus("0-7", packages={0: 0}, siblings=["0-1"])
    return tree.root


@pytest.mark.req("NE-036")
@FEW
@given(data=st.data(), content=st.binary(max_size=30) | st.text("0123456789-, kBMemTotal:\n", max_size=30))
def test_a_damaged_file_leaves_a_machine_or_the_announced_error(
    machine: Path, data: st.DataObject, content: bytes | str
) -> None:
    damaged = data.draw(st.sampled_from(sorted(path for path in machine.rglob("*") if path.is_file())))
    before = damaged.read_bytes()
    damaged.write_bytes(content if isinstance(content, bytes) else content.encode())
    counted: list[str] = []
    refused = str(machine)
    try:
        found = MachineReader(host_files(str(machine)), clock=ManualClock(), count=counted.append).read()
        assert all(cell.memory is None or cell.memory >= 0 for cell in found.zones)
        assert found.threads_per_core >= 1
        assert len(counted) <= 2
    except UnreadableMachine as error:
        refused = str(error)
    finally:
        damaged.write_bytes(before)
    assert str(machine) in refused


@pytest.mark.req("NE-069")
@FEW
@given(content=st.binary(max_size=50) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_a_checkpoint_of_any_content_is_no_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("kubelet")
    for name in (CPU_CHECKPOINT, MEMORY_CHECKPOINT):
        (folder / name).write_bytes(content)
    states = CheckpointFiles(HostRoot(str(folder)), ".").read()
    assert (states.cpu, states.memory) == (None, None)


@pytest.mark.req("NE-103")
@given(document=st.dictionaries(st.sampled_from(KEYS), VALUES))
def test_a_configuration_of_any_content_is_usable_or_refused(document: dict[str, object]) -> None:
    assert judged(lambda: settings_from_files(("c.yaml", json.dumps(document).encode()))).startswith("c.yaml")
    assert judged(lambda: settings_from_configz(json.dumps({"kubeletconfig": document}).encode())).startswith("c")


@pytest.mark.req("NE-103")
@given(content=st.binary(max_size=60))
def test_a_file_of_any_bytes_is_usable_or_refused(content: bytes) -> None:
    assert judged(lambda: settings_from_files(("c.yaml", content))).startswith("c.yaml")


def judged(read: Callable[[], KubeletSettings]) -> str:
    """Why it was refused; the place alone if it was not."""
    try:
        assert read().policy in get_args(TopologyPolicy)
    except InvalidKubeletConfiguration as error:
        return str(error)
    return "c.yaml"
