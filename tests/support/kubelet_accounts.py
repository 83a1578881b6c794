"""What a kubelet accounts for, real or modelled: read as plain JSON from the files in which it keeps that."""

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import yaml

from polyarch.sandbox.kubelet_model.machine import Device
from polyarch.sandbox.nodes.kubelet_files import parse_cpulist

Zones = dict[str, dict[str, tuple[int, int, int]]]
"""By zone and resource: capacity, allocatable, available."""
Held = dict[str, dict[str, Any]]
"""By uid of a pod and container."""


class KubeletAccounts:
    """The files of one moment. ValueError for one that is damaged, or written at this moment."""

    def __init__(
        self, kubelet: Path, host: Path, *, devices: Iterable[Device] = (), ended: Collection[str] = ()
    ) -> None:
        """``kubelet``: what is ``/var/lib/kubelet`` on the node; ``host``: what has its ``sys``. What is in no file:
        where free ``devices`` are, and which pods have ``ended``, by uid."""
        self._devices = tuple(devices)
        self._nodes = host / "sys/devices/system/node"
        self.configuration = yaml.safe_load((kubelet / "config.yaml").read_text())
        self._cpus = json.loads((kubelet / "cpu_manager_state").read_text())
        self._memory = json.loads((kubelet / "memory_manager_state").read_text())
        plugged = kubelet / "device-plugins/kubelet_internal_checkpoint"
        self._checkpoint = json.loads(plugged.read_text())["Data"] if plugged.exists() else {}
        self._registered = self._checkpoint.get("RegisteredDevices") or {}
        self._plugged = {each.resource for each in self._devices} & {
            name for name, ids in self._registered.items() if ids
        }
        self._there = {each.name for each in (kubelet / "pods").glob("*")} - set(ended)

    # -- by pod: those that are over hold nothing any more -------------------------------------------------------------

    @property
    def cpus(self) -> Held:
        """Numbers."""
        return {
            uid: {name: set(parse_cpulist(text)) for name, text in by_container.items()}
            for uid, by_container in self._cpus.get("entries", {}).items()
            if uid in self._there
        }

    @property
    def memory(self) -> Held:
        """Sets of (resource, bytes, zones)."""
        return {
            uid: {
                name: {(each["type"], each["size"], tuple(each["numaAffinity"])) for each in blocks}
                for name, blocks in by_container.items()
            }
            for uid, by_container in self._memory.get("entries", {}).items()
            if uid in self._there
        }

    @property
    def devices(self) -> Held:
        """Sets of (resource, id, zone)."""
        found: Held = {}
        for entry in self._checkpoint.get("PodDeviceEntries") or ():
            if entry["PodUID"] in self._there:
                held = found.setdefault(entry["PodUID"], {}).setdefault(entry["ContainerName"], set())
                by_zone = entry["DeviceIDs"].items()
                held |= {(entry["ResourceName"], each, int(zone)) for zone, ids in by_zone for each in ids}
        return found

    def holding(self, uid: str) -> set[str]:
        """The containers of the pod that hold something, those that have ended among them."""
        return {name for held in (self.cpus, self.memory, self.devices) for name in held.get(uid, ())}

    @property
    def holders(self) -> set[str]:
        """The uids of pods that hold something."""
        return {*self.cpus, *self.memory, *self.devices}

    # -- by zone -------------------------------------------------------------------------------------------------------

    @property
    def zones(self) -> Zones:
        """What the node's NodeResourceTopology ought to say."""
        return {
            f"node-{zone}": {
                "cpu": self._cpus_of(zone),
                **{name: self._memory_of(zone, name) for name in self._memory["machineState"][str(zone)]["memoryMap"]},
                **{name: self._devices_of(zone, name) for name in self._plugged},
            }
            for zone in sorted(map(int, self._memory["machineState"]))
        }

    @property
    def distances(self) -> dict[str, dict[str, int]]:
        """Of each zone to each."""
        names = sorted(self.zones, key=lambda name: int(name.removeprefix("node-")))
        rows = {name: (self._nodes / name.replace("-", "") / "distance").read_text().split() for name in names}
        return {name: dict(zip(names, map(int, row), strict=True)) for name, row in rows.items()}

    def _cpus_of(self, zone: int) -> tuple[int, int, int]:
        own = parse_cpulist((self._nodes / f"node{zone}/cpulist").read_text().strip())
        usable = own - parse_cpulist(self.configuration.get("reservedSystemCPUs", ""))
        is_static = self._cpus["policyName"] == "static"
        free = usable & parse_cpulist(self._cpus["defaultCpuSet"]) if is_static else usable
        return len(own), len(usable), len(free)

    def _memory_of(self, zone: int, name: str) -> tuple[int, int, int]:
        """The kubelet frees the memory of a pod that is over when it admits the next one."""
        table = self._memory["machineState"][str(zone)]["memoryMap"][name]
        blocks = [
            (uid in self._there, each)
            for uid, by_container in self._memory.get("entries", {}).items()
            for several in by_container.values()
            for each in several
            if each["type"] == name and zone in each["numaAffinity"]
        ]
        over = table["reserved"]
        if any(is_there for is_there, _ in blocks):
            gone = [each for is_there, each in blocks if not is_there]
            if any(each["numaAffinity"] != [zone] for each in gone):
                raise ValueError("of a block of several zones only the kubelet knows how much is in which")
            over = sum(each["size"] for each in gone)
        return table["total"], table["allocatable"], table["free"] + over

    def _devices_of(self, zone: int, resource: str) -> tuple[int, int, int]:
        own = set(self._registered[resource]) & {
            each.id for each in self._devices if each.resource == resource and zone in each.cells
        }
        held = {name for by_container in self.devices.values() for each in by_container.values() for _, name, _ in each}
        return len(own), len(own), len(own - held)
