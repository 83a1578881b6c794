"""Finalizers by name, through patches that test what they were made for."""

import msgspec
import pytest
from fake_api import FakeApi

from polyarch.kube.errors import Invalid
from polyarch.kube.owners import add_finalizer, adding_finalizer, remove_finalizer, removing_finalizer
from polyarch.kube.patches import add, remove, test
from polyarch.kube.resources import CONFIGMAPS
from polyarch.objects import ObjectKey, ObjectMeta

OURS = "polyarch.dev/cleanup"
KEY = ObjectKey("n", "c")


def meta(*names, **fields):
    return ObjectMeta(
        name="c", namespace="n", uid="u-1", resource_version="101", finalizers=list(names) or None, **fields
    )


@pytest.mark.req("KR-052")
def test_the_patches_test_the_object_and_the_list():
    assert adding_finalizer(meta(), OURS).operations == (
        test("/metadata/uid", "u-1"),
        test("/metadata/resourceVersion", "101"),
        add("/metadata/finalizers", [OURS]),
    )
    assert adding_finalizer(meta("a"), OURS).operations == (
        test("/metadata/uid", "u-1"),
        test("/metadata/finalizers", ["a"]),
        add("/metadata/finalizers/-", OURS),
    )
    assert removing_finalizer(meta("a", OURS, "b"), OURS).operations == (
        test("/metadata/uid", "u-1"),
        test("/metadata/finalizers/1", OURS),
        remove("/metadata/finalizers/1"),
    )


@pytest.mark.req("KR-052")
def test_what_is_so_already_needs_no_patch():
    assert adding_finalizer(meta(OURS), OURS) is None
    assert adding_finalizer(meta("a", deletion_timestamp="2025-01-01T00:00:00Z"), OURS) is None
    assert removing_finalizer(meta("a"), OURS) is None
    assert removing_finalizer(meta(), OURS) is None


def api_with(*finalizers):
    api = FakeApi()
    metadata = {"name": "c", "namespace": "n", "uid": "u-1"}
    api.put(CONFIGMAPS, {"metadata": {**metadata, **({"finalizers": list(finalizers)} if finalizers else {})}})
    return api


def seen(api):
    return msgspec.convert(api.read(CONFIGMAPS, *reversed(KEY))["metadata"], ObjectMeta)


def change(api, **metadata):
    api.change(CONFIGMAPS, KEY, lambda document: document["metadata"].update(metadata))


@pytest.mark.req("KR-052")
@pytest.mark.parametrize("there", [(), ("a",)], ids=["the first one", "beside another"])
async def test_added_and_removed_again(there):
    api = api_with(*there)
    assert await add_finalizer(api, CONFIGMAPS, seen(api), OURS)
    assert seen(api).finalizers == [*there, OURS]
    assert await add_finalizer(api, CONFIGMAPS, seen(api), OURS)
    await remove_finalizer(api, CONFIGMAPS, seen(api), OURS)
    assert seen(api).finalizers == list(there)
    await remove_finalizer(api, CONFIGMAPS, seen(api), OURS)
    assert len(api.writes()) == 2, "what is so already costs nothing"


@pytest.mark.req("KR-052")
@pytest.mark.parametrize("write", [add_finalizer, remove_finalizer])
async def test_somebody_else_may_write_in_between(write):
    """The list that the cache shows is an old one; nothing of theirs is lost."""
    api = api_with("a", OURS) if write is remove_finalizer else api_with("a")
    before = seen(api)
    change(api, finalizers=["b", *(before.finalizers or [])])
    await write(api, CONFIGMAPS, before, OURS)
    assert seen(api).finalizers == (["b", "a"] if write is remove_finalizer else ["b", "a", OURS])


@pytest.mark.req("KR-052")
async def test_a_namesake_is_not_touched():
    api = api_with("a")
    before = seen(api)
    change(api, uid="u-2", finalizers=["a", OURS])
    assert not await add_finalizer(api, CONFIGMAPS, before, OURS)
    await remove_finalizer(api, CONFIGMAPS, before, OURS)
    assert seen(api).finalizers == ["a", OURS]


@pytest.mark.req("KR-052")
async def test_an_object_that_is_gone_has_no_finalizer():
    api = api_with("a", OURS)
    before = seen(api)
    api.remove(CONFIGMAPS, "c", "n")
    await remove_finalizer(api, CONFIGMAPS, before, OURS)
    assert not await add_finalizer(api, CONFIGMAPS, meta("a"), OURS)


@pytest.mark.req("KR-052")
async def test_endless_races_are_an_error_and_no_loop():
    api = api_with()

    async def race(verb, resource, name):
        if verb == "patch":
            change(api, labels={"n": str(api.version)})

    api.hook = race
    with pytest.raises(Invalid):
        await add_finalizer(api, CONFIGMAPS, seen(api), OURS)
    assert len(api.writes()) == 3
