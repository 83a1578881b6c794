"""Label selectors and node affinity terms: parse them, check them, match them against labels.

Kubernetes uses one small expression language in two places: ``LabelSelector`` (In, NotIn, Exists, DoesNotExist) and
``NodeSelectorTerm`` (these, Gt and Lt). A :class:`Requirement` is one expression. Semantics are those of
``k8s.io/apimachinery/pkg/labels`` and ``k8s.io/component-helpers/scheduling/corev1/nodeaffinity``.

Pure: no I/O, no clock. Parsing takes JSON mappings and the structs of :mod:`polyarch.objects` alike.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
LABEL_OPERATORS = OPERATORS[:4]
NEGATED = {"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}
FIELD_OPERATORS = OPERATORS[:2]

_MIN, _MAX = -(2**63), 2**63 - 1
_INTEGER = re.compile(r"[+-]?[0-9]{1,64}", re.ASCII)
_NAME = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)", re.ASCII)
_PREFIX_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", re.ASCII)


class InvalidSelector(ValueError):  # noqa: N818 - named for the problem
    """A selector that Kubernetes would refuse; ``field`` is the path of the wrong field."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field = field
        self.problem = problem


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One expression. A Gt or Lt whose value is not an integer matches nothing, as in Kubernetes."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    @classmethod
    def parse(cls, expression: object, *, field: str = "", operators: tuple[str, ...] = OPERATORS) -> "Requirement":
        """Parse ``{key, operator, values}`` with the API server's checks; raises :class:`InvalidSelector`."""
        prefix = f"{field}." if field else ""
        key, operator = (_text(expression, name, prefix) for name in ("key", "operator"))
        if operator not in operators:
            problem = f"{operator!r} is not a valid operator; expected one of {', '.join(operators)}"
            raise InvalidSelector(f"{prefix}operator", problem)
        values = _member(expression, "values")
        if values is None:
            values = ()
        if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
            raise InvalidSelector(f"{prefix}values", "must be a list of strings")
        if operator in ("In", "NotIn") and not values:
            raise InvalidSelector(f"{prefix}values", f"is empty; {operator} needs at least one value")
        if operator in ("Exists", "DoesNotExist") and values:
            raise InvalidSelector(f"{prefix}values", f"has values, which {operator} does not take")
        if operator in ("Gt", "Lt") and (len(values) != 1 or _integer(values[0]) is None):
            raise InvalidSelector(f"{prefix}values", f"must be one integer for {operator}")
        return cls(key, operator, tuple(values))

    @property
    def negated(self) -> "Requirement":
        """The expression that matches whatever this one does not. Gt and Lt have none: raises ``ValueError``."""
        if self.operator not in NEGATED:
            raise ValueError(f"{self.key} {self.operator}: no expression matches the rest")
        return Requirement(self.key, NEGATED[self.operator], self.values)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels satisfies the expression."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                bound = _integer(self.values[0]) if len(self.values) == 1 else None
                number = _integer(value) if value is not None else None
                if bound is None or number is None:
                    return False
                return number > bound if self.operator == "Gt" else number < bound
            case _:
                raise InvalidSelector("operator", f"{self.operator!r} is not one of {', '.join(OPERATORS)}")


class Selector(msgspec.Struct, frozen=True, gc=False):
    """A ``LabelSelector``: all its requirements must match; an empty one matches everything."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def parse(cls, selector: object) -> "Selector":
        """Parse a meta/v1 LabelSelector, given as a mapping or a struct. :class:`InvalidSelector` names the field.

        Whether an *absent* selector matches everything or nothing differs by field, so the caller decides that.
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


NOTHING: Final = Selector((Requirement("kubernetes.io/arch", "In", ()),))
"""Matches no labels."""


class NodeTerm(msgspec.Struct, frozen=True, gc=False):
    """A ``NodeSelectorTerm``: all expressions on labels and fields must match; an empty term matches no node."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    @classmethod
    def parse(cls, term: object) -> "NodeTerm":
        """Parse a core/v1 NodeSelectorTerm, a mapping or a struct. :class:`InvalidSelector` names the field."""
        expressions = tuple(
            Requirement.parse(expression, field=field) for field, expression in _items(term, "matchExpressions")
        )
        fields = []
        for field, expression in _items(term, "matchFields"):
            requirement = Requirement.parse(expression, field=field, operators=FIELD_OPERATORS)
            if requirement.key != "metadata.name":
                raise InvalidSelector(
                    f"{field}.key", f"{requirement.key!r} cannot be used to select nodes; expected metadata.name"
                )
            fields.append(requirement)
        return cls(expressions, tuple(fields))

    def matches(self, labels: Mapping[str, str], node_name: str = "") -> bool:
        if not self.expressions and not self.fields:
            return False
        name = {"metadata.name": node_name}
        return all(_is_understood(each.values) and each.matches(labels) for each in self.expressions) and all(
            each.matches(name) for each in self.fields
        )


@lru_cache(maxsize=1024)
def _is_understood(values: tuple[str, ...]) -> bool:
    """Whether the scheduler's parser takes the expression: a value that no label can have (``-1``, ``a b``) makes its
    whole term match nothing, ``NotIn``, ``Gt`` and ``Lt`` too, although the API server stores it."""
    return all(not value or (len(value) < 64 and _NAME.fullmatch(value)) for value in values)


def admits(
    terms: Iterable[object] | None,
    labels: Mapping[str, str],
    *,
    node_selector: Mapping[str, str] | None = None,
    node_name: str = "",
) -> bool:
    """Whether a pod with these required node affinity terms and this nodeSelector may run on the node.

    ``terms`` is None if no node affinity is required; an empty list matches no node. Terms are :class:`NodeTerm`
    values, mappings or structs; one of them must match, and every label of ``node_selector``.
    """
    for key, value in (node_selector or {}).items():
        if labels.get(key) != value:
            return False
    if terms is None:
        return True
    parsed = (term if isinstance(term, NodeTerm) else NodeTerm.parse(term) for term in terms)
    return any(term.matches(labels, node_name) for term in parsed)


def is_listed(name: str, patterns: Iterable[str]) -> bool:
    """Whether a list of names has this one, or a beginning of it followed by ``*``."""
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in patterns)


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
        raise InvalidSelector(field, "the label is not a string")
    prefix, slash, name = key.rpartition("/")
    labels = prefix.split(".")
    if slash and (len(prefix) > 253 or not all(_PREFIX_LABEL.fullmatch(label) for label in labels)):
        raise InvalidSelector(field, f"{key[:300]!r} has no DNS name before '/'")
    if not _NAME.fullmatch(name):
        problem = (
            "is not a label: use up to 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit"
        )
        raise InvalidSelector(field, f"{key[:300]!r} {problem}")


def is_label_key(text: str) -> bool:
    """Whether Kubernetes takes a text as the key of a label."""
    try:
        _check_key(text, "")
    except InvalidSelector:
        return False
    return True


def is_label_value(text: str) -> bool:
    """Whether a label may have this value."""
    return not text or _NAME.fullmatch(text) is not None


def _check_value(value: object, field: str) -> None:
    if not isinstance(value, str):
        raise InvalidSelector(field, "the value is not a string")
    if value and not _NAME.fullmatch(value):
        problem = "is not a label value: use up to 63 letters, digits, '-', '_' and '.', or leave it empty"
        raise InvalidSelector(field, f"{value[:100]!r} {problem}")


def _integer(text: str) -> int | None:
    # As Go's ParseInt parses a 64-bit decimal number.
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if _MIN <= number <= _MAX else None


# -- selectors as objects contain them, not yet checked ----------------------------------------------------------------


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
