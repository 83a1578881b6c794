"""Settings of a custom resource, each declared once as a field of a Struct.

The field's type, its default and its :class:`SettingField` say everything: the schema of the CRD, the checks of stored
objects and of files, and the table in the guide follow. The type is one of: a Literal (an enum), bool, int (a count),
float (a duration in seconds), str (the key of a label or taint), a tuple or frozenset (a set of names), Selector (a
label selector). Pure.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from polyarch.durations import format_duration, is_within, parse_duration
from polyarch.kube.schema import (
    LABEL_FORM,
    LABEL_KEY,
    LABEL_KEY_LENGTH,
    Schema,
    SchemaViolation,
    array,
    boolean,
    cel_text,
    checked_label_selector,
    departures,
    duration,
    integer,
    obj,
    rule,
    selector_problems,
    text,
    type_problem,
    without_nulls,
)
from polyarch.selectors import NOTHING, Selector

MAX_NAMESPACES: Final = 256
NAMESPACE: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
NAMESPACE_PREFIX: Final = r"^[a-z0-9][-a-z0-9]*\*$"


class SettingField(NamedTuple):
    """Where a setting stands in the custom resource, and what is allowed there."""

    path: str
    """Below ``spec``, such as ``onUnresolved.retryWindow``."""
    description: str
    bounds: tuple[float, float] = (0, 0)
    """Lowest and highest value: seconds of a duration, a count, or how many names a set may have."""
    override: bool = False
    """An entry of ``overrides`` may set it for some namespaces."""
    names: tuple[str, ...] = ()
    """Of a set of names: those that are allowed, if its type does not say so."""
    excluding: str = ""
    """Of a set of namespaces: the setting to use instead of excluding all of them."""
    derived: bool = False
    """The schema has no default: what absence means follows from other settings."""


class Setting(NamedTuple):
    """A declared setting: its name in the Struct, its type without None, its default, and its place."""

    name: str
    type: Any
    default: Any
    field: SettingField

    @property
    def group(self) -> str:
        """The object below ``spec`` that has it; empty: ``spec`` itself."""
        return self.field.path.rpartition(".")[0]

    @property
    def member(self) -> str:
        """Its name there."""
        return self.field.path.rpartition(".")[2]

    @property
    def names(self) -> tuple[str, ...]:
        """Of an enum or a set: what is allowed; empty for a set of namespaces."""
        return self.field.names or get_args(self.type if get_origin(self.type) is Literal else get_args(self.type)[0])

    @property
    def is_set(self) -> bool:
        return get_origin(self.type) in (tuple, frozenset)

    def schema(self, where: str = "spec", *, with_default: bool = True) -> Schema:
        """The schema of its member of the object at ``where``."""
        path, description, (low, high) = f"{where}.{self.field.path}", self.field.description, self.field.bounds
        default: Any = None if self.field.derived or not with_default else self.default
        if get_origin(self.type) is Literal:
            return text(description=description, enum=self.names, default=default)
        if self.is_set:
            return array(
                text(enum=self.names) if self.names else text(max_length=64, rules=(self._namespace_rule(path),)),
                description=description,
                list_type="set",
                min_items=int(low) or None,
                max_items=int(high) or len(self.names) or MAX_NAMESPACES,
                default=sorted(default) if isinstance(default, frozenset) else default,
            )
        if self.type is bool:
            return boolean(description=description, default=default)
        if self.type is float:
            return duration(path, low, high, description=description, default=default)
        if self.type is Selector:
            return checked_label_selector(path, description)
        if self.type is str:
            is_key = f"size(self) <= {LABEL_KEY_LENGTH} && self.matches({cel_text(LABEL_KEY)})"
            message = f"{path} {_KEY_FORM}"
            return text(description=description, max_length=LABEL_KEY_LENGTH, rules=(rule(is_key, message),))
        return integer(description=description, minimum=int(low), maximum=int(high), default=default)

    def problems(self, value: Any, where: str = "spec") -> Iterator[SchemaViolation]:
        """Why the API server refuses this value."""
        path = f"{where}.{self.field.path}"
        wrong = tuple(departures(self.schema(where), value, path))
        yield from wrong or self.broken_rules(value, where)

    def broken_rules(self, value: Any, where: str = "spec") -> Iterator[SchemaViolation]:
        """The rules of the schema that a value of the right form breaks."""
        path, (low, high) = f"{where}.{self.field.path}", self.field.bounds
        if self.type is float and not is_within(value, (low, high)):
            shortest, longest = format_duration(low), format_duration(high)
            yield SchemaViolation(path, f"must be a duration from {shortest} to {longest}, not {value}")
        elif self.type is str and re.fullmatch(LABEL_KEY, value, re.ASCII) is None:
            yield SchemaViolation(path, _KEY_FORM)
        elif self.type is Selector:
            yield from selector_problems(path, value)
        elif self.is_set and not self.names:
            for index, name in enumerate(value):
                if not any(re.fullmatch(form, name, re.ASCII) for form in (NAMESPACE, NAMESPACE_PREFIX)):
                    yield SchemaViolation(f"{path}[{index}]", f"{name[:60]!r}: {self._namespace_form(path)}")

    def read(self, value: Any) -> Any:
        """The setting of a value without problems."""
        if self.type is float:
            return parse_duration(value)
        if self.type is Selector:
            return Selector.parse(value)
        if self.is_set:
            return frozenset(value) if get_origin(self.type) is frozenset else tuple(sorted(set(value)))
        return value

    def _namespace_form(self, path: str) -> str:
        return (
            f"{path} takes names of namespaces, or a prefix followed by *, such as vendor-*; "
            f"* alone would exclude everything: use {self.field.excluding} for that"
        )

    def _namespace_rule(self, path: str) -> Schema:
        allowed = f"self.matches({cel_text(NAMESPACE)}) || self.matches({cel_text(NAMESPACE_PREFIX)})"
        return rule(allowed, self._namespace_form(path))


_ABSENT: Final = "it counts as absent"
_KEY_FORM: Final = f"is not the key of a taint: {LABEL_FORM}"


def declared_settings(struct: type[msgspec.Struct]) -> tuple[Setting, ...]:
    """The settings that the fields of a Struct declare, in their order, which is that of the schema."""
    hints = get_type_hints(struct, include_extras=True)
    settings = []
    for name, default in zip(struct.__struct_fields__, struct.__struct_defaults__, strict=True):
        if get_origin(hints[name]) is Annotated:
            hint, field = get_args(hints[name])
            members = [member for member in get_args(hint) if member is not NoneType]
            kind = members[0] if NoneType in get_args(hint) else hint
            settings.append(Setting(name, kind, default, field))
    return tuple(settings)


def schema_members(
    settings: Iterable[Setting],
    where: str,
    groups: Mapping[str, str],
    *,
    rules: Callable[[str], Sequence[Schema]] = lambda group: (),
    with_defaults: bool = True,
) -> dict[str, Schema]:
    """The members of the object at ``where``: settings, and objects with settings. ``groups`` describes those objects,
    and ``rules`` are theirs."""
    members: dict[str, Schema] = {}
    for setting in settings:
        schema = setting.schema(where, with_default=with_defaults)
        if not (group := setting.group):
            members[setting.member] = schema
            continue
        if group not in members:
            members[group] = obj(
                {setting.member: schema},
                description=groups[group],
                rules=rules(group),
                default={} if with_defaults else None,
            )
        members[group]["properties"][setting.member] = schema
    return members


def read_settings(
    settings: Collection[Setting], layer: Mapping[str, Any], where: str = "spec"
) -> tuple[dict[str, Any], list[SchemaViolation]]:
    """What an object gives, by the names of the Struct, and what is wrong with it.

    A value that the schema refuses, of an older schema or in a file, counts as absent. Of a set, the names that are
    allowed remain if there are any, and a selector that does not parse selects nothing, because without them more
    objects would be touched than anybody asked for.
    """
    found: dict[str, Any] = {}
    problems: dict[SchemaViolation, None] = {}
    for setting in settings:
        given = layer.get(setting.group) if setting.group else layer
        if not isinstance(given, Mapping):
            if given is not None:
                members: Schema = {each.member: {} for each in settings if each.group == setting.group}
                problem = type_problem({"type": "object", "properties": members}, given)
                problems[SchemaViolation(f"{where}.{setting.group}", f"{problem}; {_ABSENT}")] = None
            continue
        if (value := without_nulls(given.get(setting.member))) is None:
            continue
        if wrong := tuple(setting.problems(value, where)):
            kept = [each for each in value if not any(setting.problems([each]))] if isinstance(value, list) else []
            outcome = "it selects nothing" if setting.type is Selector else "it is left out" if kept else _ABSENT
            problems |= {SchemaViolation(field, f"{reason}; {outcome}"): None for field, reason in wrong}
            if setting.type is Selector:
                found[setting.name] = NOTHING
            if not kept:
                continue
            value = kept
        found[setting.name] = setting.read(value)
    return found, list(problems)


def without_defaults(settings: Iterable[Setting], spec: Mapping[str, Any]) -> dict[str, Any]:
    """What of a spec differs from the defaults that the API server fills in; empty objects and lists are left out."""
    found = {name: dict(value) if isinstance(value, Mapping) else value for name, value in spec.items()}
    for setting in settings:
        members = found.get(setting.group) if setting.group else found
        if members and members.get(setting.member) == setting.schema().get("default", None):
            members.pop(setting.member, None)
    return {name: value for name, value in found.items() if value not in (None, {}, [])}
