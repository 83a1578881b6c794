"""Why a key changed."""

from typing import Any

import pytest
from key_wishes import PINS, SPEC, changed, effective

from polyarch.builds.keys import KeyOutline, arch_key_document, difference_sentence, key_differences, key_outline


def outline(spec: Any = SPEC, pins: Any = None) -> KeyOutline:
    document = arch_key_document(effective(spec), "arm64", PINS["arm64"] if pins is None else pins).document
    return key_outline(document)


@pytest.mark.req("BD-302")
@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("source.containerfile", "FROM busybox:1.36\n", "containerfile changed"),
        (
            "source.buildArgs",
            {"MODE": "slow", "MORE": "1"},
            "build argument LEVEL removed, build argument MODE changed, build argument MORE added",
        ),
        ("source.target", "0", "target added"),
        ("source.context", {"type": "None"}, "context removed"),
        ("output.labels", {"a": "1"}, "label b removed"),
        ("output.format", "Docker", "format changed"),
        ("reproducible", {"enabled": False}, "timestamp removed"),
        ("source.secrets", [], "secret token removed"),
        ("strategy", "Emulated", ""),
    ],
)
def test_what_changed(path: str, value: Any, expected: str) -> None:
    """The canonical documents, member by member, in words."""
    found = key_differences(outline(), outline(changed(SPEC, path, value)))
    assert difference_sentence(found) == expected


@pytest.mark.req("BD-302")
def test_a_base_moved() -> None:
    found = key_differences(outline(), outline(pins={}))
    assert difference_sentence(found) == "base image docker.io/library/busybox:1.36 changed"


@pytest.mark.req("BD-302")
def test_many_changes_are_counted() -> None:
    spec = changed(SPEC, "source.buildArgs", {f"A{number}": "1" for number in range(9)})
    assert difference_sentence(key_differences(outline(), outline(spec)), most=2) == (
        "build argument A0 added, build argument A1 added, 9 more"
    )


def test_outlines_hold_no_text() -> None:
    """They are kept in a ConfigMap: what somebody wrote is not in them, and their size has a limit."""
    found = outline(changed(SPEC, "source.containerfile", "FROM busybox\nRUN unmistakable\n"))
    assert "unmistakable" not in str(found)
    assert all(len(value) == 8 for value in found.values())
