"""From bytes to events, whatever the bytes are."""

import msgspec
import pytest
from scripted_server import bookmark, event, pod

from polyarch.kube import errors
from polyarch.kube.responses import TOO_DEEP_MARK, LineSplitter, WatchDecoder, cut_deep_nesting, decode_list, several
from polyarch.kube.watch import Bookmark, ObjectChanged, ObjectDeleted, RequestFailed
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata, Unstructured


class Strict(msgspec.Struct, frozen=True, gc=False):
    """A type with a member that has to be there, which bookmarks and Status objects do not have."""

    metadata: ObjectMeta
    spec: dict[str, int]


def lines(*chunks: bytes) -> list[bytes]:
    splitter = LineSplitter()
    return [line for chunk in chunks for line in splitter.feed(chunk)]


@pytest.mark.req("KR-013")
@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b", b"\nc"], [b"ab"]),
        ([b"a\n", b"\n\nb\n"], [b"a", b"b"]),
        ([b"a", b"\n"], [b"a"]),
        ([b"", b"a\n"], [b"a"]),
        ([b"half"], []),
    ],
)
def test_lines_are_cut_at_newline_bytes_wherever_chunks_end(chunks, expected):
    """What is cut off at the end of the stream is never an event."""
    assert lines(*chunks) == expected


@pytest.mark.req("KR-013")
@pytest.mark.parametrize("sign", ["\u0085", "\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\r"])
def test_signs_that_text_libraries_take_for_line_ends_stay_in_the_line(sign):
    """Go writes U+0085 unescaped into JSON strings."""
    text = f"one{sign}two".encode()
    assert lines(text + b"\n") == [text]


@pytest.mark.req("KR-013")
def test_u0085_inside_an_annotation_arrives_as_it_is():
    object_ = pod("web", 5)
    object_["metadata"]["annotations"] = {"text": "a\u0085b\u2028c"}
    [line] = lines(event("ADDED", object_))
    assert "\u0085".encode() in line
    seen = WatchDecoder(PartialObjectMetadata, "pods")(line)
    assert seen.object.metadata.annotations == {"text": "a\u0085b\u2028c"}


@pytest.mark.req("KR-013")
def test_a_line_of_ten_megabytes_in_small_chunks():
    """Each byte is looked at once; were they searched again with every chunk, this would take minutes."""
    object_ = pod("web", 5)
    object_["metadata"]["annotations"] = {"text": "x" * 10_000_000}
    data = event("MODIFIED", object_) + b"{"
    [line] = lines(*(data[start : start + 1000] for start in range(0, len(data), 1000)))
    assert len(WatchDecoder(PartialObjectMetadata, "pods")(line).object.metadata.annotations["text"]) == 10_000_000


@pytest.mark.req("KR-012")
@pytest.mark.parametrize("type_", [PartialObjectMetadata, Strict])
def test_bookmarks_and_errors_are_read_whatever_the_type(type_):
    """An ERROR's Status and a BOOKMARK's bare metadata are no objects of the type."""
    decode = WatchDecoder(type_, "pods")
    assert decode(bookmark(7)) == Bookmark("7")
    assert decode(bookmark(9, end=True)) == Bookmark("9", initial_end=True)
    failed = decode(event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}))
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.error, errors.Gone)
    assert "watch pods" in str(failed.error)
    assert isinstance(decode(event("ERROR", {"code": 500})).error, errors.Unavailable)


def test_events_become_inputs_of_the_machine():
    decode = WatchDecoder(PartialObjectMetadata, "pods")
    assert decode(event("ADDED", pod("a", 1))).object.metadata.key == ObjectKey("demo", "a")
    assert isinstance(decode(event("MODIFIED", pod("a", 2))), ObjectChanged)
    assert decode(event("DELETED", pod("a", 3))) == ObjectDeleted(ObjectKey("demo", "a"), "3")


def test_an_object_that_does_not_fit_is_named_in_the_log_and_counts_as_gone(capsys):
    decode = WatchDecoder(Strict, "pods")
    assert decode(event("MODIFIED", pod("odd", 5))) == ObjectDeleted(ObjectKey("demo", "odd"), "5")
    assert "demo/odd" in capsys.readouterr().out
    assert decode(event("DELETED", pod("odd", 6))) == ObjectDeleted(ObjectKey("demo", "odd"), "6")


@pytest.mark.parametrize(
    "line", [b"<html>", b"\xff\xfe", b"[]", b'{"type":"NEW","object":{}}', b'{"type":"ADDED"}', b"5"]
)
def test_what_is_no_event_is_an_error_not_a_guess(line):
    with pytest.raises(errors.UnreadableAnswer, match="watch pods"):
        WatchDecoder(PartialObjectMetadata, "pods")(line)


def page(*items):
    return msgspec.json.encode({"metadata": {"resourceVersion": "5", "continue": "n"}, "items": items})


def test_a_list_is_read_in_one_pass_with_its_metadata():
    found = decode_list(page(pod("a", 1), pod("b", 2)), PartialObjectMetadata, "pods", strict=True)
    assert [item.metadata.name for item in found.items] == ["a", "b"]
    assert (found.metadata.resource_version, found.metadata.continue_) == ("5", "n")
    empty = decode_list(
        b'{"metadata":{"resourceVersion":"5"},"items":null}', PartialObjectMetadata, "pods", strict=True
    )
    assert empty.items is None


def test_one_odd_object_does_not_hide_the_others_from_a_cache(capsys):
    fits = pod("fits", 1) | {"spec": {"a": 1}}
    found = decode_list(page(fits, pod("odd", 2)), Strict, "pods", strict=False)
    assert [item.metadata.name for item in found.items] == ["fits"]
    assert found.metadata.resource_version == "5"
    assert "demo/odd" in capsys.readouterr().out
    with pytest.raises(errors.UnreadableAnswer, match=r"items\[1\]"):
        decode_list(page(fits, pod("odd", 2)), Strict, "pods", strict=True)


DEEP = b'{"a":' * 9_000 + b'["]}\\"{["]' + b"}" * 9_000
"""An API server takes ten thousand levels."""


def deep(name: bytes) -> bytes:
    return b'{"metadata":{"name":"%s","resourceVersion":"6"},"spec":%s,"after":{"a":[1]}}' % (name, DEEP)


@pytest.mark.req("KR-013")
@pytest.mark.parametrize("type_", [PartialObjectMetadata, Unstructured, several((Strict, Unstructured))])
def test_an_object_that_is_nested_too_deeply_counts_as_gone(capsys, type_):
    """Not even its name could be read: the watch would begin again for ever, and all other objects be out of date."""
    decode = WatchDecoder(type_, "pods")
    for kind in (b"ADDED", b"MODIFIED"):
        assert decode(b'{"type":"%s","object":%s}' % (kind, deep(b"web"))) == ObjectDeleted(ObjectKey("", "web"), "6")
        told = capsys.readouterr().out
        assert "web" in told
        assert "200 levels" in told
    assert decode(b'{"type":"DELETED","object":%s}' % deep(b"web")) == ObjectDeleted(ObjectKey("", "web"), "6")


@pytest.mark.req("KR-013")
@pytest.mark.parametrize("type_", [PartialObjectMetadata, Unstructured, several((PartialObjectMetadata, Unstructured))])
def test_a_list_has_the_other_objects_whatever_is_nested_too_deeply(type_):
    items = b",".join([b'{"metadata":{"name":"a"}}', deep(b"b"), b'{"metadata":{"name":"c"}}'])
    body = b'{"metadata":{"resourceVersion":"7"},"items":[%s]}' % items
    found = decode_list(body, type_, "pods", strict=False)
    assert [each.metadata.name for each in found.items] == ["a", "c"]
    assert found.metadata.resource_version == "7"
    with pytest.raises(errors.UnreadableAnswer, match="pods: it is nested more than 200 levels deep"):
        decode_list(body, type_, "pods", strict=True)


@pytest.mark.req("KR-013")
def test_what_is_nested_as_objects_are_is_kept_as_it_is():
    text = b'{"a":' * 200 + rb'"}]\\"' + b"}" * 200
    assert msgspec.json.decode(text)
    assert cut_deep_nesting(text) == text
    assert cut_deep_nesting(b"[" + text + b"," + text + b",{}]").count(TOO_DEEP_MARK.encode()) == 2


@pytest.mark.req("KR-013")
@pytest.mark.parametrize("text", [DEEP[:3_000], b'{"a":' * 300 + b'"x', b"", b"]]]{", b"{" * 500 + b"}" * 900])
def test_what_is_no_json_stays_none(text):
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(cut_deep_nesting(text))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("body", [b"", b"<html>", b'{"items":[]}', b'{"metadata":{},"items":[5]}'])
def test_what_is_no_list_is_an_error(body, strict):
    with pytest.raises(errors.UnreadableAnswer, match="list pods"):
        decode_list(body, PartialObjectMetadata, "pods", strict=strict)
