"""Short names: ``nginx`` means Docker Hub, unless short-name search is enabled (RG-096).

The search follows the container tools of the Red Hat family: an alias decides, else the registries of
``unqualified-search-registries`` are tried in turn. It is off by default, because a name searched in several places can
be claimed by another owner in the first of them. For the same reason a registry that fails, instead of reporting that
the image is absent, ends the search.

Pure but for :func:`search`, which calls the function it is given. Imports neither asyncio nor aiohttp.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from polyarch.oci.answer import Inspection
from polyarch.oci.mirrors.sources import Configuration
from polyarch.oci.mirrors.unqualified import ANYWHERE, is_short, name_end
from polyarch.oci.reference import InvalidReference, Reference, parse, parse_located

PASSED_OVER = frozenset({"not-found", "unauthorized", "denied"})


def candidates(text: str, configuration: Configuration) -> tuple[Reference, ...]:
    """The images a text can mean, in search order: one unless it is a short name without an alias.

    Raises ``InvalidReference`` for an invalid text, and for a short name if no search is configured.
    """
    reference = parse(text)
    if not is_short(text, reference):
        return (reference,)
    end = name_end(text)
    name, rest = text[:end], text[end:]
    alias = configuration.aliases.get(name)
    if alias:
        return (_located(text, f"{alias}{rest}", "the alias of registries.conf"),)
    if not configuration.search:
        problem = "it is a short name, and registries.conf has neither an alias nor unqualified-search-registries"
        raise InvalidReference(text, problem, f"write it with its registry, for example docker.io/{text}")
    places = [
        _located(text, f"{registry.rstrip('/')}/{text}", "unqualified-search-registries")
        for registry in configuration.search
    ]
    return tuple(dict.fromkeys(places))


def places(reference: Reference, configuration: Configuration) -> tuple[Reference, ...]:
    """The places of an :func:`unqualified` name in order; raises ``InvalidReference`` like :func:`candidates`."""
    return candidates(reference.canonical.removeprefix(f"{ANYWHERE}/"), configuration)


def passes_over(answer: Inspection) -> bool:
    """Whether the search continues with the next place."""
    return answer.error is not None and answer.error.code in PASSED_OVER


async def search(places: Sequence[Reference], inspect: Callable[[Reference], Awaitable[Inspection]]) -> Inspection:
    """The answer of the first place that does not report the image as absent; else the last one's error, naming all
    places.
    """
    said = []
    for place in places:
        answer = await inspect(place)
        if not passes_over(answer):
            return answer
        said.append(answer.error.message if answer.error is not None else "")
    if len(places) > 1 and answer.error is not None:
        names = ", ".join(place.canonical for place in places)
        message = f"found in none of {names}: {answer.error.message}"
        error = msgspec.structs.replace(answer.error, message=message, attempts=tuple(said))
        answer = msgspec.structs.replace(answer, error=error)
    return answer


def _located(text: str, full: str, where: str) -> Reference:
    try:
        reference = parse_located(full)
    except InvalidReference as error:
        problem = f"{where} makes {full!r} of it: {error.problem}"
        raise InvalidReference(text, problem, "correct it there") from None
    if reference.tag is None and reference.digest is None:
        return msgspec.structs.replace(reference, tag="latest")
    return reference
