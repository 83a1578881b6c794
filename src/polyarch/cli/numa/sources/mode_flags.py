"""How decisions are made: options that ``explain`` and ``simulate`` share, and what they come to."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from polyarch.cli.errors import UsageError
from polyarch.cli.options.values import Placeholder, option

if TYPE_CHECKING:
    from polyarch.numa.extender.state_document import Options
    from polyarch.numa.snapshot import Choice

MODE = Group("Decisions", sort_key=20)
Mode = Annotated[Literal["exact", "advise", "compat"], Placeholder("MODE")]
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
            "As kubelets admit (exact, advise) or as the scheduler plugin judges (compat)",
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
        from polyarch.numa.fit.compat import CompatOptions
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
            mode=msgspec.convert(self.mode or (extender.mode if extender is not None else "exact"), Mode),
            exact=msgspec.convert(exact, ExactOptions),
            compat=msgspec.convert({"strategy": strategy, "weights": weights}, CompatOptions),
            scheduler=extender.scheduler_name if extender is not None else "",
            evicts=extender.evicts if extender is not None else None,
        )

    def _weights(self, command: str) -> dict[str, int]:
        found = {}
        for text in (part for each in self.weights or () for part in each.split(",")):
            name, _, weight = text.rpartition("=")
            if not name or not weight.isdecimal() or not 0 < int(weight) <= 100:
                raise UsageError(f"{command}: --weights {text}: expected RESOURCE=WEIGHT with 1 to 100, such as cpu=3")
            found[name] = int(weight)
        return found


AS_USUAL = ModeOptions()
