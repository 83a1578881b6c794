"""Whether a value is what a structural schema of ours asks for, judged as the API server does.

For objects that are given as files where the cluster has no CustomResourceDefinition. CEL rules are for the caller,
who knows them in Python; members that the schema does not have are departures here, because nobody else would tell of
a misspelt one. It knows what ``schema`` builds, and no more of OpenAPI. Pure.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from polyarch.kube.objects.schema import Schema


class Departure(NamedTuple):
    """A place where the value is not as the schema asks."""

    field: str
    reason: str

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}" if self.field else self.reason


def departures(schema: Schema, value: Any, field: str = "") -> Iterator[Departure]:
    """Every departure, in the order of the value. ``field`` is where the value stands, such as ``spec.nodes``."""
    match schema.get("type", "amount"):
        case "object":
            check = _object
        case "array":
            check = _array
        case "string":
            check = _string
        case "integer":
            check = _integer
        case "boolean":
            check = _boolean
        case "amount":  # without type: a whole number or a text
            check = _amount
        case other:
            raise ValueError(f"schemas of ours have no {other!r}")
    yield from check(schema, value, field)


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


def _object(schema: Schema, value: Any, field: str) -> Iterator[Departure]:
    if not isinstance(value, Mapping):
        yield Departure(field, f"must be an object, not {_shown(value)}")
        return
    members: Schema = schema.get("properties", {})
    others: Schema | None = schema.get("additionalProperties")
    if (most := schema.get("maxProperties")) is not None and len(value) > most:
        yield Departure(field, f"has {len(value)} members; at most {most} are possible")
    for name in schema.get("required", ()):
        if name not in value:
            yield Departure(_member(field, name), "is required")
    for name, content in value.items():
        if (of_member := members.get(name, others)) is not None:
            yield from departures(of_member, content, _member(field, str(name)))
        elif members:
            yield Departure(_member(field, str(name)), f"does not exist; {_meant(str(name), members)}")


def _array(schema: Schema, value: Any, field: str) -> Iterator[Departure]:
    if not isinstance(value, list):
        yield Departure(field, f"must be a list, not {_shown(value)}")
        return
    if (least := schema.get("minItems", 0)) > len(value):
        yield Departure(field, f"needs at least {least} entries")
    if (most := schema.get("maxItems")) is not None and len(value) > most:
        yield Departure(field, f"has {len(value)} entries; at most {most} are possible")
    keys = schema.get("x-kubernetes-list-map-keys", ())
    seen: list[Any] = []
    for index, item in enumerate(value):
        place = f"{field}[{index}]"
        yield from departures(schema["items"], item, place)
        identity = {key: item.get(key) for key in keys} if keys and isinstance(item, Mapping) else item
        if schema["x-kubernetes-list-type"] in ("set", "map"):
            if identity in seen:
                yield Departure(place, f"is there twice: {_shown(identity)}")
            seen.append(identity)


def _string(schema: Schema, value: Any, field: str) -> Iterator[Departure]:
    if not isinstance(value, str):
        yield Departure(field, f"must be a text, not {_shown(value)}")
        return
    if (allowed := schema.get("enum")) and value not in allowed:
        yield Departure(field, f"{value[:40]!r} is not one of {', '.join(allowed)}")
    if len(value) < schema.get("minLength", 0):
        yield Departure(field, "must not be empty")
    if (most := schema.get("maxLength")) is not None and len(value) > most:
        yield Departure(field, f"is longer than {most} characters")
    if (pattern := schema.get("pattern")) and re.search(_whole(pattern), value, re.ASCII) is None:
        yield Departure(field, f"{value[:40]!r} does not match {pattern}")


def _integer(schema: Schema, value: Any, field: str) -> Iterator[Departure]:
    if not isinstance(value, int) or isinstance(value, bool):
        yield Departure(field, f"must be a whole number, not {_shown(value)}")
        return
    least, most = schema.get("minimum"), schema.get("maximum")
    if (least is not None and value < least) or (most is not None and value > most):
        allowed = f"at least {least}" if most is None else f"between {least} and {most}"
        yield Departure(field, f"is {value}; {allowed} is possible")


def _amount(schema: Schema, value: Any, field: str) -> Iterator[Departure]:
    if isinstance(value, int) and not isinstance(value, bool):
        return
    if not isinstance(value, str) or re.search(_whole(schema["pattern"]), value, re.ASCII) is None:
        yield Departure(field, f"must be an amount such as 4, 500m or 16Gi, not {_shown(value)}")


def _boolean(schema: Schema, value: Any, field: str) -> Iterator[Departure]:
    if not isinstance(value, bool):
        yield Departure(field, f"must be true or false, not {_shown(value)}")


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
    return f"{value!r:.60}"
