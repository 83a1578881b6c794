"""Schemas of custom resources: builders for OpenAPI v3 structural schemas and CEL rules, and a check of values by them.

A rejection has to name the field, the allowed values and the next action. Where the API server's own message for an
enum or a bound does not, a CEL rule with a message replaces it. Pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from polyarch.durations import PATTERN, format_duration
from polyarch.kube.resources import CRDS, Resource
from polyarch.selectors import LABEL_OPERATORS, InvalidSelector, Selector
from polyarch.tolerations import NO_EXECUTE

Schema = dict[str, Any]

DNS_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
DNS_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
LABEL_NAME: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LABEL_KEY: Final = f"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?{LABEL_NAME}$"
"""A label or a key of a taint: an optional DNS name and a slash, and a name of up to 63 characters."""
LABEL_VALUE: Final = f"^({LABEL_NAME})?$"
LABEL_KEY_LENGTH: Final = 253 + 1 + 63
QUANTITY: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
"""An amount as text, in the words of apimachinery's generated schemas."""
SELECTOR_ENTRIES: Final = 16
"""Labels and expressions that a checked selector may have, each; bounded, because rules have a budget."""
ALL_MATCH: Final = "All of them have to match."
LABEL_FORM: Final = (
    "up to 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit; "
    "before it, if wanted, a DNS name and '/'"
)


def rule(expression: str, message: str = "", *, message_expression: str = "") -> Schema:
    """One CEL rule; the message names the field, what is allowed and what to do."""
    content: Schema = {"rule": expression}
    if message:
        content["message"] = message
    if message_expression:
        content["messageExpression"] = message_expression
    return content


def obj(
    properties: Mapping[str, Schema],
    *,
    description: str = "",
    required: Sequence[str] = (),
    rules: Sequence[Schema] = (),
    default: Any = None,
) -> Schema:
    """An object with these members; an empty ``properties`` is left out, as the API server leaves it out."""
    schema = _described({"type": "object"}, description)
    if properties:
        schema["properties"] = dict(properties)
    if required:
        schema["required"] = list(required)
    if rules:
        schema["x-kubernetes-validations"] = list(rules)
    if default is not None:
        schema["default"] = default
    return schema


def text(
    *,
    description: str = "",
    enum: Sequence[str] = (),
    default: str | None = None,
    pattern: str = "",
    max_length: int | None = None,
    min_length: int | None = None,
    format: str = "",
    rules: Sequence[Schema] = (),
) -> Schema:
    """A string."""
    schema = _described({"type": "string"}, description)
    if enum:
        schema["enum"] = list(enum)
    if pattern:
        schema["pattern"] = pattern
    if format:
        schema["format"] = format
    if min_length is not None:
        schema["minLength"] = min_length
    if max_length is not None:
        schema["maxLength"] = max_length
    if rules:
        schema["x-kubernetes-validations"] = list(rules)
    if default is not None:
        schema["default"] = default
    return schema


def text_map(description: str, *, most: int | None = None) -> Schema:
    """Texts by name, such as annotations; ``most``: how many there may be."""
    schema = _described({"type": "object", "additionalProperties": {"type": "string"}}, description)
    return schema if most is None else schema | {"maxProperties": most}


def boolean(*, description: str = "", default: bool | None = None) -> Schema:
    """True or false."""
    schema = _described({"type": "boolean"}, description)
    if default is not None:
        schema["default"] = default
    return schema


def integer(
    *,
    description: str = "",
    minimum: int | None = None,
    maximum: int | None = None,
    default: int | None = None,
    format: str = "",
) -> Schema:
    """A whole number; the API server's message for bounds already names the field and the bound."""
    schema = _described({"type": "integer"}, description)
    if format:
        schema["format"] = format
    if minimum is not None:
        schema["minimum"] = minimum
    if maximum is not None:
        schema["maximum"] = maximum
    if default is not None:
        schema["default"] = default
    return schema


def array(
    items: Schema,
    *,
    description: str = "",
    list_type: str = "atomic",
    map_keys: Sequence[str] = (),
    min_items: int | None = None,
    max_items: int | None = None,
    default: Sequence[Any] | None = None,
    rules: Sequence[Schema] = (),
) -> Schema:
    """A list; lists of type ``set`` and ``map`` have unique elements. ``list_type`` empty: it is not said."""
    schema = _described({"type": "array", "items": items}, description)
    if list_type:
        schema["x-kubernetes-list-type"] = list_type
    if map_keys:
        schema["x-kubernetes-list-map-keys"] = list(map_keys)
    if min_items is not None:
        schema["minItems"] = min_items
    if max_items is not None:
        schema["maxItems"] = max_items
    if rules:
        schema["x-kubernetes-validations"] = list(rules)
    if default is not None:
        schema["default"] = list(default)
    return schema


def quantity(*, description: str = "") -> Schema:
    """An amount as Kubernetes writes it, a number or a text: ``4``, ``"16Gi"``."""
    either: Schema = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    return _described({**either, "pattern": QUANTITY, "x-kubernetes-int-or-string": True}, description)


def duration(field: str, low: float, high: float, *, description: str = "", default: float | None = None) -> Schema:
    """A Go duration within bounds; the message names them."""
    shortest, longest = format_duration(low), format_duration(high)
    return text(
        description=f"{description} A duration such as 90s or 1h30m, {shortest} to {longest}.".strip(),
        pattern=PATTERN,
        max_length=32,
        default=format_duration(default) if default is not None else None,
        rules=[
            rule(
                f"duration(self) >= duration('{shortest}') && duration(self) <= duration('{longest}')",
                f"{field} must be a duration from {shortest} to {longest}",
            )
        ],
    )


def label_selector(description: str, *, rules: Sequence[Schema] = ()) -> Schema:
    """meta/v1 LabelSelector; what is wrong inside is for its reader to tell."""
    expression = obj(
        {
            "key": text(description="The label."),
            "operator": text(description="In, NotIn, Exists or DoesNotExist."),
            "values": array(text(), description="Values for In and NotIn; none for Exists and DoesNotExist."),
        },
        required=("key", "operator"),
    )
    return _selector(array(expression, description=ALL_MATCH), {"type": "string"}, description, rules)


def checked_label_selector(field: str, description: str) -> Schema:
    """meta/v1 LabelSelector that the API server refuses if it is invalid, with the words for ``field``."""
    key = rule(
        f"size(self) <= {LABEL_KEY_LENGTH} && self.matches({cel_text(LABEL_KEY)})",
        f"{field}.matchExpressions[].key is not a label: {LABEL_FORM}",
    )
    values = rule(
        "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0"
        " : !has(self.values) || size(self.values) == 0",
        f"{field}.matchExpressions[].values: In and NotIn need at least one value, Exists and DoesNotExist take none",
    )
    expression = obj(
        {
            "key": text(description="The label.", max_length=LABEL_KEY_LENGTH, rules=(key,)),
            "operator": text(description="How it is compared.", enum=LABEL_OPERATORS),
            "values": array(
                text(max_length=63, pattern=LABEL_VALUE),
                description="Values for In and NotIn; none for Exists and DoesNotExist.",
                max_items=SELECTOR_ENTRIES,
            ),
        },
        required=("key", "operator"),
        rules=(values,),
    )
    expressions = array(expression, description=ALL_MATCH, max_items=SELECTOR_ENTRIES)
    schema = _selector(expressions, {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE}, description, ())
    schema["properties"]["matchLabels"] |= {
        "maxProperties": SELECTOR_ENTRIES,
        "x-kubernetes-validations": [
            rule(
                f"self.all(key, size(key) <= {LABEL_KEY_LENGTH} && key.matches({cel_text(LABEL_KEY)}))",
                f"{field}.matchLabels has a key that is not a label: {LABEL_FORM}",
            )
        ],
    }
    return schema


def selector_problems(field: str, selector: Mapping[str, Any]) -> Iterator["SchemaViolation"]:
    """Why the API server refuses a selector with :func:`checked_label_selector`."""
    try:
        Selector.parse(selector)
    except InvalidSelector as error:
        yield SchemaViolation(f"{field}.{error.field}" if error.field else field, error.problem)


def toleration(*, operators: Sequence[str], effects: Sequence[str], bounded: bool, field: str = "") -> Schema:
    """core/v1 Toleration. ``field``: what rules call it; empty: there are no rules, its reader tells what is wrong."""
    keyed = "(has(self.key) && size(self.key) > 0) || (has(self.operator) && self.operator == 'Exists')"
    exists = "has(self.operator) && self.operator == 'Exists' && has(self.value) && size(self.value) > 0"
    eviction = "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')"
    rules = ((keyed, KEYLESS), (f"!({exists})", EXISTS_VALUE), (eviction, SECONDS_EFFECT))
    key, value = (LABEL_KEY_LENGTH, 63) if bounded else (None, None)
    return obj(
        {
            "key": text(description="Key of the taint; absent with operator Exists: every taint.", max_length=key),
            "operator": text(description="Absent: Equal.", enum=operators),
            "value": text(description="Value of the taint.", max_length=value),
            "effect": text(description="Effect of the taint; absent: every effect.", enum=effects),
            "tolerationSeconds": integer(description="How long a NoExecute taint is tolerated.", format="int64"),
        },
        rules=[rule(expression, f"{field} {message}") for expression, message in rules] if field else (),
    )


def toleration_problems(field: str, toleration: Mapping[str, Any]) -> Iterator["SchemaViolation"]:
    """Why the API server refuses a toleration of the right form."""
    everything = toleration.get("operator") == "Exists"
    if not toleration.get("key") and not everything:
        yield SchemaViolation(field, KEYLESS)
    if toleration.get("value") and everything:
        yield SchemaViolation(field, EXISTS_VALUE)
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != NO_EXECUTE:
        yield SchemaViolation(field, SECONDS_EFFECT)


KEYLESS: Final = "has no key, so its operator has to be Exists, which tolerates every taint"
EXISTS_VALUE: Final = "has a value, which operator Exists does not take"
SECONDS_EFFECT: Final = "has tolerationSeconds, which go with effect NoExecute alone"


def cel_text(content: str) -> str:
    """A string literal of CEL."""
    return "'" + content.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _selector(expressions: Schema, value: Schema, description: str, rules: Sequence[Schema]) -> Schema:
    labels = {"type": "object", "additionalProperties": value}
    schema = obj(
        {"matchExpressions": expressions, "matchLabels": _described(labels, "All of them have to be there.")},
        description=description,
        rules=rules,
    )
    schema["x-kubernetes-map-type"] = "atomic"
    return schema


def conditions() -> Schema:
    """``status.conditions`` (meta/v1 Condition)."""
    condition = obj(
        {
            "type": text(description="What it is about.", max_length=316, pattern=r"^[A-Za-z][A-Za-z0-9]*$"),
            "status": text(enum=("True", "False", "Unknown")),
            "reason": text(
                description="Why, in one word.",
                min_length=1,
                max_length=1024,
                pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            ),
            "message": text(description="Why, for people.", max_length=32768),
            "lastTransitionTime": text(description="When the status last changed.", format="date-time"),
            "observedGeneration": integer(
                description="The generation of the object that it speaks of.", format="int64", minimum=0
            ),
        },
        required=("type", "status", "reason", "message", "lastTransitionTime"),
    )
    return array(condition, description="The state as last observed.", list_type="map", map_keys=("type",))


def column(name: str, path: str, type: str = "string") -> Schema:
    """An entry of ``additionalPrinterColumns``, a column of ``kubectl get``."""
    return {"name": name, "type": type, "jsonPath": path}


def version(
    name: str,
    description: str,
    spec: Schema,
    status: Schema,
    *,
    rules: tuple[Schema, ...] = (),
    columns: list[Schema] | None = None,
    required: tuple[str, ...] = (),
    storage: bool = True,
    deprecation: str = "",
) -> Schema:
    """One version of a custom resource, with the status subresource; ``rules`` apply to the whole object.

    ``deprecation`` is the warning that every request to a deprecated version gets.
    """
    root = obj(
        {
            "apiVersion": text(description="Group and version."),
            "kind": text(description="Kind of the object."),
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        description=description,
        required=required,
        rules=rules,
    )
    content: Schema = {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": root},
        "subresources": {"status": {}},
    }
    if deprecation:
        content |= {"deprecated": True, "deprecationWarning": deprecation}
    if columns:
        content["additionalPrinterColumns"] = columns
    return content


def custom_resource(resource: Resource, versions: Sequence[Schema], *, short_names: Sequence[str] = ()) -> Schema:
    """The CustomResourceDefinition of a resource that we define."""
    naming: Schema = {
        "kind": resource.kind,
        "listKind": resource.list_kind,
        "plural": resource.plural,
        "singular": resource.kind.lower(),
    }
    if short_names:
        naming["shortNames"] = list(short_names)
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {"name": str(resource)},
        "spec": {
            "group": resource.group,
            "names": naming,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": list(versions),
        },
    }


def stored_schema(crd: Schema) -> Schema:
    """The schema of the objects that are stored, of a CustomResourceDefinition of ours."""
    stored: Schema = next(each for each in crd["spec"]["versions"] if each["storage"])
    schema: Schema = stored["schema"]["openAPIV3Schema"]
    return schema


def _described(schema: Schema, description: str) -> Schema:
    return {"description": description, **schema} if description else schema


# -- conformance: is a value what a schema of ours asks for, judged as the API server does? ----------------------------


# For objects that are given as files where the cluster has no CustomResourceDefinition. CEL rules are for the caller,
# who knows them in Python; members that the schema does not have are departures here, because nobody else would tell of
# a misspelt one. Only what the builders above make is known, and no more of OpenAPI.


_DURATION: Final = "write a duration such as 30s, 5m or 1h30m"


class SchemaViolation(NamedTuple):
    """A place where the value is not as the schema asks."""

    field: str
    reason: str

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}" if self.field else self.reason


def departures(schema: Schema, value: Any, field: str = "") -> Iterator[SchemaViolation]:
    """Every departure, in the order of the value. ``field`` is where the value stands, such as ``spec.nodes``."""
    if problem := type_problem(schema, value):
        yield SchemaViolation(field, problem)
        return
    match schema.get("type", "amount"):
        case "object":
            yield from _object(schema, value, field)
        case "array":
            yield from _array(schema, value, field)
        case "string":
            yield from _string(schema, value, field)
        case "integer":
            yield from _integer(schema, value, field)


def mistyped(schema: Schema, value: Any, field: str = "") -> Iterator[SchemaViolation]:
    """The values of another JSON type than the schema asks for, for readers that tolerate everything else."""
    if problem := type_problem(schema, value):
        yield SchemaViolation(field, problem)
    elif isinstance(value, Mapping):
        others = schema.get("additionalProperties")
        for name, content in value.items():
            if (of_member := schema.get("properties", {}).get(name, others)) is not None:
                yield from mistyped(of_member, content, _member(field, str(name)))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from mistyped(schema["items"], item, f"{field}[{index}]")


def type_problem(schema: Schema, value: Any) -> str:
    """Why the value is not of the schema's type, and what to write, in the words of the schema; empty: it is."""
    shown, allowed = _shown(value), schema.get("enum", ())
    match schema.get("type", "amount"):
        case "object" if not isinstance(value, Mapping):
            members = ", ".join(schema.get("properties", ()))
            return f"must be an object, not {shown}" + (f"; write members below it, of {members}" if members else "")
        case "array" if not isinstance(value, list):
            example = next(iter(schema["items"].get("enum", ())), "")
            return f"must be a list, not {shown}; write a list" + (f" such as [{example}]" if example else "")
        case "string" if not isinstance(value, str) and schema.get("pattern") == PATTERN:
            return f"must be a text, not {shown}; {_DURATION}"
        case "string" if not isinstance(value, str) and allowed:
            quoted = "one in quotes, of " if isinstance(value, bool) else ("one of " if len(allowed) > 1 else "")
            return f"must be a text, not {shown}; write {quoted}{', '.join(each or repr(each) for each in allowed)}"
        case "string" if not isinstance(value, str):
            return f"must be a text, not {shown}; write it in quotes"
        case "integer" if not isinstance(value, int) or isinstance(value, bool):
            return f"must be a whole number, not {shown}; write one{_bounds(schema)} without quotes"
        case "boolean" if not isinstance(value, bool):
            return f"must be true or false, not {shown}; write one of them without quotes"
        case "amount" if not isinstance(value, int | str) or isinstance(value, bool) or not _is_amount(schema, value):
            return f"must be an amount such as 4, 500m or 16Gi, not {shown}"
    return ""


def without_nulls(value: Any) -> Any:
    """The API server takes a null for an absent member."""
    if isinstance(value, Mapping):
        return {name: without_nulls(content) for name, content in value.items() if content is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def pruned(schema: Schema, value: Any) -> Any:
    """The value without the members that the schema does not have, as the API server stores it."""
    if isinstance(value, list) and "items" in schema:
        return [pruned(schema["items"], each) for each in value]
    if isinstance(value, Mapping) and (members := schema.get("properties")):
        return {name: pruned(members[name], content) for name, content in value.items() if name in members}
    return value


def _object(schema: Schema, value: Any, field: str) -> Iterator[SchemaViolation]:
    members: Schema = schema.get("properties", {})
    others: Schema | None = schema.get("additionalProperties")
    if (most := schema.get("maxProperties")) is not None and len(value) > most:
        yield SchemaViolation(field, f"has {len(value)} members; at most {most} are possible")
    for name in schema.get("required", ()):
        if name not in value:
            yield SchemaViolation(_member(field, name), "is required")
    for name, content in value.items():
        if (of_member := members.get(name, others)) is not None:
            yield from departures(of_member, content, _member(field, str(name)))
        elif members:
            yield SchemaViolation(_member(field, str(name)), f"does not exist; {_meant(str(name), members)}")


def _array(schema: Schema, value: Any, field: str) -> Iterator[SchemaViolation]:
    if (least := schema.get("minItems", 0)) > len(value):
        yield SchemaViolation(field, f"needs at least {least} entries")
    if (most := schema.get("maxItems")) is not None and len(value) > most:
        yield SchemaViolation(field, f"has {len(value)} entries; at most {most} are possible")
    keys = schema.get("x-kubernetes-list-map-keys", ())
    seen: list[Any] = []
    for index, item in enumerate(value):
        place = f"{field}[{index}]"
        yield from departures(schema["items"], item, place)
        identity = {key: item.get(key) for key in keys} if keys and isinstance(item, Mapping) else item
        if schema["x-kubernetes-list-type"] in ("set", "map"):
            if identity in seen:
                yield SchemaViolation(place, f"is there twice: {_shown(identity)}")
            seen.append(identity)


def _string(schema: Schema, value: Any, field: str) -> Iterator[SchemaViolation]:
    if (allowed := schema.get("enum")) and value not in allowed:
        yield SchemaViolation(field, f"{value[:40]!r} is not one of {', '.join(allowed)}")
    if len(value) < schema.get("minLength", 0):
        yield SchemaViolation(field, "must not be empty")
    if (most := schema.get("maxLength")) is not None and len(value) > most:
        yield SchemaViolation(field, f"is longer than {most} characters")
    if (pattern := schema.get("pattern")) and re.search(_whole(pattern), value, re.ASCII) is None:
        advice = f"is not a duration; {_DURATION}" if pattern == PATTERN else f"does not match {pattern}"
        yield SchemaViolation(field, f"{value[:40]!r} {advice}")


def _integer(schema: Schema, value: Any, field: str) -> Iterator[SchemaViolation]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if (least is not None and value < least) or (most is not None and value > most):
        allowed = f"at least {least}" if most is None else f"between {least} and {most}"
        yield SchemaViolation(field, f"is {value}; {allowed} is possible")


def _bounds(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    return f" of at least {least}" if most is None and least is not None else f" from {least} to {most}" if most else ""


def _is_amount(schema: Schema, value: int | str) -> bool:
    return isinstance(value, int) or re.search(_whole(schema["pattern"]), value, re.ASCII) is not None


def _meant(name: str, members: Schema) -> str:
    from difflib import get_close_matches  # loaded where something is misspelt

    near = get_close_matches(name, members, n=1)
    return f"{f'did you mean {near[0]}? ' if near else ''}there are {', '.join(sorted(members))}"


def _whole(pattern: str) -> str:
    # In Python, $ also matches before a line feed at the end; in the API server's RE2 it does not.
    return pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern


def _member(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value!r:.60}"
