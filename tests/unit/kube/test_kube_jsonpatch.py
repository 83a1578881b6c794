"""JSON Patch as features build it and as `explain` applies it (RFC 6902, RFC 6901)."""

import msgspec
import pytest

from polyarch.kube import patches
from polyarch.kube.patches import Operation, PatchError, TestFailed, add, apply_patch, pointer, remove, replace

POD = {
    "metadata": {"labels": {"a/b": "1", "m~n": "2"}, "name": "web"},
    "spec": {"schedulingGates": [{"name": "one"}, {"name": "two"}]},
}


@pytest.mark.parametrize(
    ("segments", "text"),
    [
        ((), ""),
        (("metadata", "labels", "a/b"), "/metadata/labels/a~1b"),
        (("m~n",), "/m~0n"),
        (("~1",), "/~01"),
        (("spec", "schedulingGates", 0), "/spec/schedulingGates/0"),
        (("",), "/"),
    ],
)
def test_a_pointer_escapes_what_a_label_key_may_hold(segments, text):
    assert pointer(*segments) == text


@pytest.mark.parametrize(
    ("operation", "path", "expected"),
    [
        (add("/metadata/labels/new", "x"), ("metadata", "labels", "new"), "x"),
        (add("/metadata/labels/a~1b", "9"), ("metadata", "labels", "a/b"), "9"),
        (replace("/metadata/labels/m~0n", "9"), ("metadata", "labels", "m~n"), "9"),
        (add("/spec/schedulingGates/0", {"name": "zero"}), ("spec", "schedulingGates", 0, "name"), "zero"),
        (add("/spec/schedulingGates/-", {"name": "last"}), ("spec", "schedulingGates", 2, "name"), "last"),
        (add("/spec/schedulingGates/2", {"name": "last"}), ("spec", "schedulingGates", 2, "name"), "last"),
        (remove("/spec/schedulingGates/0"), ("spec", "schedulingGates", 0, "name"), "two"),
        (Operation("move", "/metadata/uid", from_="/metadata/name"), ("metadata", "uid"), "web"),
        (Operation("copy", "/metadata/labels/name", from_="/metadata/name"), ("metadata", "labels", "name"), "web"),
        (add("/metadata/annotations", None), ("metadata", "annotations"), None),
    ],
)
def test_each_operation_changes_what_it_names(operation, path, expected):
    found = apply_patch(POD, [operation])
    for segment in path:
        found = found[segment]
    assert found == expected


def test_the_document_given_is_never_changed_and_untouched_parts_are_shared():
    before = msgspec.json.encode(POD)
    after = apply_patch(POD, [remove("/metadata/labels/a~1b"), add("/metadata/labels/c", "3")])
    assert msgspec.json.encode(POD) == before
    assert after["spec"] is POD["spec"]


@pytest.mark.parametrize(
    ("operation", "problem"),
    [
        (remove("/metadata/annotations"), "no member 'annotations'"),
        (replace("/metadata/labels/none", "x"), "no member 'none'"),
        (add("/metadata/annotations/key", "x"), "no member 'annotations'"),
        (remove("/spec/schedulingGates/2"), "no element 2 in a list of 2"),
        (add("/spec/schedulingGates/3", {}), "cannot insert at 3"),
        (remove("/spec/schedulingGates/-1"), "not the index of a list"),
        (remove("/spec/schedulingGates/01"), "not the index of a list"),
        (add("/metadata/name/first", "x"), "plain value"),
        (add("metadata", "x"), "starts with /"),
        (Operation("add", "/x"), "has no value"),
        (Operation("copy", "/x"), "has no from"),
        (Operation("move", "/spec/inner", from_="/spec"), "into itself"),
        (remove(""), "whole document"),
    ],
)
def test_a_patch_that_does_not_fit_says_which_operation_and_why(operation, problem):
    with pytest.raises(PatchError, match=problem) as caught:
        apply_patch(POD, [add("/fine", 1), operation])
    assert caught.value.index == 1
    assert str(caught.value).startswith("operation 1")


@pytest.mark.parametrize(
    ("value", "same"),
    [("web", True), ("other", False), (1, False), (None, False)],
)
def test_a_test_guards_the_whole_patch(value, same):
    operations = [patches.test("/metadata/name", value), add("/done", True)]
    if same:
        assert apply_patch(POD, operations)["done"] is True
    else:
        with pytest.raises(TestFailed, match='found "web"'):
            apply_patch(POD, operations)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [(1, 1.0, True), (True, 1, False), (0, False, False), ([1, {"a": None}], [1, {"a": None}], True), ({}, [], False)],
)
def test_json_values_are_compared_as_json_does_not_as_python_does(left, right, same):
    operations = [patches.test("/x", right)]
    if same:
        apply_patch({"x": left}, operations)
    else:
        with pytest.raises(TestFailed):
            apply_patch({"x": left}, operations)


def test_an_explicit_null_is_sent_and_an_absent_value_is_not():
    encoded = msgspec.json.encode([add("/a", None), remove("/b"), Operation("move", "/c", from_="/d")])
    assert msgspec.json.decode(encoded) == [
        {"op": "add", "path": "/a", "value": None},
        {"op": "remove", "path": "/b"},
        {"op": "move", "path": "/c", "from": "/d"},
    ]
