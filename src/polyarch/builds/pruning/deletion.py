"""Deletes images from their registries, in order, and goes on past what cannot be deleted (BD-231, BD-234)."""

from collections.abc import Iterable, Sequence

import msgspec

from polyarch.builds.pruning.counting import Image
from polyarch.oci.image.contents import Connection
from polyarch.oci.reference import InvalidReference, parse
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.write.removal import Outcome, Removal, remove


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """An image that a registry does not delete: no reason to try again, but one to say so."""

    repository: str
    reference: str
    outcome: Outcome
    message: str


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a pass. ``remaining`` may be deleted later, after ``retry_after`` if a registry said so."""

    done: tuple[str, ...] = ()
    kept: tuple[Kept, ...] = ()
    remaining: tuple[str, ...] = ()
    problem: str = ""
    retry_after: float | None = None

    def warnings(self, said: Iterable[tuple[str, str]] = ()) -> tuple[Kept, ...]:
        """One for each repository and kind of refusal that is not in ``said`` (BD-234)."""
        first: dict[tuple[str, str], Kept] = {}
        for each in self.kept:
            first.setdefault((each.repository, each.outcome), each)
        known = frozenset(said)
        return tuple(each for place, each in first.items() if place not in known)


async def delete_images(connection: Connection, images: Sequence[Image]) -> Deleted:
    """Delete them in order; a child waits for every index that holds it and is not gone (BD-231)."""
    done: list[str] = []
    kept: list[Kept] = []
    remaining: list[str] = []
    problem, retry_after = "", None
    staying: set[str] = set()
    waiting: set[str] = set()
    for image in images:
        if waiting.intersection(image.after):
            remaining.append(image.reference)
            waiting.add(image.digest)
            continue
        try:
            if held := staying.intersection(image.after):
                removal = Removal("unsupported", f"it is part of {', '.join(sorted(held))}, which stays")
            else:
                removal = await remove(connection, parse(image.reference), tags=image.tags)
        except InvalidReference as error:
            removal = Removal("unsupported", str(error))
        except Failure as failure:
            problem = problem or failure.error.message
            retry_after = max(filter(None, (retry_after, failure.error.retry_after)), default=None)
            remaining.append(image.reference)
            waiting.add(image.digest)
            continue
        if removal.gone:
            done.append(image.reference)
        else:
            kept.append(_kept(image, removal))
            staying.add(image.digest)
    return Deleted(
        done=tuple(done), kept=tuple(kept), remaining=tuple(remaining), problem=problem, retry_after=retry_after
    )


def _kept(image: Image, removal: Removal) -> Kept:
    return Kept(
        repository=image.repository, reference=image.reference, outcome=removal.outcome, message=removal.message
    )
