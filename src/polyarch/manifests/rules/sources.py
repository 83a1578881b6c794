"""The rules for build files and code beside the manifests, read line by line.

Pure.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from polyarch.kube.patches import pointer
from polyarch.manifests.finding import Rule, Severity
from polyarch.manifests.operations import Add, Replace
from polyarch.manifests.proof import prove
from polyarch.manifests.rules.facts import RuleCheck
from polyarch.manifests.rules.options import LintOptions
from polyarch.manifests.rules.source_files import SourceFinding, is_build, is_go, lines
from polyarch.manifests.scan.dockerfiles import Dockerfile, Instruction, is_dockerfile, read_dockerfile
from polyarch.manifests.scan.sets import ImageInspections
from polyarch.manifests.scan.text import SourceText, TextEdit, splice
from polyarch.platforms import InvalidPlatform, Platform, is_architecture

# -- MA301: a Dockerfile is tied to one platform -----------------------------------------------------------------------
# A Dockerfile is a program, so its fix is written only where the outcome is certain: every other mention of the
# architecture, another architecture beside it, or a form that this module does not read is a reason to leave it to its
# author. Each change is proven by reading the new text.


MA301 = Rule(
    id="MA301",
    severity=Severity.WARNING,
    title="A Dockerfile is tied to one platform",
    meaning="It sets GOARCH to a fixed value, fixes the platform of a stage, or starts from the digest of a single "
    "platform.",
    fix="Replaces the fixed value with ${TARGETARCH}, declared in the stage, or the digest with that of the index; "
    "refused where the outcome is not certain.",
    default=False,
)

_GOARCH = re.compile(r"\bGOARCH(?P<between>=|[ \t]+)(?P<quote>[\"']?)(?P<architecture>[A-Za-z0-9_]+)", re.ASCII)
_TARGET = "${TARGETARCH}"
_TARGETARCH = re.compile(r"(?<![\w${])TARGETARCH\b", re.ASCII)
"""The name where it is given a value or declared, not where it is used."""
_DECLARED = re.compile(r"(?i:ARG)(?:[ \t]+\w+(?:=[^\s\"'\\]*)?)*?[ \t]+TARGETARCH(?:[ \t].*)?", re.ASCII)
_DECLARATION = "ARG TARGETARCH"
_ANY_ARCHITECTURE = re.compile(
    r"(?<![A-Za-z0-9])(?:amd64|x86[_-]64|x64|arm64|aarch64|armv[678]l?|ppc64le|s390x|riscv64|386|i386|i686)(?![A-Za-z0-9])",
    re.ASCII | re.IGNORECASE,
)

_PAIR = r"[\w.]+=(?:[^\s\"'\\]*|\"[^\"\\]*\")"
_PAIRS = re.compile(rf"(?:ENV|ARG)[ \t]+(?:{_PAIR}[ \t]+)*", re.ASCII | re.IGNORECASE)
_MORE_PAIRS = re.compile(rf"(?:[ \t]+{_PAIR})*[ \t]*", re.ASCII)
_ONE_VALUE = re.compile(r"ENV[ \t]+", re.ASCII | re.IGNORECASE)
_RUN = re.compile(r"RUN[ \t]+(?:--\S+[ \t]+)*", re.ASCII | re.IGNORECASE)
_QUOTED = r"\"(?:[^\"`\\$\n]|\$\w+|\$\{\w+\})*\"|'[^'\n]*'"
_PLAIN = re.compile(rf"(?:[^\"'`\\$#()<>\n]|\$[\w{{]|{_QUOTED})*", re.ASCII)
"""Shell commands without substitutions, groups, redirections and comments."""
_ASSIGNMENT = re.compile(
    rf"[ \t]*(?:(?:export|env)[ \t]+)?(?:[A-Za-z_]\w*=(?:[^\"'\s]|{_QUOTED})*[ \t]+)*"
    r"(?:g?make[ \t]+(?:[^\s\"']+[ \t]+)*)?",
    re.ASCII,
)
"""What may stand before a variable of a command."""


def check_dockerfile(source: SourceText, answers: ImageInspections, options: LintOptions) -> Iterator[SourceFinding]:
    if not is_dockerfile(source.path):
        return
    file = read_dockerfile(source.text)
    found = [hit for number, each in enumerate(file.instructions) for hit in _hits(source, number, each, answers)]
    fixed = [(instruction, hit) for instruction, hit in found if _TARGET in hit.edits[0].replacement]
    doubt = file.doubt or next(filter(None, (_split(source, hit.edits[0]) for _, hit in found)), "")
    # Some values replaced and others not would be worse than all as they are.
    reason = doubt or next(filter(None, (_not_certain(source, file, *each, fixed, answers) for each in fixed)), "")
    for instruction, hit in found:
        yield _editable(source, file, instruction, hit, reason if _TARGET in hit.edits[0].replacement else doubt)


def _hits(
    source: SourceText, number: int, instruction: Instruction, answers: ImageInspections
) -> Iterator[tuple[Instruction, SourceFinding]]:
    """The findings of an instruction, each with the edit of its value."""
    if instruction.name == "FROM":
        yield from ((instruction, hit) for hit in _stage(source, number, instruction, answers))
        return
    for match in _GOARCH.finditer(instruction.text):
        if match["between"] != "=" and instruction.name != "ENV":
            continue
        if is_architecture(match["architecture"]):
            at, end = instruction.at(match.start("architecture")), instruction.at(match.end("architecture") - 1) + 1
            yield (
                instruction,
                SourceFinding(
                    MA301,
                    instruction.at(match.start()),
                    end,
                    f"{source.path} builds for GOARCH {match['architecture']}, whatever the requested platform",
                    f"use {_TARGET} with ARG TARGETARCH in the stage",
                    edits=(TextEdit(at, end, _TARGET),),
                    operations=_with_value(number, instruction, match.span("architecture"), _TARGET),
                ),
            )


def _with_value(number: int, instruction: Instruction, span: tuple[int, int], new: str) -> tuple[Replace]:
    """The instruction with this number, with another text in place of a part of it."""
    return (Replace(pointer(number), instruction.text[: span[0]] + new + instruction.text[span[1] :]),)


def _stage(
    source: SourceText, number: int, instruction: Instruction, answers: ImageInspections
) -> Iterator[SourceFinding]:
    stage = instruction.stage
    if stage is None:
        return
    platform, image = stage["platform"], stage["image"]
    if platform and "$" not in platform:
        at, end = instruction.at(stage.start("platform")), instruction.at(stage.end("platform") - 1) + 1
        system = platform.partition("/")[0] if "/" in platform else "linux"
        yield SourceFinding(
            MA301,
            at,
            end,
            f"{source.path} builds a stage from {image} for {platform} only",
            f"use --platform={system}/{_TARGET}, or $BUILDPLATFORM for a stage that only compiles",
            images=(image,),
            edits=(TextEdit(at, end, f"{system}/{_TARGET}"),),
            operations=_with_value(number, instruction, stage.span("platform"), f"{system}/{_TARGET}"),
        )
    index = answers.indexes.get(image)
    digest = image.rpartition("@")[2]
    if index is not None and index.digest and index.digest != digest:
        child = next((entry for entry in index.entries if entry.digest == digest), None)
        if child is not None:
            at, end = instruction.at(stage.start("image")), instruction.at(stage.end("image") - 1) + 1
            yield SourceFinding(
                MA301,
                at,
                end,
                f"{source.path} starts from the {child.platform} manifest of {image.rpartition('@')[0]}",
                f"pin the index {index.digest}",
                images=(image,),
                edits=(TextEdit(end - len(digest), end, index.digest),),
                operations=_with_value(
                    number, instruction, (stage.end("image") - len(digest), stage.end("image")), index.digest
                ),
            )


def base_images(source: SourceText) -> tuple[str, ...]:
    """Base images by digest, whose index MA301 needs."""
    if not is_dockerfile(source.path):
        return ()
    images = (each.stage["image"] for each in read_dockerfile(source.text).instructions if each.stage)
    return tuple(image for image in images if "@" in image and "$" not in image)


# Whether a change is certain -----------------------------------------------------------------------------------------


def _editable(
    source: SourceText, file: Dockerfile, instruction: Instruction, hit: SourceFinding, reason: str
) -> SourceFinding:
    """The finding with all edits that it needs, or with the reason why there are none."""
    edits, operations = hit.edits, hit.operations
    if not reason and instruction.name != "FROM":
        stage = file.stage_of(instruction)
        if not any(_DECLARED.fullmatch(each.text) for each in stage):
            at = stage[0].end
            edits = (TextEdit(at, at, f"{_DECLARATION}{source.newline}"), *edits)
            operations = (*operations, Add(pointer(file.instructions.index(stage[0]) + 1), _DECLARATION))
    if not reason:
        problem = prove(source, splice(source.text, edits), {0: operations})
        reason = f"the changed file would read otherwise than intended: {problem}" if problem else ""
    if reason:
        return replace(hit, edits=(), operations=(), note=reason)
    return replace(hit, edits=edits, operations=operations)


def _split(source: SourceText, edit: TextEdit) -> str:
    return "its value goes over two lines" if "\n" in source.text[edit.start : edit.end] else ""


def _not_certain(
    source: SourceText,
    file: Dockerfile,
    instruction: Instruction,
    hit: SourceFinding,
    every: Sequence[tuple[Instruction, SourceFinding]],
    answers: ImageInspections,
) -> str:
    """Why a fixed architecture is not simply replaced with that of the target; empty if it is."""
    hits = [other for _, other in every]
    architectures = {_architecture(source, other) for other in hits}
    unclear = next((other for other in hits if not _architecture(source, other)), None)
    if unclear is not None:
        return f"{source.text[unclear.start : unclear.end]} is not simply an architecture"
    if len(architectures) > 1:
        return f"the file is written for several architectures: {', '.join(sorted(architectures))}"
    mention = _mention(source, file, hits)
    if mention:
        return mention
    shell = next((each for each in file.instructions if each.name == "SHELL"), None)
    if shell is not None:
        return f"line {_line(source, shell)} sets another shell"
    return (
        _stage_not_certain(source, file, instruction, answers)
        if instruction.name == "FROM"
        else _value_not_certain(source, file, instruction, hit)
    )


def _architecture(source: SourceText, hit: SourceFinding) -> str:
    """The architecture that an edit replaces; empty for a digest and for a platform with a variant."""
    edit = hit.edits[0]
    parts = source.text[edit.start : edit.end].split("/")
    name = parts[-1] if len(parts) < 3 else ""
    return name if _TARGET in edit.replacement and is_architecture(name) else ""


def _mention(source: SourceText, file: Dockerfile, hits: Sequence[SourceFinding]) -> str:
    """Where instructions name an architecture besides the findings: in a file name, a compiler, another stage."""
    known = {hit.edits[0].start + len(_prefix(source, hit)) for hit in hits}
    for each in file.instructions:
        for match in _ANY_ARCHITECTURE.finditer(each.text):
            if each.at(match.start()) not in known:
                return f"line {source.place(each.at(match.start()))[0]} names {match[0]}, too"
    return ""


def _prefix(source: SourceText, hit: SourceFinding) -> str:
    """The operating system of a platform, with its slash."""
    edit = hit.edits[0]
    system, slash, _ = source.text[edit.start : edit.end].rpartition("/")
    return system + slash


def _stage_not_certain(
    source: SourceText, file: Dockerfile, instruction: Instruction, answers: ImageInspections
) -> str:
    stage = instruction.stage
    image = stage["image"] if stage else ""
    if sum(each.name == "FROM" for each in file.instructions) > 1:
        return "the file has several stages, and this one may be meant for its platform"
    if image == "scratch":
        return f"{image} is no image, which has platforms"
    if "@" in image:
        index = answers.indexes.get(image)
        digests = {index.digest, *(entry.digest for entry in index.entries)} if index is not None else set()
        if image.rpartition("@")[2] not in digests:
            return f"the platforms of {image} are unknown"
    return _told_before(source, file)


def _value_not_certain(source: SourceText, file: Dockerfile, instruction: Instruction, hit: SourceFinding) -> str:
    text = instruction.text
    match = next(each for each in _GOARCH.finditer(text) if instruction.at(each.start()) == hit.start)
    before, behind = text[: match.start()], text[match.end() :]
    if match["quote"]:
        behind = behind[1:] if match["quote"] == '"' and behind[:1] == '"' else "\0"
    if instruction.name in ("ENV", "ARG") and match["between"] == "=":
        simple = bool(_PAIRS.fullmatch(before) and _MORE_PAIRS.fullmatch(behind))
    elif instruction.name == "ENV":
        simple = bool(_ONE_VALUE.fullmatch(before)) and not behind.strip()
    else:
        simple = _is_assignment(before) and behind[:1] in ("", " ", "\t", ";", "&")
    if not simple:
        return f"GOARCH at line {source.place(hit.start)[0]} is not set in a way that polyarch edits"
    stage = file.stage_of(instruction)
    if not stage:
        return "it is set before the first FROM, in no stage"
    rest = file.instructions[file.instructions.index(instruction) :]
    end = next((place for place, each in enumerate(rest) if each.name == "FROM"), len(rest))
    for each in (*stage, *rest[:end]):
        declared = _DECLARED.fullmatch(each.text)
        if each.name in ("ARG", "ENV") and _TARGETARCH.search(each.text) and (not declared or each not in stage):
            return f"line {_line(source, each)} says something else of TARGETARCH"
    return _told_before(source, file)


def _is_assignment(before: str) -> bool:
    """Whether a RUN up to some place sets a variable of a simple command there."""
    flags = _RUN.match(before)
    commands = before[flags.end() :] if flags else ""
    last = re.split(r"[&|;]", commands)[-1]
    return flags is not None and bool(_PLAIN.fullmatch(commands)) and bool(_ASSIGNMENT.fullmatch(last))


def _told_before(source: SourceText, file: Dockerfile) -> str:
    for each in file.instructions:
        if each.name == "FROM":
            break
        if _TARGETARCH.search(each.text):
            return f"line {_line(source, each)} says something else of TARGETARCH"
    return ""


def _line(source: SourceText, instruction: Instruction) -> int:
    return source.place(instruction.start)[0]


# -- MA302: a Makefile or workflow builds fewer platforms than the bundle promises -------------------------------------


MA302 = Rule(
    id="MA302",
    severity=Severity.INFO,
    title="A build covers fewer platforms than the bundle promises",
    meaning="A Makefile or workflow builds for one platform, but a ClusterServiceVersion in the same tree labels more.",
    default=False,
)

_BUILD = re.compile(r"--(?P<option>platform|arch)(?:=|[ \t]+)(?P<value>[^\s\\\"']+)", re.ASCII)


def check_build(source: SourceText, answers: ImageInspections, options: LintOptions) -> Iterator[SourceFinding]:
    if not is_build(source.path):
        return
    found = []
    for start, line in lines(source.text):
        if not line.lstrip().startswith("#"):
            found += [(start, match) for match in _BUILD.finditer(line)]
    if any("$" in match["value"] for _, match in found):  # the platforms are chosen elsewhere
        return
    built = {architecture for _, match in found for architecture in _architectures_built(match["value"])}
    missing = sorted(set(options.labelled) - built)
    for start, match in found if built and missing else ():
        if len(_architectures_built(match["value"])) == 1:
            yield SourceFinding(
                MA302,
                start + match.start(),
                start + match.end(),
                f"{source.path} builds with {match[0].strip()}, but the ClusterServiceVersion also labels "
                f"{', '.join(missing)}",
                "build for every labelled architecture",
            )


def _architectures_built(value: str) -> tuple[str, ...]:
    """The architectures in an option's value; none if it is not a list of platforms."""
    try:
        return tuple(Platform.parse(each).architecture for each in value.split(","))
    except InvalidPlatform:
        return ()


# -- MA303: Go code creates pods without node affinity -----------------------------------------------------------------


MA303 = Rule(
    id="MA303",
    severity=Severity.INFO,
    title="Go code creates pods without node affinity",
    meaning="A Go file constructs a PodSpec but no NodeAffinity, so the pods that it creates can land anywhere.",
    default=False,
)


_GO = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|`[^`]*`|'(?:\\.|[^'\\\n])'|(?P<pod>\bPodSpec\{)""", re.DOTALL
)
"""Comments and texts, which say nothing, and the beginning of a composite literal."""


def check_go(source: SourceText, answers: ImageInspections, options: LintOptions) -> Iterator[SourceFinding]:
    if not is_go(source.path) or source.path.endswith("_test.go") or "NodeAffinity" in source.text:
        return
    made = next((match for match in _GO.finditer(source.text) if match["pod"]), None)
    if made is not None:
        yield SourceFinding(
            MA303,
            made.start(),
            made.end(),
            f"{source.path} constructs a PodSpec without node affinity, so its pods can land "
            "where their images do not run",
            "require the architectures that the images support, as in the operator's own deployment",
        )


# -- the rules of this module ------------------------------------------------------------------------------------------


SOURCE_RULES = (
    RuleCheck(MA301, check_dockerfile),
    RuleCheck(MA302, check_build),
    RuleCheck(MA303, check_go),
)
RULES = tuple(each.rule for each in SOURCE_RULES)
