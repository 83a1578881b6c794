"""What has to be there before a MachineOSBuild can have a name (BD-267).

A name that was made of half of its inputs would be another one later, and the pool would be built twice.
"""

from collections.abc import Mapping
from typing import Any, Final

PREFIX: Final = "machineconfiguration.openshift.io/"
RELEASE_ANNOTATION: Final = f"{PREFIX}release-image-version"
CONTROLLER_ANNOTATION: Final = f"{PREFIX}generated-by-controller-version"
RENDERED: Final = "rendered-"


def missing(
    pool: Mapping[str, Any] | None, config: Mapping[str, Any] | None, rendered: Mapping[str, Any] | None
) -> tuple[str, ...]:
    """Sentences that name what is missing, all at once; none when a name can be made. Objects are taken as stored."""
    found = [
        f"there is no {kind}" for kind, each in (("MachineConfigPool", pool), ("MachineOSConfig", config)) if not each
    ]
    wanted = str(((config or {}).get("spec") or {}).get("machineConfigPool", {}).get("name") or "")
    if pool and config and _name(pool) != wanted:
        found.append(
            f"MachineOSConfig {_name(config)} is for the pool {wanted!r}, not for {_name(pool)!r}; "
            "correct spec.machineConfigPool.name"
        )
    if not rendered:
        found.append("there is no rendered MachineConfig; wait until the pool has one")
        return tuple(found)
    name = _name(rendered)
    if not name.startswith(RENDERED):
        found.append(f"MachineConfig {name} is not a rendered one: its name does not begin with {RENDERED!r}")
    annotations = (rendered.get("metadata") or {}).get("annotations") or {}
    found += [
        f"MachineConfig {name} has no annotation {each}; the machine-config controller sets it"
        for each in (RELEASE_ANNOTATION, CONTROLLER_ANNOTATION)
        if not annotations.get(each)
    ]
    return tuple(found)


def _name(stored: Mapping[str, Any]) -> str:
    return str((stored.get("metadata") or {}).get("name") or "")
