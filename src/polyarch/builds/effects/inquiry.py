"""Answers the questions of a plan: registries, and objects by their names (BD-003, BD-059, BD-092, BD-324, BD-347).

All builds share one inspector, so that a base image is looked up once for all of them; each asks with the credentials
of its own Secrets. That a manifest exists is asked by HEAD; the answer is kept while the same execution is under way,
since its plan is made anew at every step of its Jobs. Errors are not kept: the plan says when to ask again.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, get_args

import msgspec

from polyarch.builds.facts.facts import Asked, Existence, Facts, FoundJob, Question, SecretFacts
from polyarch.builds.frontend import WishKey
from polyarch.clock import Clock
from polyarch.kube.errors import Forbidden
from polyarch.oci.answer import Inspection, InspectionError, Status
from polyarch.oci.auth.credentials import CredentialStore
from polyarch.oci.concurrent import map_concurrently
from polyarch.oci.reference import Reference

AT_ONCE: Final = 16
"""Questions of one build that are asked at a time."""
KEEP: Final = 600.0
"""Seconds for which it counts as known that a manifest is there, or is not."""


class Registry(Protocol):
    """The part of the registries that is needed here. Neither method raises for what an image or a registry is like;
    both raise ``Forbidden`` where a Secret with their credentials may not be read."""

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


class ReadsByName(Protocol):
    """The part of ``NamedObjects`` that is needed here."""

    async def job(self, namespace: str, name: str) -> FoundJob | None: ...

    async def runtime_handler(self, name: str) -> str | None: ...


class _Known(msgspec.Struct):
    """What one build has been told of manifests."""

    execution: str
    found: dict[str, tuple[Existence, float]]


class Inquiry:
    """Asks for all builds."""

    def __init__(self, registry: Registry, inputs: NamedInputs, clock: Clock, *, named: ReadsByName) -> None:
        self._registry = registry
        self._inputs = inputs
        self._named = named
        self._clock = clock
        self._known: dict[WishKey, _Known] = {}

    async def answered(
        self, wish: WishKey, facts: Facts, questions: Iterable[Question], credentials: CredentialStore
    ) -> Facts:
        """The facts with the answers to all questions. Raises what the API server raises."""
        asked = list(dict.fromkeys(questions))

        forbidden = False

        async def answer(question: Question) -> Any:
            nonlocal forbidden
            try:
                return await ask(question)
            except Forbidden as error:
                forbidden = True
                return _unreadable(question, error)

        async def ask(question: Question) -> Any:
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
                    return await self._inputs.secret(wish, question.reference)
                case "job":
                    return await self._named.job(wish.namespace, question.reference)
                case "runtimeclass":
                    return await self._named.runtime_handler(question.reference)

        answers = await map_concurrently(answer, asked, at_once=AT_ONCE)
        given: dict[str, dict[str, Any]] = {each: {} for each in get_args(Asked)}
        for question, said in zip(asked, answers, strict=True):
            given[question.what][question.reference] = said
        inputs = msgspec.structs.replace(
            facts.inputs,
            config_maps={**facts.inputs.config_maps, **given["configmap"]},
            secrets={**facts.inputs.secrets, **given["secret"]},
            readable=facts.inputs.readable and not forbidden,
        )
        return msgspec.structs.replace(
            facts,
            images={**facts.images, **given["inspect"]},
            existing={**facts.existing, **given["head"]},
            found_jobs={**facts.found_jobs, **given["job"]},
            runtime_handlers={**facts.runtime_handlers, **given["runtimeclass"]},
            inputs=inputs,
            pins_fresh=facts.pins_fresh or any(each.revalidate for each in asked),
        )

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


def _unreadable(question: Question, error: Forbidden) -> Any:
    """What stands for an answer that needs a Secret which may not be read: the plan says so, and asks no further."""
    code = "unauthorized"
    match question.what:
        case "inspect":
            nowhere = Reference("docker", "", question.reference)
            return Inspection(nowhere, Status.ERROR, error=InspectionError.of(code, str(error)))
        case "head":
            return Existence(error=code)
        case "secret":
            return None
    raise error
