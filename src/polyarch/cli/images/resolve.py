"""The platforms of the images that manifests name: from a platforms file first, from registries for the rest.

Each distinct image is asked for once in a run. The network stack is imported only when somebody has to be
asked.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from polyarch.cli.errors import UsageError
from polyarch.cli.options.images import ImageOptions, cache_directory
from polyarch.cli.output.messages import USUAL, Messages
from polyarch.manifests.rules.engine import wanted_indexes
from polyarch.manifests.scan.sets import ImageInspections
from polyarch.oci.inspection import Inspection, InspectionError, Status
from polyarch.oci.platforms_file import AnswerFile
from polyarch.oci.reference import InvalidReference, Reference, parse

if TYPE_CHECKING:
    from polyarch.oci.inspector import InspectorOptions

MAX_REQUESTS = 64
SETTLED_AT_ONCE = 8


class Known(Mapping[str, Inspection]):
    """What is known of images by the texts that name them; a platforms file is looked into when a text comes up."""

    def __init__(self, file: AnswerFile | None) -> None:
        self._file = file
        self._found: dict[str, Inspection | None] = {}
        self._digests: dict[tuple[str, str], Inspection] = {}

    def __getitem__(self, text: str) -> Inspection:
        if text not in self._found:
            self._found[text] = self._look_up(text)
        found = self._found[text]
        if found is None:
            raise KeyError(text)
        return found

    def __iter__(self) -> Iterator[str]:
        return (text for text, found in self._found.items() if found is not None)

    def __len__(self) -> int:
        return sum(found is not None for found in self._found.values())

    def add(self, answers: Mapping[str, Inspection]) -> None:
        """What was learned; an image is known by its digest, too, which a repair may write."""
        self._found.update(answers)
        self.remember(answers.values())

    def remember(self, answers: Iterable[Inspection]) -> None:
        """Answers that no text of a file asked for, by their digests."""
        for answer in answers:
            if answer.status is Status.RESOLVED and answer.digest:
                self._digests[answer.reference.name, answer.digest] = answer

    def _look_up(self, text: str) -> Inspection | None:
        reference = reference_of(text)
        if reference is None:
            return None
        found = self._file.get(reference) if self._file is not None else None
        if found is None and reference.digest is not None:
            found = self._digests.get((reference.name, reference.digest))
        return found


class Images:
    """The answers of a run, and how to get those that are missing."""

    def __init__(
        self,
        options: ImageOptions,
        *,
        file: AnswerFile | None,
        indexes: bool,
        messages: Messages = USUAL,
    ) -> None:
        self.options = options
        self._messages = messages
        self._known = Known(file)
        self._indexes: dict[str, Inspection] = {}
        self._wants_indexes = indexes
        self._file = file
        self.answers = ImageInspections(self._known, self._indexes)

    def missing(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Those that name an image of which nothing is known yet; offline nothing is missing, for nobody is asked."""
        if self.options.offline:
            self._offline(texts)
            return ()
        return tuple(text for text in texts if text not in self._known and reference_of(text) is not None)

    def resolve(self, texts: Iterable[str]) -> None:
        """Ask for images that are missing, and for the indexes that the digests among ``texts`` are children of."""
        texts = tuple(dict.fromkeys(texts))
        lacking = {text: reference for text in texts if (reference := _wanted(self._known, text)) is not None}
        tags = wanted_indexes(texts) if self._wants_indexes else {}
        asked = {**lacking, **{tag: parse(tag) for tag in tags.values()}}
        if not asked:
            return
        found = self._ask(asked)
        self._known.add({text: found[text] for text in lacking})
        shown = {text: found[tag] for text, tag in tags.items() if found[tag].status is Status.RESOLVED}
        self._indexes.update(shown)
        self._known.remember(shown.values())
        self.answers = ImageInspections(self._known, self._indexes)

    def _offline(self, texts: Iterable[str]) -> None:
        for text in texts:
            reference = reference_of(text)
            if text not in self._known and reference is not None:
                self._known.add({text: _offline_miss(reference)})
        if self._wants_indexes and self._file is not None:
            for text, tag in wanted_indexes(texts).items():
                answer = self._file.get(parse(tag))
                if answer is not None and text not in self._indexes:
                    self._indexes[text] = answer

    def _ask(self, asked: Mapping[str, Reference]) -> dict[str, Inspection]:
        import asyncio  # it, too, is a tenth of a start

        from polyarch.oci.transport.addresses import InvalidSetting

        try:
            return asyncio.run(_inspected(asked, self._wiring(), self.options, self._messages))
        except InvalidSetting as error:
            raise UsageError(str(error)) from None

    def _wiring(self) -> "InspectorOptions":
        from polyarch.oci.inspector import InspectorOptions
        from polyarch.oci.settings import InspectorSettings

        access = self.options.access
        return InspectorOptions(
            settings=InspectorSettings(
                timeout=access.timeout,
                max_wait=access.max_wait,
                requests=max(MAX_REQUESTS, access.concurrency),
                requests_per_host=access.concurrency,
            ),
            configuration=access.configuration(),
            trust=access.trust(),
            cache_directory=None if self.options.no_cache else cache_directory(self.options.cache_dir),
            answers=self._file,
        )


def resolve_all(
    texts: Iterable[str],
    options: ImageOptions,
    *,
    file: AnswerFile | None,
    messages: Messages = USUAL,
) -> ImageInspections:
    """An answer for each text that names an image, and for the indexes that digests may belong to; first from
    ``file``.
    """
    options.check()
    images = Images(options, file=file, indexes=True, messages=messages)
    missing = images.missing(tuple(texts))
    if missing:
        images.resolve(missing)
    return images.answers


@lru_cache(maxsize=20_000)
def reference_of(text: str) -> Reference | None:
    """What a text names; None for one that names no image or has a variable in it."""
    if "$(" in text or "${" in text:
        return None
    try:
        return parse(text)
    except InvalidReference:
        return None


def _wanted(known: Known, text: str) -> Reference | None:
    return None if text in known else reference_of(text)


def _offline_miss(reference: Reference) -> Inspection:
    message = f"{reference.canonical}: --offline asks no registry, and no platforms file names it"
    return Inspection(reference, Status.ERROR, error=InspectionError.of("offline-miss", message))


def how(answer: Inspection) -> str:
    """Where an answer came from, for ``--verbose``: ``quay.io/acme/web:2: index of 2 platforms from quay.io, …``."""
    said = answer.error.message.removeprefix(f"{answer.reference.canonical}: ") if answer.error else answer.kind
    platforms = f" of {', '.join(map(str, answer.platforms))}" if answer.platforms else ""
    source = f" from {answer.source.host}" if answer.source is not None else ""
    requests = "cached" if answer.cached else f"{answer.requests} request{'' if answer.requests == 1 else 's'}"
    return f"{answer.reference.canonical}: {said}{platforms}{source} ({requests})"


async def _inspected(
    asked: Mapping[str, Reference], wiring: "InspectorOptions", options: ImageOptions, messages: Messages
) -> dict[str, Inspection]:
    from polyarch.oci.concurrency import map_concurrently
    from polyarch.oci.image.deep_inspection import look_deeper
    from polyarch.oci.inspector import open_inspector

    references = list({reference.canonical: reference for reference in asked.values()}.values())
    shown = messages.progress("inspecting images", len(references))
    async with open_inspector(wiring, credentials=options.access.credentials(), notice=shown.remark) as inspector:
        with shown:
            found = await inspector.inspect_many(references, fresh=options.fresh, on_answer=lambda _: shown.advance())
            depth = options.deep
            if depth is not None:
                found = await map_concurrently(
                    lambda answer: look_deeper(inspector.connection, answer, depth), found, at_once=SETTLED_AT_ONCE
                )
    for answer in found:
        messages.detail(how(answer))
    by_name = {reference.canonical: answer for reference, answer in zip(references, found, strict=True)}
    return {text: by_name[reference.canonical] for text, reference in asked.items()}
