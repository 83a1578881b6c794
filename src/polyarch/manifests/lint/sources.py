"""Build files and code beside the manifests: Dockerfiles (MA301), Makefiles and workflows (MA302), Go (MA303).

These are no YAML documents of Kubernetes, so they are read line by line, and what a repair changes is text: an edit,
not an operation on a tree. Nothing is executed or expanded; a value with a variable in it is nobody's fixed value.

Pure.
"""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from polyarch.manifests.catalogue import RULES
from polyarch.manifests.editing.splices import Edit
from polyarch.manifests.finding import NO_OBJECT, Finding, fingerprint
from polyarch.manifests.lint.engine import Problem, selected
from polyarch.manifests.lint.options import LintOptions
from polyarch.manifests.scan.sets import Answers
from polyarch.manifests.scan.text import SourceText
from polyarch.platforms import InvalidPlatform, Platform, is_architecture

_INSTRUCTION = re.compile(r"[ \t]*(?P<word>[A-Za-z]+)[ \t]+", re.ASCII)
_GOARCH = re.compile(r"\bGOARCH(?P<between>=|[ \t]+)(?P<quote>[\"']?)(?P<architecture>[A-Za-z0-9_]+)", re.ASCII)
_FROM = re.compile(r"[ \t]*FROM[ \t]+(?:--platform=(?P<platform>\S+)[ \t]+)?(?P<image>\S+)", re.ASCII | re.IGNORECASE)
_TARGETARCH = re.compile(r"[ \t]*ARG[ \t]+TARGETARCH\b", re.ASCII | re.IGNORECASE)
_BUILD = re.compile(r"--(?P<option>platform|arch)(?:=|[ \t]+)(?P<value>[^\s\\\"']+)", re.ASCII)
_TARGET = "${TARGETARCH}"


def is_source(path: str) -> bool:
    """Whether a file is one that these rules read."""
    return _is_dockerfile(path) or _is_build(path) or path.endswith(".go")


def _is_dockerfile(path: str) -> bool:
    name = posixpath.basename(path).lower()
    return (
        name in ("dockerfile", "containerfile")
        or name.startswith(("dockerfile.", "containerfile."))
        or (name.endswith((".dockerfile", ".containerfile")))
    )


def _is_build(path: str) -> bool:
    name = posixpath.basename(path)
    workflow = f"/{path}".find("/.github/workflows/") >= 0 and name.endswith((".yml", ".yaml"))
    return workflow or name in ("Makefile", "GNUmakefile", "makefile", ".gitlab-ci.yml") or name.endswith(".mk")


@dataclass(frozen=True)
class _Hit:
    rule: str
    start: int
    end: int
    message: str
    hint: str
    images: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()


def lint_source(source: SourceText, answers: Answers, options: LintOptions = LintOptions()) -> tuple[Problem, ...]:  # noqa: B008 - frozen
    """The findings of one build file or Go file, in order; repairs are edits of its text."""
    hits: list[_Hit] = []
    if _is_dockerfile(source.path):
        hits += _dockerfile(source, answers)
    elif _is_build(source.path):
        hits += _build(source, options.labelled)
    elif source.path.endswith(".go"):
        hits += _go(source)
    return tuple(_problem(source, hit, options) for hit in hits if selected(options, hit.rule))


def base_images(source: SourceText) -> tuple[str, ...]:
    """Images by digest that a Dockerfile starts from: which index shows them has to be known for MA301."""
    if not _is_dockerfile(source.path):
        return ()
    return tuple(
        match["image"] for _, match in _stages(source.text) if "@" in match["image"] and "$" not in match["image"]
    )


def _stages(text: str) -> Iterator[tuple[int, re.Match[str]]]:
    for start, line in _lines(text):
        match = _FROM.match(line)
        if match:
            yield start, match


def _lines(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for line in text.splitlines(keepends=True):
        yield start, line
        start += len(line)


def _dockerfile(source: SourceText, answers: Answers) -> Iterator[_Hit]:
    stage_end, has_argument = 0, False
    for start, line in _lines(source.text):
        if line.lstrip().startswith("#"):
            continue
        stage = _FROM.match(line)
        if stage:
            stage_end, has_argument = start + len(line), False
            yield from _stage(source, start, stage, answers)
            continue
        has_argument = has_argument or bool(_TARGETARCH.match(line))
        word = _INSTRUCTION.match(line)
        for match in _GOARCH.finditer(line):
            if match["between"] != "=" and (word is None or word["word"].upper() != "ENV"):
                continue
            if is_architecture(match["architecture"]):
                at = start + match.start("architecture")
                end = start + match.end("architecture")
                edits = [Edit(at, end, _TARGET)]
                if not has_argument and stage_end:
                    edits.insert(0, Edit(stage_end, stage_end, f"ARG TARGETARCH{source.newline}"))
                    has_argument = True
                yield _Hit(
                    "MA301",
                    start + match.start(),
                    end,
                    f"{source.path} builds for GOARCH {match['architecture']}, whatever platform is asked for",
                    f"use {_TARGET} with ARG TARGETARCH in the stage",
                    edits=tuple(edits) if match["quote"] != "'" else (),
                )


def _stage(source: SourceText, start: int, stage: re.Match[str], answers: Answers) -> Iterator[_Hit]:
    platform, image = stage["platform"], stage["image"]
    if platform and "$" not in platform:
        at, end = start + stage.start("platform"), start + stage.end("platform")
        system = platform.partition("/")[0] if "/" in platform else "linux"
        yield _Hit(
            "MA301",
            at,
            end,
            f"{source.path} starts a stage from {image} for {platform} only",
            f"use --platform={system}/{_TARGET}, or $BUILDPLATFORM for a stage that only compiles",
            images=(image,),
            edits=(Edit(at, end, f"{system}/{_TARGET}"),),
        )
    index = answers.indexes.get(image)
    digest = image.rpartition("@")[2]
    if index is not None and index.digest and index.digest != digest:
        child = next((entry for entry in index.entries if entry.digest == digest), None)
        if child is not None:
            at = start + stage.start("image") + len(image) - len(digest)
            yield _Hit(
                "MA301",
                start + stage.start("image"),
                start + stage.end("image"),
                f"{source.path} starts from the {child.platform} manifest of {image.rpartition('@')[0]}",
                f"pin the index {index.digest}",
                images=(image,),
                edits=(Edit(at, at + len(digest), index.digest),),
            )


def _build(source: SourceText, labelled: tuple[str, ...]) -> Iterator[_Hit]:
    found = []
    for start, line in _lines(source.text):
        if not line.lstrip().startswith("#"):
            found += [(start, match) for match in _BUILD.finditer(line)]
    if any("$" in match["value"] for _, match in found):  # which platforms is decided elsewhere
        return
    built = {architecture for _, match in found for architecture in _architectures(match["value"])}
    missing = sorted(set(labelled) - built)
    for start, match in found if built and missing else ():
        if len(_architectures(match["value"])) == 1:
            yield _Hit(
                "MA302",
                start + match.start(),
                start + match.end(),
                f"{source.path} builds with {match[0].strip()}, but the ClusterServiceVersion labels "
                f"{', '.join(missing)}, too",
                "build for every labelled architecture",
            )


def _architectures(value: str) -> tuple[str, ...]:
    """The architectures of an option's value; nothing if it is about something else."""
    try:
        return tuple(Platform.parse(each).architecture for each in value.split(","))
    except InvalidPlatform:
        return ()


def _go(source: SourceText) -> Iterator[_Hit]:
    if source.path.endswith("_test.go") or "NodeAffinity" in source.text:
        return
    at = source.text.find("PodSpec{")
    if at >= 0:
        yield _Hit(
            "MA303",
            at,
            at + len("PodSpec{"),
            f"{source.path} constructs a PodSpec without node affinity, so its pods may land where images do not run",
            "require the architectures that the images support, as in the operator's own deployment",
        )


def _problem(source: SourceText, hit: _Hit, options: LintOptions) -> Problem:
    rule = RULES[hit.rule]
    span = source.span(hit.start, hit.end)
    finding = Finding(
        rule=hit.rule,
        severity=options.severity(hit.rule, rule.severity),
        message=hit.message,
        hint=hit.hint,
        file=source.path,
        span=span,
        images=hit.images,
        fixable=bool(hit.edits),
        fingerprint=_mark(source, hit),
        upstream=rule.upstream,
    )
    return Problem(finding, edits=hit.edits)


def _mark(source: SourceText, hit: _Hit) -> str:
    """The line stands in for a pointer: it stays the same while other lines move."""
    line = source.text[source.line_start(hit.start) : source.line_end(hit.start)].strip()
    return fingerprint(
        hit.rule, "", subject=NO_OBJECT, file=source.path, document=0, named_path=line, images=hit.images
    )
