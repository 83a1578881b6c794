"""Edits of texts. Texts stand between the lines of `before` and `after`."""

from collections.abc import Sequence
from typing import Any

import pytest

from polyarch.manifests.edit.editor import render
from polyarch.manifests.edit.layout import CannotEdit, commented_affinity
from polyarch.manifests.operations import Add, OperationError, Remove, Rename, Replace, TreeOperation
from polyarch.manifests.proof import prove
from polyarch.manifests.scan.nodes import compose
from polyarch.manifests.scan.text import SourceText, TextEdit, ordered, splice

EXPRESSION = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "386"]}
AFFINITY = {"nodeAffinity": {"required": {"terms": [{"matchExpressions": [EXPRESSION]}]}}}


def edited(before: str | bytes, *operations: TreeOperation, number: int = 0) -> str:
    """The text after the operations on a document, proven."""
    source = SourceText.of("web.yaml", before if isinstance(before, bytes) else before.encode())
    document = compose(source)[number]
    after = splice(source.text, render(source, document, operations))
    assert prove(source, after, {document.index: operations}) is None
    return after


def refused(before: str, *operations: TreeOperation) -> str:
    source = SourceText.of("web.yaml", before.encode())
    with pytest.raises(CannotEdit) as reason:
        render(source, compose(source)[0], operations)
    return reason.value.reason


POD = """\
kind: Pod
spec:
  # what runs
  containers:  # two of them
  - name: web
    image: web:1

  # and where
  tolerations: []
"""


@pytest.mark.req("MF-060", "MF-062")
def test_only_the_lines_that_must_change_do() -> None:
    """Comments, blank lines, quotes and order stay; new lines look like the old ones."""
    assert edited(POD, Add("/spec/affinity", AFFINITY)) == POD.replace(
        "  containers:",
        """\
  affinity:
    nodeAffinity:
      required:
        terms:
        - matchExpressions:
          - key: kubernetes.io/arch
            operator: In
            values:
            - amd64
            - "386"
  containers:""",
    )


@pytest.mark.req("MF-061")
def test_offsets_are_right_in_any_document_of_a_file() -> None:
    """Astral characters and documents before the one that is edited."""
    before = "a: 𝒳ü\n---\nb: '𝒳' # 𝒳\nc: d"
    assert edited(before, Replace("/c", "e"), number=1) == "a: 𝒳ü\n---\nb: '𝒳' # 𝒳\nc: e"


@pytest.mark.req("MF-061")
def test_a_byte_order_mark_and_cr_lf_stay() -> None:
    """Inserted lines end with CR LF."""
    data = b"\xef\xbb\xbfa: 1\r\nb:\r\n- c\r\n"
    after = edited(data, Add("/b/-", {"d": 1, "e": 2}))
    assert after == "a: 1\r\nb:\r\n- c\r\n- d: 1\r\n  e: 2\r\n"
    assert SourceText.of("web.yaml", data).encode(after).startswith(b"\xef\xbb\xbfa: 1\r\n")


SMALL = {"x": {"w": ["z"]}}

STYLES = [
    pytest.param(
        "spec:\n    containers:\n    - name: a\n",
        "spec:\n    affinity:\n        x:\n            w:\n            - z\n    containers:\n    - name: a\n",
        id="step of four",
    ),
    pytest.param(
        "spec:\n  containers:\n    - name: a\n",
        "spec:\n  affinity:\n    x:\n      w:\n        - z\n  containers:\n    - name: a\n",
        id="indented sequences",
    ),
    pytest.param(
        "other:\n  - a\nspec:\n  containers: [{name: a}]\n",
        "other:\n  - a\nspec:\n  affinity:\n    x:\n      w:\n        - z\n  containers: [{name: a}]\n",
        id="sequences as elsewhere in the document",
    ),
    pytest.param(
        "other:\n  - a\nspec:\n  containers:\n  - name: a\n",
        "other:\n  - a\nspec:\n  affinity:\n    x:\n      w:\n      - z\n  containers:\n  - name: a\n",
        id="sequences as in the pod specification first",
    ),
    pytest.param(
        "spec:\n  containers:\n  - a\n  volumes:\n    - b\n",
        "spec:\n  affinity:\n    x:\n      w:\n      - z\n  containers:\n  - a\n  volumes:\n    - b\n",
        id="sequences as the one that is nearest to the insertion",
    ),
    pytest.param(
        "spec:\n  containers: []\n",
        "spec:\n  affinity:\n    x:\n      w:\n      - z\n  containers: []\n",
        id="nothing to see: not indented",
    ),
]


@pytest.mark.req("MF-062")
@pytest.mark.parametrize(("before", "after"), STYLES)
def test_inserted_text_takes_the_style_around_it(before: str, after: str) -> None:
    """The step of the pod specification, sequences as in it."""
    assert edited(before, Add("/spec/affinity", SMALL)) == after


@pytest.mark.req("MF-062")
def test_a_pod_specification_in_a_list_steps_by_two() -> None:
    """No parent's column to compare with."""
    before = "- containers:\n  - name: a\n"
    after = "- affinity:\n    x:\n      w:\n      - z\n  containers:\n  - name: a\n"
    assert edited(before, Add("/0/affinity", SMALL)) == after


PLACES = [
    pytest.param(
        "spec:\n  # about a\n  a: 1\n  # about containers\n  containers: []\n  b: 2\n",
        "spec:\n  # about a\n  a: 1\n  # about containers\n  containers: []\n  affinity: {}\n  b: 2\n",
        id="before the first key without a comment above",
    ),
    pytest.param(
        "spec:\n  # about it\n  containers: []\n",
        "spec:\n  # about it\n  affinity: {}\n  containers: []\n",
        id="before the first key where all have comments",
    ),
    pytest.param(
        "spec:\n  containers: []\n  # affinity:\n  #   nodeAffinity: {}\n  # and more\n  b: 2\n",
        "spec:\n  containers: []\n  # affinity:\n  #   nodeAffinity: {}\n  # and more\n  affinity: {}\n  b: 2\n",
        id="below a commented affinity",
    ),
    pytest.param(
        "spec:\n  #affinity: {}\n  containers: []\n",
        "spec:\n  #affinity: {}\n  affinity: {}\n  containers: []\n",
        id="below one before the first key",
    ),
    pytest.param(
        "spec:\n  containers: []\n#  affinity: {}",
        "spec:\n  containers: []\n#  affinity: {}\n  affinity: {}",
        id="below one at the end of the file",
    ),
    pytest.param(
        "spec:\n  containers: []\n# affinity of the next thing\n# affinity:\nb: 1\n",
        "spec:\n  affinity: {}\n  containers: []\n# affinity of the next thing\n# affinity:\nb: 1\n",
        id="not below one that belongs to something outside",
    ),
    pytest.param(
        "spec:\n  containers:\n  - a: 1\n    # affinity:\n    b: 2\n",
        "spec:\n  affinity: {}\n  containers:\n  - a: 1\n    # affinity:\n    b: 2\n",
        id="not below one inside a container",
    ),
    pytest.param(
        "spec:\n\n  containers: []\n",
        "spec:\n\n  affinity: {}\n  containers: []\n",
        id="behind a blank line",
    ),
    pytest.param("--- {containers: []}\n", "--- {containers: [], affinity: {}}\n", id="flow style at the end"),
]


@pytest.mark.req("MF-063")
@pytest.mark.parametrize(("before", "after"), PLACES)
def test_affinity_is_inserted_where_a_reader_expects_it(before: str, after: str) -> None:
    """Below a comment that proposes it, else first."""
    path = "/spec/affinity" if before.startswith("spec") else "/affinity"
    assert edited(before, Add(path, {})) == after


SCAFFOLD = """\
spec:
  containers: []
  # Say where it runs:
  # affinity:
  #   nodeAffinity:
  #     required:
  #       - key: kubernetes.io/arch

  # about b
  b: 2
"""


@pytest.mark.req("MF-063")
def test_a_commented_affinity_is_uncommented() -> None:
    """``--uncomment``; the proof is that of adding what it says."""
    source = SourceText.of("web.yaml", SCAFFOLD.encode())
    (document,) = compose(source)
    found = commented_affinity(document, "/spec")
    assert found is not None
    assert found.value == {"nodeAffinity": {"required": [{"key": "kubernetes.io/arch"}]}}
    after = splice(source.text, [found.edit])
    assert after == SCAFFOLD.replace("  # affinity", "  affinity").replace("  #   ", "    ").replace("#     ", "    ")
    assert prove(source, after, {0: [Add("/spec/affinity", found.value)]}, uncommented=True) is None


@pytest.mark.req("MF-063")
@pytest.mark.parametrize(
    "comment",
    [
        pytest.param("", id="no comment"),
        pytest.param("  # affinity: it is not set\n", id="prose"),
        pytest.param("  # affinity:\n  #   podAffinity: {key: kubernetes.io/arch}\n", id="another affinity"),
        pytest.param("  # affinity:\n  #   nodeAffinity: {key: disk}\n", id="no platform in it"),
        pytest.param("  # affinity:\n  #   nodeAffinity: [\n", id="no YAML"),
        pytest.param("  affinity: {}\n  # affinity:\n  #   nodeAffinity: {key: kubernetes.io/arch}\n", id="one is set"),
    ],
)
def test_other_comments_stay_comments(comment: str) -> None:
    """Only what says an affinity with platform expressions."""
    (document,) = compose(SourceText.of("web.yaml", f"spec:\n{comment}  containers: []\n".encode()))
    assert commented_affinity(document, "/spec") is None


@pytest.mark.req("MF-063")
def test_a_comment_at_the_first_column_is_uncommented_to_the_right_one() -> None:
    """As editors comment lines out, prose behind it is left."""
    text = "spec:\n  containers: []\n#  affinity:\n#    nodeAffinity: {key: kubernetes.io/os}\n# see above\n"
    source = SourceText.of("web.yaml", text.encode())
    found = commented_affinity(compose(source)[0], "/spec")
    assert found is not None
    assert splice(text, [found.edit]).endswith(
        "[]\n  affinity:\n    nodeAffinity: {key: kubernetes.io/os}\n# see above\n"
    )


NOTHINGS = ["affinity: {}", "affinity: null", "affinity: ~", "affinity:", "affinity: []", "affinity:   ''"]


@pytest.mark.req("MF-064")
@pytest.mark.parametrize("nothing", NOTHINGS)
@pytest.mark.parametrize("comment", ["", "  # keep"])
def test_a_value_that_says_nothing_is_replaced(nothing: str, comment: str) -> None:
    """A comment on the line is kept."""
    before = f"spec:\n  {nothing}{comment}\n  # next\n  b: 1\n"
    after = f"spec:\n  affinity:{comment}\n    x:\n      w:\n      - z\n  # next\n  b: 1\n"
    assert edited(before, Replace("/spec/affinity", SMALL)) == after


REPLACED = [
    pytest.param("a: 'x' # c\n", "it's", "a: 'it''s' # c\n", id="single quotes stay"),
    pytest.param('a: "x" # c\n', "w", 'a: "w" # c\n', id="double quotes stay"),
    pytest.param("a: x\n", "386", 'a: "386"\n', id="quotes where a number would be read"),
    pytest.param("a: x # c\n", 5, "a: 5 # c\n", id="a number"),
    pytest.param("a:\n", True, "a: true\n", id="into nothing"),
    pytest.param("a: >-\n  x\n  y\n# c\n", "z", "a: z\n# c\n", id="a folded text"),
    pytest.param("a: x\n  y\n", None, "a: null\n", id="a text over two lines"),
    pytest.param("a: # c\n  b: 1 # d\n  # e\n  c: 2\n# f\n", "z", "a: z # c\n# f\n", id="a block by a text"),
    pytest.param("a:\n- b\n- c\n", {}, "a: {}\n", id="a block by an empty one"),
    pytest.param("a: # c\n- b\n", ["x", "w"], "a: # c\n- x\n- w\n", id="a sequence by another"),
    pytest.param("a:\n- b\n", {"x": 1}, "a:\n  x: 1\n", id="a sequence by a mapping"),
    pytest.param("a:\n    x: 1\n", ["b"], "a:\n- b\n", id="a mapping by a sequence"),
    pytest.param("a: [b, c] # d\n", ["x", {"w": 1}], "a: [x, {w: 1}] # d\n", id="flow stays flow"),
    pytest.param("a: {b: c,\n  d: e}\n", "x", "a: x\n", id="flow by a text"),
    pytest.param("a: &x # c\n  b: 1\n", 5, "a: &x 5 # c\n", id="a block with a comment behind its anchor"),
    pytest.param("a: &x # c\n- b\n", {}, "a: &x {} # c\n", id="a sequence with one"),
    pytest.param("a: &x # !c\n  b: 1\n", ["d"], "a: &x # !c\n- d\n", id="one that looks like a tag"),
    pytest.param("a: # c\n  &x # d\n  b: 1\n", "z", "a: # c\n  &x z # d\n", id="an anchor on its own line"),
]


@pytest.mark.req("MF-060")
@pytest.mark.parametrize(("before", "value", "after"), REPLACED)
def test_values_are_replaced_in_their_place(before: str, value: Any, after: str) -> None:
    """What is around a value stays."""
    assert edited(before, Replace("/a", value)) == after


EXTENDED = [
    pytest.param("a:\n  b: 1 # c\n# d\n", "/a/m", {"x": 1}, "a:\n  b: 1 # c\n  m:\n    x: 1\n# d\n", id="mapping"),
    pytest.param("a:\n- b # c\n\n# d\n", "/a/-", "x", "a:\n- b # c\n- x\n\n# d\n", id="sequence"),
    pytest.param(
        "a:\n  - b: 1\n", "/a/-", {"x": 1, "w": [2]}, "a:\n  - b: 1\n  - x: 1\n    w:\n      - 2\n", id="items"
    ),
    pytest.param("a:\n- b\n", "/a/0", {"x": 1, "w": 2}, "a:\n- x: 1\n  w: 2\n- b\n", id="before the first"),
    pytest.param("a:\n- b\n- c\n", "/a/1", "x", "a:\n- b\n- x\n- c\n", id="between"),
    pytest.param("a: 1", "/b", 2, "a: 1\nb: 2", id="a file without a last line break"),
    pytest.param("a: |+\n  x\n\n\n# c\n", "/b", 2, "a: |+\n  x\n\n\nb: 2\n# c\n", id="a text that keeps blank lines"),
    pytest.param("a: |\n  x\n\n\n", "/b", 2, "a: |\n  x\nb: 2\n\n\n", id="a text that does not"),
    pytest.param("a: |\n  x", "/b", 2, "b: 2\na: |\n  x", id="a text that ends the file"),
    pytest.param("a: |\n  x  ", "/b", 2, "b: 2\na: |\n  x  ", id="a text whose blanks end the file"),
    pytest.param("a: |-\n  x", "/b", 2, "a: |-\n  x\nb: 2", id="a stripped text that ends the file"),
    pytest.param("a: &x !!str |2-\n  x", "/b", 2, "a: &x !!str |2-\n  x\nb: 2", id="one with an anchor and a tag"),
    pytest.param("a: *b\n# c\n", "/b", 2, None, id="an undefined alias"),
    pytest.param(
        "x: &b 1\na:\n  c: *b # c\n# d\n", "/a/m", 2, "x: &b 1\na:\n  c: *b # c\n  m: 2\n# d\n", id="alias last"
    ),
    pytest.param("- - a\n", "/0/0", "x", "- - x\n  - a\n", id="before a sequence's first in a sequence"),
    pytest.param("- a: 1\n", "/0/b", "x", "- a: 1\n  b: x\n", id="a mapping in a sequence"),
    pytest.param("-\n  a: 1\n", "/0/b", "x", "-\n  a: 1\n  b: x\n", id="a mapping below its dash"),
    pytest.param("a: # c\n  # d\n  b: 1\n", "/a/m", 2, "a: # c\n  # d\n  b: 1\n  m: 2\n", id="behind comments"),
    pytest.param('a:\n\tb: "1"\n', "/a/m", 2, None, id="tabs do not parse"),
    pytest.param("a:\t1 \t# c\n", "/b", 2, "a:\t1 \t# c\nb: 2\n", id="tabs between things"),
]


@pytest.mark.req("MF-064")
@pytest.mark.parametrize(("before", "path", "value", "after"), EXTENDED)
def test_block_collections_grow_by_lines(before: str, path: str, value: Any, after: str | None) -> None:
    """An existing block is extended."""
    if after is None:
        with pytest.raises(ValueError, match="line"):
            edited(before, Add(path, value))
    else:
        assert edited(before, Add(path, value)) == after


FLOWS = [
    pytest.param("a: {b: 1}\n", Add("/a/m", {"x": [1]}), "a: {b: 1, m: {x: [1]}}\n", id="member"),
    pytest.param("a: [b]\n", Add("/a/-", "386"), 'a: [b, "386"]\n', id="element"),
    pytest.param("a: [b, c,]\n", Add("/a/-", "x"), "a: [b, c, x,]\n", id="trailing comma"),
    pytest.param("a: [b, c]\n", Add("/a/0", "x"), "a: [x, b, c]\n", id="first"),
    pytest.param("a: [b, c]\n", Add("/a/1", "x"), "a: [b, x, c]\n", id="between"),
    pytest.param("a: [\n  b, # c\n  d # e\n]\n", Add("/a/-", "x"), "a: [\n  b, # c\n  d, # e\n  x\n]\n", id="lines"),
    pytest.param("a: [\n  b,\n  d,\n]\n", Add("/a/-", "x"), "a: [\n  b,\n  d,\n  x,\n]\n", id="lines, trailing comma"),
    pytest.param("a: [\n  b,\n  d\n]\n", Add("/a/0", "x"), "a: [\n  x,\n  b,\n  d\n]\n", id="lines, first"),
    pytest.param("a: [\n  b,\n  d]\n", Add("/a/-", "x"), "a: [\n  b,\n  d, x]\n", id="bracket on the last line"),
    pytest.param("a: {b: [], c: }\n", Replace("/a/b", ["x"]), "a: {b: [x], c: }\n", id="empty inside flow"),
    pytest.param("a: {b: [], c: }\n", Replace("/a/c", "x"), "a: {b: [], c: x}\n", id="nothing inside flow"),
    pytest.param("a: {b, c}\n", Replace("/a/b", "x"), "a: {b: x, c}\n", id="a key alone"),
    pytest.param("a: {b: ''}\n", Replace("/a/b", "x'"), "a: {b: 'x'''}\n", id="quotes"),
    pytest.param('{"a":[1],"b":2}', Add("/c", {"d": "e"}), '{"a":[1],"b":2,"c":{"d":"e"}}', id="tight JSON"),
    pytest.param('{"a": [1]}', Add("/a/-", "x"), '{"a": [1, "x"]}', id="JSON on one line"),
    pytest.param('{"a": {}}', Replace("/a", {"x": [True, None]}), '{"a": {"x": [true, null]}}', id="JSON value"),
    pytest.param('{"a": 1}', Rename("/a", "b"), '{"b": 1}', id="JSON key"),
]


@pytest.mark.req("MF-064")
@pytest.mark.parametrize(("before", "operation", "after"), FLOWS)
def test_flow_collections_grow_in_flow_style(before: str, operation: TreeOperation, after: str) -> None:
    """Separators are right, JSON stays JSON."""
    assert edited(before, operation) == after


@pytest.mark.req("MF-064")
def test_json_over_several_lines_grows_by_lines() -> None:
    """With the indentation it has."""
    before = '{\n    "spec": {\n        "containers": []\n    }\n}\n'
    assert edited(before, Add("/spec/affinity", {"x": ["386", {}]})) == (
        '{\n    "spec": {\n        "containers": [],\n        "affinity": {\n            "x": [\n'
        '                "386",\n                {}\n            ]\n        }\n    }\n}\n'
    )


REMOVED = [
    pytest.param("a:\n- b # c\n# d\n- e # f\n- g\n", ["/a/1"], "a:\n- b # c\n# d\n- g\n", id="comments above stay"),
    pytest.param("a:\n- b\n- c", ["/a/1"], "a:\n- b\n", id="at the end of a file"),
    pytest.param("a:\n- b: 1\n  c: |\n    x\n\n- d\n", ["/a/0"], "a:\n\n- d\n", id="several lines"),
    pytest.param("a:\n- b\n- c\n", ["/a/1", "/a/0"], "a: []\n", id="all of them"),
    pytest.param("a: # c\n  b: 1\n# d\n", ["/a/b"], "a: {} # c\n# d\n", id="the only member"),
    pytest.param("a:\n- b: 1 # c\n  # d\n  e: 2\n", ["/a/0/b"], "a:\n- # d\n  e: 2\n", id="the member at the dash"),
    pytest.param("a:\n- b: 1\n\n  e: 2\n", ["/a/0/b"], "a:\n- e: 2\n", id="the member at the dash, a blank line"),
    pytest.param("- - a\n  - b\n  - c\n", ["/0/0", "/0/0"], "- - c\n", id="two elements at the dash"),
    pytest.param("a: [b, c, d]\n", ["/a/1"], "a: [b, d]\n", id="flow, between"),
    pytest.param("a: [b, c, d]\n", ["/a/0"], "a: [c, d]\n", id="flow, first"),
    pytest.param("a: [b, c, d]\n", ["/a/2", "/a/1"], "a: [b]\n", id="flow, last two"),
    pytest.param("a: [b, c,]\n", ["/a/1"], "a: [b,]\n", id="flow, trailing comma"),
    pytest.param("a: [b]\n", ["/a/0"], "a: []\n", id="flow, all"),
    pytest.param("a: {b: {c: 1}}\n", ["/a/b/c"], "a: {b: {}}\n", id="flow, all of one inside"),
    pytest.param("a: [\n  b, # x\n  c, # y\n  d # z\n]\n", ["/a/2"], "a: [\n  b, # x\n  c # y\n]\n", id="lines, last"),
    pytest.param("a: [\n  b, # x\n  c, # y\n  d\n]\n", ["/a/1"], "a: [\n  b, # x\n  d\n]\n", id="lines, between"),
    pytest.param('{\n  "a": 1,\n  "b": 2\n}\n', ["/b"], '{\n  "a": 1\n}\n', id="JSON, last"),
    pytest.param("a: &x # c\n  b: 1\nd: 2\n", ["/a/b"], "a: &x {} # c\nd: 2\n", id="all of an anchored mapping"),
    pytest.param("a: &x # c\r\n- 1\r\n", ["/a/0"], "a: &x [] # c\r\n", id="all of an anchored sequence"),
    pytest.param("- &x # c\n  b: 1\n", ["/0/b"], "- &x {} # c\n", id="all of an anchored element"),
]


@pytest.mark.req("MF-065")
@pytest.mark.parametrize(("before", "paths", "after"), REMOVED)
def test_removed_members_take_their_lines_or_one_separator(before: str, paths: Sequence[str], after: str) -> None:
    """And what would be empty is written as empty."""
    assert edited(before, *map(Remove, paths)) == after


MERGED_EDITS = [
    pytest.param(
        "a:\n- b\n- c\n- d\n",
        [Remove("/a/1"), Replace("/a/1", "x"), Add("/a/0", "w"), Add("/a/-", "z")],
        "a:\n- w\n- b\n- x\n- z\n",
        id="indexes count what is left",
    ),
    pytest.param(
        "a: 1\n",
        [Add("/b", {}), Add("/b/c", []), Add("/b/c/-", "x"), Rename("/b", "d"), Replace("/a", 2)],
        "a: 2\nd:\n  c:\n  - x\n",
        id="what is new changes with what follows",
    ),
    pytest.param("a: 1\nb: 2\n", [Add("/c", 3), Remove("/c")], "a: 1\nb: 2\n", id="added and removed: nothing"),
    pytest.param("a: [b, c]\n", [Remove("/a/1"), Add("/a/-", "x")], "a: [b, x]\n", id="one for another in flow"),
    pytest.param("a: {b: 1}\n", [Remove("/a/b"), Add("/a/c", 2)], "a: {c: 2}\n", id="all for another in flow"),
    pytest.param("a:\n  b: 1\n", [Remove("/a/b"), Add("/a/c", 2)], "a:\n  c: 2\n", id="all for another in block"),
    pytest.param(
        '{\n  "a": 1,\n  "b": 2\n}\n', [Remove("/b"), Add("/c", 3)], '{\n  "a": 1,\n  "c": 3\n}\n', id="JSON lines"
    ),
    pytest.param(
        "a:\n  b:\n    c: 1\n",
        [Add("/a/b/d", 2), Add("/a/e", 3), Add("/f", 4)],
        "a:\n  b:\n    c: 1\n    d: 2\n  e: 3\nf: 4\n",
        id="three levels at one line",
    ),
    pytest.param(
        "a:\n  b: 1\n'c': 2", [Rename("/c", "it's"), Rename("/a", "386")], "\"386\":\n  b: 1\n'it''s': 2", id="keys"
    ),
    pytest.param("a: 1\n", [], "a: 1\n", id="nothing to do"),
]


@pytest.mark.parametrize(("before", "operations", "after"), MERGED_EDITS)
def test_operations_are_merged_before_they_are_written(
    before: str, operations: Sequence[TreeOperation], after: str
) -> None:
    assert edited(before, *operations) == after


SHARED = "a: &x\n  k: [1]\nb: *x\nc:\n- *x # c\n"


@pytest.mark.req("MF-053")
def test_what_aliases_share_is_edited_once_if_all_uses_agree() -> None:
    """An anchored node is edited where its anchor stands."""
    each = [Add(f"{use}/k/-", 2) for use in ("/a", "/b", "/c/0")]
    assert edited(SHARED, *each) == SHARED.replace("[1]", "[1, 2]")
    assert edited(SHARED, *[Replace(f"{use}/k", "x") for use in ("/b", "/c/0", "/a")]) == SHARED.replace("[1]", "x")
    whole = [Replace(use, {"m": 1}) for use in ("/a", "/b", "/c/0")]
    assert edited(SHARED, *whole) == SHARED.replace("  k: [1]", "  m: 1")


@pytest.mark.req("MF-053")
@pytest.mark.parametrize(
    ("before", "operations"),
    [
        pytest.param(SHARED, [Add("/a/k/-", 2)], id="one use alone"),
        pytest.param(SHARED, [Add("/a/k/-", 2), Add("/b/k/-", 2), Add("/c/0/k/-", 3)], id="one use differs"),
        pytest.param(SHARED, [Replace("/b", 1)], id="an alias replaced"),
        pytest.param(SHARED, [Remove("/a")], id="an anchor removed"),
        pytest.param(SHARED, [Replace("/c", [])], id="an alias inside what is replaced"),
        pytest.param("x: &x {a: {b: 1}}\ny: {<<: *x}\n", [Add("/x/a/c", 1)], id="a merged member"),
        pytest.param("x: &x {a: {b: 1}}\ny: {<<: *x}\n", [Add("/x/c", 1)], id="a merged mapping"),
        pytest.param("x: &x {a: {b: 1}}\ny: {<<: *x}\n", [Remove("/y/a")], id="a member of a merge key"),
        pytest.param("x: &x {a: 1}\ny: {<<: *x, a: 2}\n", [Remove("/y/a")], id="a member that hides a merged one"),
        pytest.param("x: &x {a: 1}\ny: {<<: *x, a: 2}\n", [Rename("/y/a", "b")], id="a key that hides a merged one"),
        pytest.param("a: !local x\n", [Replace("/a", "w")], id="a tag"),
        pytest.param("? a\n: b\nc: d\n", [Add("/e", 1)], id="an explicit key"),
        pytest.param("a: [b: c]\n", [Add("/a/0/d", 1)], id="a pair without braces"),
        pytest.param("&k a: 1\nb: *k\n", [Rename("/a", "c")], id="an anchored key"),
        pytest.param("a: 1\na: 2\n", [Replace("/a", 3)], id="a repeated key"),
        pytest.param("a: 1\n", [Remove("/a")], id="nothing left"),
        pytest.param("a: 1\n", [Replace("", {})], id="the whole document"),
        pytest.param("- |\n  x", [Add("/-", 1)], id="a text that ends the file in a sequence"),
    ],
)
def test_what_would_need_a_guess_is_refused(before: str, operations: Sequence[TreeOperation]) -> None:
    """With a reason for people."""
    assert refused(before, *operations)


@pytest.mark.req("MF-053")
def test_merged_members_are_edited_if_all_uses_agree() -> None:
    """A merge key is a use like an alias; an own key beside it is not shared."""
    before = "x: &x {a: {b: 1}}\ny:\n  <<: *x\n"
    assert edited(before, Add("/x/a/c", 2), Add("/y/a/c", 2)) == before.replace("b: 1", "b: 1, c: 2")
    assert edited(before, Add("/y/own", 3)) == before + "  own: 3\n"


@pytest.mark.req("MF-053")
def test_an_alias_that_goes_takes_nothing_with_it() -> None:
    """Its anchor stays for the others."""
    assert edited(SHARED, Remove("/b"), Remove("/c/0")) == "a: &x\n  k: [1]\nc: []\n"


def test_operations_that_do_not_fit_are_no_edits() -> None:
    source = SourceText.of("web.yaml", b"a: 1\n")
    with pytest.raises(OperationError):
        render(source, compose(source)[0], [Remove("/b")])


@pytest.mark.req("MF-060")
def test_edits_apply_from_a_set_in_any_order() -> None:
    """Disjoint, on offsets of the old text; insertions at one place keep their order."""
    edits = [TextEdit(4, 5, "X"), TextEdit(0, 0, "<"), TextEdit(2, 4, ""), TextEdit(2, 2, "1"), TextEdit(2, 2, "2")]
    assert splice("abcdef", edits) == "<ab12Xf"
    with pytest.raises(ValueError, match="overlap at offset 2"):
        ordered([TextEdit(0, 3, ""), TextEdit(2, 4, "")])


@pytest.mark.req("MF-054", "MF-060")
@pytest.mark.parametrize(
    ("before", "gone", "after"),
    [
        ("[a, # 1\n  b, # 2\n  c] # 3\n", (2, 1), "[a # 1\n  ] # 3\n"),
        ("[a, # 1\n  b, # 2\n  c] # 3\n", (1,), "[a, # 1\n  c] # 3\n"),
        ("[a, # 1\n  b, # 2\n  c] # 3\n", (0,), "[b, # 2\n  c] # 3\n"),
        ("[a, # 1\n  # 2\n  b, # 3\n  # 4\n  c]\n", (1,), "[a, # 1\n  # 2\n  # 4\n  c]\n"),
        ("[a,\n  # 1\n  b, c]\n", (1,), "[a\n  # 1\n  , c]\n"),
        ("[a, b, # 1\n  # 2\n  c]\n", (0, 0), "[\n  # 2\n  c]\n"),
        ("[a, b, # 1\n  # 2\n  c,\n  # 3\n  d]\n", (3, 2, 1), "[a\n  # 2\n  # 3\n  ]\n"),
        ("[\n  # 1\n  a, # 2\n  # 3\n  b # 4\n  # 5\n]\n", (1,), "[\n  # 1\n  a # 2\n  # 3\n  # 5\n]\n"),
        ("[\r\n  a, # 1\r\n  # 2\r\n  b, c]\r\n", (1,), "[\r\n  a # 1\r\n  # 2\r\n  , c]\r\n"),
    ],
)
def test_comments_between_removed_elements_of_a_flow_list_stay(before: str, gone: Sequence[int], after: str) -> None:
    operations = [Remove(f"/x/{place}") for place in gone]
    assert edited(f"x: {before}", *operations) == f"x: {after}"


@pytest.mark.req("MF-054", "MF-060")
def test_comments_of_documents_that_share_a_chunk_are_compared_once() -> None:
    """A text with an explicit end is not split into documents."""
    text = "x: [a, # 1\n  b]\n---\n# 2\ny: 1 # 3\n...\n"
    assert edited(text, Remove("/x/1")) == text.replace("[a, # 1\n  b]", "[a # 1\n  ]")
    assert edited(text, Replace("/y", 2), number=1) == text.replace("y: 1", "y: 2")
