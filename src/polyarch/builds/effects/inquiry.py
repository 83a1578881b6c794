"""Answers the questions of a plan: registries, and objects by their names (BD-003, BD-059, BD-092, BD-324, BD-347).

All builds share one inspector, so that a base image is looked up once for all of them; each asks with the credentials
of its own Secrets. That a manifest exists is asked by HEAD; the answer is kept while the same execution is under way,
since its plan is made anew at every step of its Jobs. Errors are not kept: the plan says when to ask again.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from polyarch.builds.facts.facts import Existence, Facts, FoundJob, Question, SecretFacts
from polyarch.builds.frontend import WishKey
from polyarch.kube.clock import Clock
from polyarch.kube.errors import Forbidden
from polyarch.oci.answer import Inspection
from polyarch.oci.auth.credentials import CredentialStore
from polyarch.oci.concurrent import map_concurrently

AT_ONCE: Final = 16
"""Questions of one build that are asked at a time."""
KEEP: Final = 600.0
"""Seconds for which it counts as known that a manifest is there, or is not."""


_FORBIDDEN: Final = object()


class Registry(Protocol):
    """The part of the registries that is needed here. Neither method raises for what an image or a registry is like."""

    async def inspect(
        self, reference: str, *, credentials: CredentialStore, fresh: bool, tenant: str
    ) -> Inspection: ...

    async def head(self, reference: str, *, credentials: CredentialStore) -> Existence: ...


class NamedInputs(Protocol):
    """The part of ``SpecInputs`` that is needed here."""

    async def config_map(self, wish: WishKey, name: str) -> Mapping[str, Any] | None: ...

    async def secret(self, wish: WishKey, name: str) -> SecretFacts | None:
        """Raises ``Forbidden`` where no administrator has said that Secrets may be read."""
        ...


class Jobs(Protocol):
    """The part of ``RecordedJobs`` that is needed here."""

    async def find(self, namespace: str, name: str) -> FoundJob | None: ...


class _Known(msgspec.Struct):
    """What one build has been told of manifests."""

    execution: str
    found: dict[str, tuple[Existence, float]]


class Inquiry:
    """Asks for all builds."""

    def __init__(self, registry: Registry, inputs: NamedInputs, clock: Clock, *, jobs: Jobs) -> None:
        self._registry = registry
        self._inputs = inputs
        self._jobs = jobs
        self._clock = clock
        self._known: dict[WishKey, _Known] = {}

    async def answered(
        self, wish: WishKey, facts: Facts, questions: Iterable[Question], credentials: CredentialStore
    ) -> Facts:
        """The facts with the answers to all questions. Raises what the API server raises."""
        asked = list(dict.fromkeys(questions))

        async def answer(question: Question) -> Any:
            match question.what:
                case "inspect":
                    return await self._registry.inspect(
                        question.reference, credentials=credentials, fresh=question.revalidate, tenant=wish.namespace
                    )
                case "head":
                    return await self._head(wish, question.reference, credentials)
                case "configmap":
                    return await self._inputs.config_map(wish, question.reference)
                case "secret":
                    return await self._secret(wish, question.reference)
                case "job":
                    return await self._jobs.find(wish.namespace, question.reference)

        answers = await map_concurrently(answer, asked, at_once=AT_ONCE)
        given: dict[str, dict[str, Any]] = {"inspect": {}, "head": {}, "configmap": {}, "secret": {}, "job": {}}
        for question, said in zip(asked, answers, strict=True):
            given[question.what][question.reference] = None if said is _FORBIDDEN else said
        inputs = msgspec.structs.replace(
            facts.inputs,
            config_maps={**facts.inputs.config_maps, **given["configmap"]},
            secrets={**facts.inputs.secrets, **given["secret"]},
            readable=facts.inputs.readable and not any(each is _FORBIDDEN for each in answers),
        )
        return msgspec.structs.replace(
            facts,
            images={**facts.images, **given["inspect"]},
            existing={**facts.existing, **given["head"]},
            found_jobs={**facts.found_jobs, **given["job"]},
            inputs=inputs,
            pins_fresh=facts.pins_fresh or any(each.revalidate for each in asked),
        )

    async def _secret(self, wish: WishKey, name: str) -> Any:
        try:
            return await self._inputs.secret(wish, name)
        except Forbidden:
            return _FORBIDDEN

    async def _head(self, wish: WishKey, reference: str, credentials: CredentialStore) -> Existence:
        known, now = self._known.setdefault(wish, _Known("", {})), self._clock.monotonic()
        if reference in known.found:
            existence, at = known.found[reference]
            if now - at < KEEP:
                return existence
        existence = await self._registry.head(reference, credentials=credentials)
        if not existence.error:
            known.found[reference] = (existence, now)
        return existence

    def is_about(self, wish: WishKey, execution: str) -> None:
        """From now on this execution is under way, or none: what was told for another one is forgotten."""
        known = self._known.get(wish)
        if known is None:
            return
        if not execution or known.execution not in ("", execution):
            del self._known[wish]
        else:
            known.execution = execution

    def written(self, wish: WishKey) -> None:
        """This build has written to a registry, or failed to: what is there is asked again."""
        if (known := self._known.get(wish)) is not None:
            known.found.clear()
