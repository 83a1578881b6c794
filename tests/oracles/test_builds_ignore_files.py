"""Ignore files against the packages with which docker and BuildKit read them, linked into a Go program
(``tools/peers/gomodule/ignorefile``): both decide the same random files over the same random paths."""

import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from polyarch.cli.build import context_archive
from polyarch.cli.errors import UsageError

pytestmark = pytest.mark.req("BD-300")

CASES = 5_000
SEEDS = range(2)
PARTS = [
    *(
        "a",
        "b",
        "ab",
        "a.b",
        ".env",
        "key",
        "\u00e9",
        "*",
        "*",
        "**",
        "**/",
        "/**",
        "***",
        "?",
        "/",
        "/",
        "//",
        "./",
        "../",
    ),
    *(
        "[ab]",
        "[^a]",
        "[a-c]",
        "[.]",
        "[\\]]",
        "]",
        "\\*",
        "\\!",
        "\\#",
        "!",
        "! ",
        "#",
        " ",
        "\t",
        "\u00a0",
        "\x85",
        "\x1c",
    ),
    *("^", "$", "+", "{", "}", ".", "-", "~", ",", "&", "(", ")"),
]
ODD = ["[", "[]", "[b-a]", "\\", "{2}", "|", "[*]", "\\d", "[[:alpha:]]"]
STARS = ["*", "*", "a", "b", "?", "/", "**/", "[^a]", "[ab]"]
NAMES = [
    *(
        "a",
        "b",
        "ab",
        "aab",
        "abc",
        "a.b",
        "axb",
        ".env",
        "key",
        "\u00e9",
        "*",
        "**",
        "!",
        "#",
        "!a",
        "#a",
        "[a]",
        "]",
        "^a",
    ),
    *("\\", "-a", " a", "a ", "(", "a+b", "$", "{", "a{2}", "aa", "~", ",", "&", "a\nb", "\x1c"),
]


def _case(chance: random.Random) -> dict[str, Any]:
    lines = ["".join(chance.choices(PARTS, k=chance.randint(1, 4))) for _ in range(chance.choice((1, 2, 3, 5)))]
    lines += ["".join(chance.choices(STARS, k=chance.randint(4, 12))) for _ in range(chance.randint(0, 2))]
    if chance.random() < 1 / 4:
        lines[-1] += chance.choice(ODD)
    mark, end = chance.choice(("", "", "\ufeff")), chance.choice(("\n", "\n", "\r\n"))
    paths = {"/".join(chance.choices(NAMES, k=chance.randint(1, 4))) for _ in range(20)}
    return {"text": mark + end.join(lines) + chance.choice(("", end)), "paths": sorted(paths)}


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_ignored_is_what_docker_and_buildkit_ignore(peer: Callable[[str], str], seed: int) -> None:
    """What they refuse is refused here, too, and some of what they take for something that nobody means."""
    chance = random.Random(seed)
    cases = [_case(chance) for _ in range(CASES)]
    asked = "".join(f"{json.dumps(case)}\n" for case in cases)
    answered = subprocess.run(
        [peer("ignorefile")], input=asked, capture_output=True, text=True, timeout=60, check=False
    )
    assert answered.returncode == 0, answered.stderr
    verdicts: Counter[str] = Counter()
    for line, case in zip(answered.stdout.splitlines(), cases, strict=True):
        theirs = json.loads(line)
        try:
            known = context_archive.patterns(case["text"])
        except UsageError:
            verdicts["both refuse" if "error" in theirs else "refused here"] += 1
            continue
        assert "error" not in theirs, f"{case['text']!r}: {theirs['error']}"
        assert [context_archive.is_ignored(path, known) for path in case["paths"]] == theirs["ignored"], case
        verdicts["some ignored" if any(theirs["ignored"]) else "none ignored"] += 1
    assert verdicts["some ignored"] > CASES / 4, verdicts
    assert verdicts["both refuse"] > CASES / 20, verdicts
    assert verdicts["refused here"] < CASES / 5, verdicts
