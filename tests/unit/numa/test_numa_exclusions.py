"""Which pods a glob of ``podExclude`` means, and which globs are refused."""

import pytest

from polyarch.numa.facts import (
    MAX_DESCRIPTION_BYTES,
    MalformedPattern,
    PodPattern,
    compile_pattern,
    describe_exclusions,
)


@pytest.mark.req("NE-067")
@pytest.mark.parametrize(
    ("glob", "matching", "other"),
    [
        ("*", ["", "anything"], []),
        ("kube-*", ["kube-", "kube-system"], ["kube", "xkube-system"]),
        ("*-test-?", ["my-test-1", "-test-x"], ["my-test-", "my-test-12"]),
        ("web", ["web"], ["webs", "aweb", "Web"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "x", "-x"]),
        ("[!a-c]x", ["dx"], ["ax", "x"]),
        ("[^a-c]x", ["dx"], ["ax"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[a-]", ["a", "-"], ["b"]),
        (r"a\*b", ["a*b"], ["aab"]),
        (r"[\]]", ["]"], ["\\"]),
        ("a.b+(c)|d$", ["a.b+(c)|d$"], ["axb+(c)|d$"]),
        ("", [""], ["a"]),
    ],
)
def test_a_pattern_matches_as_in_a_shell(glob: str, matching: list[str], other: list[str]) -> None:
    """The whole name, and case matters."""
    compiled = compile_pattern(glob)
    assert [text for text in matching if not compiled.fullmatch(text)] == []
    assert [text for text in other if compiled.fullmatch(text)] == []


@pytest.mark.req("NE-067")
@pytest.mark.parametrize(
    ("glob", "why"),
    [
        ("[a", r"\[ has no \]"),
        ("a[", r"\[ has no \]"),
        ("[]", r"\[ has no \]"),
        ("[!]", r"\[ has no \]"),
        ("[z-a]", "the range z-a is empty"),
        ("a\\", "ends with a backslash"),
        ("[a\\", "ends with a backslash"),
    ],
)
def test_a_malformed_pattern_is_refused(glob: str, why: str) -> None:
    """An error, not a pattern that silently matches nothing."""
    with pytest.raises(MalformedPattern, match=why):
        compile_pattern(glob)


@pytest.mark.req("NE-015")
def test_patterns_are_described_as_compact_json_up_to_2_kib() -> None:
    """Bytes count, not characters."""
    assert describe_exclusions([]) == "[]"
    assert describe_exclusions([PodPattern("kube-*", "é")]) == '[{"namespacePattern":"kube-*","namePattern":"é"}]'
    most = MAX_DESCRIPTION_BYTES - len('[{"namespacePattern":"","namePattern":""}]')
    assert describe_exclusions([PodPattern("", "x" * most)]) is not None
    assert describe_exclusions([PodPattern("", "x" * (most - 1) + "é")]) is None
