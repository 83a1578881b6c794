"""What is not listed is not proven: the proof knows nothing of the editor, it reads both texts."""

import pytest

from polyarch.manifests.edit.editor import render
from polyarch.manifests.operations import Add, Remove, Rename, Replace, TreeOperation
from polyarch.manifests.proof import prove
from polyarch.manifests.scan.nodes import compose
from polyarch.manifests.scan.text import SourceText, splice

pytestmark = pytest.mark.req("MF-054")


def told(before: str, after: str, *operations: TreeOperation, path: str = "web.yaml") -> str | None:
    """What the proof says of operations on the first document."""
    return prove(SourceText.of(path, before.encode()), after, {0: operations})


def test_several_documents_are_proven_together() -> None:
    """The edits of a file are one."""
    source = SourceText.of("web.yaml", b"a: 1\n---\nb: 1\n---\nc: 1\n")
    first, _, last = compose(source)
    changes = [(first, [Replace("/a", 2)]), (last, [Replace("/c", 3)])]
    edits = [edit for document, operations in changes for edit in render(source, document, operations)]
    after = splice(source.text, edits)
    assert after == "a: 2\n---\nb: 1\n---\nc: 3\n"
    assert prove(source, after, {document.index: operations for document, operations in changes}) is None


BEFORE = "a: 1\nb: [x] # why\n---\nc: 1\n"
AFTER = BEFORE.replace("a: 1", "a: 2")


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        pytest.param(BEFORE, "document 0 does not parse to the intended value at /a", id="not made"),
        pytest.param(AFTER.replace("x", "y"), "document 0 has another value, tag or style at /b/0", id="too much"),
        pytest.param(AFTER.replace("[x]", "['x']"), "another value, tag or style at /b/0", id="another style"),
        pytest.param(AFTER.replace("[x]", "[!!str x]"), "another tag or anchor at /b/0", id="a tag that says the same"),
        pytest.param(AFTER.replace("b: [x] # why\n", ""), "not have the intended keys", id="something lost"),
        pytest.param(AFTER.replace("a: 2", "a: 2.0"), "intended value at /a", id="another type"),
        pytest.param(AFTER.replace("c: 1", "c: 2"), "a document without an edit has changed", id="elsewhere"),
        pytest.param(AFTER.replace("c: 1", "c:  1"), "a document without an edit has changed", id="white space"),
        pytest.param(AFTER + "---\n", "the number of documents has changed", id="a document more"),
        pytest.param(AFTER.replace("x]", "x"), "the changed text does not parse: line", id="no YAML"),
        pytest.param("b: [x] # why\na: 2\n---\nc: 1\n", "another order", id="another order"),
        pytest.param(AFTER.replace(" # why", ""), "has lost a comment: # why", id="a comment lost"),
        pytest.param(AFTER.replace("a: 2", "a: 2 # new"), "has a new comment: # new", id="a comment more"),
        pytest.param(AFTER.replace("a: 2\n", "a: 2\r\n"), "a line ends otherwise", id="a line break"),
        pytest.param(AFTER.replace("a: 2", "a: 2\na: 2"), "another order", id="a key twice"),
        pytest.param(AFTER.replace("a: 2", "'a': 2"), "another order", id="a key in quotes"),
    ],
)
def test_an_edit_that_does_otherwise_is_not_proven(after: str, problem: str) -> None:
    assert told(BEFORE, AFTER, Replace("/a", 2)) is None
    assert problem in str(told(BEFORE, after, Replace("/a", 2)))


SHARED = """\
base: &base
  values: &v [amd64, arm64]
  other: 1
one:
  <<: *base
  own: *v
two: *v
"""


@pytest.mark.parametrize(
    ("after", "operations", "proven"),
    [
        pytest.param(
            SHARED.replace("[amd64, arm64]", "[amd64]"),
            [Remove(f"{use}/1") for use in ("/base/values", "/one/values", "/one/own", "/two")],
            True,
            id="every use is listed",
        ),
        pytest.param(
            SHARED.replace("[amd64, arm64]", "[amd64]"),
            [Remove(f"{use}/1") for use in ("/base/values", "/one/values", "/one/own")],
            False,
            id="one use is not listed",
        ),
        pytest.param(SHARED.replace("two: *v", "two: [amd64]"), [Remove("/two/1")], False, id="one use is written out"),
        pytest.param(
            SHARED.replace("two: *v", "two: [amd64, arm64]"), [Replace("/base/other", 1)], False, id="no longer shared"
        ),
        pytest.param(SHARED.replace("other: 1", "other: 2"), [Replace("/base/other", 2)], False, id="merged elsewhere"),
        pytest.param(
            SHARED.replace("other: 1", "other: 2"),
            [Replace("/base/other", 2), Replace("/one/other", 2)],
            True,
            id="the merged one is listed",
        ),
        pytest.param(
            SHARED.replace("own: *v", "other: 3").replace("other: 1", "other: 2"),
            [Replace("/base/other", 2), Remove("/one/own"), Replace("/one/other", 3)],
            False,
            id="hidden and changed",
        ),
        pytest.param(
            SHARED.replace("  <<: *base\n", "  values: *v\n  other: 1\n"),
            [Replace("/two/0", "amd64")],
            False,
            id="a merge key written out",
        ),
    ],
)
def test_text_that_aliases_share_is_followed_to_every_use(
    after: str, operations: list[TreeOperation], proven: bool
) -> None:
    assert (told(SHARED, after, *operations) is None) is proven


def test_comments_may_go_with_the_lines_that_an_operation_removes_and_with_no_others() -> None:
    before = "a:\n# of a\n  x: 1 # of x\n# of y\n  y: 2 # of y\nb: '# no comment' # of b\n"
    assert told(before, before.replace("  x: 1 # of x\n", ""), Remove("/a/x")) is None
    assert "# of y" in str(told(before, before.replace("  x: 1 # of x\n# of y\n", ""), Remove("/a/x")))
    assert "# of b" in str(told(before, before.replace("  x: 1 # of x\n", "").replace(" # of b", ""), Remove("/a/x")))


def test_comments_between_members_may_go_with_all_of_them() -> None:
    """And stay where one of the members does."""
    before = "a:\n  x: 1\n  # between\n  y: 2\nb: 1 # of b\n"
    gone = [Remove("/a/x"), Remove("/a/y"), Add("/a/z", 3)]
    assert told(before, "a:\n  z: 3\nb: 1 # of b\n", *gone) is None
    assert "# of b" in str(told(before, "a:\n  z: 3\nb: 1\n", *gone))
    assert "# between" in str(told(before, "a:\n  y: 2\nb: 1 # of b\n", Remove("/a/x")))


def test_a_renamed_key_stays_where_it_is() -> None:
    assert told("b: 1\na: 2\n", "c: 1\na: 2\n", Rename("/b", "c")) is None
    assert told("b: 1\na: 2\n", "c: 1\nd: 2\n", Rename("/b", "c")) is not None


def test_added_documents_are_listed_too() -> None:
    source, after = SourceText.of("web.yaml", b"a: 1\n"), "a: 1\n---\nb: 1\n"
    assert prove(source, after, {}, {0: [{"b": 1}]}) is None
    assert prove(source, after, {}, {0: [{"b": 2}]}) is not None
    assert prove(source, after.replace("a: 1", "a: 2"), {}, {0: [{"b": 1}]}) is not None
    assert prove(source, after, {}) is not None


def test_operations_that_fit_nothing_prove_nothing() -> None:
    """No exception of a rule's mistake reaches the user."""
    assert "does not fit" in str(told("a: 1\n", "a: 1\n", Remove("/b")))


DOCKERFILE = "FROM x AS y\n# one\nENV A=1 \\\n  # two\n  GOARCH=amd64\n\nRUN go build\n"


@pytest.mark.parametrize(
    ("after", "proven"),
    [
        pytest.param(DOCKERFILE.replace("amd64", "${TARGETARCH}"), True, id="as listed"),
        pytest.param(DOCKERFILE.replace("amd64", "${TARGETARCH} B=2"), False, id="more than listed"),
        pytest.param(DOCKERFILE.replace("amd64", "${TARGETARCH}").replace("# two", "# 2"), False, id="a comment"),
        pytest.param(DOCKERFILE.replace("amd64", "${TARGETARCH}").replace("# one\n", ""), False, id="one comment less"),
        pytest.param(
            DOCKERFILE.replace("amd64", "${TARGETARCH}").replace("\n\n", "\n"), False, id="an empty line less"
        ),
        pytest.param(DOCKERFILE.replace("amd64", "${TARGETARCH}").replace("RUN go", "RUN cc"), False, id="elsewhere"),
        pytest.param(DOCKERFILE.replace("amd64", "${TARGETARCH}").replace("\n", "\r\n"), False, id="line breaks"),
        pytest.param(DOCKERFILE.replace("amd64", "${TARGETARCH}") + "RUN <<E\nE\n", False, id="a here-document"),
    ],
)
def test_a_dockerfile_is_compared_as_the_list_of_its_instructions(after: str, proven: bool) -> None:
    operations = [Replace("/1", "ENV A=1   GOARCH=${TARGETARCH}")]
    assert (told(DOCKERFILE, after, *operations, path="Dockerfile") is None) is proven
    declared = after.replace("FROM x AS y\n", "FROM x AS y\nARG TARGETARCH\n")
    more = [*operations, Add("/1", "ARG TARGETARCH")]
    assert (told(DOCKERFILE, declared, *more, path="Dockerfile") is None) is proven


def test_a_comment_that_another_document_of_the_same_chunk_loses_is_a_difference() -> None:
    """A text with an explicit end is one chunk of several documents."""
    before = "a: 1\nb: [x] # why\n---\nc: 1 # here\n...\n"
    after = before.replace("a: 1", "a: 2")
    assert told(before, after, Replace("/a", 2)) is None
    for lost in (" # why", " # here"):
        assert f"has lost a comment:{lost}" in str(told(before, after.replace(lost, ""), Replace("/a", 2)))
