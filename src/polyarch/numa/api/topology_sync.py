"""Whether the definition of NodeResourceTopology has to be brought up to date (NO-044).

Several products install this definition. Ours replaces another one only if nothing gets lost by that: if it has every
version and every field of the one that is there. It is never taken back to less. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Document = Mapping[str, Any]
Fields = frozenset[str]


def is_behind(installed: Document, ours: Document) -> bool:
    """Whether the installed definition lacks something that ours has, and has nothing that ours lacks."""
    theirs, own = _fields(installed, served_only=False), _fields(ours, served_only=False)
    loses = any(name not in own or not fields <= own[name] for name, fields in theirs.items())
    if loses:
        return False
    served, wanted = _fields(installed, served_only=True), _fields(ours, served_only=True)
    return any(name not in served or not fields <= served[name] for name, fields in wanted.items())


def beyond_ours(installed: Document, ours: Document) -> tuple[str, ...]:
    """What the installed definition has and ours lacks, as ``version.field``: the reason to leave it alone."""
    own = _fields(ours, served_only=False)
    return tuple(
        sorted(
            f"{name}{field}"
            for name, fields in _fields(installed, served_only=False).items()
            for field in (fields - own[name] if name in own else ("",))
        )
    )


def _fields(definition: Document, *, served_only: bool) -> dict[str, Fields]:
    versions = (definition.get("spec") or {}).get("versions") or ()
    return {
        each["name"]: frozenset(_paths((each.get("schema") or {}).get("openAPIV3Schema") or {}, ""))
        for each in versions
        if each.get("served") or not served_only
    }


def _paths(schema: Document, at: str) -> Iterator[str]:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        yield f"{at}.*"
    for name, inner in (schema.get("properties") or {}).items():
        yield f"{at}.{name}"
        yield from _paths(inner, f"{at}.{name}")
    items = schema.get("items")
    if isinstance(items, Mapping):
        yield from _paths(items, f"{at}[]")
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        yield from _paths(values, f"{at}{{}}")
