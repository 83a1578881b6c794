"""Operations on objects: what repairs are made of, and their JSON 6902."""

from typing import Any

import pytest

from polyarch.kube.patches import apply_patch
from polyarch.manifests.finding import ObjectReference, Severity, fingerprint
from polyarch.manifests.operations import (
    Add,
    OperationError,
    Remove,
    Rename,
    Replace,
    TreeOperation,
    apply,
    ensure,
    pointer,
    read,
    rebase,
    same,
    segments,
    to_json_patch,
)

OBJECT: Any = {"a": {"x/y": 1, "b": [1, 2, 3]}, "c": None}

FITTING = [
    pytest.param(Add("/a/d", 4), {"a": {"x/y": 1, "b": [1, 2, 3], "d": 4}, "c": None}, id="add a member"),
    pytest.param(Add("/a/b/-", 4), {"a": {"x/y": 1, "b": [1, 2, 3, 4]}, "c": None}, id="append an element"),
    pytest.param(Add("/a/b/1", 4), {"a": {"x/y": 1, "b": [1, 4, 2, 3]}, "c": None}, id="insert an element"),
    pytest.param(Remove("/a/b/0"), {"a": {"x/y": 1, "b": [2, 3]}, "c": None}, id="remove an element"),
    pytest.param(Remove("/a/x~1y"), {"a": {"b": [1, 2, 3]}, "c": None}, id="remove a member with a slash"),
    pytest.param(Replace("/c", {"d": 1}), {"a": {"x/y": 1, "b": [1, 2, 3]}, "c": {"d": 1}}, id="replace null"),
    pytest.param(Rename("/a", "e"), {"e": {"x/y": 1, "b": [1, 2, 3]}, "c": None}, id="rename a member"),
]


@pytest.mark.parametrize(("operation", "expected"), FITTING)
def test_an_operation_gives_a_new_object(operation: TreeOperation, expected: Any) -> None:
    before = {"a": {"x/y": 1, "b": [1, 2, 3]}, "c": None}
    assert apply(before, [operation]) == expected
    assert before == OBJECT


@pytest.mark.req("MF-070")
@pytest.mark.parametrize(("operation", "expected"), FITTING)
def test_json_patch_says_the_same(operation: TreeOperation, expected: Any) -> None:
    """The reference reading of JSON 6902 gives what the operation gives."""
    assert apply_patch(OBJECT, to_json_patch([operation], OBJECT)) == expected


@pytest.mark.req("MF-070")
def test_json_patch_tests_what_it_replaces() -> None:
    """``test`` and ``replace``, so that the patch of another object fails."""
    patch = to_json_patch([Replace("/a/b/0", 9), Remove("/a/b/0")], OBJECT)
    assert [(step.op, step.path, step.value) for step in patch[:3]] == [
        ("test", "/a/b/0", 1),
        ("replace", "/a/b/0", 9),
        ("test", "/a/b/0", 9),
    ]
    assert patch[3].op == "remove"


def test_operations_come_one_after_the_other() -> None:
    operations = [Remove("/a/b/0"), Replace("/a/b/0", 7), Add("/a/b/2", 8)]
    assert apply(OBJECT, operations)["a"]["b"] == [7, 3, 8]


def test_renaming_keeps_the_place_of_a_key() -> None:
    assert list(apply({"a": 1, "b": 2, "c": 3}, [Rename("/b", "z")])) == ["a", "z", "c"]


@pytest.mark.parametrize(
    ("operation", "problem"),
    [
        pytest.param(Add("/a", 1), "there is a member 'a' already", id="add what is there"),
        pytest.param(Add("/a/b/4", 1), "cannot insert at 4 in a list of 3", id="insert beyond the end"),
        pytest.param(Add("/c/d", 1), "'d' cannot be added to a scalar", id="add to null"),
        pytest.param(Remove("/z"), "there is no member 'z'", id="remove nothing"),
        pytest.param(Remove("/a/b/01"), "there is no element 01 in a list of 3", id="an index with a zero in front"),
        pytest.param(Rename("/a/b/0", "z"), "an element of a list has no key", id="rename an element"),
        pytest.param(Rename("/a", "c"), "there is a member 'c' already", id="rename to what is there"),
        pytest.param(Remove(""), "the whole document can only be replaced", id="remove everything"),
    ],
)
def test_an_operation_that_does_not_fit_says_why(operation: TreeOperation, problem: str) -> None:
    with pytest.raises(OperationError) as misfit:
        apply(OBJECT, [operation])
    assert misfit.value.problem == problem
    assert type(operation).__name__ in str(misfit.value)


@pytest.mark.req("MF-070")
@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/a/x/y", Add("/a/x", {"y": 1})),
        ("/c/x/-", Replace("/c", {"x": [1]})),
        ("/a/b/-", Add("/a/b/-", 1)),
        ("/a/b/3/k", Add("/a/b/3", {"k": 1})),
        ("/a/b/1", Replace("/a/b/1", 1)),
        ("/a/b", Replace("/a/b", 1)),
    ],
)
def test_ensure_makes_what_is_missing_from_the_first_missing_parent(path: str, operation: TreeOperation) -> None:
    """Absent parents are created from the first missing one."""
    assert ensure(OBJECT, path, 1) == operation
    place = path.removesuffix("/-") if path == "/a/b/-" else path
    assert read(apply(OBJECT, [operation]), place.replace("/-", "/0")) in (1, [1, 2, 3, 1])


@pytest.mark.parametrize("path", ["/a/x~1y/z", "/a/b/9/k", "/a/b/x"])
def test_ensure_does_not_go_through_plain_values(path: str) -> None:
    with pytest.raises(KeyError):
        ensure(OBJECT, path, 1)


@pytest.mark.req("MF-053")
def test_operations_move_to_another_use_of_the_same_text() -> None:
    """Said for one use of an anchor, meant for another."""
    operations = (Add("/a/b/-", 1), Remove("/a"))
    assert rebase(operations, "/a", "/z/0") == (Add("/z/0/b/-", 1), Remove("/z/0"))
    with pytest.raises(ValueError, match="/ab is not below /a"):
        rebase((Remove("/ab"),), "/a", "/z")


@pytest.mark.parametrize("path", ["", "/", "/a~1b/~0/0", "/a//b"])
def test_pointers_come_back_from_their_segments(path: str) -> None:
    assert pointer(*segments(path)) == path


@pytest.mark.req("MF-054")
@pytest.mark.parametrize(
    ("left", "right"),
    [(1, 1.0), (1, True), ("1", 1), ([1], [1, 1]), ({"a": None}, {}), (None, False), ({"a": [1]}, {"a": [True]})],
)
def test_a_proof_tells_values_apart_that_python_does_not(left: Any, right: Any) -> None:
    """Equality for proofs."""
    assert not same(left, right)
    assert same(left, left)


@pytest.mark.req("MF-054")
def test_not_a_number_and_the_order_of_keys_are_no_difference() -> None:
    """What YAML says twice the same way is the same."""
    assert same({"a": float("nan"), "b": 1}, {"b": 1, "a": float("nan")})


def _print(**changed: Any) -> str:
    given: dict[str, Any] = {
        "subject": ObjectReference("apps/v1", "Deployment", "shop", "web"),
        "file": "a.yaml",
        "document": 0,
        "named_path": "/spec/containers/web/image",
        "images": ("b", "a"),
    }
    return fingerprint("MA102", "", **{**given, **changed})


@pytest.mark.req("MF-033")
def test_a_fingerprint_is_of_the_object_not_of_its_place() -> None:
    """Files, documents and versions may change, what is meant may not."""
    assert len(_print()) == 16
    assert int(_print(), 16) >= 0
    assert _print() == _print(file="b.yaml", document=3, images=("a", "b"))
    assert _print() == _print(subject=ObjectReference("apps/v2", "Deployment", "shop", "web"))
    others = [
        _print(subject=ObjectReference("apps/v1", "Deployment", "", "web")),
        _print(subject=ObjectReference("apps/v1", "DaemonSet", "shop", "web")),
        _print(named_path="/spec/containers/db/image"),
        _print(images=("a",)),
    ]
    assert len({_print(), *others}) == 5


@pytest.mark.req("MF-033")
def test_an_object_without_a_name_is_told_by_file_and_document() -> None:
    """File and document number stand for a name."""
    nameless = ObjectReference("v1", "Pod")
    found = {_print(subject=nameless, file=file, document=number) for file in ("a", "b") for number in (0, 1)}
    assert len(found) == 4


def test_severities_have_an_order() -> None:
    assert sorted(Severity, key=lambda severity: severity.rank) == [Severity.INFO, Severity.WARNING, Severity.ERROR]


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (ObjectReference("v1", "Pod", "shop", "web"), "Pod shop/web"),
        (ObjectReference("v1", "Pod", "", "web"), "Pod web"),
        (ObjectReference("v1", "Pod"), "unnamed Pod"),
        (ObjectReference(), "unnamed object"),
    ],
)
def test_an_object_is_named_for_people(subject: ObjectReference, text: str) -> None:
    assert str(subject) == text
