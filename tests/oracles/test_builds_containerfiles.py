"""Containerfiles against the packages that builders read them with, linked into a Go program (``tools/peers``):
BuildKit's frontend, asked which images it would pull for which platform, and imagebuilder, buildah's parser."""

import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from polyarch.builds.containerfile import (
    ExternalImages,
    expanded,
    external_images,
    normalised_text,
    parse_containerfile,
    read_statements,
    target_problem,
)

pytestmark = pytest.mark.req("BD-056", "BD-057", "BD-058", "BD-063")

CASES = int(os.environ.get("POLYARCH_TEST_CONTAINERFILES", "1500"))
"""Texts for each seed."""
SEEDS = range(int(os.environ.get("POLYARCH_TEST_SEEDS", "2")))
STAGES = ("one", "two", "three", "platform-amd64", "platform-arm64")
IMAGES = ("alpine:3", "busybox", "quay.io/team/data:1", "registry.example:5000/a/b@sha256:" + "a" * 64, "scratch")
VARIABLES = ("V", "W", "TARGETARCH", "BUILDARCH", "TARGETPLATFORM", "BUILDPLATFORM", "TARGETVARIANT", "UNSET")
FORMS = ("$%s", "${%s}", "${%s:-x}", "${%s:+x}", "${%s#a*}", "${%s##*-}", "${%s%%.*}", "${%s/a/b}")
ODD_FORMS = (
    "${%s-x}",
    "${%s+x}",
    "${%s:?no}",
    "${%s:=x}",
    "${%s",
    "${%s:-${V}}",
    "${%s:-'x y'}",
    "$%s$%s",
    "\\$%s",
    "'$%s'",
    "${%s//a/}",
)
DOCUMENTS = ("<<EOF", "<< EOF", "<<-EOF", "<<'EOF'", '<<"EOF"', "<<-  EOF", "3<<EOF", "<<EOF >/x", "<<EOF>/x", "<<<EOF")
SHELL = (
    "echo $((1 << 2))", "cat <<< word", "echo 'it is <<EOF'", "echo it's <<EOF", 'echo "<<EOF"', "a \\<<EOF", "x<<EOF",
    "make -j4 | tee <log", "true",
)  # fmt: skip


HEADS = ("V", "V=3", "W=a-b.c", "W=${V}.1", "W=${V:-2}", "V=1 W=2", "TARGETARCH", "U=$UNSET")
ONLY_HERE = ("which does not come before this one", "# escape comes after", " is asked for as ")
"""What is refused here though both parsers take it: BuildKit builds later stages first and buildah looks for an image
of that name; buildah reads no ``# escape`` after another directive, and its parser does not say so; buildah is told
which image a name means, so one name cannot mean those of two platforms."""
UNKNOWN_FORMS = ("in substitution", "Unsupported modifier", "attempted to redefine")
"""Of imagebuilder's errors: forms of variables that only BuildKit knows, and platform arguments with a default."""


def _variable(chance: random.Random) -> str:
    form = chance.choice(ODD_FORMS if chance.random() < 0.15 else FORMS)
    return form % tuple(chance.choice(VARIABLES) for _ in range(form.count("%s")))


def _image(chance: random.Random) -> str:
    match chance.randrange(16):
        case 0 | 1 | 2:
            return f"alpine:3{_variable(chance)}"
        case 3:
            return chance.choice((_variable(chance), f"alpine:{_variable(chance)}"))
        case 4 | 5 | 6:
            return chance.choice(STAGES)
        case 7 | 8:
            return "platform-$TARGETARCH"
        case _:
            return chance.choice(IMAGES)


def _from(chance: random.Random) -> str:
    platform = ""
    if chance.random() < 0.3:
        platforms = ("linux/amd64", "linux/amd64", "linux/arm64", "arm64", "$BUILDPLATFORM", "linux/$TARGETARCH")
        odd = ("linux/arm/v6", "$TARGETPLATFORM", "$UNSET", "linux/a/b/c")
        platform = f"--platform={chance.choice(odd if chance.random() < 0.15 else platforms)} "
    name = f" {chance.choice(('AS', 'as'))} {chance.choice(STAGES)}" if chance.random() < 0.6 else ""
    return f"{chance.choice(('FROM', 'FROM', 'from'))} {platform}{_image(chance)}{name}"


def _source(chance: random.Random) -> str:
    return chance.choice((*STAGES, *STAGES, *IMAGES, "0", "0", "1", "9", "ONE"))


def _run(chance: random.Random) -> list[str]:
    documents = chance.choices(DOCUMENTS, k=chance.choice((0, 0, 1, 1, 2)))
    ends = [chance.choice(("EOF", "EOF", "EOF", "\tEOF", "EOF ", "RUN x")) for _ in documents]
    lines = [" ".join(["RUN", chance.choice(SHELL), *documents])]
    for end in ends:
        lines += [*chance.choices(("a = b", "\tc", "", "# not a comment", "COPY x"), k=chance.randint(0, 2)), end]
    return lines


def _instruction(chance: random.Random) -> list[str]:
    match chance.randrange(12):
        case 0 | 1 | 2:
            return [f"COPY --from={_source(chance)} /a /b"]
        case 3:
            return [f"RUN --mount=type=bind,from={chance.choice((*STAGES, *IMAGES))},target=/m true"]
        case 4:
            return [f"ONBUILD COPY --from={_source(chance)} /a /b"]
        case 5:
            return [f"ARG {chance.choice(VARIABLES)}{chance.choice(('', '=1', '=a-b.c'))}"]
        case 6:
            return [f"ENV {chance.choice(('V=2', 'W x', 'V=1 W=2', 'V'))}"]
        case 7:
            return [
                chance.choice(
                    ("COPY a", 'COPY ["a", "b"]', "WORKDIR", "USER", "EXPOSE 80", "SHELL x", "HEALTHCHECK NONE")
                )
            ]
        case 8:
            return ["RUN one && \\", *chance.choices(("# why", "", "  two \\"), k=2), "  three"]
        case _:
            return _run(chance)


def _case(chance: random.Random) -> dict[str, Any]:
    lines = chance.choices(
        ("# syntax=docker/dockerfile:1", "# escape=\\", "# escape=`", "# why", "# check=skip=all"), k=2
    )
    lines = lines[: chance.choice((0, 0, 0, 1, 2))]
    for _ in range(chance.choice((0, 0, 1, 2))):
        lines.append(f"ARG {chance.choice(HEADS)}")
    for _ in range(chance.choice((1, 1, 2, 2, 3, 4))):
        lines.append(_from(chance))
        for _ in range(chance.choice((0, 1, 1, 2, 3))):
            lines += _instruction(chance)
    if chance.random() < 0.05:
        lines.insert(chance.randrange(len(lines) + 1), chance.choice(("RUNN x", "FROM", "FROM a b", "ARG", "\ufeff")))
    args = chance.choice(({}, {}, {"V": "9"}, {"W": "x-y"}, {"UNSET": "", "V": "a"}))
    text = normalised_text("\n".join(lines))
    target = chance.choice(("", "", "", "one", "two", "0"))
    return {"text": text, "architecture": chance.choice(("amd64", "arm64")), "args": args, "target": target}


def _asked(program: str, cases: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    text = "".join(f"{json.dumps(case)}\n" for case in cases)
    answered = subprocess.run([program], input=text, capture_output=True, text=True, timeout=600, check=False)
    assert answered.returncode == 0, answered.stderr[-2000:]
    return [json.loads(line) for line in answered.stdout.splitlines()]


def _pulled(external: ExternalImages, architecture: str) -> set[str]:
    return {f"linux/{each.platform or architecture} {each.canonical}" for each in external.references}


@pytest.mark.parametrize("seed", SEEDS)
def test_builders_read_and_pull_the_same(peer: Callable[[str], str], seed: int) -> None:
    """What both builders take is taken, with the images that BuildKit pulls; what both refuse is refused."""
    chance = random.Random(seed)
    cases = [_case(chance) for _ in range(CASES)]
    verdicts: Counter[str] = Counter()
    for case, theirs in zip(cases, _asked(peer("containerfiles"), cases), strict=True):
        buildkit, buildah = theirs["buildkit"], theirs["imagebuilder"]
        parsed = parse_containerfile(case["text"])
        fault = target_problem(parsed, case["target"])
        errors = [each.message for each in parsed.faults] + ([fault.message] if fault else [])
        external = external_images(parsed, architecture=case["architecture"], args=case["args"], target=case["target"])
        errors += [each.message for each in external.problems if each.severity == "Error"]
        told = f"\n{case['text']}\n{case}\nours {errors or external}\nBuildKit {buildkit}\nbuildah {buildah}"
        if buildkit["parsed"] and buildah["parsed"]:
            own = read_statements(case["text"], "common").statements
            counted = [f"{each.name} {len(each.here_documents)}" for each in own]
            assert counted in (buildkit["statements"], buildah["statements"]), told
        takes = ["error" not in buildkit, "error" not in buildah]
        if all(takes):
            listed = next((sentence for sentence in ONLY_HERE if any(sentence in each for each in errors)), None)
            assert not errors or listed, told
            verdicts[listed or "taken by all"] += 1
        if not any(takes) and not any(form in buildah["error"] for form in UNKNOWN_FORMS):
            assert errors, told
            verdicts["refused by all"] += 1
        if takes[0] and not errors and not external.problems:
            assert _pulled(external, case["architecture"]) == set(buildkit["pulled"] or ()), told
            verdicts["pulled alike"] += 1
    assert min(verdicts[each] for each in ("taken by all", "refused by all", "pulled alike")) > CASES / 10, verdicts
    assert sum(verdicts[sentence] for sentence in ONLY_HERE) < CASES / 20, verdicts


@pytest.mark.parametrize("seed", SEEDS)
def test_words_are_expanded_alike(peer: Callable[[str], str], seed: int) -> None:
    chance = random.Random(seed)
    parts = ["${V#", "${V%%", "${W/", *"${}VW:-+?#%/*'\"\\ab._1", "${V", "${W}"]
    cases: list[dict[str, Any]] = []
    for _ in range(CASES * 4):
        word = "".join(chance.choices(parts, k=chance.randint(1, 7))) + chance.choice(("", "", "}"))
        cases.append({"word": word, "args": {"V": chance.choice(("", "abab", "a.b-a.b", "a*b", "b/a")), "W": "x"}})
    verdicts: Counter[str] = Counter()
    for case, theirs in zip(cases, _asked(peer("containerfiles"), cases), strict=True):
        own = expanded(case["word"], case["args"], "\\", complete=True)
        assert own.text == (None if "error" in theirs else theirs["word"]), (case, own, theirs)
        verdicts["refused" if own.text is None else "expanded"] += 1
    assert min(verdicts.values()) > CASES / 10, verdicts
