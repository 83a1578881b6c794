"""An uninstall leaves nothing behind that would wait for us when somebody deletes it."""

import pytest
from fake_api import FakeApi

from polyarch.builds import names
from polyarch.installation.uninstall import release_records
from polyarch.kube.resources import CONFIGMAPS

pytestmark = pytest.mark.req("BD-233", "IN-003")


@pytest.mark.req("BD-282")
async def test_records_of_machine_os_builds_are_released():
    api = FakeApi()
    metadata = {"namespace": "machines", "labels": {names.RUN_LABEL: "run"}}
    finalizers = ["example.com/mine", names.IMAGES_FINALIZER]
    api.put(CONFIGMAPS, {"metadata": {"name": "arch-worker-1", **metadata, "finalizers": finalizers}})
    api.put(CONFIGMAPS, {"metadata": {"name": "other", "namespace": "machines", "finalizers": finalizers}})
    await release_records(api)
    records = {document["metadata"]["name"]: document["metadata"]["finalizers"] for document in api.of(CONFIGMAPS)}
    assert records == {"arch-worker-1": ["example.com/mine"], "other": finalizers}
