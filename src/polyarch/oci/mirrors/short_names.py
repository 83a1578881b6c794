"""Short names: ``nginx`` is Docker Hub's, unless one asks for it to be searched (RG-096).

Searching is what container tools of the Red Hat family do: an alias decides, else the registries of
``unqualified-search-registries`` are asked in turn. It is off by default, because a name that is looked for in several
places can be answered by whoever takes it first. A registry that fails, rather than saying that it has no such image,
ends the search for the same reason.

Pure but for :func:`search`, which asks through the function it is given. Imports neither asyncio nor aiohttp.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from polyarch.oci.answer import Inspection
from polyarch.oci.mirrors.sources import Configuration
from polyarch.oci.mirrors.unqualified import ANYWHERE, is_short, name_end
from polyarch.oci.reference import InvalidReference, Reference, parse, parse_located

PASSED_OVER = frozenset({"not-found", "unauthorized", "denied"})


def candidates(text: str, configuration: Configuration) -> tuple[Reference, ...]:
    """The images that a text can mean, in the order of asking: one unless it is a short name without an alias.

    Raises ``InvalidReference`` if it is none, or if it is short and the configuration says nothing of such names.
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
    """Where to look for an :func:`unqualified` name, in order; ``InvalidReference`` as of :func:`candidates`."""
    return candidates(reference.canonical.removeprefix(f"{ANYWHERE}/"), configuration)


def passes_over(answer: Inspection) -> bool:
    """Whether the next place is to be asked."""
    return answer.error is not None and answer.error.code in PASSED_OVER


async def search(places: Sequence[Reference], inspect: Callable[[Reference], Awaitable[Inspection]]) -> Inspection:
    """The answer of the first place that does not say it has no such image; else the last one's error, which then
    names all places."""
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
