"""What is known of a case's images, for the sweep and the warm-up, which nobody waits for."""

from polyarch.images.pull_secrets import PullSource
from polyarch.images.resolver import LowPriorityLookups
from polyarch.oci.answer import Inspection
from polyarch.placement.decide.rules import Case, assess


def known(lookups: LowPriorityLookups, case: Case) -> dict[str, Inspection]:
    """The answers in memory, by the text of the reference."""
    return lookups.known(case.images, _source(case), stale_for=case.settings.images_stale_for)


async def answers(lookups: LowPriorityLookups, case: Case) -> dict[str, Inspection]:
    """The answers from memory and from registries; an image without one is left out."""
    return await lookups.answers(
        case.images,
        _source(case),
        stale_for=case.settings.images_stale_for,
        is_impossible=lambda found: assess(case, found).is_impossible,
    )


def _source(case: Case) -> PullSource:
    return PullSource.of(case.pod, case.facts.namespace)
