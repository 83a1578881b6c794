"""Carries out the steps of a plan that concern registries: S7 and S8 (BD-176, BD-177).

All of them look first at what is there, so a step that was cut off is completed by the next pass with the same digest
and no second write. A registry's refusal is a value, which the plan judges.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec
import structlog

from polyarch.builds.effects.object_writes import Carried, refused
from polyarch.builds.facts.facts import Existence, StepFailure
from polyarch.builds.frontend import WishKey
from polyarch.builds.keys.objects import NOT_ENABLED
from polyarch.builds.plan.document import Write
from polyarch.builds.pruning.counting import Image
from polyarch.builds.pruning.deletion import Deleted, delete_images
from polyarch.builds.publishing import publish
from polyarch.builds.publishing.publication import Publication, Published, TagOrder, Trouble
from polyarch.kube.errors import Forbidden
from polyarch.oci.answer import Inspection, InspectionError, Status
from polyarch.oci.auth.credentials import CredentialStore
from polyarch.oci.inspect import Inspector
from polyarch.oci.reference import InvalidReference, Reference, parse

log = structlog.get_logger(__name__)


class Registries:
    """The registries as builds use them: one inspector for all, the credentials of each build for itself (BD-334)."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector

    async def inspect(self, reference: str, *, credentials: CredentialStore, fresh: bool, tenant: str) -> Inspection:
        """The answer for one reference; a text that is none is an answer too."""
        try:
            named = parse(reference)
        except InvalidReference as error:
            nowhere = Reference("docker", "", reference)
            return Inspection(nowhere, Status.ERROR, error=InspectionError.of("malformed", str(error)))
        return await self._inspector.inspect(named, credentials=credentials, fresh=fresh, tenant=tenant)

    async def head(self, reference: str, *, credentials: CredentialStore) -> Existence:
        """What ``repository@digest`` or ``repository:tag`` names, where it was pushed."""
        return await publish.head(self._inspector.connection.using(credentials), reference)

    async def publish(self, publication: Publication, *, credentials: CredentialStore) -> Published | Trouble:
        return await publish.publish(self._inspector.connection.using(credentials), publication)

    async def move_tags(
        self, reference: str, tags: tuple[str, ...], *, credentials: CredentialStore
    ) -> Published | Trouble:
        return await publish.move_tags(self._inspector.connection.using(credentials), reference, tags)

    async def delete_images(self, images: Sequence[Image], *, credentials: CredentialStore) -> Deleted:
        return await delete_images(self._inspector.connection.using(credentials), images)


class Publishes(Protocol):
    """The part of :class:`Registries` that writes."""

    async def publish(self, publication: Publication, *, credentials: CredentialStore) -> Published | Trouble: ...

    async def move_tags(
        self, reference: str, tags: tuple[str, ...], *, credentials: CredentialStore
    ) -> Published | Trouble: ...


class RegistryWrites:
    """The registry steps of all builds."""

    def __init__(self, registries: Publishes) -> None:
        self._registries = registries

    async def carry_out(self, wish: WishKey, write: Write, credentials: CredentialStore) -> Carried | StepFailure:
        """One step. Raises ``msgspec.ValidationError`` for a body that is none, and ``KubernetesError`` where the API
        server did not answer when a Secret was read."""
        try:
            result = await self._result(write, credentials)
        except Forbidden as error:
            log.warning("a Secret may not be read", build=str(wish), step=write.step, error=str(error))
            return refused(write, NOT_ENABLED, error)
        if isinstance(result, Trouble):
            log.warning("a registry step failed", build=str(wish), step=write.step, error=result.message)
            return _failure(write, result)
        expected = str(write.body.get("digest") or "")
        if expected and result.digest != expected:
            message = f"{result.digest} was published where {expected} was planned"
            return _failure(write, Trouble(reason="RegistryInconsistent", message=message))
        return Carried.DONE if result.changed else Carried.NOT_NEEDED

    async def _result(self, write: Write, credentials: CredentialStore) -> Published | Trouble:
        match write.verb:
            case "push-index":
                publication = msgspec.convert(write.body, Publication)
                return await self._registries.publish(publication, credentials=credentials)
            case "tag":
                tags = msgspec.convert(write.body, TagOrder).tags
                return await self._registries.move_tags(write.reference, tags, credentials=credentials)
        raise ValueError(f"{write.verb} is not a step of a plan that concerns registries")


def _failure(write: Write, trouble: Trouble) -> StepFailure:
    return StepFailure(
        verb=write.verb,
        step=write.step,
        kind=write.kind,
        name=write.name,
        reference=write.reference,
        code=trouble.reason,
        message=trouble.message,
        retry_after=trouble.retry_after,
        architecture=trouble.architecture,
        missing=trouble.missing,
        passing=trouble.passing,
    )
