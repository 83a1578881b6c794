"""A host for an exporter: a machine as a tree of files, and a kubelet's answers as files that a test changes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fake_api import FakeApi
from machine_trees import GIB, CellFiles, MachineTree

from polyarch.kube.resources import NODES
from polyarch.numa.api.topology import TOPOLOGIES

NODE = "worker-1"
POLICY, SCOPE = "single-numa-node", "pod"


class NumaHost:
    """Cells of four CPUs and 4 GiB each; CPU 0 is reserved. ``flags`` make an exporter read it."""

    def __init__(self, root: Path, *, cells: int = 2) -> None:
        self.root = root
        self._answers = root / "answers"
        self._answers.mkdir(parents=True)
        self._cells = cells
        tree = MachineTree(root)
        tree.cells({cell: CellFiles(f"{cell * 4}-{cell * 4 + 3}") for cell in range(cells)}).cpus(f"0-{cells * 4 - 1}")
        tree.write(
            "podresources/config.yaml",
            f"kind: KubeletConfiguration\ntopologyManagerPolicy: {POLICY}\ntopologyManagerScope: {SCOPE}\n",
        )
        self.hand_out()
        self.pods({})

    @property
    def flags(self) -> Sequence[str]:
        return (f"--root={self.root}", f"--podresources-socket=fake://{self._answers}", "--kubelet-config=file")

    def hand_out(self, *, devices: Mapping[str, int] = {}) -> None:
        """What is allocatable; ``devices``: the cell of each device id."""
        self._write(
            "get_allocatable_resources",
            {
                "cpu_ids": list(range(1, self._cells * 4)),
                "memory": [_block(4 * GIB - (GIB if cell == 0 else 0), cell) for cell in range(self._cells)],
                "devices": [_device(name, cell) for name, cell in devices.items()],
            },
        )

    def pods(
        self,
        cpus: Mapping[str, Sequence[int]],
        *,
        devices: Mapping[str, Mapping[str, int]] = {},
        namespace: str = "default",
    ) -> None:
        """The pods of a namespace with the CPUs, and devices on cells, that they hold."""
        containers = {
            name: {
                "name": "app",
                "cpu_ids": list(held),
                "devices": [_device(device, cell) for device, cell in devices.get(name, {}).items()],
            }
            for name, held in cpus.items()
        }
        listed = [{"name": name, "namespace": namespace, "containers": [each]} for name, each in containers.items()]
        self._write("list", {"pod_resources": listed})

    def break_kubelet(self) -> None:
        """No call is answered."""
        for path in self._answers.glob("*.json"):
            path.unlink()

    def _write(self, function: str, answer: Mapping[str, Any]) -> None:
        """As a whole, since an exporter may read at any time."""
        path = self._answers / f"{function}.json"
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(answer))
        beside.replace(path)


def _block(size: int, cell: int) -> Mapping[str, Any]:
    return {"memory_type": "memory", "size": str(size), "topology": {"nodes": [{"ID": str(cell)}]}}


def _device(name: str, cell: int) -> Mapping[str, Any]:
    return {
        "resource_name": "vendor.example/nic",
        "device_ids": [name],
        "topology": {"nodes": [{"ID": str(cell)}]},
    }


def available(topology: Mapping[str, Any], resource: str = "cpu") -> list[int]:
    """Of each zone, in order."""
    return [
        int(each["available"]) for zone in topology["zones"] for each in zone["resources"] if each["name"] == resource
    ]


def register(api: FakeApi, uid: str, **status: Any) -> None:
    """The kubelet registers the Node, perhaps again."""
    api.put(NODES, {"metadata": {"name": NODE, "uid": uid}, "status": status})


def published(api: FakeApi) -> Any:
    """The NodeResourceTopology of the Node."""
    return api.read(TOPOLOGIES, NODE)
