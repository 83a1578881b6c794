"""``LabelSelector`` (meta/v1) as objects contain it; ``polyarch.requirements`` matches it."""

import msgspec


class LabelSelectorRequirement(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """meta/v1 LabelSelectorRequirement."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """meta/v1 LabelSelector: all of it must match; an empty one matches everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.match_labels and not self.match_expressions

    @property
    def query(self) -> str:
        """As a request for a list writes it: ``app=web,tier in (a,b)``."""
        pairs = [f"{key}={value}" for key, value in (self.match_labels or {}).items()]
        return ",".join((*pairs, *(_written(each) for each in self.match_expressions or ())))


def _written(requirement: LabelSelectorRequirement) -> str:
    match requirement.operator:
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"!{requirement.key}"
        case operator:
            return f"{requirement.key} {operator.lower()} ({','.join(requirement.values or ())})"
