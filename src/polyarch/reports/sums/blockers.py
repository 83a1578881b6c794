"""The images that are in the way, the heaviest first, and the curve: how many to fix for how much (RP-012, RP-013).

An image holds a workload back *alone* if the workload would become ready once the image had the target: no other image
lacks it or is unknown, and nothing else excludes it. The curve leaves what excludes otherwise aside, for it says what
images cost; its first point is what could run if constraints were lifted. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from polyarch.images.pod_images import Verdict as Contribution
from polyarch.platforms import NodePlatform
from polyarch.reports.document import Basis, Blocker, CurvePoint, Suggestion, Verdict
from polyarch.reports.facts.cluster import target_name
from polyarch.reports.judging.verdicts import MOVABLE, Judged
from polyarch.reports.sums.weights import NOTHING, Load, cores, load_of, share

Suggestions = Mapping[tuple[str, str], Suggestion]
"""Known ways out, by target and image."""


class _Held(NamedTuple):
    """What one image holds back."""

    image: str
    alone: Load
    together: Load
    names: tuple[str, ...]
    platforms: tuple[str, ...]


def blockers_of(
    judged: Sequence[Judged], target: NodePlatform, number: int, *, basis: Basis, suggestions: Suggestions
) -> tuple[Blocker, ...]:
    """The blockers of the target, which is the one with this ``number`` in each workload's answers."""
    name = target_name(target)
    return tuple(
        Blocker(
            target=name,
            image=each.image,
            platforms=each.platforms,
            alone=each.alone.document,
            together=each.together.document,
            workloads=each.names,
            suggestion=suggestions.get((name, each.image)) or publish(each.image, name),
        )
        for each in _held(judged, target, number, basis)
    )


def publish(image: str, target: str) -> Suggestion:
    """What always helps."""
    return Suggestion("publish", message=f"publish {image} for {target}")


def curve_of(
    judged: Sequence[Judged], target: NodePlatform, number: int, blockers: Iterable[Blocker], basis: Basis
) -> tuple[CurvePoint, ...]:
    """What could run when the blockers are fixed one after another, in their order."""
    whole = sum(load_of(each.workload).by(basis) for each in judged)
    open_: dict[int, set[str]] = {}
    waiting: dict[str, list[int]] = {}
    done, done_cpu = 0, 0
    for at, each in enumerate(judged):
        verdict = each.answers[number].verdict
        load = load_of(each.workload)
        if verdict in (*MOVABLE, Verdict.CONSTRAINED):
            done, done_cpu = done + load.by(basis), done_cpu + load.cpu
        elif verdict is Verdict.IMAGE and not each.has_unknown:
            open_[at] = set(each.lacking(target))
            for image in open_[at]:
                waiting.setdefault(image, []).append(at)
    points = [CurvePoint(0, "", cores(done_cpu), share(done, whole) or 0.0)]
    for fixed, blocker in enumerate(blockers, 1):
        for at in waiting.get(blocker.image, ()):
            open_[at].discard(blocker.image)
            if not open_[at]:
                load = load_of(judged[at].workload)
                done, done_cpu = done + load.by(basis), done_cpu + load.cpu
        points.append(CurvePoint(fixed, blocker.image, cores(done_cpu), share(done, whole) or 0.0))
    return tuple(points)


def _held(judged: Sequence[Judged], target: NodePlatform, number: int, basis: Basis) -> list[_Held]:
    alone: dict[str, list[Judged]] = {}
    together: dict[str, list[Judged]] = {}
    platforms: dict[str, tuple[str, ...]] = {}
    for each in judged:
        answer = each.answers[number]
        if answer.verdict is not Verdict.IMAGE:
            continue
        lacking = each.lacking(target)
        by_itself = len(lacking) == 1 and len(answer.reasons) == 1
        for image in lacking:
            (alone if by_itself else together).setdefault(image, []).append(each)
        for finding in each.images:
            if finding.text in lacking and finding.verdict is Contribution.CONSTRAINS:
                platforms.setdefault(finding.text, tuple(map(target_name, finding.platforms)))
    found = [
        _Held(
            image,
            _load(alone.get(image, ())),
            _load(together.get(image, ())),
            (*_names(alone.get(image, ()), basis), *_names(together.get(image, ()), basis)),
            platforms[image],
        )
        for image in platforms
    ]
    found.sort(key=lambda each: (-each.alone.by(basis), -each.together.by(basis), each.image))
    return found


def _load(several: Iterable[Judged]) -> Load:
    found = NOTHING
    for each in several:
        found += load_of(each.workload)
    return found


def _names(several: Iterable[Judged], basis: Basis) -> Iterable[str]:
    heaviest = sorted(several, key=lambda each: (-load_of(each.workload).by(basis), each.workload.full_name))
    return (each.workload.full_name for each in heaviest)
