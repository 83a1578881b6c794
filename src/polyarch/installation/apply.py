"""Applies the objects of an installation in order, one after another.

Server-side apply with the field manager ``polyarch-install``. What would not change is not written, so a second run
sends no write at all. Fields that kubectl's commands left in objects of an earlier polyarch are taken over first, so
that those that are no longer wanted go away, and so is what others have put in the way of ours (``kube/adoption.py``).
The first refusal ends it; a new run goes on where it stopped.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import msgspec

from polyarch.clock import Clock, SystemClock
from polyarch.installation.preflight import (
    MANAGER,
    OURS,
    Ownership,
    PreflightFacts,
    advice,
    changes,
    in_the_way,
    is_ready_for,
    ref_of,
    whose,
)
from polyarch.installation.wait import WaitTimeout, established
from polyarch.kube import apply
from polyarch.kube.adoption import adoption, taking
from polyarch.kube.apply import can_insist, insist
from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError, Invalid, NotFound
from polyarch.kube.managed_fields import overridden
from polyarch.kube.resources import CRDS, NAMESPACES, ObjectRef
from polyarch.objects import PartialObjectMetadata

Document = dict[str, Any]
Verb = Literal["created", "configured", "unchanged", "untried"]
SERVED_SECONDS: Final = 15.0
"""How long after its definition is established a new kind may still be answered with 404."""
POLL: Final = 0.2


class AppliedObject(msgspec.Struct, frozen=True):
    """What became of one object."""

    ref: ObjectRef
    verb: Verb
    """``untried``: a dry run, and the namespace or the kind does not exist yet."""
    taken: tuple[str, ...] = ()
    """Fields taken from other managers, with their names."""


class ApplyRefused(Exception):  # noqa: N818 - what happened
    """The API server refused an object; those before it are applied."""

    def __init__(self, ref: ObjectRef, error: ApiError | str) -> None:
        self.ref = ref
        self.problem = error if isinstance(error, str) else error.message or str(error)
        self.action = "look at its status and at the API server" if isinstance(error, str) else advice(error)
        super().__init__(f"{ref}: {self.problem}; {self.action}")


async def apply_all(
    client: Client,
    documents: Iterable[Document],
    facts: PreflightFacts,
    *,
    dry_run: bool = False,
    tell: Callable[[AppliedObject], None] = lambda _: None,
    clock: Clock | None = None,
) -> tuple[AppliedObject, ...]:
    """Applies them in the order given, and calls ``tell`` after each. Raises :class:`ApplyRefused`.

    ``dry_run``: asks the API server what it would do, where that can be asked, and writes nothing.
    """
    clock = clock or SystemClock()
    done: list[AppliedObject] = []
    awaited: list[ObjectRef] = []
    for document in documents:
        ref = ref_of(document)
        if awaited and ref.resource != CRDS and not dry_run:
            try:
                await established(client, [each.key.name for each in awaited], clock=clock)
            except WaitTimeout as error:
                raise ApplyRefused(awaited[-1], str(error)) from None
            awaited = []
        try:
            applied = await _apply(client, ref, document, facts, dry_run=dry_run, clock=clock)
        except ApiError as error:
            raise ApplyRefused(ref, error) from None
        if ref.resource == CRDS:
            awaited.append(ref)
        done.append(applied)
        tell(applied)
    return tuple(done)


def wanted(document: Document, live: Document | None) -> Document:
    """The document for an object that is there. A namespace of somebody else gets no label that says it is ours: an
    uninstall leaves it."""
    ref = ref_of(document)
    if live is None or ref.resource != NAMESPACES or whose(ref, live) is not Ownership.SHARED:
        return document
    metadata = document["metadata"]
    labels = {key: value for key, value in metadata["labels"].items() if not key.startswith("app.kubernetes.io/")}
    return {**document, "metadata": {**metadata, "labels": labels}}


async def _apply(
    client: Client, ref: ObjectRef, document: Document, facts: PreflightFacts, *, dry_run: bool, clock: Clock
) -> AppliedObject:
    live = facts.live.get(ref)
    document = wanted(document, live)
    if not changes(document, live):
        return AppliedObject(ref, "unchanged")
    verb: Verb = "created" if live is None else "configured"
    if dry_run and not is_ready_for(ref, facts.live):
        return AppliedObject(ref, "untried")
    if live is None:
        await _until_served(client, ref, document, dry_run=dry_run, clock=clock)
        return AppliedObject(ref, verb)
    others = in_the_way(document, live)
    taken = (*overridden(document, live, manager=MANAGER), *(each.conflict() for each in others))

    async def send() -> str:
        return await _until_served(client, ref, document, dry_run=dry_run, clock=clock)

    try:
        if not dry_run:
            await take_over(client, ref, live)
            await apply.take_over(
                client, ref, live, lambda read: taking(read, in_the_way(document, read), manager=MANAGER)
            )
        if await send() == live["metadata"].get("resourceVersion"):
            return AppliedObject(ref, "unchanged")  # the API server stores a value in another form
    except Invalid as error:
        if not dry_run:
            done = await insist(client, ref, document, error, manager=MANAGER, send=send)
            taken = (*taken, *done.taken)
        elif not await can_insist(client, ref, document, error):
            raise
    return AppliedObject(ref, verb, tuple(dict.fromkeys(map(str, taken))))


async def take_over(client: Client, ref: ObjectRef, live: Document) -> None:
    """kubectl's fields become ours. Custom resources are the user's: what kubectl set in them stays."""
    if ref.resource in OURS.values():
        return
    await apply.take_over(client, ref, live, lambda read: adoption(read, manager=MANAGER))


async def _until_served(client: Client, ref: ObjectRef, document: Document, *, dry_run: bool, clock: Clock) -> str:
    """Applies it; again while its kind is not served yet. Returns the resourceVersion."""
    end = clock.monotonic() + (SERVED_SECONDS if ref.resource in OURS.values() else 0.0)
    while True:
        try:
            seen: PartialObjectMetadata = await client.apply(
                ref.resource, document, namespace=ref.key.namespace, field_manager=MANAGER, dry_run=dry_run
            )
        except NotFound:
            if clock.monotonic() >= end:
                raise
            await clock.sleep(POLL)
        else:
            return seen.metadata.resource_version
