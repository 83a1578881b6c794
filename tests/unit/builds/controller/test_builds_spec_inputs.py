"""Secrets with which registries are asked: read when they are needed, never doubted for a passing trouble."""

import base64
from typing import Any

import msgspec
import pytest
from manual_clock import ManualClock

from polyarch.builds.controller.resolver import SpecInputs
from polyarch.builds.facts.objects import SecretObject
from polyarch.kube.errors import Forbidden, KubernetesError, NotFound, Unavailable
from polyarch.objects import DOCKER_CONFIG_JSON
from polyarch.oci.pull_sources import PullSource
from polyarch.oci.reference import parse

REFERENCE = parse("registry.example.com/team/web:1")
SOURCE = PullSource("https://registry.example.com/v2", "registry.example.com", "team/web", tag="1")
DOCUMENT = b'{"auths":{"registry.example.com":{"username":"me","password":"it"}}}'


class Secrets:
    """Answers, or fails, as it is told."""

    def __init__(self) -> None:
        self.trouble: KubernetesError | None = None

    async def get(self, resource: Any, name: str, *, namespace: str = "", type: Any) -> Any:
        if self.trouble is not None:
            raise self.trouble
        data = {".dockerconfigjson": base64.b64encode(DOCUMENT).decode()}
        metadata = {"name": name, "namespace": namespace, "resourceVersion": "1"}
        return msgspec.convert({"metadata": metadata, "type": DOCKER_CONFIG_JSON, "data": data}, SecretObject)


@pytest.fixture
def secrets() -> Secrets:
    return Secrets()


@pytest.fixture
def inputs(secrets: Secrets) -> SpecInputs:
    informers: Any = None
    return SpecInputs(secrets, informers, ManualClock(), namespace="polyarch", enqueue=lambda ref: None)


@pytest.mark.req("BD-221")
async def test_a_secret_that_could_not_be_read_is_not_as_if_it_were_absent(
    secrets: Secrets, inputs: SpecInputs
) -> None:
    """A registry asked without credentials answers for good what only a change of the Secret would mend."""
    store = inputs.credentials("team", ("push",))
    secrets.trouble = Unavailable(503, reason="ServiceUnavailable")
    with pytest.raises(Unavailable):
        await store.candidates(REFERENCE, SOURCE)
    secrets.trouble = None
    assert "me" in {each.username for each in await store.candidates(REFERENCE, SOURCE)}


@pytest.mark.req("BD-331")
async def test_a_secret_that_may_not_be_read_is_not_as_if_it_were_absent(secrets: Secrets, inputs: SpecInputs) -> None:
    """What a registry says to somebody without credentials would be told as its refusal."""
    store = inputs.credentials("team", ("push",))
    secrets.trouble = Forbidden(403, reason="Forbidden")
    with pytest.raises(Forbidden):
        await store.candidates(REFERENCE, SOURCE)


@pytest.mark.req("BD-064")
async def test_a_secret_that_is_not_there_is_said(secrets: Secrets, inputs: SpecInputs) -> None:
    store = inputs.credentials("team", ("push",))
    secrets.trouble = NotFound(404, reason="NotFound")
    assert all(each.is_anonymous for each in await store.candidates(REFERENCE, SOURCE))
    (warning,) = store.warnings(SOURCE)
    assert "team/push" in warning.message
