"""MA301: a Dockerfile is tied to one platform.

Pure.
"""

import re
from collections.abc import Iterator

from polyarch.manifests.editing.splices import Edit
from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.options import LintOptions
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.lint.sources.source_kinds import Hit, is_dockerfile, lines
from polyarch.manifests.scan.sets import Answers
from polyarch.manifests.scan.text import SourceText
from polyarch.platforms import is_architecture

RULE = Rule(
    id="MA301",
    severity=Severity.WARNING,
    title="A Dockerfile is tied to one platform",
    meaning="It sets GOARCH to a fixed value, fixes the platform of a stage, or starts from the digest of a single "
    "platform.",
    fix="Replaces the fixed value with ${TARGETARCH}, declared in the stage, or the digest with that of the index.",
    default=False,
)

_INSTRUCTION = re.compile(r"[ \t]*(?P<word>[A-Za-z]+)[ \t]+", re.ASCII)

_GOARCH = re.compile(r"\bGOARCH(?P<between>=|[ \t]+)(?P<quote>[\"']?)(?P<architecture>[A-Za-z0-9_]+)", re.ASCII)

_FROM = re.compile(r"[ \t]*FROM[ \t]+(?:--platform=(?P<platform>\S+)[ \t]+)?(?P<image>\S+)", re.ASCII | re.IGNORECASE)

_TARGETARCH = re.compile(r"[ \t]*ARG[ \t]+TARGETARCH\b", re.ASCII | re.IGNORECASE)

_TARGET = "${TARGETARCH}"


def check(source: SourceText, answers: Answers, options: LintOptions) -> Iterator[Hit]:
    if not is_dockerfile(source.path):
        return
    stage_end, has_argument = 0, False
    for start, line in lines(source.text):
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
                yield Hit(
                    RULE,
                    start + match.start(),
                    end,
                    f"{source.path} builds for GOARCH {match['architecture']}, whatever the requested platform",
                    f"use {_TARGET} with ARG TARGETARCH in the stage",
                    edits=tuple(edits) if match["quote"] != "'" else (),
                )


def _stage(source: SourceText, start: int, stage: re.Match[str], answers: Answers) -> Iterator[Hit]:
    platform, image = stage["platform"], stage["image"]
    if platform and "$" not in platform:
        at, end = start + stage.start("platform"), start + stage.end("platform")
        system = platform.partition("/")[0] if "/" in platform else "linux"
        yield Hit(
            RULE,
            at,
            end,
            f"{source.path} builds a stage from {image} for {platform} only",
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
            yield Hit(
                RULE,
                start + stage.start("image"),
                start + stage.end("image"),
                f"{source.path} starts from the {child.platform} manifest of {image.rpartition('@')[0]}",
                f"pin the index {index.digest}",
                images=(image,),
                edits=(Edit(at, at + len(digest), index.digest),),
            )


def base_images(source: SourceText) -> tuple[str, ...]:
    """Base images by digest, whose index MA301 needs."""
    if not is_dockerfile(source.path):
        return ()
    stages = (_FROM.match(line) for _, line in lines(source.text))
    images = (stage["image"] for stage in stages if stage)
    return tuple(image for image in images if "@" in image and "$" not in image)
