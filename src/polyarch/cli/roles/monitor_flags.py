"""The flags of ``polyarch run exec-monitor``: its side, and where a node has what it reads (``MonitorSettings``)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from polyarch.cli.errors import UsageError
from polyarch.cli.options.values import Directory, Name, Placeholder, option, subject

if TYPE_CHECKING:
    from polyarch.run.settings import MonitorSettings

MONITOR = subject("Exec-format-error monitor")
Side = Annotated[Literal["node", "handler"], Placeholder("SIDE")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MonitorFlags:
    """The node side runs on every node and reports to the handler, which tells the pods."""

    side: Annotated[Side, option("The side: node on every node, or their handler", group=MONITOR)] = "handler"
    node_name: Annotated[Name, option("The node's name", group=MONITOR, show_default=False)] = ""
    tracefs: Annotated[
        Directory, option("Mount point of tracefs", group=MONITOR, show_default="/sys/kernel/tracing")
    ] = ""
    proc: Annotated[Directory, option("Mount point of proc", group=MONITOR)] = "/proc"
    pod_logs: Annotated[Directory, option("The kubelet's directory of pod logs", group=MONITOR)] = "/var/log/pods"

    def settings(self) -> "MonitorSettings":
        """The same as a value of the process."""
        from polyarch.run.settings import MonitorSettings

        return MonitorSettings(
            side=self.side, node_name=self.node_name, tracefs=self.tracefs, proc=self.proc, pod_logs=self.pod_logs
        )

    def check(self) -> None:
        """Raises ``UsageError`` for a node side that does not know its node."""
        if self.side == "node" and not self.node_name:
            raise UsageError("run exec-monitor: --node-name is needed with --side node, as reports name the node")


ANY_NODE = MonitorFlags()
