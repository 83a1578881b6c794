"""Containerfiles of every kind, also hostile ones: never an error of ours, never quadratic work."""

import time
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from polyarch.builds.containerfile import (
    INSTRUCTIONS,
    MAX_ERRORS,
    expanded,
    external_images,
    normalised_text,
    parse_containerfile,
    read_statements,
    split_words,
)

names = st.sampled_from([*INSTRUCTIONS, "run", "From", "RUNN", "#", "# escape=`", "# syntax=x"])
PIECES = (
    *(
        "a",
        "b:1",
        "AS",
        "x",
        "$A",
        "${A:-",
        "}",
        "${B}",
        "${A:+b}",
        "<<E",
        "<<-E",
        "E",
        "\tE",
        '"',
        "'",
        "\\",
        "`",
        " ",
    ),
    *("--from=a", "--mount=from=b,x", "--platform=$BUILDPLATFORM", "A=1", "=", "[", '["a"]', "\\\n", "\n", "é", "\0"),
)
pieces = st.sampled_from(PIECES)
lines = st.builds(lambda name, rest: " ".join([name, *rest]), names, st.lists(pieces, max_size=6))
texts = st.one_of(st.text(), st.lists(lines, max_size=12).map("\n".join))


@pytest.mark.req("BD-057")
@given(texts, st.booleans())
@example("FROM a\nRUN <<E\\\nE\n", True)
@example("# escape=`\nFROM a`\n", True)
def test_every_text_is_read(body: str, machine: bool) -> None:
    """A text has stages or faults, each in a line of it; never an error of ours."""
    normal = normalised_text(body)
    containerfile = parse_containerfile(normal, inside=("configs",) if machine else ())
    assert containerfile.stages or containerfile.faults
    assert all(1 <= fault.line <= normal.count("\n") + 1 for fault in containerfile.faults)
    external = external_images(containerfile, architecture="arm64", args={"A": "a1"})
    assert all(each.canonical and each.written for each in external.references)
    assert len(external.problems) <= 2 * MAX_ERRORS


@pytest.mark.req("BD-056")
@given(texts)
def test_normalising_twice_changes_nothing(body: str) -> None:
    normal = normalised_text(body)
    assert normalised_text(normal.removeprefix("\ufeff")) == normal.removeprefix("\ufeff")
    assert "\r" not in normal
    assert normalised_text(normal.replace("\n", "\r\n")) == normal


@given(st.lists(st.lists(st.sampled_from(["a", "'b", "$C", "--d", '"']), min_size=1, max_size=5), max_size=6))
def test_continued_lines_mean_the_same(several: list[list[str]]) -> None:
    """What is written on one line or on several is one statement; comments between them do not count."""
    plain = "\n".join(f"RUN {' '.join(each)}" for each in several)
    broken = "\n".join("RUN " + " \\\n# why\n\n".join(each) for each in several)
    first, second = (read_statements(body, "common").statements for body in (plain, broken))
    assert [(each.name, each.rest) for each in first] == [(each.name, each.rest) for each in second]


@given(st.lists(st.text("ab$ {}'\"\\", min_size=1), max_size=6).map(" ".join))
def test_words_are_all_of_the_text(body: str) -> None:
    """Splitting loses white space only."""
    assert "".join(split_words(body, "\\")).replace(" ", "") == body.replace(" ", "")


@given(st.from_regex(r"[a-z0-9.:/-]{1,30}", fullmatch=True), st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True))
def test_variables_are_replaced_wherever_they_stand(before: str, value: str) -> None:
    for form in ("$V", "${V}", "${V:-d}", "${W:-$V}", "${V:+$V}", '"$V"', "${V-d}"):
        found = expanded(f"{before}{form}x" if form != "$V" else f"{before}$V", {"V": value}, "\\")
        assert found.text == before + value + ("x" if form != "$V" else "")
    assert expanded(f"{before}'$V'", {"V": value}, "\\").text == f"{before}$V"
    assert expanded(f"{before}\\$V", {"V": value}, "\\").text == f"{before}$V"


SIZE = 128 * 1024


def filled(unit: str, head: str = "FROM a\n", tail: str = "") -> str:
    return head + unit * ((SIZE - len(head) - len(tail)) // len(unit)) + tail


HOSTILE: dict[str, Callable[[], str]] = {
    "continued lines": lambda: filled("\\\n", "FROM a\nRUN x "),
    "escapes": lambda: filled("\\", "FROM a\nRUN "),
    "escapes and spaces": lambda: filled("\\ ", "FROM a\nRUN x"),
    "white space": lambda: filled(" ", "FROM a\nRUN x", "\\ x"),
    "quotes": lambda: filled("\"'", "FROM a\nRUN "),
    "an open quote": lambda: filled("x ", "FROM a\nRUN '"),
    "open here-documents": lambda: filled("<<A ", "FROM a\nRUN "),
    "many here-documents": lambda: filled("RUN <<A\nA\n"),
    "many here-documents of one line": lambda: "FROM a\nRUN " + "<<A " * 20_000 + "\n" + "A\n" * 20_000,
    "a here-document without end": lambda: filled("RUN <<A\n"),
    "flags": lambda: filled("--mount=from=b ", "FROM a\nRUN ", "x"),
    "mounts": lambda: filled("from=$b,", "FROM a\nRUN --mount=", " x"),
    "doubling arguments": lambda: filled("ARG A=$A$A\n", "ARG A=xxxxxxx\n", "FROM a:$A\n"),
    "doubling arguments in one line": lambda: filled("A=$A$A ", "ARG A=x ", "\nFROM a:$A\n"),
    "doubling variables": lambda: filled("A=$A$A ", "FROM a\nENV A=xxxx ", "\nCOPY --from=b:$A x y\n"),
    "braces": lambda: filled("${A:-", "FROM a:"),
    "closed braces": lambda: "FROM a:" + "${A:-" * 20_000 + "}" * 20_000 + "\n",
    "braces not taken": lambda: "FROM a:" + "${A:+" * 20_000 + "}" * 20_000 + "\n",
    "stages": lambda: filled("FROM b AS b\n", "FROM a AS b\n"),
    "stages that nothing needs": lambda: filled("FROM b AS c\nCOPY --from=late x y\n", "", "FROM a AS late\n"),
    "stages that one needs": lambda: (
        "".join(f"FROM --platform=s390x b{n} AS c{n}\n" for n in range(2_500))
        + "FROM a\n"
        + "".join(f"COPY --from=c{n} x y\n" for n in range(2_500))
    ),
    "a chain of stages": lambda: (
        "FROM --platform=s390x a AS c0\n" + "".join(f"FROM c{n} AS c{n + 1}\nRUN x\n" for n in range(4_000))
    ),
    "inherited triggers": lambda: (
        "FROM a AS c\n" + "ONBUILD COPY --from=b x y\n" * 2_500 + "".join(f"FROM c AS d{n}\n" for n in range(4_000))
    ),
    "arguments and stages": lambda: "".join(f"ARG A{n}=1\n" for n in range(5_000)) + "FROM b\n" * 8_000,
    "patterns": lambda: "ARG A=" + "a" * 500 + "\n" + ("FROM a:${A##" + "*a" * 200 + "b}\n") * 250,
    "replacements": lambda: "ARG A=" + "a" * 60 + "\n" + ("FROM a:${A//" + "*a" * 30 + "b/c}\n") * 500,
    "copies": lambda: filled("COPY --from=b x y\n"),
    "unknown instructions": lambda: filled("X\n"),
    "lists": lambda: filled("[", "FROM a\nRUN "),
    "comments": lambda: filled("#\n", "FROM a\nRUN x \\\n"),
    "directives": lambda: filled("# syntax=x\n", "", "FROM a\n"),
    "triggers": lambda: filled("ONBUILD ", "FROM a\n"),
    "a long reference": lambda: filled("a-", "FROM "),
    "control characters": lambda: filled("\0", "FROM a\n"),
}


@pytest.mark.req("BD-323")
@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_take_time_like_others(make: Callable[[], str]) -> None:
    """128 KiB each. Work that grew with the square of the text would take minutes of CPU time."""
    body = make()
    begin = time.process_time()
    containerfile = parse_containerfile(normalised_text(body))
    external_images(containerfile, architecture="arm64", args={})
    assert time.process_time() - begin < 5


@pytest.mark.req("BD-323")
@settings(max_examples=25)
@given(pieces, st.sampled_from(["FROM a\nRUN ", "FROM ", "ARG ", "FROM a\nENV ", "FROM a\nCOPY --from=", ""]))
def test_any_piece_repeated(piece: str, head: str) -> None:
    begin = time.process_time()
    containerfile = parse_containerfile(normalised_text(filled(f"{piece} ", head)))
    external_images(containerfile, architecture="arm64", args={"A": "a"})
    assert time.process_time() - begin < 5
