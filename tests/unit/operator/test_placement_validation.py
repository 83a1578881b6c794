"""What the operator's webhooks refuse, and in which words."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from polyarch.kube.errors import NotFound
from polyarch.operator.components.placement_status import (
    ValidationRequest,
    shadowed,
    validate_cluster_config,
    validate_config,
    validate_deletion,
)
from polyarch.operator.components.placement_webhooks import LIVE_READS, ResourceWebhooks
from polyarch.placement.api import Plugins, PodPlacementConfig


def config(name: str = "some", priority: int = 0, namespace: str = "team", **spec: Any) -> PodPlacementConfig:
    document = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"plugins": {}, "priority": priority, **spec},
    }
    return msgspec.convert(document, PodPlacementConfig)


def scoring(*architectures: str, enabled: bool = True) -> dict[str, Any]:
    platforms = [{"architecture": each, "weight": 1} for each in architectures]
    return {"nodeAffinityScoring": {"enabled": enabled, "platforms": platforms}}


def refusal(new: PodPlacementConfig, *others: PodPlacementConfig, old: Any = None, configured: bool = True) -> Any:
    return validate_config(ValidationRequest(new, old, others, configured))


@pytest.mark.req("PL-031")
@pytest.mark.parametrize(
    ("new", "others", "old"),
    [
        (config(), (), None),
        (config(priority=7), (config("other", 8),), None),
        (config(priority=7), (config(priority=7),), None),
        (config(priority=7), (config("other", 7),), config(priority=7)),
        (config(plugins=scoring("arm64", "arm64", enabled=False)), (), None),
        (config(labelSelector={}), (), None),
    ],
    ids=["plain", "another priority", "itself in the cache", "equal before", "twice while disabled", "every pod"],
)
def test_what_is_accepted(new, others, old) -> None:
    """A conflict that is there already keeps nobody from mending something else."""
    assert refusal(new, *others, old=old) is None


@pytest.mark.req("PL-031", "PL-751", "PL-900")
@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (
            {"new": config(), "configured": False},
            400,
            ["PodPlacementConfig team/some", "create the ClusterPodPlacementConfig cluster first"],
        ),
        (
            {"new": config(labelSelector={"matchExpressions": [{"key": "a", "operator": "In"}]})},
            422,
            ["spec.labelSelector", "correct it"],
        ),
        (
            {"new": config(plugins=scoring("amd64", "arm64", "arm64"))},
            422,
            ["platforms[1] and [2] both have architecture arm64", "keep one"],
        ),
        (
            {"new": config(priority=200), "others": (config("b", 200), config("a", 200))},
            422,
            ["spec.priority: 200", "PodPlacementConfig a", "0 to 255"],
        ),
        (
            {"new": config(priority=7), "others": (config("other", 7),), "old": config(priority=6)},
            422,
            ["spec.priority: 7", "other"],
        ),
    ],
    ids=["no cluster configuration", "selector", "twice", "taken", "changed to one that is taken"],
)
def test_what_is_refused_and_how(given, code, said) -> None:
    """The number in decimal, and whose it is."""
    others, configured = given.get("others", ()), given.get("configured", True)
    refused = refusal(given["new"], *others, old=given.get("old"), configured=configured)
    assert refused.code == code
    assert all(part in refused.message for part in said), refused.message


@pytest.mark.req("PL-011")
@pytest.mark.parametrize("enabled", [True, False])
def test_the_clusters_plugin_names_no_architecture_twice_be_it_enabled_or_not(enabled) -> None:
    refused = validate_cluster_config(msgspec.convert(scoring("arm64", "amd64", "arm64", enabled=enabled), Plugins))
    assert refused is not None
    assert "platforms[0] and [2] both have architecture arm64" in refused.message
    assert validate_cluster_config(msgspec.convert(scoring("arm64", "amd64"), Plugins)) is None
    assert validate_cluster_config(None) is None


@pytest.mark.req("PL-011")
def test_the_cluster_configuration_stays_while_others_depend_on_it() -> None:
    """Up to five are named."""
    assert validate_deletion([]) is None
    refused = validate_deletion([config(f"c{at}", namespace=f"n{at}") for at in range(7)])
    assert refused is not None
    assert "n0/c0, n1/c1, n2/c2, n3/c3, n4/c4 and 2 more; delete them first" in refused.message
    assert refused.code == 403


@pytest.mark.req("PL-032")
def test_of_equal_priorities_the_later_names_are_shadowed() -> None:
    """Two that were created at the same moment."""
    configs = [config("c", 7), config("a", 7), config("b", 7), config("d", 8)]
    assert shadowed(configs) == {"b": "a", "c": "a"}
    assert shadowed([]) == {}


@pytest.mark.req("PL-031")
def test_none_is_created_while_the_cluster_configuration_is_being_deleted() -> None:
    """It would only prolong the deletion; what is there can still be changed."""
    late = ValidationRequest(config(), None, (), cluster_configured=True, cluster_terminating=True)
    refused = validate_config(late)
    assert refused is not None
    assert refused.code == 400
    assert "is being deleted" in refused.message
    assert validate_config(msgspec.structs.replace(late, old=config(priority=1))) is None


@pytest.mark.req("PL-872")
@pytest.mark.parametrize("operation", ["CREATE", "DELETE", "CREATE without a ClusterPodPlacementConfig"])
async def test_any_number_of_made_up_reviews_ask_the_api_server_a_few_at_a_time(operation) -> None:
    asking = most = 0

    async def busy() -> None:
        nonlocal asking, most
        asking += 1
        most = max(most, asking)
        await asyncio.sleep(0)
        asking -= 1

    async def list_(*_: object, **__: object) -> Any:
        await busy()
        return SimpleNamespace(items=[])

    async def get(*_: object, **__: object) -> Any:
        await busy()
        if operation.endswith("ClusterPodPlacementConfig"):
            raise NotFound(404)

    client: Any = SimpleNamespace(list=list_, get=get)
    webhooks = ResourceWebhooks(client, {}, {})  # type: ignore[arg-type]
    request: Any = SimpleNamespace(operation=operation, object=config(), old_object=None, namespace="team")
    review = webhooks.validate_cluster_config if operation == "DELETE" else webhooks.validate_config
    answers = await asyncio.gather(*(review(request) for _ in range(64)))
    assert len(answers) == 64
    assert most == LIVE_READS
