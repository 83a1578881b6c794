"""Dockerfiles are read as BuildKit reads them, or with a doubt."""

import pytest

from polyarch.manifests.scan.dockerfiles import read_dockerfile


@pytest.mark.parametrize(
    ("text", "names", "doubt"),
    [
        ("FROM a\nRUN x \\\n# c\n  y\n", ["FROM a", "RUN x   y"], ""),
        ("\n  # c\n  from a\n\tRUN x\n", ["from a", "RUN x"], ""),
        ("FROM a\nRUN <<A cat <<-B\n1\nA\n\t2\n\tB\nRUN y", ["FROM a", "RUN <<A cat <<-B\n1\n\t2", "RUN y"], "here"),
        ("FROM a\nCOPY <<A /x\nFROM b\nA\nRUN y\n", ["FROM a", "COPY <<A /x", "RUN y"], "here"),
        ("FROM a\nRUN echo $((1<<2))\nRUN y\n", ["FROM a", "RUN echo $((1<<2))", "RUN y"], "here"),
        ("", [], "no FROM"),
    ],
)
def test_a_dockerfile_is_read_as_its_instructions(text: str, names: list[str], doubt: str) -> None:
    """As BuildKit's parser joins the lines."""
    read = read_dockerfile(text)
    assert [each.text for each in read.instructions] == names
    assert bool(read.doubt) == bool(doubt)
    assert doubt in read.doubt
    for each in read.instructions:
        assert [text[each.at(place)] for place, mark in enumerate(each.text) if mark != "\n"] == [
            mark for mark in each.text if mark != "\n"
        ]
