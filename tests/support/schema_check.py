"""Checks a value against a JSON schema (draft 4), with the keywords that the SARIF schema uses and no others."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SARIF = Path(__file__).parent / "data" / "sarif-schema-2.1.0.json"
"""The schema of OASIS, SARIF 2.1.0 errata 01, as published."""

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}
KNOWN = {
    *("$schema", "id", "title", "description", "default", "definitions", "$ref", "type", "enum", "properties"),
    *("required", "additionalProperties", "items", "minItems", "maxItems", "uniqueItems", "minimum", "maximum"),
    *("pattern", "format", "anyOf", "oneOf", "allOf", "not"),
}


def load_sarif() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(SARIF.read_text())
    return schema


def faults(value: Any, schema: dict[str, Any]) -> list[str]:
    """Every place where the value is not as the schema demands."""
    return list(_faults(value, schema, schema, "$"))


def _faults(value: Any, schema: dict[str, Any], root: dict[str, Any], where: str) -> Iterator[str]:
    assert set(schema) <= KNOWN, f"a keyword that is not checked: {set(schema) - KNOWN}"
    if "$ref" in schema:
        yield from _faults(value, root["definitions"][schema["$ref"].removeprefix("#/definitions/")], root, where)
    kind = schema.get("type")
    if kind is not None:
        kinds = [kind] if isinstance(kind, str) else kind
        if not any(_is(value, each) for each in kinds):
            yield f"{where}: is no {kind}"
            return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {schema['enum']}"
    if isinstance(value, str):
        yield from _text(value, schema, where)
    if _is(value, "number") and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{where}: {value} is out of range"
    if isinstance(value, list):
        yield from _list(value, schema, root, where)
    if isinstance(value, dict):
        yield from _mapping(value, schema, root, where)
    for each in schema.get("allOf", ()):
        yield from _faults(value, each, root, where)
    fitting = [not list(_faults(value, each, root, where)) for each in schema.get("anyOf", ())]
    if fitting and not any(fitting):
        yield f"{where}: fits none of anyOf"
    fitting = [not list(_faults(value, each, root, where)) for each in schema.get("oneOf", ())]
    if fitting and fitting.count(True) != 1:
        yield f"{where}: fits {fitting.count(True)} of oneOf"
    if "not" in schema and not list(_faults(value, schema["not"], root, where)):
        yield f"{where}: is what it must not be"


def _is(value: Any, kind: str) -> bool:
    if kind == "null":
        return value is None
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, TYPES[kind])


def _text(value: str, schema: dict[str, Any], where: str) -> Iterator[str]:
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{where}: {value!r} does not match {schema['pattern']}"
    if schema.get("format") == "uri" and not urlsplit(value).scheme:
        yield f"{where}: {value!r} is no absolute URI"
    if schema.get("format") == "uri-reference" and not re.fullmatch(r"[\w\-.~:/?#\[\]@!$&'()*+,;=%]*", value, re.ASCII):
        yield f"{where}: {value!r} is no URI"


def _list(value: list[Any], schema: dict[str, Any], root: dict[str, Any], where: str) -> Iterator[str]:
    if len(value) < schema.get("minItems", 0) or len(value) > schema.get("maxItems", len(value)):
        yield f"{where}: has {len(value)} elements"
    if schema.get("uniqueItems") and len({json.dumps(each, sort_keys=True) for each in value}) < len(value):
        yield f"{where}: has an element twice"
    for place, each in enumerate(value):
        yield from _faults(each, schema.get("items", {}), root, f"{where}[{place}]")


def _mapping(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], where: str) -> Iterator[str]:
    for key in schema.get("required", ()):
        if key not in value:
            yield f"{where}: lacks {key}"
    known = schema.get("properties", {})
    more = schema.get("additionalProperties", True)
    for key, member in value.items():
        if key in known:
            yield from _faults(member, known[key], root, f"{where}.{key}")
        elif more is False:
            yield f"{where}: must not have {key}"
        elif isinstance(more, dict):
            yield from _faults(member, more, root, f"{where}.{key}")
