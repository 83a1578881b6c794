"""What the operator's settings leave open is as its own pod has it."""

from typing import Any

import pytest
from fake_api import FakeApi

from polyarch.kube.resources import PODS
from polyarch.operator.settings import DEFAULT_IMAGE, OperatorSettings
from polyarch.run.operator import as_own_pod

POD = {"POD_NAME": "polyarch-operator-1", "POD_NAMESPACE": "ns"}
OPEN = OperatorSettings(namespace="ns", image="", image_pull_policy=None)
SIDECAR = {"name": "mesh", "image": "mesh:1", "imagePullPolicy": "Never"}
OWN = {"name": "operator", "image": "mirror.example/polyarch@sha256:1", "imagePullPolicy": "Always"}


def api(*containers: dict[str, Any], **spec: Any) -> Any:
    memory = FakeApi()
    metadata = {"name": POD["POD_NAME"], "namespace": "ns"}
    memory.put(PODS, {"metadata": metadata, "spec": {"containers": list(containers), **spec}})
    return memory


@pytest.mark.req("IN-001")
@pytest.mark.parametrize("before", [(), (SIDECAR,)], ids=["alone", "behind a container that somebody else injected"])
async def test_image_policy_and_secrets_are_those_of_the_operators_own_container(before) -> None:
    client = api(*before, OWN, imagePullSecrets=[{"name": "mirror"}])
    found = await as_own_pod(client, OPEN, POD)
    assert (found.image, found.image_pull_policy, found.image_pull_secrets) == (OWN["image"], "Always", ("mirror",))


@pytest.mark.req("IN-001")
async def test_what_a_flag_says_wins() -> None:
    given = OperatorSettings(image="fork:1", image_pull_policy="Never", image_pull_secrets=("fork",))
    assert await as_own_pod(api(OWN, imagePullSecrets=[{"name": "mirror"}]), given, POD) == given


@pytest.mark.req("IN-001")
async def test_outside_a_pod_it_is_as_usual() -> None:
    found = await as_own_pod(api(), OPEN, {})
    assert (found.image, found.image_pull_policy, found.image_pull_secrets) == (DEFAULT_IMAGE, "IfNotPresent", ())


@pytest.mark.req("PL-500")
async def test_the_operators_proxies_are_passed_on() -> None:
    found = await as_own_pod(api(), OPEN, {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "", "HOME": "/"})
    assert found.proxies == (("HTTPS_PROXY", "http://proxy:3128"),)
