"""Registry credentials of machine OS builds: both shapes in, one out, and no content in any message."""

import base64
import json

import pytest
from fake_api import FakeApi
from structlog.testing import capture_logs

from polyarch.builds.controller.writes import PreparedObjects, UnusableSecret
from polyarch.builds.facts.objects import has_helpers
from polyarch.builds.machineos import api
from polyarch.builds.machineos.job_objects import one_form
from polyarch.builds.plan.document import Write
from polyarch.kube.resources import SECRETS
from polyarch.oci.auth.credentials import MalformedDocument

ENTRY = {"auth": "c2VjcmV0OnNlY3JldA=="}
HOSTS = {"registry.example.com": ENTRY}
JSON, CFG = "kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"


@pytest.mark.req("BD-284")
@pytest.mark.parametrize(
    "document",
    [
        HOSTS,
        {"auths": HOSTS},
        {"auths": HOSTS, "credsStore": "desktop", "credHelpers": {"a": "b"}},
        {**HOSTS, "credsStore": "x"},
    ],
)
def test_both_shapes_become_one(document):
    assert json.loads(one_form(json.dumps(document).encode())) == {"auths": HOSTS}
    assert has_helpers(json.dumps(document).encode()) is ("credsStore" in document)


@pytest.mark.req("BD-284")
@pytest.mark.parametrize("body", ["", "{}", '{"auths": {}}', '{"auths": []}', "[]", "secret", '{"auths": {"a"'])
def test_what_names_no_registry_is_refused_without_quoting_it(body):
    with pytest.raises(MalformedDocument) as error:
        one_form(body.encode())
    assert "secret" not in str(error.value)


def api_with(form, body, *, key=""):
    """One Secret and one MachineConfig."""
    server = FakeApi()
    data = {key or (".dockercfg" if form == CFG else ".dockerconfigjson"): base64.b64encode(body).decode()}
    server.put(SECRETS, {"metadata": {"name": "push", "namespace": "n"}, "type": form, "data": data})
    files = [
        {"path": "/etc/containers/policy.json", "contents": {"source": "data:,%7B%7D"}},
        {"path": "/etc/containers/unreadable", "contents": {"source": "https://example.com"}},
    ]
    server.put(api.RENDERED, {"metadata": {"name": "rendered-1"}, "spec": {"config": {"storage": {"files": files}}}})
    return server


def prepare(source):
    metadata = {"name": "final-worker", "namespace": "n"}
    return Write(
        verb="prepare", kind="Secret", namespace="n", name="final-worker", body={"metadata": metadata, "source": source}
    )


@pytest.mark.req("BD-284")
@pytest.mark.parametrize(("form", "document"), [(CFG, HOSTS), (JSON, {"auths": HOSTS}), (JSON, HOSTS)])
async def test_a_copy_is_what_jobs_mount(form, document):
    made = await PreparedObjects(api_with(form, json.dumps(document).encode())).document(
        prepare({"as": "credentials", "of": "push"})
    )
    assert made["type"] == JSON
    assert json.loads(base64.b64decode(made["data"][".dockerconfigjson"])) == {"auths": HOSTS}


@pytest.mark.req("BD-284")
@pytest.mark.parametrize(
    ("form", "body", "key"),
    [
        ("Opaque", b"secret", "password"),
        (JSON, b"secret", ""),
        (JSON, b"{}", "other"),
        (JSON, b"", ""),
        (CFG, b"null", ""),
    ],
)
async def test_what_cannot_be_copied_is_named_and_not_quoted(form, body, key):
    with pytest.raises(UnusableSecret, match="Secret n/push") as error:
        await PreparedObjects(api_with(form, body, key=key)).document(prepare({"as": "credentials", "of": "push"}))
    assert "secret" not in str(error.value)


@pytest.mark.req("BD-284")
async def test_helpers_are_ignored_and_said_to_be():
    with capture_logs() as logs:
        await PreparedObjects(api_with(JSON, json.dumps({"auths": HOSTS, "credsStore": "x"}).encode())).document(
            prepare({"as": "credentials", "of": "push"})
        )
    assert [(each["log_level"], each["secret"]) for each in logs] == [("warning", "n/push")]


@pytest.mark.req("BD-275")
@pytest.mark.parametrize("path", ["/etc/containers/policy.json", "/etc/containers/unreadable", "/etc/none"])
async def test_a_file_of_the_rendered_config_is_copied_if_there_is_one(path):
    source = {"as": "file", "of": "rendered-1", "path": path, "key": "policy.json"}
    with capture_logs() as logs:
        made = await PreparedObjects(api_with(JSON, b"")).document(prepare(source))
    assert (made or {}).get("data") == ({"policy.json": "{}"} if path.endswith("policy.json") else None)
    assert [each["log_level"] for each in logs] == (["warning"] if "unreadable" in path else [])


@pytest.mark.req("BD-269")
async def test_the_context_of_a_job_is_the_rendered_config_always_in_the_same_bytes():
    copies = PreparedObjects(api_with(JSON, b""))
    source = {"as": "context", "of": "rendered-1", "key": "machineconfig.json.gz"}
    first, second = [await copies.document(prepare(source)) for _ in range(2)]
    assert first == second
    assert api.RENDERED.kind == "MachineConfig"
    assert set(first["data"]) == {"machineconfig.json.gz"}
