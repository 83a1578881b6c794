"""What is known of a gated pod's images when it is looked at, and what has to be waited for (PL-302, PL-404, PL-422).

Answers come from the registry client's memory and from the look-ups that are under way; nothing is asked of a registry
here. The one request there may be is for a pull secret, and only if some image is not known without it.
"""

from typing import NamedTuple

from polyarch.kube.clock import Clock
from polyarch.oci.answer import Inspection
from polyarch.placement.controller.gated import GatedPod
from polyarch.placement.decide.rules import Case
from polyarch.placement.lookups.answers import Inspects, at_hand
from polyarch.placement.lookups.secrets import PullSecrets, PullSource
from polyarch.placement.lookups.waiting import ImageKey, Waiting, Want, failure_of


class Known(NamedTuple):
    """The state of a pod's images."""

    answers: dict[str, Inspection]
    """By the text of the reference; failures among them."""
    wants: tuple[Want, ...] = ()
    """What has to be waited for."""
    answered: tuple[Want, ...] = ()
    """What was waited for and is known: by its look-up, which goes when the last pod leaves it, and perhaps by nobody
    else, so the pod stays there until it needs nothing more."""
    problems: tuple[str, ...] = ()
    """What is wrong with the pod's pull secrets, for who is told of a failure (PL-422)."""


class Inquiry:
    """``tag_ttl``: how old the check of a tag may be, in seconds (RG-110)."""

    def __init__(
        self, inspector: Inspects, secrets: PullSecrets, waiting: Waiting, clock: Clock, *, tag_ttl: float
    ) -> None:
        self._inspector = inspector
        self._secrets = secrets
        self._waiting = waiting
        self._clock = clock
        self._tag_ttl = tag_ttl

    async def about(self, case: Case, memory: GatedPod) -> Known:
        """What is known of all images of the pod."""
        if not case.images:
            return Known({})
        source = PullSource.of(case.pod, case.facts.namespace)
        answers = self._at_hand(case, source, memory)
        missing = [use for use in case.images if use.reference is not None and use.text not in answers]
        credentials = self._secrets.cached(source)
        if missing and credentials is None:
            credentials = await self._secrets.get(source)
            answers = self._at_hand(case, source, memory)
        now = self._clock.monotonic()
        wants: list[Want] = []
        answered: list[Want] = []
        for use in missing:
            if use.reference is None or credentials is None or use.text in answers:
                continue
            image = ImageKey(use.reference.canonical, credentials.fingerprint)
            not_before = memory.seen_at if use.always and use.reference.digest is None else None
            want = Want(image, use.reference, credentials, not_before, self._tag_ttl, since=memory.seen_at)
            lookup = self._waiting.find(image)
            known = lookup is not None and lookup.serves(want, now)
            if lookup is not None and lookup.answer is not None and (known or lookup.failure):
                answers[use.text] = lookup.answer
            asked_once = use.never and lookup is not None and bool(lookup.failure)
            if known:
                answered.append(want)
            elif not asked_once:
                wants.append(want)
        problems = credentials.problems if credentials is not None else ()
        return Known(answers, tuple(wants), tuple(answered), problems)

    async def about_bundles(self, case: Case, answers: dict[str, Inspection]) -> list[Want]:
        """Before a pod is called impossible: which of its indexes might be operator bundles, and so constrain nothing.

        Replaces the answers of those that were looked at; returns what to wait for if some were not (RG-046).
        """
        own, anybody = PullSource.of(case.pod, case.facts.namespace), PullSource(case.facts.namespace, ())
        wants: list[Want] = []
        pending = False
        for use in case.images:
            answer = answers.get(use.text)
            if answer is None or use.reference is None or answer.kind != "index" or not answer.constrains:
                continue
            credentials = await self._secrets.get(anybody if answer.public else own)
            known = self._inspector.peek(use.reference, credentials.store, bundle="always")
            if known is None:
                image = ImageKey(use.reference.canonical, credentials.fingerprint, "always")
                lookup = self._waiting.find(image)
                known = lookup.answer if lookup is not None else None
                pending = pending or known is None
                wants.append(Want(image, use.reference, credentials, None, self._tag_ttl))
            if known is not None and not failure_of(known):
                answers[use.text] = known
        return wants if pending else []

    def _at_hand(self, case: Case, source: PullSource, memory: GatedPod) -> dict[str, Inspection]:
        return at_hand(
            case.images,
            self._inspector,
            self._secrets.lazy(source),
            since=memory.seen_at,
            now=self._clock.monotonic(),
            tag_ttl=self._tag_ttl,
            stale_for=case.settings.images_stale_for,
        )
