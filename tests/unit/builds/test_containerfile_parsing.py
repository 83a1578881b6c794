"""Containerfiles: what parses, what does not, and what is said about it."""

import time

import pytest

from polyarch.builds.containerfile import (
    NO_BASE,
    NO_COMMAND,
    NO_DIRECTORY,
    NO_FROM,
    NO_PATHS,
    UNKNOWN,
    UNREADABLE,
    Containerfile,
    normalised_text,
    parse_containerfile,
)


def parsed(body: str, **options: object) -> Containerfile:
    return parse_containerfile(normalised_text(body), **options)  # type: ignore[arg-type]


def messages(body: str, **options: object) -> list[str]:
    return [fault.message for fault in parsed(body, **options).faults]


@pytest.mark.req("BD-056")
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("", ""),
        ("\n", ""),
        ("\r\n\r\n", ""),
        ("FROM a", "FROM a\n"),
        ("FROM a\n\n\n", "FROM a\n"),
        ("FROM a\r\nRUN b\r", "FROM a\nRUN b\n"),
        ("FROM a\rRUN b", "FROM a\nRUN b\n"),
        ("\ufeffFROM a\n", "FROM a\n"),
        ("\n\nFROM a \n# why\n", "\n\nFROM a \n# why\n"),
        ("FROM a\n\ufeff\n", "FROM a\n\ufeff\n"),
    ],
)
def test_normalised(written: str, expected: str) -> None:
    """Byte-order mark, line ends and the end of the text, and nothing else."""
    assert normalised_text(written) == expected
    assert normalised_text(expected) == expected


GOOD = {
    "one stage": "FROM a\nRUN true\n",
    "lower case": "from a as b\nrun true\n",
    "arguments before": "ARG A=1\nARG B C=2\nFROM a:$A\n",
    "directives": "# escape=`\n# syntax=docker/dockerfile:1\nFROM a\nRUN dir `\n  C:\\\n",
    "an escape that is late and nowhere used": "# syntax=docker/dockerfile:1\n# escape=`\nFROM a\nRUN dir\n",
    "the usual escape, late": "# check=skip=all\n# escape=\\\nFROM a\nRUN b \\\n c\n",
    "directive in capitals": "# Syntax = x\nFROM a\n",
    "continued": "FROM a\nRUN one && \\\n  two && \\\n\n# why\n  three\n",
    "escape before white space": "FROM a\nRUN one \\  \n two\n",
    "continued at the end": "FROM a\nRUN one \\",
    "here-document": "FROM a\nRUN <<EOF\nCOPY nonsense\nUNKNOWN\nEOF\nUSER b\n",
    "two here-documents": 'FROM a\nCOPY <<one <<"two" /x/\nFROM\none\nRUNN\ntwo\nUSER b\n',
    "here-document with tabs": "FROM a\nRUN <<-EOF\n\tUNKNOWN\n\tEOF\nUSER b\n",
    "here-document after a command": "FROM a\nRUN cat <<EOF > /x && true\nUNKNOWN\nEOF\n",
    "here-document continued": "FROM a\nRUN cat \\\n <<EOF\nUNKNOWN\nEOF\n",
    "here-document after white space": "FROM a\nRUN cat << EOF > /x && \\\n"
    " cat <<-\"E\" << 'two'\nUNKNOWN\nEOF\n\tE\nRUNN\ntwo\n",
    "a here-document that an open quote hides": "FROM a\nRUN echo it's <<EOF\nUSER b\n",
    "a here-document in quotes": "FROM a\nRUN echo '<<EOF' \"<< EOF\" \\<<EOF\nUSER b\n",
    "a shift without white space": "FROM a\nRUN echo $((1<<2))\nUSER b\n",
    "a here-string is no here-document": "FROM a\nRUN cat <<<word\nUSER b\n",
    "flags": "FROM --platform=$BUILDPLATFORM a AS b\nRUN --mount=type=cache,target=/x --network=none make\n"
    "COPY --from=b --chown=1:1 --link x /y\nADD --checksum=sha256:aa https://x /y\n",
    "lists": 'FROM a\nRUN ["a", "b"]\nCMD []\nCMD ["x"]\nENTRYPOINT ["y"]\nSHELL ["/bin/sh", "-c"]\nVOLUME ["/a b"]\n'
    'COPY ["a b", "/c d"]\n',
    "every instruction": "FROM a\nMAINTAINER me\nENV A=1 B='2 3'\nENV C d e\nLABEL x=y\nEXPOSE 80 81/udp\n"
    "VOLUME /x /y\nWORKDIR /a b\nUSER u:g\nSTOPSIGNAL SIGTERM\nHEALTHCHECK --interval=5s CMD true\nHEALTHCHECK NONE\n"
    "ONBUILD RUN make\nONBUILD COPY a b\nARG Z\nADD a b\nCMD\nENTRYPOINT\n",
    "not in English": "FROM a\nLABEL größe=„groß“ 名=値\nRUN echo 'привет' # ☃\n",
    "a flag nobody knows yet": "FROM a\nCOPY --brand-new=1 a b\n",
    "comments only before": "# one\n\n# two\nFROM a\n",
}


@pytest.mark.req("BD-057")
@pytest.mark.parametrize("body", GOOD.values(), ids=GOOD)
def test_what_builders_take(body: str) -> None:
    """No fault where every builder takes the text."""
    assert messages(body) == []


BAD = {
    "nothing": ("", 1, "there is no FROM", "FROM IMAGE", NO_FROM),
    "comments": ("# only\n", 1, "there is no FROM", "FROM IMAGE", NO_FROM),
    "no base": ("FROM\n", 1, "FROM has no arguments", "FROM IMAGE or FROM IMAGE AS STAGE", NO_BASE),
    "half a name": ("FROM a AS\n", 1, "FROM has 'a AS'", "FROM IMAGE or FROM IMAGE AS STAGE", NO_BASE),
    "two bases": ("FROM a b\n", 1, "FROM has 'a b'", "FROM IMAGE or FROM IMAGE AS STAGE", NO_BASE),
    "unlike AS": ("FROM a IS b\n", 1, "FROM has 'a IS b'", "FROM IMAGE or FROM IMAGE AS STAGE", NO_BASE),
    "misspelt": ("FROM a\n\nRUNN x\n", 3, "unknown instruction 'RUNN'", "RUN", UNKNOWN),
    "nothing like it": ("FROM a\n§§§ x\n", 2, "unknown instruction '§§§'", "one of ADD, ARG, CMD, COPY", UNKNOWN),
    "before FROM": ("RUN x\nFROM a\n", 1, "RUN comes before the first FROM", "FROM, or ARG before it", NO_FROM),
    "RUN": ("FROM a\nRUN\n", 2, "RUN has no arguments", "RUN COMMAND", NO_COMMAND),
    "RUN with flags only": ("FROM a\nRUN --network=none\n", 2, "RUN has no arguments", "RUN COMMAND", NO_COMMAND),
    "RUN with an empty list": ("FROM a\nRUN []\n", 2, "RUN has '[]'", "RUN COMMAND", NO_COMMAND),
    "COPY": ("FROM a\nCOPY x\n", 2, "COPY has 'x'", "COPY SOURCE… DESTINATION", NO_PATHS),
    "COPY of a list": ('FROM a\nCOPY ["x"]\n', 2, "COPY has", "COPY SOURCE… DESTINATION", NO_PATHS),
    "ADD": ("FROM a\nADD\n", 2, "ADD has no arguments", "ADD SOURCE… DESTINATION", UNREADABLE),
    "WORKDIR": ("FROM a\nWORKDIR \n", 2, "WORKDIR has no arguments", "WORKDIR DIRECTORY", NO_DIRECTORY),
    "ENV": ("FROM a\nENV A\n", 2, "ENV has 'A'", "ENV NAME=VALUE …", UNREADABLE),
    "ENV without name": ("FROM a\nENV =x\n", 2, "ENV has '=x'", "ENV NAME=VALUE …", UNREADABLE),
    "ENV half": ("FROM a\nENV A=1 B\n", 2, "ENV has 'A=1 B'", "ENV NAME=VALUE …", UNREADABLE),
    "ARG": ("ARG\nFROM a\n", 1, "ARG has no arguments", "ARG NAME or ARG NAME=DEFAULT", UNREADABLE),
    "SHELL": ("FROM a\nSHELL /bin/sh\n", 2, "SHELL has '/bin/sh'", 'SHELL ["PROGRAM", "ARGUMENT"…]', UNREADABLE),
    "HEALTHCHECK": ("FROM a\nHEALTHCHECK x\n", 2, "HEALTHCHECK has 'x'", "HEALTHCHECK CMD COMMAND", UNREADABLE),
    "HEALTHCHECK CMD": ("FROM a\nHEALTHCHECK CMD\n", 2, "HEALTHCHECK has 'CMD'", "COMMAND", UNREADABLE),
    "ONBUILD FROM": ("FROM a\nONBUILD FROM b\n", 2, "ONBUILD has 'FROM b'", "ONBUILD and an inst", UNREADABLE),
    "ONBUILD COPY": ("FROM a\nONBUILD COPY b\n", 2, "ONBUILD has 'COPY b'", "ONBUILD and an inst", UNREADABLE),
    "USER": ("FROM a\nUSER\n", 2, "USER has no arguments", "USER NAME", UNREADABLE),
    "VOLUME": ("FROM a\nVOLUME []\n", 2, "VOLUME has '[]'", "VOLUME DIRECTORY…", UNREADABLE),
    "open here-document": (
        "FROM a\nRUN <<EOF\nx\n",
        2,
        "the here-document 'EOF' has no end",
        "a line with 'EOF' alone",
        UNREADABLE,
    ),
    "a shift, which builders take for a here-document": (
        "FROM a\nRUN echo $(( 1 << 2 ))\nUSER b\n",
        2,
        "the here-document '2' has no end",
        "a shift is written without white space",
        UNREADABLE,
    ),
    "an escape that buildah does not see": (
        "# syntax=docker/dockerfile:1\n# escape=`\nFROM a\nRUN a `\n b\n",
        2,
        "# escape comes after # syntax: buildah, which builds the image, does not see it there",
        "it in the first line",
        UNREADABLE,
    ),
    "words of FROM in quotes": ("FROM ${V:-'x y'}\n", 1, "FROM has", "FROM IMAGE or FROM IMAGE AS STAGE", NO_BASE),
    "escape": ("# escape=/\nFROM a\n", 1, "the escape character '/'", "\\ or `", UNREADABLE),
    "escape twice": ("# escape=`\n# escape=`\nFROM a\n", 2, "the directive 'escape' is there twice", "it once", None),
}


@pytest.mark.req("BD-057", "BD-268", "BD-320")
@pytest.mark.parametrize(("body", "line", "problem", "expected", "rule"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_named(body: str, line: int, problem: str, expected: str, rule: str | None) -> None:
    """BD-057, BD-320: text, line, and what was expected; BD-268: the rule in the stock builder's words."""
    found = parsed(body).faults
    assert len(found) == 1
    assert found[0].line == line
    assert found[0].problem.startswith(problem)
    assert expected in found[0].expected
    assert rule in (None, found[0].rule)
    assert found[0].message.startswith(f"Containerfile (common), line {line}: {problem}")


@pytest.mark.req("BD-320")
def test_several_faults_at_once() -> None:
    """One look at a text finds all that is wrong with it."""
    assert messages("FROM a\nRUN\nRUNN x\nCOPY y\n", name="arm64") == [
        "Containerfile (arm64), line 2: RUN has no arguments; expected RUN COMMAND",
        "Containerfile (arm64), line 3: unknown instruction 'RUNN'; expected RUN",
        "Containerfile (arm64), line 4: COPY has 'y'; expected COPY SOURCE… DESTINATION",
    ]


def test_lines_are_those_of_the_text() -> None:
    """Continued lines and here-documents count, and a long value is shown in part."""
    body = "FROM a\nRUN one \\\n\n# c\n two\nRUN <<EOF\n1\n2\nEOF\nWRONG x\n"
    assert [fault.line for fault in parsed(body).faults] == [10]
    assert len(messages(f"FROM a\nCOPY {'x' * 5000}\n")[0]) < 200


@pytest.mark.req("BD-057", "BD-268")
@pytest.mark.parametrize("body", ["", "# nothing\n", "RUN true\n", "FROM configs AS final\nRUN true\n"])
def test_text_that_goes_on_in_a_stage(body: str) -> None:
    """A machine OS needs no FROM and no text."""
    assert parsed(body, inside=("configs",)).faults == ()


@pytest.mark.req("BD-268")
def test_rules_hold_inside_too() -> None:
    found = parsed("RUN\nFROM\n", inside=("configs",)).faults
    assert [fault.rule for fault in found] == [NO_COMMAND, NO_BASE]


def test_stages_and_their_parts() -> None:
    found = parsed(
        "ARG V=1\nFROM --platform=$BUILDPLATFORM go:$V AS Build\nRUN --mount=type=cache,target=/c <<-E\n\tmake\n\tE\n"
        "FROM scratch\nCOPY --from=build /x /y\n"
    )
    build, final = found.stages
    assert [each.name for each in found.header] == ["ARG"]
    assert (build.image, build.name, build.platform) == ("go:$V", "build", "$BUILDPLATFORM")
    assert build.instructions[0].flags == (("mount", "type=cache,target=/c"),)
    assert build.instructions[0].here_documents[0].content == "\tmake\n"
    assert (final.image, final.name, final.line) == ("scratch", "", 6)
    assert final.instructions[0].flags == (("from", "build"),)
    assert final.instructions[0].arguments == "/x /y"


@pytest.mark.req("BD-323")
def test_a_long_directive_is_read_in_one_go() -> None:
    """A text of one namespace must not keep the builder from all others."""
    began = time.process_time()
    found = parsed("# syntax=a" + " " * 60_000 + "b\nFROM c\n")
    assert not found.faults
    assert time.process_time() - began < 2.0, "the time grows with the square of the text"
