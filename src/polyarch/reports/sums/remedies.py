"""The cheapest way out that is known for an image that is in the way (RP-012).

Known is what somebody has been asked about: a configured substitute, or another tag of the same repository. The first
of these that has the target is suggested; else what always helps, to publish the image for it. Pure.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from polyarch.oci.answer import Inspection, Status
from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.platforms import NodePlatform
from polyarch.reports.document import Blocker, Suggestion
from polyarch.reports.facts.cluster import target_name
from polyarch.reports.facts.readings import Answers
from polyarch.reports.sums.blockers import Suggestions

MOST_TAGS: Final = 3
_Tags = Mapping[str, Mapping[str, str]]
"""Repository to tag to the text of its reference, of images that somebody has been asked about."""
_FORM: Final = re.compile(r"(v?)([0-9]{1,9}(?:\.[0-9]{1,9}){0,3})((?:[-_+][A-Za-z0-9._-]*)?)", re.ASCII)


class _Version(NamedTuple):
    """A tag such as ``v1.27.3-alpine``: what two of the same form have in common, and the numbers."""

    form: tuple[str, int, str]
    numbers: tuple[int, ...]


def suggestions_of(blockers: Iterable[Blocker], answers: Answers, substitutes: Mapping[str, str]) -> Suggestions:
    """By target and image, where something better than publishing is known."""
    known = answers.everywhere
    tags = _tags(known)
    found = {}
    for blocker in blockers:
        suggestion = _substitute(blocker, known, substitutes) or _tag(blocker, known, tags)
        if suggestion is not None:
            found[blocker.target, blocker.image] = suggestion
    return found


def newer_tags(tag: str, tags: Iterable[str]) -> tuple[str, ...]:
    """At most :data:`MOST_TAGS` tags of the same form: the newest of the same minor version, of the same major version,
    and of all, so that the smallest step that helps is among them."""
    own = _version(tag)
    if own is None:
        return ()
    newer = sorted(
        (version.numbers, each)
        for each in set(tags)
        if (version := _version(each)) is not None and version.form == own.form and version.numbers > own.numbers
    )
    found: dict[str, None] = {}
    for kept in (2, 1, 0):
        alike = [each for numbers, each in newer if numbers[:kept] == own.numbers[:kept]]
        if alike:
            found[alike[-1]] = None
    return tuple(found)[:MOST_TAGS]


def _version(tag: str) -> _Version | None:
    found = _FORM.fullmatch(tag)
    if found is None:
        return None
    prefix, numbers, suffix = found.groups()
    parts = tuple(int(each) for each in numbers.split("."))
    return _Version((prefix, len(parts), suffix), parts)


def _substitute(blocker: Blocker, known: Mapping[str, Inspection], substitutes: Mapping[str, str]) -> Suggestion | None:
    other = substitutes.get(blocker.image)
    answer = known.get(other) if other is not None else None
    if other is None or answer is None or not _has(answer, blocker.target):
        return None
    return Suggestion("substitute", other, f"use {other}, which has {blocker.target}, instead of {blocker.image}")


def _tag(blocker: Blocker, known: Mapping[str, Inspection], tags: _Tags) -> Suggestion | None:
    own = _reference(blocker.image)
    if own is None or own.tag is None:
        return None
    others = tags.get(own.name, {})
    having = [tag for tag, text in others.items() if _has(known[text], blocker.target)]
    for tag in newer_tags(own.tag, having):
        return Suggestion("tag", others[tag], f"use {others[tag]}, which has {blocker.target}")
    return None


def _tags(known: Iterable[str]) -> _Tags:
    found: dict[str, dict[str, str]] = {}
    for text in known:
        reference = _reference(text)
        if reference is not None and reference.tag is not None:
            found.setdefault(reference.name, {})[reference.tag] = text
    return found


def _reference(text: str) -> Reference | None:
    try:
        return parse(text)
    except InvalidReference:
        return None


def _has(answer: Inspection, target: str) -> bool:
    if answer.status is Status.NEUTRAL:
        return True
    return answer.constrains and target in {target_name(NodePlatform(*each)) for each in answer.node_platforms}
