"""Key documents and their hashes: the golden vector and the rules for members."""

import hashlib
import json

import pytest
from key_wishes import PINS, SPEC, changed, effective, wish

from polyarch.builds.api.resources import Output
from polyarch.builds.facts.build_facts import InputData, MachineOSInputs
from polyarch.builds.keys import (
    arch_key_document,
    build_key_document,
    canonical_digest,
    canonical_json,
    effective_inputs,
    without_empty,
)

pytestmark = pytest.mark.req("BD-075")

GOLDEN = {
    "source": {
        "containerfile": "FROM docker.io/library/busybox:1.36\r\nRUN true",
        "buildArgs": {"MODE": "fast"},
    },
    "output": {"repository": "registry.example.com/team/app"},
}
GOLDEN_PINS = {"docker.io/library/busybox:1.36": f"sha256:{64 * 'c'}"}


@pytest.mark.req("BD-056", "BD-077")
def test_golden_vector() -> None:
    """BD-077: the hashed bytes and the key, byte for byte; BD-056: CR LF and the missing last LF."""
    found = effective_inputs(wish(GOLDEN), InputData(), ("arm64",))
    key = arch_key_document(found, "arm64", GOLDEN_PINS)
    assert found.problems == ()
    assert canonical_json(key.document) == (
        b'{"arch":"arm64","args":{"MODE":"fast"},"bases":{"docker.io/library/busybox:1.36":"sha256:'
        + 64 * b"c"
        + b'"},'
        b'"containerfile":"FROM docker.io/library/busybox:1.36\\nRUN true\\n","format":"OCI","timestamp":0,"v":1}'
    )
    assert key.hex == "86db15901a149e27d29bbc77ecc52d789d13acb187d5561f94091a71e0a11f7e"


@pytest.mark.req("BD-070")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": 1, "a": [True, None, "x"]}, '{"a":[true,null,"x"],"b":1}'),
        ({"é": "ü", "z": "\u2028☃"}, '{"z":"\u2028☃","é":"ü"}'),
        ({"\U0001f600": 1, "\uffee": 2}, '{"\uffee":2,"\U0001f600":1}'),
        ({"a": 'x"y\\z\n\t\x01/'}, '{"a":"x\\"y\\\\z\\n\\t\\u0001/"}'),
        ({"a": -(2**70)}, '{"a":-1180591620717411303424}'),
    ],
)
def test_canonical_bytes(value: object, expected: str) -> None:
    """Sorted by code point, no white space, non-ASCII unescaped."""
    assert canonical_json(value).decode() == expected
    assert canonical_digest(value) == hashlib.sha256(expected.encode()).hexdigest()


@pytest.mark.req("BD-070")
@pytest.mark.parametrize("value", [1.0, {"a": 1.5}, {"a": [{"b": 0.0}]}])
def test_integers_only(value: object) -> None:
    """A float has more than one spelling."""
    with pytest.raises(TypeError, match="numbers are integers"):
        canonical_json(value)


@pytest.mark.req("BD-071")
def test_empty_members_are_left_out() -> None:
    """Null, "", [] and {} at the top; 0 and false stay, and so does what is empty further down."""
    document = {"a": None, "b": "", "c": [], "d": {}, "e": 0, "f": False, "g": {"x": ""}, "h": "x"}
    assert without_empty(document) == {"e": 0, "f": False, "g": {"x": ""}, "h": "x"}


@pytest.mark.req("BD-071", "BD-073")
def test_every_member() -> None:
    """The whole document of a wish that has everything."""
    spec = changed(SPEC, "source.target", "0")
    key = arch_key_document(effective(spec), "arm64", PINS["arm64"])
    context = hashlib.sha256(b'{"binaryData":{"z":"AA=="},"data":{"x":"1","y":"2"}}').hexdigest()
    assert key.document == {
        "v": 1,
        "arch": "arm64",
        "args": {"LEVEL": "2", "MODE": "fast"},
        "bases": {"docker.io/library/busybox:1.36": f"sha256:{1:064x}"},
        "containerfile": "FROM busybox:1.36\nRUN true\n",
        "context": {"digest": f"sha256:{context}", "type": "ConfigMap"},
        "format": "OCI",
        "labels": {"a": "1", "b": "2"},
        "secrets": {"token": ""},
        "target": "0",
        "timestamp": 0,
    }


@pytest.mark.req("BD-072")
@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({"type": "None"}, None),
        (
            {"type": "Git", "git": {"url": "https://x", "commit": 40 * "a"}},
            {"commit": 40 * "a", "type": "Git"},
        ),
        (
            {"type": "Git", "git": {"url": "https://x", "commit": 40 * "a", "directory": "d"}},
            {"commit": 40 * "a", "directory": "d", "type": "Git"},
        ),
        (
            {"type": "Image", "image": {"reference": f"r.example.com/x:tag@sha256:{64 * 'a'}"}},
            {"digest": f"sha256:{64 * 'a'}", "type": "Image"},
        ),
        (
            {"type": "ConfigMap", "configMap": {"name": "texts"}},
            {
                "digest": "sha256:"
                + hashlib.sha256(b'{"data":{"Containerfile":"FROM busybox:1.36\\nRUN true\\n"}}').hexdigest(),
                "type": "ConfigMap",
            },
        ),
    ],
)
def test_context(context: dict[str, object], expected: dict[str, str] | None) -> None:
    """By content, commit or digest; empty parts are left out."""
    key = arch_key_document(effective(changed(SPEC, "source.context", context)), "arm64", {})
    assert key.document.get("context") == expected


@pytest.mark.req("BD-073")
def test_secrets_by_id_and_fingerprint() -> None:
    """The id alone, or with the fingerprint where that is asked for."""
    listed = [
        {"id": "quiet", "secret": {"name": "tokens", "key": "a"}},
        {"id": "loud", "secret": {"name": "tokens", "key": "b"}, "rebuildOnChange": True},
    ]
    key = arch_key_document(effective(changed(SPEC, "source.secrets", listed)), "arm64", {})
    assert key.document["secrets"] == {"loud": "22", "quiet": ""}


@pytest.mark.req("BD-074")
def test_machine() -> None:
    """Children's digests, sorted sets, order of kernel arguments; no timestamp."""
    machine = MachineOSInputs(
        os_image="quay.io/os:1",
        extensions_image="quay.io/ext:1",
        kernel_type="64k-pages",
        extensions=("b", "a", "b"),
        kernel_arguments=("z", "a"),
        trust="ff",
    )
    found = effective(machine=machine)
    key = arch_key_document(found, "arm64", {"quay.io/os:1": "sha256:1"})
    assert key.document["machine"] == {
        "osImage": "sha256:1",
        "extensionsImage": "unresolved",
        "kernelType": "64k-pages",
        "extensions": ["a", "b"],
        "kernelArguments": ["z", "a"],
        "trust": "ff",
    }
    assert "timestamp" not in key.document
    assert found.images("arm64") == ("docker.io/library/busybox:1.36", "quay.io/ext:1", "quay.io/os:1")


@pytest.mark.req("BD-076")
def test_build_key() -> None:
    """The document byte for byte, and its hash; attestations are left out when dropped."""
    plain = build_key_document(Output(repository="registry.example.com/team/app"), {"arm64": "b", "amd64": "a"})
    text = (
        '{"arches":{"amd64":"a","arm64":"b"},"format":"OCI","index":"Auto",'
        '"repository":"registry.example.com/team/app","v":1}'
    )
    assert canonical_json(plain.document).decode() == text
    assert plain.hex == hashlib.sha256(text.encode()).hexdigest()
    more = Output(repository="registry.example.com/team/app", attestations="Keep", annotations={"a": "b"})
    document = build_key_document(more, {"arm64": "b"}).document
    assert (document["attestations"], document["indexAnnotations"]) == ("Keep", {"a": "b"})


def test_canonical_is_what_any_json_library_reads() -> None:
    document = arch_key_document(effective(), "s390x", PINS["s390x"]).document
    assert json.loads(canonical_json(document)) == document
