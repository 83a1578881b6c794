"""What is wrong with an object of ours, as far as it can be told without a cluster (NO-004, NO-005, NO-013, §13).

The API server refuses most of it. The operator checks again, since an object may have been stored under an older
schema, and some rules are not for a schema. What is wrong with groups of nodes and with globs is told in ``operator``.
Pure.
"""

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from polyarch.durations import InvalidDuration, parse_go_duration
from polyarch.kube.schema import Departure, Schema, departures, pruned, without_nulls
from polyarch.numa.api import crds, settings
from polyarch.numa.names import HEARTBEAT, KUBELET_ROOT

Document = Mapping[str, Any]


def operator_departures(document: Document) -> tuple[Departure, ...]:
    """Everything that is wrong with the spec of a NUMAResourcesOperator, each with its field; empty: nothing."""
    spec = _spec(document)
    wrong = tuple(_of_schema(crds.operator_spec(), spec))
    return wrong or tuple(_of_operator(spec))


def scheduler_departures(document: Document) -> tuple[Departure, ...]:
    """The same of a NUMAResourcesScheduler, with its annotations."""
    spec = _spec(document)
    wrong = tuple(_of_schema(crds.scheduler_spec(), spec))
    return wrong or (*_of_scheduler(spec), *_of_annotations(document))


def unknown_members(document: Document, schema: Schema) -> tuple[Departure, ...]:
    """Members that the schema of the spec does not have: the API server drops them, and nobody else would tell of a
    misspelt one in a file."""
    spec = _spec(document)
    known = set(departures(schema, pruned(schema, spec), "spec"))
    return tuple(each for each in departures(schema, spec, "spec") if each not in known)


def _spec(document: Document) -> Any:
    spec = without_nulls(document.get("spec"))
    return {} if spec is None else spec


def _of_schema(schema: Schema, spec: Any) -> Iterator[Departure]:
    return departures(schema, pruned(schema, spec), "spec")


def _of_operator(spec: Document) -> Iterator[Departure]:
    for index, group in enumerate(spec.get("nodeGroups", ())):
        field = f"spec.nodeGroups[{index}]"
        config = group.get("config", {})
        yield from _duration(f"{field}.config.infoRefreshPeriod", config.get("infoRefreshPeriod"))
        for place, toleration in enumerate(config.get("tolerations", ())):
            yield from _toleration(f"{field}.config.tolerations[{place}]", toleration)
        annotations = group.get("annotations", {})
        yield from _duration(f"{field}.annotations[{HEARTBEAT}]", annotations.get(HEARTBEAT))
        root = annotations.get(KUBELET_ROOT)
        if root is not None and (not root.startswith("/") or root == "/" or posixpath.normpath(root) != root):
            yield Departure(
                f"{field}.annotations[{KUBELET_ROOT}]",
                f"{root[:80]!r} is not the directory of a kubelet: write an absolute path without a slash at the end, "
                "such as /var/lib/kubelet",
            )


def _of_scheduler(spec: Document) -> Iterator[Departure]:
    yield from _duration("spec.cacheResyncPeriod", spec.get("cacheResyncPeriod"))


def _of_annotations(document: Document) -> Iterator[Departure]:
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    for name, values in settings.ANNOTATION_VALUES.items():
        value = annotations.get(name)
        if value is not None and value not in values:
            allowed = f"{values[0]} to {values[-1]}" if len(values) > 4 else ", ".join(values)
            yield Departure(f"metadata.annotations[{name}]", f"{value[:40]!r} is not possible; expected {allowed}")


def _duration(field: str, value: str | None) -> Iterator[Departure]:
    if not value:
        return
    try:
        if parse_go_duration(value) < 0:
            yield Departure(field, f"{value[:40]!r} is negative; 0 switches it off")
    except InvalidDuration as error:
        yield Departure(field, str(error))


def _toleration(field: str, toleration: Document) -> Iterator[Departure]:
    operator = toleration.get("operator") or "Equal"
    if not toleration.get("key") and operator != "Exists":
        yield Departure(field, "has no key, so its operator has to be Exists, which tolerates every taint")
    if toleration.get("value") and operator == "Exists":
        yield Departure(field, "has a value, which operator Exists does not take")
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        yield Departure(field, "has tolerationSeconds, which go with effect NoExecute alone")
