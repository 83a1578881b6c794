"""Options that the commands of ``polyarch numa`` share: where nodes are read, and how decisions are made.

Declarations only, so that ``--help`` starts fast.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from polyarch.cli.errors import UsageError
from polyarch.cli.options.common import USUAL_CLUSTER, ClusterFlags
from polyarch.cli.options.values import CLUSTER, File, Namespace, Placeholder, option, subject

if TYPE_CHECKING:
    from polyarch.numa.extender.state_document import Options
    from polyarch.numa.snapshot import Choice

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
    cluster: ClusterFlags = USUAL_CLUSTER
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
        if self.nrt and (self.cluster != USUAL_CLUSTER or self.extender_namespace):
            raise UsageError(f"{command}: --nrt reads files, and asks no cluster; remove one of them")


FROM_CLUSTER = SourceOptions()

# -- how decisions are made


MODE = Group("Decisions", sort_key=20)
Mode = Annotated[Literal["exact", "advise"], Placeholder("MODE")]
Strategy = Annotated[
    Literal["LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes"], Placeholder("STRATEGY")
]
Restricted = Annotated[Literal["filter", "score", "ignore"], Placeholder("ACTION")]
BestEffort = Annotated[Literal["score", "ignore"], Placeholder("ACTION")]
Weight = Annotated[str, Placeholder("RESOURCE=WEIGHT")]
AS_EXTENDER = "that of the extender, else {}"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModeOptions:
    """What is not given is as the extender has it, or as its flags have it by default."""

    mode: Annotated[
        Mode | None,
        option(
            "Answer one node (exact) or all that fit (advise)",
            group=MODE,
            show_default=AS_EXTENDER.format("exact"),
        ),
    ] = None
    strategy: Annotated[
        Strategy | None,
        option("How fitting nodes are scored", group=MODE, show_default=AS_EXTENDER.format("LeastAllocated")),
    ] = None
    weights: Annotated[
        list[Weight] | None, option("Weights of resources in the score, comma-separated; 1 if not given", group=MODE)
    ] = None
    restricted: Annotated[
        Restricted | None,
        option(
            "What policy restricted does with pods it cannot align",
            group=MODE,
            show_default=AS_EXTENDER.format("filter"),
        ),
    ] = None
    best_effort: Annotated[
        BestEffort | None,
        option("What policy best-effort does with them", group=MODE, show_default=AS_EXTENDER.format("score")),
    ] = None

    def choice(self, command: str, extender: "Options | None" = None) -> "Choice":
        """With what is not given from an extender. :class:`UsageError` for weights that are none."""
        from polyarch.numa.fit.facts import ExactOptions
        from polyarch.numa.snapshot import Choice

        weights = self._weights(command) or (extender.weights if extender is not None else {})
        strategy = self.strategy or (extender.strategy if extender is not None else "LeastAllocated")
        exact = {
            "strategy": strategy,
            "weights": weights,
            "restricted": self.restricted or (extender.restricted if extender is not None else "filter"),
            "best_effort": self.best_effort or (extender.best_effort if extender is not None else "score"),
            "unknown_nodes": extender.unknown_nodes if extender is not None else "pass",
        }
        import msgspec

        return Choice(
            mode=self.mode or ("advise" if extender is not None and extender.mode == "advise" else "exact"),
            exact=msgspec.convert(exact, ExactOptions),
            scheduler=extender.scheduler_name if extender is not None else "",
            evicts=extender.evicts if extender is not None else None,
        )

    def _weights(self, command: str) -> dict[str, int]:
        found = {}
        for text in (part for each in self.weights or () for part in each.split(",")):
            name, _, weight = text.rpartition("=")
            if not name or not weight.isdecimal() or int(weight) > 100:
                raise UsageError(f"{command}: --weights {text}: expected RESOURCE=WEIGHT with 0 to 100, such as cpu=3")
            found[name] = int(weight)
        return found


AS_USUAL = ModeOptions()
