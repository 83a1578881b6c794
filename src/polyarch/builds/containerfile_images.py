"""The images that a Containerfile names from outside, for one architecture.

``FROM``, ``COPY --from=`` and ``RUN --mount=…from=`` that are not an earlier stage, a stage's number, or ``scratch``.
What cannot be expanded is a Warning and stays unpinned; what is no reference at all would fail in every builder."""

from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Literal

import msgspec

from polyarch.builds.containerfile import (
    MAX_ERRORS,
    Containerfile,
    ContainerfileError,
    Instruction,
    Stage,
    expanded,
    name_value_pairs,
    shown,
    split_words,
)
from polyarch.builds.facts.build_facts import Problem
from polyarch.oci import reference
from polyarch.platforms import InvalidPlatform, Platform

SCRATCH = "scratch"
_LONGEST = 512
_LOCAL = ("oci", "oci-archive", "docker-archive", "docker-daemon", "dir", "containers-storage", "ostree")
_INVALID = "ContainerfileInvalid"
_BUILD = frozenset({"BUILDPLATFORM", "BUILDOS", "BUILDARCH", "BUILDVARIANT"})

Values = Mapping[str, str | None]


class ExternalImage(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An image from outside."""

    canonical: str
    written: str
    """After expansion: how the builder knows it."""
    unexpanded: str = ""
    """Of a FROM: as the text has it, by which some versions of buildah know it."""
    line: int
    for_build: bool = False
    """It is pulled for the architecture where the build runs."""


class ExternalImages(msgspec.Struct, frozen=True, kw_only=True):
    """All images from outside, in the text's order, and what is wrong with them."""

    references: tuple[ExternalImage, ...]
    problems: tuple[Problem, ...]


def external_images(containerfile: Containerfile, *, architecture: str, args: Mapping[str, str]) -> ExternalImages:
    """The external references of a Containerfile that is built for ``architecture`` on nodes of ``architecture``."""
    return _Finder(containerfile, architecture, args).find()


def target_problem(containerfile: Containerfile, target: str) -> ContainerfileError | None:
    """The fault of a ``source.target`` that is no stage of the text."""
    names = [*containerfile.inside, *(stage.name for stage in containerfile.stages if stage.name)]
    if not target or target.lower() in names or (target.isdecimal() and int(target) < len(containerfile.stages)):
        return None
    shown_names = ", ".join(names[:16]) if names else "none has a name"
    return ContainerfileError(
        text_name=containerfile.text_name,
        line=containerfile.stages[-1].line if containerfile.stages else 1,
        problem=f"there is no stage {shown(target)}, which source.target asks for",
        expected=f"a stage of the text ({shown_names})",
    )


def automatic_arguments(architecture: str) -> dict[str, str]:
    """The platform arguments that every builder sets, with the architecture as target and as build platform."""
    platform = Platform.of("linux", architecture)
    values = {"PLATFORM": str(platform), "OS": "linux", "ARCH": platform.architecture, "VARIANT": platform.variant}
    return {f"{side}{name}": value for side in ("TARGET", "BUILD") for name, value in values.items()}


class _Finder:
    def __init__(self, containerfile: Containerfile, architecture: str, args: Mapping[str, str]) -> None:
        self._containerfile = containerfile
        self._architecture = architecture
        self._args = args
        self._automatic = automatic_arguments(architecture)
        self._global: dict[str, str | None] = {**args, **self._automatic}
        self._errors: list[Problem] = []
        self._warnings: list[Problem] = []
        self._references: list[ExternalImage] = []
        self._stages = set(containerfile.inside)

    def find(self) -> ExternalImages:
        for instruction in self._containerfile.header:
            self._declare(instruction, self._global)
        for stage in self._containerfile.stages:
            if stage.image:
                self._base(stage)
            declared: ChainMap[str, str | None] = ChainMap({}, self._global)
            values = declared.new_child()  # what ENV sets hides what ARG says
            for instruction in stage.instructions:
                if instruction.name == "ARG":
                    self._declare(instruction, declared)
                elif instruction.name == "ENV":
                    self._set(instruction, values)
                for text in _sources(instruction):
                    self._add(text, values, instruction.line, instruction.name)
            if stage.name:
                self._stages.add(stage.name)
        return ExternalImages(references=tuple(self._references), problems=(*self._errors, *self._warnings))

    def _declare(self, instruction: Instruction, values: MutableMapping[str, str | None]) -> None:
        for word in split_words(instruction.arguments, self._containerfile.escape):
            name, equals, default = word.partition("=")
            if equals and name not in self._args and name not in self._automatic:
                values[name] = expanded(default, values, self._containerfile.escape).text

    def _set(self, instruction: Instruction, values: MutableMapping[str, str | None]) -> None:
        escape = self._containerfile.escape
        pairs = name_value_pairs(instruction.arguments, escape) or ()
        values.update([(name, expanded(value, values, escape).text) for name, value in pairs])

    def _base(self, stage: Stage) -> None:
        for_build = False
        if stage.platform:
            expansion = expanded(stage.platform, self._global, self._containerfile.escape)
            for_build = bool(expansion.used & _BUILD)
            if expansion.text is not None and not self._fits(expansion.text):
                self._problem(
                    "BaseImagePlatformFixed",
                    stage.line,
                    f"FROM has --platform={shown(expansion.text)}, but every base of an image for {self._architecture} "
                    f"is pulled for linux/{self._architecture}; leave the flag out, or write --platform=$BUILDPLATFORM",
                    warning=True,
                )
        self._add(stage.image, self._global, stage.line, "FROM", for_build=for_build)

    def _fits(self, platform: str) -> bool:
        try:
            return Platform.parse(platform).node == Platform.of("linux", self._architecture).node
        except InvalidPlatform:
            return False

    def _add(self, word: str, values: Values, line: int, where: str, *, for_build: bool = False) -> None:
        expansion = expanded(word, values, self._containerfile.escape)
        text = expansion.text
        if text is None:
            self._problem(
                "BaseImageUnresolved",
                line,
                f"{where} names the image {shown(word)}, in which {shown(expansion.unknown)} has no value; it is not "
                "pinned: give it a value in source.buildArgs or by ARG before the first FROM",
                warning=True,
            )
            return
        if text == SCRATCH or text.lower() in self._stages or (where != "FROM" and text.isdecimal()):
            return
        canonical, problem = _canonical(text)
        if problem:
            self._problem(_INVALID, line, f"{where} names the image {shown(text)}: {problem}")
            return
        unexpanded = word if where == "FROM" else text
        found = ExternalImage(canonical=canonical, written=text, unexpanded=unexpanded, line=line, for_build=for_build)
        self._references.append(found)

    def _problem(self, reason: str, line: int, sentence: str, *, warning: bool = False) -> None:
        said = self._warnings if warning else self._errors
        if len(said) < MAX_ERRORS:
            message = f"Containerfile ({self._containerfile.text_name}), line {line}: {sentence}"
            severity: Literal["Error", "Warning"] = "Warning" if warning else "Error"
            said.append(Problem(reason=reason, message=message, architecture=self._architecture, severity=severity))


def _sources(instruction: Instruction) -> Iterator[str]:
    for name, value in instruction.flags:
        if name == "from" and instruction.name in ("COPY", "ADD"):
            yield value
        elif name == "mount" and instruction.name == "RUN":
            for part in value.strip("\"'").split(","):
                key, equals, source = part.partition("=")
                if equals and key.strip().lower() == "from" and source:
                    yield source


def _canonical(text: str) -> tuple[str, str]:
    """The canonical reference, or what is wrong with the text."""
    if len(text) > _LONGEST:
        return "", f"it has {len(text)} characters; a reference has at most {_LONGEST}"
    transport = text.partition(":")[0]
    if transport in _LOCAL and ":" in text and not text.startswith("docker:"):
        return "", f"images come from registries; {transport}: names a place on the machine that builds"
    try:
        return reference.parse(text).canonical, ""
    except reference.InvalidReference as error:
        return "", f"{error.problem}; {error.hint}" if error.hint else error.problem
