"""``LabelSelector`` as it stands in objects (meta/v1); ``polyarch.requirements`` says what it matches."""

import msgspec


class LabelSelectorRequirement(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """meta/v1 LabelSelectorRequirement."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """meta/v1 LabelSelector: everything in it has to match; an empty one matches everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.match_labels and not self.match_expressions
