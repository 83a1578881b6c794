"""Which image the operator's roles run (IN-030)."""

from typing import Any

import pytest

from polyarch.placement.operator.settings import DEFAULT_IMAGE, OperatorSettings
from polyarch.run.operator import as_own_pod

POD = {"POD_NAME": "polyarch-operator-1", "POD_NAMESPACE": "home"}
OWN = {"name": "operator", "image": "mirror.example/polyarch:2", "imagePullPolicy": "Always"}
MESH = {"name": "istio-proxy", "image": "docker.io/istio/proxyv2:1", "imagePullPolicy": "IfNotPresent"}


class Pods:
    """An API server with one pod."""

    def __init__(self, *containers: dict[str, Any]) -> None:
        self._pod = {"spec": {"containers": list(containers), "imagePullSecrets": [{"name": "mirror"}]}}

    async def get(self, *_: object, **__: object) -> dict[str, Any]:
        return self._pod


@pytest.mark.parametrize("containers", [(OWN,), (MESH, OWN), (OWN, MESH)], ids=["alone", "behind", "in front"])
async def test_in_030_roles_run_the_operators_own_image_whatever_a_mesh_adds_to_its_pod(containers: Any) -> None:
    """IN-030: a service mesh may put its proxy in front of the operator's container."""
    found = await as_own_pod(Pods(*containers), OperatorSettings(image=""), POD)  # type: ignore[arg-type]  # only get is used
    assert (found.image, found.image_pull_policy) == (OWN["image"], "Always")
    assert found.image_pull_secrets == ("mirror",)


async def test_in_030_outside_a_pod_roles_run_the_default_image() -> None:
    """IN-030."""
    found = await as_own_pod(Pods(), OperatorSettings(image=""), {})  # type: ignore[arg-type]  # nothing is asked
    assert found.image == DEFAULT_IMAGE
