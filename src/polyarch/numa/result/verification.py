"""Whether saved objects account for saved pods: a verdict per node (NE-082, NE-161). Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from polyarch.numa import names
from polyarch.numa.api.attributes import value
from polyarch.numa.api.topology import NodeResourceTopology
from polyarch.numa.decide.exclusions import MalformedPattern, pattern
from polyarch.numa.decide.fingerprint import PodName, Verdict, check, fingerprint
from polyarch.numa.result.known_pods import KnownPod

ALL: Final = "all"


class Verified(msgspec.Struct, frozen=True):
    """The verdict on one node's fingerprint."""

    node: str
    verdict: Verdict
    fingerprint: str
    """As published; empty if there is none."""
    note: str = ""


class _Excluded(msgspec.Struct, frozen=True, rename="camel"):
    """An item of the attribute ``pod-exclude`` (NE-015)."""

    namespace_pattern: str = "*"
    name_pattern: str = "*"


def verified(topology: NodeResourceTopology, pods: Sequence[KnownPod] | None) -> Verified:
    """The verdict on one object. Without ``pods`` only the form of the fingerprint is judged."""
    attributes = topology.attributes or ()
    published = value(attributes, names.FINGERPRINT)
    if published is None:
        published = (topology.metadata.annotations or {}).get(names.LEGACY_FINGERPRINT, "")
    node = topology.metadata.name
    if not published:
        return Verified(node, "malformed", "", "the object has no fingerprint")
    if pods is None:
        verdict = check(published, ())
        form = verdict in ("ok", "mismatch")
        return Verified(node, "ok" if form else verdict, published, "the form alone, as no pods are given")
    method = value(attributes, names.FINGERPRINT_METHOD) or ALL
    counted = _counted(pods, value(attributes, names.POD_EXCLUDE), method, _resources(topology))
    running = [each for each in counted if not each.ended]
    verdict = check(published, _names(running))
    if verdict == "mismatch" and len(running) < len(counted):
        verdict = check(published, _names(counted))
    many = "1 pod" if len(running) == 1 else f"{len(running)} pods"
    note = "" if verdict != "mismatch" else f"{many} by method {method}: {fingerprint(_names(running))}"
    return Verified(node, verdict, published, note)


def _counted(pods: Iterable[KnownPod], excluded: str | None, method: str, resources: frozenset[str]) -> list[KnownPod]:
    try:
        items = msgspec.json.decode(excluded, type=list[_Excluded]) if excluded else []
        patterns = [(pattern(each.namespace_pattern), pattern(each.name_pattern)) for each in items]
    except (ValueError, RecursionError, MalformedPattern):
        patterns = []
    return [
        pod
        for pod in pods
        if (method == ALL or pod.exclusive or pod.devices & resources)
        and not any(space.fullmatch(pod.namespace) and name.fullmatch(pod.name) for space, name in patterns)
    ]


def _resources(topology: NodeResourceTopology) -> frozenset[str]:
    return frozenset(each.name for zone in topology.zones or () for each in zone.resources or ())


def _names(pods: Iterable[KnownPod]) -> list[PodName]:
    return [(each.namespace, each.name) for each in pods]
