"""What each verb puts on the wire."""

from urllib.parse import parse_qs

import msgspec
import pytest
from msgspec import UNSET

from polyarch.kube import requests
from polyarch.kube.patches import ApplyPatch, JsonPatch, MergePatch, StrategicPatch, add, remove, replace, test
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import (
    CLUSTER_ROLES,
    CONFIGMAPS,
    DEPLOYMENTS,
    EVENTS,
    KNOWN,
    LEASES,
    NODES,
    PODS,
    Resource,
    by_kind,
)
from polyarch.kube.responses import METADATA_ONLY
from polyarch.objects import ObjectMeta, PartialObjectMetadata


def query(request):
    return {key: values[0] for key, values in parse_qs(request.query, keep_blank_values=True).items()}


@pytest.mark.req("KR-003")
@pytest.mark.parametrize(
    ("resource", "arguments", "path"),
    [
        (PODS, (), "/api/v1/pods"),
        (PODS, ("demo",), "/api/v1/namespaces/demo/pods"),
        (PODS, ("demo", "web", "log"), "/api/v1/namespaces/demo/pods/web/log"),
        (DEPLOYMENTS, ("demo", "web"), "/apis/apps/v1/namespaces/demo/deployments/web"),
        (NODES, ("", "n1", "status"), "/api/v1/nodes/n1/status"),
        (CLUSTER_ROLES, ("", "system:node"), "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node"),
        (NODES, ("", "a b%c"), "/api/v1/nodes/a%20b%25c"),
    ],
)
def test_paths_of_objects(resource, arguments, path):
    assert resource.path(*arguments) == path


@pytest.mark.req("KR-003")
@pytest.mark.parametrize(
    ("resource", "arguments", "problem"),
    [
        (NODES, ("demo",), "cluster-scoped"),
        (PODS, ("", "web"), "without its namespace"),
        (PODS, ("demo", "", "status"), "needs the name"),
        (PODS, ("demo", "../secrets"), "cannot be the name"),
        (PODS, ("..", "x"), "cannot be the name"),
    ],
)
def test_a_path_that_can_only_be_a_mistake_is_refused(resource, arguments, problem):
    with pytest.raises(ValueError, match=problem):
        resource.path(*arguments)


def test_every_known_resource_is_found_by_its_kind():
    for resource in KNOWN:
        assert by_kind(resource.api_version, resource.kind) == resource
    with pytest.raises(LookupError, match=r"example\.com/v1"):
        by_kind("example.com/v1", "Thing")


@pytest.mark.req("KR-003", "KR-005")
@pytest.mark.parametrize(
    ("patch", "content_type", "body"),
    [
        (JsonPatch((add("/a", 1),)), "application/json-patch+json", [{"op": "add", "path": "/a", "value": 1}]),
        (MergePatch({"a": None}), "application/merge-patch+json", {"a": None}),
        (StrategicPatch({"a": 1}), "application/strategic-merge-patch+json", {"a": 1}),
        (ApplyPatch({"a": 1}), "application/apply-patch+yaml", {"a": 1}),
    ],
)
def test_all_four_kinds_of_patch(patch, content_type, body):
    """Media type, body, field manager; force belongs to apply alone."""
    request = requests.patch(PODS, "web", patch, namespace="demo", dry_run=True)
    assert request.method == "PATCH"
    assert request.content_type == content_type
    assert msgspec.json.decode(request.body) == body
    expected = {"fieldManager": "polyarch", "dryRun": "All"}
    if isinstance(patch, ApplyPatch):
        expected["force"] = "true"
    assert query(request) == expected


@pytest.mark.req("KR-003")
def test_apply_names_the_kind_and_can_leave_conflicts_standing():
    request = requests.apply(CONFIGMAPS, {"metadata": {"name": "c"}, "data": {}}, namespace="demo", force=False)
    assert msgspec.json.decode(request.body)["kind"] == "ConfigMap"
    assert "force" not in query(request)
    with pytest.raises(ValueError, match=r"metadata\.name"):
        requests.apply(CONFIGMAPS, {"metadata": {"generateName": "c-"}}, namespace="demo")


@pytest.mark.req("KR-004")
@pytest.mark.parametrize("send", [requests.create, requests.apply])
def test_what_was_read_is_never_sent_back(send):
    """A slim Struct lacks the fields that we do not know, sending it would delete them."""
    with pytest.raises(TypeError, match="PartialObjectMetadata"):
        send(PODS, PartialObjectMetadata(ObjectMeta(name="web")), namespace="demo")


@pytest.mark.req("KR-003", "KR-030")
def test_only_leases_and_complete_documents_are_replaced_and_only_conditionally():
    lease = {"metadata": {"name": "l", "resourceVersion": "5"}, "spec": {}}
    request = requests.replace(LEASES, lease, namespace="demo")
    assert (request.method, request.verb) == ("PUT", "update")
    whole = {"metadata": {"name": "n", "resourceVersion": "7"}, "fieldOfTomorrow": 1}
    assert msgspec.json.decode(requests.replace(NODES, whole, namespace="", complete=True).body) == whole
    with pytest.raises(ValueError, match="never replaced"):
        requests.replace(PODS, lease, namespace="demo")
    with pytest.raises(ValueError, match="resourceVersion"):
        requests.replace(LEASES, {"metadata": {"name": "l"}}, namespace="demo")


@pytest.mark.req("KR-003")
def test_delete_with_preconditions_and_propagation():
    request = requests.delete(
        PODS,
        "web",
        namespace="demo",
        uid="u1",
        resource_version="7",
        propagation="Foreground",
        grace_period_seconds=0,
        dry_run=True,
    )
    assert msgspec.json.decode(request.body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u1", "resourceVersion": "7"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
        "dryRun": ["All"],
    }


@pytest.mark.req("KR-003")
def test_subresources_of_pods_and_service_accounts():
    """Binding, eviction, token, log."""
    bind = requests.bind("demo", "web", "n1", "u1")
    assert bind.path == "/api/v1/namespaces/demo/pods/web/binding"
    assert bind.resource == "pods/binding"
    assert msgspec.json.decode(bind.body)["target"]["name"] == "n1"
    assert msgspec.json.decode(bind.body)["metadata"]["uid"] == "u1"

    evict = requests.evict("demo", "web", uid="u1", grace_period_seconds=5)
    assert evict.path == "/api/v1/namespaces/demo/pods/web/eviction"
    options = msgspec.json.decode(evict.body)["deleteOptions"]
    assert options == {"preconditions": {"uid": "u1"}, "gracePeriodSeconds": 5}

    token = requests.token("demo", "robot", audiences=("a",), expiration_seconds=600)
    assert token.path == "/api/v1/namespaces/demo/serviceaccounts/robot/token"
    assert msgspec.json.decode(token.body)["spec"] == {"expirationSeconds": 600, "audiences": ["a"]}
    assert token.idempotent

    log = requests.log("demo", "web", container="c", previous=True, tail_lines=0)
    assert query(log) == {"container": "c", "previous": "true", "tailLines": "0"}


@pytest.mark.req("KR-011", "KR-012")
def test_a_streaming_list_asks_for_the_end_mark():
    """sendInitialEvents with resourceVersionMatch, bookmarks always."""
    request = requests.watch(
        PODS,
        ListOptions("demo", "a=b,c!=d", "spec.nodeName="),
        resource_version="",
        timeout_seconds=301,
        initial_events=True,
    )
    assert request.path == "/api/v1/namespaces/demo/pods"
    assert query(request) == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "301",
        "labelSelector": "a=b,c!=d",
        "fieldSelector": "spec.nodeName=",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
    }
    plain = requests.watch(PODS, ListOptions(), resource_version="7", timeout_seconds=301)
    assert query(plain)["resourceVersion"] == "7"
    assert "sendInitialEvents" not in query(plain)


@pytest.mark.req("KR-003")
def test_a_continued_page_does_not_repeat_the_resource_version():
    """The server answers 400 to a continue token together with a resourceVersion."""
    first = requests.list_page(PODS, ListOptions(), limit=500, resource_version="0")
    assert query(first) == {"limit": "500", "resourceVersion": "0"}
    later = requests.list_page(PODS, ListOptions(), limit=500, continue_token="abc", resource_version="0")
    assert query(later) == {"limit": "500", "continue": "abc"}


@pytest.mark.req("KR-003")
def test_metadata_only_is_asked_for_in_kubernetes_own_words():
    assert METADATA_ONLY.startswith("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")


def test_a_custom_resource_is_named_as_rbac_names_it():
    assert str(Resource("example.com", "v1", "things", "Thing")) == "things.example.com"
    assert str(PODS) == "pods"


@pytest.mark.req("KR-005")
def test_who_owns_another_part_of_an_object_names_its_own_manager():
    change = MergePatch({})
    assert query(requests.patch(PODS, "web", change, namespace="demo", field_manager="polyarch-taints")) == {
        "fieldManager": "polyarch-taints"
    }
    applied = requests.apply(CONFIGMAPS, {"metadata": {"name": "c"}}, namespace="demo", field_manager="polyarch-x")
    assert query(applied) == {"fieldManager": "polyarch-x", "force": "true"}


@pytest.mark.req("KR-055")
def test_a_collection_is_deleted_by_selector_and_never_as_a_whole():
    chosen = ListOptions("demo", label_selector="a=b")
    request = requests.delete_collection(EVENTS, chosen, propagation="Background", grace_period_seconds=0)
    assert (request.method, request.verb) == ("DELETE", "deletecollection")
    assert request.path == "/apis/events.k8s.io/v1/namespaces/demo/events"
    assert query(request) == {"labelSelector": "a=b"}
    assert msgspec.json.decode(request.body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "gracePeriodSeconds": 0,
    }
    with pytest.raises(ValueError, match="needs a label or field selector"):
        requests.delete_collection(EVENTS, ListOptions("demo"))


@pytest.mark.req("KR-055")
@pytest.mark.parametrize(
    ("old", "new", "version", "operations"),
    [
        pytest.param(["a"], ["b"], "", (test("/x", ["a"]), replace("/x", ["b"])), id="changed"),
        pytest.param(["a"], UNSET, "", (test("/x", ["a"]), remove("/x")), id="removed"),
        pytest.param(UNSET, 1, "7", (test("/metadata/resourceVersion", "7"), add("/x", 1)), id="added"),
        pytest.param(UNSET, UNSET, "7", (test("/metadata/resourceVersion", "7"),), id="still absent"),
    ],
)
def test_one_field_is_changed_from_what_was_read(old, new, version, operations):
    """Who wrote in between makes the patch fail instead of losing what they wrote."""
    assert JsonPatch.tested("/x", old, new, resource_version=version).operations == operations


@pytest.mark.req("KR-055")
def test_that_a_field_is_absent_needs_the_version_of_the_object():
    with pytest.raises(ValueError, match="needs the resourceVersion"):
        JsonPatch.tested("/x", UNSET, 1)
