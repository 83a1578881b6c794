"""ConfigMap ``polyarch-architectures``."""

import json
from typing import Any

import msgspec
import pytest
from fake_api import FakeApi

from polyarch.builds import names
from polyarch.builds.controller.image_builds import ArchitecturesConfigMap
from polyarch.builds.controller.informers import RecordConfigMap
from polyarch.kube.controller import NoRequeue
from polyarch.kube.resources import CONFIGMAPS
from polyarch.objects import ObjectKey

KEY = ObjectKey("polyarch", names.ARCHITECTURES_CONFIGMAP)


class Place:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.architectures: tuple[str, ...] | None = ("amd64", "arm64")
        self.wrote: list[ObjectKey] = []
        self.record = ArchitecturesConfigMap(
            self.api,
            KEY.namespace,
            stored=self.stored,
            architectures=lambda: self.architectures,
            wrote=lambda key, version: self.wrote.append(key),
        )

    def stored(self, key: ObjectKey) -> RecordConfigMap | None:
        found = self.api.objects.get((CONFIGMAPS, key.namespace, key.name))
        return msgspec.convert(found, RecordConfigMap) if found is not None else None

    async def look(self) -> dict[str, Any] | None:
        """A pass, and what the ConfigMap says after it."""
        assert await self.record.reconcile(KEY) == NoRequeue()
        found = self.stored(KEY)
        return json.loads(found.data.architectures) if found is not None and found.data is not None else None


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.mark.req("BD-048")
async def test_it_says_the_architectures_of_the_cluster_and_is_written_when_they_change(place: Place) -> None:
    both = {"architectures": ["amd64", "arm64"], "multiArchitecture": True, "schema": 1}
    assert await place.look() == both
    assert await place.look() == both
    assert place.wrote == [KEY], "the second look found nothing to write"
    place.architectures = ("amd64",)
    assert await place.look() == {"architectures": ["amd64"], "multiArchitecture": False, "schema": 1}
    assert len(place.wrote) == 2


@pytest.mark.req("BD-048")
async def test_what_somebody_edited_or_deleted_is_put_right(place: Place) -> None:
    wanted = await place.look()
    place.api.objects[CONFIGMAPS, KEY.namespace, KEY.name]["data"][names.ARCHITECTURES_FILE] = "{}"
    assert await place.look() == wanted
    del place.api.objects[CONFIGMAPS, KEY.namespace, KEY.name]
    assert await place.look() == wanted


@pytest.mark.req("BD-047")
async def test_nothing_is_said_while_the_nodes_are_not_known(place: Place) -> None:
    place.architectures = None
    assert await place.look() is None
    assert place.api.requests == []
