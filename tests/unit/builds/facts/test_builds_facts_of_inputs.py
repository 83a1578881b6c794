"""ConfigMaps, Secrets and namespaces that a build names."""

import base64
import hashlib
import hmac
from typing import Any

import msgspec
import pytest

from polyarch.builds.api.resources import ImageBuildSpec
from polyarch.builds.facts.build_facts import SecretFacts
from polyarch.builds.facts.objects import (
    ConfigMapObject,
    SecretObject,
    config_map_data,
    named_by,
    pod_security,
    secret_facts,
)
from polyarch.objects import Namespace

KEY = bytes(range(32))
HIDDEN = "hunter2"


def secret(type: str = "Opaque", **data: bytes) -> SecretObject:
    encoded = {name.replace("_", "."): base64.b64encode(value).decode() for name, value in data.items()}
    return msgspec.convert({"metadata": {"resourceVersion": "7"}, "type": type, "data": encoded}, SecretObject)


@pytest.mark.req("BD-073")
def test_values_are_known_by_a_keyed_hash_only() -> None:
    found = secret_facts(secret(token=HIDDEN.encode()), KEY)
    expected = hmac.new(KEY, HIDDEN.encode(), hashlib.sha256).hexdigest()
    assert found == SecretFacts(
        type="Opaque", resource_version="7", keys=frozenset({"token"}), fingerprints={"token": expected}
    )
    assert secret_facts(secret(token=HIDDEN.encode()), bytes(32)).fingerprints != found.fingerprints


@pytest.mark.req("BD-333")
def test_nothing_that_can_be_shown_has_the_content() -> None:
    hidden = secret(token=HIDDEN.encode(), _dockerconfigjson=HIDDEN.encode(), type="kubernetes.io/dockerconfigjson")
    shown = f"{hidden!r} {secret_facts(hidden, KEY)!r}"
    assert HIDDEN not in shown
    assert base64.b64encode(HIDDEN.encode()).decode() not in shown


JSON = "kubernetes.io/dockerconfigjson"
INVALID: dict[str, tuple[SecretObject, str]] = {
    "credentials that can be read": (secret(JSON, _dockerconfigjson=b'{"auths":{}}'), ""),
    "the old shape": (secret("kubernetes.io/dockercfg", _dockercfg=b'{"quay.io":{}}'), ""),
    "no document": (secret(JSON), f"it is of type {JSON} and has no .dockerconfigjson"),
    "an empty document": (
        secret(JSON, _dockerconfigjson=b""),
        f"it is of type {JSON} and has no .dockerconfigjson",
    ),
    "no JSON": (
        secret(JSON, _dockerconfigjson=b'{"auths": hunter2'),
        "its .dockerconfigjson cannot be read: it is not JSON at line 1, column 11",
    ),
    "JSON of another shape": (
        secret(JSON, _dockerconfigjson=b'["hunter2"]'),
        "its .dockerconfigjson cannot be read: it is not a JSON object",
    ),
    "auths of another shape": (
        secret(JSON, _dockerconfigjson=b'{"auths":["hunter2"]}'),
        "its .dockerconfigjson has 'auths' that is not an object",
    ),
    "no base64": (
        msgspec.convert({"data": {"token": "hunter2!"}}, SecretObject),
        "data[token] is not base64",
    ),
}


@pytest.mark.req("BD-064")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"auths":{"r.example.com":{"auth":"aHVudGVyMjp4"}}}', False),
        (b'{"auths":{},"credsStore":"desktop"}', True),
        (b'{"credHelpers":{"r.example.com":"ecr-login"}}', True),
        (b'{"auths":{"r.example.com":{"auth":"aHVudGVyMjp4"}},"credHelpers":{},"credsStore":""}', False),
        (b"hunter2", False),
    ],
)
def test_programs_that_are_asked_for_credentials_are_noticed(text: bytes, expected: bool) -> None:
    assert secret_facts(secret(JSON, _dockerconfigjson=text), KEY).has_helpers is expected


@pytest.mark.req("BD-064")
@pytest.mark.parametrize("case", INVALID, ids=str)
def test_a_secret_that_cannot_be_used_says_why_and_not_what_is_in_it(case: str) -> None:
    given, expected = INVALID[case]
    found = secret_facts(given, KEY)
    assert found.invalid == expected
    assert HIDDEN not in repr(found)


def test_a_secret_of_a_file_may_have_its_values_as_text() -> None:
    written = msgspec.convert({"stringData": {"token": HIDDEN}}, SecretObject)
    assert secret_facts(written, KEY).fingerprints == secret_facts(secret(token=HIDDEN.encode()), KEY).fingerprints


@pytest.mark.req("BD-072")
def test_a_config_map_has_the_parts_that_are_there() -> None:
    both = msgspec.convert({"data": {"a": "b"}, "binaryData": {"c": "ZA=="}}, ConfigMapObject)
    assert config_map_data(both) == {"data": {"a": "b"}, "binaryData": {"c": "ZA=="}}
    assert config_map_data(msgspec.convert({"data": {}, "binaryData": None}, ConfigMapObject)) == {}


@pytest.mark.req("BD-064")
def test_everything_that_a_spec_names_is_read() -> None:
    spec = {
        "source": {
            "containerfileFrom": {"name": "common"},
            "overrides": [{"architecture": "arm64", "containerfileFrom": {"name": "own"}}],
            "context": {"type": "ConfigMap", "configMap": {"name": "files"}},
            "secrets": [
                {"id": "npm", "secret": {"name": "npm-token", "key": "token"}},
                {"id": "deploy", "secret": {"name": "deploy", "key": "key"}, "rebuildOnChange": True},
            ],
        },
        "output": {"repository": "r/x", "pushSecret": {"name": "push"}, "pullSecrets": [{"name": "pull"}]},
    }
    found = named_by(msgspec.convert(spec, ImageBuildSpec))
    assert found.config_maps == {"common", "own", "files"}
    assert found.secrets == {"npm-token", "push", "pull", "deploy"}
    assert found.keyed_secrets == {"deploy"}, "those whose content is part of a key"
    assert found.registry_secrets == ("push", "pull")
    git = {"type": "Git", "git": {"url": "https://x/y", "credentials": {"name": "git"}}}
    assert named_by(msgspec.convert({"source": {"context": git}}, ImageBuildSpec)).secrets == {"git"}


@pytest.mark.req("BD-153")
@pytest.mark.parametrize(
    ("labels", "level"),
    [
        ({"pod-security.kubernetes.io/enforce": "restricted"}, "restricted"),
        ({"pod-security.kubernetes.io/enforce": "baseline"}, "baseline"),
        ({"pod-security.kubernetes.io/enforce": "privileged"}, ""),
        ({"pod-security.kubernetes.io/warn": "restricted"}, ""),
        (None, ""),
    ],
    ids=["restricted", "baseline", "privileged", "only warned about", "without labels"],
)
def test_the_level_that_a_namespace_enforces(labels: Any, level: str) -> None:
    assert pod_security(msgspec.convert({"metadata": {"name": "team", "labels": labels}}, Namespace)) == level
    assert pod_security(None) == ""
