"""An uninstall leaves nothing behind that would wait for us when somebody deletes it."""

from types import SimpleNamespace

import msgspec
import pytest

from polyarch.builds import names
from polyarch.installation.uninstall import release_records
from polyarch.kube.resources import CONFIGMAPS
from polyarch.objects import ObjectMeta, PartialObjectMetadata

pytestmark = pytest.mark.req("BD-233", "IN-003")


class Api:
    """One record of a machine OS build, with a finalizer of somebody else's, too."""

    def __init__(self):
        self.metadata = ObjectMeta(
            name="arch-worker-1",
            namespace="machines",
            resource_version="7",
            finalizers=["example.com/mine", names.IMAGES_FINALIZER],
        )
        self.patched = []

    async def list(self, resource, *, label_selector, type):
        assert (resource, label_selector) == (CONFIGMAPS, names.RUN_LABEL)
        return SimpleNamespace(items=[PartialObjectMetadata(metadata=self.metadata)])

    async def patch(self, resource, name, patch, *, namespace):
        self.patched.append((namespace, name, msgspec.to_builtins(patch.operations)))


@pytest.mark.req("BD-282")
async def test_records_of_machine_os_builds_are_released():
    api = Api()
    await release_records(api)
    ((namespace, name, operations),) = api.patched
    assert (namespace, name) == ("machines", "arch-worker-1")
    assert operations[-1]["value"] == ["example.com/mine"]
