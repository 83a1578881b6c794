"""Which finalizers hold an object that is being deleted, and what people are told."""

import pytest

from polyarch.kube.owners import held_by_others, held_words
from polyarch.kube.resources import SERVICES
from polyarch.objects import ObjectMeta

pytestmark = pytest.mark.req("KR-052")

OURS = ("ours.example.dev/x",)


@pytest.mark.parametrize(
    ("finalizers", "deleted", "held"),
    [
        pytest.param(["a.example.com/x"], True, ("a.example.com/x",), id="of others"),
        pytest.param(["a.example.com/x", *OURS], True, ("a.example.com/x",), id="of others beside ours"),
        pytest.param([*OURS], True, (), id="ours"),
        pytest.param(["foregroundDeletion"], True, (), id="of Kubernetes, which waits for other objects"),
        pytest.param(["customresourcecleanup.apiextensions.k8s.io"], True, (), id="of a definition with objects"),
        pytest.param(["a.example.com/x"], False, (), id="not deleted"),
        pytest.param(None, True, (), id="none"),
    ],
)
def test_what_holds_is_what_others_set_on_an_object_that_is_deleted(finalizers, deleted, held) -> None:
    moment = "2026-01-01T00:00:00Z" if deleted else None
    metadata = ObjectMeta(name="web", namespace="ns", finalizers=finalizers, deletion_timestamp=moment)
    assert held_by_others(metadata, OURS) == held
    words = held_words(SERVICES, metadata, OURS)
    assert bool(words) == bool(held)
    assert all(each in words for each in held)
    assert not held or words.startswith("Service ns/web is held by finalizer ")
