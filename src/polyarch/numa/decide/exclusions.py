"""Which of the listed pods count, and with which CPUs: NE-060's first steps (NE-065, NE-067, NE-068).

The reference container's CPUs leave every container first; then pods leave by pattern, and those that have ended. Pure.
"""

import json
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from polyarch.numa.api.scan_settings import ContainerName, PodPattern
from polyarch.numa.decide.facts import Container, ListedPod

MOST_DESCRIBED: Final = 2048
"""Bytes of the attribute that tells other programs what ``podExclude`` leaves out."""

_NEGATIONS: Final = "!^"


class MalformedPattern(ValueError):  # noqa: N818 - what is the case
    """A glob that no shell would take for one; the message says where it is wrong."""


def without_shared_cpus(pods: Sequence[ListedPod], reference: ContainerName | None) -> Sequence[ListedPod]:
    """The pods without the CPUs that the reference container lists: they are the shared pool (NE-065)."""
    shared = _cpus(pods, reference) if reference else frozenset()
    if not shared:
        return pods
    return [replace(pod, containers=tuple(_without(each, shared) for each in pod.containers)) for pod in pods]


def counted(
    pods: Iterable[ListedPod], excluded: Sequence[PodPattern], terminal: Collection[tuple[str, str]]
) -> list[ListedPod]:
    """The pods whose usage counts and that the fingerprint is made of (NE-067, NE-068).

    Raises :class:`MalformedPattern`; whoever reads settings has checked the patterns.
    """
    patterns = [(pattern(each.namespace), pattern(each.name)) for each in excluded]
    return [
        pod
        for pod in pods
        if (pod.namespace, pod.name) not in terminal
        and not any(ours.fullmatch(pod.namespace) and name.fullmatch(pod.name) for ours, name in patterns)
    ]


def described(excluded: Iterable[PodPattern]) -> str | None:
    """``podExclude`` as compact JSON, for schedulers (NE-015); None: it is too long to be published."""
    items = [{"namespacePattern": each.namespace, "namePattern": each.name} for each in excluded]
    text = json.dumps(items, separators=(",", ":"), ensure_ascii=False)
    return text if len(text.encode("utf-8", "surrogatepass")) <= MOST_DESCRIBED else None


def pattern(glob: str) -> re.Pattern[str]:
    """A shell glob: ``*``, ``?``, ``[a-z]``, ``[!a-z]`` (also ``[^a-z]``); a backslash makes the next character plain.

    Raises :class:`MalformedPattern` for a bracket without its end, an empty or backward range, a last backslash.
    """
    parts = []
    at = 0
    while at < len(glob):
        match glob[at]:
            case "*":
                parts.append(".*")
            case "?":
                parts.append(".")
            case "[":
                members, at = _bracket(glob, at)
                parts.append(members)
            case _:
                character, at = _literal(glob, at)
                parts.append(re.escape(character))
        at += 1
    return re.compile("".join(parts), re.DOTALL)


def _bracket(glob: str, start: int) -> tuple[str, int]:
    """The regular expression of a bracket that begins here, and where it ends."""
    at = start + 1
    negated = glob[at : at + 1] in tuple(_NEGATIONS)
    at += negated
    members: list[str] = []
    while at < len(glob) and (glob[at] != "]" or not members):
        low, at = _literal(glob, at)
        high = low
        if glob[at + 1 : at + 2] == "-" and glob[at + 2 : at + 3] not in ("", "]"):
            high, at = _literal(glob, at + 2)
        if high < low:
            raise MalformedPattern(f"pattern {glob!r}: the range {low}-{high} is empty; write the lower end first")
        members.append(f"{re.escape(low)}-{re.escape(high)}")
        at += 1
    if at >= len(glob):
        raise MalformedPattern(f"pattern {glob!r}: [ has no ]; close it, or write \\[ for the character")
    return f"[{'^' if negated else ''}{''.join(members)}]", at


def _literal(glob: str, at: int) -> tuple[str, int]:
    """The character meant here, and where its last character is."""
    if glob[at] != "\\":
        return glob[at], at
    if at + 1 == len(glob):
        raise MalformedPattern(f"pattern {glob!r} ends with a backslash; write the character that it is to protect")
    return glob[at + 1], at + 1


def _cpus(pods: Iterable[ListedPod], wanted: ContainerName) -> frozenset[int]:
    return frozenset(
        cpu
        for pod in pods
        if (pod.namespace, pod.name) == (wanted.namespace, wanted.pod)
        for each in pod.containers
        if each.name == wanted.container
        for cpu in each.cpus
    )


def _without(container: Container, shared: Collection[int]) -> Container:
    return replace(container, cpus=tuple(cpu for cpu in container.cpus if cpu not in shared))
