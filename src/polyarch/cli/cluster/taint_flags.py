"""The flags of ``polyarch run taints``: where its configuration is, if not in the cluster (``TaintRoleSettings``)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from polyarch.cli.options.values import File, option, subject

if TYPE_CHECKING:
    from polyarch.run.settings import TaintRoleSettings

TAINTS = subject("Taints")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TaintFlags:
    """The object ArchitectureTaints as a file, for clusters that do not have its kind (TN-012)."""

    config: Annotated[
        File, option("ArchitectureTaints as a file", group=TAINTS, show_default="the object in the cluster")
    ] = ""

    def settings(self) -> "TaintRoleSettings":
        """The same as a value of the process. Raises ``UsageError`` if the file is not such an object."""
        from polyarch.run.settings import TaintRoleSettings

        if not self.config:
            return TaintRoleSettings()
        from polyarch.cli.input.taints_object import read_taints

        return TaintRoleSettings(configuration=read_taints(self.config))


FROM_THE_CLUSTER = TaintFlags()
