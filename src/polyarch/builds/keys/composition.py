"""Key documents: the object that holds everything that can change a child, and its hash, the key (BD-071 to BD-076).

Equal documents mean equal children, so what is not in them may change without a build (BD-075), and what is in them may
not be left out by accident: every member is written here and nowhere else.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from polyarch.builds.api.resources import Output
from polyarch.builds.facts.facts import MachineInputs
from polyarch.builds.keys import canonical, handles
from polyarch.builds.keys.inputs import Inputs

VERSION = 1
UNRESOLVED = "unresolved"
"""Stands for the digest of a base that is not pinned."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key document and its hash."""

    document: Mapping[str, Any]
    hex: str


def arch_key(inputs: Inputs, architecture: str, pins: Mapping[str, str]) -> Key:
    """The key of one architecture's child (BD-071). ``pins``: canonical reference, as named → child digest for it."""
    own = inputs.per_architecture[architecture]
    return _key(
        {
            "v": VERSION,
            "arch": architecture,
            "containerfile": own.containerfile,
            "target": inputs.target,
            "args": dict(own.args),
            "bases": {base.name: pins.get(base.name, UNRESOLVED) for base in own.bases},
            "context": dict(inputs.context),
            "secrets": dict(inputs.secrets),
            "format": inputs.format,
            "labels": dict(inputs.labels),
            "timestamp": inputs.timestamp,
            "machine": None if inputs.machine is None else _machine(inputs.machine, pins),
        }
    )


def build_key(output: Output, keys: Mapping[str, str]) -> Key:
    """The key of a whole build (BD-076). ``keys``: architecture → key of its child, for every architecture wanted."""
    return _key(
        {
            "v": VERSION,
            "arches": dict(keys),
            "attestations": None if output.attestations == "Drop" else output.attestations,
            "format": output.format,
            "index": output.index,
            "indexAnnotations": dict(output.annotations or {}),
            "repository": handles.repository(output.repository),
        }
    )


def _machine(machine: MachineInputs, pins: Mapping[str, str]) -> dict[str, Any]:
    return canonical.without_empty(
        {
            "osImage": _pinned(machine.os_image, pins),
            "extensionsImage": _pinned(machine.extensions_image, pins),
            "kernelType": "" if machine.kernel_type == "default" else machine.kernel_type,
            "extensions": sorted(set(machine.extensions)),
            "kernelArguments": list(machine.kernel_arguments),
            "trust": machine.trust,
            "entitlements": sorted(set(machine.entitlements)),
        }
    )


def _pinned(image: str, pins: Mapping[str, str]) -> str:
    return pins.get(handles.image(image), UNRESOLVED) if image else ""


def _key(members: Mapping[str, Any]) -> Key:
    document = canonical.without_empty(members)
    return Key(document=document, hex=canonical.digest(document))
