"""What is wanted now: architectures, keys and where the result goes, without a look at what exists.

Everything else in this room compares a :class:`Target` with executions, Jobs and registries. Pure.
"""

from collections.abc import Mapping

import msgspec

from polyarch.builds.api.resources import Architectures, Forced, Pin
from polyarch.builds.facts.facts import Execution

ATTESTATIONS_DROPPED = "Drop"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted now. ``architectures`` is D, in order (BD-171)."""

    namespace: str
    owner_name: str
    owner_uid: str
    architectures: tuple[str, ...]
    keys: Mapping[str, str]
    build_key: str
    pins: tuple[Pin, ...] = ()
    repository: str
    """Normalised (BD-076)."""
    staging: str = ""
    """Where Jobs push, if not to ``repository``."""
    format: str = "OCI"
    index_mode: str = "Auto"
    index_annotations: Mapping[str, str] = {}
    attestations: str = ATTESTATIONS_DROPPED
    required: tuple[str, ...] = ()
    """``output.partial.required``: with these an index of what succeeded is published."""
    partial: bool = False
    rules: Architectures = Architectures()
    """What the spec says about architectures: which it forbids (BD-045)."""
    forced: Forced | None = None
    """The rebuild token that is being honoured, with the architectures that it is for (BD-126)."""

    @property
    def pushed_to(self) -> str:
        """Where Jobs push children."""
        return self.staging or self.repository

    def forbids(self, architecture: str) -> bool:
        """Whether the spec, not the nodes, rules this architecture out (BD-045)."""
        if self.rules.mode == "Explicit":
            return architecture not in (self.rules.names or ())
        return architecture in (self.rules.exclude or ())

    def forces(self, architecture: str) -> bool:
        """Whether a rebuild was asked for that takes no former child of this architecture (BD-136)."""
        return self.forced is not None and architecture in (self.forced.architectures or ())

    def wants_index(self, count: int) -> bool:
        """Whether the result of ``count`` children is an index, or the one child itself (BD-179)."""
        return self.index_mode == "Always" or count > 1


def forced_alike(one: Forced, other: Forced | None, architecture: str) -> bool:
    """Whether both were asked for by the same token and are about this architecture."""
    return (
        other is not None
        and one.token == other.token
        and architecture in (one.architectures or ())
        and architecture in (other.architectures or ())
    )


def target_of_execution(execution: Execution) -> Target:
    """What an execution was made for, where what is wanted now is not known."""
    return Target(
        namespace=execution.namespace,
        owner_name=execution.owner_name,
        owner_uid=execution.owner_uid,
        architectures=tuple(sorted(each.architecture for each in execution.keys)),
        keys={each.architecture: each.key for each in execution.keys},
        build_key=execution.build_key,
        pins=execution.pins,
        repository=execution.repository,
        format=execution.format,
        index_mode=execution.index_mode,
        index_annotations=execution.index_annotations,
        attestations=execution.attestations,
        required=execution.required,
        partial=bool(execution.required),
        forced=execution.forced,
    )
