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
