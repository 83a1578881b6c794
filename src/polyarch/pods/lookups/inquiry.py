"""Collects the answers for a waiting pod's images, and the look-ups it still waits for (PL-302, PL-404, PL-422).

Answers come from the registry client's cache and from shared look-ups; this module sends no request and never waits. If
an image needs the pod's pull secrets and they are not cached, they are read in the background and the pod is reconciled
again.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from polyarch.clock import Clock
from polyarch.objects import Key
from polyarch.oci.answer import Inspection
from polyarch.pods.images import ImageUse
from polyarch.pods.lookups.answers import Inspects, at_hand
from polyarch.pods.lookups.image_lookup import ImageKey, Want, failure_of
from polyarch.pods.lookups.secret_reads import SecretReads
from polyarch.pods.lookups.secrets import PodCredentials, PullSecrets, PullSource
from polyarch.pods.lookups.waiting import Waiting


class Waits(Protocol):
    """What is remembered of a waiting pod. Times are ``Clock.monotonic()``."""

    failed_once: dict[str, Inspection]
    """Failures of images that may exist on nodes only, by reference text (PL-212); replaced, never changed."""

    @property
    def seen_at(self) -> float: ...

    def waits(self, now: float, *, begun: float | None) -> None:
        """It waits for look-ups; ``begun``: when the first attempt of one began; None: all are queued."""
        ...

    def waits_for_nothing(self, now: float) -> None:
        """No look-up can provide what is missing, if anything is."""
        ...


class Asked(NamedTuple):
    """What is asked for: the images of one pod."""

    images: tuple[ImageUse, ...]
    source: PullSource
    stale_for: float
    """How old the last good reading of a failing image may be (PL-407)."""
    is_impossible: Callable[[Mapping[str, Inspection]], bool]
    """Whether no node runs all images that are known."""


class Known(NamedTuple):
    """The state of a pod's images."""

    answers: dict[str, Inspection]
    """Answers, including failures, by the text of the reference."""
    wants: tuple[Want, ...] = ()
    """Images that the pod waits for."""
    answered: tuple[Want, ...] = ()
    """Images answered by their look-up. A look-up and its answer are dropped when the last pod leaves it, so the pod
    stays parked there until all its images are known."""
    problems: tuple[str, ...] = ()
    """Problems of the pod's pull secrets, for the events of a failure (PL-422)."""
    pending: bool = False
    """An image has neither answered nor failed since the pod was first seen (PL-330)."""
    undecidable: bool = False
    """The pod is not decided before ``wants`` are known, however long that takes (RG-046)."""


class Inquiry:
    """Collects answers for one pod at a time."""

    def __init__(
        self,
        inspector: Inspects,
        secrets: PullSecrets,
        reads: SecretReads,
        waiting: Waiting,
        clock: Clock,
    ) -> None:
        self._inspector = inspector
        self._secrets = secrets
        self._reads = reads
        self._waiting = waiting
        self._clock = clock

    def about(self, asked: Asked, key: Key, memory: Waits) -> Known | None:
        """The state of all images of the pod; None: its pull secrets are being read, then it is reconciled again."""
        known = self._known(asked, memory) if asked.images else Known({})
        if known is None:
            self._reads.want(asked.source, key)
        return known

    def _known(self, asked: Asked, memory: Waits) -> Known | None:
        answers = self._at_hand(asked, memory)
        missing = [use for use in asked.images if use.reference is not None and use.text not in answers]
        credentials = self._secrets.cached(asked.source)
        if not missing:
            known = Known(answers, problems=credentials.problems if credentials is not None else ())
        elif credentials is not None:
            known = self._looked_up(missing, answers, credentials, memory)
        else:
            return None
        if asked.is_impossible(known.answers):
            if (with_bundles := self._about_bundles(asked, known)) is None:
                return None
            known = with_bundles
        if not known.wants:
            memory.waits_for_nothing(self._clock.monotonic())
        return known

    def _looked_up(
        self, missing: Iterable[ImageUse], answers: dict[str, Inspection], credentials: PodCredentials, memory: Waits
    ) -> Known:
        """Answers of the shared look-ups for the missing images; each look-up is read once."""
        now = self._clock.monotonic()
        wants: list[Want] = []
        answered: list[Want] = []
        begun: list[float] = []
        pending = False
        for use in missing:
            if use.reference is None:
                continue
            if use.text in memory.failed_once:
                answers[use.text] = memory.failed_once[use.text]
                continue
            image = ImageKey(use.reference.canonical, credentials.fingerprint)
            not_before = memory.seen_at if use.always and use.reference.digest is None else None
            want = Want(image, use.reference, credentials, not_before, since=memory.seen_at)
            lookup = self._waiting.find(image)
            is_pending = lookup is None or lookup.is_pending(want)
            if lookup is not None and lookup.serves(want, now) and lookup.answer is not None:
                answers[use.text] = lookup.answer
                answered.append(want)
                continue
            if lookup is not None and lookup.failure and lookup.answer is not None:
                answers[use.text] = lookup.answer
                if use.never and not is_pending:
                    memory.failed_once = {**memory.failed_once, use.text: lookup.answer}
                    continue
            wants.append(want)
            pending = pending or is_pending
            if lookup is not None and lookup.started_at is not None:
                begun.append(lookup.started_at)
        if wants:
            memory.waits(now, begun=min(begun, default=None))
        return Known(answers, tuple(wants), tuple(answered), credentials.problems, pending)

    def _about_bundles(self, asked: Asked, known: Known) -> Known | None:
        """Checks, before a pod counts as impossible, whether its indexes are operator bundles, which constrain nothing.

        Uses the answers of indexes that were inspected for this; the others are waited for (RG-046). None: pull secrets
        are needed that are not cached.
        """
        anybody = PullSource(asked.source.namespace, ())
        answers = dict(known.answers)
        wants: list[Want] = []
        answered: list[Want] = []
        for use in asked.images:
            answer = answers.get(use.text)
            if answer is None or use.reference is None or answer.kind != "index" or not answer.constrains:
                continue
            credentials = self._secrets.cached(anybody if answer.public else asked.source)
            if credentials is None:
                return None
            found = self._inspector.peek(use.reference, credentials.store, bundle="always")
            if found is None:
                image = ImageKey(use.reference.canonical, credentials.fingerprint, "always")
                want = Want(image, use.reference, credentials)
                lookup = self._waiting.find(image)
                found = lookup.answer if lookup is not None else None
                (wants if found is None else answered).append(want)
            if found is not None and not failure_of(found):
                answers[use.text] = found
        if wants:
            return known._replace(wants=(*known.wants, *wants), answered=(*known.answered, *answered), undecidable=True)
        return known._replace(answers=answers)

    def _at_hand(self, asked: Asked, memory: Waits) -> dict[str, Inspection]:
        return at_hand(
            asked.images,
            self._inspector,
            self._secrets.lazy(asked.source),
            since=memory.seen_at,
            now=self._clock.monotonic(),
            stale_for=asked.stale_for,
        )
