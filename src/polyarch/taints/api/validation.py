"""What the API server refuses of ArchitectureTaints, checked without it: for ``--config FILE`` (TN-012).

The schema is the one that the API server has; its rules are here once more, in Python, with the same words. Pure.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from polyarch.durations import format_duration, parse_duration
from polyarch.kube.schema import LABEL_KEY, Departure, Schema, departures, without_nulls
from polyarch.selectors import InvalidSelector, Selector
from polyarch.taints.api import crds, settings
from polyarch.taints.api.resources import ARCHITECTURE_TAINTS, ArchitectureTaints, ArchitectureTaintsSpec
from polyarch.taints.names import SINGLETON
from polyarch.tolerations import NO_EXECUTE


class InvalidConfiguration(ValueError):  # noqa: N818 - what is the case
    """The object would be refused; ``problems`` are all the reasons, each with its field."""

    def __init__(self, problems: tuple[Departure, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def validated(document: Any) -> ArchitectureTaints:
    """The object that a file contains. Raises :class:`InvalidConfiguration`; whoever starts a process says which file
    and exits 2."""
    if problems := tuple(_problems(document)):
        raise InvalidConfiguration(problems)
    return msgspec.convert(without_nulls(document), ArchitectureTaints)


def _problems(document: Any) -> Iterator[Departure]:
    if not isinstance(document, Mapping):
        yield Departure("", f"the file must contain one {ARCHITECTURE_TAINTS.kind}, not {document!r:.60}")
        return
    document = without_nulls(document)
    for field, wanted in (("apiVersion", ARCHITECTURE_TAINTS.api_version), ("kind", ARCHITECTURE_TAINTS.kind)):
        if document.get(field) != wanted:
            yield Departure(field, f"must be {wanted}, not {document.get(field)!r:.60}")
    stored: Schema = crds.architecture_taints()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    wrong = [*departures(stored, document)]
    yield from wrong
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("name") != SINGLETON:
        yield Departure("metadata.name", crds.NAMED_CLUSTER)
    if not wrong:  # the API server does not ask the rules about a value of another shape either
        yield from _broken_rules(document.get("spec", {}))


def _broken_rules(spec: Mapping[str, Any]) -> Iterator[Departure]:
    taint, nodes, pods = (spec.get(name, {}) for name in ("taint", "nodes", "pods"))
    yield from _taint(taint)
    for field, holder, member in (
        ("spec.nodes.selector", nodes, "selector"),
        ("spec.pods.namespaceSelector", pods, "namespaceSelector"),
        ("spec.pods.podSelector", pods, "podSelector"),
    ):
        yield from _selector(field, holder.get(member, {}))
    for index, name in enumerate(pods.get("excludeNamespaces", ())):
        if not any(re.fullmatch(form, name, re.ASCII) for form in (crds.NAMESPACE, crds.NAMESPACE_PREFIX)):
            yield Departure(f"spec.pods.excludeNamespaces[{index}]", crds.EXCLUDED_FORM)
    yield from _duration("spec.pods.gateTimeout", pods.get("gateTimeout"), settings.GATE_TIMEOUT)
    rollout_timeout = spec.get("daemonSets", {}).get("rolloutTimeout")
    yield from _duration("spec.daemonSets.rolloutTimeout", rollout_timeout, settings.ROLLOUT_TIMEOUT)
    for index, each in enumerate(spec.get("compatibility", ())):
        if each["node"] in each["runs"]:
            yield Departure(f"spec.compatibility[{index}]", crds.RUNS_ITSELF)
    compiled = settings.TaintSettings.of(msgspec.convert(spec, ArchitectureTaintsSpec))
    if compiled.given and not compiled.tainted:
        yield Departure("spec", crds.NOTHING_TAINTED)


def _taint(taint: Mapping[str, Any]) -> Iterator[Departure]:
    key, custom = taint.get("key"), taint.get("preset", crds.DEFAULTS.preset) == "custom"
    if custom and key is None:
        yield Departure("spec.taint", crds.KEY_MISSING)
    if not custom and key is not None:
        yield Departure("spec.taint", crds.KEY_FORBIDDEN)
    if key is not None and re.fullmatch(LABEL_KEY, key, re.ASCII) is None:
        yield Departure("spec.taint.key", crds.KEY_INVALID)
    if taint.get("effect") == NO_EXECUTE and not taint.get("acknowledgeEviction"):
        yield Departure("spec.taint", crds.UNACKNOWLEDGED)


def _selector(field: str, selector: Mapping[str, Any]) -> Iterator[Departure]:
    try:
        Selector.parse(selector)
    except InvalidSelector as error:
        yield Departure(f"{field}.{error.field}" if error.field else field, error.problem)


def _duration(field: str, text: str | None, bounds: tuple[float, float]) -> Iterator[Departure]:
    least, most = bounds
    if text is not None and not least <= parse_duration(text) <= most:
        yield Departure(field, f"must be a duration from {format_duration(least)} to {format_duration(most)}")
