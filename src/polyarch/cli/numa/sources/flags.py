"""Where these commands find nodes: options that they share. Only declarations, as ``--help`` needs them."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from polyarch.cli.errors import UsageError
from polyarch.cli.options.values import CLUSTER, Context, File, Namespace, option, subject

NODES = subject("Nodes")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Files, or a cluster with or without an extender."""

    nrt: Annotated[
        list[File] | None,
        option(
            "Files with NodeResourceTopologies in place of a cluster; - is standard input; repeatable",
            group=NODES,
            hyphen=True,
        ),
    ] = None
    nodes: Annotated[
        list[File] | None,
        option("With --nrt: files with their Nodes, and with the Pods on them; repeatable", group=NODES),
    ] = None
    kubeconfig: Annotated[File | None, option("Kubeconfig", group=CLUSTER, show_default="as kubectl")] = None
    context: Annotated[
        Context | None, option("Context of the kubeconfig", group=CLUSTER, show_default="the current one")
    ] = None
    extender_namespace: Annotated[
        Namespace | None,
        option("Where the scheduler with the extender is", group=CLUSTER, show_default="wherever one is found"),
    ] = None

    @property
    def files(self) -> tuple[str, ...]:
        """Those that are read, and that no answer may replace."""
        return (*(self.nrt or ()), *(self.nodes or ()))

    def check(self, command: str) -> None:
        """``UsageError`` for options that contradict each other."""
        if self.nodes and not self.nrt:
            raise UsageError(f"{command}: --nodes belongs to --nrt FILE; without files the cluster is asked")
        if self.nrt and (self.kubeconfig or self.context or self.extender_namespace):
            raise UsageError(f"{command}: --nrt reads files, and asks no cluster; remove one of them")


FROM_CLUSTER = SourceOptions()
