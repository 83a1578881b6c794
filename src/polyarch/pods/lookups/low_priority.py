"""Answers for pods that nobody waits for: the sweep's and the warm-up's.

A few look-ups run at a time, each with a deadline; a host that is paused or does not answer is left alone, and so is
what failed: whoever asks comes back in minutes. Nothing here is retried, and nothing is kept but what the registry
client keeps for all.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from polyarch.clock import Clock, deadline
from polyarch.kube.errors import Causes
from polyarch.oci.answer import Inspection
from polyarch.oci.cache.image_reading import BundleMode
from polyarch.oci.reference import Reference
from polyarch.pods.images import ImageUse
from polyarch.pods.lookups.answers import Inspects, at_hand
from polyarch.pods.lookups.metrics import LookupMetrics
from polyarch.pods.lookups.secrets import PullSecrets, PullSource

log = structlog.get_logger(__name__)

AT_ONCE: Final = 8
LONGEST: Final = 30.0
"""Seconds for one image, pull secrets included."""
EVER: Final = float("-inf")


class LowPriorityLookups:
    """Looks images up, at most :data:`AT_ONCE` at a time."""

    def __init__(self, inspector: Inspects, secrets: PullSecrets, clock: Clock, metrics: LookupMetrics) -> None:
        self._inspector = inspector
        self._secrets = secrets
        self._clock = clock
        self._metrics = metrics
        self._places = asyncio.Semaphore(AT_ONCE)
        self._causes = Causes()

    def known(self, uses: Iterable[ImageUse], source: PullSource, *, stale_for: float) -> dict[str, Inspection]:
        """The answers in memory, by the text of the reference; with ``imagePullPolicy: Always``, too, a tag's check may
        be as old as the cache allows."""
        return at_hand(
            uses,
            self._inspector,
            self._secrets.lazy(source),
            since=EVER,
            now=self._clock.monotonic(),
            stale_for=stale_for,
        )

    async def answers(
        self,
        uses: Iterable[ImageUse],
        source: PullSource,
        *,
        stale_for: float,
        is_impossible: Callable[[dict[str, Inspection]], bool],
    ) -> dict[str, Inspection]:
        """The answers from memory and from registries; an image without one is left out. ``is_impossible``: whether
        no platform runs all of them; then indexes are asked for once more, because an operator bundle constrains
        nothing (RG-046)."""
        uses = list(uses)
        found = self.known(uses, source, stale_for=stale_for)
        missing = {use.text: use.reference for use in uses if use.reference and use.text not in found}
        found |= await self._all(missing, source, "auto")
        if is_impossible(found):
            indexes = {
                use.text: use.reference
                for use in uses
                if use.reference
                and use.text in found
                and found[use.text].kind == "index"
                and found[use.text].constrains
            }
            found |= await self._all(indexes, source, "always")
        return found

    async def ask(self, reference: Reference, source: PullSource, bundle: BundleMode = "auto") -> Inspection | None:
        """The registry's answer, or one from memory; None if there was none in time, or if it is not asked now."""
        async with self._places:
            known = self._inspector.peek(reference, self._secrets.lazy(source), bundle=bundle)
            if known is not None or self._inspector.host_busy(reference):
                return known
            try:
                async with deadline(self._clock, LONGEST):
                    credentials = await self._secrets.get(source)
                    return await self._inspector.inspect(
                        reference, credentials=credentials.store, bundle=bundle, tenant=source.namespace
                    )
            except TimeoutError:
                return None
            except Exception as error:
                self._metrics.internal_errors.inc()
                log.error(
                    "image look-up failed with an internal error",
                    image=reference.canonical,
                    exc_info=error if self._causes.is_new(error) else None,
                )
                return None

    async def _all(
        self, references: dict[str, Reference], source: PullSource, bundle: BundleMode
    ) -> dict[str, Inspection]:
        given = await asyncio.gather(*(self.ask(each, source, bundle) for each in references.values()))
        return {text: answer for text, answer in zip(references, given, strict=True) if answer is not None}
