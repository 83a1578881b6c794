"""Documents and platforms files of any content end in a reading or in an error of ours."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from polyarch.oci.documents import ACCEPT, ContentError, classify, is_manifest
from polyarch.oci.image.parsing import (
    IndexReading,
    flatten,
    read_config,
    read_index,
    read_manifest,
    read_schema1,
    wanted,
)
from polyarch.oci.inspection import ERROR_CODES, Status
from polyarch.oci.platforms_file import AnswerFile, InvalidAnswers
from polyarch.oci.reference import InvalidReference, parse

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda children: st.one_of(
        st.lists(children, max_size=3), st.dictionaries(st.text(max_size=5), children, max_size=3)
    ),
    max_leaves=5,
)
digests = st.one_of(st.sampled_from("abc").map(lambda letter: f"sha256:{letter * 64}"), values)


def objects(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=members)


names = st.one_of(st.sampled_from(["linux", "windows", "amd64", "arm64", "unknown", "", "v8"]), values)
platform_objects = objects(
    **{"os": names, "architecture": names, "variant": names, "os.version": names, "os.features": values}
)
descriptors = objects(
    mediaType=st.one_of(st.sampled_from([*ACCEPT, "", "application/x"]), values),
    digest=digests,
    size=st.one_of(st.integers(0, 10**6), values),
    platform=st.one_of(platform_objects, values),
    annotations=st.one_of(st.just({"vnd.docker.reference.type": "x"}), values),
    artifactType=st.one_of(st.just(""), values),
    data=st.one_of(st.just("e30="), values),
)
documents = objects(
    schemaVersion=st.one_of(st.sampled_from([1, 2]), values),
    mediaType=st.one_of(st.sampled_from([*ACCEPT]), values),
    manifests=st.one_of(st.lists(descriptors, max_size=4), values),
    config=st.one_of(descriptors, values),
    layers=values,
    architecture=names,
    os=names,
    artifactType=values,
)
bodies = st.one_of(st.binary(), documents.map(lambda document: json.dumps(document).encode()))


def attempt(read: Callable[[], Any]) -> Any:
    """The result, or the error that it is; any other error fails the test."""
    try:
        return read()
    except (ContentError, InvalidReference, InvalidAnswers) as error:
        return error


@pytest.mark.req("RG-050", "RG-065", "RG-163")
@given(bodies)
@example(b"[" * 10_000)
@example(b'{"manifests":' + b"[" * 10_000)
@example(b'{"manifests":[{"size":1e999}]}')
@example(b'{"manifests":[{"size":18446744073709551616}]}')
def test_any_document_is_read_or_refused_with_a_code(body: bytes) -> None:
    """Index, image, schema 1 and config; and what is read is no page."""
    assert isinstance(attempt(lambda: classify(body)), ContentError) or is_manifest(body)
    for read in (read_index, read_manifest, read_schema1):
        found = attempt(lambda read=read: read(classify(body)))
        if isinstance(found, IndexReading) and not wanted(found, {}):
            flattened = flatten(found, {})
            assert len({entry.platform for entry in flattened.entries}) == len(flattened.entries)
            assert flattened.error is None
        check(found)
    check(attempt(lambda: read_config(body)))


def check(found: object) -> None:
    if isinstance(found, ContentError):
        assert ERROR_CODES[found.code] == "content"
        assert found.code != "malformed" or " at $" in found.message


texts = st.sampled_from(["amd64", "linux/arm64", "arm", "windows/amd64", "linux/x86_64"])
answers = st.one_of(
    st.lists(texts, max_size=3),
    objects(
        platforms=st.one_of(st.lists(texts, max_size=3), values),
        kind=st.one_of(st.sampled_from(["index", "image", "artifact"]), values),
        neutral=st.one_of(st.booleans(), values),
        unknown=st.one_of(st.booleans(), values),
        error=st.one_of(st.sampled_from(["not-found", "timeout"]), values),
        digest=digests,
        children=st.one_of(st.dictionaries(texts, digests, max_size=2), values),
        warnings=values,
    ),
    values,
)
keys = st.one_of(st.sampled_from(["nginx", "quay.io/a:1", "quay.io/a:*", "docker.io/library/nginx"]), st.text())
images = st.dictionaries(keys, answers, max_size=4)
printed = st.fixed_dictionaries(
    {"schemaVersion": st.one_of(st.just("polyarch.dev/inspect/v1"), values)},
    optional={
        "images": st.one_of(
            st.lists(
                objects(
                    reference=keys,
                    status=st.one_of(st.sampled_from([*map(str, Status)]), values),
                    kind=values,
                    digest=digests,
                    platforms=st.one_of(st.lists(objects(os=names, architecture=names, size=values)), values),
                    skipped=values,
                    warnings=values,
                    error=values,
                ),
                max_size=3,
            ),
            values,
        )
    },
)


@pytest.mark.req("RG-132", "RG-163")
@given(st.one_of(values, images, images.map(lambda found: {"images": found}), printed))
def test_any_content_is_a_platforms_file_or_refused(content: object) -> None:
    """And what is accepted answers for its own keys."""
    file = attempt(lambda: AnswerFile.from_mapping(content, origin="file"))
    if isinstance(file, InvalidAnswers):
        assert file.problem
        assert str(file).startswith("file")
        return
    found = content.get("images", content) if isinstance(content, dict) else {}
    for key in found if isinstance(found, dict) else ():
        if not key.endswith(":*"):
            answer = file.get(parse(key))
            assert answer is not None
            assert answer.reference == parse(key)


def steps(read: Any, argument: Any) -> int:
    """How many lines of Python it takes: work that does not depend on the machine."""
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        attempt(lambda: read(argument))
    finally:
        sys.settrace(before)
    return count


D = f"sha256:{'a' * 64}"
GROWING = [
    pytest.param(parse, lambda n: "a/" * n + "A", id="a reference of many components"),
    pytest.param(parse, lambda n: "a" + ".a" * n + "!", id="a reference of many separators"),
    pytest.param(parse, lambda n: "a" + "-" * n, id="a reference of many hyphens"),
    pytest.param(parse, lambda n: "a:" * n, id="a reference of many colons"),
    pytest.param(parse, lambda n: "@" * n, id="a reference of many at signs"),
    pytest.param(parse, lambda n: "a" * n + "\x00", id="a reference with a late control character"),
    pytest.param(
        read_index,
        lambda n: {
            "manifests": [{"digest": D, "platform": {"os": "linux", "architecture": f"a{i}"}} for i in range(n)]
        },
        id="an index of many entries",
    ),
    pytest.param(
        AnswerFile.from_mapping, lambda n: {f"quay.io/a{i}": ["amd64"] for i in range(n)}, id="a file of many images"
    ),
    pytest.param(
        AnswerFile.from_mapping, lambda n: {"a": {"platforms": [f"linux/a{i}" for i in range(n)]}}, id="many platforms"
    ),
]


@pytest.mark.req("RG-163")
@pytest.mark.parametrize(("read", "make"), GROWING)
def test_work_grows_no_faster_than_the_input(read: Any, make: Any) -> None:
    """Linear in the size of the input."""
    small, large = steps(read, make(100)), steps(read, make(800))
    assert large <= 8 * small + 200


@pytest.mark.req("RG-163")
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a" + "-" * 1_000_000 + "!", id="hyphens"),
        pytest.param("a" + "-a" * 500_000 + "!", id="separators"),
        pytest.param("a" * 1_000_000 + "!", id="letters"),
        pytest.param("a-" + "b" * 1_000_000 + "-.io/a", id="letters in a host"),
        pytest.param("a:" + "x" * 1_000_000 + "!", id="letters in a tag"),
        pytest.param("a@sha256:" + "a" * 1_000_000 + "!", id="digits in a digest"),
        pytest.param("[" + ":" * 1_000_000 + "]/a", id="colons in an IPv6 address"),
        pytest.param("x" * 1_000_000 + "://", id="letters in a scheme"),
    ],
)
def test_a_text_of_a_million_characters_is_refused_at_once(text: str) -> None:
    """Patterns that try again from every place would take until the test's time is over."""
    with pytest.raises(InvalidReference):
        parse(text)
