"""Looks up one image at all its sources in turn, and builds the error if none answers (RG-064, RG-116).

Mirrors come before the primary. Any failure moves on to the next source; a rate-limited mirror is skipped, not waited
for. Each source but the last gets at most half of the time left, so that one that hangs leaves time for the others. The
error is that of the last source, with one line per source tried.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from polyarch.clock import Clock
from polyarch.oci.answer import Inspection, InspectionWarning, Status
from polyarch.oci.auth.credentials import CredentialStore
from polyarch.oci.auth.entries import Credential
from polyarch.oci.cache.memory import Cache
from polyarch.oci.image.lookup import Lookup
from polyarch.oci.image.recall import Key, Names, Question, Recall, names_of, source_used
from polyarch.oci.mirrors.sources import Source
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.traffic.budget import Budget
from polyarch.oci.traffic.exchange import Visit
from polyarch.oci.traffic.failures import PASSING, Failure

LAST_GOOD_PROOF = 24 * 3600.0
"""Maximum age of the proof for a last good reading, which is the maximum of ``stale_for`` (PL-407)."""


class Errand(NamedTuple):
    """A question, its sources, and the credentials for each source."""

    question: Question
    key: Key
    sources: Sequence[Source]
    credentials: Sequence[Sequence[Credential]]
    store: CredentialStore

    @property
    def names(self) -> "Names":
        return names_of(self.credentials)


class Outcome(NamedTuple):
    """The result of a look-up, with the names of the credentials of the caller that started it."""

    answer: Inspection
    names: Names

    def told(self, errand: Errand) -> Inspection:
        """The answer for one caller: with its own names for the shared credentials (PL-852), and with the warnings of
        its own credential store (RG-083).
        """
        answer = self.answer
        pairs = zip(
            (name for each in self.names for name in each), (n for each in errand.names for n in each), strict=True
        )
        others = {theirs: own for theirs, own in pairs if theirs != own}
        if others:
            answer = _renamed(answer, others)
        source = next((each for each in errand.sources if source_used(each) == answer.source), errand.sources[-1])
        found = (InspectionWarning(each.code, each.message) for each in errand.store.warnings(source))
        new = tuple(each for each in found if each not in answer.warnings)
        return msgspec.structs.replace(answer, warnings=answer.warnings + new) if new else answer


class Tour:
    """Runs look-ups over all sources."""

    def __init__(
        self, lookup: Lookup, cache: Cache, recall: Recall, *, clock: Clock, settings: InspectorSettings
    ) -> None:
        self._lookup = lookup
        self._recall = recall
        self._cache = cache
        self._clock = clock
        self._settings = settings

    async def go(self, errand: Errand, *, wait: bool, tenant: str) -> Outcome:
        """The first answer, or the last error; never raises ``Failure``."""
        settings = self._settings
        budget = Budget(self._clock, seconds=settings.timeout, max_wait=settings.max_wait)
        visit = Visit(budget, wait=False, tenant=tenant)
        attempts: list[str] = []
        failure: Failure | None = None
        for source, credentials in zip(errand.sources, errand.credentials, strict=True):
            last = source is errand.sources[-1]
            visit.wait = wait and last
            visit.budget = budget if last else budget.half()
            try:
                answer = await self._lookup.ask(errand.question, source, credentials, visit)
            except Failure as error:
                failure = error
                attempts.append(f"{'mirror ' if source.mirror else ''}{error.error.message}")
            else:
                self._cache.drop_negative((errand.key, errand.names))
                return Outcome(answer, errand.names)
        if failure is None:
            raise AssertionError("an image has at least one source")
        return Outcome(self._failed(errand, failure, attempts, visit), errand.names)

    def _failed(self, errand: Errand, failure: Failure, attempts: Sequence[str], visit: Visit) -> Inspection:
        reference, source = errand.question.reference, errand.sources[-1]
        error = failure.about(reference.canonical, tuple(attempts) if len(attempts) > 1 else ())
        helper = next((each for each in errand.store.warnings(source) if each.code == "credential-helper"), None)
        if error.error_class == "auth" and helper is not None:
            message = f"{error.message}; {helper.message}"
            error = msgspec.structs.replace(error, code="credential-helper", message=message)
        if error.error_class in ("absent", "auth"):
            key, names = errand.key, errand.names
            weight = len(reference.canonical) + sum(100 + len(name) for each in names for name in each)
            self._cache.put_negative((key, names), error, self._settings.negative_ttl, weight=weight)
        answer = Inspection(
            reference,
            Status.ERROR,
            error=error,
            warnings=tuple(visit.warnings),
            source=source_used(source),
            requests=visit.requests,
        )
        if error.error_class in PASSING and (good := self._last_good(errand)) is not None:
            answer = msgspec.structs.replace(answer, last_good=good[0], last_good_age=good[1])
        return answer

    def _last_good(self, errand: Errand) -> tuple[Inspection, float] | None:
        """The last reading for these credentials and its age in seconds, 0 for a digest (RG-116)."""
        now = self._clock.monotonic()
        for source, fingerprints in zip(errand.sources, errand.key.fingerprints, strict=True):
            known = self._recall.known(
                source,
                fingerprints,
                not_before=float("-inf"),
                memory_only=False,
                proof_seconds=LAST_GOOD_PROOF,
                last_good=True,
            )
            if known is not None:
                age = 0.0 if source.digest is not None else now - known.checked_at
                return self._recall.answer(errand.question, source, known), age
        return None


def _renamed(answer: Inspection, names: Mapping[str, str]) -> Inspection:
    pattern = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))

    def own(text: str) -> str:
        return pattern.sub(lambda found: names[found[0]], text)

    warnings = tuple(InspectionWarning(each.code, own(each.message)) for each in answer.warnings)
    error = answer.error
    if error is not None:
        attempts = tuple(map(own, error.attempts))
        error = msgspec.structs.replace(error, message=own(error.message), attempts=attempts)
    return msgspec.structs.replace(answer, warnings=warnings, error=error)
