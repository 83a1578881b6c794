"""The flags of ``polyarch run taints``: where its configuration is, if not in the cluster (``TaintRoleSettings``)."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from polyarch.cli.options.values import File, option, subject

TAINTS = subject("Taints")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TaintFlags:
    """The object ArchitectureTaints as a file, for clusters that do not have its kind (TN-012)."""

    config: Annotated[
        File, option("ArchitectureTaints as a file", group=TAINTS, show_default="the object in the cluster")
    ] = ""


FROM_THE_CLUSTER = TaintFlags()
