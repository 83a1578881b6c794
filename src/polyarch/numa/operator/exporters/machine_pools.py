"""Whether the machines of a MachineConfigPool have, or no longer have, a MachineConfig of ours (NO-057). Pure."""

from typing import Any

from polyarch.numa.operator.observed import Document


def is_settled(pool: Document, machine_config: str, *, wanted: bool) -> bool:
    """The pool has rolled out what it is made of, and our MachineConfig is part of it just if it is wanted.

    A pool that never had it and is not to have it is settled whatever else it rolls out: that is not for us to await.
    """
    status: dict[str, Any] = pool.get("status") or {}
    rolled_out = _has(status.get("configuration"), machine_config)
    target = _has((pool.get("spec") or {}).get("configuration"), machine_config)
    if not wanted:
        return not rolled_out and not target
    updated = any(
        each.get("type") == "Updated" and each.get("status") == "True" for each in status.get("conditions") or ()
    )
    return rolled_out and updated


def _has(configuration: dict[str, Any] | None, machine_config: str) -> bool:
    return any(each.get("name") == machine_config for each in (configuration or {}).get("source") or ())
