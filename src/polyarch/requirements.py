"""The algebra of label requirements: what a selector or a node affinity lets through.

Kubernetes has one small language for this in two places: ``LabelSelector`` (In, NotIn, Exists, DoesNotExist) and
``NodeSelectorTerm`` (these, Gt and Lt). A :class:`Requirement` is one expression of it and :class:`Values` its normal
form, in which two expressions on one key can be intersected and found to contradict each other. Semantics are those of
``k8s.io/apimachinery/pkg/labels`` and ``k8s.io/component-helpers/scheduling/corev1/nodeaffinity``.

Pure: no I/O, no clock. Parsing takes JSON mappings and the structs of ``polyarch.model`` alike.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
LABEL_OPERATORS = OPERATORS[:4]
FIELD_OPERATORS = OPERATORS[:2]

_MIN, _MAX = -(2**63), 2**63 - 1
_INTEGER = re.compile(r"[+-]?[0-9]{1,64}", re.ASCII)
_NAME = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)", re.ASCII)
_PREFIX_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", re.ASCII)


class InvalidSelector(ValueError):  # noqa: N818 - the name says what is the matter
    """A selector that Kubernetes would refuse; ``field`` is the path of what is wrong in it."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field = field
        self.problem = problem


class Values(msgspec.Struct, frozen=True, gc=False):
    """The values of one label that are let through; ``&`` intersects.

    ``listed`` is None where any value but those ``excluded`` is let through. ``above`` and ``below`` are exclusive
    bounds; a value that is no 64-bit integer is not within bounds.
    """

    absent: bool
    """Also an object without the label."""
    listed: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
    above: int | None = None
    below: int | None = None

    def admits(self, value: str | None) -> bool:
        """Whether the value, or with None the absence of the label, is let through."""
        if value is None:
            return self.absent
        if value in self.excluded or (self.listed is not None and value not in self.listed):
            return False
        if self.above is None and self.below is None:
            return True
        number = _integer(value)
        if number is None:
            return False
        return (self.above is None or number > self.above) and (self.below is None or number < self.below)

    @property
    def is_empty(self) -> bool:
        """Nothing is let through: expressions that contradict each other."""
        if self.absent:
            return False
        if self.listed is not None:
            return not any(self.admits(value) for value in self.listed)
        if self.above is None and self.below is None:
            return False
        # The value of a label begins with a letter or digit, so no label is below zero.
        least = 0 if self.above is None else max(self.above + 1, 0)
        most = _MAX if self.below is None else min(self.below - 1, _MAX)
        return least > most

    def __and__(self, other: "Values") -> "Values":
        absent = self.absent and other.absent
        if self.listed is not None or other.listed is not None:
            one, rest = (self, other) if self.listed is not None else (other, self)
            listed = frozenset(value for value in one.listed or () if one.admits(value) and rest.admits(value))
            return Values(absent, listed)
        return Values(
            absent,
            excluded=self.excluded | other.excluded,
            above=_tighter(self.above, other.above, max),
            below=_tighter(self.below, other.below, min),
        )


ANY = Values(absent=True)
"""What a key without a requirement lets through."""


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One expression. A value of Gt or Lt that is no integer lets nothing through, as in Kubernetes."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    @classmethod
    def parse(cls, expression: object, *, field: str = "", operators: tuple[str, ...] = OPERATORS) -> "Requirement":
        """From ``{key, operator, values}``, checked as the API server does; raises :class:`InvalidSelector`."""
        prefix = f"{field}." if field else ""
        key, operator = (_text(expression, name, prefix) for name in ("key", "operator"))
        if operator not in operators:
            problem = f"{operator!r} is not an operator here; expected one of {', '.join(operators)}"
            raise InvalidSelector(f"{prefix}operator", problem)
        values = _member(expression, "values")
        if values is None:
            values = ()
        if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
            raise InvalidSelector(f"{prefix}values", "must be a list of texts")
        if operator in ("In", "NotIn") and not values:
            raise InvalidSelector(f"{prefix}values", f"is empty; {operator} needs at least one value")
        if operator in ("Exists", "DoesNotExist") and values:
            raise InvalidSelector(f"{prefix}values", f"has values, which {operator} does not take")
        if operator in ("Gt", "Lt") and (len(values) != 1 or _integer(values[0]) is None):
            raise InvalidSelector(f"{prefix}values", f"must be one integer for {operator}")
        return cls(key, operator, tuple(values))

    @property
    def allowed(self) -> Values:
        """The normal form."""
        match self.operator:
            case "In":
                return Values(absent=False, listed=frozenset(self.values))
            case "NotIn":
                return Values(absent=True, excluded=frozenset(self.values))
            case "Exists":
                return Values(absent=False)
            case "DoesNotExist":
                return Values(absent=True, listed=frozenset())
            case "Gt" | "Lt":
                bound = _integer(self.values[0]) if len(self.values) == 1 else None
                if bound is None:
                    return Values(absent=False, listed=frozenset())
                above = self.operator == "Gt"
                return Values(absent=False, above=bound if above else None, below=None if above else bound)
            case _:
                raise InvalidSelector("operator", f"{self.operator!r} is not one of {', '.join(OPERATORS)}")

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is let through."""
        return self.allowed.admits(labels.get(self.key))

    def intersect(self, other: "Requirement") -> Values:
        """What both let through; both are on the same key."""
        if self.key != other.key:
            raise ValueError(f"{self.key} and {other.key} are different labels and restrict each other in nothing")
        return self.allowed & other.allowed


class Selector(msgspec.Struct, frozen=True, gc=False):
    """A ``LabelSelector``: all requirements have to match; none at all matches everything."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def parse(cls, selector: object) -> "Selector":
        """From meta/v1 LabelSelector, as a mapping or a struct. :class:`InvalidSelector` names the field.

        What an *absent* selector means (everything, or nothing) differs by field, so it is the caller's to say.
        """
        if selector is None:
            raise InvalidSelector("", "there is no selector to parse")
        match_labels = _member(selector, "matchLabels")
        if not isinstance(match_labels, Mapping | None):
            raise InvalidSelector("matchLabels", "must map labels to values")
        requirements = []
        for key, value in (match_labels or {}).items():
            field = f"matchLabels[{key}]"
            _check_key(key, field)
            _check_value(value, field)
            requirements.append(Requirement(key, "In", (value,)))
        for field, expression in _items(selector, "matchExpressions"):
            requirement = Requirement.parse(expression, field=field, operators=LABEL_OPERATORS)
            _check_key(requirement.key, f"{field}.key")
            for index, value in enumerate(requirement.values):
                _check_value(value, f"{field}.values[{index}]")
            requirements.append(requirement)
        return cls(tuple(requirements))

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        return all(requirement.matches(labels or {}) for requirement in self.requirements)


class NodeTerm(msgspec.Struct, frozen=True, gc=False):
    """A ``NodeSelectorTerm``: all expressions on labels and fields have to match; an empty term matches no node."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    @classmethod
    def parse(cls, term: object) -> "NodeTerm":
        """From core/v1 NodeSelectorTerm, as a mapping or a struct. :class:`InvalidSelector` names the field."""
        expressions = tuple(
            Requirement.parse(expression, field=field) for field, expression in _items(term, "matchExpressions")
        )
        fields = []
        for field, expression in _items(term, "matchFields"):
            requirement = Requirement.parse(expression, field=field, operators=FIELD_OPERATORS)
            if requirement.key != "metadata.name":
                raise InvalidSelector(
                    f"{field}.key", f"{requirement.key!r} is not a field of nodes; expected metadata.name"
                )
            fields.append(requirement)
        return cls(expressions, tuple(fields))

    def matches(self, labels: Mapping[str, str], node_name: str = "") -> bool:
        if not self.expressions and not self.fields:
            return False
        name = {"metadata.name": node_name}
        return all(each.matches(labels) for each in self.expressions) and all(
            each.matches(name) for each in self.fields
        )

    @property
    def contradicts_itself(self) -> bool:
        """No node at all can match: the term is empty, or its expressions on some label exclude each other."""
        if not self.expressions and not self.fields:
            return True
        allowed: dict[str, Values] = {}
        for each in self.expressions:
            allowed[each.key] = allowed.get(each.key, ANY) & each.allowed
        return any(values.is_empty for values in allowed.values())


def admits(
    terms: Iterable[object] | None,
    labels: Mapping[str, str],
    *,
    node_selector: Mapping[str, str] | None = None,
    node_name: str = "",
) -> bool:
    """Whether a pod with these required node affinity terms and this nodeSelector may run on the node.

    ``terms`` is None where no node affinity is required; an empty list matches no node. Terms are :class:`NodeTerm`
    values, mappings or structs; one of them has to match, and every label of ``node_selector``.
    """
    if any(labels.get(key) != value for key, value in (node_selector or {}).items()):
        return False
    if terms is None:
        return True
    parsed = (term if isinstance(term, NodeTerm) else NodeTerm.parse(term) for term in terms)
    return any(term.matches(labels, node_name) for term in parsed)


def _member(value: object, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    attribute = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    if not isinstance(value, msgspec.Struct):
        raise InvalidSelector("", f"expected an object, not {type(value).__name__}")
    return getattr(value, attribute)


def _items(value: object, name: str) -> list[tuple[str, Any]]:
    items = _member(value, name)
    if items is None:
        return []
    if not isinstance(items, list | tuple):
        raise InvalidSelector(name, "must be a list")
    return [(f"{name}[{index}]", item) for index, item in enumerate(items)]


def _text(expression: object, name: str, prefix: str) -> str:
    value = _member(expression, name)
    if not isinstance(value, str) or not value:
        raise InvalidSelector(f"{prefix}{name}", "is missing")
    return value


def _check_key(key: object, field: str) -> None:
    if not isinstance(key, str):
        raise InvalidSelector(field, "the label is not a text")
    prefix, slash, name = key.rpartition("/")
    labels = prefix.split(".")
    if slash and (len(prefix) > 253 or not all(_PREFIX_LABEL.fullmatch(label) for label in labels)):
        raise InvalidSelector(field, f"{key[:300]!r} does not begin with a DNS name before '/'")
    if not _NAME.fullmatch(name):
        problem = (
            "is not a label: up to 63 letters, digits, '-', '_' and '.', beginning and ending with one of the first two"
        )
        raise InvalidSelector(field, f"{key[:300]!r} {problem}")


def _check_value(value: object, field: str) -> None:
    if not isinstance(value, str):
        raise InvalidSelector(field, "the value is not a text")
    if value and not _NAME.fullmatch(value):
        problem = "is not the value of a label: up to 63 letters, digits, '-', '_' and '.', or nothing"
        raise InvalidSelector(field, f"{value[:100]!r} {problem}")


def _integer(text: str) -> int | None:
    # As Go's ParseInt reads a decimal number of 64 bits.
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if _MIN <= number <= _MAX else None


def _tighter(one: int | None, other: int | None, pick: Callable[[int, int], int]) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return pick(one, other)
